"""docs/tutorials/notebook.ipynb runs and shows what its cells print: numbers may differ by machine,
words may not.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.scripts import script

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 300_000  # bytes, so that a clone stays small
NUMBER = re.compile(r"\d+(\.\d+)?")
ABSOLUTE = re.compile(r"(?<![<\w:./])/\w[\w.-]*/|[A-Z]:\\")


def texts(cell: Any) -> list[str]:
    """What a cell prints; ``image/png`` where it draws."""
    found = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        found.append(
            "image/png" if "image/png" in data else data.get("text/plain") or output.get("text", "")
        )
    return found


def words(cell: Any) -> list[list[str]]:
    return [NUMBER.sub("", text).split() for text in texts(cell)]


@pytest.fixture
def notebook() -> ModuleType:
    return script(ROOT / "docs" / "notebook_outputs.py")


def shown(notebook: ModuleType) -> list[Any]:
    cells: list[Any] = notebook.nbformat.read(notebook.NOTEBOOK, as_version=4).cells
    return cells


@pytest.mark.slow
def test_it_runs_and_shows_what_it_prints(
    notebook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    fresh = notebook.executed(tmp_path).cells
    for now, before in zip(fresh, shown(notebook), strict=True):
        assert words(now) == words(before), (
            f"run docs/notebook_outputs.py; outputs are stale:\n{before.source}"
        )
    assert [*tmp_path.glob("outputs/*/fold-*/errors.jsonl")], "it writes where it runs"


def test_it_is_small_and_knows_no_machine(notebook: ModuleType) -> None:
    assert notebook.NOTEBOOK.stat().st_size < LARGEST
    for number, cell in enumerate(shown(notebook)):
        for text in (cell.source, *texts(cell)):
            assert not ABSOLUTE.search(text), f"cell {number} names a path: {text}"
            assert "\r" not in text and "it/s" not in text, f"cell {number} shows a progress bar"
        if cell.cell_type == "code":
            assert cell.execution_count and not any(
                each.get("name") == "stderr" for each in cell.outputs
            ), number
