"""Which folds a study trains; needs the description of its dataset, and neither images nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgbench.data.description import DatasetInfo
from dgbench.protocols.folds import Fold
from dgbench.training.building import build


def planned_folds(protocol: Mapping[str, Any], info: DatasetInfo) -> list[Fold]:
    """The folds that a study trains.

    A model of all given environments is worth its time only where others exist to judge it, or on request.

    Args:
        protocol: keys of ``conf/protocol``.
        info: the dataset.

    Raises:
        ConfigError: the protocol's keys do not fit the environments.
    """
    planned: list[Fold] = build({"protocol": dict(protocol)}, "protocol")(list(info.given), info.n_classes)
    asked = info.beyond or protocol.get("folds") is not None
    return [fold for fold in planned if asked or not fold.everywhere]
