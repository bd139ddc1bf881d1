"""Figures of a suite: over the number of given environments, and the baseline against the truly best algorithm.

After Hwang et al. 2024, Figures 6 and 7, and 1 and 8 to 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dgbench.analysis.accuracy import mean
from dgbench.reports.document import Figure
from dgbench.reports.measuring.suites import Suite, SuiteLine
from dgbench.reports.over_seeds import by_seed, known, seeds_of, selections, standard_deviation
from dgbench.reports.render.drawing import COLORS, INK, MEASURE_STYLE, canvas, finish, grid, label_of, spread

_SHOWN = {"worst_gap": "worst+gap", "average": "average"}
Curve = Mapping[int, Sequence[float]]  # position of the setting -> a value per seed


def degradation_figure(suite: Suite) -> Figure | None:
    """Degradation of selection against the size axis, one panel per other axis value, band over seeds."""

    def curve(lines: Sequence[SuiteLine], measure: str) -> Curve:
        found = {}
        for at, line in enumerate(lines):
            chosen = selections(line.studies, [measure])
            costs = [chosen[measure, seed].cost for seed in seeds_of(line.studies)]
            found[at] = [100 * cost for cost in costs if cost is not None]
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
    gaps = (line.studies["ideal"] - line.studies[measure]).abs().groupby(line.studies["seed"])
    return {int(seed): mean(own.dropna().tolist()) for seed, own in gaps if own.notna().any()}


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


_PANELS = {"ideal": "(a) ideal", "worst_gap": "(b) worst+gap", "average": "(c) average"}


def baseline_figures(suite: Suite, baseline: str) -> list[Figure]:
    """One figure per size: error of the baseline and of the algorithm with the lowest ideal error, per setting.

    Settings without ideal errors for the baseline or without a choice are left out; the caption names them.
    """
    figures = []
    for size, lines in suite.at_size().items():
        drawn = _figure(
            suite, lines, f"baseline_{suite.name}" + (f"_{size.replace('=', '')}" if size else ""), baseline, size
        )
        figures += [drawn] if drawn else []
    return figures


def _figure(suite: Suite, lines: list[SuiteLine], name: str, baseline: str, size: str) -> Figure | None:
    shown: list[tuple[SuiteLine, str]] = []
    absent = []
    for line in lines:
        selected = selections(line.studies, ["ideal"])["ideal", None].names
        if selected and known(by_seed(line.studies, "ideal"), baseline):
            shown.append((line, selected[0]))
        else:
            absent.append(line.label(without=suite.size_axis) or "all")
    if not shown:
        return None
    labels = [line.label(without=suite.size_axis) or line.label() for line, _ in shown]
    others = [axis for axis in suite.axes if axis != suite.size_axis]
    ticks = [line.values[others[0]] for line, _ in shown] if len(others) == 1 else labels
    with canvas(name, 5.6, 3.1) as drawn:
        panels = drawn.subplots(1, 3, sharey=True)
        offsets = spread(2, 0.24)
        for axes, (measure, title) in zip(panels, _PANELS.items(), strict=True):
            for who, (color, marker) in enumerate(zip(COLORS[:2], "so", strict=True)):
                found = [known(by_seed(line.studies, measure), best if who else baseline) for line, best in shown]
                own = {at + offsets[who]: values for at, values in enumerate(found) if values}
                axes.errorbar(
                    list(own), [100 * mean(each) for each in own.values()], fmt=marker, color=color, capsize=3,
                    yerr=[100 * (standard_deviation(each) or 0.0) for each in own.values()], markersize=7,
                    label=(label_of(baseline), "best by ideal")[who],
                )  # fmt: skip
            axes.set_title(title)
            axes.set_xticks(range(len(shown)), ticks, rotation=30 if max(map(len, ticks)) > 4 else 0)
            if len(others) == 1:
                axes.set_xlabel(others[0])
            axes.set_xlim(-0.6, len(shown) - 0.4)
            grid(axes)
        panels[0].set_ylabel("error (%)")
        panels[0].set_ylim(bottom=0)
        handles, names = panels[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
        best_names = ", ".join(f"{label}: {best}" for label, (_, best) in zip(labels, shown, strict=True))
        left_out = f" Left out for want of ideal errors: {'; '.join(absent)}." if absent else ""
        caption = (
            f"Best by ideal: {best_names}. Mean and standard deviation over seeds; worst+gap may exceed 100%. "
            f"A measure that tells the truth shows the distance of panel (a).{left_out}"
        )
        where = f", {size}" if size else ""
        return finish(drawn, name, f"{baseline} against the best algorithm{where}", caption)
