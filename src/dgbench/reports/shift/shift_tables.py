"""Tables of diversity and correlation shift, of every pair, of diagnostics and of what was refused."""

from __future__ import annotations

from typing import Any

from dgbench.records.shift_rows import HALVES, LABELS
from dgbench.reports.labels import slug
from dgbench.reports.published import Published, published
from dgbench.reports.shift.pair_values import DIAGNOSTIC
from dgbench.reports.shift.shift_columns import (
    DATASET,
    PAIR,
    class_text,
    exact_cell,
    filled,
    flag_text,
    interval_words,
    null_columns,
    pair_text,
    pairs_of,
    value_cell,
    with_null,
)
from dgbench.reports.shift.shift_estimates import ShiftSetting
from dgbench.reports.shift.shift_intervals import HALF_SAMPLING, SPREAD
from dgbench.reports.shift.shift_published import (
    DISTANCES,
    caution,
    other_features,
    pair_rows,
    printed,
    printed_row,
)
from dgbench.reports.shift.verdicts import value_line, verdicts
from dgbench.reports.tables import Column, Table, entry, table

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
        setting: of :func:`~dgbench.reports.shift.shift_estimates.shift_settings`.
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
        part: :data:`~dgbench.reports.shift.pair_values.VALUE` or ``DIAGNOSTIC``.
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
