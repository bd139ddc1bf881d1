"""Names beside the points of a scatter plot, where they cover neither one another nor a point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.reports.figures.drawing import label_of

_DIRECTIONS = [math.radians(angle) for angle in (20, -20, 160, -160, 90, -90, 45, -45, 135, -135, 0, 180)]
_DISTANCES = (8, 16, 26, 38, 52, 68, 86)  # points from the place to the nearer end of its name
_JOINED = 11  #: names that are further away are joined to their place by a line


@dataclass(frozen=True)
class PointLabel:
    """A name and where it belongs."""

    name: str
    place: tuple[float, float]  #: in the units of the axes
    look: Mapping[str, Any]  #: color, fontsize, fontweight of the text


Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels


def label_points(axes: Any, labels: Sequence[PointLabel], kept_free: Sequence[tuple[float, float]] = ()) -> list[Any]:
    """Write every name, the first ones nearest to their places.

    Args:
        axes: finished, with limits that will not change.
        labels: in the order of their weight.
        kept_free: further places that no name may cover, in the units of the axes.

    Returns:
        the texts.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # lays the axes out
    pixel = figure.dpi / 72
    free = 4 * pixel
    spots = [axes.transData.transform(place) for place in (*(label.place for label in labels), *kept_free)]
    taken: list[Box] = [(x - free, y - free, x + free, y + free) for x, y in spots]
    inside = axes.get_window_extent()
    limits = (inside.x0, inside.y0, inside.x1, inside.y1)
    texts = []
    for label in labels:
        text = axes.annotate(label_of(label.name), label.place, xytext=(0, 0), textcoords="offset points",
                             annotation_clip=False, va="center", ha="left", **label.look)  # fmt: skip
        text.set_in_layout(False)
        extent = text.get_window_extent(figure.canvas.get_renderer())
        x, y = axes.transData.transform(label.place)
        offset, box = _free_offset((x, y), (extent.width, extent.height), pixel, taken, limits)
        taken.append(box)
        text.set_position((offset[0] / pixel, offset[1] / pixel))
        end = _nearest_point(offset, (extent.width, extent.height))
        if math.hypot(*end) > _JOINED * pixel:
            joint = {"arrowstyle": "-", "color": label.look.get("color"), "linewidth": 0.6, "alpha": 0.7}
            line = axes.annotate("", label.place, xytext=(end[0] / pixel, end[1] / pixel), textcoords="offset points",
                                 annotation_clip=False, arrowprops=joint)  # fmt: skip
            line.set_in_layout(False)
        texts.append(text)
    return texts


def _free_offset(
    at: tuple[float, float], size: tuple[float, float], pixel: float, taken: Sequence[Box], limits: Box
) -> tuple[tuple[float, float], Box]:
    """Offset in pixels of a name's left middle from its place: the nearest that is free, else the least covered."""
    best: tuple[float, tuple[float, float], Box] | None = None
    width, height = size
    for distance in _DISTANCES:
        for angle in _DIRECTIONS:
            reach_x, reach_y = (distance * pixel * part(angle) for part in (math.cos, math.sin))
            left = reach_x if math.cos(angle) > 0.2 else reach_x - width if math.cos(angle) < -0.2 else -width / 2
            offset = (left, reach_y)
            box = (at[0] + left, at[1] + reach_y - height / 2, at[0] + left + width, at[1] + reach_y + height / 2)
            cost = sum(_overlap(box, other) for other in taken) + 3 * (width * height - _overlap(box, limits))
            if cost <= 0.5:
                return offset, box
            if best is None or cost < best[0]:
                best = (cost, offset, box)
    assert best is not None
    return best[1], best[2]


def _nearest_point(offset: tuple[float, float], size: tuple[float, float]) -> tuple[float, float]:
    """Of a name, the point that is nearest to its place, seen from there."""
    left, middle = offset
    width, height = size
    across = min(max(0.0, left), left + width)
    return across, min(max(0.0, middle - height / 2), middle + height / 2)


def _overlap(one: Box, other: Box) -> float:
    """Area that two boxes share."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    return across * down if across > 0 and down > 0 else 0.0
