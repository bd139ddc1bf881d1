"""Pages show what their commands print: cheap ones are run here, dear ones by `make outputs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts import script

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = script(ROOT / "docs" / "outputs.py")
WITH_CHEAP_OUTPUTS = [
    page
    for page in OUTPUTS.pages()
    if any(not block.dear for block in OUTPUTS.blocks(page.read_text()))
]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CHEAP_OUTPUTS, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path) -> None:
    shown = OUTPUTS.blocks(page.read_text())
    for number, printed in OUTPUTS.printed_now(page):
        if not shown[number].shows(printed):
            assert shown[number].output == printed, f"run docs/outputs.py {page.relative_to(ROOT)}"


PAGE = """# Page

<!-- output of: echo 3 seeds took 12 s -->
```
$ echo 3 seeds
{cheap}
```

<!-- dear output of: echo trained | tee model -->
```
{dear}
```

<!-- output of: ls model 2>&1 || true -->
```text
model
```
"""


def renewed(page: Path, *words: str) -> str:
    """Run docs/outputs.py on a page; return the last line that it prints."""
    ended = subprocess.run(
        [sys.executable, ROOT / "docs" / "outputs.py", *words, page],
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.splitlines()[-1]


def test_a_cheap_output_is_renewed_and_a_dear_one_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(cheap="2 seeds took 12 s", dear="old"))
    assert renewed(page, "--only", "echo") == "1 new outputs"
    assert page.read_text() == PAGE.format(cheap="3 seeds took 12 s", dear="old")


def test_dear_outputs_are_renewed_when_asked_for(tmp_path: Path) -> None:
    """Commands of a page share a folder: the last one finds what the dear one made."""
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(cheap="3 seeds took 12 s", dear="old"))
    assert renewed(page, "--dear") == "1 new outputs"
    assert page.read_text() == PAGE.format(cheap="3 seeds took 12 s", dear="trained")


def test_another_time_alone_is_no_new_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = PAGE.format(cheap="3 seeds took    9.5 s", dear="old")
    page.write_text(text)
    assert renewed(page, "--only", "seeds") == "0 new outputs"
    assert page.read_text() == text


@pytest.mark.parametrize("times", ["~4 h 51 min", "13.6 GB", "0.1 core hours", "2 min to 5 min"])
def test_times_and_sizes_are_masked(times: str) -> None:
    masked = OUTPUTS.without_measured(f"erm: {times}")
    assert "#" in masked
    assert not set(masked) & set("0123456789")


@pytest.mark.parametrize("text", ["3 seeds", "12.5 ± 0.3", "5 studies", "step 5000", "9 months"])
def test_nothing_else_is_masked(text: str) -> None:
    assert OUTPUTS.without_measured(text) == text


def test_a_command_that_fails_ends_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such thing"):
        OUTPUTS.run("echo no such thing >&2; false", tmp_path)
