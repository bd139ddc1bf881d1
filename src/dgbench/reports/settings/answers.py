"""The answer of a report, in a sentence or two: who leads, by how much, and what cannot be concluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dgbench.reports.settings.certainty_tables import resamples, separation_words
from dgbench.reports.settings.conclusions import chance_of
from dgbench.reports.settings.evaluation import Evaluation
from dgbench.reports.settings.over_seeds import BySeed, mean
from dgbench.reports.settings.statistics_options import Statistics
from dgbench.reports.settings.study_values import (
    algorithms_of,
    complete,
    ranked_by,
    seeds_of,
    selected_by,
    selection_degradation,
    values,
)
from dgbench.statistics import lead, separated

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
    names, known = algorithms_of(studies), complete(studies, measure)
    if len(known) < 2:
        return [too_few(names, len(known), "results in every seed"), *_by_seeds(studies, measure)]
    order = sorted(known, key=lambda a: (mean(list(known[a].values())), a))
    first, second = order[:2]
    among = (
        "" if len(known) == len(names) else f" of the {len(known)} of {len(names)} algorithms complete in every seed"
    )
    sentence = f"{first} has the lowest {title}{among}, {_percent(known[first])}"
    sample = resamples(evaluation, statistics)[0].get(measure)
    if sample is not None:
        apart = sample.difference(second, first)
        sentence += (
            f", {100 * apart.estimate:.1f} points below {second} "
            f"([{100 * apart.low:.1f}, {100 * apart.high:.1f}], {statistics.percent} interval)"
        )
    return [f"{sentence}. {verdict(order, known)}", *_by_seeds(studies, measure), *_truth(evaluation, first)]


def too_few(names: Sequence[str], known: int, what: str) -> str:
    """Why there is no answer: fewer than two algorithms have what is compared."""
    if len(names) == 1:
        return f"{names[0]} alone: train another algorithm to compare it with."
    return f"{known} of {len(names)} algorithms have {what}: nothing to compare yet."


def _by_seeds(studies: pd.DataFrame, measure: str) -> list[str]:
    """How many algorithms have which seeds, where they differ: the most common first."""
    groups = Counter(tuple(sorted(own)) for own in values(studies, measure).values()).most_common(_MOST_GROUPS)
    if len(groups) < 2:
        return []
    parts = [f"{n} in seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" for seeds, n in groups]
    return [f"Only algorithms of the same seeds are compared. Results: {'; '.join(parts)}."]


def verdict(order: list[str], known: Mapping[str, BySeed], highest: bool = False) -> str:
    """How likely the lead is between equal algorithms, and from which others the seeds separate the first one.

    Args:
        order: algorithms, best first.
        known: algorithm -> seed -> value, the same seeds for each.
        highest: the highest value is the best one.
    """
    seeds, sign = sorted(known[order[0]]), -1.0 if highest else 1.0
    table = np.array([[sign * known[a][seed] for seed in seeds] for a in order])
    if len(seeds) < 2:
        return separation_words(order, separated(table))
    chance = f"One of two equal algorithms would lead by as much in {chance_of(lead(table))}."
    return f"{chance} {separation_words(order, separated(table))}"


def _truth(evaluation: Evaluation, first: str) -> list[str]:
    """The truly best algorithm, and what selecting by worst+gap and by average costs."""
    studies = evaluation.studies
    seeds = seeds_of(studies)
    best = selected_by(studies, "ideal", seeds)
    if not best:
        return []
    ideal = values(studies, "ideal")
    text = f"Over all environments {best[0]} is truly best, with an ideal error of {_percent(ideal[best[0]])}"
    costs = []
    for measure, title in (("worst_gap", "worst+gap"), ("average", "average")):
        chosen, cost = selected_by(studies, measure, seeds), selection_degradation(studies, measure, seeds)
        if chosen and cost is not None:
            costs.append(f"selecting by {title} ({chosen[0]}) costs {100 * cost:.1f} points of it")
    return [f"{text}; {', '.join(costs)}." if costs else f"{text}."]


def _percent(by_seed: BySeed) -> str:
    return f"{100 * mean(list(by_seed.values())):.1f}%"
