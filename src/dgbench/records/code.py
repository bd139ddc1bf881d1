"""The version of dgbench that computes here, as rows and provenance name it."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from dgbench.version import __version__

ROOT = Path(__file__).resolve().parents[3]  # of the repository, where dgbench runs from one
DIRTY = "-dirty"
SOURCES = ("src", "conf")  # a new file here is new code, e.g. an algorithm with its configuration
SECONDS = 5.0  # for an answer of git


@functools.cache
def code_version() -> str:
    """Version of dgbench, with the commit, and ``-dirty`` where files differ from it or new ones are not in it.

    Without git or outside of a repository the version alone. Asked once per process: code that was imported does not
    change with the files.
    """
    described = _git("describe", "--always", "--dirty", "--exclude", "*")
    if described is None:
        return __version__
    if not described.endswith(DIRTY) and _git("ls-files", "--others", "--exclude-standard", "--", *SOURCES):
        described += DIRTY
    return f"{__version__}+{described}"


@functools.cache
def commit() -> dict[str, str | bool | None]:
    """``commit`` in full, and whether the code is ``dirty``; None both where git does not know."""
    found = _git("rev-parse", "HEAD")
    return {"commit": found, "dirty": None if found is None else code_version().endswith(DIRTY)}


def _git(*words: str) -> str | None:
    """What git answers about the repository of this package; None where it cannot."""
    if not (ROOT / ".git").exists():  # never the commit of a repository that merely surrounds an installed package
        return None
    try:
        asked = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None
