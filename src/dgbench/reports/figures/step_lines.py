"""Curves over optimizer steps: the mean of each algorithm with a band, and figures of what training logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dgbench.records.metrics import METRICS_FILE, read_metrics
from dgbench.reports.document import Figure
from dgbench.reports.figures.drawing import REST, canvas, colored, end_labels, finish, grid
from dgbench.reports.labels import slug
from dgbench.reports.reading.row_files import Run

LOGGED = "train/"  #: beginning of the names that are drawn


def draw_means(axes: Any, means: pd.DataFrame, quantity: str, colors: Mapping[str, str], factor: float = 1.0) -> None:
    """A line for each algorithm, with a band of one standard deviation for those that have a color.

    Args:
        axes: drawn on.
        means: ``algorithm``, ``step``, the quantity, and its deviation as ``QUANTITY.std``.
        quantity: name of the column.
        colors: algorithm -> color.
        factor: multiplies the quantity.
    """
    for algorithm, own in means.groupby("algorithm", sort=False):
        color = colors.get(str(algorithm))
        if color is None:
            axes.plot(own["step"], factor * own[quantity], marker="." if len(own) == 1 else "", **REST)
            continue
        middle, spread = factor * own[quantity], factor * own[f"{quantity}.std"].fillna(0.0)
        axes.plot(own["step"], middle, color=color, linewidth=2, marker="o" if len(own) == 1 else "")
        axes.fill_between(own["step"], middle - spread, middle + spread, color=color, alpha=0.15, linewidth=0)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("optimizer step")
    grid(axes)


def label_ends(axes: Any, means: pd.DataFrame, quantity: str, colors: Mapping[str, str], factor: float = 1.0) -> None:
    """Names of the algorithms in color at the right ends of their lines; the limits of the axes are set."""
    ends = means[means["algorithm"].isin(list(colors))].groupby("algorithm").last()
    places = zip(ends["step"], factor * ends[quantity], strict=True)
    end_labels(axes, dict(zip(map(str, ends.index), places, strict=True)), colors)


def logged_values(runs: Sequence[Run], about: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """What training logged, from the ``metrics.csv`` of the runs that have one.

    Args:
        runs: found on disk or in archives.
        about: what stands beside each value, for every run.

    Returns:
        The columns of ``about``, ``name`` (without its beginning ``train/``), ``step`` and ``value``.
    """
    found: list[dict[str, Any]] = []
    for run, who in zip(runs, about, strict=True):
        try:
            lines = read_metrics(Path(run.folder) / METRICS_FILE)
        except (OSError, ValueError):  # a name that was made printable is none of a file
            continue
        for step, values in lines.items():
            own = {name.removeprefix(LOGGED): v for name, v in values.items() if name.startswith(LOGGED)}
            found += [{**who, "name": name, "step": step, "value": v} for name, v in own.items() if np.isfinite(v)]
    columns = [*(about[0] if about else ()), "name", "step", "value"]
    return pd.DataFrame(found, columns=columns)


def logged_figures(setting: str, values: pd.DataFrame, baseline: str) -> list[Figure]:
    """One figure for each quantity: its mean over folds, then over repetitions (seeds, draws, trials).

    Args:
        setting: title of the setting.
        values: those of :func:`logged_values` in this setting.
        baseline: algorithm that is always drawn in color.
    """
    figures = []
    names = sorted(set(values["name"]), key=lambda name: (name != "loss", name))
    for name in names:
        own = values[values["name"] == name]
        place = ["algorithm", "step"]
        over_folds = own.groupby([*place, "seed", "draw", "trial"])["value"].mean().groupby(place)
        means = over_folds.mean().to_frame().assign(**{"value.std": over_folds.std()}).reset_index()
        last = means.groupby("algorithm")["value"].last().sort_values()
        colors = colored(list(dict.fromkeys(map(str, own["algorithm"]))), [baseline, *map(str, last.index)])
        key = slug(f"train_{name}_{setting}")
        with canvas(key, 4.2, 3.4) as drawn:
            axes = drawn.add_subplot()
            draw_means(axes, means, "value", colors)
            axes.set_ylabel(f"{name} (nats)" if name == "loss" else name)
            label_ends(axes, means, "value", colors)
            caption = (
                "On the minibatches of training: mean over the steps since the line before, over folds and over "
                "repetitions, band of one standard deviation. Of runs that trained with a logger."
            )
            figures.append(finish(drawn, key, f"{name} over training, {setting}", caption))
    return figures
