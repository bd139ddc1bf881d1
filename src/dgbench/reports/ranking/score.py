"""OoD-Bench's ranking score (Ye et al. 2022, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.analysis.accuracy import SPREADS, mean, ranking_score, spread
from dgbench.analysis.shift_verdicts import DOMINANT
from dgbench.reports.measuring.tables import ALGORITHM
from dgbench.reports.over_seeds import line_values
from dgbench.reports.ranking.leaderboards import Leaderboard, RankedDataset
from dgbench.reports.tables import Column, Table, entry, table

OTHER = "other"

Score = tuple[int | None, str]  # or None and why


def score_table(
    leaderboard: Leaderboard, reference: str, shifts: Mapping[str, str], kind: str = "domainbed"
) -> Table | None:
    """Sum the ranking scores of each algorithm, highest first; None without the reference or
    without any other.

    Args:
        reference: algorithm whose error bar decides.
        shifts: dataset -> the kind of shift that dominates it; the others are under ``other``.
        kind: error bar over seeds, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
    """
    names = leaderboard.algorithms
    if reference not in names or len(names) < 2:
        return None
    kinds = {
        dataset.title: shifts.get(str(dataset.identity["dataset"]), OTHER)
        for dataset in leaderboard.datasets
    }
    scores: dict[str, dict[str, Score]] = {}
    for dataset in leaderboard.datasets:
        scores[dataset.title] = {name: _score(dataset, name, reference, kind) for name in names}
    sums: dict[str, list[str]] = {}
    for shift in (*DOMINANT, OTHER):
        titles = [title for title, label in kinds.items() if label == shift]
        if titles:
            sums[OTHER if shift == OTHER else f"{shift} shift"] = titles
    lines: list[dict[str, Any]] = []
    for name in names:
        line: dict[str, Any] = {"algorithm": name}
        for title, dataset_scores in scores.items():
            line |= entry(title, dataset_scores[name][0], reason=dataset_scores[name][1])
        for column, titles in sums.items():
            line |= _sum(column, [scores[title][name] for title in titles])
        lines.append(
            line | _sum("score", [dataset_scores[name] for dataset_scores in scores.values()])
        )
    lines.sort(key=lambda line: (line["score"] is None, -(line["score"] or 0), line["algorithm"]))
    columns = [
        ALGORITHM,
        *(Column(title, unit="signed", help=shift) for title, shift in kinds.items()),
        *(Column(column, unit="signed", help="sum over its datasets") for column in sums),
        Column("score", unit="signed", help="sum over all datasets"),
    ]
    notes = [
        (
            "-1, 0 or +1: the mean accuracy is below, within (ends included) or above the error "
            f"bar of {reference} ({SPREADS[kind]}); summed over datasets. It does not compare two "
            "others (Ye et al. 2022)."
        ),
    ]
    return table(lines, "ranking_score", f"Ranking score against {reference}", columns, notes)


def _score(dataset: RankedDataset, algorithm: str, reference: str, kind: str) -> Score:
    averages = dataset.averages
    for name in (algorithm, reference):
        if name not in averages.index:
            return None, dataset.absence_reason(name) or f"no result of {name}"
    accuracies, reference_accuracies = (
        line_values(averages, algorithm),
        line_values(averages, reference),
    )
    bar = spread(reference_accuracies, kind)
    if bar is None:
        return None, f"{reference} has 1 seed and so no error bar; train more seeds"
    return ranking_score(mean(accuracies), mean(reference_accuracies), bar), ""


def _sum(column: str, scores: Sequence[Score]) -> dict[str, Any]:
    reason = next((reason for score, reason in scores if score is None), "")
    return entry(
        column,
        None if reason else sum(score for score, _ in scores if score is not None),
        reason=reason,
    )
