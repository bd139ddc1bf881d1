"""Mean ranks with their critical difference (Demsar 2006, Figure 1)."""

from __future__ import annotations

from dgbench.reports.document import Figure
from dgbench.reports.measuring.benchmarks import Benchmark
from dgbench.reports.over_seeds import (
    Ranking,
)
from dgbench.reports.render.drawing import (
    INK,
    MOST_DRAWN,
    canvas,
    finish,
    label_of,
)

_RANKS = 3.26  # inches of the line of ranks
_NUMBERED = 16  # of more ranks every fifth has its number


def rank_figures(benchmark: Benchmark) -> list[Figure]:
    """Draw one rank diagram per measure; none where there are too few algorithms or settings, or
    more algorithms than a figure has room for.
    """
    if len(benchmark.algorithms) > MOST_DRAWN:
        return []
    ranked, _ = benchmark.rankings
    return [
        rank_diagram(
            ranking,
            f"ranks_{measure}_{benchmark.name}",
            f"Ranks by {benchmark.measures.named(measure).title} over settings",
            f"Mean rank over {ranking.test.blocks} settings, 1 is the lowest error.",
        )
        for measure, ranking in ranked.items()
    ]


def rank_diagram(ranking: Ranking, name: str, title: str, subject: str) -> Figure:
    """Draw mean ranks, labels left for the better half and right for the rest; thick bars join what
    is not separated.

    Args:
        ranking: of the algorithms.
        name: of the figure.
        title: above it.
        subject: first sentence of the caption: what is ranked, and over which blocks.
    """
    order = ranking.order
    count = len(order)
    half = (count + 1) // 2
    groups = ranking.groups if ranking.test.p_value_f < ranking.alpha else [tuple(order)]
    first = 0.75 + 0.32 * len(groups)  # where the labels begin, below the bars
    depth = first + 0.42 * half
    # inches
    left, right = (
        max(1.17, 0.5 + 0.08 * max(map(len, part))) for part in (order[:half], order[half:])
    )
    unit = (count - 1) / _RANKS  # ranks to the inch
    with canvas(name, left + _RANKS + right, 0.9 + 0.5 * depth) as drawn:
        axes = drawn.add_subplot()
        axes.set_axis_off()
        axes.set_xlim(1 - left * unit, count + right * unit)
        axes.set_ylim(depth + 0.1, -1.9)
        axes.plot([1, count], [0, 0], color=INK, linewidth=1.2)
        for tick in range(1, count + 1):
            axes.plot([tick, tick], [0, -0.16], color=INK, linewidth=1.2)
            if count <= _NUMBERED or tick == 1 or tick % 5 == 0:
                axes.text(tick, -0.28, str(tick), ha="center", va="bottom", fontsize=9)
        for index, algorithm in enumerate(order):
            better = index < half
            level = first + 0.42 * (index if better else count - 1 - index)
            side = -1 if better else 1
            edge = (1 if better else count) + side * 0.06 * unit
            rank = ranking.ranks[algorithm]
            axes.plot([rank, rank, edge], [0, level, level], color=INK, linewidth=0.8)
            axes.text(
                edge + side * 0.04 * unit,
                level,
                f"{label_of(algorithm)} {rank:.1f}",
                va="center",
                fontsize=9.5,
                ha="right" if better else "left",
            )
        for index, group in enumerate(groups):
            ends = [ranking.ranks[a] for a in group]
            level = 0.35 + 0.32 * index
            axes.plot(
                [min(ends) - 0.02 * unit, max(ends) + 0.02 * unit],
                [level, level],
                color="#d55e00",
                linewidth=4,
            )
        end = min(1 + ranking.difference, count)
        axes.plot(
            [1, 1, 1, end, end, end],
            [-1.15, -1.35, -1.25, -1.25, -1.35, -1.15],
            color=INK,
            linewidth=1.2,
        )
        words = f"critical difference {ranking.difference:.2f}"
        axes.text((1 + end) / 2, -1.4, words, ha="center", va="bottom", fontsize=9)
        caption = (
            f"{subject} Bars join algorithms whose ranks lie within the critical difference "
            f"{ranking.difference:.2f} (Nemenyi, alpha = {ranking.alpha:g})"
        ) + (
            "."
            if ranking.test.p_value_f < ranking.alpha
            else "; Friedman's test finds no difference at all."
        )
        return finish(drawn, name, title, caption)
