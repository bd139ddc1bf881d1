"""Figures over the number of given environments (Hwang et al. 2024, Figures 6 and 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dgbench.reports.document import Figure
from dgbench.reports.figures.drawing import MEASURE_STYLE, canvas, finish, grid
from dgbench.reports.figures.saving import INK
from dgbench.reports.settings.over_seeds import mean, standard_deviation
from dgbench.reports.settings.study_values import seeds_of, selection_degradation, values
from dgbench.reports.suites.suites import Suite, SuiteLine

_SHOWN = {"worst_gap": "worst+gap", "average": "average"}
Curve = Mapping[int, Sequence[float]]  # position of the setting -> a value per seed


def degradation_figure(suite: Suite) -> Figure | None:
    """Degradation of selection against the size axis, one panel per other axis value, band over seeds."""

    def curve(lines: Sequence[SuiteLine], measure: str) -> Curve:
        found = {}
        for at, line in enumerate(lines):
            losses = [selection_degradation(line.studies, measure, [seed]) for seed in seeds_of(line.studies)]
            found[at] = [100 * loss for loss in losses if loss is not None]
        return found

    caption = (
        "Ideal error of the algorithm that a measure selects less the lowest ideal error: 0 when it is truly best. "
        "Mean over seeds, band of one standard deviation."
    )
    title = f"Degradation of selection against {suite.size_axis}"
    return _panels(suite, f"degradation_{suite.name}", title, "degradation (points)", caption, curve)


def asymptotic_figure(suite: Suite) -> Figure | None:
    """|ideal - measure| against N, mean over algorithms, divided by its mean over seeds at the smallest size."""

    def curve(lines: Sequence[SuiteLine], measure: str) -> Curve:
        found = {at: list(distances(line, measure).values()) for at, line in enumerate(lines)}
        first = found.get(0) or []
        unit = mean(first) if first else 0.0
        return {at: [value / unit for value in values] for at, values in found.items()} if unit > 0 else {}

    caption = (
        "Absolute difference between a measure and the ideal error, mean over the algorithms, divided by its mean at "
        "the smallest size. A measure that converges falls towards 0. Mean over seeds, band of one standard deviation."
    )
    title = "Distance to the ideal error against N, normalized"
    return _panels(suite, f"asymptotics_{suite.name}", title, "normalized distance", caption, curve, show_count=True)


def distances(line: SuiteLine, measure: str) -> dict[int, float]:
    """Seed -> |ideal - measure|, mean over the algorithms that have both, a fraction."""
    own, ideal = values(line.studies, measure), values(line.studies, "ideal")
    found = {}
    for seed in seeds_of(line.studies):
        gaps = [abs(ideal[a][seed] - v[seed]) for a, v in own.items() if seed in v and seed in ideal.get(a, {})]
        if gaps:
            found[seed] = mean(gaps)
    return found


def _panels(
    suite: Suite,
    name: str,
    title: str,
    ylabel: str,
    caption: str,
    curve: Callable[[Sequence[SuiteLine], str], Curve],
    show_count: bool = False,
) -> Figure | None:
    groups = {
        label: (lines, {measure: curve(lines, measure) for measure in _SHOWN})
        for label, lines in suite.by_size().items()
    }
    groups = {label: found for label, found in groups.items() if any(any(c.values()) for c in found[1].values())}
    if not groups:
        return None
    columns = min(3, len(groups))
    rows = math.ceil(len(groups) / columns)
    with canvas(name, 1.65 * columns + 0.65 if columns > 1 else 4.6, 2.5 * rows + 0.6) as drawn:
        panels = drawn.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for axes, (label, (lines, curves)) in zip(panels, groups.items(), strict=False):
            for measure, text in _SHOWN.items():
                _draw(axes, curves[measure], measure, text)
            axes.set_title(label)
            ticks = [str(line.count) if show_count else line.values[str(suite.size_axis)] for line in lines]
            axes.set_xticks(range(len(lines)), ticks, fontsize=10)
            axes.set_xlabel("N" if show_count else str(suite.size_axis))
            grid(axes)
            axes.axhline(0, color=INK, linewidth=0.8)
        for axes in panels[len(groups) :]:
            axes.set_visible(False)
        for axes in panels[::columns]:
            axes.set_ylabel(ylabel)
        low, high = panels[0].get_ylim()
        panels[0].set_ylim(min(0.0, -0.03 * high) if low >= 0 else low, high)
        handles, names = panels[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
        return finish(drawn, name, title, caption)


def _draw(axes: Any, curve: Curve, measure: str, text: str) -> None:
    at = [x for x, values in curve.items() if values]
    center = [mean(curve[x]) for x in at]
    band = [standard_deviation(curve[x]) or 0.0 for x in at]
    color, marker, line = MEASURE_STYLE[measure]
    axes.plot(at, center, color=color, marker=marker, linestyle=line, linewidth=1.8, label=text)
    if any(band):
        low = [max(0.0, c - b) for c, b in zip(center, band, strict=True)]
        high = [c + b for c, b in zip(center, band, strict=True)]
        axes.fill_between(at, low, high, color=color, alpha=0.18, linewidth=0)
