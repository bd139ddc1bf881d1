"""Where a key is typed: one hyperparameter has one address, ``hparams.NAME``."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.errors import ConfigError
from dgbench.training.hyperparameters import SEARCH_KEYS
from dgbench.training.typed_words import readable

#: old address of a key -> the one address it has now
MOVED = {
    "trainer.lr": "hparams.lr",
    "trainer.weight_decay": "hparams.weight_decay",
    "trainer.batch_size": "hparams.batch_size",
    "execution.max_members": "execution.max_runs",
    "sweep.members_per_job": "sweep.runs_per_job",
}
MOVED_GROUPS = {"hparams.set.": "hparams.", "algorithm.hparams.": "hparams."}


def open_keys(words: Sequence[str]) -> list[str]:
    """Overrides as Hydra takes them: with quotes where it needs them, and keys that stand in no file opened.

    Raises:
        ConfigError: an address that a key had once.
    """
    return [_open(word if word.startswith("-") else readable(word)) for word in words]


def _open(word: str) -> str:
    key = word.lstrip("+~").partition("=")[0]
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
