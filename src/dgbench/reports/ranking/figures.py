"""The pictures of a leaderboard: estimates with intervals, and ranks with a critical difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dgbench.errors import MeasureError
from dgbench.reports.chance import BLIND_GUESS
from dgbench.reports.document import Figure
from dgbench.reports.dots import (
    LINE,
    WIDTH,
    Axis,
    Picture,
    broken,
    dot_figure,
    dots_of,
    draw_chance,
    draw_dots,
    meaning,
    on_cut,
    places_of,
)
from dgbench.reports.labels import slug
from dgbench.reports.measuring.rank_diagrams import rank_diagram
from dgbench.reports.over_seeds import Ranking, by_seed, comparable, means
from dgbench.reports.ranking.leaderboards import Leaderboard
from dgbench.reports.render.drawing import MOST_DRAWN, canvas, finish
from dgbench.reports.standing import judge


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
    verdict = judge(leaderboard.averages, highest=True)
    shown = dict(list(level.items())[:MOST_DRAWN])
    dots = dots_of(leaderboard.averages, shown, verdict, _parts(leaderboard))
    several = len(leaderboard.datasets) > 1
    scope = "mean over the held-out environments and"
    parts = "each environment (%)"
    if several:
        scope = f"mean over {len(leaderboard.datasets)} datasets and"
        parts = "each dataset (%)"
    of_guess = leaderboard.chance.get(BLIND_GUESS)
    chance = None if of_guess is None else 100 * of_guess
    small = f"Small dots: its {'datasets' if several else 'held-out environments'}."
    text = f"Dot: {scope} seeds. {small} {meaning([leaderboard.averages], [dots])}"
    picture = Picture(
        name=f"accuracy_{slug(leaderboard.title)}",
        title="Average accuracy of every algorithm",
        caption=text + _on_undrawn(list(level)[MOST_DRAWN:]),
        axis=Axis("average accuracy (%), higher is better", chance),
        parts=Axis(parts),
    )
    return dot_figure(picture, dots)


def _parts(leaderboard: Leaderboard) -> dict[str, list[float]]:
    """Map algorithm -> its mean accuracy on each dataset, or of one dataset in each environment."""
    if len(leaderboard.datasets) > 1:
        levels = [means(dataset.averages) for dataset in leaderboard.datasets]
    else:
        (dataset,) = leaderboard.datasets
        known = dataset.accuracies.dropna(subset="accuracy")
        levels = [
            means(by_seed(lines, "accuracy")) for _, lines in known.groupby("env", sort=False)
        ]
    names = list(leaderboard.level)
    parts = {}
    for name in names:
        parts[name] = [level[name] for level in levels if name in level]
    return parts


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
    with canvas(name, WIDTH, 0.3 + down * (0.7 + LINE * places_of(order)[1])) as drawn:
        panels = drawn.subplots(down, across, sharey=True, squeeze=False).flatten()
        shown = []
        cut = []
        for axes, dataset in zip(panels, leaderboard.datasets, strict=False):
            of_dataset = means(dataset.averages)
            known = {name: of_dataset[name] for name in order if name in of_dataset}
            verdict = judge(dataset.averages, highest=True)
            dots = dots_of(dataset.averages, known, verdict)
            cut.append(draw_dots(axes, dots, Axis("").limits, order))
            axes.set_title(broken(dataset.title, 36 // across), fontsize=10)
            shown.append(dots)
        levels = [dataset.chance.get(BLIND_GUESS) for dataset in leaderboard.datasets]
        in_percent = [None if level is None else 100 * level for level in levels]
        on_chance = draw_chance(panels, in_percent, share=1.0, label="")
        for axes in panels[len(leaderboard.datasets) :]:
            axes.set_visible(False)
        drawn.supxlabel("test accuracy (%), higher is better", fontsize=11)
        text = "Dot: mean over the held-out environments and seeds; each panel has its own scale."
        values = [dataset.averages for dataset in leaderboard.datasets]
        caption = f"{text} {meaning(values, shown)}{_on_undrawn(undrawn)}{on_cut(any(cut))}"
        return finish(drawn, name, "Accuracy on each dataset", caption + on_chance)


def _on_undrawn(undrawn: Sequence[str]) -> str:
    """Count the algorithms that a figure has no room for."""
    if not undrawn:
        return ""
    return (
        f" Not drawn: {len(undrawn):,} others, of lower averages, which stand in the table and its "
        "CSV file."
    )


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
        blocks = []
        for level in levels:
            blocks.append([-level[name] for name in names])
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
    diagram = rank_diagram(ranking, f"ranks_{slug(leaderboard.title)}", "Ranks by accuracy", text)
    return replace(diagram, certainty=True)
