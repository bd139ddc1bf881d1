"""Words that are typed in vain: what a command reads only as a sweep, or only as a single command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from dgbench.errors import ConfigError

#: key, or beginning of keys -> what to write instead, of a command with ``-m`` ...
UNREAD_IN_SWEEPS: Mapping[str, str] = {
    "paths.output_dir": "with -m studies go to hydra.sweep.dir; write hydra.sweep.dir={value}",
}
#: ... without it ...
UNREAD_ALONE: Mapping[str, str] = {
    "hydra.sweep": "it is read with -m; write paths.output_dir=FOLDER, or add -m",
    "hydra.launcher": "it starts the jobs of a sweep; add -m, or leave it out",
    "hydra.sweeper": "it is read with -m; add that, or leave it out",
    "sweep": "it packs the jobs of a sweep; add -m, or leave it out",
}
#: ... and of ``dgbench.train``
UNREAD_IN_PYTHON: Mapping[str, str] = {
    "hydra": "dgbench.train starts no sweep and keeps no log of Hydra; use the command line, or leave it out",
    "sweep": UNREAD_ALONE["sweep"],
}


def key_of(word: str) -> str:
    """Return the key, or group, that an override sets."""
    return re.split("[=@]", word.lstrip("+~"))[0].replace("/", ".")


def refuse_unread(words: Iterable[str], unread: Mapping[str, str]) -> None:
    """Refuse words whose keys a command does not read.

    Args:
        words: overrides as typed.
        unread: key, or beginning of keys -> what to do instead, in which ``{value}`` is the value that was typed.

    Raises:
        ConfigError: there is one.
    """
    for word in words:
        key = key_of(word)
        for beginning, instead in unread.items():
            if f"{key}.".startswith(f"{beginning}."):
                fix = instead.replace("{value}", word.partition("=")[2])
                raise ConfigError(f"{word} changes nothing here: {fix}")
