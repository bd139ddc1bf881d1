"""How sure one comparison is: differences, ranks and the chance of being best, from paired resamples."""

from __future__ import annotations

import numpy as np

from dgbench.errors import MeasureError
from dgbench.measures import Resamples, resample
from dgbench.reports.comparisons import Comparison
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.seed_statistics import with_best
from dgbench.reports.statistics_options import Statistics, interval_cell
from dgbench.reports.surveys import matrices

_TITLES = {"worst_gap": "worst+gap", "average": "average"}


def certainty_table(comparison: Comparison, how: str, statistics: Statistics) -> Table:
    """Per algorithm: difference to the lowest, rank and chance of being lowest, by worst+gap and by average."""
    columns = [Column("algorithm")]
    for title in _TITLES.values():
        columns += [
            Column(f"{title}: to the lowest", "points", f"{title} less that of the algorithm with the lowest"),
            Column(f"{title}: rank", "rank", "1 is the lowest"),
            Column(f"{title}: P(lowest)", "probability", "share of the resamples in which it is the lowest"),
        ]
    found, reasons = resamples(comparison, statistics)
    names = sorted({name for item in found.values() for name in item.names})
    if found:
        first = next(iter(found.values()))
        level = dict(zip(first.names, first.estimate, strict=True))
        names.sort(key=lambda name: (level.get(name, np.inf), name))
    body: list[list[Cell]] = [[Cell(name)] for name in names]
    notes = [_how(comparison, statistics, found)] if found else []
    for measure, title in _TITLES.items():
        if measure not in found:
            notes.append(f"{title}: not computed, {reasons[measure]}.")
            for row in body:
                row += [Cell(reason=reasons[measure])] * 3
            continue
        sample = found[measure]
        lowest = sample.names[int(np.argmin(sample.estimate))]
        ranks, chance = sample.ranks(), sample.chance_of_best()
        best = with_best(
            [Cell(chance.get(name), reason="" if name in chance else "incomplete") for name in names], highest=True
        )
        for row, name, cell in zip(body, names, best, strict=True):
            if name in ranks:
                row += [interval_cell(sample.difference(name, lowest)), interval_cell(ranks[name]), cell]
            else:
                row += [Cell(reason="not complete in every seed")] * 3
        notes.append(separation(sample, title, len(comparison.seeds)))
    absent = sorted(set(comparison.algorithms) - set(names))
    if absent and found:
        notes.append(f"Not complete in every seed, left out: {', '.join(absent)}.")
    title = f"Which differences hold ({how})"
    return Table("certainty", title, columns, body, notes)


def difference_table(comparison: Comparison, how: str, statistics: Statistics) -> Table:
    """Every pair of algorithms, with the interval of the difference."""
    found, _ = resamples(comparison, statistics)
    columns = [Column("algorithm"), Column("less", key=True)]
    columns += [Column(title, "points", f"difference of {title}, percentage points") for title in _TITLES.values()]
    names = sorted({name for item in found.values() for name in item.names})
    body = []
    for at, first in enumerate(names):
        for second in names[at + 1 :]:
            row = [Cell(first), Cell(second)]
            for measure in _TITLES:
                sample = found.get(measure)
                if sample is None or not {first, second} <= set(sample.names):
                    row.append(Cell(reason="not computed, see the table above"))
                    continue
                cell = interval_cell(sample.difference(first, second))
                apart = cell.low is not None and cell.high is not None and (cell.low > 0 or cell.high < 0)
                row.append(Cell(cell.value, low=cell.low, high=cell.high, best=apart))
            body.append(row)
    notes = [f"Bold: the {statistics.percent} interval excludes 0. {len(body)} pairs, each judged by itself."]
    return Table("differences", f"Every difference ({how})", columns, body, notes if body else [], detail=True)


def resamples(comparison: Comparison, statistics: Statistics) -> tuple[dict[str, Resamples], dict[str, str]]:
    """Measure -> resamples of the complete algorithms, and measure -> why there are none."""
    found, reasons = {}, {}
    for measure in _TITLES:
        names, seeds, values = matrices(comparison, [measure])
        table = values[measure]
        if measure == "average" and names:
            errors = {(s.algorithm, s.seed): list(s.held_out.values()) for s in comparison.studies}
            table = np.array([[errors[name, seed] for seed in seeds] for name in names])
        try:
            if len(names) < 2:
                here = f"{len(names)} of {len(comparison.algorithms)}"
                raise MeasureError(f"a difference needs 2 algorithms with a value in every seed, here are {here}")
            rng = statistics.rng("certainty", measure)
            found[measure] = resample(names, table, rng, draws=statistics.draws, level=statistics.level)
        except MeasureError as problem:
            reasons[measure] = str(problem)
    return found, reasons


def separation(sample: Resamples, title: str, seeds: int) -> str:
    """``3 seeds cannot separate ranks 1-5 by worst+gap``: everyone whose difference to the lowest may be 0."""
    order = [sample.names[i] for i in np.argsort(sample.estimate, kind="stable")]
    tied = [at for at, name in enumerate(order) if at and not sample.difference(name, order[0]).excludes_zero]
    who = f"{seeds} seed{'s' * (seeds != 1)}"
    if not tied:
        return f"{title}: {order[0]} is lower than each other algorithm, told by {who}."
    if tied == list(range(1, len(tied) + 1)):
        ranks = f"ranks 1-{len(tied) + 1}"
        names = ", ".join(order[: len(tied) + 1]) if len(tied) < 5 else f"from {order[0]} to {order[len(tied)]}"
    else:
        ranks = f"rank 1 from ranks {', '.join(str(at + 1) for at in tied)}"
        names = ", ".join([order[0], *(order[at] for at in tied)])
    rest = len(order) - 1 - len(tied)
    return (
        f"{title}: {who} cannot separate {ranks} ({names}); {rest} of {len(order) - 1} others are told from the lowest."
    )


def _how(comparison: Comparison, statistics: Statistics, found: dict[str, Resamples]) -> str:
    count = len(comparison.seeds)
    seeds = "seeds are" if count > 1 else "1 seed, only environments are"
    text = (
        f"[low, high]: {statistics.percent} paired bootstrap interval, {statistics.draws} resamples, widened for the "
        f"{min(item.units for item in found.values())} units resampled; {seeds} resampled"
    )
    both = " (for the average, held-out environments too)" if "average" in found and count > 1 else ""
    return f"{text}{both}. Each difference is judged by itself."
