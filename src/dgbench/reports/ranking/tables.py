"""The tables of one leaderboard: accuracy by dataset and by environment.

Source: Zhang et al. 2023, section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from dgbench.analysis.accuracy import SPREADS, domain_std, mean, overall, rank_changes, ranks
from dgbench.errors import MeasureError
from dgbench.plan.folds import LOO, trained_on_tested
from dgbench.reports.chance import accuracy_note
from dgbench.reports.choices import Choice, choices_table
from dgbench.reports.document import TARGET_ORACLE
from dgbench.reports.labels import slug, variant_text
from dgbench.reports.measuring.tables import ALGORITHM
from dgbench.reports.over_seeds import (
    by_seed,
    leader,
    line_values,
    reasons,
    seed_columns,
    side_by_side,
)
from dgbench.reports.ranking.leaderboards import Leaderboard, RankedDataset
from dgbench.reports.ranking.published import Baseline
from dgbench.reports.resolution import below_noise, resolution
from dgbench.reports.tables import Column, Table, entries, entry, table

_BOLD = "Bold: the highest, where the seeds separate it from every other one."
#: where each divisor of the standard deviation over environments comes from
_DIVISORS = {
    "K-1": "K-1 as in NICO++'s formula (its Table 2 uses K)",
    "K": "K as in NICO++'s Table 2 (its formula has K-1)",
}


def leaderboard_table(
    leaderboard: Leaderboard,
    kind: str = "domainbed",
    baseline: Baseline | None = None,
    repetitions: Mapping[str, pd.DataFrame] | None = None,
) -> Table:
    """List every dataset, their average, the place and how it moved, one line per algorithm, best
    first.

    Args:
        kind: error bar over seeds, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
        baseline: leaderboard that places are compared with.
        repetitions: averages whose seeds move a part of its chance alone, see
            :meth:`Leaderboard.repetitions`.
    """
    level = leaderboard.level
    order = [*level, *(name for name in leaderboard.algorithms if name not in level)]
    has_average = len(leaderboard.datasets) > 1
    columns = [ALGORITHM]
    parts = []
    for dataset in leaderboard.datasets:
        missing = {name: dataset.absence_reason(name) for name in order}
        parts.append(
            seed_columns(
                dataset.averages,
                dataset.title,
                order,
                dataset.seeds,
                missing,
                highest=True,
                bar=kind,
            )
        )
        form, held_out = variant_text(dataset.identity), ", ".join(dataset.environments)
        text = f"{form}: mean accuracy over {held_out}, each held out"
        columns.append(Column(dataset.title, f"{dataset.title} accuracy", "percent", text))
    if has_average:
        judged = leaderboard.averages.dropna(how="all")
        best = leader(judged, highest=True) if set(order) <= set(judged.index) else None
        cells = []
        for name in order:
            reasons_of = [dataset.absence_reason(name) for dataset in leaderboard.datasets]
            reason = next(filter(None, reasons_of), "a dataset is missing")
            cells.append(entry("average", level.get(name), best=name == best, reason=reason))
        parts.append(pd.DataFrame(cells, index=order))
        columns.append(
            Column(
                "average",
                "average accuracy",
                "percent",
                "mean over the datasets of the unrounded means",
            )
        )
    places = ranks(level)
    parts.append(_places(order, "rank", places, "no average, so no place"))
    columns.append(
        Column(
            "rank", unit="count", help="1 is the highest average; equal ones share the better place"
        )
    )
    if baseline:
        changes = rank_changes(baseline.means, level)
        parts.append(_places(order, "Δ rank", changes, f"not in {baseline.title}"))
        help_text = f"places won against {baseline.title}, among the algorithms of both"
        columns.append(Column("Δ rank", unit="signed", help=help_text))
    title = f"Leaderboard: test accuracy ± {SPREADS[kind]}"
    lines = side_by_side(order, parts)
    shown, notes = _notes(leaderboard, order, baseline)
    shown += below_noise(leaderboard.averages, repetitions or {}, "average accuracy", highest=True)
    notes += accuracy_note({dataset.title: dataset.chance for dataset in leaderboard.datasets})
    made = table(lines, "leaderboard", title, _ranking_first(columns), [*shown, *notes])
    return replace(made, shown_notes=len(shown))


def _ranking_first(columns: Sequence[Column]) -> list[Column]:
    """Put the columns that rank right after the name: the average and the place."""
    if not any(column.name == "average" for column in columns):
        return list(columns)
    ranking = [column for column in columns if column.name in ("average", "rank", "Δ rank")]
    return [columns[0], *ranking, *(column for column in columns[1:] if column not in ranking)]


def _places(
    order: Sequence[str], column: str, places: Mapping[str, int], reason: str
) -> pd.DataFrame:
    """Fill a column with the places of the algorithms; those without one get the reason."""
    return pd.DataFrame(
        [entry(column, places.get(name), reason=reason) for name in order], index=list(order)
    )


def dataset_table(
    leaderboard: Leaderboard, dataset: RankedDataset, kind: str = "domainbed", divisor: str = "K-1"
) -> Table:
    """List every test environment, their average, the accuracy over all images, the deviation, per
    algorithm.

    Args:
        kind: error bar over seeds, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
        divisor: of the standard deviation over environments, ``K-1`` or ``K``.
    """
    order, seeds = leaderboard.algorithms, dataset.seeds
    condition = "trained on its other images" if trained_on_tested(dataset.identity) else "held out"
    columns = [ALGORITHM]
    parts = []
    for env in dataset.environments:
        rows_of_env = dataset.accuracies[dataset.accuracies["env"] == env]
        reason_of = reasons(rows_of_env, "accuracy")
        missing = {name: reason_of.get(name) or dataset.absence_reason(name) for name in order}
        parts.append(
            seed_columns(
                by_seed(rows_of_env, "accuracy"), env, order, seeds, missing, highest=True, bar=kind
            )
        )
        columns.append(
            Column(env, f"accuracy in {env}", "percent", f"accuracy in {env}, {condition}")
        )
    deviation = f"standard deviation over the test environments, divisor {divisor}"
    columns += [
        Column("average", "average accuracy", "percent", "mean of the unrounded environment means"),
        Column(
            "overall",
            "overall accuracy",
            "percent",
            "over all test images: environments weighted with their images",
        ),
        Column("std", "std (points)", "points", deviation),
    ]
    lines = side_by_side(order, parts)
    images = _images(dataset)
    summaries = [_summary(line, dataset, images, divisor) for line in lines.to_dict("records")]
    lines = lines.join(pd.DataFrame(summaries))
    notes = [
        (
            f"Higher is better. {_BOLD} ± {SPREADS[kind]}. Std over the "
            f"K={len(dataset.environments)} test environments of the means over seeds, divisor "
            f"{_DIVISORS[divisor]}."
        ),
        _tested(dataset),
        *([] if images else ["Overall is absent: the number of test images is unknown."]),
        *accuracy_note({dataset.title: dataset.chance}),
    ]
    if dataset.identity["protocol"] == LOO and len(dataset.environments) > 1:
        notes.append(
            "Leave-one-out: every environment has another model, so std mixes models and "
            "environments."
        )
    environments = "tested" if trained_on_tested(dataset.identity) else "held-out"
    title = f"{dataset.title}: accuracy in each {environments} environment"
    return table(lines, f"dataset_{slug(dataset.title)}", title, columns, notes)


def chosen_table(leaderboard: Leaderboard, choices: Sequence[Choice]) -> Table:
    """List step, draw and hyperparameters of every model that counts on a leaderboard.

    Args:
        choices: of :func:`~dgbench.reports.choices.choices`.
    """
    by_run = {(choice.run, choice.folder): choice for choice in choices}
    runs = leaderboard.runs.sort_values("algorithm", kind="stable")
    models = choices_table([by_run[key] for key in zip(runs["run"], runs["folder"], strict=True)])
    algorithm, *columns = models.columns
    note = (
        "Every cell above is made of these models alone; report=hparams prints them with all "
        "candidates."
    )
    columns = [algorithm, Column("dataset", key=True), *columns]
    lines = models.frame.assign(dataset=runs["dataset"].tolist())
    return table(lines, "chosen", "Chosen steps and hyperparameters", columns, [note], detail=True)


def _summary(
    line: Mapping[Any, Any], dataset: RankedDataset, images: Mapping[str, float], divisor: str
) -> dict[str, Any]:
    """Compute average, overall accuracy and deviation of an algorithm that has every environment.

    Args:
        line: of the table, with the mean over seeds in every environment.
        dataset: of the table.
        images: of :func:`_images`.
        divisor: of the deviation, see :func:`dataset_table`.
    """
    means: dict[str, float] = {env: line[env] for env in dataset.environments}
    missing = [env for env, value in means.items() if value is None or math.isnan(value)]
    if missing:
        return entries(("average", "overall", "std"), line[f"{missing[0]}.reason"])
    flag = "(uneven n)" if len({line[f"{env}.n"] for env in means}) > 1 else ""
    level = list(means.values())
    return {
        **entry("average", mean(level), flag=flag),
        **_attempt("overall", lambda: overall(means, images)),
        **_attempt("std", lambda: domain_std(level, divisor)),
    }


def _attempt(name: str, function: Callable[[], float]) -> dict[str, Any]:
    try:
        return entry(name, function())
    except MeasureError as problem:
        return entry(name, reason=str(problem))


def _images(dataset: RankedDataset) -> dict[str, float]:
    """Count the test images of each environment; empty where every row says 1, so that the number
    is not known.
    """
    rows = dataset.accuracies.dropna(subset="images")
    images = {
        str(env): float(count) for env, count in zip(rows["env"], rows["images"], strict=True)
    }
    return images if any(count > 1 for count in images.values()) else {}


def _tested(dataset: RankedDataset) -> str:
    if trained_on_tested(dataset.identity):
        return TARGET_ORACLE
    of_domainbed = dataset.identity["base"] == "domainbed"
    subset = "DomainBed's in part (the larger one)" if of_domainbed else "the test subset"
    return f"Accuracy is that on {subset} of an environment that the model never trained on."


def _notes(
    leaderboard: Leaderboard, order: Sequence[str], baseline: Baseline | None
) -> tuple[list[str], list[str]]:
    """Describe the leaderboard: what stands below it, and how sure it is."""
    level = leaderboard.level
    averages = [dataset.averages for dataset in leaderboard.datasets]
    counts: set[int] = set()
    for matrix in averages:
        counts.update(len(line_values(matrix, name)) for name in level)
    seeds = sorted(counts)
    shown = []
    if seeds:
        shown.append(f"n = {seeds[0]}{f' to {seeds[-1]}' if len(seeds) > 1 else ''} seeds.")
    shown.append(f"Higher is better. {_BOLD}")
    unranked = [name for name in order if name not in level]
    if unranked:
        shown.append(
            f"Without a place, since a dataset is missing: {', '.join(unranked)}; the reasons "
            "stand below."
        )
    if seeds and seeds[0] == 1:
        shown.append("1 seed has no error bar, and any place here may be its luck.")
    notes = ["Seeds that lack an environment are left out of the mean (n marked)."]
    notes += resolution(leaderboard.averages, "average accuracy")
    if baseline:
        shared = len(baseline.means.keys() & level.keys())
        notes.append(
            f"Δ rank: places won against {baseline.title}, ranked among the {shared} algorithms "
            "of both."
        )
    return shown, notes
