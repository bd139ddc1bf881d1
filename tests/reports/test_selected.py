"""Names of algorithms whose runs differ in more than seed and fold."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.reports.reading.selected import algorithm_labels

Run = tuple[int, int, float]  # seed, draw, lr


def labels(runs: list[Run], searches: bool) -> list[str]:
    identities: list[dict[str, Any]] = [
        {
            "algorithm": "erm",
            "averaging": "none",
            "hparams": {"lr": lr},
            "draw": draw,
            "seed": seed,
            "held_out": ["a"],
            "space": "domainbed",
            "trial": 0,
        }
        for seed, draw, lr in runs
    ]
    return algorithm_labels(identities, searches=searches)


@pytest.mark.parametrize(
    ("runs", "apart", "chosen"),
    [
        ([(0, 0, 0.1), (1, 0, 0.1)], ["erm", "erm"], ["erm", "erm"]),
        (
            [(0, 0, 0.1), (0, 0, 0.2)],
            ["erm (lr=0.1)", "erm (lr=0.2)"],
            ["erm (lr=0.1)", "erm (lr=0.2)"],
        ),
        (
            [(0, 0, 0.1), (1, 0, 0.2)],
            ["erm (lr=0.1)", "erm (lr=0.2)"],
            ["erm (lr=0.1)", "erm (lr=0.2)"],
        ),
        ([(0, 3, 0.1), (1, 3, 0.2)], ["erm", "erm"], ["erm", "erm"]),
        (
            [(0, 0, 0.1), (0, 1, 0.2), (1, 1, 0.3)],
            ["erm (draw=0)", "erm (draw=1)", "erm (draw=1)"],
            ["erm"] * 3,
        ),
        (
            [(0, 1, 0.1), (0, 1, 0.2)],
            ["erm (lr=0.1)", "erm (lr=0.2)"],
            ["erm (lr=0.1)", "erm (lr=0.2)"],
        ),
    ],
    ids=[
        "one set",
        "two sets",
        "two sets of the default draw",
        "a random draw per trial",
        "search",
        "muddled draw",
    ],
)
def test_what_stands_beside_the_name(runs: list[Run], apart: list[str], chosen: list[str]) -> None:
    assert labels(runs, searches=False) == apart
    assert labels(runs, searches=True) == chosen


def test_a_key_that_rows_leave_out_at_its_default_is_called_so() -> None:
    shared = {
        "algorithm": "erm",
        "averaging": "none",
        "draw": 0,
        "held_out": ["a"],
        "space": "domainbed",
        "trial": 0,
    }
    halves: list[dict[str, Any]] = [
        {**shared, "seed": 0, "hparams": {"lr": 0.1, "trainer.precision": "bf16-mixed"}},
        {**shared, "seed": 1, "hparams": {"lr": 0.1}},
    ]
    assert algorithm_labels(halves) == [
        "erm (trainer.precision=bf16-mixed)",
        "erm (trainer.precision=default)",
    ]
