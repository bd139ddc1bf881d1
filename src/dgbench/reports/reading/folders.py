"""What counts as a run folder, what its status says, and which archives of runs lie in a folder."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from dgbench.phases import tracked
from dgbench.records.checks import LONGEST
from dgbench.records.files import NOT_REGULAR, read_yaml
from dgbench.records.rows import ROW_FILE, SHIFT_FILE
from dgbench.records.status import STATUS_FILE, read_status

UNKNOWN = "UNKNOWN"  #: the status of a folder that has none
UNREADABLE_FOLDER = "unreadable folder"
UNREADABLE_FILE = "unreadable file"
UNREADABLE_PLAN = "unreadable plan"
NO_FOLDER = "no such folder"
#: kinds of problems that may hide runs
HIDING = frozenset({UNREADABLE_FOLDER, UNREADABLE_FILE, UNREADABLE_PLAN})

_CONFIG = "config.yaml"
_OF_RUNS = (ROW_FILE, STATUS_FILE, _CONFIG)
# folders inside a run that hold no runs
_NOT_OURS = {
    "checkpoints",
    "wandb",
    "tensorboard",
    "logger",
}
SUFFIX = ".jsonl.xz"
ENTRY_FILE = "entry.yaml"  #: in the folder of an entry: what it is
ROWS = f"rows{SUFFIX}"  #: beside it: its packed runs


#: kind of a problem that leaves nothing out: how something ambiguous was read
ASSUMED = "assumed"


@dataclass(frozen=True)
class Problem:
    """Something that keeps results out of a table, or that a reader must know."""

    kind: str
    where: str
    reason: str


@dataclass(frozen=True)
class RunFolder:
    """A folder that belongs to one run."""

    path: Path
    status: str  #: a word of :mod:`dgbench.records.status`, or :data:`UNKNOWN`
    reason: str  #: what the status says besides
    root: Path = Path()  #: the searched folder that it was found under
    #: it was made for, of a run without rows, or None if that is not known
    fold: str | None = None


def places(roots: Any) -> list[Path]:
    """List the folders and files that a user named: one, several, or none.

    Patterns such as ``results/pacs_*`` are expanded, which shells leave as they are in brackets,
    and ``~`` from Python.
    """
    paths = roots if isinstance(roots, Iterable) and not isinstance(roots, str | Path) else [roots]
    named = [os.path.expanduser(str(root)) for root in paths if root is not None and str(root)]
    matches = chain.from_iterable(_matches(path) for path in named)
    return [Path(place) for place in matches]


def _matches(path: str) -> list[str]:
    """List what a pattern matches but frozen entries.

    It is the path itself if it exists, is no pattern, or fits nothing.
    """
    if not glob.has_magic(path) or os.path.exists(path):
        return [path]
    return [
        match for match in sorted(glob.glob(path)) if not frozen_reason(Path(match) / ENTRY_FILE)
    ] or [path]


def printable(text: str | Path) -> str:
    """Escape characters that would break the file, page or terminal a text is written to, e.g. in
    an odd file name.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(letter: str) -> str:
    if letter.isprintable():
        return letter
    return letter.encode("unicode_escape", "surrogatepass").decode()


def nothing_found(roots: Sequence[Path], problems: Sequence[Problem], subject: str = "runs") -> str:
    """Write ``no runs under DIR``, the first problem that was found there, and how many more."""
    folders = ", ".join(map(printable, roots)) or "an empty list of folders"
    texts = [
        f"{problem.kind} {problem.where}: {problem.reason}"
        for problem in problems
        if problem.kind != NO_FOLDER
    ]
    remainder = f", and {len(texts) - 1} more" if texts[1:] else ""
    return f"no {subject} under {folders}" + (f" ({texts[0]}{remainder})" if texts else "")


def find_runs(roots: Sequence[Path]) -> tuple[list[RunFolder], list[Problem]]:
    """Find run folders under ``roots``, sorted by path and each once.

    Whatever cannot be searched is a problem.

    A folder is a run when it has rows, a status or a configuration. A folder that only has a
    configuration and contains runs is the study around them. Other folders, those of estimated
    shifts among them, links to folders, and what lies in hidden ones, are passed over.
    """
    runs: dict[str, RunFolder] = {}
    around: set[str] = set()  # real paths of all folders that contain runs
    problems: list[Problem] = []
    for root in roots:
        real_root = os.path.realpath(root)
        only_config = []
        for name, present in searched(root, (*_OF_RUNS, SHIFT_FILE), problems):
            if SHIFT_FILE in present:
                continue
            real = (
                os.path.join(real_root, os.path.relpath(name, root))
                if name != str(root)
                else real_root
            )
            if present == [_CONFIG]:
                only_config.append((name, real))
            elif present:
                status = read_status(Path(name))
                reason = printable(status.reason)[:LONGEST] or "no readable status file" * (
                    not status.word
                )
                runs.setdefault(real, RunFolder(Path(name), status.word or UNKNOWN, reason, root))
                around.update(_parents(real, around))
        for name, real in only_config:
            if real not in around:
                runs.setdefault(
                    real, RunFolder(Path(name), UNKNOWN, "configured, never started", root)
                )
    return sorted(runs.values(), key=lambda run: str(run.path)), list(dict.fromkeys(problems))


def searched(
    root: Path, wanted: Sequence[str], problems: list[Problem]
) -> Iterator[tuple[str, list[str]]]:
    """Yield every folder under a root with those of the wanted files that it has.

    No link to a folder is followed.

    Args:
        root: where the search begins; hidden folders are passed over.
        wanted: names of files.
        problems: receives what cannot be read.
    """

    def unreadable(error: OSError) -> None:
        path = printable(error.filename or root)
        reason = f"{error.strerror}; make it readable, or name other folders"
        problems.append(Problem(UNREADABLE_FOLDER, path, reason))

    if not os.path.isdir(root):
        problems.append(Problem(NO_FOLDER, printable(root), "nothing read from it"))
        return
    walked = os.walk(root, onerror=unreadable)
    for name, folders, files in tracked(walked, f"searching {printable(root)}", None, "folders"):
        names = {*folders, *files}
        yield (
            name,
            [file for file in wanted if file in names and _is_regular(f"{name}/{file}", problems)],
        )
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _NOT_OURS)


def _is_regular(file: str, problems: list[Problem]) -> bool:
    try:
        reason = "" if stat.S_ISREG(os.stat(file).st_mode) else NOT_REGULAR
    except OSError as error:  # a link that leads nowhere, or in a circle
        reason = error.strerror or str(error)
    if reason:
        problems.append(
            Problem(UNREADABLE_FILE, printable(file), f"{reason}; remove it, or make it readable")
        )
    return not reason


def _parents(path: str, around: set[str]) -> Iterator[str]:
    parent = os.path.dirname(path)
    while parent not in around and parent != os.path.dirname(parent):
        yield parent
        parent = os.path.dirname(parent)


def fold_of(folder: RunFolder) -> str | None:
    """Read which fold a run folder was made for; return None if that is not known.

    It is ``fold.name`` of its configuration. For runs that stopped before their first row; all
    others carry their fold in the rows.
    """
    document = _yaml(folder.path / _CONFIG)
    try:
        # member: as older versions wrote it
        name = (document.get("fold") or document["member"])["name"]
    except (KeyError, TypeError, AttributeError):
        return None
    return printable(str(name)) if isinstance(name, str | int) else None


def _yaml(file: Path) -> Any:
    """Read a YAML file; return None if there is none that can be read."""
    with suppress(OSError, ValueError):
        return read_yaml(file)


def archives_in(folder: Path) -> tuple[list[Path], list[Problem]]:
    """List the packed files that lie in a folder, then those of its entries that are not frozen.

    Args:
        folder: a folder with packed files, an entry, or an archive of entries such as ``results``.

    Returns:
        the files; and a problem for each frozen entry, which is read only where it is named itself.
    """
    files = sorted(folder.glob(f"*{SUFFIX}"))
    problems = []
    for entry in sorted(folder.glob(f"*/{ENTRY_FILE}")):
        reason = frozen_reason(entry)
        if reason:
            advice = f"{reason}; name its folder to read it"
            problems.append(Problem("frozen entry", printable(entry.parent), advice))
        else:
            files.append(entry.parent / ROWS)
    return files, problems


def frozen_reason(entry: Path) -> str:
    """Read what ``frozen:`` says in an ``entry.yaml``.

    Returns an empty text if it says nothing, or is not readable.
    """
    content = _yaml(entry)
    reason = content.get("frozen") if isinstance(content, dict) else None
    if isinstance(reason, str):
        return printable(" ".join(reason.split()))
    return "frozen" if reason else ""
