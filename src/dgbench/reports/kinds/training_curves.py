"""``report=curves``: error and loss over the optimizer steps of any runs, from their rows and ``metrics.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.analysis.selection import Selection
from dgbench.protocols.folds import tested
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.document import Document, Figure, Section, leads, problem_table
from dgbench.reports.evaluation import check_key
from dgbench.reports.figures.drawing import canvas, colored, finish
from dgbench.reports.figures.step_lines import draw_means, label_ends, logged_figures, logged_values
from dgbench.reports.labels import algorithm_labels, setting_titles, slug
from dgbench.reports.reading.collect import Collection
from dgbench.reports.tables import Column, Table, table

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


_SHOWN = ("seed", "fold", "draw", "trial", "run")


def run_labels(collection: Collection, split_by: str | None = None) -> list[dict[str, Any]]:
    """Of every run ``setting``, ``algorithm`` (as tables name it), ``seed``, ``fold``, ``draw``, ``trial``, ``run``."""
    names = keys(Role.SETTING, split_by)
    grouped: dict[str, list[int]] = {}
    for at, run in enumerate(collection.runs):
        grouped.setdefault(identity_key(run.identity, names), []).append(at)
    shared = [{key: collection.runs[own[0]].identity[key] for key in names} for own in grouped.values()]
    about: list[dict[str, Any]] = [{}] * len(collection.runs)
    for title, own in zip(setting_titles(shared), grouped.values(), strict=True):
        identities = [collection.runs[at].identity for at in own]
        for at, who, label in zip(own, identities, algorithm_labels(identities), strict=True):
            about[at] = {"setting": title, "algorithm": label, **{name: who[name] for name in _SHOWN}}
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
