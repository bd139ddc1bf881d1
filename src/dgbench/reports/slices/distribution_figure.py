"""The figure of ``report=distribution``: every model in both distributions, on probit axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgbench.analysis.effective_robustness import Axes, on_axes
from dgbench.reports.document import Figure
from dgbench.reports.render.drawing import (
    COLORS,
    DASHED,
    GRAY,
    INK,
    canvas,
    end_labels,
    finish,
    grid,
)
from dgbench.reports.slices.distribution_points import Points

_MOST_NAMED = 6  # outliers that a figure names
_NUMBER_SIZE = (8, 10)  # points of print that a number takes
_DISTANCES = (11, 18, 25, 32, 40)  # of a number from its point
_ANGLES = np.deg2rad([45, 135, 90, 315, 225, 270, 0, 180])
_STEPS = [
    distance * np.array([np.cos(angle), np.sin(angle)])
    for distance in _DISTANCES
    for angle in _ANGLES
]
_LEADER = {"arrowstyle": "-", "color": COLORS[1], "linewidth": 0.6, "shrinkA": 4, "shrinkB": 2}

_TICKS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.9)


def scatter(parts: Sequence[Points], axes: Axes, name: str, title: str) -> Figure:
    """Draw a panel for each environment, or one for the average."""
    columns = min(2, len(parts))
    rows = -(-len(parts) // columns)
    width = 6.0 if columns == 1 else 8.0
    height = 4.2 * rows if columns == 1 else 3.4 * rows
    with canvas(name, width, height) as drawn:
        panels = drawn.subplots(rows, columns, squeeze=False).ravel()
        for panel, points in zip(panels, parts, strict=False):
            _draw(panel, points, axes)
            if len(parts) > 1:
                panel.set_title(points.environment)
        for panel in panels[len(parts) :]:
            panel.set_visible(False)
        caption = (
            f"Every point is an algorithm, mean over seeds; {axes} axes. The line is fitted by "
            "least squares; dashed: no drop."
        )
        return finish(drawn, name, title, caption + _names_of_outliers(parts))


def _names_of_outliers(parts: Sequence[Points]) -> str:
    """Write the names of the outliers in color, numbered as the points."""
    texts = []
    for points in parts:
        leaving = points.leaving()[:_MOST_NAMED]
        names = [f"{number} {points.names[place]}" for number, place in enumerate(leaving, start=1)]
        if names:
            place_name = f"{points.environment}: " if len(parts) > 1 else ""
            texts.append(place_name + ", ".join(names))
    return f" Outliers in color, the farthest first: {'; '.join(texts)}." if texts else ""


def _number(panel: Any, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
    """Write the numbers 1, 2, ... beside points, none upon another; a line leads to a far one."""
    points = panel.transData.transform(np.column_stack([x, y])) * 72 / panel.figure.dpi
    for number, offset in enumerate(_apart(points), start=1):
        is_far = np.hypot(*offset) > _DISTANCES[0] + 1
        panel.annotate(
            str(number),
            (float(x[number - 1]), float(y[number - 1])),
            xytext=offset,
            textcoords="offset points",
            ha="center",
            va="center",
            color=COLORS[1],
            fontsize=10,
            fontweight="bold",
            arrowprops=_LEADER if is_far else None,
        )


def _apart(points: np.ndarray[Any, Any]) -> list[tuple[float, float]]:
    """Find for each point a place of its number that covers neither a point nor another number.

    Args:
        points: (n, 2) in points of print.

    Returns:
        n offsets from the points: the nearest free one, the first of all where none is free.
    """
    taken = list(points)
    offsets = []
    for point in points:
        free = [step for step in _STEPS if _is_free(point + step, taken)]
        offset = (free or _STEPS)[0]
        taken.append(point + offset)
        offsets.append((float(offset[0]), float(offset[1])))
    return offsets


def _is_free(place: np.ndarray[Any, Any], taken: Sequence[np.ndarray[Any, Any]]) -> bool:
    return not (np.abs(np.array(taken) - place) < _NUMBER_SIZE).all(axis=1).any()


def _draw(panel: Any, points: Points, axes: Axes) -> None:
    x = on_axes(points.inside, axes)
    y = on_axes(points.outside, axes)
    few = len(points.names) <= 12
    size = 26 if few else 9
    panel.scatter(x, y, s=size, color=GRAY if not few else COLORS[0], alpha=0.7, linewidths=0)
    margin = 0.05 * (np.ptp(x) or 0.1)
    ends = np.array([x.min() - margin, x.max() + margin])
    low = y.min() - 0.06 * (np.ptp(y) or 0.1)
    high = y.max() + 0.06 * (np.ptp(y) or 0.1)
    if points.line is not None:
        panel.plot(ends, points.line.intercept + points.line.slope * ends, color=INK, linewidth=1.4)
    panel.plot(ends, ends, **DASHED)
    panel.set_xlim(*ends)
    panel.set_ylim(low, high)
    leaving = points.leaving()[:_MOST_NAMED]
    if leaving:
        panel.scatter(x[leaving], y[leaving], s=size + 10, color=COLORS[1], linewidths=0)
    if few:
        labels = {
            points.names[place]: (float(x[place]), float(y[place])) for place in range(len(x))
        }
        end_labels(panel, labels, {points.names[place]: COLORS[1] for place in leaving})
    else:
        _number(panel, x[leaving], y[leaving])
    _ticks(panel.xaxis, axes, *ends)
    _ticks(panel.yaxis, axes, low, high)
    panel.set_xlabel("accuracy in distribution (%)")
    panel.set_ylabel("out of distribution (%)")
    grid(panel, "both")


def _ticks(axis: Any, axes: Axes, low: float, high: float) -> None:
    """Set ticks at whole percentages, at most eight."""
    if axes == "linear":
        axis.set_major_formatter(lambda value, _: f"{100 * value:g}")
        return
    places = on_axes(np.array(_TICKS) / 100, axes)
    shown = [
        (place, level)
        for place, level in zip(places.tolist(), _TICKS, strict=True)
        if low <= place <= high
    ]
    if len(shown) < 3:
        finer = np.arange(1, 100)
        places = on_axes(finer / 100, axes)
        pairs = zip(places.tolist(), finer.tolist(), strict=True)
        shown = [(place, level) for place, level in pairs if low <= place <= high]
    step = -(-len(shown) // 8) or 1
    shown = shown[::step]
    axis.set_ticks([place for place, _ in shown], [f"{level:g}" for _, level in shown])
