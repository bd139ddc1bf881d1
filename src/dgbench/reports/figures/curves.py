"""The picture of error against environment: of one setting, and of all settings of a suite side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from dgbench.reports.document import Figure
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.measuring.suites import Suite
from dgbench.reports.over_seeds import (
    algorithms_of,
    seeds_of,
)
from dgbench.reports.render.drawing import INK, REST, canvas, colored, end_labels, finish, grid, label_of

_COLUMNS = 3
_LEADING = ("ideal", "worst_gap", "average")
Colors = Mapping[str, str]  #: highlighted algorithm -> color


def highlighted(studies: pd.DataFrame, baseline: str) -> dict[str, str]:
    """The color of each algorithm that has one: all where there are few.

    Of many: the baseline, then those with the lowest ideal error, worst+gap and average error of some setting, then the
    next ones by worst+gap; the rest is drawn gray.

    Args:
        studies: of one setting or of a suite, whose figures then share their colors.
        baseline: an algorithm that is always in color.
    """
    levels = studies.astype(dict.fromkeys(_LEADING, "float64")).groupby(["setting", "algorithm"])[list(_LEADING)].mean()
    leaders = [at[1] for measure in _LEADING for at in levels[measure].dropna().groupby("setting").idxmin()]
    next_ones = levels["worst_gap"].groupby("algorithm").mean().sort_values(kind="stable").index
    return colored(algorithms_of(studies), [baseline, *leaders, *next_ones])


def error_curves(evaluation: Evaluation, colors: Colors) -> Figure | None:
    """Error of the model trained on all given environments in every environment, mean and band over seeds.

    Args:
        evaluation: of one setting.
        colors: see :func:`highlighted`.

    Returns:
        The figure, or None when no study has its ``full`` fold.
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
        return finish(drawn, name, f"Error in every environment, {setting.title}", _caption([evaluation], colors))


def suite_curves(suite: Suite, colors: Colors) -> list[Figure]:
    """One figure per size, with a panel of :func:`error_curves` per setting; none where a size has a single setting."""
    figures = []
    for size, lines in suite.at_size().items():
        shown = [
            (line.label(without=suite.size_axis), line.evaluation) for line in lines if _has_curves(line.evaluation)
        ]
        if len(shown) > 1:
            name = f"curves_{suite.name}" + (f"_{size.replace('=', '')}" if size else "")
            figures.append(_panels(name, f"Error in every environment{f', {size}' if size else ''}", shown, colors))
    return figures


def _panels(name: str, title: str, shown: Sequence[tuple[str, Evaluation]], colors: Colors) -> Figure:
    columns = 2 if len(shown) == 4 else min(_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    with canvas(name, 1.9 * columns + 0.6, (3.3 if rows == 1 else 2.4) * rows + 0.4) as drawn:
        panels = drawn.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        ends = [_draw(axes, evaluation, colors, ticks=3) for axes, (_, evaluation) in zip(panels, shown, strict=False)]
        panels[0].set_ylim(0, min(100.0, panels[0].get_ylim()[1]))
        for at, (axes, (label, _)) in enumerate(zip(panels, shown, strict=False)):
            axes.set_title(label)
            if at % columns == 0:
                axes.set_ylabel("error (%)")
            if at % columns == columns - 1 or at == len(shown) - 1:
                end_labels(axes, ends[at], colors)
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        return finish(drawn, name, title, _caption([evaluation for _, evaluation in shown], colors))


def _has_curves(evaluation: Evaluation) -> bool:
    return bool((evaluation.errors["role"] == "everywhere").any())


def _draw(axes: Any, evaluation: Evaluation, colors: Colors, ticks: int = 6) -> dict[str, tuple[float, float]]:
    """Every algorithm's curve; the right end of those in color, in the units of the axes."""
    (setting,) = evaluation.settings
    errors = evaluation.errors[evaluation.errors["role"] == "everywhere"]
    place, numeric = _places(errors["env"].map(str), setting.given)
    ends = {}
    for algorithm, curve in _curves(errors, place).groupby("algorithm", sort=True):
        color = colors.get(str(algorithm))
        if color is None:
            axes.plot(curve["at"], curve["error"], **REST)
            continue
        axes.plot(curve["at"], curve["error"], color=color, linewidth=2, marker="" if numeric else "o")
        if (curve["spread"] > 0).any():
            low, high = curve["error"] - curve["spread"], curve["error"] + curve["spread"]
            axes.fill_between(curve["at"], low, high, color=color, alpha=0.12, linewidth=0)
        ends[str(algorithm)] = (float(curve["at"].iloc[-1]), float(curve["error"].iloc[-1]))
    marks = [place[env] for env in setting.given if env in place]
    axes.plot(marks, [0.0] * len(marks), linestyle="", marker="^", markersize=7, color=INK, clip_on=False, zorder=5)
    if numeric:
        axes.set_xlabel("environment e")
        axes.locator_params(axis="x", nbins=ticks)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.set_xticks(list(place.values()), list(map(label_of, place)), rotation=45, ha="right")
    grid(axes)
    return ends


def _places(environments: Iterable[str], given: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Environment -> place on the axis, its value where all are numbers; the given ones first where they are not."""
    found = set(environments)
    if all(map(_is_number, found)):
        return {env: float(env) for env in sorted(found, key=float)}, True
    return {env: float(at) for at, env in enumerate([*given, *sorted(found - set(given))])}, False


def _curves(errors: pd.DataFrame, place: Mapping[str, float]) -> pd.DataFrame:
    """Columns ``algorithm``, ``at``, ``error`` and ``spread`` (percent), in the order of the axis."""
    grouped = errors.assign(at=errors["env"].map(dict(place))).groupby(["algorithm", "at"])["error"]
    return pd.DataFrame({"error": 100 * grouped.mean(), "spread": 100 * grouped.std().fillna(0.0)}).reset_index()


def _caption(evaluations: Sequence[Evaluation], colors: Colors) -> str:
    count = max(len(seeds_of(evaluation.studies)) for evaluation in evaluations)
    drawn = {a for e in evaluations for a in e.errors.loc[e.errors["role"] == "everywhere", "algorithm"].map(str)}
    gray = sorted(drawn - colors.keys())
    rest = f" In gray: {', '.join(gray)}." if gray else ""
    text = "Model trained on all given environments (triangles)"
    if count == 1:
        return f"{text}, 1 seed. The highest point of a curve is its ideal error.{rest}"
    return (
        f"{text}, mean over {count} seeds, band of one standard deviation. The tabulated ideal is the mean over seeds "
        f"of each seed's highest point, which lies at or above the highest point of the mean curve drawn here.{rest}"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
