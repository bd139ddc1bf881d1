"""What tables, figures and answers read off a leaderboard: averages by algorithm and seed, and why one is missing."""

from __future__ import annotations

import math

import pandas as pd

from dgbench.configuration import command_words
from dgbench.reports.boards.boards import Board, BoardDataset
from dgbench.reports.settings.over_seeds import mean
from dgbench.reports.settings.study_values import Values, reasons


def lines_of(board: Board, dataset: BoardDataset) -> pd.DataFrame:
    """The accuracies of one dataset."""
    return board.accuracies[board.accuracies["dataset"] == dataset.title]


def averages(lines: pd.DataFrame) -> Values:
    """Algorithm -> seed -> mean accuracy over the environments of a dataset, for the seeds that have every one.

    Args:
        lines: the accuracies of one dataset.
    """
    found: dict[tuple[str, int], list[float]] = {}
    for algorithm, seed, value in zip(lines["algorithm"], lines["seed"], lines["accuracy"], strict=True):
        found.setdefault((str(algorithm), int(seed)), []).append(float(value))
    whole: Values = {}
    for (algorithm, seed), values in sorted(found.items()):
        if not any(map(math.isnan, values)):
            whole.setdefault(algorithm, {})[seed] = mean(values)
    return whole


def seed_counts(lines: pd.DataFrame) -> dict[str, int]:
    """Algorithm -> seeds with at least one run."""
    return {str(name): int(count) for name, count in lines.groupby("algorithm")["seed"].nunique().items()}


def ranked(board: Board) -> dict[str, float]:
    """Algorithm -> unrounded mean over the datasets of the means over seeds, best first; complete ones alone."""
    by_dataset = [averages(lines_of(board, dataset)) for dataset in board.datasets]
    names = set.intersection(*(set(own) for own in by_dataset))
    level = {name: mean([mean(list(own[name].values())) for own in by_dataset]) for name in names}
    return dict(sorted(level.items(), key=lambda item: (-item[1], item[0])))


def seed_averages(board: Board) -> Values:
    """Algorithm -> seed -> mean over the datasets, for the seeds that are complete on every dataset."""
    by_dataset = [averages(lines_of(board, dataset)) for dataset in board.datasets]
    found: Values = {}
    for name in ranked(board):
        seeds = set.intersection(*(set(own[name]) for own in by_dataset))
        found[name] = {seed: mean([own[name][seed] for own in by_dataset]) for seed in sorted(seeds)}
    return found


def why_absent(lines: pd.DataFrame, algorithm: str) -> str:
    """Why an algorithm has no average on a dataset; empty where nothing is missing.

    Args:
        lines: the accuracies of the dataset.
        algorithm: as tables name it.
    """
    if algorithm not in set(lines["algorithm"]):
        fill = [*command_words("train"), f"algorithm={algorithm.split(' ')[0]}"]
        return f"not planned: no run of {algorithm} here; to fill: {' '.join(fill)}"
    return reasons(lines, "accuracy").get(algorithm, "")
