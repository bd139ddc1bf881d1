"""All values of a document, one to a line, to compare them with those of before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from dgbench.reports.tables import Column, Table

_NUMBERS = {"value": "float64", "std": "float64", "low": "float64", "high": "float64", "n": "Int64"}
#: titles that were renamed -> as the archive has them; names of columns in CSV files are the same
_FORMER = {
    "minus": "less",
    "cost": "degradation",
    "largest cost": "largest degradation",
    "cost, chosen on the mean": "degradation (mean)",
}
_BESIDE = ("std", "n", "low", "high", "flag", "reason")


def long_frame(tables: Iterable[tuple[Table, str]]) -> pd.DataFrame:
    """Stack the values of these tables into one long frame, a line for each value.

    Args:
        tables: each with the title of its section.

    Returns:
        Columns ``section``, ``table``, ``key`` (what names the line, ``scale=1, ratio=3``),
        ``quantity`` (title of the column), ``value`` (a number), ``text`` (a value that is none),
        ``std``, ``n``, ``low``, ``high``, ``flag``, ``reason``, ``reference`` (whether the line is
        no result but what results are compared with).
    """
    names = ("section", "table", "key", "quantity", "value", "text", *_BESIDE, "reference")
    lines: dict[str, list[Any]] = {name: [] for name in names}
    for table, section in tables:
        frame, keys = table.frame, [column for column in table.columns if column.key]
        named = [
            ", ".join(f"{_title(column)}={value}" for column, value in zip(keys, line, strict=True))
            for line in frame[[column.name for column in keys]].astype(object).to_numpy()
        ]
        for column in (column for column in table.columns if not column.key):
            values = frame[column.name].tolist()
            numbers = [
                v if column.numeric and isinstance(v, (int, float)) else None for v in values
            ]
            lines["section"] += [section] * len(named)
            lines["table"] += [table.name] * len(named)
            lines["key"] += named
            lines["quantity"] += [_title(column)] * len(named)
            lines["value"] += numbers
            lines["text"] += [value if isinstance(value, str) else None for value in values]
            for kind in _BESIDE:
                name = f"{column.name}.{kind}"
                lines[kind] += frame[name].tolist() if name in frame else [None] * len(named)
            lines["reference"] += table.references
    return pd.DataFrame(lines).astype(
        {**_NUMBERS, **dict.fromkeys(("text", "flag", "reason"), object)}
    )


def _title(column: Column) -> str:
    title = column.title or column.name
    return _FORMER.get(title, title)
