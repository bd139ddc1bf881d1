"""How estimates become cells: a value with its interval, beside it the null, and what a reader must know."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dgbench.analysis.accuracy import mean
from dgbench.records.shift_rows import HALVES, NO_NULL
from dgbench.reports.over_seeds import standard_deviation
from dgbench.reports.shift.pair_values import ALL_PAIRS, VALUE
from dgbench.reports.shift.shift_estimates import ShiftSetting
from dgbench.reports.shift.verdicts import value_line
from dgbench.reports.tables import Column, entry

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
