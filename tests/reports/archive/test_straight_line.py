"""The line of exact errors, where it is subtle: many classes, rounded names, ARM's groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.reports.archive.check import line_faults


def packed(e: Sequence[float], wrong: Sequence[float], decimals: int = 2, **identity: Any) -> dict[str, Any]:
    """A packed run on 1,000 images."""
    count = len(e)
    rows = {
        "env": [f"{each:.{decimals}f}" for each in e], "step": [5] * count, "subset": ["test"] * count,
        "seen": [1000] * count, "wrong": list(wrong), "loss": [0.5] * count,
    }  # fmt: skip
    return {"run": {"identity": {"evaluation": "exact", "fold": "0", **identity}}, "rows": rows}


def test_of_ten_classes_one_end_is_a_ninth_of_an_image() -> None:
    """e is the share that agrees: at e = 0 the other nine features are equally likely."""
    e = [0.1, 0.2, 0.7, 0.9]
    assert list(line_faults(packed(e, [(1 - x) * 1792 / 9 + x * 80 for x in e]))) == []


def test_a_name_with_four_decimals_may_be_rounded() -> None:
    e = [0.80625, 0.8125, 0.31875]  # 0.8063 and 0.3187 or 0.3188 in rows
    assert list(line_faults(packed(e, [100 + 600 * x for x in e], decimals=4))) == []


def test_predictions_of_groups_and_sampled_ones_need_no_line() -> None:
    for identity in ({"grouped": True}, {"evaluation": "sampled"}):
        assert list(line_faults(packed([0.1, 0.5, 0.9], [1, 5, 2], **identity))) == []


def test_of_three_environments_nobody_can_say_which_one_was_changed() -> None:
    (why,) = line_faults(packed([0.1, 0.5, 0.9], [160.0, 400.0, 650.0]))
    assert why.startswith("step 5: wrong of test is no straight line over e, off by up to ")
