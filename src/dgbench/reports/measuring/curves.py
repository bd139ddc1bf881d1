"""Error in every environment of the model that was trained on all given ones.

Of one setting, and of the settings of a benchmark side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from dgbench.plan.measures import MeasureChoice
from dgbench.reports.chance import Chance
from dgbench.reports.document import Figure
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.labels import sortable
from dgbench.reports.measuring.benchmarks import Benchmark, BenchmarkLine
from dgbench.reports.over_seeds import (
    algorithms_of,
    seeds_of,
)
from dgbench.reports.render.drawing import (
    DASHED,
    INK,
    MOST_DRAWN,
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
from dgbench.validation import some_of

_COLUMNS = 3  # panels beside each other
# points; errors of the most frequent class this close to the blind guess's get no curve of their
# own
_APART = 1.0
Colors = Mapping[str, str]  #: highlighted algorithm -> color


def highlighted(studies: pd.DataFrame, baseline: str, measures: MeasureChoice) -> dict[str, str]:
    """Choose the color of each highlighted algorithm: all of them where they are few.

    Of many: the baseline, then those with the lowest value of some setting by the ideal and by each
    compared measure, then the next ones by the first compared measure; the rest is drawn gray.

    Args:
        studies: of one setting or of a benchmark, whose figures then share their colors.
        baseline: an algorithm that is always in color.
        measures: of its tables.
    """
    ranked = [measure.name for measure in measures.ranked]
    values = studies.astype(dict.fromkeys(ranked, "float64"))
    levels = values.groupby(["setting", "algorithm"])[ranked].mean()
    leaders: list[str] = []
    for name in ranked:
        lowest = levels[name].dropna().groupby("setting").idxmin()
        leaders += [algorithm for _, algorithm in lowest]
    first = levels[measures.compared[0].name]
    next_ones = first.groupby("algorithm").mean().sort_values(kind="stable").index
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

    return figure_per_size(benchmark, "curves", draw)


def figure_per_size(
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
    """Describe the dashed line, if some setting knows its number of classes."""
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
    drawn: set[str] = set()
    for evaluation in evaluations:
        errors = evaluation.errors
        drawn.update(errors.loc[errors["role"] == "everywhere", "algorithm"].map(str))
    gray = sorted(drawn - colors.keys())
    note = f" In gray: {some_of(gray, MOST_DRAWN)}." if gray else ""
    text = "Model trained on all given environments (triangles)"
    note = _on_references(evaluations) + note
    if count == 1:
        return f"{text}, 1 seed. The highest point of a curve is its ideal error.{note}"
    return (
        f"{text}, mean over {count} seeds, band of one standard deviation. The tabulated ideal is "
        "the mean over seeds of each seed's highest point, which lies at or above the highest "
        f"point of the mean curve drawn here.{note}"
    )
