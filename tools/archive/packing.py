"""Pack runs as an entry, with blanks for what only a human can say."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import yaml

from dgbench.errors import RecordError
from dgbench.records.files import write_whole
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.folders import ENTRY_FILE, ROWS
from tools.archive.entries import (
    ABOUT,
    BLANK,
    CHECKSUMMED,
    LEADERBOARD,
    MEASURES,
    NAME,
    License,
    SelectionName,
    sha256_of,
)
from tools.archive.packed_runs import PackedRun, packed_runs, recorded_of, write_packed
from tools.archive.tables import board_of, missing_of, studies_of, table_text

HEAD = f"""\
# Replace every {BLANK}. docs: results/CONTRIBUTING.md; check: python tools/results.py check
title: {BLANK}  # one line
who:
  - name: {BLANK}
    # affiliation: and url: may follow
date: {{date}}
license: {BLANK}  # of the rows: {", ".join(get_args(License))}
selection: {{selection}}  # which evaluated step counts, and which draw of a search
# replaces: NAME of the entry that this one corrects; that one gets frozen: and why
obtained:  # how you came by the images: a command, a URL
{{obtained}}
notes: {BLANK}  # what a reader must know: deviations, what failed, why something is missing
# written by the tool, compared with the rows
"""
ABOUT_TEXT = f"# {BLANK}\n\n{BLANK}\n\n```bash\npython report.py 'runs=[results/{{name}}]'\n```\n"


def pack(
    name: str, roots: Sequence[str | Path], results: Path, selection: str = "last"
) -> tuple[Path, list[str]]:
    """Write ``results/NAME`` from runs, with blanks for what only a human can say.

    Args:
        name: of the entry: lowercase letters, digits and ``_``.
        roots: run folders and folders of sweeps.
        results: the archive.
        selection: a file of ``conf/selection`` that looks at no test environment.

    Returns:
        the folder; and what was left out, in words.

    Raises:
        RecordError: the name is taken or invalid, there are no finished runs, or two records of one
            run disagree.
        OSError: the folder cannot be written.
    """
    folder = results / name
    selections = get_args(SelectionName)
    if not NAME.fullmatch(name):
        raise RecordError(f"{name} is no name of an entry; take lowercase letters, digits and _")
    if selection not in selections:
        raise RecordError(f"selection={selection} is not accepted; choose {', '.join(selections)}")
    if folder.exists():
        raise RecordError(
            f"{folder} is there, and an entry is not changed; take another name, and say "
            f"replaces: {name}"
        )
    packed, left_out = _packed_or_left_out(roots)
    folder.mkdir(parents=True)
    try:
        _write_entry(folder, packed, selection)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return folder, left_out


def _packed_or_left_out(roots: Sequence[str | Path]) -> tuple[list[PackedRun], list[str]]:
    """Read runs and pack them; list in words what no table can take."""
    collection = collect(roots)
    left_out = []
    for problem in collection.problems:
        left_out.append(f"{problem.kind}: {problem.where}: {problem.reason}")
        if problem.kind == "disagreement":
            raise RecordError(f"{left_out[-1]}; name folders that hold one of the two")
    packed = packed_runs(collection)
    if not packed:
        raise RecordError(f"no finished run in {', '.join(map(str, roots))}; {left_out[:1]}")
    return packed, left_out


def _write_entry(folder: Path, packed: Sequence[PackedRun], selection: str) -> None:
    write_packed(packed, folder / ROWS)
    studies = studies_of(folder / ROWS, selection)
    write_whole(folder / MEASURES, table_text(studies))
    write_whole(folder / LEADERBOARD, table_text(board_of(studies)))
    write_whole(folder / ABOUT, ABOUT_TEXT.format(name=folder.name))
    bases = dict.fromkeys(run["run"]["identity"]["base"] for run in packed)
    obtained = "\n".join(f"  {base}: {BLANK}" for base in bases)
    written = {
        "missing": missing_of(studies),
        "recorded": recorded_of(packed),
        "sha256": {name: sha256_of(folder / name) for name in CHECKSUMMED},
    }
    tail = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=1000)
    head = HEAD.format(date=datetime.now(UTC).date(), selection=selection, obtained=obtained)
    write_whole(folder / ENTRY_FILE, head + tail)
