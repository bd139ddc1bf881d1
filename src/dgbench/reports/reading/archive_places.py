"""Which packed files a folder stands for: those in it, and those of the entries of an archive."""

from __future__ import annotations

from pathlib import Path

import yaml

from dgbench.records.files import read_regular
from dgbench.reports.reading.folders import Problem, printable

SUFFIX = ".jsonl.xz"
ENTRY_FILE = "entry.yaml"  #: in the folder of an entry: what it is
ROWS = f"rows{SUFFIX}"  #: beside it: its packed runs


def archives_in(folder: Path) -> tuple[list[Path], list[Problem]]:
    """The packed files that lie in a folder, then those of entries in it that are not frozen.

    Args:
        folder: a folder with packed files, an entry, or an archive of entries such as ``results``.

    Returns:
        the files; and a problem for each frozen entry, which is read only where it is named itself.
    """
    files, problems = sorted(folder.glob(f"*{SUFFIX}")), []
    for entry in sorted(folder.glob(f"*/{ENTRY_FILE}")):
        if why := frozen_reason(entry):
            problems.append(Problem("frozen entry", printable(entry.parent), f"{why}; name its folder to read it"))
        else:
            files.append(entry.parent / ROWS)
    return files, problems


def frozen_reason(entry: Path) -> str:
    """What ``frozen:`` says in an ``entry.yaml``; empty where it says nothing or cannot be read."""
    try:
        content = yaml.safe_load(read_regular(entry))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    found = content.get("frozen") if isinstance(content, dict) else None
    return printable(" ".join(str(found).split())) if found else ""
