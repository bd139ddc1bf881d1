"""Tables of estimated shift: of datasets, pairs, every number, and what was refused.

An estimate becomes a cell with its interval; beside it stand its null, the exact value where the
construction of the dataset tells it, and what papers printed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from dgbench.analysis.accuracy import mean
from dgbench.analysis.shift_verdicts import HALF_SAMPLING, SPREAD
from dgbench.errors import ConfigError
from dgbench.records.shift_rows import HALVES, LABELS
from dgbench.reports.labels import slug
from dgbench.reports.over_seeds import over_seeds
from dgbench.reports.published import Published, Value, published, shifts
from dgbench.reports.published.beside import published_column, source_note
from dgbench.reports.reading.shift_settings import DIAGNOSTIC, ShiftLine, ShiftSetting
from dgbench.reports.tables import Column, Table, entry, table
from dgbench.shift.cells import (
    DATASET,
    FLAGS,
    PAIR,
    class_text,
    exact_cell,
    filled,
    flag_text,
    interval_words,
    null_columns,
    other_features,
    pair_text,
    printed,
    value_cell,
    values_by_pair,
    with_null,
)
from dgbench.shift.verdicts import verdicts

DISTANCES = "ye2022_table3"
PRETRAINING = "yu2024_table2"
NETWORKS = ("ye2022_table4", "ye2022_table6", "ye2022_table7")
SPLITS = 5  # of the tables of NETWORKS
AXES = (("div", "diversity"), ("cor", "correlation"))
DISTANCE_TITLES = {"emd": "EMD", "mmd2": "MMD²", "ni": "NI"}
_NO_SHIFT = (
    "No shift: the same estimate between two halves of both sides together, where the truth is 0. "
    "It shows noise and bias."
)
_INTERVALS = {
    HALF_SAMPLING: (
        "Half-sampling: Student's t times the standard deviation of estimates on halves of the "
        "images."
    ),
    SPREAD: (
        "Spread of trials: Student's t interval of their mean; they share their images, so it is "
        "too narrow."
    ),
}


def published_shifts(name: str | None) -> Published | None:
    """Look up the published table of diversity and correlation shift of that name; None for None.

    Raises:
        ConfigError: there is no such table.
    """
    if name is None:
        return None
    if name not in shifts():
        raise ConfigError(
            f"report.published={name} is no table of shifts; choose one of {', '.join(shifts())}"
        )
    return published(name)


def points(source: Published) -> dict[str, tuple[float, float]]:
    """Map every dataset to its printed place in the plane, diversity shift first."""
    return {row: (values["div"].mean, values["cor"].mean) for row, values in source.values.items()}


def nearest(div: float, cor: float, source: Published) -> tuple[str, float]:
    """Find the dataset whose printed place is nearest (Euclidean), and its distance."""
    distances = {row: math.dist((div, cor), place) for row, place in points(source).items()}
    name = min(distances, key=lambda row: (distances[row], row))
    return name, distances[name]


def shift_table(setting: ShiftSetting, source: Published | None = None) -> Table | None:
    """List both shifts by dataset, with intervals, nulls, exact and published values.

    Returns:
        the table; None if the estimator does not tell the two shifts.
    """
    if setting.axes is None:
        return None
    verdict_by_title = verdicts(setting)
    lines = []
    kinds = set()
    published_values = []
    for line in setting.lines:
        cells = _shift_cells(line, setting.axes, source, other_features(setting))
        verdict = verdict_by_title[line.title]
        cells["verdict"] = verdict.kind or "none"
        if not verdict.kind:
            cells["verdict.reason"] = verdict.reason
        cells["flags"] = flag_text(line)
        kinds.add(cells["interval"])
        published_values += [cells[f"{axis} published"] for axis, _ in AXES]
        lines.append(cells)
    notes = [text for kind, text in _INTERVALS.items() if kind in kinds]
    notes.append(_NO_SHIFT)
    if source and any(value is not None for value in published_values):
        notes.append(_caution(setting, source))
    intervals = interval_words(setting, setting.axes)
    title = f"Diversity and correlation shift, mean over pairs [{intervals}]"
    return table(lines, "shift", title, filled(_shift_columns(source), lines), notes)


def _shift_cells(
    line: ShiftLine, axes: tuple[str, str], source: Published | None, flag: str
) -> dict[str, Any]:
    """Build the cells of a dataset: both shifts, in columns that start with the names of AXES.

    Args:
        line: the dataset.
        axes: names of the values that are diversity and correlation shift.
        source: a published table.
        flag: marks its values.
    """
    cells: dict[str, Any] = {
        "dataset": line.title,
        "pairs": pair_text(line),
        "classes": class_text(line),
    }
    # tables of whole datasets are of the folds of a protocol, never of every two environments
    row = str(line.identity["dataset"]) if line.identity["pairs"] == "folds" else ""
    for (axis, _), name in zip(AXES, axes, strict=True):
        cells |= value_cell(line, axis, name)
        cells |= value_cell(line, f"{axis} null", name, HALVES)
        cells |= exact_cell(line, f"{axis} exact", name)
        cells |= printed(source, row, axis, f"{axis} published", flag)
    cells |= value_cell(line, "cor labels", axes[1], LABELS)
    estimate = line.value(axes[0])
    cells["interval"] = estimate.interval if estimate else None
    return cells


def _shift_columns(source: Published | None) -> list[Column]:
    """Define the columns of :func:`shift_table`."""
    paper = source.source if source else ""
    built = "from the construction of the dataset"
    shuffled = "with labels shuffled on either side, which leaves no correlation shift"
    columns = [
        DATASET,
        Column("pairs"),
        Column("classes", help="that count, in both sides of every pair"),
    ]
    for axis, title in AXES:
        columns += null_columns(axis, title)
        columns.append(Column(f"{axis} exact", f"{title}, exact", "distance", built))
        columns.append(published_column(axis, title, "distance", paper))
    return [
        *columns,
        Column("cor labels", "correlation, labels shuffled", "distance", shuffled),
        Column("interval", help="what the interval is made of"),
        Column("verdict", help="which shift dominates, where intervals tell it from no shift"),
        FLAGS,
    ]


def _caution(setting: ShiftSetting, source: Published) -> str:
    """Quote the source of printed numbers, and say in what their estimates differ from those of a
    setting.
    """
    unlike = []
    if setting.identity["estimator"] != "ood_bench":
        unlike.append("another estimator")
    if setting.formula != source.formula:
        unlike.append(f"other formulas ({source.formula}, here {setting.formula})")
    if other_features(setting):
        unlike.append("features trained with the estimate, here frozen ones")
    words = (
        f" They come from {', and '.join(unlike)}: compare the order, not the size."
        if unlike
        else ""
    )
    return f"{source_note(source)}{words}"


def pair_tables(setting: ShiftSetting, names: Mapping[str, str]) -> list[Table]:
    """Build a table per dataset with one line per pair.

    ``names`` maps names of values to titles of their columns.
    """
    source = published(DISTANCES)
    columns = [
        PAIR,
        Column("p"),
        Column("q"),
        Column("n", "images of p", "count"),
        Column("of q", "images of q", "count"),
        Column("classes"),
    ]
    for name, title in names.items():
        columns += [
            *null_columns(name, title),
            Column(f"{name} exact", f"{title}, exact", "distance"),
            published_column(name, title, "distance", source.source),
        ]
    columns += [Column("dropped", "classes left out (images of p/q)"), FLAGS]
    tables = []
    for line in setting.lines:
        lines = []
        for pair, facts in line.pairs.iterrows():
            cells = {
                "pair": pair,
                "p": facts["p"],
                "q": facts["q"],
                "n": facts["n_p"],
                "of q": facts["n_q"],
            }
            cells["classes"] = f"{facts['classes']} of {facts['of']}"
            # distances are symmetric, so that a pair may be printed under either order
            rows = [
                f"{line.identity['dataset']}/{order}"
                for order in (pair, "|".join(reversed(str(pair).split("|"))))
            ]
            row = next((row for row in rows if row in source.values), "")
            for name in names:
                cells |= with_null(line, name, str(pair))
                cells |= exact_cell(line, f"{name} exact", name, str(pair))
                cells |= printed(source, row, name, f"{name} published", other_features(setting))
            lines.append(cells | {"dropped": facts["dropped"], "flags": facts["flags"]})
        title = f"Pairs of {line.title}"
        notes = [_NO_SHIFT]
        shown = filled(columns, lines)
        tables.append(table(lines, f"pairs_{slug(line.title)}", title, shown, notes, detail=True))
    return tables


def _printed_by_network(line: ShiftLine) -> list[dict[str, Any]]:
    """List the published lines of a dataset, one for each paper and network."""
    lines = []
    for source in map(published, NETWORKS):
        rows_by_network: dict[str, list[Mapping[str, Value]]] = defaultdict(list)
        for row, values in source.values.items():
            dataset, network, *_ = row.split("/")  # one row for each environment
            if dataset == line.identity["dataset"]:
                rows_by_network[network].append(values)
        for network, rows in rows_by_network.items():
            cells = {"dataset": line.title, "network": network, "source": source.source}
            for axis, _ in AXES:
                means = []
                for split in range(SPLITS):
                    values_of_split = [values.get(f"{axis}_{split}") for values in rows]
                    present = [value.mean for value in values_of_split if value is not None]
                    if len(present) == len(rows):
                        means.append(mean(present))
                cells |= over_seeds(axis, means, SPLITS, "not readable")
            lines.append(cells)
    return lines


def network_table(setting: ShiftSetting) -> Table | None:
    """List both shifts of a dataset by network, ours and published: mean and deviation over splits
    (Ye et al. 2022).

    None for other estimators than theirs, and where no paper has the dataset by network.
    """
    if setting.identity["estimator"] != "ood_bench" or setting.axes is None:
        return None
    lines = []
    for line in setting.lines:
        printed_lines = _printed_by_network(line)
        if printed_lines:
            network = setting.identity["backbone"]
            cells = {"dataset": line.title, "network": network, "source": "ours"}
            for (axis, _), name in zip(AXES, setting.axes, strict=True):
                cells |= value_cell(line, axis, name)
            lines += [cells, *printed_lines]
    columns = [
        DATASET,
        Column("network", key=True),
        *(Column(axis, title, "distance") for axis, title in AXES),
    ]
    notes = [
        (
            "Published: mean ± standard deviation over splits, of means over environments; "
            "features trained."
        )
    ]
    title = "Both shifts by network, ours and published"
    return (
        table(lines, "networks", title, [*columns, Column("source")], notes, detail=True)
        if lines
        else None
    )


def number_table(setting: ShiftSetting, part: str) -> Table | None:
    """List every value, or every diagnostic (``part``), of all datasets, one line each.

    Returns None if there is none.
    """
    lines = []
    for line in setting.lines:
        for name in setting.names(part):
            if not line.value(name, part=part):
                continue
            cells: dict[str, Any] = {"dataset": line.title, "name": name}
            cells |= value_cell(line, "value", name, part=part)
            cells |= value_cell(line, "null", name, HALVES, part=part)
            cells |= value_cell(line, "labels", name, LABELS, part=part)
            lines.append(cells)
    if not lines:
        return None
    columns = [
        DATASET,
        Column("name", key=True),
        Column("value", "mean over pairs", "distance"),
        Column("null", "no shift", "distance"),
        Column("labels", "labels shuffled", "distance"),
    ]
    if part == DIAGNOSTIC:
        return table(lines, "diagnostics", "Diagnostics", filled(columns, lines), detail=True)
    return table(lines, "values", "Every value", filled(columns, lines), detail=True)


def refusal_table(setting: ShiftSetting) -> Table | None:
    """List the pairs without an estimate, and why; return None if every pair has one."""
    lines = []
    for line in setting.lines:
        for pair, reason in line.pairs["refused"].items():
            if reason:
                lines.append({"dataset": line.title, "pair": pair, "refused": reason})
    if not lines:
        return None
    return table(lines, "refused", "Refused estimates", [DATASET, PAIR, Column("refused", "why")])


def distance_table(setting: ShiftSetting) -> Table:
    """List EMD, MMD² and NI of every dataset with their nulls (Ye et al. 2022, Table 3)."""
    lines = []
    for line in setting.lines:
        cells: dict[str, Any] = {"dataset": line.title, "pairs": pair_text(line)}
        for name in DISTANCE_TITLES:
            cells |= with_null(line, name)
        cells |= entry("mmd2_p", max(values_by_pair(line, "mmd2_p"), default=None))
        lines.append(cells | with_null(line, "ni_pooled"))
    columns = [
        DATASET,
        Column("pairs"),
        *null_columns("emd", "EMD", "earth mover's distance, Euclidean"),
        *null_columns(
            "mmd2",
            "MMD²",
            "unbiased, so it may be negative; Gaussian kernel of the median distance",
        ),
        Column(
            "mmd2_p",
            "p of MMD², largest",
            "distance",
            "permutation test within classes, of the pair least apart",
        ),
        *null_columns(
            "ni",
            "NI",
            "difference of means over deviations, per class, weighted (He et al. 2020, Def. 1)",
        ),
        *null_columns("ni_pooled", "NI, classes pooled"),
    ]
    notes = [
        (
            "Of standardized features, equally many of either side. EMD and NI are above 0 even "
            "without shift and grow with the number of features: read each beside its null."
        ),
    ]
    title = (
        f"Distances of features, mean over pairs [{interval_words(setting, [*DISTANCE_TITLES])}]"
    )
    return table(lines, "distances", title, filled(columns, lines), notes)


def frechet_table(setting: ShiftSetting) -> Table:
    """List distances of the pretraining images to environments (Yu et al. 2024, Table 2)."""
    source = published(PRETRAINING)
    lines = []
    for line in setting.lines:
        for name, facts in line.pairs.iterrows():
            pair = str(name)
            env = str(facts["q"])
            row = f"{line.identity['dataset']}/{env}"
            cells: dict[str, Any] = {"dataset": line.title, "environment": env, "n": facts["n_q"]}
            cells |= value_cell(line, "d2_inf", "d2_inf", pair=pair)
            cells |= with_null(line, "d2", pair)
            cells |= printed(source, row, "gap", "gap published")
            cells |= printed(source, row, "fid", "distance published", other_features(setting))
            lines.append(cells | {"flags": facts["flags"]})
    columns = [
        DATASET,
        Column("environment", key=True),
        Column("n", "images", "count"),
        Column(
            "d2_inf",
            "distance, n to infinity",
            "distance",
            "intercept of least squares of the distance on 1/n",
        ),
        Column(
            "d2", "distance at a common n", "distance", "squared, of Gaussians; biased by about c/n"
        ),
        Column(
            "d2 null",
            "two halves of one environment",
            "distance",
            "the same estimate where the truth is 0",
        ),
        published_column("gap", "gap", "distance", "(linear probing - fine-tuning) / fine-tuning"),
        published_column("distance", "distance", "distance", source.source),
        FLAGS,
    ]
    notes = [
        (
            "Between features of the pretraining images and of an environment, by the network "
            "that is named above. This is no FID, which is of 2,048 features of one certain "
            "Inception network; the published distances are called so."
        ),
        "The scale is that of the features: distances of other networks are not comparable.",
    ]
    if len({cells["n"] for cells in lines}) > 1:
        notes.append(
            "Environments have different numbers of images: rank the distances for n to infinity "
            "alone."
        )
    title = f"Frechet distance, {setting.identity['backbone']}/{setting.identity['init']}"
    return table(lines, "frechet", title, filled(columns, lines), notes)
