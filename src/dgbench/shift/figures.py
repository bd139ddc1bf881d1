"""Pictures of shift: datasets in the plane of diversity and correlation shift, and every two
environments as matrices.

The plane is that of Ye et al. 2022, Figure 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.analysis.shift_verdicts import MeanEstimate
from dgbench.records.shift_rows import HALVES
from dgbench.reports.document import Figure
from dgbench.reports.labels import slug
from dgbench.reports.published import Published
from dgbench.reports.reading.shift_settings import ShiftLine, ShiftSetting
from dgbench.reports.render.drawing import COLORS, GRAY, INK, canvas, finish, grid, heat, label_of
from dgbench.shift.cells import interval_words, other_features
from dgbench.shift.tables import nearest, points

_MOST_NUMBERS = 12  # environments up to which cells of a matrix hold numbers
_LETTERS = 16  # of a name that is shown
_MARKERS = "osD^v"
_MOST = 1.25  #: what intervals may stretch the axes to
_LEAST = -0.1

_Place = tuple[float, float]
_Pixels = NDArray[np.float64]
#: where the name of a point may stand: angles, and points from its place to the nearer end of the
#: name
_ANGLES = np.radians([20, -20, 160, -160, 90, -90, 45, -45, 135, -135, 0, 180])
_DISTANCES = (8, 16, 26, 38, 52, 68, 86)
_JOINED = 11  # names that are further away are joined to their place by a line


def shift_matrices(setting: ShiftSetting) -> list[Figure]:
    """Draw a figure for each dataset whose every two environments were compared, if they are three
    or more.
    """
    lines = [line for line in setting.lines if setting.axes and line.identity["pairs"] == "each"]
    figures = [_matrix(setting, line) for line in lines]
    return [figure for figure in figures if figure is not None]


def _matrix(setting: ShiftSetting, line: ShiftLine) -> Figure | None:
    present = {*line.pairs["p"], *line.pairs["q"]}
    envs = [env for env in line.identity["given"] if env in present]
    if len(envs) < 3:
        return None
    values = np.full((2, len(envs), len(envs)), np.nan)
    for pair, p, q in line.pairs[["p", "q"]].itertuples():
        for axis, name in enumerate(setting.axes or ()):
            estimate = line.value(name, pair=pair)
            if estimate and {p, q} <= set(envs):
                row = envs.index(p)
                column = envs.index(q)
                values[axis, row, column] = estimate.value
                values[axis, column, row] = estimate.value
    name = f"shift_matrix_{setting.name}_{slug(line.title)}"
    side = 0.5 if len(envs) <= _MOST_NUMBERS else 6 / len(envs)
    shown = [label_of(_shortened(env)) for env in envs]
    letters = 0.085 * max(map(len, shown))
    with canvas(
        name, max(5.0, 0.6 + letters + 2.2 * side * len(envs)), 0.6 + letters + side * len(envs)
    ) as drawn:
        panels = drawn.subplots(1, 2, sharey=True)
        written = "{:.2f}".format if len(envs) <= _MOST_NUMBERS else None
        for axes, matrix, title in zip(
            panels, values, ("diversity shift", "correlation shift"), strict=True
        ):
            heat(axes, matrix, written)
            axes.set_xticks(range(len(envs)), shown, rotation=90, fontsize=9)
            axes.set_title(title, fontsize=10)
        panels[0].set_yticks(range(len(envs)), shown, fontsize=9)
        caption = (
            "Mean of the trials of every two environments, the same in both directions. Darker: "
            "further apart."
        )
        return finish(
            drawn, name, f"Every two environments of {line.title}, {setting.title}", caption
        )


def _shortened(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


@dataclass(frozen=True)
class _Point:
    """A dataset in the plane."""

    name: str
    div: MeanEstimate
    cor: MeanEstimate
    null: _Place | None
    pairs: Sequence[_Place]  #: empty if there is one pair only

    @property
    def place(self) -> _Place:
        return self.div.value, self.cor.value

    @property
    def along(self) -> list[_Place]:
        """Places along both intervals, which no name may cover."""
        places = []
        for low, high in self.div.ends:
            places += [(x, self.cor.value) for x in _spread(low, high)]
        for low, high in self.cor.ends:
            places += [(self.div.value, y) for y in _spread(low, high)]
        return places


def _spread(low: float, high: float) -> list[float]:
    """Divide an interval into ten parts of equal width; return their ends."""
    return [low + step / 10 * (high - low) for step in range(11)]


def shift_plane(setting: ShiftSetting, source: Published | None = None) -> Figure | None:
    """Draw a point per dataset with both intervals, pairs, null, and published points.

    Returns None if there is no dataset.
    """
    datasets = []
    for line in setting.lines:
        point = _point(line, setting.axes)
        if point is not None:
            datasets.append(point)
    if not datasets:
        return None
    name = f"shift_plane_{setting.name}"
    printed = points(source) if source else {}
    with canvas(name, 6.4, 5.0) as drawn:
        axes = drawn.add_subplot()
        labels = []
        places = list(printed.values())
        axes.plot(
            *_coordinates(places),
            linestyle="",
            marker="o",
            color=GRAY,
            markersize=4,
            mew=0,
            zorder=1,
        )
        for number, point in enumerate(datasets):
            color = COLORS[number % len(COLORS)]
            _draw(axes, point, color, _MARKERS[number // len(COLORS) % len(_MARKERS)])
            look = {"color": color, "fontsize": 10, "fontweight": "bold"}
            labels.append(PointLabel(point.name, point.place, look))
            places += [point.place, *point.pairs]
            if point.null:
                places.append(point.null)
        labels += [
            PointLabel(row, place, {"color": GRAY, "fontsize": 8}) for row, place in printed.items()
        ]
        _limits(axes, datasets, places)
        axes.set_xlabel("diversity shift")
        axes.set_ylabel("correlation shift")
        grid(axes, "both")
        _legend(drawn, datasets, bool(printed))
        for point in datasets:
            places += point.along
        label_points(axes, labels, places)
        caption = _caption(setting, datasets, source)
        return finish(drawn, name, f"Diversity and correlation shift, {setting.title}", caption)


def _point(line: ShiftLine, names: tuple[str, str] | None) -> _Point | None:
    if names is None:
        return None
    div, cor = (line.value(name) for name in names)
    null_div, null_cor = (line.value(name, HALVES) for name in names)
    pairs = []
    for pair in line.pairs.index:
        x, y = (line.value(name, pair=pair) for name in names)
        if x and y:
            pairs.append((x.value, y.value))
    if div is None or cor is None:
        return None
    null = (null_div.value, null_cor.value) if null_div and null_cor else None
    if len(pairs) < 2:
        pairs = []
    return _Point(line.title, div, cor, null, pairs)


def _draw(axes: Any, point: _Point, color: str, marker: str) -> None:
    x, y = point.place
    axes.plot(
        *_coordinates(point.pairs),
        linestyle="",
        marker=".",
        color=color,
        alpha=0.55,
        markersize=5,
        mew=0,
        zorder=2,
    )
    if point.null:
        axes.plot(
            *_coordinates([point.null]),
            linestyle="",
            marker=marker,
            markerfacecolor="none",
            color=color,
            markersize=6,
            zorder=3,
        )
    for ends in point.div.ends:
        axes.plot(ends, [y, y], color=color, linewidth=1.3, zorder=3)
    for ends in point.cor.ends:
        axes.plot([x, x], ends, color=color, linewidth=1.3, zorder=3)
    axes.plot([x], [y], linestyle="", marker=marker, color=color, markersize=8, zorder=4)


def _coordinates(places: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in places], [y for _, y in places]


def _limits(axes: Any, datasets: Sequence[_Point], places: Sequence[tuple[float, float]]) -> None:
    """Set limits with room for points, for names, and for intervals as far as shifts can be."""
    for axis, setter in ((0, axes.set_xlim), (1, axes.set_ylim)):
        ends: list[float] = []
        for point in datasets:
            for interval in (point.div, point.cor)[axis].ends:
                ends += interval
        inside = [min(max(end, _LEAST), _MOST) for end in ends] + [place[axis] for place in places]
        low, high = min(0.0, *inside), max(0.25, *inside)
        setter(low - 0.05 * (high - low), high + 0.1 * (high - low))


def _legend(drawn: Any, datasets: Sequence[_Point], published: bool) -> None:
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"linestyle": "", "color": INK}
    entries = [Line2D([], [], marker="o", markersize=8, label="dataset", **look)]
    if any(point.pairs for point in datasets):
        entries.append(
            Line2D([], [], marker=".", markersize=5, alpha=0.55, label="its pairs", **look)
        )
    if any(point.null for point in datasets):
        entries.append(
            Line2D(
                [],
                [],
                marker="o",
                markersize=6,
                markerfacecolor="none",
                label="no shift (null)",
                **look,
            )
        )
    if published:
        entries.append(
            Line2D(
                [], [], marker="o", linestyle="", markersize=4, mew=0, color=GRAY, label="published"
            )
        )
    drawn.legend(
        handles=entries, loc="outside lower center", ncols=len(entries), frameon=False, fontsize=9
    )


def _caption(setting: ShiftSetting, datasets: Sequence[_Point], source: Published | None) -> str:
    kinds = interval_words(setting, setting.axes or ())
    text = (
        f"Mean over pairs; lines: intervals ({kinds}). Hollow: two halves of one distribution, "
        "where both are 0."
    )
    if source:
        near = [(point.name, *nearest(*point.place, source)) for point in datasets]
        named = ", ".join(f"{name}: {row} ({apart:.2f})" for name, row, apart in near)
        origin = "of other features, " if other_features(setting) else ""
        text += f" Gray: {origin}{source.source}. Nearest of them, and how far: {named}."
    return text


@dataclass(frozen=True)
class PointLabel:
    """A name and where it belongs."""

    name: str
    place: _Place  #: in the units of the axes
    look: Mapping[str, Any]  #: color, fontsize, fontweight of the text


def label_points(
    axes: Any, labels: Sequence[PointLabel], kept_free: Sequence[_Place] = ()
) -> list[Any]:
    """Write every name, the first ones nearest to their places.

    Args:
        axes: finished, with limits that will not change.
        labels: in the order of their weight.
        kept_free: further places that no name may cover, in the units of the axes.

    Returns:
        the texts.
    """
    figure = axes.figure
    texts = []
    figure.draw_without_rendering()  # lays the axes out
    pixel = figure.dpi / 72
    spots = axes.transData.transform([*(label.place for label in labels), *kept_free])
    occupied = np.hstack([spots - 4 * pixel, spots + 4 * pixel])
    for label, spot in zip(labels, spots, strict=False):
        text = axes.annotate(
            label_of(label.name),
            label.place,
            xytext=(0, 0),
            textcoords="offset points",
            annotation_clip=False,
            va="center",
            ha="left",
            **label.look,
        )
        text.set_in_layout(False)
        size = text.get_window_extent(figure.canvas.get_renderer()).size
        box = _free_box(spot, size, pixel, occupied, axes.get_window_extent().extents)
        occupied = np.vstack([occupied, box])
        text.set_position(([box[0], box[1] + size[1] / 2] - spot) / pixel)
        end = np.clip(spot, box[:2], box[2:]) - spot  # of the name, the point that is nearest
        if np.hypot(*end) > _JOINED * pixel:
            joint = {
                "arrowstyle": "-",
                "color": label.look.get("color"),
                "linewidth": 0.6,
                "alpha": 0.7,
            }
            line = axes.annotate(
                "",
                label.place,
                xytext=end / pixel,
                textcoords="offset points",
                annotation_clip=False,
                arrowprops=joint,
            )
            line.set_in_layout(False)
        texts.append(text)
    return texts


def _free_box(
    spot: _Pixels, size: _Pixels, pixel: float, occupied: _Pixels, limits: _Pixels
) -> _Pixels:
    """Find the box for a name: the free one nearest to its place, else the one that covers least.

    Args:
        spot: its place, in pixels.
        size: width and height of the name.
        pixel: pixels to a point.
        occupied: (n, 4) left, bottom, right and top of what should stay visible.
        limits: (4,) of the axes.
    """
    across, up = (pixel * np.outer(_DISTANCES, part(_ANGLES)).ravel() for part in (np.cos, np.sin))
    side = np.tile(np.cos(_ANGLES), len(_DISTANCES))
    left = np.select([side > 0.2, side < -0.2], [across, across - size[0]], -size[0] / 2)
    corners = spot + np.stack([left, up - size[1] / 2], axis=1)
    boxes = np.hstack([corners, corners + size])
    covered = _shared(boxes, occupied).sum(axis=1) + 3 * (
        size.prod() - _shared(boxes, limits[None]).sum(axis=1)
    )
    free = np.flatnonzero(covered <= 0.5)
    return np.asarray(boxes[free[0] if len(free) else covered.argmin()])


def _shared(boxes: _Pixels, others: _Pixels) -> _Pixels:
    """Compute the (n, m) areas that n boxes share with m others."""
    sides = np.minimum(boxes[:, None, 2:], others[:, 2:]) - np.maximum(
        boxes[:, None, :2], others[:, :2]
    )
    return np.asarray(sides.clip(0).prod(axis=2))
