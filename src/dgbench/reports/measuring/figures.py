"""The pictures of the measures over the settings of a benchmark.

Measures against the ideal error (Hwang et al. 2024, Figure 5), the baseline against the truly best
algorithm (Figures 1 and 8 to 11), degradation and distance over the number of given environments
(Figures 6 and 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.accuracy import mean
from dgbench.plan.measures import IDEAL, MeasureChoice
from dgbench.reports.chance import BLIND_GUESS
from dgbench.reports.document import Figure
from dgbench.reports.measuring.benchmarks import Benchmark, BenchmarkLine
from dgbench.reports.measuring.curves import figure_per_size
from dgbench.reports.over_seeds import (
    by_seed,
    line_values,
    seeds_of,
    standard_deviation,
)
from dgbench.reports.predictions import costs, selected
from dgbench.reports.render.drawing import (
    COLORS,
    DASHED,
    INK,
    MEASURE_STYLE,
    canvas,
    end_labels,
    finish,
    grid,
    label_of,
)

_COLUMNS = 3  # panels beside each other
Curve = Mapping[int, Sequence[float]]  # position of the setting -> a value per seed


def degradation_figure(benchmark: Benchmark) -> Figure | None:
    """Draw the degradation of selection against the size axis, a panel per value of the other axes,
    band over seeds.
    """

    def curve(lines: Sequence[BenchmarkLine], measure: str) -> Curve:
        points = {}
        for index, line in enumerate(lines):
            by_seeds = costs(line.evaluation.selections, measure)
            points[index] = [100 * cost for cost in by_seeds]
        return points

    caption = (
        "Ideal error of the algorithm that a measure selects less the lowest ideal error: 0 when "
        "it is truly best. Mean over seeds, band of one standard deviation."
    )
    title = f"Degradation of selection against {benchmark.size_axis}"
    return _sized_panels(
        benchmark, f"degradation_{benchmark.name}", title, "degradation (points)", caption, curve
    )


def asymptotic_figure(benchmark: Benchmark) -> Figure | None:
    """Draw |ideal - measure| against N, mean over algorithms, divided by its mean over seeds at the
    smallest size.
    """

    def curve(lines: Sequence[BenchmarkLine], measure: str) -> Curve:
        values_at = {
            index: list(distances(line, measure).values()) for index, line in enumerate(lines)
        }
        unit = mean(values_at[0]) if values_at.get(0) else 0.0
        if not unit > 0:
            return {}
        return {index: np.divide(values, unit).tolist() for index, values in values_at.items()}

    caption = (
        "Absolute difference between a measure and the ideal error, mean over the algorithms, "
        "divided by its mean at the smallest size. A measure that converges falls towards 0. Mean "
        "over seeds, band of one standard deviation."
    )
    title = "Distance to the ideal error against N, normalized"
    return _sized_panels(
        benchmark,
        f"asymptotics_{benchmark.name}",
        title,
        "normalized distance",
        caption,
        curve,
        show_count=True,
    )


def distances(line: BenchmarkLine, measure: str) -> dict[int, float]:
    """Average |ideal - measure| over the algorithms that have both: seed -> mean, a fraction."""
    lines = line.studies.assign(apart=(line.studies["ideal"] - line.studies[measure]).abs()).dropna(
        subset="apart"
    )
    return {
        seed: mean(lines.loc[lines["seed"] == seed, "apart"].tolist()) for seed in seeds_of(lines)
    }


def _sized_panels(
    benchmark: Benchmark,
    name: str,
    title: str,
    ylabel: str,
    caption: str,
    curve: Callable[[Sequence[BenchmarkLine], str], Curve],
    show_count: bool = False,
) -> Figure | None:
    """Draw one panel per value of the other axes, a curve per measure; None where there is nothing
    to draw.
    """
    styles = styles_of(benchmark.measures)
    compared = {measure.name: measure.title for measure in benchmark.measures.compared}
    groups = {}
    for label, lines in benchmark.by_size().items():
        curves = {name: curve(lines, name) for name in compared}
        if any(any(points.values()) for points in curves.values()):
            groups[label] = lines, curves
    if not groups:
        return None
    columns = min(_COLUMNS, len(groups))
    rows = math.ceil(len(groups) / columns)
    with canvas(name, 1.65 * columns + 0.65 if columns > 1 else 4.6, 2.5 * rows + 0.6) as drawn:
        panels = drawn.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for axes, (label, (lines, curves)) in zip(panels, groups.items(), strict=False):
            for measure, points in curves.items():
                places = [x for x, values in points.items() if values]
                center = np.array([mean(points[x]) for x in places])
                band = np.array([standard_deviation(points[x]) or 0.0 for x in places])
                color, marker, style = styles[measure]
                axes.plot(
                    places,
                    center,
                    color=color,
                    marker=marker,
                    linestyle=style,
                    linewidth=1.8,
                    label=compared[measure],
                )
                if band.any():
                    low, high = np.maximum(0.0, center - band), center + band
                    axes.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0)
            axes.set_title(label)
            ticks = [line.values[str(benchmark.size_axis)] for line in lines]
            if show_count:
                ticks = [str(line.count) for line in lines]
            axes.set_xticks(range(len(lines)), ticks, fontsize=10)
            axes.set_xlabel("N" if show_count else str(benchmark.size_axis))
            grid(axes)
            axes.axhline(0, color=INK, linewidth=0.8)
        for axes in panels[len(groups) :]:
            axes.set_visible(False)
        for axes in panels[::columns]:
            axes.set_ylabel(ylabel)
        low, high = panels[0].get_ylim()
        panels[0].set_ylim(min(0.0, -0.03 * high) if low >= 0 else low, high)
        _legend_below(drawn, panels[0])
        return finish(drawn, name, title, caption)


def styles_of(measures: MeasureChoice) -> dict[str, tuple[str, str, Any]]:
    """Choose color, marker and dashes of each compared measure; a measure that has none of its own
    gets what no other one has.
    """
    compared = [measure.name for measure in measures.compared]
    styles = {name: MEASURE_STYLE[name] for name in compared if name in MEASURE_STYLE}
    taken = {color for color, _, _ in MEASURE_STYLE.values()}
    colors = cycle([color for color in COLORS if color not in taken])
    for name, color, marker in zip(compared, colors, cycle("^DvP"), strict=False):
        styles.setdefault(name, (color, marker, (0, (1, 1.5))))
    return styles


def _legend_below(drawn: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def baseline_figures(benchmark: Benchmark, baseline: str) -> list[Figure]:
    """Draw a figure per size: errors of the baseline and of the algorithm with the lowest ideal
    error, per setting.

    Settings without ideal errors for the baseline or without a choice are left out; the caption
    names them.
    """

    def draw(lines: Sequence[BenchmarkLine], name: str, suffix: str) -> Figure | None:
        best_of = {line.label(): selected(line.evaluation.selections, IDEAL) for line in lines}
        shown = [
            line
            for line in lines
            if best_of[line.label()] and line_values(by_seed(line.studies, IDEAL), baseline)
        ]
        if not shown:
            return None
        omitted = [
            line.label(without=benchmark.size_axis) or "all" for line in lines if line not in shown
        ]
        best = [best_of[line.label()][0] for line in shown]
        labels = [line.label(without=benchmark.size_axis) or line.label() for line in shown]
        other_axes = [axis for axis in benchmark.axes if axis != benchmark.size_axis]
        ticks = [line.values[other_axes[0]] for line in shown] if len(other_axes) == 1 else labels
        levels = _common_level(shown)
        drawn_as = (
            (label_of(baseline), [baseline] * len(shown), "s"),
            ("best by ideal", best, "o"),
        )
        ranked = benchmark.measures.ranked
        with canvas(name, 0.5 + 1.7 * len(ranked), 3.1) as drawn:
            panels = drawn.subplots(1, len(ranked), sharey=True)
            for axes, letter, measure in zip(panels, ascii_lowercase, ranked, strict=False):
                for (label, algorithms, marker), color, offset in zip(
                    drawn_as, COLORS, (-0.12, 0.12), strict=False
                ):
                    pairs = zip(shown, algorithms, strict=True)
                    values = [
                        line_values(by_seed(line.studies, measure.name), algorithm)
                        for line, algorithm in pairs
                    ]
                    x = [index + offset for index, seed_values in enumerate(values) if seed_values]
                    values = [seed_values for seed_values in values if seed_values]
                    deviations = [standard_deviation(seed_values) or 0.0 for seed_values in values]
                    axes.errorbar(
                        x,
                        [100 * mean(seed_values) for seed_values in values],
                        yerr=[100 * deviation for deviation in deviations],
                        fmt=marker,
                        color=color,
                        capsize=3,
                        markersize=7,
                        label=label,
                    )
                for level in levels:
                    axes.axhline(level, label=BLIND_GUESS, **DASHED)
                axes.set_title(f"({letter}) {measure.title}")
                axes.set_xticks(
                    range(len(shown)), ticks, rotation=30 if max(map(len, ticks)) > 4 else 0
                )
                if len(other_axes) == 1:
                    axes.set_xlabel(other_axes[0])
                axes.set_xlim(-0.6, len(shown) - 0.4)
                grid(axes)
            panels[0].set_ylabel("error (%)")
            panels[0].set_ylim(bottom=0)
            _legend_below(drawn, panels[0])
            best_names = ", ".join(
                f"{label}: {name}" for label, name in zip(labels, best, strict=True)
            )
            left_out = (
                f" Left out for want of ideal errors: {'; '.join(omitted)}." if omitted else ""
            )
            caption = (
                f"Best by ideal: {best_names}. Mean and standard deviation over seeds; worst+gap "
                "may exceed 100%. A measure that tells the truth shows the distance of panel "
                f"(a).{left_out}"
            )
            return finish(drawn, name, f"{baseline} against the best algorithm{suffix}", caption)

    return figure_per_size(benchmark, "baseline", draw)


def scatter_figures(benchmark: Benchmark) -> list[Figure]:
    """Draw a figure per size: measure over ideal, a point per algorithm, seed and setting, and the
    line of slope 1.
    """

    def draw(lines: Sequence[BenchmarkLine], name: str, suffix: str) -> Figure | None:
        ranked = [measure.name for measure in benchmark.measures.ranked]
        values = pd.concat([line.studies[ranked] for line in lines])
        studies = 100 * values.astype("float64")
        points = {
            measure.name: studies[[IDEAL, measure.name]].dropna().to_numpy()
            for measure in benchmark.measures.compared
        }
        all_points = np.concatenate(list(points.values()))
        if not len(all_points):
            return None
        (left, bottom), (right, top) = (
            np.maximum(0.0, all_points.min(axis=0) - 3),
            all_points.max(axis=0) + 3,
        )
        with canvas(name, 6.0, 4.2) as drawn:
            axes = drawn.add_subplot(xlim=(left, right), ylim=(bottom, top))
            ends = {}
            styles = styles_of(benchmark.measures)
            for measure in benchmark.measures.compared:
                color, marker, _ = styles[measure.name]
                x, y = points[measure.name].T
                axes.plot(
                    x, y, marker=marker, color=color, linestyle="", markersize=5, alpha=0.6, mew=0
                )
                if len(x):
                    rightmost = sorted(points[measure.name].tolist())[-len(x) // 5 :]
                    ends[measure.title] = (right, mean([value for _, value in rightmost]))
            low, high = max(left, bottom), min(right, top)
            if low < high:
                axes.plot([low, high], [low, high], color=INK, linewidth=1, linestyle=(0, (4, 3)))
                ends["measure = ideal"] = (high, high)
            for level in _common_level(lines):
                if left <= level <= right and bottom <= level <= top:
                    axes.plot(
                        [level],
                        [level],
                        marker="D",
                        markersize=7,
                        color=INK,
                        markerfacecolor="none",
                        zorder=5,
                    )
                    axes.annotate(
                        BLIND_GUESS,
                        (level, level),
                        xytext=(8, -3),
                        textcoords="offset points",
                        va="top",
                        fontsize=9.5,
                    )
            axes.set_xlabel("ideal error (%)")
            axes.set_ylabel("measure (%)")
            grid(axes, "both")
            end_labels(
                axes,
                ends,
                {m.title: styles[m.name][0] for m in benchmark.measures.compared},
            )
            caption = (
                f"{max(map(len, points.values()))} points per measure: one per algorithm, seed "
                "and setting. On the dashed line a measure equals the ideal error; a flat cloud "
                "says that the measure does not see it."
            )
            return finish(drawn, name, f"Measures against the ideal error{suffix}", caption)

    return figure_per_size(benchmark, "scatter", draw)


def _common_level(lines: Sequence[BenchmarkLine]) -> list[float]:
    """Return the error of a blind guess (percent) where it is the same in all settings; else
    nothing.
    """
    chances = [line.setting.chance for line in lines]
    levels = {100 * chance.error for chance in chances if chance}
    return list(levels) if len(levels) == 1 and all(chances) else []
