"""The pictures of a leaderboard: estimates with intervals, and ranks with a critical difference."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.accuracy import mean, mean_interval
from dgbench.analysis.comparison import separated
from dgbench.errors import MeasureError
from dgbench.reports.chance import BLIND_GUESS
from dgbench.reports.document import Figure
from dgbench.reports.labels import slug
from dgbench.reports.measuring.rank_diagrams import rank_diagram
from dgbench.reports.over_seeds import Ranking, comparable, line_values, means
from dgbench.reports.ranking.leaderboards import Leaderboard
from dgbench.reports.render.drawing import (
    COLORS,
    DASHED,
    GRAY,
    INK,
    MOST_DRAWN,
    canvas,
    finish,
    grid,
    label_of,
    within_reach,
)
from dgbench.reports.tables import percent

_WIDTH = 5.6  # inches, which a phone shows whole
_LINE = 0.2  # inches for each algorithm with a name of one line
_LETTERS = 24  #: longer names are broken at spaces
_MAY_BE_BEST: dict[str, Any] = {"color": COLORS[0]}
_WORSE: dict[str, Any] = {"color": GRAY}
_NOT_TESTED: dict[str, Any] = {"color": INK, "markerfacecolor": "none"}


def leaderboard_figures(leaderboard: Leaderboard) -> list[Figure]:
    """Draw estimates with intervals, on average and by dataset where there are several, and the
    mean ranks.
    """
    figures = [average_figure(leaderboard), dataset_figure(leaderboard), rank_figure(leaderboard)]
    return [figure for figure in figures if figure]


def average_figure(leaderboard: Leaderboard) -> Figure | None:
    """Draw the average accuracy of each algorithm with its interval over seeds, best on top; None
    without any.
    """
    level = leaderboard.level
    if not level:
        return None
    name = f"accuracy_{slug(leaderboard.title)}"
    order = list(level)
    shown, undrawn = order[:MOST_DRAWN], order[MOST_DRAWN:]
    places, height = _places(shown)
    with canvas(name, _WIDTH, 0.8 + _LINE * height) as drawn:
        axes = drawn.add_subplot()
        averages = leaderboard.averages
        _dots(axes, shown, level, averages)
        on_chance = _draw_chance([axes], [leaderboard.chance], label=BLIND_GUESS)
        right = axes.get_xlim()[1]
        for algorithm, y in places.items():
            axes.annotate(
                percent(level[algorithm]),
                (right, y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9.5,
                annotation_clip=False,
            )
        axes.set_xlabel("average test accuracy (%), higher is better")
        plural = len(leaderboard.datasets) > 1
        scope = (
            f"mean over {len(leaderboard.datasets)} datasets and"
            if plural
            else "mean over the held-out environments and"
        )
        caption = f"Dot: {scope} seeds. {_caption([averages], undrawn)}{on_chance}"
        return finish(drawn, name, "Average accuracy of every algorithm", caption)


def dataset_figure(leaderboard: Leaderboard) -> Figure | None:
    """Draw accuracies on each dataset, algorithms in the order of their average; None for a single
    dataset.
    """
    if len(leaderboard.datasets) < 2:
        return None
    level = leaderboard.level
    order = [*level, *(algorithm for algorithm in leaderboard.algorithms if algorithm not in level)]
    order, undrawn = order[:MOST_DRAWN], order[MOST_DRAWN:]
    across = 2 if len(leaderboard.datasets) in (2, 4) else 3
    down = -(-len(leaderboard.datasets) // across)
    name = f"accuracy_by_dataset_{slug(leaderboard.title)}"
    with canvas(name, _WIDTH, 0.3 + down * (0.7 + _LINE * _places(order)[1])) as drawn:
        panels = drawn.subplots(down, across, sharey=True, squeeze=False).flatten()
        shown = [dataset.averages for dataset in leaderboard.datasets]
        for axes, dataset, averages in zip(panels, leaderboard.datasets, shown, strict=False):
            _dots(axes, order, means(averages), averages)
            axes.set_title(_broken(dataset.title, 36 // across), fontsize=10)
        on_chance = _draw_chance(panels, [dataset.chance for dataset in leaderboard.datasets])
        for axes in panels[len(leaderboard.datasets) :]:
            axes.set_visible(False)
        drawn.supxlabel("test accuracy (%), higher is better", fontsize=11)
        text = "Dot: mean over the held-out environments and seeds; each panel has its own scale."
        caption = f"{text} {_caption(shown, undrawn)}{on_chance}"
        return finish(drawn, name, "Accuracy on each dataset", caption)


def rank_figure(leaderboard: Leaderboard) -> Figure | None:
    """Draw mean ranks with Nemenyi's critical difference; None for fewer than 3 algorithms or 2
    blocks, and for more than :data:`~dgbench.reports.render.drawing.MOST_DRAWN` algorithms.

    Blocks must be independent of one another. Datasets are, so with several of them each is a block
    (accuracies are means over seeds); the seeds of one dataset are too, but environments are not:
    their models share training data.
    """
    if len(leaderboard.algorithms) > MOST_DRAWN:
        return None
    averages = [dataset.averages for dataset in leaderboard.datasets]
    if len(averages) > 1:
        levels = [means(matrix) for matrix in averages]
        names = sorted(set.intersection(*(set(level) for level in levels)))
        blocks = [[-level[name] for name in names] for level in levels]
        kinds = {str(dataset.identity["dataset"]) for dataset in leaderboard.datasets}
        text = (
            f"Mean rank over {len(averages)} datasets (blocks), 1 is the highest accuracy, means "
            "over seeds."
        )
        if len(kinds) < len(averages):
            text += (
                " Forms of one dataset share their images, so the test sees more blocks than "
                "there is evidence."
            )
    else:
        judged = comparable(averages[0])
        names, seeds, blocks = (
            list(map(str, judged.index)),
            judged.columns,
            (-judged.to_numpy().T).tolist(),
        )
        text = (
            f"Mean rank over {len(seeds)} seeds (blocks), 1 is the highest average accuracy. It "
            "speaks of other seeds on this dataset, not of other datasets or environments."
        )
    try:
        ranking = Ranking.of(names, np.array(blocks).reshape(len(blocks), len(names)))
    except MeasureError:
        return None
    text += f" Friedman's test: p = {ranking.test.p_value_f:.2g} (Iman-Davenport)."
    return rank_diagram(ranking, f"ranks_{slug(leaderboard.title)}", "Ranks by accuracy", text)


def _dots(
    axes: Any, order: Sequence[str], level: Mapping[str, float], accuracies: pd.DataFrame
) -> None:
    """Draw one line per algorithm, the first on top: a dot at its level, and the interval of its
    seeds.

    Args:
        axes: empty.
        order: algorithms from top to bottom.
        level: algorithm -> mean accuracy.
        accuracies: accuracy by algorithm and seed, of which the interval is made.
    """
    judged = comparable(accuracies)
    best = separated(-judged.to_numpy()).candidates if judged.size else ()
    may_be_best = {str(judged.index[index]) for index in best}
    places, height = _places(order)
    for algorithm in (name for name in order if name in level):
        y, values = places[algorithm], line_values(accuracies, algorithm)
        style = (
            _MAY_BE_BEST
            if algorithm in may_be_best
            else _WORSE
            if algorithm in judged.index
            else _NOT_TESTED
        )
        if len(values) > 1 and abs(mean(values) - level[algorithm]) < 1e-9:
            ends = mean_interval(values)
            line = [100 * ends.low, 100 * ends.high]
            axes.plot(line, [y, y], color=style["color"], linewidth=1.6, solid_capstyle="butt")
        axes.plot([100 * level[algorithm]], [y], "o", markersize=6, **style)
    low, high = axes.get_xlim()
    axes.set_xlim(max(low, -1), min(high, 101))
    axes.set_yticks(
        [places[algorithm] for algorithm in order],
        [_broken(algorithm, _LETTERS) for algorithm in order],
    )
    axes.set_ylim(height, 0)
    axes.tick_params(axis="y", length=0, labelsize=9.5)
    axes.spines["left"].set_visible(False)
    grid(axes, "x")


def _draw_chance(
    panels: Sequence[Any], levels: Sequence[Mapping[str, float]], label: str = ""
) -> str:
    """Draw the accuracy of a blind guess as a dashed line where results are near; return the
    caption's sentence.

    Args:
        panels: with the results.
        levels: of each panel, reference -> accuracy.
        label: above the line.
    """
    drawn = beside = False
    for axes, of_panel in zip(panels, levels, strict=False):
        if BLIND_GUESS not in of_panel:
            continue
        level = 100 * of_panel[BLIND_GUESS]
        low, high = axes.dataLim.intervalx
        if not within_reach(level, low, high, share=1.0):
            beside = True
            continue
        drawn = True
        axes.axvline(level, **DASHED)
        left, right = axes.get_xlim()
        margin = 0.05 * (right - left)
        axes.set_xlim(min(left, level - margin), max(right, level + margin))
        axes.annotate(
            label,
            (level, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8.5,
        )
    text = " Dashed: a blind guess." if drawn else ""
    if beside:
        far = ", ".join(
            dict.fromkeys(f"{percent(of[BLIND_GUESS])}%" for of in levels if BLIND_GUESS in of)
        )
        text += f" {'Elsewhere a' if drawn else 'A'} blind guess ({far}) lies beyond the picture."
    return text


def _broken(name: str, letters: int) -> str:
    return textwrap.fill(label_of(name), letters, break_long_words=False, break_on_hyphens=False)


def _places(order: Sequence[str]) -> tuple[dict[str, float], float]:
    """Compute each algorithm's distance from the top and the height of all, in lines: long names
    take several.
    """
    places, top = {}, 0.0
    for algorithm in order:
        lines = 1 + 0.75 * _broken(algorithm, _LETTERS).count("\n")
        places[algorithm] = top + lines / 2
        top += lines
    return places, top


def _caption(panels: Sequence[pd.DataFrame], undrawn: Sequence[str]) -> str:
    """Explain what lines and colors mean, and count the algorithms that are not drawn.

    Args:
        panels: accuracy by algorithm and seed, of each panel.
        undrawn: algorithms beyond those that the figure shows.
    """
    text = _on_seeds(panels, undrawn)
    if not undrawn:
        return text
    return (
        f"{text} Not drawn: {len(undrawn):,} others, of lower averages, which stand in the table "
        "and its CSV file."
    )


def _on_seeds(panels: Sequence[pd.DataFrame], undrawn: Sequence[str]) -> str:
    compared = [comparable(panel) for panel in panels]
    if max(judged.shape[1] for judged in compared) < 2:
        return "1 seed: no interval, so any difference may be the luck of the seed."
    pairs = zip(panels, compared, strict=True)
    hollow = {str(name) for panel, judged in pairs for name in panel.index.difference(judged.index)}
    hollow -= set(undrawn)
    text = (
        "Line: 95% t interval over seeds, on the same data. Blue: may be the best (one that "
        "varies much between seeds is hard to rule out); gray: worse than another, by paired "
        "t-tests over seeds, 95% for all of them together. Intervals may overlap where such a "
        "test separates two."
    )
    if not hollow:
        return text
    return (
        f"{text} Hollow: other seeds than most, neither tested nor ruled out "
        f"({', '.join(sorted(hollow))})."
    )
