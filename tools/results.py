"""Entries of ``results/``: pack runs as one, check them by computing everything again, list them.

    python tools/results.py pack NAME RUNS... [--results DIR] [--selection NAME]
    python tools/results.py check [DIR] [--entry NAME]
    python tools/results.py index [DIR]

RUNS are run folders and folders of sweeps, DIR is the archive (``results``). ``--selection``, one
of last, train_val and loo_val, says which evaluated step counts. ``check`` prints a line for each
fault and ends with exit code 1 if there is one. ``index`` writes README.md, LEADERBOARD.md and two
CSV files over all entries, and a croissant.json into each. results/CONTRIBUTING.md says more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # as a script, of which this folder's parent is no package
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dgbench.errors import DgbenchError, reason_of
from dgbench.reports.reading.folders import ENTRY_FILE
from tools.archive.checking import check_archive
from tools.archive.entries import ABOUT, BLANK
from tools.archive.listing import write_index
from tools.archive.packing import pack


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line; return the exit code."""
    parser = _parser()
    options = parser.parse_args(words)
    try:
        return {"pack": _pack, "check": _check, "index": _index}[options.command](options)
    except (DgbenchError, OSError) as error:
        print(f"{parser.prog}: {reason_of(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python tools/results.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, dest="command")
    packing = commands.add_parser("pack", help="make an entry of runs", allow_abbrev=False)
    packing.add_argument("name", metavar="NAME")
    packing.add_argument("runs", metavar="RUNS", nargs="+")
    packing.add_argument("--results", type=Path, default=Path("results"))
    packing.add_argument("--selection", default="last")
    checking = commands.add_parser("check", help="list what is wrong", allow_abbrev=False)
    checking.add_argument("--entry", default="")
    indexing = commands.add_parser("index", help="write what is generated", allow_abbrev=False)
    for command in (checking, indexing):
        command.add_argument("results", type=Path, nargs="?", default=Path("results"))
    return parser


def _pack(options: argparse.Namespace) -> int:
    folder, left_out = pack(options.name, options.runs, options.results, options.selection)
    for line in left_out:
        print(line, file=sys.stderr)
    print(f"{folder}: now replace every {BLANK} in its {ENTRY_FILE} and {ABOUT}")
    return 0


def _check(options: argparse.Namespace) -> int:
    faults = check_archive(options.results, options.entry)
    print("\n".join(faults) or f"{options.entry or options.results}: nothing wrong")
    return int(bool(faults))


def _index(options: argparse.Namespace) -> int:
    changed = write_index(options.results)
    print("\n".join(f"written: {path}" for path in changed) or "nothing to write")
    return 0


if __name__ == "__main__":
    sys.exit(main())
