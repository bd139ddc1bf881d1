"""``report=curves``: error and loss over the optimizer steps of any runs, from their rows and ``metrics.csv``.

Curves over optimizer steps: the mean of each algorithm with a band, and figures of what training logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.protocols.folds import tested
from dgbench.records.metrics import METRICS_FILE, read_metrics
from dgbench.reports.document import Document, Figure, Section, leads, problem_table
from dgbench.reports.frames import Column, Table, table
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.runs import Run
from dgbench.reports.render.drawing import REST, canvas, colored, end_labels, finish, grid
from dgbench.reports.settings.evaluation import SETTING_KEYS, check_key, identity_key
from dgbench.reports.settings.labels import algorithm_labels, setting_titles, slug
from dgbench.selection.methods import Selection

#: which rows a curve is of
ROLES = {
    "train": "training images",
    "val": "validation images of the training environments",
    "test": "test images of the held-out environments",
    "everywhere": "all environments, trained on all given ones",
}
_PANELS = ("val", "test", "everywhere")


@dataclass(frozen=True)
class CurvesReport:
    """Draws error and loss over steps, and what training logged, averaged over the runs of an algorithm.

    Args:
        name: names the output folder.
        baseline: algorithm that is always drawn in color.
    """

    name: str = "curves"
    baseline: str = "erm"

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        check_key(split_by)
        curves = step_curves(collection, split_by)
        logged = logged_values(collection.runs, run_labels(collection, split_by))
        sections = []
        for title, own in curves.groupby("setting", sort=False):
            means = mean_curves(own)
            figures = [self._figure(str(title), means, quantity) for quantity in ("error", "loss")]
            drawn = [figure for figure in figures if figure]
            drawn += logged_figures(str(title), logged[logged["setting"] == title], self.baseline)
            sections.append(Section(slug(str(title)), str(title), [curve_table(means)], drawn))
        runs = len(collection.runs)
        return Document(
            title="Error and loss over training",
            selection="",
            sections=sections,
            problems=problem_table(collection.problems),
            lead=leads(f"{runs} run{'s' * (runs != 1)}, unfinished ones included", collection.problems),
        )

    def _figure(self, setting: str, means: pd.DataFrame, quantity: str) -> Figure | None:
        """One panel for validation and one for tested environments; None where no row has the quantity."""
        known = means[means[quantity].notna()]
        roles = [role for role in _PANELS if (known["role"] == role).any()]
        if not roles:
            return None
        algorithms = list(dict.fromkeys(map(str, known["algorithm"])))
        last = known[known["role"] == roles[0]].groupby("algorithm")[quantity].last().sort_values()
        colors = colored(algorithms, [self.baseline, *map(str, last.index)])
        factor, unit = (100.0, "error (%)") if quantity == "error" else (1.0, "loss (nats)")
        with canvas(f"{quantity}_{slug(setting)}", 2.5 * len(roles) + 0.9, 3.7) as drawn:
            panels = drawn.subplots(1, len(roles), sharey=True, squeeze=False)[0]
            for axes, role in zip(panels, roles, strict=True):
                draw_means(axes, known[known["role"] == role], quantity, colors, factor)
                axes.set_title(fill(ROLES[role], 26, break_on_hyphens=False), fontsize=10)
            panels[0].set_ylim(bottom=0)
            panels[0].set_ylabel(unit)
            for axes, role in zip(panels, roles, strict=True):
                label_ends(axes, known[known["role"] == role], quantity, colors, factor)
            gray = [a for a in algorithms if a not in colors]
            caption = (
                "Mean over folds and repetitions (seeds, draws, trials), band of one standard deviation. "
                "Tested environments are shown to be looked at; a step chosen by them would be an oracle's."
                + (f" In gray: {', '.join(gray)}." if gray else "")
            )
            what = "Error" if quantity == "error" else "Loss"
            return finish(drawn, f"{quantity}_{slug(setting)}", f"{what} over training, {setting}", caption)


def step_curves(collection: Collection, split_by: str | None = None) -> pd.DataFrame:
    """One line per run, role and step.

    Args:
        collection: runs with their rows, unfinished ones included.
        split_by: one more identity key whose values are kept apart.

    Returns:
        Columns ``setting``, ``algorithm`` (as tables name it), ``seed``, ``fold``, ``draw``, ``trial``, ``run``,
        ``role`` (a key of :data:`ROLES`), ``step``, ``error`` (fraction over all images of the role) and ``loss``
        (their mean cross entropy, nats).
    """
    about = run_labels(collection, split_by)
    roles = _roles(collection)
    rows = collection.rows.assign(role=roles)[roles != ""]
    sums = rows.assign(loss=rows["loss"] * rows["seen"])
    totals = sums.groupby(["run", "role", "step"], sort=True)[["seen", "wrong", "loss"]].sum(min_count=1).reset_index()
    whose = pd.DataFrame(about).take(totals["run"].to_numpy()).reset_index(drop=True)
    whose["role"], whose["step"] = totals["role"], totals["step"]
    whose["error"], whose["loss"] = totals["wrong"] / totals["seen"], totals["loss"] / totals["seen"]
    return whose


def run_labels(collection: Collection, split_by: str | None = None) -> list[dict[str, Any]]:
    """Of every run ``setting``, ``algorithm`` (as tables name it), ``seed``, ``fold``, ``draw``, ``trial``, ``run``."""
    keys = SETTING_KEYS + ((split_by,) if split_by and split_by not in SETTING_KEYS else ())
    grouped: dict[str, list[int]] = {}
    for at, run in enumerate(collection.runs):
        grouped.setdefault(identity_key(run.identity, keys), []).append(at)
    shared = [{key: collection.runs[own[0]].identity[key] for key in keys} for own in grouped.values()]
    about: list[dict[str, Any]] = [{}] * len(collection.runs)
    for title, own in zip(setting_titles(shared), grouped.values(), strict=True):
        identities = [collection.runs[at].identity for at in own]
        for at, who, label in zip(own, identities, algorithm_labels(identities), strict=True):
            names = ("seed", "fold", "draw", "trial", "run")
            about[at] = {"setting": title, "algorithm": label, **{name: who[name] for name in names}}
    return about


def _roles(collection: Collection) -> NDArray[np.str_]:
    """The role of every row; empty for the test images of an environment that is trained on."""
    rows = collection.rows
    full = np.array([not tested(run.identity) for run in collection.runs])[rows["run"].to_numpy()]
    pairs = rows[["run", "env"]].drop_duplicates().astype({"env": str})
    shown = [env in tested(collection.runs[run].identity) for run, env in zip(pairs["run"], pairs["env"], strict=True)]
    of_pair = pd.Series(shown, index=pd.MultiIndex.from_frame(pairs))
    is_tested = of_pair.reindex(pd.MultiIndex.from_frame(rows[["run", "env"]].astype({"env": str}))).to_numpy(
        dtype=bool
    )
    subset, held_out = rows["subset"].astype(str).to_numpy(), rows["env_held_out"].to_numpy()
    of_test = np.where(full, "everywhere", np.where(is_tested, "test", ""))
    return np.where(subset == "test", of_test, np.where(held_out, "", subset))


def mean_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """One line per algorithm, role and step, from the lines of :func:`step_curves` of one setting.

    Returns:
        Columns ``algorithm``, ``role``, ``step``, ``error`` and ``loss`` (mean over folds, then over repetitions:
        seeds, draws, trials), ``error.std`` and ``loss.std`` (over repetitions, divisor n-1), ``runs``
        (that have the step).
    """
    place = ["algorithm", "role", "step"]
    over_folds = curves.groupby([*place, "seed", "draw", "trial"])[["error", "loss"]].mean().groupby(place)
    counts = curves.groupby(place)["run"].size().rename("runs")
    return pd.concat([over_folds.mean(), over_folds.std().add_suffix(".std"), counts], axis=1).reset_index()


def curve_table(means: pd.DataFrame) -> Table:
    """The drawn numbers."""
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
