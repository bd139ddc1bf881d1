"""``dgbench results``: pack runs as an entry of the archive of results, check entries, write what
lists them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from dgbench.cli.entry import plain_command, sign_of_life
from dgbench.errors import ConfigError

_HELP = """\
Pack runs as an entry of the archive of results, check entries, write what lists them.

  dgbench results pack NAME RUNS... [--results DIR] [--selection NAME]
  dgbench results check [DIR] [--entry NAME]
  dgbench results index [DIR]

Examples:
  dgbench results pack my_study multirun       results/my_study from every run under multirun
  dgbench results check --entry my_study       what is wrong with it; without --entry, with all and the index
  dgbench results index                        results/README.md, LEADERBOARD.md and the CSV files over all entries

Options:
  RUNS         run folders, folders of sweeps
  DIR          the archive (default: results)
  --selection  last, train_val or loo_val: which evaluated step counts (default: last)

check ends with exit code 1 where something is wrong. results/CONTRIBUTING.md says more."""


class _Parser(argparse.ArgumentParser):
    """Say in one line what is wrong with the words."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see dgbench results --help")


def _results(words: Sequence[str]) -> None:
    parser = _Parser(prog="dgbench results", add_help=False, allow_abbrev=False)
    commands = parser.add_subparsers(
        required=True, dest="command", metavar="pack, check or index", parser_class=_Parser
    )
    pack, check, index = (
        commands.add_parser(name, add_help=False, allow_abbrev=False) for name in _RUN
    )
    pack.add_argument("name", metavar="NAME")
    pack.add_argument("runs", metavar="RUNS", nargs="+")
    pack.add_argument("--results", type=Path, default=Path("results"))
    pack.add_argument("--selection", default="last")
    check.add_argument("--entry", default="")
    for subparser in (check, index):
        subparser.add_argument("results", type=Path, nargs="?", default=Path("results"))
    options = parser.parse_args(words)
    _RUN[options.command](options)


def _pack(options: argparse.Namespace) -> None:
    sign_of_life("reading runs ...")
    from dgbench.reports.archive.entries import BLANK, pack

    folder, left_out = pack(options.name, options.runs, options.results, options.selection)
    for reason in left_out:
        print(reason, file=sys.stderr)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(
        f"{folder}: {size / 1e3:.0f} kB; now replace every {BLANK} in its entry.yaml and README.md"
    )


def _check(options: argparse.Namespace) -> None:
    sign_of_life("computing everything again ...")
    from dgbench.reports.archive.upkeep import check_archive

    findings = check_archive(options.results, options.entry)
    for finding in findings:
        print(finding)
    if findings:
        print(f"dgbench: {len(findings)} problem{'s' * (len(findings) > 1)}", file=sys.stderr)
        sys.exit(1)
    print(f"{options.entry or options.results}: nothing wrong")


def _index(options: argparse.Namespace) -> None:
    from dgbench.reports.archive.upkeep import write_index

    changed = write_index(options.results)
    print("\n".join(f"written: {path}" for path in changed) or "nothing to write")


command = partial(plain_command, _results, lambda: _HELP)
_RUN = {"pack": _pack, "check": _check, "index": _index}
