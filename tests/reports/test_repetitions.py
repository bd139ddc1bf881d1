"""Which runs share a table though their data, splits, trials or spaces differ."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.reports.reading.collect import fold_seeds
from dgbench.reports.reading.row_files import BY_SEED
from dgbench.reports.reading.selected import algorithm_labels


def who(**changes: Any) -> dict[str, Any]:
    keys = ("dataset", "variant", "base", "evaluation", "data_seed", "given", "backbone", "init",
        "head", "tuning",
            "protocol")  # fmt: skip
    own = {
        "split_seed": 0,
        "seed": 0,
        "draw": 1,
        "trial": 0,
        "space": "domainbed",
        "held_out": ["a"],
    }
    return {
        **dict.fromkeys(keys, "x"),
        **own,
        "algorithm": "erm",
        "averaging": "none",
        "hparams": {},
        **changes,
    }


@pytest.mark.parametrize(
    ("runs", "splits"),
    [
        ([(0, 0), (1, 0)], [0, 0]),
        ([(0, 0), (1, 1), (1, 1)], [BY_SEED] * 3),
        ([(0, 0), (0, 1), (1, 1)], [0, 1, 1]),
    ],
    ids=["one split", "a split for every seed", "one seed with two splits"],
)
def test_a_split_for_every_seed_is_a_repetition(
    runs: list[tuple[int, int]], splits: list[Any]
) -> None:
    identities = [who(seed=seed, split_seed=split) for seed, split in runs]
    assert [identity["split_seed"] for identity in fold_seeds(identities)] == splits


@pytest.mark.parametrize(
    ("runs", "data", "splits"),
    [
        ([(0, 0, 5), (1, 0, 5)], [0, 0], [5, 5]),
        ([(0, 0, 5), (1, 1, 5), (1, 1, 5)], [BY_SEED] * 3, [5] * 3),
        ([(0, 0, 0), (1, 1, 1)], [BY_SEED] * 2, [BY_SEED] * 2),
        ([(0, 0, 0), (0, 1, 0), (1, 1, 1)], [0, 1, 1], [0, BY_SEED, BY_SEED]),
    ],
    ids=[
        "one draw",
        "data for every seed",
        "data and split for every seed",
        "one seed with two data",
    ],
)
def test_data_drawn_for_every_seed_are_a_repetition(
    runs: list[tuple[int, int, int]], data: list[Any], splits: list[Any]
) -> None:
    found = fold_seeds(
        [who(seed=seed, data_seed=drawn, split_seed=split) for seed, drawn, split in runs]
    )
    assert [identity["data_seed"] for identity in found] == data
    assert [identity["split_seed"] for identity in found] == splits


def test_another_setting_has_splits_of_its_own() -> None:
    """The network of the third run is another one, which has one split only."""
    identities = [who(), who(seed=1, split_seed=1), who(backbone="y", split_seed=3)]
    assert [identity["split_seed"] for identity in fold_seeds(identities)] == [BY_SEED, BY_SEED, 3]


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ([{"trial": 0}, {"trial": 1, "seed": 1, "hparams": {"lr": 2}}], ["erm", "erm"]),
        ([{"trial": 0}, {"trial": 1, "hparams": {"lr": 2}}], ["erm (trial=0)", "erm (trial=1)"]),
        (
            [{}, {"space": "yu2024", "hparams": {"lr": 2}}],
            ["erm (space=domainbed)", "erm (space=yu2024)"],
        ),
        (
            [
                {"draw": 0},
                {"draw": 0, "hparams": {"lr": 2}},
                {"draw": 0, "hparams": {"lr": 3}, "space": "yu2024"},
            ],
            [
                "erm (space=domainbed, lr=default)",
                "erm (space=domainbed, lr=2)",
                "erm (space=yu2024)",
            ],
        ),
    ],
    ids=["trials are seeds", "trials of one seed", "two spaces", "two spaces and two sets"],
)
def test_trials_and_spaces_that_are_no_repetitions_stay_apart(
    changes: list[Any], labels: list[str]
) -> None:
    assert algorithm_labels([who(**own) for own in changes], searches=True) == labels


def test_precision_is_rounding_where_seeds_move_nothing() -> None:
    changes: list[Any] = [
        {"draw": 0},
        {"draw": 0, "seed": 1, "hparams": {"trainer.precision": "64-true"}},
    ]
    assert len(set(algorithm_labels([who(**own) for own in changes]))) == 2
    assert algorithm_labels([who(**own, seed_moves="nothing") for own in changes]) == ["erm", "erm"]
