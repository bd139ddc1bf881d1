"""How sure one setting is: differences, ranks and the chance of being best, from paired resamples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dgbench.errors import MeasureError
from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.settings.evaluation import Evaluation
from dgbench.reports.settings.over_seeds import mean
from dgbench.reports.settings.statistics_options import Statistics, interval_entry
from dgbench.reports.settings.study_values import algorithms_of, matrices, seeds_of
from dgbench.statistics import Resamples, Separation, resample, separated

_MOST_NAMED = 6  # algorithms; of more, the first and the last are named
_TITLES = {"worst_gap": "worst+gap", "average": "average"}


def certainty_table(evaluation: Evaluation, statistics: Statistics) -> Table:
    """Per algorithm: difference to the lowest, rank and chance of being lowest, by worst+gap and by average."""
    columns = [Column("algorithm", key=True)]
    for title in _TITLES.values():
        columns += [
            Column(f"{title}: to the lowest", unit="points", help=f"{title} less the lowest of all algorithms"),
            Column(f"{title}: rank", unit="rank", help="1 is the lowest"),
            Column(f"{title}: P(lowest)", unit="probability", help="share of the resamples in which it is the lowest"),
        ]
    found, reasons = resamples(evaluation, statistics)
    names = sorted({name for sample in found.values() for name in sample.names})
    if found:
        first = next(iter(found.values()))
        level = dict(zip(first.names, first.estimate, strict=True))
        names.sort(key=lambda name: (level.get(name, np.inf), name))
    lines: list[dict[str, Any]] = [{"algorithm": name} for name in names]
    notes = [_how(evaluation, statistics, found)] if found else []
    for measure, title in _TITLES.items():
        own = [f"{title}: {kind}" for kind in ("to the lowest", "rank", "P(lowest)")]
        if measure not in found:
            notes.append(f"{title}: not computed, {reasons[measure]}.")
            for line in lines:
                line |= _absent(own, reasons[measure])
            continue
        sample = found[measure]
        lowest = sample.names[int(np.argmin(sample.estimate))]
        ranks, chance = sample.ranks(), sample.chance_of_best()
        for line in lines:
            name = line["algorithm"]
            if name in ranks:
                line |= interval_entry(own[0], sample.difference(name, lowest)) | interval_entry(own[1], ranks[name])
                line |= entry(own[2], chance[name])
            else:
                line |= {
                    k: text for each in own for k, text in entry(each, reason="not complete in every seed").items()
                }
        notes.append(_separation(evaluation.studies, measure, title))
    absent = sorted(set(algorithms_of(evaluation.studies)) - set(names))
    if absent and found:
        notes.append(f"Not complete in every seed, left out: {', '.join(absent)}.")
    return table(lines, "certainty", "Which differences hold", columns, notes)


def difference_table(evaluation: Evaluation, statistics: Statistics) -> Table:
    """Every pair of algorithms, with the interval of the difference."""
    found, _ = resamples(evaluation, statistics)
    columns = [Column("algorithm", key=True), Column("less", key=True)]
    columns += [Column(title, unit="points", help=f"difference of {title}") for title in _TITLES.values()]
    names = sorted({name for sample in found.values() for name in sample.names})
    lines = []
    for first, second in combinations(names, 2):
        line: dict[str, Any] = {"algorithm": first, "less": second}
        for measure, title in _TITLES.items():
            sample = found.get(measure)
            if sample is None or not {first, second} <= set(sample.names):
                line |= entry(title, reason="not computed, see the table above")
            else:
                apart = sample.difference(first, second)
                line |= {**interval_entry(title, apart), f"{title}.best": apart.excludes_zero}
        lines.append(line)
    notes = [f"Bold: the {statistics.percent} interval excludes 0. {len(lines)} pairs, each judged by itself."]
    return table(lines, "differences", "Every difference", columns, notes if lines else [], detail=True)


def resamples(evaluation: Evaluation, statistics: Statistics) -> tuple[dict[str, Resamples], dict[str, str]]:
    """Measure -> resamples of the complete algorithms, and measure -> why there are none."""
    found, reasons = {}, {}
    for measure in _TITLES:
        names, seeds, tables = matrices(evaluation.studies, [measure])
        values = tables[measure]
        if measure == "average" and names:
            held_out = evaluation.errors[evaluation.errors["role"] == "held_out"]
            errors = held_out.groupby(["algorithm", "seed"], sort=False)["error"].apply(list).to_dict()
            values = np.array([[errors[name, seed] for seed in seeds] for name in names])
        try:
            if len(names) < 2:
                here = f"{len(names)} of {len(algorithms_of(evaluation.studies))}"
                raise MeasureError(f"a difference needs 2 algorithms with a value in every seed, here are {here}")
            rng = statistics.rng("certainty", measure)
            found[measure] = resample(names, values, rng, draws=statistics.draws, level=statistics.level)
        except MeasureError as problem:
            reasons[measure] = str(problem)
    return found, reasons


def _absent(columns: list[str], reason: str) -> dict[str, Any]:
    return {key: text for name in columns for key, text in entry(name, reason=reason).items()}


def separation_words(order: Sequence[str], found: Separation) -> str:
    """``3 seeds cannot separate it from b, c; 2 are worse.``, of the first of some algorithms.

    Args:
        order: names as in ``found``, best first.
        found: of their values.
    """
    who = f"{found.seeds} seed{'s' * (found.seeds != 1)}"
    others = [order[at] for at in found.candidates if at]
    rest = found.algorithms - 1 - len(others)
    if found.seeds < 2:
        return "1 seed separates nothing: any difference may be the luck of the seed."
    if not others:
        return f"{who} separate it from {'the other' if rest == 1 else f'all {rest} others'}."
    named = ", ".join(others)
    if len(others) > _MOST_NAMED:
        named = f"{len(others)} others, from {others[0]} to {others[-1]}"
    return f"{who} cannot separate it from {named}" + (
        f"; {rest} {'is' if rest == 1 else 'are'} worse." if rest else "."
    )


def _separation(studies: pd.DataFrame, measure: str, title: str) -> str:
    """Which algorithms may have the lowest mean, of those that are complete."""
    names, _, tables = matrices(studies, [measure])
    order = sorted(range(len(names)), key=lambda at: (mean(tables[measure][at].tolist()), names[at]))
    ranked = [names[at] for at in order]
    return f"{title}: {ranked[0]} is lowest; {separation_words(ranked, separated(tables[measure][order]))}"


def _how(evaluation: Evaluation, statistics: Statistics, found: dict[str, Resamples]) -> str:
    count = len(seeds_of(evaluation.studies))
    seeds = "seeds are" if count > 1 else "1 seed, only environments are"
    text = (
        f"[low, high]: {statistics.percent} paired bootstrap interval, {statistics.draws} resamples, widened for the "
        f"{min(item.units for item in found.values())} units resampled; {seeds} resampled"
    )
    both = " (for the average, held-out environments too)" if "average" in found and count > 1 else ""
    return f"{text}{both}. Each difference is judged by itself."
