"""``report=curves``: error and loss over the optimizer steps of any runs, from their rows and
``metrics.csv``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.analysis.selection import Selection
from dgbench.plan.folds import tested
from dgbench.plan.settings import FileName, Name
from dgbench.records.metrics import METRICS_FILE, read_metrics
from dgbench.reports.document import (
    Document,
    Figure,
    Report,
    Section,
    check_algorithm,
    leads,
    problem_table,
)
from dgbench.reports.labels import label_meant, setting_labels, slug
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.row_files import Run
from dgbench.reports.reading.selected import check_key, in_environments
from dgbench.reports.render.drawing import REST, canvas, colored, end_labels, finish, grid
from dgbench.reports.tables import Column, Table, table

#: which rows a curve is of
ROLES = {
    "train": "training images",
    "val": "validation images of the training environments",
    "test": "test images of the held-out environments",
    "everywhere": "all environments, trained on all given ones",
}
_PANELS = ("val", "test", "everywhere")
_LOGGED = "train/"  # beginning of the names in ``metrics.csv`` that are drawn
_OF_RUN = ("seed", "fold", "draw", "trial", "run")
_REPETITION = ("seed", "draw", "trial")


class CurvesReport(Report):
    """Draws error and loss over steps, and what training logged, averaged over the runs of an
    algorithm.

    Args:
        baseline: algorithm that is always drawn in color.
    """

    name: FileName = "curves"
    baseline: Name = "erm"
    unread = ("selection",)

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        check_key(split_by)
        curves = step_curves(collection, split_by)
        check_algorithm(self, "baseline", list(curves["algorithm"].unique()))
        logged = logged_values(collection.runs, run_labels(collection, split_by))
        sections = []
        for title, lines in curves.groupby("setting", sort=False):
            setting = str(title)
            means = mean_curves(lines)
            figures = [self._figure(setting, means, quantity) for quantity in ("error", "loss")]
            values = logged[logged["setting"] == setting]
            names = sorted(set(values["name"]), key=lambda name: (name != "loss", name))
            for name in names:
                lines_of_name = values[values["name"] == name]
                figures.append(self._logged_figure(setting, name, lines_of_name))
            drawn = [figure for figure in figures if figure]
            sections.append(Section(slug(setting), setting, [curve_table(means)], drawn))
        runs = len(collection.runs)
        return Document(
            title="Error and loss over training",
            selection="",
            sections=sections,
            problems=problem_table(collection.problems),
            lead=leads(
                f"{runs} run{'s' * (runs != 1)}, unfinished ones included", collection.problems
            ),
        )

    def _figure(self, setting: str, means: pd.DataFrame, quantity: str) -> Figure | None:
        """Draw a panel for each role but ``train``; return None if no row has the quantity."""
        means = means[means[quantity].notna()]
        roles = [role for role in _PANELS if (means["role"] == role).any()]
        if not roles:
            return None
        algorithms = list(dict.fromkeys(map(str, means["algorithm"])))
        last = means[means["role"] == roles[0]].groupby("algorithm")[quantity].last().sort_values()
        baseline = label_meant(self.baseline, algorithms) or self.baseline
        colors = colored(algorithms, [baseline, *map(str, last.index)])
        if quantity == "error":  # in percent
            means = means.assign(**{name: 100.0 * means[name] for name in ("error", "error.std")})
        name = f"{quantity}_{slug(setting)}"
        with canvas(name, 2.5 * len(roles) + 0.9, 3.7) as drawn:
            panels = drawn.subplots(1, len(roles), sharey=True, squeeze=False)[0]
            for axes, role in zip(panels, roles, strict=True):
                _draw(axes, means[means["role"] == role], quantity, colors)
                axes.set_title(fill(ROLES[role], 26, break_on_hyphens=False), fontsize=10)
            panels[0].set_ylim(bottom=0)
            panels[0].set_ylabel("error (%)" if quantity == "error" else "loss (nats)")
            for axes, role in zip(panels, roles, strict=True):
                _label_ends(axes, means[means["role"] == role], quantity, colors)
            gray = [algorithm for algorithm in algorithms if algorithm not in colors]
            caption = (
                "Mean over folds and repetitions (seeds, draws, trials), band of one standard "
                "deviation. Tested environments are shown to be looked at; a step chosen by "
                "them would be an oracle's."
            ) + (f" In gray: {', '.join(gray)}." if gray else "")
            return finish(drawn, name, f"{quantity.capitalize()} over training, {setting}", caption)

    def _logged_figure(self, setting: str, name: str, values: pd.DataFrame) -> Figure:
        """Draw one logged quantity: its mean over folds, then over repetitions."""
        means = _means(values, ["algorithm", "step"], ["value"]).reset_index()
        last = means.groupby("algorithm")["value"].last().sort_values()
        algorithms = list(dict.fromkeys(map(str, values["algorithm"])))
        baseline = label_meant(self.baseline, algorithms) or self.baseline
        colors = colored(algorithms, [baseline, *map(str, last.index)])
        key = slug(f"train_{name}_{setting}")
        with canvas(key, 4.2, 3.4) as drawn:
            axes = drawn.add_subplot()
            _draw(axes, means, "value", colors)
            axes.set_ylabel(f"{name} (nats)" if name == "loss" else name)
            _label_ends(axes, means, "value", colors)
            caption = (
                "On the minibatches of training: mean over the steps since the line before, over "
                "folds and over repetitions, band of one standard deviation. Of runs that trained "
                "with a logger."
            )
            return finish(drawn, key, f"On minibatches of training: {name}, {setting}", caption)


def step_curves(collection: Collection, split_by: str | None = None) -> pd.DataFrame:
    """Compute error and loss of each run, role and step.

    Args:
        collection: runs with their rows, unfinished ones included.
        split_by: one more identity key whose values are kept apart.

    Returns:
        Columns ``setting``, ``algorithm`` (as tables name it), ``seed``, ``fold``, ``draw``,
        ``trial``, ``run``, ``role`` (a key of :data:`ROLES`), ``step``, ``error`` (fraction over
        all images of the role) and ``loss`` (their mean cross entropy, nats).
    """
    roles = _roles(collection)
    rows = collection.rows.assign(role=roles)[roles != ""]
    sums = rows.assign(loss=rows["loss"] * rows["seen"])
    totals = (
        sums.groupby(["run", "role", "step"], sort=True)[["seen", "wrong", "loss"]]
        .sum(min_count=1)
        .reset_index()
    )
    labels = pd.DataFrame(run_labels(collection, split_by))
    values = {
        "role": totals["role"],
        "step": totals["step"],
        "error": totals["wrong"] / totals["seen"],
        "loss": totals["loss"] / totals["seen"],
    }
    return labels.take(totals["run"].to_numpy()).reset_index(drop=True).assign(**values)


def run_labels(collection: Collection, split_by: str | None = None) -> list[dict[str, Any]]:
    """List ``setting``, ``algorithm`` (as tables name it), ``seed``, ``fold``, ``draw``, ``trial``,
    ``run`` of runs.
    """
    identities = [run.identity for run in collection.runs]
    titles_and_labels = setting_labels(identities, split_by)
    labels = []
    for identity, (title, algorithm) in zip(identities, titles_and_labels, strict=True):
        label = {"setting": title, "algorithm": algorithm}
        label |= {name: identity[name] for name in _OF_RUN}
        labels.append(label)
    return labels


def _roles(collection: Collection) -> NDArray[np.str_]:
    """Find the role of every row.

    It is empty for test images of training environments and other images of held-out ones.
    """
    rows = collection.rows
    tests = [tested(run.identity) for run in collection.runs]
    run = rows["run"].to_numpy()
    subset = rows["subset"].astype(str).to_numpy()
    everywhere = np.array([not environments for environments in tests])[run]
    test_roles = np.where(
        everywhere, "everywhere", np.where(in_environments(rows, tests), "test", "")
    )
    return np.where(
        subset == "test", test_roles, np.where(rows["env_held_out"].to_numpy(), "", subset)
    )


def logged_values(runs: Sequence[Run], labels: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Read what training logged, from the ``metrics.csv`` of the runs that have one.

    Args:
        runs: found on disk or in archives.
        labels: what stands beside each value, for every run.

    Returns:
        The columns of ``labels``, ``name`` (without its beginning ``train/``), ``step`` and
        ``value``.
    """
    values: list[dict[str, Any]] = []
    for run, label in zip(runs, labels, strict=True):
        try:
            lines = read_metrics(Path(run.folder) / METRICS_FILE)
        except (OSError, ValueError):  # a name that was made printable is none of a file
            continue
        for step, metrics in lines.items():
            for name, value in metrics.items():
                if name.startswith(_LOGGED) and np.isfinite(value):
                    about = {"name": name.removeprefix(_LOGGED), "step": step, "value": value}
                    values.append({**label, **about})
    return pd.DataFrame(values, columns=[*(labels[0] if labels else ()), "name", "step", "value"])


def mean_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Average the lines of :func:`step_curves` of one setting.

    Returns:
        Columns ``algorithm``, ``role``, ``step``, ``error`` and ``loss`` (mean over folds, then
        over repetitions: seeds, draws, trials), ``error.std`` and ``loss.std`` (over repetitions,
        divisor n-1), ``runs`` (that have the step).
    """
    place = ["algorithm", "role", "step"]
    counts = curves.groupby(place)["run"].size().rename("runs")
    return pd.concat([_means(curves, place, ["error", "loss"]), counts], axis=1).reset_index()


def _means(lines: pd.DataFrame, place: list[str], values: list[str]) -> pd.DataFrame:
    """Average over folds, then compute mean and standard deviation (``NAME.std``, divisor n-1) over
    repetitions.
    """
    over_folds = lines.groupby([*place, *_REPETITION])[values].mean().groupby(place)
    return pd.concat([over_folds.mean(), over_folds.std().add_suffix(".std")], axis=1)


def curve_table(means: pd.DataFrame) -> Table:
    """Build the table of the drawn numbers."""
    columns = [
        Column("algorithm", key=True),
        Column("role", "images", key=True),
        Column("step", unit="count", key=True),
        Column("error", unit="percent", help="fraction wrong, mean over folds and repetitions"),
        Column("loss", unit="loss", help="mean cross entropy in nats"),
        Column("runs", unit="count"),
    ]
    shown = means.assign(role=means["role"].map(ROLES))
    return table(shown, "curves", "Error and loss over training", columns, detail=True)


def _draw(axes: Any, means: pd.DataFrame, quantity: str, colors: Mapping[str, str]) -> None:
    """Draw a line for each algorithm, with a band of one standard deviation for those that have a
    color.

    Args:
        axes: drawn on.
        means: ``algorithm``, ``step``, the quantity, and its deviation as ``QUANTITY.std``.
        quantity: name of the column.
        colors: algorithm -> color.
    """
    for algorithm, line in means.groupby("algorithm", sort=False):
        alone = len(line) == 1
        color = colors.get(str(algorithm))
        if color is None:
            axes.plot(line["step"], line[quantity], marker="." if alone else "", **REST)
            continue
        middle = line[quantity]
        deviation = line[f"{quantity}.std"].fillna(0.0)
        axes.plot(line["step"], middle, color=color, linewidth=2, marker="o" if alone else "")
        axes.fill_between(
            line["step"],
            middle - deviation,
            middle + deviation,
            color=color,
            alpha=0.15,
            linewidth=0,
        )
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("optimizer step")
    grid(axes)


def _label_ends(axes: Any, means: pd.DataFrame, quantity: str, colors: Mapping[str, str]) -> None:
    """Write the names of algorithms in color at the right ends of their lines.

    The limits of the axes must have been set.
    """
    ends = means[means["algorithm"].isin(list(colors))].groupby("algorithm").last()
    places = zip(ends["step"], ends[quantity], strict=True)
    end_labels(axes, dict(zip(map(str, ends.index), places, strict=True)), colors)
