"""Cells of estimated shift: an estimate with its interval, its null, exact and printed values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.analysis.accuracy import mean
from dgbench.analysis.shift_verdicts import NO_INTERVAL
from dgbench.records.shift_rows import HALVES, NO_NULL
from dgbench.reports.over_seeds import standard_deviation
from dgbench.reports.published import Published
from dgbench.reports.published.beside import published_cell, published_value
from dgbench.reports.reading.shift_settings import ALL_PAIRS, VALUE, ShiftLine, ShiftSetting
from dgbench.reports.tables import Column, entry

DATASET = Column("dataset", key=True)
PAIR = Column("pair", key=True)
FLAGS = Column("flags")
NULL_HELP = (
    "the same estimate between two halves of both sides together, where every shift is 0: noise "
    "and bias"
)
OTHER_FEATURES = "(other features)"


def value_cell(
    line: ShiftLine,
    column: str,
    name: str,
    null: str = NO_NULL,
    pair: str = ALL_PAIRS,
    part: str = VALUE,
) -> dict[str, Any]:
    """Build the cell of an estimate with its interval, flagged where pairs lack it.

    Without an estimate it holds the reason.
    """
    estimate = line.value(name, null, pair, part)
    if estimate is None:
        if null != NO_NULL:
            return entry(column, reason="not estimated (null=true)")
        refused = line.pairs["refused"] if pair == ALL_PAIRS else line.pairs.loc[[pair], "refused"]
        return entry(column, reason=next((text for text in refused if text), "not estimated"))
    incomplete = pair == ALL_PAIRS and estimate.pairs < len(line.pairs)
    flag = f"({estimate.pairs} of {len(line.pairs)} pairs)" if incomplete else ""
    return entry(
        column, estimate.value, low=estimate.low, high=estimate.high, n=estimate.trials, flag=flag
    )


def with_null(line: ShiftLine, name: str, pair: str = ALL_PAIRS) -> dict[str, Any]:
    """Build the cells of a value and of that of the null pair, in columns ``NAME`` and ``NAME
    null``.
    """
    return value_cell(line, name, name, pair=pair) | value_cell(
        line, f"{name} null", name, HALVES, pair
    )


def null_columns(name: str, title: str, meaning: str = "") -> list[Column]:
    """Define the columns of :func:`with_null`."""
    return [
        Column(name, title, "distance", meaning),
        Column(f"{name} null", f"{title}, no shift", "distance", NULL_HELP),
    ]


def values_by_pair(line: ShiftLine, name: str) -> list[float]:
    """List the value of that name of every pair that has it."""
    estimates = [line.value(name, pair=pair) for pair in line.pairs.index]
    return [estimate.value for estimate in estimates if estimate]


def over_pairs(line: ShiftLine, name: str) -> dict[str, Any]:
    """Compute mean ± sample standard deviation over a dataset's pairs (Zhang et al. 2023).

    Of a single pair it is the value with its interval.
    """
    values = values_by_pair(line, name)
    if len(values) < 2:
        return value_cell(line, name, name)
    return entry(name, mean(values), std=standard_deviation(values), n=len(values))


def exact_cell(line: ShiftLine, column: str, name: str, pair: str = ALL_PAIRS) -> dict[str, Any]:
    """Build the cell of the true value, or an empty one if it is not known.

    It is known of datasets whose construction tells it.
    """
    estimate = line.value(name, pair=pair)
    return entry(column, estimate.exact if estimate else None)


def pair_text(line: ShiftLine) -> str:
    """Format the number of pairs by their kind: ``4 folds``, ``6 pairs``, ``3 environments``."""
    kind = str(line.identity["pairs"])
    count = len(line.pairs)
    word = {"folds": "fold", "each": "pair", "reference": "environment"}.get(kind, kind)
    return f"{count} {word}{'s' * (count != 1)}"


def class_text(line: ShiftLine) -> str:
    """Format how many of all classes are used: ``7 of 7``; ``5 to 7 of 7`` where pairs differ."""
    classes = line.pairs["classes"]
    fewest = "" if classes.min() == classes.max() else f"{classes.min()} to "
    return f"{fewest}{classes.max()} of {line.pairs['of'].max()}"


def flag_text(line: ShiftLine) -> str:
    """Join the flags of a dataset's pairs, each text once.

    A flag that not all pairs have is followed by the number of pairs that have it.
    """
    counts = Counter[str]()
    for text in line.pairs["flags"]:
        counts.update(flag for flag in text.split("; ") if flag)
    n_pairs = len(line.pairs)
    texts = []
    for flag, n in counts.items():
        texts.append(flag if n == n_pairs else f"{flag} ({n} of {n_pairs} pairs)")
    return "; ".join(texts)


def filled(columns: Sequence[Column], lines: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Drop the columns, other than keys, that have no value in any line."""
    present: set[str] = set()
    for line in lines:
        present.update(name for name, value in line.items() if value not in (None, ""))
    return [column for column in columns if column.key or column.name in present]


def interval_words(setting: ShiftSetting, names: Sequence[str]) -> str:
    """Name the kinds of intervals that these values have.

    For example ``95%, half-sampling``, or ``one trial, no interval``.
    """
    kinds = set()
    for line in setting.lines:
        for (part, null, _, name), estimate in line.values.items():
            if (part, null) == (VALUE, NO_NULL) and name in names:
                kinds.add(estimate.interval)
    kinds.discard(NO_INTERVAL)
    return f"95%, {' and '.join(sorted(kinds))}" if kinds else "one trial, no interval"


def other_features(setting: ShiftSetting) -> str:
    """Return the flag of printed numbers beside frozen features (papers trained theirs).

    It is an empty text beside trained ones.
    """
    return OTHER_FEATURES if setting.identity["features"] == "frozen" else ""


def printed(
    source: Published | None, row: str, column: str, name: str, flag: str = ""
) -> dict[str, Any]:
    """Build the cell of a printed value, in column ``name``.

    It is empty if the paper's table has none, or if there is no paper.

    Rows of papers are datasets, ``DATASET/ENVIRONMENT`` or ``DATASET/PAIR``.
    """
    if source is None:
        return entry(name)
    return published_cell(name, published_value(source, row, column), flag=flag)
