"""Tables of estimated shift: diversity and correlation of every dataset, pairs, every number, and what was refused.

An estimate becomes a cell with its interval; beside it stand its null, the exact value where the construction of the
dataset tells it, and what papers printed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.analysis.accuracy import mean
from dgbench.analysis.shift_verdicts import HALF_SAMPLING, NO_INTERVAL, SPREAD
from dgbench.errors import ConfigError
from dgbench.records.shift_rows import HALVES, LABELS, NO_NULL
from dgbench.reports.labels import slug
from dgbench.reports.over_seeds import standard_deviation
from dgbench.reports.published import Published, published, shifts
from dgbench.reports.reading.shifts import ALL_PAIRS, DIAGNOSTIC, VALUE, ShiftLine, ShiftSetting, verdicts
from dgbench.reports.tables import Column, Table, entry, table

DATASET, PAIR, FLAGS = Column("dataset", key=True), Column("pair", key=True), Column("flags")
NULL_HELP = "the same estimate between two halves of both sides together, where every shift is 0: noise and bias"
OTHER_FEATURES = "(other features)"
#: what stands beside the estimators that have no choice of sources
COVARIATE_AND_CONCEPT, DISTANCES, PRETRAINING = "zhang2023_table1", "ye2022_table3", "yu2024_table2"
AXES = (("div", "diversity"), ("cor", "correlation"))
_NO_SHIFT = (
    "No shift: the same estimate between two halves of both sides together, where the truth is 0. It shows noise and "
    "bias."
)
_INTERVALS = {
    HALF_SAMPLING: "Half-sampling: Student's t times the standard deviation of estimates on halves of the images.",
    SPREAD: "Spread of trials: Student's t interval of their mean; they share their images, so it is too narrow.",
}


def value_cell(
    line: ShiftLine, column: str, name: str, null: str = NO_NULL, pair: str = ALL_PAIRS, part: str = VALUE
) -> dict[str, Any]:
    """An estimate with its interval as part of a table's line, marked where a pair lacks it; or why there is none."""
    estimate = line.value(name, null, pair, part)
    if estimate is None:
        if null != NO_NULL:
            return entry(column, reason="not estimated (null=true)")
        refused = line.pairs["refused"] if pair == ALL_PAIRS else line.pairs.loc[[pair], "refused"]
        return entry(column, reason=next((text for text in refused if text), "not estimated"))
    missing = pair == ALL_PAIRS and estimate.pairs < len(line.pairs)
    flag = f"({estimate.pairs} of {len(line.pairs)} pairs)" if missing else ""
    return entry(column, estimate.value, low=estimate.low, high=estimate.high, n=estimate.trials, flag=flag)


def with_null(line: ShiftLine, name: str, pair: str = ALL_PAIRS) -> dict[str, Any]:
    """The value and that of the null pair, in columns ``NAME`` and ``NAME null``."""
    return value_cell(line, name, name, pair=pair) | value_cell(line, f"{name} null", name, HALVES, pair)


def null_columns(name: str, title: str, meaning: str = "") -> list[Column]:
    """The columns of :func:`with_null`."""
    return [
        Column(name, title, "distance", meaning),
        Column(f"{name} null", f"{title}, no shift", "distance", NULL_HELP),
    ]


def over_pairs(line: ShiftLine, name: str) -> dict[str, Any]:
    """Mean ± sample standard deviation over the pairs of a dataset (Zhang et al. 2023); of one pair its interval."""
    values = [estimate.value for pair in line.pairs.index if (estimate := line.value(name, pair=pair))]
    if len(values) < 2:
        return value_cell(line, name, name)
    return entry(name, mean(values), std=standard_deviation(values), n=len(values))


def exact_cell(line: ShiftLine, column: str, name: str, pair: str = ALL_PAIRS) -> dict[str, Any]:
    """The true value as part of a table's line, where the construction of the dataset tells it."""
    estimate = line.value(name, pair=pair)
    return entry(column, estimate.exact if estimate else None)


def pair_text(line: ShiftLine) -> str:
    """``4 folds``, ``6 pairs``, ``3 environments``."""
    kind, count = str(line.identity["pairs"]), len(line.pairs)
    word = {"folds": "fold", "each": "pair", "reference": "environment"}.get(kind, kind)
    return f"{count} {word}{'s' * (count != 1)}"


def class_text(line: ShiftLine) -> str:
    """Classes that count of those that there are, ``7 of 7``; ``5 to 7 of 7`` where pairs differ."""
    classes = line.pairs["classes"]
    fewest = "" if classes.min() == classes.max() else f"{classes.min()} to "
    return f"{fewest}{classes.max()} of {line.pairs['of'].max()}"


def flag_text(line: ShiftLine) -> str:
    """What a reader must know of a dataset's pairs, each text once, with the number of pairs where it is not all."""
    count = Counter(flag for text in line.pairs["flags"] for flag in text.split("; ") if flag)
    of = len(line.pairs)
    return "; ".join(flag if n == of else f"{flag} ({n} of {of} pairs)" for flag, n in count.items())


def filled(columns: Sequence[Column], lines: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The columns less those that have no value in any line."""
    return [c for c in columns if c.key or any(line.get(c.name) not in (None, "") for line in lines)]


def interval_words(setting: ShiftSetting, names: Sequence[str]) -> str:
    """Which kinds of intervals values of these names have: ``95%, half-sampling``."""
    kinds = {
        estimate.interval
        for line in setting.lines
        for (part, null, _, name), estimate in line.values.items()
        if (part, null) == (VALUE, NO_NULL) and name in names
    }
    kinds.discard(NO_INTERVAL)
    return f"95%, {' and '.join(sorted(kinds))}" if kinds else "one trial, no interval"


def published_shifts(name: str | None) -> Published | None:
    """The table of diversity and correlation shift of that name; None for None.

    Raises:
        ConfigError: there is no such table.
    """
    if name is None:
        return None
    if name not in shifts():
        raise ConfigError(f"report.published={name} is no table of shifts; choose one of {', '.join(shifts())}")
    return published(name)


def other_features(setting: ShiftSetting) -> str:
    """What marks printed numbers: the papers trained the features that their estimates are of."""
    return OTHER_FEATURES if setting.identity["features"] == "frozen" else ""


def printed(source: Published | None, row: str, column: str, name: str, flag: str = "") -> dict[str, Any]:
    """A printed value as part of a table's line; an empty one where the paper's table has none.

    Args:
        source: table of a paper.
        row: dataset, ``DATASET/ENVIRONMENT`` or ``DATASET/PAIR``.
        column: of the paper's table.
        name: of the column that it becomes.
        flag: stands after it.
    """
    value = source.values.get(row.replace(" ", "_"), {}).get(column) if source else None
    return entry(name) if value is None else entry(name, value.mean, std=value.error, flag=flag)


def points(source: Published) -> dict[str, tuple[float, float]]:
    """Dataset -> its printed place in the plane, diversity first."""
    return {row: (values["div"].mean, values["cor"].mean) for row, values in source.values.items()}


def nearest(div: float, cor: float, source: Published) -> tuple[str, float]:
    """The dataset whose printed place is nearest (Euclidean), and its distance."""
    apart = {row: math.dist((div, cor), place) for row, place in points(source).items()}
    name = min(apart, key=lambda row: (apart[row], row))
    return name, apart[name]


def shift_table(setting: ShiftSetting, source: Published | None = None) -> Table | None:
    """One line per dataset: both shifts with intervals, their nulls, exact and published values.

    Args:
        setting: of :func:`~dgbench.reports.reading.shifts.shift_settings`.
        source: a published table of shifts.

    Returns:
        The table, or None for an estimator of other values.
    """
    if setting.axes is None:
        return None
    verdict_of, lines = verdicts(setting), []
    for line in setting.lines:
        cells: dict[str, Any] = {"dataset": line.title, "pairs": pair_text(line), "classes": class_text(line)}
        # tables of whole datasets are of the folds of a protocol, never of every two environments
        row = str(line.identity["dataset"]) if line.identity["pairs"] == "folds" else ""
        for (axis, _), name in zip(AXES, setting.axes, strict=True):
            cells |= value_cell(line, axis, name)
            cells |= value_cell(line, f"{axis} null", name, HALVES)
            cells |= exact_cell(line, f"{axis} exact", name)
            cells |= printed(source, row, axis, f"{axis} published", other_features(setting))
        cells |= value_cell(line, "cor labels", setting.axes[1], LABELS)
        estimate = line.value(setting.axes[0])
        cells["interval"] = estimate.interval if estimate else None
        cells |= entry("verdict", verdict_of[line.title].kind or "none", reason=verdict_of[line.title].why)
        lines.append(cells | {"flags": flag_text(line)})
    columns = [DATASET, Column("pairs"), Column("classes", help="that count, in both sides of every pair")]
    for axis, title in AXES:
        columns += [
            *null_columns(axis, title),
            Column(f"{axis} exact", f"{title}, exact", "distance", "from the construction of the dataset"),
            Column(f"{axis} published", f"{title}, published", "distance", source.source if source else ""),
        ]
    shuffled = "with labels shuffled on either side, which leaves no correlation shift"
    columns += [
        Column("cor labels", "correlation, labels shuffled", "distance", shuffled),
        Column("interval", help="what the interval is made of"),
        Column("verdict", help="which shift dominates, where intervals tell it from no shift"),
        FLAGS,
    ]
    notes = [text for kind, text in _INTERVALS.items() if any(cells["interval"] == kind for cells in lines)]
    notes.append(_NO_SHIFT)
    if source and any(cells[f"{axis} published"] is not None for cells in lines for axis, _ in AXES):
        notes.append(_caution(setting, source))
    title = f"Diversity and correlation shift, mean over pairs [{interval_words(setting, setting.axes)}]"
    return table(lines, "shift", title, filled(columns, lines), notes)


def _caution(setting: ShiftSetting, source: Published) -> str:
    """Why printed numbers may not be compared with a setting's without thought."""
    unlike = []
    if setting.identity["estimator"] != "ood_bench":
        unlike.append("another estimator")
    if setting.formula != source.formula:
        unlike.append(f"other formulas ({source.formula}, here {setting.formula})")
    if other_features(setting):
        unlike.append("features trained with the estimate, here frozen ones")
    words = f" They come from {', and '.join(unlike)}: compare the order, not the size." if unlike else ""
    return f"Published: {source.source}; {source.note}.{words}"


def pair_tables(setting: ShiftSetting, names: Mapping[str, str]) -> list[Table]:
    """A table per dataset with one line per pair.

    Args:
        setting: any.
        names: name of a value -> title of its column.
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
            Column(f"{name} published", f"{title}, published", "distance", source.source),
        ]
    columns += [Column("dropped", "classes left out (images of p/q)"), FLAGS]
    tables = []
    for line in setting.lines:
        lines = []
        for pair, facts in line.pairs.iterrows():
            cells = {"pair": pair, "p": facts["p"], "q": facts["q"], "n": facts["n_p"], "of q": facts["n_q"]}
            cells["classes"] = f"{facts['classes']} of {facts['of']}"
            # distances are symmetric, so that a pair may be printed under either order
            rows = [f"{line.identity['dataset']}/{order}" for order in (pair, "|".join(reversed(str(pair).split("|"))))]
            row = next((row for row in rows if row in source.values), "")
            for name in names:
                cells |= with_null(line, name, str(pair))
                cells |= exact_cell(line, f"{name} exact", name, str(pair))
                cells |= printed(source, row, name, f"{name} published", other_features(setting))
            lines.append(cells | {"dropped": facts["dropped"], "flags": facts["flags"]})
        file, title = f"pairs_{slug(line.title)}", f"Pairs of {line.title}"
        tables.append(table(lines, file, title, filled(columns, lines), [_NO_SHIFT], detail=True))
    return tables


def number_table(setting: ShiftSetting, part: str) -> Table | None:
    """Every value, or every diagnostic, of all datasets: one line each; None where there is none.

    Args:
        setting: any.
        part: :data:`~dgbench.reports.reading.shifts.VALUE` or ``DIAGNOSTIC``.
    """
    lines = [
        {"dataset": line.title, "name": name}
        | value_cell(line, "value", name, part=part)
        | value_cell(line, "null", name, HALVES, part=part)
        | value_cell(line, "labels", name, LABELS, part=part)
        for line in setting.lines
        for name in setting.names(part)
        if line.value(name, part=part)
    ]
    if not lines:
        return None
    columns = [
        DATASET,
        Column("name", key=True),
        Column("value", "mean over pairs", "distance"),
        Column("null", "no shift", "distance"),
        Column("labels", "labels shuffled", "distance"),
    ]
    name, title = ("diagnostics", "Diagnostics") if part == DIAGNOSTIC else ("values", "Every value")
    return table(lines, name, title, filled(columns, lines), detail=True)


def refusal_table(setting: ShiftSetting) -> Table | None:
    """Pairs without an estimate and why; None where every pair has one."""
    lines = [
        {"dataset": line.title, "pair": pair, "refused": why}
        for line in setting.lines
        for pair, why in line.pairs["refused"].items()
        if why
    ]
    return table(lines, "refused", "Refused estimates", [DATASET, PAIR, Column("refused", "why")]) if lines else None
