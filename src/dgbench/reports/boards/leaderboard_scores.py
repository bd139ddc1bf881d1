"""OoD-Bench's ranking score of a leaderboard (Ye et al. 2022, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgbench.reports.boards.board_values import averages, lines_of, why_absent
from dgbench.reports.boards.boards import Board
from dgbench.reports.boards.shift_split import OTHER, ShiftSplit
from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.settings.measure_tables import ALGORITHM
from dgbench.reports.settings.over_seeds import mean
from dgbench.reports.settings.study_values import algorithms_of
from dgbench.reports.shift.verdicts import DOMINANT
from dgbench.statistics.accuracy_summary import SPREADS, spread
from dgbench.statistics.ranking import ranking_score

Score = tuple[int | None, str]  # or None and why


def score_table(board: Board, reference: str, shifts: ShiftSplit, kind: str = "domainbed") -> Table | None:
    """The ranking score of every algorithm, highest first; None where the reference has nothing to be compared with.

    Args:
        board: of :func:`~dgbench.reports.boards.boards.boards`.
        reference: algorithm whose error bar decides.
        shifts: the kind of shift that dominates each dataset.
        kind: error bar over seeds, a key of :data:`~dgbench.statistics.accuracy_summary.SPREADS`.
    """
    names = algorithms_of(board.accuracies)
    if reference not in names or len(names) < 2:
        return None
    of = {dataset.title: shifts.of(dataset.identity) for dataset in board.datasets}
    scores = {
        dataset.title: {name: _score(lines_of(board, dataset), name, reference, kind) for name in names}
        for dataset in board.datasets
    }
    sums = {
        "other" if shift == OTHER else f"{shift} shift": [title for title, own in of.items() if own == shift]
        for shift in (*DOMINANT, OTHER)
        if shift in of.values()
    }
    lines: list[dict[str, Any]] = []
    for name in names:
        line: dict[str, Any] = {"algorithm": name}
        for title, own in scores.items():
            line |= _entry(title, own[name])
        for column, titles in sums.items():
            line |= _entry(column, _sum([scores[title][name] for title in titles]))
        lines.append(line | _entry("score", _sum([own[name] for own in scores.values()])))
    lines.sort(key=lambda line: (line["score"] is None, -(line["score"] or 0), line["algorithm"]))
    columns = [
        ALGORITHM,
        *(Column(title, unit="signed", help=shift) for title, shift in of.items()),
        *(Column(column, unit="signed", help="sum over its datasets") for column in sums),
        Column("score", unit="signed", help="sum over all datasets"),
    ]
    notes = [
        f"-1, 0 or +1: the mean accuracy is below, within (ends included) or above the error bar of {reference} "
        f"({SPREADS[kind]}); summed over datasets. It does not compare two others (Ye et al. 2022).",
        *shifts.notes,
    ]
    return table(lines, "ranking_score", f"Ranking score against {reference}", columns, notes)


def _score(lines: pd.DataFrame, algorithm: str, reference: str, kind: str) -> Score:
    found = averages(lines)
    for name in (algorithm, reference):
        if name not in found:
            return None, why_absent(lines, name) or f"no result of {name}"
    mine, theirs = list(found[algorithm].values()), list(found[reference].values())
    bar = spread(theirs, kind)
    if bar is None or len(theirs) < 2:
        return None, f"{reference} has 1 seed and so no error bar; train more seeds"
    return ranking_score(mean(mine), mean(theirs), bar), ""


def _sum(scores: Sequence[Score]) -> Score:
    known = [score for score, _ in scores if score is not None]
    if len(known) < len(scores):
        return None, next(why for score, why in scores if score is None)
    return sum(known), ""


def _entry(name: str, score: Score) -> dict[str, Any]:
    value, why = score
    return entry(name, value, reason=why)
