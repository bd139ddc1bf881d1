"""The tables of one leaderboard: accuracy by dataset and by environment (Zhang et al. 2023, section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from dgbench.errors import MeasureError
from dgbench.protocols.folds import LOO, trained_on_tested
from dgbench.reports.boards.board_values import averages, lines_of, ranked, seed_averages, seed_counts, why_absent
from dgbench.reports.boards.boards import Board, BoardDataset
from dgbench.reports.boards.leaderboard_published import Baseline
from dgbench.reports.document import TARGET_ORACLE
from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.importers import IMPORTED
from dgbench.reports.settings.choices import Choice, choices_table
from dgbench.reports.settings.labels import slug, variant_text
from dgbench.reports.settings.measure_tables import ALGORITHM
from dgbench.reports.settings.over_seeds import leader, mean, seed_column
from dgbench.reports.settings.study_values import algorithms_of, reasons, values
from dgbench.statistics.accuracy_summary import SPREADS, domain_std, overall, spread
from dgbench.statistics.ranking import rank_changes, ranks

_BOLD = "Bold: the highest, where the seeds separate it from every other one."
#: where each divisor of the standard deviation over environments comes from
_DIVISORS = {
    "K-1": "K-1 as in NICO++'s formula (its Table 2 uses K)",
    "K": "K as in NICO++'s Table 2 (its formula has K-1)",
}


def leaderboard_table(board: Board, kind: str = "domainbed", baseline: Baseline | None = None) -> Table:
    """One line per algorithm, best first: every dataset, their average, the place and how it moved.

    Args:
        board: of :func:`~dgbench.reports.boards.boards.boards`.
        kind: error bar over seeds, a key of :data:`~dgbench.statistics.accuracy_summary.SPREADS`.
        baseline: leaderboard that places are compared with.
    """
    level = ranked(board)
    order = [*level, *(name for name in algorithms_of(board.accuracies) if name not in level)]
    several = len(board.datasets) > 1
    columns = [ALGORITHM]
    lines: list[dict[str, Any]] = [{"algorithm": name} for name in order]
    for dataset in board.datasets:
        own = lines_of(board, dataset)
        why = {name: why_absent(own, name) for name in order}
        found = averages(own)
        column = seed_column(
            dataset.title, found, order, seed_counts(own), why, highest=True, bar=partial(spread, kind=kind)
        )
        lines = [line | part for line, part in zip(lines, column, strict=True)]
        columns.append(Column(dataset.title, f"{dataset.title} accuracy", "percent", _help(dataset)))
    if several:
        best = leader(seed_averages(board), highest=True)
        lines = [line | _average(board, level, name, name == best) for line, name in zip(lines, order, strict=True)]
        columns.append(
            Column("average", "average accuracy", "percent", "mean over the datasets of the unrounded means")
        )
    places = ranks(level)
    absent = {name: "" if name in places else "no average, so no place" for name in order}
    lines = [line | entry("rank", places.get(n), reason=absent[n]) for line, n in zip(lines, order, strict=True)]
    columns.append(Column("rank", unit="count", help="1 is the highest average; equal ones share the better place"))
    if baseline:
        moved = rank_changes(baseline.means, level)
        absent = {name: "" if name in moved else f"not in {baseline.title}" for name in order}
        lines = [line | entry("Δ rank", moved.get(n), reason=absent[n]) for line, n in zip(lines, order, strict=True)]
        won = f"places won against {baseline.title}, among the algorithms of both"
        columns.append(Column("Δ rank", unit="signed", help=won))
    title = f"Leaderboard: test accuracy ± {SPREADS[kind]}"
    return table(lines, "leaderboard", title, columns, _notes(board, order, baseline))


def dataset_table(board: Board, dataset: BoardDataset, kind: str = "domainbed", divisor: str = "K-1") -> Table:
    """One line per algorithm: every test environment, their average, the accuracy over all images, the deviation.

    Args:
        board: of :func:`~dgbench.reports.boards.boards.boards`.
        dataset: one of its datasets.
        kind: error bar over seeds, a key of :data:`~dgbench.statistics.accuracy_summary.SPREADS`.
        divisor: of the standard deviation over environments, ``K-1`` or ``K``.
    """
    own = lines_of(board, dataset)
    order, seeds = algorithms_of(board.accuracies), seed_counts(own)
    how = "trained on its other images" if trained_on_tested(dataset.identity) else "held out"
    columns = [ALGORITHM]
    lines: list[dict[str, Any]] = [{"algorithm": name} for name in order]
    for env in dataset.environments:
        here = own[own["env"] == env]
        told = reasons(here, "accuracy")
        why = {name: told.get(name) or why_absent(own, name) for name in order}
        bar = partial(spread, kind=kind)
        column = seed_column(env, values(here, "accuracy"), order, seeds, why, highest=True, bar=bar)
        lines = [line | part for line, part in zip(lines, column, strict=True)]
        columns.append(Column(env, f"accuracy in {env}", "percent", f"accuracy in {env}, {how}"))
    deviation = f"standard deviation over the test environments, divisor {divisor}"
    columns += [
        Column("average", "average accuracy", "percent", "mean of the unrounded environment means"),
        Column(
            "overall", "overall accuracy", "percent", "over all test images: environments weighted with their images"
        ),
        Column("std", "std (points)", "points", deviation),
    ]
    lines = [line | _summary(own, dataset, line["algorithm"], divisor) for line in lines]
    notes = [
        f"Higher is better. {_BOLD} ± {SPREADS[kind]}. Std over the K={len(dataset.environments)} test environments of "
        f"the means over seeds, divisor {_DIVISORS[divisor]}.",
        _tested(dataset),
        *([] if _images(own) else ["Overall is absent: the number of test images is unknown."]),
        *_different_models(dataset),
    ]
    environments = "tested" if trained_on_tested(dataset.identity) else "held-out"
    title = f"{dataset.title}: accuracy in each {environments} environment"
    return table(lines, f"dataset_{slug(dataset.title)}", title, columns, notes)


def chosen_table(board: Board, found: Sequence[Choice]) -> Table:
    """One line per model that counts on a board: its step, draw and hyperparameters.

    Args:
        board: of :func:`~dgbench.reports.boards.boards.boards`.
        found: of :func:`~dgbench.reports.settings.choices.choices`.
    """
    by_run = {(choice.run, choice.folder): choice for choice in found}
    runs = board.runs.sort_values("algorithm", kind="stable")
    made = choices_table([by_run[who] for who in zip(runs["run"], runs["folder"], strict=True)])
    algorithm, *columns = made.columns
    note = "Every cell above is made of these models alone; report=hparams prints them with all candidates."
    columns = [algorithm, Column("dataset", key=True), *columns]
    lines = made.frame.assign(dataset=runs["dataset"].tolist())
    return table(lines, "chosen", "Chosen steps and hyperparameters", columns, [note], detail=True)


def _average(board: Board, level: Mapping[str, float], name: str, best: bool) -> dict[str, Any]:
    why = next((text for dataset in board.datasets if (text := why_absent(lines_of(board, dataset), name))), "")
    reason = "" if name in level else why or "a dataset is missing"
    return entry("average", level.get(name), best=best, reason=reason)


def _summary(own: pd.DataFrame, dataset: BoardDataset, algorithm: str, divisor: str) -> dict[str, Any]:
    """Average, overall and deviation of an algorithm that has every environment."""
    means, counts = {}, set()
    for env in dataset.environments:
        here = own[own["env"] == env]
        found = list(values(here, "accuracy").get(algorithm, {}).values())
        if not found:
            why = reasons(here, "accuracy").get(algorithm) or why_absent(own, algorithm)
            return {k: v for name in ("average", "overall", "std") for k, v in entry(name, reason=why).items()}
        means[env] = mean(found)
        counts.add(len(found))
    flag = "(uneven n)" if len(counts) > 1 else ""
    level = list(means.values())
    return {
        **entry("average", mean(level), flag=flag),
        **_attempt("overall", lambda: overall(means, _images(own))),
        **_attempt("std", lambda: domain_std(level, divisor)),
    }


def _attempt(name: str, function: Callable[[], float]) -> dict[str, Any]:
    try:
        return entry(name, function())
    except MeasureError as problem:
        return entry(name, reason=str(problem))


def _images(own: pd.DataFrame) -> dict[str, float]:
    """Environment -> test images; empty where every row speaks of a single one, so that the number is not known."""
    known = own.dropna(subset="images")
    images = {str(env): float(count) for env, count in zip(known["env"], known["images"], strict=True)}
    return images if any(count > 1 for count in images.values()) else {}


def _help(dataset: BoardDataset) -> str:
    return f"{variant_text(dataset.identity)}: mean accuracy over {', '.join(dataset.environments)}, each held out"


def _tested(dataset: BoardDataset) -> str:
    if trained_on_tested(dataset.identity):
        return TARGET_ORACLE
    imported = str(dataset.identity["code"]).startswith(IMPORTED)
    where = "DomainBed's in part (the larger one)" if imported else "the test subset"
    return f"Accuracy is that on {where} of an environment that the model never trained on."


def _different_models(dataset: BoardDataset) -> list[str]:
    if dataset.identity["protocol"] == LOO and len(dataset.environments) > 1:
        return ["Leave-one-out: every environment has another model, so std mixes models and environments."]
    return []


def _notes(board: Board, order: Sequence[str], baseline: Baseline | None) -> list[str]:
    level = ranked(board)
    found = [averages(lines_of(board, dataset)) for dataset in board.datasets]
    seeds = sorted({len(own[name]) for own in found for name in level})
    notes = []
    if seeds:
        notes.append(f"n = {seeds[0]}{f' to {seeds[-1]}' if len(seeds) > 1 else ''} seeds.")
    notes.append(f"Higher is better. {_BOLD} Seeds that lack an environment are left out of the mean (n marked).")
    if absent := [name for name in order if name not in level]:
        notes.append(f"Without a place, since a dataset is missing: {', '.join(absent)}; the reasons stand below.")
    if seeds and seeds[0] == 1:
        notes.append("1 seed: any place here may be the luck of a seed.")
    if baseline:
        shared = len(baseline.means.keys() & level.keys())
        notes.append(f"Δ rank: places won against {baseline.title}, ranked among the {shared} algorithms of both.")
    return notes
