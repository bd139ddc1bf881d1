"""Types and bounds of the keys that every run has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.errors import ConfigError
from dgbench.records.prediction_file import WHICH, need_pyarrow

SUBSETS = ("train", "val", "test")
SWITCHES = {
    "schedule": ("constant", "cosine"),
    "matmul": ("highest", "high", "medium"),
    "eval_test": ("always", "best"),
    "predictions": WHICH,
    "device": ("auto", "cpu", "gpu", "cuda", "mps"),
    "precision": ("32-true", "64-true", "bf16-mixed", "16-mixed"),
}
KINDS = {"int": "an integer", "float": "a number", "float | None": "a number", "bool": "true or false", "str": "a word"}
MOST = 2**63


@dataclass
class TrainerSettings:
    """Keys of ``conf/trainer``; their meaning stands there."""

    steps: int = 5000
    schedule: str = "constant"
    warmup_steps: int = 0
    gradient_clip: float | None = None
    accumulate: int = 1
    eval_every: int = 500
    eval_subsets: list[str] = field(default_factory=lambda: ["val", "test"])
    eval_test: str = "always"
    predictions: str = "none"
    eval_batch_size: int = 2048
    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    matmul: str = "highest"
    channels_last: bool = False
    checkpoint_seconds: float = 30.0
    log_every: int = 50


#: settings that change numbers; the others say where and how the same numbers are computed
COUNTING = (
    "steps", "schedule", "warmup_steps", "gradient_clip", "accumulate", "eval_every", "eval_subsets", "eval_test",
    "eval_batch_size", "devices", "precision", "matmul",
)  # fmt: skip
RECORDED = ("schedule", "warmup_steps", "gradient_clip", "accumulate", "devices", "precision", "matmul")


def changed(settings: TrainerSettings) -> dict[str, Any]:
    """Those of the keys that change what is computed and are not at their default, for the rows."""
    default = TrainerSettings()
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


def trainer_settings(keys: Mapping[str, Any]) -> TrainerSettings:
    """The trainer's keys with their types checked.

    Args:
        keys: plain values.

    Raises:
        ConfigError: a value of the wrong type or out of bounds; predictions are asked for without pyarrow.
    """
    checked = replace(_checked(json.dumps(dict(keys))))
    if checked.predictions != "none":
        need_pyarrow(f"trainer.predictions={checked.predictions}")
    return checked


@lru_cache(maxsize=64)  # a plan of 100,000 jobs asks for the same few again and again, at 10 ms each
def _checked(keys: str) -> TrainerSettings:
    try:
        merged: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(TrainerSettings), json.loads(keys)))
    except OmegaConfBaseException as error:
        key = str(error.full_key).partition("[")[0]
        kinds = {known.name: str(known.type) for known in fields(TrainerSettings)}
        if key not in kinds:
            raise ConfigError(f"key trainer.{key} is unknown; choose from {', '.join(kinds)}") from error
        kind = KINDS.get(kinds[key], "a list of subsets")
        raise ConfigError(f"trainer.{key}={json.loads(keys)[key]} is not {kind}; give one") from error
    checked: TrainerSettings = merged
    if not 0 <= checked.steps < MOST:
        raise ConfigError(
            f"trainer.steps={checked.steps} is not at least 0 and below 2^63; give such a number, 0 evaluates the "
            "initial weights"
        )
    if not 0 <= checked.warmup_steps <= max(0, checked.steps - 1):
        raise ConfigError(
            f"trainer.warmup_steps={checked.warmup_steps} is not at least 0 and below trainer.steps={checked.steps}; "
            "give such a number"
        )
    for key in ("eval_every", "eval_batch_size", "accumulate", "devices", "log_every"):
        if not 1 <= getattr(checked, key) < MOST:
            raise ConfigError(
                f"trainer.{key}={getattr(checked, key)} is not at least 1 and below 2^63; give such a number"
            )
    if not 0 <= checked.checkpoint_seconds < float("inf"):
        raise ConfigError(f"trainer.checkpoint_seconds={checked.checkpoint_seconds} is not a number >= 0; give one")
    for key, allowed in SWITCHES.items():
        if getattr(checked, key) not in allowed:
            raise ConfigError(f"trainer.{key}={getattr(checked, key)} is unknown; choose one of {', '.join(allowed)}")
    if checked.gradient_clip is not None and not 0 < checked.gradient_clip < float("inf"):
        raise ConfigError(f"trainer.gradient_clip={checked.gradient_clip} is not a norm > 0; give one, or null")
    if checked.eval_test == "best" and checked.devices > 1:
        raise ConfigError("trainer.eval_test=best needs one process, each of several sees a part; set it to always")
    if checked.predictions != "none" and checked.devices > 1:
        raise ConfigError(
            f"trainer.predictions={checked.predictions} needs one process, each of several sees a part; set it to none"
        )
    unknown = set(checked.eval_subsets) - set(SUBSETS)
    if unknown or not {"val", "test"} <= set(checked.eval_subsets):
        raise ConfigError(f"trainer.eval_subsets={checked.eval_subsets} must hold val and test, and may add train")
    return checked


def check_batch_size(size: int, settings: TrainerSettings) -> None:
    """Refuse a minibatch that cannot be cut as the settings ask.

    Raises:
        ConfigError: no multiple of the micro-batches.
    """
    parts = settings.accumulate * settings.devices
    if size % parts:
        raise ConfigError(
            f"hparams.batch_size={size} cannot be cut into trainer.accumulate={settings.accumulate} x "
            f"trainer.devices={settings.devices} equal parts; set hparams.batch_size to a multiple of {parts}"
        )
