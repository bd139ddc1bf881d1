"""The installed program: ``dgbench train algorithm=vrex`` is ``python train.py algorithm=vrex``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgbench.version import __version__


@dataclass(frozen=True)
class Command:
    """One word after ``dgbench``.

    Args:
        run: runs it; reads its own words from ``sys.argv``.
        about: one line for ``dgbench --help``.
    """

    run: Callable[[], None]
    about: str


def _train() -> None:
    from dgbench.cli.train import train

    train()


def _report() -> None:
    from dgbench.cli.report import report

    report()


def _shift() -> None:
    from dgbench.cli.shift import shift

    shift()


def _evaluate() -> None:
    from dgbench.cli.evaluate import main as evaluate

    evaluate()


def _export() -> None:
    from dgbench.cli.export import main as export

    export()


def _results() -> None:
    from dgbench.cli.results_command import main as results

    results()


def _fetch() -> None:
    import runpy

    runpy.run_module("dgbench.data.fetch", run_name="__main__")


COMMANDS = {
    "train": Command(_train, "train every fold of a study; with -m a sweep of studies"),
    "report": Command(_report, "tables, figures and pages from finished runs"),
    "shift": Command(_shift, "how far the environments of a dataset are apart"),
    "evaluate": Command(_evaluate, "rows of any model on any dataset"),
    "export": Command(_export, "a trained run as a folder to hand on"),
    "results": Command(_results, "pack, check and list entries of the archive of results"),
    "fetch": Command(_fetch, "download datasets, and verify those on disk"),
}


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that the first word names with the words after it.

    Args:
        words: what was typed after ``dgbench``; those of this process by default.

    Raises:
        SystemExit: what was typed is no command, or the command ends with another exit code than 0.
    """
    listed = "\n".join(f"  {name:8} {command.about}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="dgbench",
        usage="dgbench COMMAND [WORDS]",
        description="Domain generalization experiments.",
        epilog=f"commands:\n{listed}\n\n`dgbench COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dgbench {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    typed = list(sys.argv[1:] if words is None else words)
    name = parser.parse_args(typed[:1]).command
    sys.argv = [f"dgbench {name}", *typed[1:]]
    COMMANDS[name].run()
