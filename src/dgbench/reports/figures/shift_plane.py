"""Datasets in the plane of diversity and correlation shift (Ye et al. 2022, Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.records.shift_rows import HALVES
from dgbench.reports.document import Figure
from dgbench.reports.published import Published
from dgbench.reports.render.drawing import COLORS, GRAY, PointLabel, canvas, finish, grid, label_points
from dgbench.reports.render.pictures import INK
from dgbench.reports.shift.shift_columns import interval_words, pairs_of
from dgbench.reports.shift.shift_estimates import ShiftSetting
from dgbench.reports.shift.shift_published import nearest, other_features, points
from dgbench.reports.shift.verdicts import Estimate, estimate_of, value_line

_MARKERS = "osD^v"
_MOST, _LEAST = 1.25, -0.1  #: what intervals may stretch the axes to


@dataclass(frozen=True)
class _Point:
    """A dataset in the plane."""

    name: str
    div: Estimate
    cor: Estimate
    null: tuple[float, float] | None
    pairs: Sequence[tuple[float, float]] = field(default=())

    @property
    def place(self) -> tuple[float, float]:
        return self.div.value, self.cor.value

    @property
    def along(self) -> list[tuple[float, float]]:
        """Places along both intervals, which no name may cover."""
        steps = [step / 10 for step in range(11)]
        across = [(low + step * (high - low), self.cor.value) for low, high in self.div.ends for step in steps]
        return across + [(self.div.value, low + step * (high - low)) for low, high in self.cor.ends for step in steps]


def shift_plane(setting: ShiftSetting, theirs: Published | None = None) -> Figure | None:
    """One point per dataset with both intervals, its pairs, its null, and published points; None without a dataset.

    Args:
        setting: of :func:`~dgbench.reports.shift.shift_estimates.shift_settings`.
        theirs: a published table of shifts.
    """
    found = [point for line in setting.lines if (point := _point(setting, line.title))] if setting.axes else []
    if not found:
        return None
    name, printed = f"shift_plane_{setting.name}", points(theirs) if theirs else {}
    with canvas(name, 6.4, 5.0) as drawn:
        axes = drawn.add_subplot()
        labels, places = [], list(printed.values())
        axes.plot(*_columns(places), linestyle="", marker="o", color=GRAY, markersize=4, mew=0, zorder=1)
        for at, point in enumerate(found):
            color, marker = COLORS[at % len(COLORS)], _MARKERS[at // len(COLORS) % len(_MARKERS)]
            _draw(axes, point, color, marker)
            labels.append(PointLabel(point.name, point.place, {"color": color, "fontsize": 10, "fontweight": "bold"}))
            places += [point.place, *point.pairs, *([point.null] if point.null else [])]
        labels += [PointLabel(row, place, {"color": GRAY, "fontsize": 8}) for row, place in printed.items()]
        _limits(axes, found, places)
        axes.set_xlabel("diversity shift")
        axes.set_ylabel("correlation shift")
        grid(axes, "both")
        _legend(drawn, found, bool(printed))
        label_points(axes, labels, [*places, *(spot for point in found for spot in point.along)])
        caption = _caption(setting, found, theirs)
        return finish(drawn, name, f"Diversity and correlation shift, {setting.title}", caption)


def _point(setting: ShiftSetting, dataset: str) -> _Point | None:
    names = setting.axes or ("", "")
    own = [estimate_of(setting, dataset, name) for name in names]
    null = [estimate_of(setting, dataset, name, HALVES) for name in names]
    pairs = []
    for pair in pairs_of(setting, dataset):
        lines = [value_line(setting, dataset, name, pair=pair) for name in names]
        if all(lines):
            pairs.append(tuple(float(line["value"]) for line in lines if line))
    if own[0] is None or own[1] is None:
        return None
    base = (null[0].value, null[1].value) if null[0] and null[1] else None
    return _Point(dataset, own[0], own[1], base, [(div, cor) for div, cor in pairs] if len(pairs) > 1 else [])


def _draw(axes: Any, point: _Point, color: str, marker: str) -> None:
    x, y = point.place
    axes.plot(*_columns(point.pairs), linestyle="", marker=".", color=color, alpha=0.55, markersize=5, mew=0, zorder=2)
    if point.null:
        axes.plot(*_columns([point.null]), linestyle="", marker=marker, markerfacecolor="none", color=color,
                  markersize=6, zorder=3)  # fmt: skip
    for ends in point.div.ends:
        axes.plot(ends, [y, y], color=color, linewidth=1.3, zorder=3)
    for ends in point.cor.ends:
        axes.plot([x, x], ends, color=color, linewidth=1.3, zorder=3)
    axes.plot([x], [y], linestyle="", marker=marker, color=color, markersize=8, zorder=4)


def _columns(places: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in places], [y for _, y in places]


def _limits(axes: Any, found: Sequence[_Point], places: Sequence[tuple[float, float]]) -> None:
    """Room for every point, for intervals as far as shifts can be, and for names."""
    for own, setter in ((0, axes.set_xlim), (1, axes.set_ylim)):
        ends = [end for point in found for both in (point.div, point.cor)[own].ends for end in both]
        inside = [min(max(end, _LEAST), _MOST) for end in ends] + [place[own] for place in places]
        low, high = min(0.0, *inside), max(0.25, *inside)
        setter(low - 0.05 * (high - low), high + 0.1 * (high - low))


def _legend(drawn: Any, found: Sequence[_Point], published: bool) -> None:
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"linestyle": "", "color": INK}
    entries = [Line2D([], [], marker="o", markersize=8, label="dataset", **look)]
    if any(point.pairs for point in found):
        entries.append(Line2D([], [], marker=".", markersize=5, alpha=0.55, label="its pairs", **look))
    if any(point.null for point in found):
        entries.append(
            Line2D([], [], marker="o", markersize=6, markerfacecolor="none", label="no shift (null)", **look)
        )
    if published:
        entries.append(Line2D([], [], marker="o", linestyle="", markersize=4, mew=0, color=GRAY, label="published"))
    drawn.legend(handles=entries, loc="outside lower center", ncols=len(entries), frameon=False, fontsize=9)


def _caption(setting: ShiftSetting, found: Sequence[_Point], theirs: Published | None) -> str:
    kinds = interval_words(setting, list(setting.axes or ()))
    text = f"Mean over pairs; lines: intervals ({kinds}). Hollow: two halves of one distribution, where both are 0."
    if theirs:
        near = [(point.name, *nearest(*point.place, theirs)) for point in found]
        named = ", ".join(f"{name}: {row} ({apart:.2f})" for name, row, apart in near)
        other = "of other features, " if other_features(setting) else ""
        text += f" Gray: {other}{theirs.source}. Nearest of them, and how far: {named}."
    return text
