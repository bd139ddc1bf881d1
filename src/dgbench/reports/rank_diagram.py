"""Critical-difference diagram: mean ranks on a line, bars over those not told apart (Demsar 2006, Figure 1)."""

from __future__ import annotations

from typing import Any

from dgbench.reports.document import Figure
from dgbench.reports.drawing import INK, canvas, finish
from dgbench.reports.survey_statistics import Ranking, rankings
from dgbench.reports.surveys import Survey

_TITLES = {"ideal": "ideal", "worst_gap": "worst+gap", "average": "average"}


def rank_figures(survey: Survey, name: str, how: str) -> list[Figure]:
    """One diagram per measure; none where there are too few algorithms or configurations."""
    found, _ = rankings(survey)
    return [
        rank_diagram(ranking, f"ranks_{measure}_{name}", f"Ranks by {_TITLES[measure]} over configurations ({how})")
        for measure, ranking in found.items()
    ]


def rank_diagram(ranking: Ranking, name: str, title: str) -> Figure:
    """Labels hang left for the better half and right for the other; thick bars join what the test does not part."""
    order = sorted(ranking.ranks, key=lambda a: (ranking.ranks[a], a))
    count = len(order)
    half = (count + 1) // 2
    groups = ranking.groups if ranking.test.p_value_f < ranking.alpha else [tuple(order)]
    first = 0.75 + 0.32 * len(groups)  # where the labels begin, below the bars
    depth = first + 0.42 * half
    with canvas(name, 5.6, 0.9 + 0.5 * depth) as drawn:
        axes = drawn.add_subplot()
        axes.set_axis_off()
        margin = 0.36 * (count - 1)
        axes.set_xlim(1 - margin, count + margin)
        axes.set_ylim(depth + 0.1, -1.9)
        axes.plot([1, count], [0, 0], color=INK, linewidth=1.2)
        for tick in range(1, count + 1):
            axes.plot([tick, tick], [0, -0.16], color=INK, linewidth=1.2)
            axes.text(tick, -0.28, str(tick), ha="center", va="bottom", fontsize=9)
        for at, algorithm in enumerate(order):
            left = at < half
            level = first + 0.42 * (at if left else count - 1 - at)
            edge = 1 - 0.25 if left else count + 0.25
            rank = ranking.ranks[algorithm]
            axes.plot([rank, rank, edge], [0, level, level], color=INK, linewidth=0.8)
            axes.text(
                edge + (-0.15 if left else 0.15), level, f"{algorithm} {rank:.1f}", va="center", fontsize=9.5,
                ha="right" if left else "left",
            )  # fmt: skip
        for at, group in enumerate(groups):
            ends = [ranking.ranks[a] for a in group]
            level = 0.35 + 0.32 * at
            axes.plot([min(ends) - 0.08, max(ends) + 0.08], [level, level], color="#d55e00", linewidth=4)
        _scale(axes, ranking, count)
        blocks = ranking.test.blocks
        caption = (
            f"Mean rank over {blocks} configurations, 1 is the lowest error. Bars join algorithms whose ranks lie "
            f"within the critical difference {ranking.difference:.2f} (Nemenyi, alpha = {ranking.alpha:g})"
            + ("." if ranking.test.p_value_f < ranking.alpha else "; Friedman's test finds no difference at all.")
        )
        return finish(drawn, name, title, caption)


def _scale(axes: Any, ranking: Ranking, count: int) -> None:
    end = min(1 + ranking.difference, count)
    axes.plot([1, 1, 1, end, end, end], [-1.15, -1.35, -1.25, -1.25, -1.35, -1.15], color=INK, linewidth=1.2)
    axes.text(
        (1 + end) / 2, -1.4, f"critical difference {ranking.difference:.2f}", ha="center", va="bottom", fontsize=9
    )
