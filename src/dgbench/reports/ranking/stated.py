"""A leaderboard of means with error bars, as others state them: who leads, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from dgbench.analysis import Interval, Rival, noncentrality
from dgbench.analysis.accuracy import deviation_behind, ranks
from dgbench.analysis.distributions import t
from dgbench.reports.document import Figure, Section
from dgbench.reports.dots import Axis, Dot, Picture, beside, dot_figure, kind_of
from dgbench.reports.labels import slug
from dgbench.reports.measuring.tables import ALGORITHM
from dgbench.reports.over_seeds import too_few
from dgbench.reports.published import Published
from dgbench.reports.published.beside import PERCENT, published_cell
from dgbench.reports.ranking.contests import Contest, averages_of, contests
from dgbench.reports.render.drawing import MOST_DRAWN
from dgbench.reports.standing import Leaders, Verdict
from dgbench.reports.tables import Column, Table, decimal, entry, table

_MANY = 1_000_000  # seeds, where it is not known how many: standard errors then count as exact


def standing_section(theirs: Published) -> Section:
    """Show means with standard errors as a leaderboard, with who leads and from whom the errors
    separate it.
    """
    figure = standing_figure(theirs)
    return Section(
        slug(theirs.name),
        theirs.title,
        [standing_table(theirs)],
        [figure] if figure else [],
        standing_answer(theirs),
    )


def standing_figure(theirs: Published) -> Figure | None:
    """Draw the average of each algorithm with its interval, best on top; None where none has one.

    The interval is Student's, with the degrees of freedom of one column's seeds.
    """
    averages = averages_of(theirs)
    if not averages:
        return None
    order = sorted(averages, key=lambda name: (-averages[name].mean, name))
    judged = theirs if theirs.seeds else replace(theirs, seeds=_MANY, bar="standard_error")
    contest = next((one for one in contests(judged) if one.column == "average"), None)
    verdict = _verdict_of(contest, theirs) if contest else None
    dots = []
    for name in order[:MOST_DRAWN]:
        value = averages[name]
        interval = None
        if value.error is not None and judged.seeds > 1:
            deviation = deviation_behind(value.error, judged.seeds, judged.bar)
            half = float(t.ppf(0.975, judged.seeds - 1)) * deviation / math.sqrt(judged.seeds)
            interval = (value.mean - half, value.mean + half)
        columns = [theirs.values[name].get(column) for column in theirs.columns]
        parts = [column.mean for column in columns if column is not None]
        word = beside(verdict, name) if verdict else ""
        kind = kind_of(verdict, name) if verdict else "open"
        dots.append(Dot(name, value.mean, interval, word, kind, parts))
    seeds = (
        f"{theirs.seeds} seeds" if theirs.seeds else "many seeds, since it does not say how many"
    )
    caption = (
        "Dot: mean of the columns, which small dots show. Line: 95% t interval from the error bars "
        f"of the table, taken as those of {seeds}. Blue: may be the best; gray: not the best, by "
        "Welch's t-tests."
    )
    undrawn = len(order) - len(dots)
    if undrawn:
        caption += f" Not drawn: {undrawn:,} others, which stand in the table."
    picture = Picture(
        name=f"accuracy_{slug(theirs.name)}",
        title="Average accuracy of every algorithm, as stated",
        caption=caption,
        axis=Axis("average accuracy (%), higher is better"),
        parts=Axis("each column (%)"),
    )
    return dot_figure(picture, dots)


def standing_table(theirs: Published) -> Table:
    """List every column, their average and the place, one line per algorithm, best first.

    An algorithm that lacks a column has no average.
    """
    averages = averages_of(theirs)
    places = ranks({name: value.mean for name, value in averages.items()})
    order = sorted(theirs.values, key=lambda name: (places.get(name, math.inf), name))
    lines = []
    for name in order:
        line: dict[str, Any] = {"algorithm": name}
        for column in theirs.columns:
            value = theirs.values[name].get(column)
            line |= published_cell(column, value, unit=PERCENT, reason="not in the table")
        average = averages.get(name)
        line |= published_cell("average", average, unit=PERCENT, reason="an environment is missing")
        lines.append(line | entry("rank", places.get(name), reason="no average, so no place"))
    columns = [
        ALGORITHM,
        Column("average", "average accuracy", "percent", "unweighted mean of the columns"),
        Column(
            "rank", unit="count", help="1 is the highest average; equal ones share the better place"
        ),
        *(Column(name, f"{name} accuracy", "percent") for name in theirs.columns),
    ]
    notes = [f"{theirs.note}. The error of an average takes those of its columns as independent."]
    return table(
        lines, "leaderboard", "Leaderboard: accuracy ± error bar, as stated", columns, notes
    )


def standing_answer(theirs: Published) -> list[str]:
    """Write who has the highest average, if that is decided, and what such error bars find."""
    judged = theirs if theirs.seeds else replace(theirs, seeds=_MANY, bar="standard_error")
    contest = next((one for one in contests(judged) if one.column == "average"), None)
    if contest is None:
        return [too_few(list(theirs.values), 0, "a mean and an error bar in every column")]
    verdict = _verdict_of(contest, theirs)
    n, averages = judged.seeds, averages_of(judged)
    bars = [averages[name].error or 0 for name in contest.names]
    deviations = [deviation_behind(bar, n, judged.bar) for bar in bars]
    pairs = [math.hypot(*pair) / math.sqrt(n) for pair in combinations(deviations, 2)]
    points = noncentrality(n, len(bars)) * float(np.median(pairs))
    numbers = verdict.numbers("average accuracy", contest.means[0] / 100, above=True)
    answer = [
        verdict.headline("average accuracy"),
        (
            f"{numbers}. {verdict.apart()} Such error bars find differences of "
            f"{decimal(points, 1)} points with 80% power (median over pairs)."
        ),
    ]
    if not theirs.seeds:
        text = "How many seeds there were is not known, and few tell less: say import.seeds=N."
        answer.append(text)
    return answer


def _verdict_of(contest: Contest, theirs: Published) -> Verdict:
    """Find who leads a table of means with error bars, and whom these separate from the leader."""
    first, *others = contest.names
    lacking = sorted(theirs.values.keys() - set(contest.names))
    rivals = set(contest.rivals)
    comparisons = {}
    for place, name in enumerate(others, start=1):
        lead = contest.lead_over(place)
        difference = Interval(lead.estimate / 100, lead.low / 100, lead.high / 100, lead.level)
        comparisons[name] = Rival(place, contest.paper.seeds, difference, name not in rivals)
    seeds = theirs.seeds or _MANY
    return Verdict(
        leaders=Leaders((first,), tuple(others)),
        rivals=(*others, *lacking),
        open_to=frozenset([*rivals, *lacking]),
        beaten_by=contest.beaten_by,
        seeds=seeds,
        basis=f"{theirs.seeds} seeds" if theirs.seeds else "error bars, taken as exact,",
        remarks=dict.fromkeys(lacking, "a column or an error bar is missing"),
        comparisons=comparisons,
    )
