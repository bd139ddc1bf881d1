"""The tables of one leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dgbench.errors import MeasureError
from dgbench.measures.accuracy_summary import SPREADS, domain_std, mean, overall, spread
from dgbench.measures.ranking import rank_changes, ranks
from dgbench.protocols.folds import trained_on_tested
from dgbench.reports.closing import TARGET_ORACLE
from dgbench.reports.comparisons import variant_text
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.importers import IMPORTED
from dgbench.reports.leaderboard_cells import Board, DatasetCells
from dgbench.reports.seed_statistics import with_best


@dataclass(frozen=True)
class Options:
    """What a reader may choose about the tables."""

    spread: str  #: a key of :data:`~dgbench.measures.accuracy_summary.SPREADS`
    std_divisor: str  #: ``K-1`` or ``K``
    reference: str  #: algorithm whose error bar decides the ranking score
    shifts: Mapping[str, str]  #: dataset -> dominating shift


@dataclass(frozen=True)
class Baseline:
    """A leaderboard to compare places with."""

    title: str
    means: Mapping[str, float]  #: algorithm -> mean over its datasets


def leaderboard_table(
    board: Board, titles: Sequence[str], options: Options, how: str, baseline: Baseline | None
) -> Table:
    """One line per algorithm, best first: every dataset, their average, the place and how it moved."""
    ranked = board.ranked()
    places = ranks(ranked)
    moved = rank_changes(baseline.means, ranked) if baseline else {}
    order = [*ranked, *(name for name in board.algorithms if name not in ranked)]
    columns = [Column("algorithm")]
    columns += [
        Column(f"{title} (%)", "percent", _help(cells)) for title, cells in zip(titles, board.datasets, strict=True)
    ]
    several = len(board.datasets) > 1
    columns += [Column("average (%)", "percent", "mean over the datasets of the unrounded means")] * several
    columns += [Column("rank", "count", "1 is the highest average; equal ones share the better place")]
    if baseline:
        columns.append(Column("Δ rank", "count", f"places won against {baseline.title}, among the algorithms of both"))
    by_dataset = [
        with_best([seed_cell(cells.averages(name), cells, name, options.spread) for name in order], highest=True)
        for cells in board.datasets
    ]
    averages = with_best([_average(board, ranked, name) for name in order], highest=True)
    body = []
    for position, name in enumerate(order):
        line = [Cell(name), *(column[position] for column in by_dataset), *averages[position : position + several]]
        line.append(Cell(float(places[name])) if name in places else Cell(reason="no average, so no place"))
        if baseline:
            line.append(_moved(moved.get(name), baseline))
        body.append(line)
    title = f"Leaderboard: test accuracy ± {SPREADS[options.spread]} ({how})"
    return Table("leaderboard", title, columns, body, _notes(board, ranked, baseline))


def dataset_table(
    cells: DatasetCells, name: str, title: str, algorithms: Sequence[str], options: Options, how: str
) -> Table:
    """One line per algorithm: every test environment, their average, the accuracy over all images, the deviation."""
    columns = [Column("algorithm")]
    columns += [Column(f"{env} (%)", "percent", f"accuracy in {env}, held out") for env in cells.environments]
    columns += [
        Column("average (%)", "percent", "mean of the unrounded environment means"),
        Column("overall (%)", "percent", "over all test images: environments weighted with their number of images"),
        Column(
            "std (points)", "points", f"standard deviation over the test environments, divisor {options.std_divisor}"
        ),
    ]
    body = [[Cell(algorithm)] for algorithm in algorithms]
    for env in cells.environments:
        column = []
        for algorithm in algorithms:
            seeds = cells.accuracy.get(algorithm, {})
            known = {seed: found[env] for seed, found in seeds.items() if env in found}
            why = cells.reasons.get(algorithm, {}).get(env) or cells.why(algorithm)
            column.append(_seed_cell(known, len(seeds), why, options.spread))
        for line, cell in zip(body, with_best(column, highest=True), strict=True):
            line.append(cell)
    summaries = [_summaries(cells, algorithm, options) for algorithm in algorithms]
    for line, summary in zip(body, summaries, strict=True):
        line += summary
    wording = {
        "K-1": "K-1 as in NICO++'s formula (its Table 2 uses K)",
        "K": "K as in NICO++'s Table 2 (its formula has K-1)",
    }
    notes = [
        f"± {SPREADS[options.spread]}. Std over the K={len(cells.environments)} test environments of the means over "
        f"seeds, divisor {wording[options.std_divisor]}.",
        _tested(cells),
        *([] if cells.images else ["Overall is absent: the number of test images is unknown."]),
        *_different_models(cells),
    ]
    kind = "tested" if trained_on_tested(cells.identity) else "held-out"
    return Table(name, f"{title}: accuracy in each {kind} environment ({how})", columns, body, notes)


def seed_cell(by_seed: Mapping[int, float], cells: DatasetCells, algorithm: str, kind: str) -> Cell:
    """Mean ± error bar over the seeds that have every environment."""
    return _seed_cell(by_seed, len(cells.accuracy.get(algorithm, {})), cells.why(algorithm), kind)


def _seed_cell(by_seed: Mapping[int, float], seeds: int, why: str, kind: str) -> Cell:
    values = list(by_seed.values())
    if not values:
        return Cell(reason=why or "no seed has this value", n=0)
    flag = f"(n={len(values)})" if len(values) != seeds else ""
    return Cell(mean(values), spread(values, kind), len(values), flag=flag)


def _average(board: Board, ranked: Mapping[str, float], name: str) -> Cell:
    if name in ranked:
        return Cell(ranked[name], n=1)
    why = next((cells.why(name) for cells in board.datasets if not cells.averages(name)), "")
    return Cell(reason=why or "a dataset is missing")


def _moved(change: int | None, baseline: Baseline) -> Cell:
    if change is None:
        return Cell(reason=f"not in {baseline.title}")
    return Cell(f"{change:+d}" if change else "0")


def _summaries(cells: DatasetCells, algorithm: str, options: Options) -> list[Cell]:
    means = {}
    counts = set()
    for env in cells.environments:
        values = [found[env] for found in cells.accuracy.get(algorithm, {}).values() if env in found]
        if not values:
            return [Cell(reason=cells.reasons.get(algorithm, {}).get(env) or cells.why(algorithm)) for _ in range(3)]
        means[env] = mean(values)
        counts.add(len(values))
    values = list(means.values())
    flag = "(uneven n)" if len(counts) > 1 else ""
    deviation = _attempt(lambda: domain_std(values, options.std_divisor))
    return [Cell(mean(values), flag=flag), _attempt(lambda: overall(means, cells.images)), deviation]


def _attempt(function: Callable[[], float]) -> Cell:
    try:
        return Cell(function())
    except MeasureError as problem:
        return Cell(reason=str(problem))


def _help(cells: DatasetCells) -> str:
    return f"{variant_text(cells.identity)}: mean over {', '.join(map(str, cells.environments))}, each held out"


def _tested(cells: DatasetCells) -> str:
    if trained_on_tested(cells.identity):
        return TARGET_ORACLE
    imported = str(cells.identity["code"]).startswith(IMPORTED)
    where = "DomainBed's in part (the larger one)" if imported else "the test subset"
    return f"Accuracy is that on {where} of an environment that the model never trained on."


def _different_models(cells: DatasetCells) -> list[str]:
    if cells.identity["protocol"] == "loo" and len(cells.environments) > 1:
        return ["Leave-one-out: every environment has another model, so std mixes models and environments."]
    return []


def _notes(board: Board, ranked: Mapping[str, float], baseline: Baseline | None) -> list[str]:
    seeds = sorted({len(cells.averages(name)) for cells in board.datasets for name in ranked})
    notes = (
        [f"n = {' to '.join(map(str, (seeds[0], seeds[-1]) if seeds[0] != seeds[-1] else seeds[:1]))} seeds."]
        if seeds
        else []
    )
    notes.append("Higher is better; best in bold. Seeds that lack an environment are left out of the mean (n marked).")
    if absent := [name for name in board.algorithms if name not in ranked]:
        notes.append(f"Without a place, since a dataset is missing: {', '.join(absent)}; the reasons stand below.")
    if seeds and seeds[0] == 1:
        notes.append("1 seed: no place here can be told from the luck of a seed.")
    if baseline:
        shared = len(baseline.means.keys() & ranked.keys())
        notes.append(f"Δ rank: places won against {baseline.title}, ranked among the {shared} algorithms of both.")
    return notes
