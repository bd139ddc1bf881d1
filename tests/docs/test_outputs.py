"""Outputs on pages were printed: cheap commands print them now, and of the others it is known which
code did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scripts import script

ROOT = Path(__file__).resolve().parents[2]
CHEAP = ("trainer.stepz", "runs=[results/")  # parts of commands that end within seconds


OUTPUTS = script(ROOT / "docs" / "outputs.py")
SHOWN = [
    pytest.param(OUTPUTS.name(page), block, id=f"{page.stem}: {block.command[:60]}")
    for page in OUTPUTS.pages()
    for block in OUTPUTS.blocks(page.read_text())
]


def test_every_output_is_known() -> None:
    """A block without a language that names no command is refused by test_blocks.py."""
    assert len(SHOWN) >= 4
    known = {(page, command) for page, of in OUTPUTS.kept().items() for command in of}
    shown = {(each.values[0], each.values[1].command) for each in SHOWN}
    assert known <= shown, "docs/outputs.json names what no page shows"
    assert {command for page, command in shown - known if page == "README.md"} == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "block"),
    [each for each in SHOWN if any(part in each.values[1].command for part in CHEAP)],
)
def test_a_cheap_command_prints_what_is_shown(page: str, block: Any, tmp_path: Path) -> None:
    assert OUTPUTS.run(block.command, tmp_path) == block.output


@pytest.mark.parametrize(("page", "block"), SHOWN)
def test_an_output_is_as_old_as_the_code(page: str, block: Any) -> None:
    known = OUTPUTS.kept().get(page, {}).get(block.command, {"code": "unknown"})
    if known["code"] != block.depends_on:
        pytest.skip(
            f"shown by code {known['code']}, renew it with docs/outputs.py {page}: {block.command}"
        )
