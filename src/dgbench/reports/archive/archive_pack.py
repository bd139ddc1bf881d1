"""Makes the folder of an entry from run folders: all files, with blanks for what only a human can say."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from dgbench.errors import RecordError
from dgbench.records.files import write_whole
from dgbench.reports.archive.archive_entry import (
    ABOUT,
    BLANK,
    CHECKSUMMED,
    LEADERBOARD_FILE,
    LICENSES,
    MEASURES_FILE,
    NAME,
    SELECTIONS,
)
from dgbench.reports.archive.entry_tables import evaluated, leaderboard_csv, measures_csv, missing_of
from dgbench.reports.archive.packed_runs import Line, pack_lines, write_lines
from dgbench.reports.archive.recorded import recorded_of
from dgbench.reports.reading.archives import ENTRY_FILE, ROWS

_HEAD = f"""\
# Replace every {BLANK}. docs: results/CONTRIBUTING.md; check: dgbench results check --entry NAME
title: {BLANK}  # one line
who:
  - name: {BLANK}
    # affiliation: and url: may follow
date: {{date}}
license: {BLANK}  # of the rows: {", ".join(LICENSES)}
selection: {{selection}}  # which evaluated step counts, and which draw of a search
# replaces: NAME of the entry that this one corrects; that one gets frozen: and why
obtained:  # how you came by the images: a command, a URL
{{obtained}}
notes: {BLANK}  # what a reader must know: deviations from a published protocol, what failed, why something is missing
"""
_ABOUT = """\
# {blank}

{blank}

```bash
python report.py 'runs=[results/{name}]'
```
"""


def pack(name: str, roots: Sequence[str | Path], results: Path, selection: str = "last") -> tuple[Path, list[str]]:
    """Write ``results/NAME`` from runs.

    Args:
        name: of the entry: lowercase letters, digits and ``_``.
        roots: run folders, folders of sweeps, or packed files.
        results: the archive.
        selection: a file of ``conf/selection`` that looks at no test environment.

    Returns:
        the folder, and what was left out, in words.

    Raises:
        RecordError: the name is taken or none, there are no runs, or they cannot share an entry.
        OSError: the folder cannot be written.
    """
    if not NAME.fullmatch(name):
        raise RecordError(f"{name} is no name of an entry; take lowercase letters, digits and _")
    if selection not in SELECTIONS:
        raise RecordError(
            f"selection={selection} is not accepted; choose from {', '.join(SELECTIONS)}, every other one can be "
            "computed from the rows"
        )
    folder = results / name
    if folder.exists():
        raise RecordError(
            f"{folder} is there, and an entry is not changed; take another name, and say replaces: {name}"
        )
    lines, left_out = pack_lines(roots)
    if not lines:
        raise RecordError(f"no finished run in {', '.join(map(str, roots))} ({len(left_out)} left out)")
    folder.mkdir(parents=True)
    try:
        _write(folder, lines, selection)
    except BaseException:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        raise
    return folder, left_out


def _write(folder: Path, lines: Sequence[Line], selection: str) -> None:
    write_lines(lines, folder / ROWS)
    _, _, evaluation = evaluated([folder / ROWS], selection)
    write_whole(folder / MEASURES_FILE, measures_csv(evaluation, selection))
    write_whole(folder / LEADERBOARD_FILE, leaderboard_csv(evaluation, selection))
    write_whole(folder / ABOUT, _ABOUT.format(blank=BLANK, name=folder.name))
    bases = dict.fromkeys(line["run"]["identity"]["base"] for line in lines)
    obtained = "\n".join(f"  {base}: {BLANK}" for base in bases)
    head = _HEAD.format(date=datetime.now(UTC).date(), selection=selection, obtained=obtained)
    written: dict[str, Any] = {
        "missing": missing_of(evaluation),
        "recorded": recorded_of(lines),
        "sha256": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in CHECKSUMMED},
    }
    tail = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=1000)
    write_whole(folder / ENTRY_FILE, f"{head}# written by the tool, compared with the rows\n{tail}")
