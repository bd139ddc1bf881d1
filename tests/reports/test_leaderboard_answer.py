"""What a leaderboard concludes: its sentences, its bold marks and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last
from dgbench.reports.ranking.figures import (
    average_figure,
    dataset_figure,
    leaderboard_figures,
    rank_figure,
)
from dgbench.reports.ranking.leaderboards import Leaderboard, leaderboards
from dgbench.reports.ranking.report import leaderboard_answer
from dgbench.reports.ranking.tables import leaderboard_table
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs

# algorithm -> accuracy in both environments, one per seed
Accuracies = Mapping[str, Sequence[float]]


def board_of(make: Any, root: Path, **datasets: Accuracies) -> Leaderboard:
    """Two environments held out in turn, with the same accuracy in both."""
    for dataset, accuracies in datasets.items():
        for algorithm, by_seed in accuracies.items():
            for seed, accuracy in enumerate(by_seed):
                for fold, env in enumerate(("a", "b")):
                    name = f"{dataset}-{algorithm}-{seed}-{fold}"
                    who = make.identity(algorithm, str(fold), seed, dataset=dataset, variant={},
                        given=["a", "b"],
                                        held_out=[env], run=name)  # fmt: skip
                    make.write_run(
                        root, who, lambda e, s, right=accuracy: 1 - right, folder=name, grid=[]
                    )
    collection = collect([root])
    (board,), _ = leaderboards(select_runs(collection, Last()))
    return board


def test_a_lead_that_holds(make: Any, tmp_path: Path) -> None:
    """x - y is .10, .11 and .12: mean .11, s = .01, t(2) = 4.303, half width .0248."""
    board = board_of(make, tmp_path, pacs={"x": [0.80, 0.82, 0.84], "y": [0.70, 0.71, 0.72]})
    head, text = leaderboard_answer(board)
    assert head == "Decided: x leads by average accuracy; 3 seeds separate x from y."
    assert text.startswith(
        "x: average accuracy 82.0%, 11.0 points above y ([8.5, 13.5], 95% interval"
    )
    assert "3 seeds separate it from the other" in text
    assert leaderboard_table(board).frame["pacs.best"].tolist() == [True, False]


def test_a_lead_within_noise_is_not_crowned(make: Any, tmp_path: Path) -> None:
    """x leads by .02 on average, by -.05, .02 and .09 in the seeds; z is .3 lower in each."""
    accuracies = {"x": [0.70, 0.77, 0.84], "y": [0.75, 0.75, 0.75], "z": [0.40, 0.47, 0.54]}
    board = board_of(make, tmp_path, pacs=accuracies)
    head, text = leaderboard_answer(board)
    assert head == "Undecided: x leads by average accuracy; 3 seeds cannot separate x from y."
    assert "77.0%, 2.0 points above y" in text
    assert text.endswith(
        "3 seeds do not separate it from y; they show that it is better than 1 other."
    )
    assert not leaderboard_table(board).frame["pacs.best"].any()


def test_equal_models_are_no_lead(make: Any, tmp_path: Path) -> None:
    """Of two environments one trains: x and y are one model. w has their mean, by other seeds; v is
    .1 lower.
    """
    pair = {"x": [0.7, 0.8], "y": [0.7, 0.8]}
    head, numbers = leaderboard_answer(board_of(make, tmp_path / "alone", pacs=pair))
    assert "x and y are equal in every result (trained on one environment" in head
    assert numbers.endswith("75.0%.") and "points above" not in numbers
    head, numbers = leaderboard_answer(
        board_of(make, tmp_path / "third", pacs={**pair, "v": [0.6, 0.7]})
    )
    assert "x and y are equal in every result" in head and "10.0 points above v" in numbers
    both = {**pair, "w": [0.8, 0.7], "v": [0.6, 0.7]}
    head, numbers = leaderboard_answer(board_of(make, tmp_path / "mean", pacs=both))
    assert head.startswith("w, x and y tie") and numbers.startswith(
        "w, x and y: average accuracy 75.0%, 10.0 points"
    )


def test_several_datasets_are_averaged_by_seed(make: Any, tmp_path: Path) -> None:
    """Averages over the datasets: x .6 in both seeds, y .5 in both, so no spread; q lacks a
    dataset.
    """
    board = board_of(
        make,
        tmp_path,
        pacs={"x": [0.7, 0.8], "y": [0.4, 0.6], "q": [0.9, 0.9]},
        vlcs={"x": [0.5, 0.4], "y": [0.6, 0.4]},
    )
    head, numbers, absent = leaderboard_answer(board)
    assert head.startswith("Undecided: x leads the 2 of 3 with every seed by average accuracy; ")
    assert head.endswith(" cannot separate x from q (no complete seed).")
    assert numbers.startswith(
        "x: average accuracy over 2 datasets 60.0%, 10.0 points above y ([10.0, 10.0]"
    )
    assert absent == "Not ranked, since a dataset is missing: q."
    made = leaderboard_table(board).frame.set_index("algorithm")
    assert not made["average.best"].any()
    assert not made["vlcs.best"].any()


def test_other_seeds_are_not_compared(make: Any, tmp_path: Path) -> None:
    """z is highest, with one seed where the others have two: no rival that is ruled out."""
    board = board_of(make, tmp_path, pacs={"x": [0.80, 0.82], "y": [0.70, 0.71], "z": [0.9]})
    head, numbers, other = leaderboard_answer(board)
    assert head.startswith("Undecided: x leads the 2 of 3 with every seed")
    assert head.endswith("cannot separate x from z (1 of 2 seeds).") and "81.0%" in numbers
    assert other == "Compared over the seeds that both have, if at all: z (90.0%)."
    assert not leaderboard_table(board).frame["pacs.best"].any()
    figure = average_figure(board)
    assert figure is not None
    assert "Hollow: lacks seeds, so not ruled out (z)." in figure.caption


@pytest.mark.parametrize(
    ("accuracies", "text"),
    [
        ({"x": [0.7]}, "x alone: train another algorithm to compare it with."),
        ({"x": [0.7], "y": [0.6]}, "1 seed separates nothing"),
    ],
)
def test_too_little_to_conclude(
    make: Any, tmp_path: Path, accuracies: Accuracies, text: str
) -> None:
    board = board_of(make, tmp_path, pacs=accuracies)
    assert text in leaderboard_answer(board)[0]
    assert not leaderboard_table(board).frame["pacs.best"].any()
    figure = average_figure(board)
    assert figure is not None
    assert "1 seed: no interval" in figure.caption


def test_blocks_of_the_ranks(make: Any, tmp_path: Path) -> None:
    """Seeds of one dataset are blocks; with several datasets the datasets are."""
    three = {"x": [0.8, 0.7], "y": [0.7, 0.6], "z": [0.6, 0.5]}
    one = rank_figure(board_of(make, tmp_path / "one", pacs=three))
    assert one is not None
    assert one.caption.startswith(
        "Mean rank over 2 seeds (blocks), 1 is the highest average accuracy."
    )
    assert "not of other datasets or environments" in one.caption
    assert "x 1.0" in one.svg
    two = rank_figure(board_of(make, tmp_path / "two", pacs=three, vlcs={**three, "q": [0.9, 0.9]}))
    assert two is not None
    assert two.caption.startswith("Mean rank over 2 datasets (blocks)")
    assert "q 1.0" not in two.svg
    assert (
        rank_figure(board_of(make, tmp_path / "few", pacs={"x": [0.8, 0.7], "y": [0.7, 0.6]}))
        is None
    )
    assert (
        rank_figure(board_of(make, tmp_path / "once", pacs={"x": [0.8], "y": [0.7], "z": [0.6]}))
        is None
    )


def test_every_algorithm_is_in_the_pictures(make: Any, tmp_path: Path) -> None:
    """Best on top, with its value; names that matplotlib would read as formulas or hide; no panel
    for one dataset.
    """
    accuracies = {"_x": [0.8, 0.7], "y$2$": [0.7, 0.68], "z": [0.6, 0.5]}
    board = board_of(make, tmp_path / "one", pacs=accuracies)
    figure = average_figure(board)
    assert figure is not None
    assert figure.svg.index("_x") < figure.svg.index("y$2$") < figure.svg.index(">z<")
    assert all(f">{value}<" in figure.svg for value in ("75.0", "69.0", "55.0"))
    assert "accuracy" in figure.svg
    assert dataset_figure(board) is None
    several = board_of(make, tmp_path / "two", pacs=accuracies, vlcs=accuracies)
    panels = dataset_figure(several)
    assert panels is not None
    assert all(f">{name}<" in panels.svg for name in ("pacs", "vlcs"))
    assert len({figure.name for figure in leaderboard_figures(several)}) == 3
