"""Types and bounds of the keys that every run has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.errors import ConfigError

SUBSETS = ("train", "val", "test")
SWITCHES = {
    "schedule": ("constant", "cosine"),
    "matmul": ("highest", "high", "medium"),
    "eval_test": ("always", "best"),
}


@dataclass
class TrainerConfig:
    """Keys of ``conf/trainer``; their meaning stands there."""

    steps: int = 5000
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "constant"
    gradient_clip: float | None = None
    accumulate: int = 1
    eval_every: int = 500
    eval_subsets: list[str] = field(default_factory=lambda: ["val", "test"])
    eval_test: str = "always"
    eval_batch_size: int = 2048
    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    matmul: str = "highest"
    channels_last: bool = False
    checkpoint_seconds: float = 30.0


RECORDED = ("schedule", "gradient_clip", "accumulate", "devices", "precision", "matmul")


def changed(settings: TrainerConfig) -> dict[str, Any]:
    """Those of the keys that change what is computed and are not at their default, for the rows."""
    default = TrainerConfig()
    return {
        f"trainer.{key}": getattr(settings, key) for key in RECORDED if getattr(settings, key) != getattr(default, key)
    }


def seed(value: Any) -> int:
    """The base seed, an integer >= 0.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"seed={value} is not an integer >= 0; give one, 0 is a seed like any other")
    return value


def trainer_config(node: DictConfig) -> TrainerConfig:
    """The trainer's keys with their types checked.

    Raises:
        ConfigError: a value of the wrong type or out of bounds.
    """
    try:
        merged: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(TrainerConfig), node))
    except OmegaConfBaseException as error:
        raise ConfigError(f"trainer.{error.full_key}: {str(error).splitlines()[0]}; see conf/trainer") from error
    checked: TrainerConfig = merged
    for key in ("steps", "batch_size", "eval_every", "eval_batch_size", "accumulate", "devices"):
        if getattr(checked, key) < 1:
            raise ConfigError(f"trainer.{key}={getattr(checked, key)} is not at least 1; give a positive number")
    for key in ("lr", "weight_decay", "checkpoint_seconds"):
        if not 0 <= getattr(checked, key) < float("inf"):
            raise ConfigError(f"trainer.{key}={getattr(checked, key)} is not a number >= 0; give one")
    for key, allowed in SWITCHES.items():
        if getattr(checked, key) not in allowed:
            raise ConfigError(f"trainer.{key}={getattr(checked, key)} is unknown; choose one of {', '.join(allowed)}")
    if checked.gradient_clip is not None and not 0 < checked.gradient_clip < float("inf"):
        raise ConfigError(f"trainer.gradient_clip={checked.gradient_clip} is not a norm > 0; give one, or null")
    parts = checked.accumulate * checked.devices
    if checked.batch_size % parts:
        raise ConfigError(
            f"trainer.batch_size={checked.batch_size} cannot be cut into trainer.accumulate={checked.accumulate} x "
            f"trainer.devices={checked.devices} equal parts; set trainer.batch_size to a multiple of {parts}"
        )
    if checked.eval_test == "best" and checked.devices > 1:
        raise ConfigError("trainer.eval_test=best needs one process, each of several sees a part; set it to always")
    unknown = set(checked.eval_subsets) - set(SUBSETS)
    if unknown or not {"val", "test"} <= set(checked.eval_subsets):
        raise ConfigError(f"trainer.eval_subsets={checked.eval_subsets} must hold val and test, and may add train")
    return checked
