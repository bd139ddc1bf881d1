"""Words that are typed in vain: nothing that the command does reads them.

Where results would be others than the word says it is refused, with what makes it count. A
preference that changes no result, as how often a logger gets a line, is only named. Values that
were not typed are never named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError
from dgbench.plan.mappings import is_mapping
from dgbench.plan.needs import Config, Dataset, Need
from dgbench.plan.overrides import leaves

_NO_SUBFOLDER = "folders are named after what is trained; leave it out"
#: key, or beginning of keys -> what to write instead, of a command with ``-m`` ...
UNREAD_IN_SWEEPS: Mapping[str, str] = {
    "paths.output_dir": "with -m studies go to hydra.sweep.dir; write hydra.sweep.dir={value}",
    "hydra.sweep.subdir": _NO_SUBFOLDER,
    "hydra.sweeper.max_batch_size": "all jobs are launched together; leave it out",
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
    "hydra": (
        "dgbench.train starts no sweep and keeps no log of Hydra; use the command line, or leave "
        "it out"
    ),
    "sweep": UNREAD_ALONE["sweep"],
}
NOTHING = ("null", "{}", "[]")  #: values that ask for nothing

#: plain values of a study by top-level key, and what describes its dataset
Reading = tuple[Config, Dataset]


def key_of(word: str) -> str:
    """Return the key, or group, that an override sets."""
    return re.split("[=@]", word.lstrip("+~"))[0].replace("/", ".")


def refuse_unread(words: Iterable[str], unread: Mapping[str, str]) -> None:
    """Refuse words whose keys a command does not read.

    Args:
        words: overrides as typed.
        unread: key, or beginning of keys -> what to do instead; ``{value}`` is what was typed.

    Raises:
        ConfigError: there is one.
    """
    for word in words:
        beginning = longest(key_of(word), unread)
        if beginning:
            fix = unread[beginning].replace("{value}", word.partition("=")[2])
            raise ConfigError(f"{word} changes nothing here: {fix}")


def refuse_run_folder(words: Sequence[str], folder: str) -> None:
    """Refuse Hydra's folder of a run, which holds no results.

    Hydra's own records may go there, and it may move there.

    Args:
        words: all that was typed.
        folder: key of the folder that is meant.

    Raises:
        ConfigError: it was typed, and Hydra was asked for neither.
    """
    records = any(key_of(word) in ("hydra.output_subdir", "hydra.job.chdir") for word in words)
    for word in words:
        if longest(key_of(word), ["hydra.run"]) and not records:
            fix = f"results go to {folder}; write {folder}={word.partition('=')[2]}"
            raise ConfigError(f"{word} changes nothing here: {fix}")


def replaced(words: Sequence[str]) -> list[str]:
    """Name the words that a later one replaces.

    Of two that set the same key, Hydra takes the last.
    """
    last: dict[str, str] = {}
    lines = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key.startswith(("-", "~")) or is_mapping(value):  # mappings are merged
            continue
        before = last.get(key.lstrip("+"))
        if before not in (None, word):
            lines.append(f"{before} counts for nothing: {word} after it replaces it")
        last[key.lstrip("+")] = word
    return lines


def longest(key: str, entries: Iterable[str]) -> str:
    """Find the longest entry that is the key or a beginning of it, at a dot; empty for none."""
    beginnings = [entry for entry in entries if f"{key}.".startswith(f"{entry}.")]
    return max(beginnings, key=len, default="")


def keys_of(word: str) -> Iterator[str]:
    """Iterate over the dotted keys that an override sets: those within a mapping, or its own.

    A word that asks for nothing has none: ``trainer.gradient_clip=null``, or one that starts with
    ``~``.
    """
    value = word.partition("=")[2]
    if word.startswith("~") or value in NOTHING:
        return
    key = key_of(word)
    values = None
    if is_mapping(value):
        with suppress(HydraException):
            values = OverridesParser.create().parse_override(word).value()
    if isinstance(values, dict):
        yield from (name for name, inner in leaves(values, key) if inner is not None)
    else:
        yield key


def without_misleading(
    words: Iterable[str], config: Config, needs: Mapping[str, Need]
) -> list[str]:
    """Leave out words that :func:`check_needs` would refuse of this configuration.

    No hash depends on them.
    """

    def misleads(key: str) -> bool:
        need = needs.get(longest(key, needs))
        return need is not None and need.misleads and not need.met(key, config, no_dataset)

    return [word for word in words if not any(map(misleads, keys_of(word)))]


def no_dataset() -> DatasetInfo:
    """Stand for the dataset where no key that is asked for depends on one."""
    raise AssertionError


def _doubtful(words: Iterable[str], needs: Mapping[str, Need]) -> list[tuple[str, str, str]]:
    """List the words that need something to be read, with the key and its entry in ``needs``."""
    doubtful = []
    for word in words:
        for key in keys_of(word):
            entry = longest(key, needs)
            if entry:
                doubtful.append((word, key, entry))
    return doubtful


def check_needs(
    words: Iterable[str],
    readings: Callable[[], Iterable[Reading]],
    needs: Mapping[str, Need],
    tell: Callable[[str], None],
) -> None:
    """Refuse words that no study of a command reads, or name them where that changes no result.

    A word that some studies read and others do not, as a hyperparameter of one algorithm among
    several, is named.

    Args:
        words: overrides as typed.
        readings: makes the configurations of the command's studies, if a word may be unread.
        needs: key, or beginning of keys -> what it needs to be read.
        tell: names a word.

    Raises:
        ConfigError: for the first one that would mislead.
    """
    doubtful = _doubtful(words, needs)
    if not doubtful:
        return
    n = 0
    reads = dict.fromkeys(doubtful, 0)
    for config, describe in readings():
        n += 1
        for word, key, entry in doubtful:
            reads[word, key, entry] += needs[entry].met(key, config, describe)
    for (word, key, entry), count in reads.items():
        need = needs[entry]
        shown_word = word.removeprefix("++")
        within = "" if key_of(word) == key else f" ({key})"
        if not count and need.misleads:
            raise ConfigError(f"{shown_word} changes nothing here{within}: {need.fix}")
        if not count:
            tell(f"{shown_word} changes nothing here{within}: {need.fix}")
        elif count < n and need.misleads:
            tell(
                f"{shown_word} counts in {count} of {n} studies{within}; in the others: {need.fix}"
            )
