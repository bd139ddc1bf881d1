"""How estimates become cells: a value with its interval, beside it the null, and what a reader must know."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from dgbench.errors import ConfigError
from dgbench.records.shift_rows import HALVES, LABELS, NO_NULL
from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.published import Published, published, shifts
from dgbench.reports.reading.shift_estimates import (
    ALL_PAIRS,
    DIAGNOSTIC,
    VALUE,
    ShiftLine,
    ShiftSetting,
    value_line,
    verdicts,
)
from dgbench.reports.settings.labels import slug
from dgbench.reports.settings.over_seeds import mean, standard_deviation
from dgbench.statistics.shift_intervals import HALF_SAMPLING, SPREAD

DATASET = Column("dataset", key=True)
PAIR = Column("pair", key=True)
NULL_HELP = "the same estimate between two halves of both sides together, where every shift is 0: noise and bias"


def value_cell(
    setting: ShiftSetting,
    column: str,
    dataset: str,
    name: str,
    *,
    null: str = NO_NULL,
    pair: str = ALL_PAIRS,
    part: str = VALUE,
) -> dict[str, Any]:
    """An estimate with its interval as part of a line, marked where a pair lacks it; or why there is none."""
    line = value_line(setting, dataset, name, null, pair, part)
    if line is None:
        return entry(column, reason=_why_absent(setting, dataset, pair, null))
    own = setting.pairs[setting.pairs["dataset"] == dataset]
    flag = f"({line['pairs']} of {len(own)} pairs)" if pair == ALL_PAIRS and line["pairs"] < len(own) else ""
    low, high = (None if pd.isna(line[end]) else float(line[end]) for end in ("low", "high"))
    return entry(column, float(line["value"]), low=low, high=high, n=int(line["trials"]), flag=flag)


def with_null(setting: ShiftSetting, dataset: str, name: str, pair: str = ALL_PAIRS) -> dict[str, Any]:
    """The value and that of the null pair, in columns ``NAME`` and ``NAME null``."""
    return {
        **value_cell(setting, name, dataset, name, pair=pair),
        **value_cell(setting, f"{name} null", dataset, name, null=HALVES, pair=pair),
    }


def null_columns(name: str, title: str, meaning: str = "") -> list[Column]:
    """The columns of :func:`with_null`."""
    return [
        Column(name, title, "distance", meaning),
        Column(f"{name} null", f"{title}, no shift", "distance", NULL_HELP),
    ]


def over_pairs(setting: ShiftSetting, column: str, dataset: str, name: str) -> dict[str, Any]:
    """Mean ± sample standard deviation over the pairs of a dataset (Zhang et al. 2023); of one pair its interval."""
    lines = [value_line(setting, dataset, name, pair=pair) for pair in pairs_of(setting, dataset)]
    found = [float(line["value"]) for line in lines if line]
    if len(found) < 2:
        return value_cell(setting, column, dataset, name)
    return entry(column, mean(found), std=standard_deviation(found), n=len(found))


def exact_cell(setting: ShiftSetting, column: str, dataset: str, name: str, pair: str = ALL_PAIRS) -> dict[str, Any]:
    """The true value as part of a line, where the construction of the dataset tells it."""
    line = value_line(setting, dataset, name, pair=pair)
    known = line is not None and not pd.isna(line["exact"])
    return entry(column, float(line["exact"]) if line is not None and known else None)


def pairs_of(setting: ShiftSetting, dataset: str) -> list[str]:
    """Names of the pairs of a dataset."""
    own: list[str] = setting.pairs.loc[setting.pairs["dataset"] == dataset, "pair"].tolist()
    return own


def pair_text(setting: ShiftSetting, dataset: str) -> str:
    """``4 folds``, ``6 pairs``, ``3 environments``."""
    kind = str(setting.line_of(dataset).identity["pairs"])
    count = len(pairs_of(setting, dataset))
    word = {"folds": "fold", "each": "pair", "reference": "environment"}.get(kind, kind)
    return f"{count} {word}{'s' * (count != 1)}"


def class_text(setting: ShiftSetting, dataset: str) -> str:
    """Classes that count of those that there are, ``7 of 7``; ``5 to 7 of 7`` where pairs differ."""
    own = setting.pairs[setting.pairs["dataset"] == dataset]
    fewest, most, of = int(own["classes"].min()), int(own["classes"].max()), int(own["of"].max())
    return f"{fewest} of {of}" if fewest == most else f"{fewest} to {most} of {of}"


def flag_text(setting: ShiftSetting, dataset: str, pair: str = ALL_PAIRS) -> str:
    """What a reader must know of a dataset's pairs, each text once, with the number of pairs where it is not all."""
    own = setting.pairs[setting.pairs["dataset"] == dataset]
    own = own if pair == ALL_PAIRS else own[own["pair"] == pair]
    count: dict[str, int] = {}
    for text in own["flags"]:
        for each in filter(None, text.split("; ")):
            count[each] = count.get(each, 0) + 1
    return "; ".join(each if n == len(own) else f"{each} ({n} of {len(own)} pairs)" for each, n in count.items())


def filled(columns: list[Column], lines: list[dict[str, Any]]) -> list[Column]:
    """The columns less those that have no value in any line."""
    return [c for c in columns if c.key or any(line.get(c.name) not in (None, "") for line in lines)]


def interval_words(setting: ShiftSetting, names: list[str] | None = None) -> str:
    """Which kinds of intervals stand in a setting's values: ``95%, half-sampling``."""
    frame = setting.values[(setting.values["null"] == NO_NULL) & (setting.values["part"] == VALUE)]
    frame = frame if names is None else frame[frame["name"].isin(names)]
    kinds = sorted(set(frame["interval"]) - {"none"})
    return f"95%, {' and '.join(kinds)}" if kinds else "one trial, no interval"


def _why_absent(setting: ShiftSetting, dataset: str, pair: str, null: str) -> str:
    if null != NO_NULL:
        return "not estimated (null=true)"
    own = setting.pairs[setting.pairs["dataset"] == dataset]
    own = own if pair == ALL_PAIRS else own[own["pair"] == pair]
    return next((text for text in own["refused"] if text), "not estimated")


# What papers printed for a dataset, and how far that is from an estimate.

OTHER_FEATURES = "(other features)"
FROZEN = "frozen"
FOLDS = "folds"
#: what stands beside the estimators that have no choice of sources
COVARIATE_AND_CONCEPT, DISTANCES, PRETRAINING = "zhang2023_table1", "ye2022_table3", "yu2024_table2"


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
    return OTHER_FEATURES if setting.identity["features"] == FROZEN else ""


def printed(table: Published | None, row: str, column: str, name: str, flag: str = "") -> dict[str, Any]:
    """A printed value as part of a line; an empty one where the table has none.

    Args:
        table: of a paper.
        row: dataset, ``DATASET/ENVIRONMENT`` or ``DATASET/PAIR``.
        column: of the table.
        name: of the column that it becomes.
        flag: stands after it.
    """
    value = table.values.get(row.replace(" ", "_"), {}).get(column) if table else None
    return entry(name) if value is None else entry(name, value.mean, std=value.error, flag=flag)


def printed_row(line: ShiftLine) -> str:
    """The row of a table of whole datasets; those are of the folds of a protocol, never of every two environments."""
    return str(line.identity["dataset"]) if line.identity["pairs"] == FOLDS else ""


def pair_rows(line: ShiftLine, pair: str) -> tuple[str, str]:
    """The row of a table of pairs; distances are symmetric, so it may be under either order."""
    dataset, swapped = line.identity["dataset"], "|".join(reversed(pair.split("|")))
    return f"{dataset}/{pair}", f"{dataset}/{swapped}"


def points(table: Published) -> dict[str, tuple[float, float]]:
    """Dataset -> its place in the plane, diversity first."""
    return {row: (line["div"].mean, line["cor"].mean) for row, line in table.values.items()}


def nearest(div: float, cor: float, table: Published) -> tuple[str, float]:
    """The dataset whose printed place is nearest (Euclidean), and its distance."""
    apart = {row: math.dist((div, cor), place) for row, place in points(table).items()}
    name = min(apart, key=lambda row: (apart[row], row))
    return name, apart[name]


def short_source(table: Published) -> str:
    """``Yu et al. 2024, Table 2``."""
    paper, *_, place = table.source.split(", ")
    return f"{paper}, {place}"


def caution(setting: ShiftSetting, table: Published) -> str:
    """Why printed numbers may not be compared with a setting's without thought."""
    unlike = []
    if setting.identity["estimator"] != "ood_bench":
        unlike.append("another estimator")
    if setting.formula != table.formula:
        unlike.append(f"other formulas ({table.formula}, here {setting.formula})")
    if other_features(setting):
        unlike.append("features trained with the estimate, here frozen ones")
    words = f" They come from {', and '.join(unlike)}: compare the order, not the size." if unlike else ""
    return f"Published: {table.source}; {table.note}.{words}"


# Tables of diversity and correlation shift, of every pair, of diagnostics and of what was refused.

AXES = (("div", "diversity"), ("cor", "correlation"))
_NO_SHIFT = (
    "No shift: the same estimate between two halves of both sides together, where the truth is 0. It shows noise and "
    "bias."
)
_INTERVALS = {
    HALF_SAMPLING: "Half-sampling: Student's t times the standard deviation of estimates on halves of the images.",
    SPREAD: "Spread of trials: Student's t interval of their mean; they share their images, so it is too narrow.",
}


def shift_table(setting: ShiftSetting, theirs: Published | None = None) -> Table | None:
    """One line per dataset: both shifts with intervals, their nulls, exact and published values.

    Args:
        setting: of :func:`~dgbench.reports.reading.shift_estimates.shift_settings`.
        theirs: a published table of shifts.

    Returns:
        the table, or None for an estimator of other values.
    """
    if setting.axes is None:
        return None
    said, lines, beside = verdicts(setting), [], False
    for each in setting.lines:
        line: dict[str, Any] = {"dataset": each.title, "pairs": pair_text(setting, each.title),
                                "classes": class_text(setting, each.title)}  # fmt: skip
        for (axis, _), name in zip(AXES, setting.axes, strict=True):
            line |= value_cell(setting, axis, each.title, name)
            line |= value_cell(setting, f"{axis} null", each.title, name, null=HALVES)
            line |= exact_cell(setting, f"{axis} exact", each.title, name)
            line |= printed(theirs, printed_row(each), axis, f"{axis} published", other_features(setting))
            beside = beside or line[f"{axis} published"] is not None
        line |= value_cell(setting, "cor labels", each.title, setting.axes[1], null=LABELS)
        found = value_line(setting, each.title, setting.axes[0])
        line["interval"] = found["interval"] if found else None
        line |= entry("verdict", said[each.title].kind or "none", reason=said[each.title].why)
        lines.append(line | {"flags": flag_text(setting, each.title)})
    columns = [DATASET, Column("pairs"), Column("classes", help="that count, in both sides of every pair")]
    for axis, title in AXES:
        columns += [
            *null_columns(axis, title),
            Column(f"{axis} exact", f"{title}, exact", "distance", "from the construction of the dataset"),
            Column(f"{axis} published", f"{title}, published", "distance", theirs.source if theirs else ""),
        ]
    shuffled = "with labels shuffled on either side, which leaves no correlation shift"
    columns += [
        Column("cor labels", "correlation, labels shuffled", "distance", shuffled),
        Column("interval", help="what the interval is made of"),
        Column("verdict", help="which shift dominates, where intervals tell it from no shift"),
        Column("flags"),
    ]
    kinds = {str(line["interval"]) for line in lines}
    notes = [
        *(text for kind, text in _INTERVALS.items() if kind in kinds),
        _NO_SHIFT,
        *([caution(setting, theirs)] if theirs and beside else []),
    ]
    words = interval_words(setting, list(setting.axes))
    title = f"Diversity and correlation shift, mean over pairs [{words}]"
    return table(lines, "shift", title, filled(columns, lines), notes)


def pair_tables(setting: ShiftSetting, names: dict[str, str]) -> list[Table]:
    """A table per dataset with one line per pair.

    Args:
        setting: any.
        names: name of a value -> title of its column.
    """
    return [_pair_table(setting, line.title, names) for line in setting.lines]


def _pair_table(setting: ShiftSetting, dataset: str, names: dict[str, str]) -> Table:
    of_pair = setting.pairs[setting.pairs["dataset"] == dataset].set_index("pair")
    lines, theirs, line_of = [], published(DISTANCES), setting.line_of(dataset)
    for pair in pairs_of(setting, dataset):
        facts = of_pair.loc[pair]
        line: dict[str, Any] = {"pair": pair, "p": facts["p"], "q": facts["q"], "n": facts["n_p"], "of q": facts["n_q"],
                                "classes": f"{facts['classes']} of {facts['of']}"}  # fmt: skip
        row = next((row for row in pair_rows(line_of, pair) if row in theirs.values), "")
        for name in names:
            line |= with_null(setting, dataset, name, pair)
            line |= exact_cell(setting, f"{name} exact", dataset, name, pair)
            line |= printed(theirs, row, name, f"{name} published", other_features(setting))
        lines.append(line | {"dropped": facts["dropped"], "flags": facts["flags"]})
    columns = [
        PAIR,
        Column("p"),
        Column("q"),
        Column("n", "images of p", "count"),
        Column("of q", "images of q", "count"),
    ]
    columns.append(Column("classes"))
    for name, title in names.items():
        columns += [
            *null_columns(name, title),
            Column(f"{name} exact", f"{title}, exact", "distance"),
            Column(f"{name} published", f"{title}, published", "distance", theirs.source),
        ]
    columns += [Column("dropped", "classes left out (images of p/q)"), Column("flags")]
    return table(lines, f"pairs_{slug(dataset)}", f"Pairs of {dataset}", filled(columns, lines), [_NO_SHIFT], True)


def number_table(setting: ShiftSetting, part: str) -> Table | None:
    """Every value, or every diagnostic, of all datasets: one line each; None where there is none.

    Args:
        setting: any.
        part: :data:`~dgbench.reports.reading.shift_estimates.VALUE` or ``DIAGNOSTIC``.
    """
    known = list(dict.fromkeys(setting.values.loc[setting.values["part"] == part, "name"]))
    lines = []
    for each in setting.lines:
        for name in known:
            if value_line(setting, each.title, name, part=part) is None:
                continue
            line = {"dataset": each.title, "name": name}
            line |= value_cell(setting, "value", each.title, name, part=part)
            line |= value_cell(setting, "null", each.title, name, null=HALVES, part=part)
            lines.append(line | value_cell(setting, "labels", each.title, name, null=LABELS, part=part))
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
    refused = setting.pairs[setting.pairs["refused"] != ""]
    if not len(refused):
        return None
    columns = [DATASET, PAIR, Column("refused", "why")]
    lines = refused[["dataset", "pair", "refused"]].to_dict("records")
    return table(lines, "refused", "Refused estimates", columns)  # type: ignore[arg-type]
