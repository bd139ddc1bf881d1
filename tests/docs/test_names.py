"""What pages name exists: functions and modules of dgbench, and files of the repository."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "results").glob("*.md")),
]
PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "dgbench").glob("*/__init__.py"))
_FILE = re.compile(
    rf"`((?:src|conf|tests|benchmarks|docs|tools|results)/[\w./*-]*\w|(?:{'|'.join(PACKAGES)})/[\w./*-]*\.py)/?`"
)
_TO_WRITE = re.compile(r"NAME|GROUP|ENTRY|AUTHORYEAR")  # names that the reader chooses


def _resolve(name: str) -> object:
    """A module, or what a module holds under that name."""
    parts = name.split(".")
    found: object = import_module(parts[0])
    for i, part in enumerate(parts[1:], 1):
        found = (
            getattr(found, part)
            if hasattr(found, part)
            else import_module(".".join(parts[: i + 1]))
        )
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    for name, call in re.findall(r"`(dgbench(?:\.\w+)+)(\(?)", text):
        found = _resolve(name)
        assert not call or callable(found), f"{name} cannot be called"
    for file in (found for found in _FILE.findall(text) if not _TO_WRITE.search(found)):
        assert list(ROOT.glob(file)) or list((ROOT / "src" / "dgbench").glob(file)), (
            f"{file} does not exist"
        )
