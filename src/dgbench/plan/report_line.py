"""Write the command of a report on runs that another command trained: it selects steps as that one
did.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgbench.analysis.selection import Selection
from dgbench.configuration import (
    CONF,
    command_line,
    command_words,
    config_options,
    python_path,
    with_python_path,
)
from dgbench.plan.keys import content_of_file
from dgbench.plan.overrides import grammar, list_override, options


def report_line(folders: Sequence[Path | str], words: Sequence[str] = ()) -> str:
    """Write the command of a report on the runs of these folders.

    Args:
        folders: that hold runs.
        words: further overrides, such as ``report=status``.
    """
    runs = list_override("runs", [str(folder) for folder in folders])
    return command_line([*command_words("report"), *words, runs])


def selecting_report_line(selection: Selection, folders: Sequence[Path | str]) -> str:
    """Write the command of a report that selects steps by this selection, on the runs of these
    folders.
    """
    name = selection.name
    if name == "last":  # the default of reports
        return report_line(folders)
    if name in options("selection"):
        return report_line(folders, [f"selection={name}", *_parameters(selection)])
    typed = [
        word for word in sys.argv[1:] if word.lstrip("+").startswith(("selection=", "selection."))
    ]
    line = report_line(folders, [*config_options(sys.argv[1:]), *typed])
    return with_python_path(line, python_path())


def _parameters(selection: Selection) -> list[str]:
    """List the overrides of keys that its file in ``conf/selection`` sets otherwise."""
    defaults = content_of_file(CONF / "selection" / f"{selection.name}.yaml")
    words = []
    for key, default in defaults.items():
        value: Any = getattr(selection, key, default)
        if value != default:
            words.append(f"selection.{key}={grammar(value)}")
    return words
