"""Where the configuration tree ``conf/`` is, and how commands are written: in a checkout, and from a wheel."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
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


def quoted_word(word: str) -> str:
    """Quote a word of a command for the shell, in double quotes where these are easier to read."""
    return f'"{word}"' if "'" in word and not set('"$`\\!') & set(word) else shlex.quote(word)


def command_line(words: Iterable[str]) -> str:
    """Write the words of a command as a user types them in a shell."""
    return " ".join(map(quoted_word, words))
