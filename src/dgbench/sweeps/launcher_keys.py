"""What the keys of ``hydra.launcher`` may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgbench.errors import ConfigError


@dataclass(frozen=True)
class _Number:
    """A number, at least ``least`` or above it."""

    least: float
    whole: bool = True
    above: bool = False
    null: str = ""  #: what null stands for; empty where there has to be a number

    def allows(self, value: Any) -> bool:
        if value is None:
            return bool(self.null)
        kinds = int if self.whole else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not math.isfinite(value):
            return False
        return bool(value > self.least if self.above else value >= self.least)

    def __str__(self) -> str:
        return f"{'an integer' if self.whole else 'a number'} {'>' if self.above else '>='} {self.least:g}"


LOCAL = {
    "workers": _Number(1, null="as many as there are cores or GPUs"),
    "per_gpu": _Number(1),
    "threads": _Number(1),
}
SLURM = {
    "timeout_min": _Number(1, null="the cluster's own limit"),
    "signal_delay_s": _Number(0),
    "max_num_timeout": _Number(0),
    "nodes": _Number(1, null="the cluster's default"),
    "tasks_per_node": _Number(1, null="the cluster's default"),
    "cpus_per_task": _Number(1, null="the cluster's default"),
    "gpus_per_node": _Number(0, null="none"),
    "mem_gb": _Number(0, whole=False, above=True, null="the cluster's default"),
    "array_parallelism": _Number(1, null="the cluster's own limit"),
    "resubmit": _Number(0),
    "poll_seconds": _Number(0, whole=False, above=True),
    "silence_minutes": _Number(0, whole=False, above=True),
}


def check_local(keys: Mapping[str, Any]) -> None:
    """Refuse what ``hydra/launcher=local`` cannot work with.

    Raises:
        ConfigError: a value that cannot be meant.
    """
    _check(LOCAL, keys)


def check_slurm(keys: Mapping[str, Any]) -> None:
    """Refuse what ``hydra/launcher=slurm`` cannot work with; what Slurm alone knows, it says itself.

    Raises:
        ConfigError: a value that cannot be meant.
    """
    _check(SLURM, keys)


def _check(numbers: Mapping[str, _Number], keys: Mapping[str, Any]) -> None:
    for key, number in numbers.items():
        if not number.allows(keys[key]):
            null = f", or null for {number.null}" if number.null else ""
            raise ConfigError(f"hydra.launcher.{key}={keys[key]} is not {number}; give one{null}")
