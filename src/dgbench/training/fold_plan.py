"""Which folds a study trains; needs the description of its dataset, and neither images nor torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.analysis.selection import Selection
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


def selection_note(selection: Selection, folds: Sequence[Fold]) -> str | None:
    """Why the closing table cannot choose steps by this selection; None where it can. Rows stay the same.

    Args:
        selection: that the table is to read the rows with.
        folds: all that are trained.
    """
    if getattr(selection, "needs_other_runs", False):  # a user's own class may not say
        return (
            f"selection={selection.name} judges a run by runs that hold out one environment more, so the closing table "
            f"stays empty; train those too (protocol=multi_test protocol.groups=[[A,B],...]), and read all with "
            f"report.py selection={selection.name}"
        )
    held = {env for fold in folds for env in fold.held_out}
    absent = [name for name in selection.validation_environments if name not in held]
    if absent:
        return (
            f"selection.environments={absent} is held out by no fold here (but {', '.join(sorted(held))} are), "
            "so the closing table stays empty; choose one of those, or a protocol that holds it out"
        )
    return None
