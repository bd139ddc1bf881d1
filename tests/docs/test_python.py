"""What stands after ``>>>`` in README and docs/ prints what the page says; the training example of python.md runs."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "python.md"


@pytest.mark.parametrize(
    ("page", "count"),
    [(PAGE, 4), (ROOT / "README.md", 1), (ROOT / "docs" / "concepts" / "statistics.md", 1)],
    ids=lambda value: str(value)[-9:],
)
def test_the_printed_output_is_real(monkeypatch: pytest.MonkeyPatch, page: Path, count: int) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^```pycon\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == count
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, page.name, str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    told: list[str] = []
    runner.run(test, out=told.append)
    assert (runner.summarize(verbose=False).failed, "".join(told)) == (0, "")


def test_the_training_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its numbers may differ on another machine, the words may not."""
    text = PAGE.read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()[-4:]
    words = [re.sub(r"\d+\.\d+", "", line).split() for line in printed]
    assert words == [re.sub(r"\d+\.\d+", "", line).split() for line in shown.splitlines()]
