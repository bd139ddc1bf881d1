"""Where a key is typed: one hyperparameter has one address, ``hparams.NAME``."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.errors import ConfigError
from dgbench.training.hyperparameters import SEARCH_KEYS
from dgbench.training.known_keys import options, tops
from dgbench.training.typed_words import readable

#: old address of a key -> the one address it has now
MOVED = {
    "trainer.lr": "hparams.lr",
    "trainer.weight_decay": "hparams.weight_decay",
    "trainer.batch_size": "hparams.batch_size",
    "execution.max_members": "execution.max_runs",
    "sweep.members_per_job": "sweep.runs_per_job",
}
SEVERAL = {"estimator"}  # groups of which a command may choose several
MOVED_GROUPS = {"hparams.set.": "hparams.", "algorithm.hparams.": "hparams."}


def open_keys(words: Sequence[str]) -> list[str]:
    """Overrides as Hydra takes them: with quotes where it needs them, and keys that stand in no file opened.

    Raises:
        ConfigError: an address that a key had once.
    """
    return [_open(word if word.startswith("-") else readable(word)) for word in words]


def _open(word: str) -> str:
    key = word.lstrip("+~").partition("=")[0]
    _check_word(word, key)
    now = MOVED.get(key) or next(
        (new + key.removeprefix(old) for old, new in MOVED_GROUPS.items() if key.startswith(old)), None
    )
    if key in ("hparams.set", "algorithm.hparams"):
        now = "hparams.NAME"
    if now:
        raise ConfigError(f"{key} is set by {now}; write {now}={word.partition('=')[2]}")
    chosen = key.startswith("hparams.") and key.split(".")[1] not in SEARCH_KEYS
    opens = "=" in word and not word.startswith(("+", "~")) and (chosen or key == "grid" or key.startswith("grid."))
    return f"++{word}" if opens else word


def _check_word(word: str, key: str) -> None:
    """Refuse what Hydra would take for something else, or answer with a riddle."""
    value, choices = word.partition("=")[2], options(key)
    if word.startswith("-"):
        return
    if not key:
        raise ConfigError(f"{word} names no key; write KEY=VALUE")
    if choices and word.startswith("~"):
        raise ConfigError(f"{word} takes out a group that every command has; choose another with {key}=NAME")
    if choices and word.startswith("+"):
        raise ConfigError(f"{word} adds a group that is there already; write {key}={value} without +")
    if choices and "=" in word and (not value or (value.startswith("[") and key not in SEVERAL)):
        names = "no choice" if not value else "several choices"
        one_job = f", or several in one job with grid.{key}={value}" if value else ""
        raise ConfigError(f"{word} names {names}; give one of {', '.join(choices)}{one_job}")
    top = key.partition(".")[0]
    if word.startswith("~") and key in tops():
        raise ConfigError(f"{word} takes out a key that every command has; set it with {key}=VALUE")
    if word.startswith("+") and top not in tops() and "/" not in top and "@" not in top:
        raise ConfigError(
            f"{word} adds a key that nothing reads; docs/reference/configuration.md has those that are read"
        )
