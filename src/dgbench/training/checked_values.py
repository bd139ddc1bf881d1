"""Checks of single values of a command, before anything heavy is loaded or anything is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import yaml

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.training.execution import RETRIES

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
    "execution.compile": (_one_of("auto", False), "unknown; choose auto or false"),
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
