"""``report=features``: a map of features in two dimensions, by environment and class, for every run
that kept some.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dgbench.analysis.selection import Selection
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.settings import FileName
from dgbench.records.files import read_arrays
from dgbench.records.rows import FEATURE_FILE
from dgbench.reports.document import Document, Figure, Report, Section, leads, problem_table
from dgbench.reports.labels import slug
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import Run
from dgbench.reports.render.drawing import COLORS, GRAY, canvas, finish, label_of
from dgbench.reports.tables import Column, percent, table
from dgbench.validation import Count1

FEWEST_IN_TSNE = 4
MOST_COLORS = len(COLORS)  # more classes or environments are gray


class FeaturesReport(Report):
    """Draws the features that ``dgbench evaluate features=N`` kept.

    Args:
        map: ``pca``, ``tsne``, or ``umap`` where the package umap-learn is installed.
        runs: at most so many runs are drawn.
    """

    name: FileName = "features"
    map: Literal["pca", "tsne", "umap"] = "pca"
    runs: Count1 = 12
    unread = ("selection", "split_by")

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        runs = []
        for run in sorted(collection.runs, key=_place):
            file = run.file(FEATURE_FILE)
            if file is not None:
                runs.append((run, file))
        if not runs:
            raise RecordError(
                "no run here has kept features; write some with dgbench evaluate model=RUN "
                "features=200, and name the folder of its rows with runs="
            )
        sections = []
        problems = list(collection.problems)
        for run, file in runs[: self.runs]:
            try:
                sections.append(_section(run, file, self.map))
            except (RecordError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
                problems.append(
                    Problem("features", str(file.parent), f"{FEATURE_FILE} cannot be read: {error}")
                )
        omission = ""
        if len(runs) > self.runs:
            omission = f", {len(runs) - self.runs} more left out (report.runs)"
        return Document(
            title="Features by environment and class",
            selection="",
            sections=sections,
            problems=problem_table(problems),
            lead=leads(
                f"{len(sections)} of {len(collection.runs)} runs kept features{omission}", problems
            ),
        )


def _place(run: Run) -> list[str]:
    """Make the sort key of a run in this report."""
    return [str(run.identity[key]) for key in ("dataset", "algorithm", "seed", "fold")]


def _section(run: Run, file: Path, kind: str) -> Section:
    arrays = read_arrays(file)
    about = json.loads(str(arrays["about"]))
    features = arrays["features"].astype(np.float64)
    env = arrays["env"]
    held_out = arrays["held_out"]
    label = arrays["label"]
    predicted = arrays["predicted"]
    title = "{algorithm} seed {seed} fold {fold} on {dataset}".format_map(run.identity)
    places, axes_text = two_dimensions(features, kind)
    name = f"features_{slug(title)}_{run.identity['run']}"
    environments = about["environments"]
    classes = about["classes"]
    unseen = {environments[number] for number in np.unique(env[held_out.astype(bool)])}
    shown = []
    for environment in environments:
        shown.append(f"{environment}, held out" if environment in unseen else environment)
    figure = _figure(
        name, title, places, axes_text, {"environment": (env, shown), "class": (label, classes)}
    )
    share = separability(features, env, label)
    errors = [(predicted != label)[env == number] for number in range(len(environments))]
    lines = [
        {"environment": name, "images": len(wrong), "error": float(wrong.mean())}
        for name, wrong in zip(shown, errors, strict=True)
    ]
    columns = [
        Column("environment", key=True),
        Column("images", unit="count"),
        Column("error", unit="percent", help="of these images"),
    ]
    answer = [
        (
            f"Nearest neighbors in feature space share the class in {percent(share['class'], 0)}% "
            f"of images and the environment in {percent(share['environment'], 0)}%; by chance "
            f"{percent(share['class by chance'], 0)}% and "
            f"{percent(share['environment by chance'], 0)}%."
        )
    ]
    images = table(lines, f"{name}_images", "Images in the map", columns, detail=True)
    return Section(name, title, [images], [figure], answer=answer)


def two_dimensions(features: np.ndarray, kind: str) -> tuple[np.ndarray, str]:
    """Map (n, m) features to (n, 2) places, and say what the axes are.

    Raises:
        ConfigError: ``umap`` and the package is not installed, or ``tsne`` of too few images.
    """
    centered = features - features.mean(0)
    return MAPS[kind](centered)


def _principal_components(centered: np.ndarray) -> tuple[np.ndarray, str]:
    u, s, _ = np.linalg.svd(centered, full_matrices=False)
    if len(s) < 2:
        lacking = 2 - len(s)
        u = np.pad(u, ((0, 0), (0, lacking)))
        s = np.pad(s, (0, lacking))
    total = float((s**2).sum()) or 1.0
    share = 100 * s[:2] ** 2 / total
    axes_text = f"principal components, {share[0]:.0f}% and {share[1]:.0f}% of the variance"
    return u[:, :2] * s[:2], axes_text


def _umap(centered: np.ndarray) -> tuple[np.ndarray, str]:
    try:
        from umap import UMAP
    except ImportError:
        raise ConfigError(
            "report.map=umap needs the package umap-learn; install it, or use report.map=pca"
        ) from None
    places: np.ndarray = UMAP(random_state=0).fit_transform(centered)
    return places, "UMAP, whose distances between groups mean nothing"


def _tsne(centered: np.ndarray) -> tuple[np.ndarray, str]:
    """Compute t-SNE (van der Maaten & Hinton, 2008) with scikit-learn, from a seed and two
    principal components.

    The perplexity is 30, or a third of the other images if they are fewer than 90.
    """
    from sklearn.manifold import TSNE

    n = len(centered)
    if n < FEWEST_IN_TSNE:
        raise ConfigError(
            f"report.map=tsne needs {FEWEST_IN_TSNE} images or more, and a run kept {n}; use "
            "report.map=pca, or keep more with features=N"
        )
    perplexity = min(30.0, (n - 1) / 3)
    start, _ = _principal_components(centered)
    spread = float(start[:, 0].std()) or 1.0
    # scikit-learn starts from components of this spread
    tsne = TSNE(perplexity=perplexity, init=1e-4 * start / spread, random_state=0)
    places: np.ndarray = tsne.fit_transform(centered)
    return (
        places,
        f"t-SNE of perplexity {perplexity:.0f}, whose distances between groups mean nothing",
    )


MAPS: Mapping[str, Callable[[np.ndarray], tuple[np.ndarray, str]]] = {
    "pca": _principal_components,
    "umap": _umap,
    "tsne": _tsne,
}


def separability(features: np.ndarray, env: np.ndarray, label: np.ndarray) -> dict[str, float]:
    """Compute how often an image's nearest neighbor (Euclidean) has its class, and its environment.

    Returns:
        ``class``, ``environment``: fractions of images; ``... by chance``: of pairs of different
        images.
    """
    squares = (features**2).sum(1)
    distances = squares[:, None] - 2 * features @ features.T + squares
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(1)
    shares = {}
    for name, values in (("class", label), ("environment", env)):
        counts = np.unique(values, return_counts=True)[1]
        n = len(values)
        shares[name] = float((values[nearest] == values).mean())
        shares[f"{name} by chance"] = float((counts * (counts - 1)).sum() / max(1, n * (n - 1)))
    return shares


def _figure(
    name: str,
    title: str,
    places: np.ndarray,
    axes_text: str,
    groupings: dict[str, tuple[np.ndarray, list[str]]],
) -> Figure:
    with canvas(name, 9.0, 4.2) as drawn:
        panels = drawn.subplots(1, 2, sharex=True, sharey=True)
        for axes, (grouping, (numbers, names)) in zip(panels, groupings.items(), strict=True):
            # one gray entry for all that have no color of their own
            last_entry = names[MOST_COLORS] if len(names) == MOST_COLORS + 1 else "others"
            entries = [label_of(name) for name in [*names[:MOST_COLORS], last_entry]]
            for number in range(len(names)):
                points = places[numbers == number]
                style: dict[str, Any] = {"color": COLORS[number] if number < MOST_COLORS else GRAY}
                style["label"] = entries[number] if number <= MOST_COLORS else None
                axes.plot(
                    points[:, 0],
                    points[:, 1],
                    marker=".",
                    linestyle="",
                    markersize=4,
                    alpha=0.6,
                    mew=0,
                    **style,
                )
            axes.set_title(f"by {grouping}")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.legend(fontsize=8, frameon=False, markerscale=2.5, loc="upper center", ncols=3,
                        bbox_to_anchor=(0.5, -0.02))  # fmt: skip
        caption = f"One point an image; {axes_text}. The same points in both panels."
        return finish(drawn, name, f"Features of {title}", caption)
