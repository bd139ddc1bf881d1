"""Types and bounds of the keys that every command has, asked before anything heavy is loaded or written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.records.predictions import WHICH, need_pyarrow

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


RETRIES = ("all", "failed", "none")


def check_retry(retry: str) -> None:
    """Refuse an unknown ``retry``.

    Raises:
        ConfigError: it is none of :data:`RETRIES`.
    """
    if retry not in RETRIES:
        raise ConfigError(f"retry={retry} is unknown; choose {', '.join(RETRIES)}")


def check_execution(execution: Mapping[str, Any]) -> str:
    """The mode of execution.

    Raises:
        ConfigError: a key of ``conf/execution`` that cannot work.
    """
    mode, most = execution["mode"], execution["max_runs"]
    if mode not in ("auto", "single", "stacked"):
        raise ConfigError(f"execution.mode={mode} is unknown; choose auto, single or stacked")
    if most is not None and (not isinstance(most, int) or most < 1):
        raise ConfigError(f"execution.max_runs={most} is not at least 1; give a number or null")
    return str(mode)


MODES = ("auto", "single", "stacked")
LONGEST_SEED = 2**63


def _whole(low: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value < LONGEST_SEED


def _above(low: float) -> Callable[[Any], bool]:
    return lambda value: _number(value) and low < value < math.inf


def _at_least(low: float) -> Callable[[Any], bool]:
    return lambda value: _number(value) and low <= value < math.inf


def _or_null(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


def _one_of(*choices: Any) -> Callable[[Any], bool]:
    return lambda value: any(value is choice or (isinstance(value, str) and value == choice) for choice in choices)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


_FOLDER = (_text, "no folder; give its path")
_NAME = (_text, "no name; give some text, rows and folders carry it")
_SWITCH = (lambda value: isinstance(value, bool), "unknown; choose true or false")
_COUNT = (_whole(1), "not an integer >= 1; give one")
_NORM = (_one_of("train", "frozen", "fixed"), "unknown; choose train, frozen or fixed")
_PATTERNS = (_texts, 'no list of patterns; give one, e.g. ["fc.*"], or []')

#: key -> what its value must be, and how a line says so; a key that a choice does not have is not asked
VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "seed": (_whole(0), "not an integer >= 0 (below 2^63); give one, 0 is a seed like any other"),
    "plan": (_one_of(True, False, "probe"), "unknown; write plan=true, or plan=probe to clock what never ran"),
    "retry": (_one_of(*RETRIES), f"unknown; choose {', '.join(RETRIES)}"),
    "grid": (lambda value: isinstance(value, Mapping), "no set of lists by key; write e.g. grid.seed=[0,1,2]"),
    "wait": (_one_of(True, False), "unknown; choose true or false"),
    "sweep.runs_per_job": (_or_null(_whole(1)), "not an integer >= 1; give one, or null"),
    "sweep.hours_per_job": (_or_null(_above(0)), "not a number > 0; give one, e.g. 2 or 0.5, or null"),
    "execution.mode": (_one_of(*MODES), "unknown; choose auto, single or stacked"),
    "execution.max_runs": (_or_null(_whole(1)), "not an integer, at least 1; give one, or null"),
    "execution.memory_gb": (_or_null(_above(0)), "not a number > 0; give one, or null for half of the device's memory"),
    "paths.data_dir": _FOLDER,
    "paths.cache_dir": _FOLDER,
    "paths.output_dir": _FOLDER,
    "logger._target_": (_or_null(_text), "no class; give the import path of a Lightning Logger, or null"),
    "logger.project": (_text, "no name of a W&B project; give one"),
    "logger.entity": (_or_null(_text), "no W&B user or team; give one, or null for your default"),
    "logger.mode": (
        _or_null(_one_of("online", "offline", "disabled")),
        "unknown; choose online, offline, disabled or null",
    ),
    "logger.group": (_or_null(_text), "no name; give one, or null for the study's folder"),
    "logger.tags": (_texts, "no list of names; write e.g. logger.tags=[first]"),
    "tuning.name": _NAME,
    "tuning.cache_features": _SWITCH,
    "tuning.cache_gb": (_above(0), "not a number > 0; give one, in gigabytes"),
    "tuning.cache_dir": (_or_null(_text), "no folder; give its path, or null for memory"),
    "averaging.name": _NAME,
    "averaging.rule.start": (_whole(1), "not a step; give 1 or more, 100 is published"),
    "averaging.rule.flavor": (_one_of("state", "parameters"), "unknown; choose state or parameters"),
    "averaging.rule.n_converge": _COUNT,
    "averaging.rule.n_tolerance": _COUNT,
    "averaging.rule.tolerance_ratio": (_at_least(0), "not a number >= 0; give one, 0.3 is published"),
    "averaging.rule.batchnorm_batches": (_whole(0), "not an integer >= 0; give one, 500 is published"),
    "sharpness.name": _NAME,
    "sharpness.rho": (_at_least(0), "not a number >= 0; give one, 0.05 is published"),
    "sharpness.alpha": (_at_least(0), "not a number >= 0; give one"),
    "algorithm.name": _NAME,
    "backbone.name": _NAME,
    "backbone.norm": _NORM,
    "backbone.projection": (_or_null(_whole(1)), "not an integer >= 1; give one, 512 is CLIP's, or null"),
    "backbone.unit_length": _SWITCH,
    "head.name": _NAME,
    "head.unit_length": _SWITCH,
    "head.prompts": (_texts, 'no list of texts; write e.g. ["a photo of a {}."]'),
    "head.class_names": (lambda value: isinstance(value, Mapping), "no names by class; write e.g. {dog: puppy}"),
    "head.scale": (_or_null(_above(0)), "not a number > 0; give one, or null for the text encoder's own"),
    "head.model": (_or_null(_text), "no name of a model of OpenCLIP; give one, or null for what init says"),
    "init.name": _NAME,
    "init.norm": _NORM,
    "init.timeout": (_above(0), "not a number of seconds > 0; give one"),
    "init.cache_dir": _FOLDER,
    "init.allow_missing": _PATTERNS,
    "init.allow_unexpected": _PATTERNS,
    "protocol.name": _NAME,
}
#: keys that no class checks: the command's own, and where a group's stand
CLOSED = {"sweep": "train.yaml", "execution": "execution/auto.yaml", "paths": "paths/default.yaml"}


def check_values(config: Mapping[str, Any]) -> None:
    """Refuse values that cannot work, whichever part of a command would read them.

    Args:
        config: plain resolved values by top-level key.

    Raises:
        ConfigError: the first one, with its key and the fix.
    """
    for top in CLOSED.keys() & config.keys():
        known = _known(top)
        for key in config[top]:
            if key not in known:
                raise ConfigError(f"key {top}.{key} is unknown; choose from {', '.join(known)}")
    for key, (holds, what) in VALUES.items():
        node: Any = config
        *parents, last = key.split(".")
        for parent in parents:
            node = node.get(parent) if isinstance(node, Mapping) else None
        if isinstance(node, Mapping) and last in node and not holds(node[last]):
            raise ConfigError(f"{key}={_typed(node[last])} is {what}")


@cache
def _known(top: str) -> list[str]:
    content = yaml.safe_load((CONF / CLOSED[top]).read_text())
    return list(content.get(top) or content)


def _typed(value: Any) -> str:
    """A value as it is typed: null and true, not None and True."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
