"""Which folds a study trains; needs the names of its environments, and neither images nor torch."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import DictConfig

from dgbench.cli.build import build
from dgbench.protocols.folds import Fold


@dataclass(frozen=True)
class Known:
    """What must be known of a dataset to plan the folds of a study.

    Args:
        given: names of the given environments.
        n_classes: K.
        beyond: whether there are environments besides the given ones.
    """

    given: list[str]
    n_classes: int
    beyond: bool


def planned_folds(config: DictConfig, known: Known) -> list[Fold]:
    """The folds that a study trains.

    A model of all given environments is worth its time only where others exist to judge it, or on request.

    Raises:
        ConfigError: the protocol's keys do not fit the environments.
    """
    planned: list[Fold] = build(config, "protocol")(known.given, known.n_classes)
    asked = known.beyond or config.protocol.get("folds") is not None
    return [fold for fold in planned if asked or not fold.everywhere]
