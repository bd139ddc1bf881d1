"""Where the configuration tree ``conf/`` is, and how commands are written.

Both differ between a checkout and a wheel.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent  #: folder of the code
_INSTALLED = PACKAGE / "conf"
CONFIG_DIR = ("--config-dir", "-cd")  #: options of Hydra that name a folder of the user's own

#: folder of the configuration groups; a wheel carries a copy of ``conf/`` inside the package
CONF = _INSTALLED if _INSTALLED.is_dir() else PACKAGE.parents[1] / "conf"


def command_words(name: str) -> list[str]:
    """Return the words that start a command.

    These are ``dgbench train`` if typed or from a wheel, else ``python train.py``.
    """
    program = CONF == _INSTALLED or sys.argv[0].startswith("dgbench ")  # set by dgbench.cli.main
    return ["dgbench", name] if program else ["python", f"{name}.py"]


def typed_words(name: str) -> list[str]:
    """Return the words that a user typed to start this command."""
    return [*command_words(name), *sys.argv[1:]]


def config_options(words: Sequence[str]) -> list[str]:
    """Return ``--config-dir FOLDER`` as it stands among the words of a command, if it does."""
    with_value = tuple(f"{option}=" for option in CONFIG_DIR)
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word in CONFIG_DIR:
            return [word, following]
        if word.startswith(with_value):
            return [word]
    return []


def python_path() -> str:
    """Return ``PYTHONPATH`` as far as modules of the user's own are there.

    Folders beside ``--config-dir`` are left out.
    """
    known = {PACKAGE.parent}
    options = config_options(sys.argv[1:])
    if options:
        name = options[0].partition("=")[0]
        known.add(Path(options[-1].removeprefix(f"{name}=")).resolve().parent)
    folders = []
    for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if folder and Path(folder).resolve() not in known:
            folders.append(folder)
    return os.pathsep.join(folders)


def typed_command(name: str) -> str:
    """Write what a user typed to start this command, with the ``PYTHONPATH`` that it needs."""
    return with_python_path(command_line(typed_words(name)), python_path())


def with_python_path(command: str, folders: str) -> str:
    """Put ``PYTHONPATH`` before a command, as a shell reads it; no folders leave it as it is."""
    return f"PYTHONPATH={shlex.quote(folders)} {command}" if folders else command


def quoted_word(word: str) -> str:
    """Quote a word of a command for the shell, in double quotes if these are easier to read."""
    if "'" in word and not set('"$`\\!') & set(word):
        return f'"{word}"'
    return shlex.quote(word)


def command_line(words: Iterable[str]) -> str:
    """Write the words of a command as a user types them in a shell."""
    return " ".join(map(quoted_word, words))
