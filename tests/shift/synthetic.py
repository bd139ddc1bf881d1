"""Rows of estimated shift with known values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dgbench.records.shift_rows import SHIFT_FILE, ShiftIdentity, ShiftRow, append_shift_rows

JOINT = {"delta": 0.05, "steps": 600}
Values = Mapping[str, float]


def shift_identity(
    dataset: str = "pacs", given: Sequence[str] = ("a", "b", "c"), **changes: Any
) -> ShiftIdentity:
    values: dict[str, Any] = {
        "run": f"{dataset}-hash", "dataset": dataset, "variant": {}, "base": dataset,
        "evaluation": "sampled", "data_seed": 0, "split_seed": 0, "given": list(given),
        "content": "", "backbone": "resnet18", "init": "supervised", "features": "frozen",
        "images": "all", "estimator": "joint", "settings": JOINT, "seed": 0, "code": "0.1.0",
    }  # fmt: skip
    return ShiftIdentity(**{**values, **changes})


def shift_row(
    who: ShiftIdentity, pair: str = "0", values: Values | None = None, **changes: Any
) -> ShiftRow:
    """One trial; the pair is ``A|B``, the number of a fold, or an environment beside pretraining
    images.
    """
    sides = (
        pair.split("|")
        if "|" in pair
        else ["", who.given[int(pair)]]
        if pair.isdecimal()
        else ["reference", pair]
    )
    p = [env for env in who.given if env != sides[1]] if pair.isdecimal() else [sides[0]]
    fields: dict[str, Any] = {
        "pairs": "each" if "|" in pair else "folds" if pair.isdecimal() else "reference",
        "pair": pair, "p": p, "q": [sides[1]], "kind": "trial", "number": 0, "null": "none",
        "n": [500, 500], "classes": ["x", "y"], "dropped": {}, "values": dict(values or {}),
        "diagnostics": {"accuracy": 0.8}, "seconds": 1.0,
    }  # fmt: skip
    return ShiftRow(identity=who, **{**fields, **changes})


def estimates(
    who: ShiftIdentity,
    of_pair: Mapping[str, Values],
    *,
    null: Values | None = None,
    labels: Values | None = None,
    trials: Sequence[float] = (-0.01, 0.0, 0.01),
    halves: Sequence[float] = (),
    **changes: Any,
) -> list[ShiftRow]:
    """Rows of every pair: a trial and a half for each offset, which is added to every value.

    Args:
        who: identity.
        of_pair: pair -> values.
        null, labels: values of those nulls, the same for all pairs; None leaves them out.
        trials, halves: offsets.
        changes: other fields of all rows.
    """
    rows = []
    for pair, values in of_pair.items():
        for kind, offsets in (("trial", trials), ("half", halves)):
            for number, offset in enumerate(offsets):
                moved = {name: value + offset for name, value in values.items()}
                rows.append(shift_row(who, pair, moved, kind=kind, number=number, **changes))
        for name, of_null in (("halves", null), ("labels", labels)):
            for number, offset in enumerate(trials) if of_null else ():
                moved = {key: value + offset / 10 for key, value in (of_null or {}).items()}
                rows.append(shift_row(who, pair, moved, number=number, null=name, **changes))
    return rows


def write_shifts(root: Path, rows: Sequence[ShiftRow], folder: str = "") -> Path:
    """A folder of those rows, by default named after their dataset and estimator."""
    who = rows[0].identity
    path = root / (folder or f"{who.dataset}-{who.estimator}")
    path.mkdir(parents=True, exist_ok=True)
    append_shift_rows(path / SHIFT_FILE, [replace(row) for row in rows])
    return path
