"""What goes around an algorithm, and what does not go with it: sharpness-aware updates, minibatches in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgbench.errors import ConfigError
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.sharpness import SAM
from dgbench.training.building import build, without
from dgbench.training.settings import TrainerSettings

IN_PARTS = ("accumulate", "devices")  #: keys of ``conf/trainer`` that cut a minibatch


def sharpness_of(config: Mapping[str, Any]) -> SAM | None:
    """How updates look at raised weights, if they do.

    Args:
        config: plain resolved values by top-level key.

    Raises:
        ConfigError: a value that cannot work.
    """
    if "_target_" not in config["sharpness"]:
        return None
    method: SAM = build(without(config, "sharpness", "name"), "sharpness")
    return method


def check_combination(algorithm: type[Algorithm], config: Mapping[str, Any], settings: TrainerSettings) -> None:
    """Refuse what would turn a method into another one.

    Args:
        algorithm: that is trained.
        config: plain resolved values by top-level key.
        settings: of the trainer.

    Raises:
        ConfigError: sharpness-aware updates around an algorithm without one loss, or parts of a minibatch where a
            method needs the whole.
    """
    name, sharpness = config["algorithm"]["name"], sharpness_of(config)
    label = f"sharpness={config['sharpness']['name']}"
    if sharpness and algorithm.why_not_sharp:
        raise ConfigError(
            f"{label} cannot go around algorithm={name}: {algorithm.why_not_sharp}; "
            "set sharpness=none or choose another algorithm"
        )
    for key in IN_PARTS:
        n = getattr(settings, key)
        if n > 1 and sharpness:
            raise ConfigError(
                f"{label} cannot go with trainer.{key}={n}: each part of a minibatch would climb on its own, which "
                f"is another method; set trainer.{key}=1 or sharpness=none"
            )
        if n > 1 and algorithm.why_not_in_parts:
            raise ConfigError(
                f"algorithm={name} cannot go with trainer.{key}={n}: {algorithm.why_not_in_parts}, which is another "
                f"method; set trainer.{key}=1 or choose another algorithm"
            )
