"""Where the configuration tree ``conf/`` is, and how a command starts: in a checkout, and from a wheel."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "conf"

#: folder of the configuration groups; a wheel carries a copy of ``conf/`` inside the package
CONF = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parents[1] / "conf"


def command_words(name: str) -> list[str]:
    """The words that start a command: ``python train.py`` in a checkout, ``dgbench train`` where only a wheel is."""
    return ["dgbench", name] if CONF == _INSTALLED else ["python", f"{name}.py"]


def typed_words(name: str) -> list[str]:
    """What a user typed to start this command."""
    return [*command_words(name), *sys.argv[1:]]
