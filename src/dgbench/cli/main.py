"""The installed program: ``dgbench train algorithm=vrex`` is ``python train.py algorithm=vrex``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pkgutil import resolve_name

from dgbench.version import __version__

#: command -> what runs it with the words of ``sys.argv``, loaded when it is called; and one line
#: for ``--help``
COMMANDS = {
    "train": ("dgbench.cli.train:train", "train every fold of a study; with -m a sweep of studies"),
    "report": ("dgbench.cli.report:report", "tables, figures and pages from finished runs"),
    "shift": ("dgbench.cli.shift:shift", "how far the environments of a dataset are apart"),
    "evaluate": ("dgbench.cli.models:evaluate_command", "rows of any model on any dataset"),
    "fetch": ("dgbench.data.fetch.__main__:command", "download datasets, and verify those on disk"),
}
#: command that an earlier version had -> what to use
LEFT = {
    "export": (
        "the folder of a run is what dgbench.load reads; docs/how_to/models.md shows how its "
        "tensors are saved"
    ),
    "results": "in a checkout, python tools/results.py packs, checks and lists entries of results/",
}
#: for bash; Hydra's own knows programs of one word only. Its answers are taken for the commands
#: that it runs
COMPLETION = """\
_dgbench() {
    local word=${COMP_WORDS[COMP_CWORD]} name=${COMP_WORDS[1]} choices=
    if [ "$COMP_CWORD" -eq 1 ]; then
        choices="%s"
    elif [[ " train report shift " == *" $name "* ]]; then
        choices=$(COMP_LINE="dgbench ${COMP_LINE#*dgbench $name}" \\
            dgbench "$name" -sc query=bash 2> /dev/null)
    fi
    COMPREPLY=($(compgen -o nospace -o default -W "$choices" -- "$word"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _dgbench dgbench"""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that the first word names with the words after it.

    Args:
        words: what was typed after ``dgbench``; those of this process by default.

    Raises:
        SystemExit: what was typed is no command, or the command ends with another exit code than 0.
    """
    listed = "\n".join(f"  {name:8} {about}" for name, (_, about) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="dgbench",
        usage="dgbench COMMAND [WORDS]",
        description="Domain generalization experiments.",
        epilog=(
            f"commands:\n{listed}\n\n"
            "`dgbench COMMAND --help` says more. Tab completion in bash:\n"
            '  eval "$(dgbench --shell-completion install=bash)"'
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dgbench {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    typed = list(sys.argv[1:] if words is None else words)
    if "install=bash" in typed and {"--shell-completion", "-sc"} & {*typed}:
        print(COMPLETION % " ".join(COMMANDS))
        return
    if typed[:1] and typed[0] in LEFT:
        parser.error(f"there is no command {typed[0]} any more: {LEFT[typed[0]]}")
    name = parser.parse_args(typed[:1]).command
    sys.argv = [f"dgbench {name}", *typed[1:]]
    try:
        try:
            resolve_name(COMMANDS[name][0])()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        from dgbench.cli.entry import end_if_unread

        end_if_unread()
        raise  # a pipe of ours broke


if __name__ == "__main__":
    main()
