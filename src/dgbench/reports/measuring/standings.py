"""The first picture of the measure report: a dot with its interval for every algorithm.

In one setting by the measure that ranks it, and over the settings of a benchmark by ranks.
"""

from __future__ import annotations

import pandas as pd

from dgbench.plan.measures import IDEAL
from dgbench.reports.chance import BLIND_GUESS
from dgbench.reports.document import Figure
from dgbench.reports.dots import Axis, Dot, Kind, Picture, dot_figure, dots_of, meaning
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.measuring.benchmarks import Benchmark
from dgbench.reports.over_seeds import Ranking, by_seed, means, ranked_by
from dgbench.reports.render.drawing import MOST_DRAWN
from dgbench.validation import some_of

_UNBOUNDED = (-1.0, 1e9)  # worst+gap may exceed 100 %


def standing_figure(evaluation: Evaluation) -> Figure | None:
    """Draw the measure that ranks the algorithms of one setting, with its error in every held-out
    environment; None for fewer than 2 algorithms with a value.
    """
    (setting,) = evaluation.settings
    measure = ranked_by(evaluation.studies, evaluation.measures)
    values = by_seed(evaluation.studies, measure.name)
    level = means(values)
    if len(level) < 2:
        return None
    order = sorted(level, key=lambda name: (level[name], name))
    shown = {name: level[name] for name in order[:MOST_DRAWN]}
    verdict = evaluation.verdicts[measure.name]
    errors = _errors_by_environment(evaluation)
    lines = zip(errors.index, errors.to_numpy().tolist(), strict=True)
    parts = {str(name): [error for error in line if error == error] for name, line in lines}
    dots = dots_of(values, shown, verdict, parts)
    chance = None
    in_environments = None
    if setting.chance is not None:
        in_environments = 100 * setting.chance.error
        of_measure = setting.chance.levels(measure.name).get(BLIND_GUESS)
        chance = None if of_measure is None else 100 * of_measure
    caption = (
        f"Dot: {measure.in_prose}, mean over seeds. Small dots: error in each held-out environment "
        f"({some_of(list(map(str, errors.columns)), 8)}). {meaning([values], [dots])}"
    )
    undrawn = len(order) - len(shown)
    if undrawn:
        caption += f" Not drawn: {undrawn:,} others, which stand in the table and its CSV file."
    picture = Picture(
        name=f"standing_{setting.name}",
        title=f"Who leads by {measure.in_prose}, {setting.title}",
        caption=caption,
        axis=Axis(f"{measure.title} (%), lower is better", chance, _UNBOUNDED),
        parts=Axis("each environment (%)", in_environments),
    )
    return dot_figure(picture, dots)


def _errors_by_environment(evaluation: Evaluation) -> pd.DataFrame:
    """Average held-out errors over seeds: algorithm x environment, in the order of the setting."""
    errors = evaluation.errors
    held_out = errors[errors["role"] == "held_out"]
    names = list(dict.fromkeys(map(str, held_out["env"])))
    table = held_out.pivot_table(index="algorithm", columns="env", values="error", observed=True)
    return table.reindex(columns=[name for name in names if name in table.columns])


def rank_standing_figure(benchmark: Benchmark) -> Figure | None:
    """Draw mean ranks over the settings of a benchmark, by the ideal where it is known; None where
    ranks cannot be compared, or there are more algorithms than a figure has room for.
    """
    ranked, _ = benchmark.rankings
    if not ranked or len(benchmark.algorithms) > MOST_DRAWN:
        return None
    ranking = ranked[IDEAL]
    half = ranking.difference / 2
    count = len(ranking.ranks)
    dots = []
    for name in ranking.order:
        rank = ranking.ranks[name]
        verdict, kind = _against_first(ranking, name)
        small = [float(line[name]) for line in ranking.in_blocks]
        ends = (max(1.0, rank - half), min(float(count), rank + half))
        dots.append(Dot(name, rank, ends, verdict, kind, small))
    blocks = ranking.test.blocks
    title = benchmark.measures.named(IDEAL).title
    caption = (
        f"Dot: mean rank by the {title} error over {blocks} settings, 1 is the lowest; small dots: "
        "the rank in each of them. Line: half of Nemenyi's critical difference on either side, so "
        "two algorithms are separated where their lines do not overlap (5% for all of them "
        "together). The settings share their images, so there is less evidence than it seems."
    )
    picture = Picture(
        name=f"standing_{benchmark.name}",
        title=f"Who leads by the {title} error over {blocks} settings",
        caption=caption,
        axis=Axis("mean rank, lower is better", limits=(1.0, float(count))),
        parts=Axis("rank in each setting"),
    )
    return dot_figure(picture, dots)


def _against_first(ranking: Ranking, name: str) -> tuple[str, Kind]:
    """Write how an algorithm stands to the first one by Nemenyi's test."""
    if name == ranking.first:
        return ("best" if ranking.leader else "first"), "open"
    differs = ranking.test.p_value_f < ranking.alpha
    if differs and ranking.ranks[name] - ranking.ranks[ranking.first] > ranking.difference:
        return "worse than the first", "worse"
    return "not separated", "open"
