"""How sure one setting is, from paired resamples: differences, ranks and the chance of being lowest.

And the answer on top of a report, in a sentence or two: who leads, by how much, and what cannot be concluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import Resamples, Separation, Statistics, lead, resample, separated
from dgbench.errors import MeasureError
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.measuring.tables import chance_of
from dgbench.reports.over_seeds import algorithms_of, by_seed, complete, means, ranked_by, seeds_of, selections
from dgbench.reports.tables import Column, Table, entries, entry, interval_entry, table

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
                line |= entries(own, reasons[measure])
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
                line |= entries(own, "not complete in every seed")
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
        table = complete(evaluation.studies, [measure])[measure]
        names, values = list(map(str, table.index)), table.to_numpy()
        if measure == "average" and names:
            held_out = evaluation.errors[evaluation.errors["role"] == "held_out"]
            errors = held_out.groupby(["algorithm", "seed"], sort=False)["error"].apply(list).to_dict()
            values = np.array([[errors[name, seed] for seed in table.columns] for name in names])
        try:
            if len(names) < 2:
                here = f"{len(names)} of {len(algorithms_of(evaluation.studies))}"
                raise MeasureError(f"a difference needs 2 algorithms with a value in every seed, here are {here}")
            rng = statistics.rng("certainty", measure)
            found[measure] = resample(names, values, rng, draws=statistics.draws, level=statistics.level)
        except MeasureError as problem:
            reasons[measure] = str(problem)
    return found, reasons


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
    values = complete(studies, [measure])[measure]
    level = means(values)
    ranked = sorted(level, key=lambda name: (level[name], name))
    return f"{title}: {ranked[0]} is lowest; {separation_words(ranked, separated(values.loc[ranked].to_numpy()))}"


def _how(evaluation: Evaluation, statistics: Statistics, found: dict[str, Resamples]) -> str:
    count = len(seeds_of(evaluation.studies))
    seeds = "seeds are" if count > 1 else "1 seed, only environments are"
    text = (
        f"[low, high]: {statistics.percent} paired bootstrap interval, {statistics.draws} resamples, widened for the "
        f"{min(item.units for item in found.values())} units resampled; {seeds} resampled"
    )
    both = " (for the average, held-out environments too)" if "average" in found and count > 1 else ""
    return f"{text}{both}. Each difference is judged by itself."


#: groups of algorithms with other seeds that an answer names
_MOST_GROUPS = 4
#: terms of the measure reports, explained where they first stand
WORDS = {
    "held-out environment": "a given environment that the judged model was not trained on.",
    "worst+gap": "largest held-out error plus the spread of held-out errors over N - 2 (Hwang et al. 2024, eq. 6).",
    "ideal": "largest error over all environments, known only where all can be tested: the truth that the other "
    "measures try to predict (eq. 4).",
    "selection": "how the step and hyperparameters of each model were chosen, from validation data alone unless it "
    "says oracle.",
}


def measures_answer(evaluation: Evaluation, statistics: Statistics) -> list[str]:
    """Who has the lowest worst+gap, whether that is certain, and whether it is truly best."""
    studies = evaluation.studies
    measure, title = ranked_by(studies)
    names, values = algorithms_of(studies), complete(studies, [measure])[measure]
    level = means(values)
    if len(level) < 2:
        return [too_few(names, len(level), "results in every seed"), *_by_seeds(studies, measure)]
    order = sorted(level, key=lambda name: (level[name], name))
    first, second = order[:2]
    among = (
        "" if len(level) == len(names) else f" of the {len(level)} of {len(names)} algorithms complete in every seed"
    )
    sentence = f"{first} has the lowest {title}{among}, {100 * level[first]:.1f}%"
    sample = resamples(evaluation, statistics)[0].get(measure)
    if sample is not None:
        apart = sample.difference(second, first)
        sentence += (
            f", {100 * apart.estimate:.1f} points below {second} "
            f"([{100 * apart.low:.1f}, {100 * apart.high:.1f}], {statistics.percent} interval)"
        )
    return [f"{sentence}. {verdict(values.loc[order])}", *_by_seeds(studies, measure), *_truth(evaluation, first)]


def too_few(names: Sequence[str], known: int, what: str) -> str:
    """Why there is no answer: fewer than two algorithms have what is compared."""
    if len(names) == 1:
        return f"{names[0]} alone: train another algorithm to compare it with."
    return f"{known} of {len(names)} algorithms have {what}: nothing to compare yet."


def _by_seeds(studies: pd.DataFrame, measure: str) -> list[str]:
    """How many algorithms have which seeds, where they differ: the most common first."""
    table = by_seed(studies, measure)
    groups = Counter(tuple(table.columns[own]) for own in table.notna().to_numpy()).most_common(_MOST_GROUPS)
    if len(groups) < 2:
        return []
    parts = [f"{n} in seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" for seeds, n in groups]
    return [f"Only algorithms of the same seeds are compared. Results: {'; '.join(parts)}."]


def verdict(values: pd.DataFrame, highest: bool = False) -> str:
    """How likely the lead is between equal algorithms, and from which others the seeds separate the first one.

    Args:
        values: algorithm x seed, without gaps, the best algorithm first.
        highest: the highest value is the best one.
    """
    order, table = list(map(str, values.index)), (-1.0 if highest else 1.0) * values.to_numpy()
    if table.shape[1] < 2:
        return separation_words(order, separated(table))
    chance = f"One of two equal algorithms would lead by as much in {chance_of(lead(table))}."
    return f"{chance} {separation_words(order, separated(table))}"


def _truth(evaluation: Evaluation, first: str) -> list[str]:
    """The truly best algorithm, and what selecting by worst+gap and by average costs."""
    studies = evaluation.studies
    chosen = selections(studies, ["ideal", *_TITLES])
    best = chosen["ideal", None].names
    if not best:
        return []
    ideal = means(by_seed(studies, "ideal"))[best[0]]
    text = f"Over all environments {best[0]} is truly best, with an ideal error of {100 * ideal:.1f}%"
    costs = [
        f"selecting by {title} ({chosen[measure, None].names[0]}) costs {100 * cost:.1f} points of it"
        for measure, title in _TITLES.items()
        if (cost := chosen[measure, None].cost) is not None
    ]
    return [f"{text}; {', '.join(costs)}." if costs else f"{text}."]
