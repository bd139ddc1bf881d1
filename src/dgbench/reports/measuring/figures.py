"""The pictures of the measures: of one setting, and of all settings of a benchmark.

Error in every environment; measures against the ideal error (Hwang et al. 2024, Figure 5), the
baseline against the truly best algorithm (Figures 1 and 8 to 11), degradation and distance over the
number of given environments (Figures 6 and 7); ranks with their critical difference (Demsar 2006,
Figure 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.accuracy import mean
from dgbench.reports.chance import BLIND_GUESS, Chance
from dgbench.reports.document import Figure
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.labels import sortable
from dgbench.reports.measuring.benchmark_tables import RANKED_BY, rankings
from dgbench.reports.measuring.benchmarks import Benchmark, BenchmarkLine
from dgbench.reports.measuring.tables import COMPARED
from dgbench.reports.over_seeds import (
    Ranking,
    algorithms_of,
    by_seed,
    line_values,
    seeds_of,
    standard_deviation,
)
from dgbench.reports.render.drawing import (
    COLORS,
    DASHED,
    INK,
    MEASURE_STYLE,
    REST,
    canvas,
    colored,
    end_labels,
    finish,
    grid,
    label_of,
    within_reach,
)
from dgbench.reports.tables import percent

_COLUMNS = 3
_RANKS = 3.26  # inches of the line of ranks
_NUMBERED = 16  # of more ranks every fifth has its number
# points; errors of the most frequent class this close to the blind guess's get no curve of their
# own
_APART = 1.0
Colors = Mapping[str, str]  #: highlighted algorithm -> color


def highlighted(studies: pd.DataFrame, baseline: str) -> dict[str, str]:
    """Choose the color of each highlighted algorithm: all of them where they are few.

    Of many: the baseline, then those with the lowest ideal error, worst+gap and average error of
    some setting, then the next ones by worst+gap; the rest is drawn gray.

    Args:
        studies: of one setting or of a benchmark, whose figures then share their colors.
        baseline: an algorithm that is always in color.
    """
    levels = (
        studies.astype(dict.fromkeys(RANKED_BY, "float64"))
        .groupby(["setting", "algorithm"])[list(RANKED_BY)]
        .mean()
    )
    leaders = [
        key[1]
        for measure in RANKED_BY
        for key in levels[measure].dropna().groupby("setting").idxmin()
    ]
    next_ones = levels["worst_gap"].groupby("algorithm").mean().sort_values(kind="stable").index
    return colored(algorithms_of(studies), [baseline, *leaders, *next_ones])


def error_curves(evaluation: Evaluation, colors: Colors) -> Figure | None:
    """Draw the errors in every environment of the model trained on all given ones; None without its
    fold.

    Mean and band over seeds, in the colors of :func:`highlighted`.
    """
    (setting,) = evaluation.settings
    if not _has_curves(evaluation):
        return None
    name = f"curves_{setting.name}"
    with canvas(name, 6.0, 3.7) as drawn:
        axes = drawn.add_subplot()
        ends = _draw(axes, evaluation, colors)
        axes.set_ylim(0, min(100.0, axes.get_ylim()[1]))
        axes.set_ylabel("error (%)")
        end_labels(axes, ends, colors)
        return finish(
            drawn,
            name,
            f"Error in every environment, {setting.title}",
            _caption([evaluation], colors),
        )


def benchmark_curves(benchmark: Benchmark, colors: Colors) -> list[Figure]:
    """Draw a figure per size with a panel of :func:`error_curves` per setting, where 2 settings or
    more have curves.
    """

    def draw(lines: Sequence[BenchmarkLine], name: str, suffix: str) -> Figure | None:
        lines = [line for line in lines if _has_curves(line.evaluation)]
        if len(lines) < 2:
            return None
        columns = 2 if len(lines) == 4 else min(_COLUMNS, len(lines))
        rows = math.ceil(len(lines) / columns)
        with canvas(name, 1.9 * columns + 0.6, (3.3 if rows == 1 else 2.4) * rows + 0.4) as drawn:
            panels = drawn.subplots(rows, columns, sharey=True, squeeze=False).ravel()
            ends = [
                _draw(axes, line.evaluation, colors, ticks=3)
                for axes, line in zip(panels, lines, strict=False)
            ]
            panels[0].set_ylim(0, min(100.0, panels[0].get_ylim()[1]))
            for index, (axes, line) in enumerate(zip(panels, lines, strict=False)):
                axes.set_title(line.label(without=benchmark.size_axis))
                if index % columns == 0:
                    axes.set_ylabel("error (%)")
                if index % columns == columns - 1 or index == len(lines) - 1:
                    end_labels(axes, ends[index], colors)
            for axes in panels[len(lines) :]:
                axes.set_visible(False)
            caption = _caption([line.evaluation for line in lines], colors)
            return finish(drawn, name, f"Error in every environment{suffix}", caption)

    return _figure_per_size(benchmark, "curves", draw)


def _figure_per_size(
    benchmark: Benchmark,
    kind: str,
    draw: Callable[[Sequence[BenchmarkLine], str, str], Figure | None],
) -> list[Figure]:
    """Draw a figure per size of a benchmark, where possible, by ``draw(lines, name of the figure,
    ', scale=1')``.
    """
    figures = []
    for size, lines in benchmark.at_size().items():
        name = f"{kind}_{benchmark.name}" + (f"_{size.replace('=', '')}" if size else "")
        figures.append(draw(lines, name, f", {size}" if size else ""))
    return [figure for figure in figures if figure]


def _has_curves(evaluation: Evaluation) -> bool:
    return bool((evaluation.errors["role"] == "everywhere").any())


def _draw(
    axes: Any, evaluation: Evaluation, colors: Colors, ticks: int = 6
) -> dict[str, tuple[float, float]]:
    """Draw every algorithm's curve; and return the right ends of those in color, in the units of
    the axes.
    """
    (setting,) = evaluation.settings
    is_everywhere = evaluation.errors["role"] == "everywhere"
    errors = evaluation.errors.loc[is_everywhere, ["algorithm", "env", "error"]]
    place, numeric = _places(errors["env"].map(str), setting.given)
    ends = {}
    for algorithm, curve in _curves(errors, place).groupby("algorithm", sort=True):
        color = colors.get(str(algorithm))
        if color is None:
            axes.plot(curve["at"], curve["error"], **REST)
            continue
        axes.plot(
            curve["at"], curve["error"], color=color, linewidth=2, marker="" if numeric else "o"
        )
        if (curve["spread"] > 0).any():
            low, high = curve["error"] - curve["spread"], curve["error"] + curve["spread"]
            axes.fill_between(curve["at"], low, high, color=color, alpha=0.12, linewidth=0)
        ends[str(algorithm)] = (float(curve["at"].iloc[-1]), float(curve["error"].iloc[-1]))
    marks = [place[env] for env in setting.given if env in place]
    axes.plot(
        marks,
        [0.0] * len(marks),
        linestyle="",
        marker="^",
        markersize=7,
        color=INK,
        clip_on=False,
        zorder=5,
    )
    if numeric:
        axes.set_xlabel("environment e")
        axes.locator_params(axis="x", nbins=ticks)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.set_xticks(list(place.values()), list(map(label_of, place)), rotation=45, ha="right")
    grid(axes)
    return ends | _draw_references(axes, setting.chance, place)


def _draw_references(
    axes: Any, chance: Chance | None, place: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Draw the references as dashed lines, those that are near the results; and return their right
    ends.

    Args:
        axes: with the results.
        chance: of the setting; None where it is not known.
        place: environment -> place on the axis, in its order.
    """
    ends: dict[str, tuple[float, float]] = {}
    if chance is None:
        return ends
    _, high = axes.get_ylim()
    for reference in chance.references:
        known = [env for env in place if env in reference.everywhere]
        levels = [100 * reference.everywhere[env] for env in known]
        apart = not ends or any(abs(level - 100 * chance.error) >= _APART for level in levels)
        if not levels or not apart or not within_reach(max(levels), 0.0, high):
            continue
        axes.plot([place[env] for env in known], levels, **DASHED)
        ends[reference.name] = (place[known[-1]], levels[-1])
    return ends


def _on_references(evaluations: Sequence[Evaluation]) -> str:
    """Say what the dashed line is; empty where no setting knows its number of classes."""
    levels = dict.fromkeys(e.settings[0].chance.error for e in evaluations if e.settings[0].chance)
    shown = " or ".join(f"{percent(level)}%" for level in levels)
    return (
        f" Dashed, where results are near: what looks at no image (a blind guess: {shown})."
        if levels
        else ""
    )


def _places(environments: Iterable[str], given: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Place environments on the axis, at their values where all are numbers (then True), else the
    given ones first.
    """
    names = set(environments)
    if not any(is_text for is_text, *_ in map(sortable, names)):
        return {env: float(env) for env in sorted(names, key=float)}, True
    return {
        env: float(position) for position, env in enumerate([*given, *sorted(names - set(given))])
    }, False


def _curves(errors: pd.DataFrame, place: Mapping[str, float]) -> pd.DataFrame:
    """Average errors over seeds: columns ``algorithm``, ``at``, ``error`` and ``spread`` (percent),
    in axis order.
    """
    grouped = errors.assign(at=errors["env"].map(dict(place))).groupby(["algorithm", "at"])["error"]
    return pd.DataFrame(
        {"error": 100 * grouped.mean(), "spread": 100 * grouped.std().fillna(0.0)}
    ).reset_index()


def _caption(evaluations: Sequence[Evaluation], colors: Colors) -> str:
    count = max(len(seeds_of(evaluation.studies)) for evaluation in evaluations)
    drawn = {
        a
        for e in evaluations
        for a in e.errors.loc[e.errors["role"] == "everywhere", "algorithm"].map(str)
    }
    gray = sorted(drawn - colors.keys())
    note = f" In gray: {', '.join(gray)}." if gray else ""
    text = "Model trained on all given environments (triangles)"
    note = _on_references(evaluations) + note
    if count == 1:
        return f"{text}, 1 seed. The highest point of a curve is its ideal error.{note}"
    return (
        f"{text}, mean over {count} seeds, band of one standard deviation. The tabulated ideal is "
        "the mean over seeds of each seed's highest point, which lies at or above the highest "
        f"point of the mean curve drawn here.{note}"
    )


Curve = Mapping[int, Sequence[float]]  # position of the setting -> a value per seed


def degradation_figure(benchmark: Benchmark) -> Figure | None:
    """Draw the degradation of selection against the size axis, a panel per value of the other axes,
    band over seeds.
    """

    def curve(lines: Sequence[BenchmarkLine], measure: str) -> Curve:
        costs = [[line.selections[measure, seed].cost for seed in line.seeds] for line in lines]
        return {
            index: [100 * cost for cost in values if cost is not None]
            for index, values in enumerate(costs)
        }

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
        return (
            {index: [value / unit for value in values] for index, values in values_at.items()}
            if unit > 0
            else {}
        )

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
    groups = {
        label: (lines, curves)
        for label, lines in benchmark.by_size().items()
        for curves in [{measure: curve(lines, measure) for measure in COMPARED}]
        if any(any(points.values()) for points in curves.values())
    }
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
                color, marker, style = MEASURE_STYLE[measure]
                axes.plot(
                    places,
                    center,
                    color=color,
                    marker=marker,
                    linestyle=style,
                    linewidth=1.8,
                    label=COMPARED[measure],
                )
                if band.any():
                    low, high = np.maximum(0.0, center - band), center + band
                    axes.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0)
            axes.set_title(label)
            ticks = [
                str(line.count) if show_count else line.values[str(benchmark.size_axis)]
                for line in lines
            ]
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
        best_of = {line.label(): line.selections["ideal", None].names for line in lines}
        shown = [
            line
            for line in lines
            if best_of[line.label()] and line_values(by_seed(line.studies, "ideal"), baseline)
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
        with canvas(name, 5.6, 3.1) as drawn:
            panels = drawn.subplots(1, 3, sharey=True)
            for axes, letter, (measure, title) in zip(
                panels, "abc", RANKED_BY.items(), strict=True
            ):
                for (label, algorithms, marker), color, offset in zip(
                    drawn_as, COLORS, (-0.12, 0.12), strict=False
                ):
                    pairs = zip(shown, algorithms, strict=True)
                    values = [
                        line_values(by_seed(line.studies, measure), algorithm)
                        for line, algorithm in pairs
                    ]
                    x = [index + offset for index, seed_values in enumerate(values) if seed_values]
                    values = [seed_values for seed_values in values if seed_values]
                    axes.errorbar(
                        x, [100 * mean(seed_values) for seed_values in values], fmt=marker, color=color, capsize=3,
                        yerr=[100 * (standard_deviation(seed_values) or 0.0) for seed_values in values], markersize=7,
                        label=label,
                    )  # fmt: skip
                for level in levels:
                    axes.axhline(level, label=BLIND_GUESS, **DASHED)
                axes.set_title(f"({letter}) {title}")
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

    return _figure_per_size(benchmark, "baseline", draw)


def scatter_figures(benchmark: Benchmark) -> list[Figure]:
    """Draw a figure per size: measure over ideal, a point per algorithm, seed and setting, and the
    line of slope 1.
    """

    def draw(lines: Sequence[BenchmarkLine], name: str, suffix: str) -> Figure | None:
        studies = 100 * pd.concat([line.studies[["ideal", *COMPARED]] for line in lines]).astype(
            "float64"
        )
        points = {measure: studies[["ideal", measure]].dropna().to_numpy() for measure in COMPARED}
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
            for measure, title in COMPARED.items():
                color, marker, _ = MEASURE_STYLE[measure]
                x, y = points[measure].T
                axes.plot(
                    x, y, marker=marker, color=color, linestyle="", markersize=5, alpha=0.6, mew=0
                )
                if len(x):
                    rightmost = sorted(points[measure].tolist())[-len(x) // 5 :]
                    ends[title] = (right, mean([value for _, value in rightmost]))
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
                {title: MEASURE_STYLE[measure][0] for measure, title in COMPARED.items()},
            )
            caption = (
                f"{max(map(len, points.values()))} points per measure: one per algorithm, seed "
                "and setting. On the dashed line a measure equals the ideal error; a flat cloud "
                "says that the measure does not see it."
            )
            return finish(drawn, name, f"Measures against the ideal error{suffix}", caption)

    return _figure_per_size(benchmark, "scatter", draw)


def _common_level(lines: Sequence[BenchmarkLine]) -> list[float]:
    """Return the error of a blind guess (percent) where it is the same in all settings; else
    nothing.
    """
    levels = {100 * line.setting.chance.error if line.setting.chance else None for line in lines}
    return [level for level in levels if level is not None] if len(levels) == 1 else []


def rank_figures(benchmark: Benchmark) -> list[Figure]:
    """Draw one rank diagram per measure; none where there are too few algorithms or settings."""
    ranked, _ = rankings(benchmark)
    return [
        rank_diagram(
            ranking,
            f"ranks_{measure}_{benchmark.name}",
            f"Ranks by {RANKED_BY[measure]} over settings",
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
                edge + side * 0.04 * unit, level, f"{label_of(algorithm)} {rank:.1f}", va="center", fontsize=9.5,
                ha="right" if better else "left",
            )  # fmt: skip
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
