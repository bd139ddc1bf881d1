"""Where the configuration tree ``conf/`` is, and how a command starts: in a checkout, and from a wheel."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent  #: folder of the code
_INSTALLED = PACKAGE / "conf"

#: folder of the configuration groups; a wheel carries a copy of ``conf/`` inside the package
CONF = _INSTALLED if _INSTALLED.is_dir() else PACKAGE.parents[1] / "conf"


def command_words(name: str) -> list[str]:
    """Return the words that start a command: ``dgbench train`` if typed or from a wheel, else ``python train.py``."""
    program = CONF == _INSTALLED or sys.argv[0].startswith("dgbench ")  # set by dgbench.cli.main
    return ["dgbench", name] if program else ["python", f"{name}.py"]


def typed_words(name: str) -> list[str]:
    """Return the words that a user typed to start this command."""
    return [*command_words(name), *sys.argv[1:]]
