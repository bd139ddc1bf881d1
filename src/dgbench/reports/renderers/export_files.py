"""Files for other programs: tables as CSV and Parquet (errors are fractions), figures as PNG and SVG."""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.reports.document import Document
from dgbench.reports.tables import Table

MISSING = "report.parquet is not written: pyarrow is not installed; pip install 'dgbench[parquet]'"
_NUMBERS = {"value": "float64", "std": "float64", "low": "float64", "high": "float64", "n": "Int64"}
_PARTS = ("value", "text", "std", "n", "low", "high", "flag", "reason")


def write_csv(document: Document, folder: Path) -> list[Path]:
    """``<table>.csv``: its lines in full precision with all that stands beside the values.

    For programs: a name that begins with ``=`` stands there as it is; a spreadsheet must import such a column as text.
    """
    tables: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for section in document.sections:
        for table in section.tables:
            own = table.frame
            if "section" not in own:
                own = own.assign(section=section.title)[["section", *own.columns]]
            tables[table.name].append(own)
    tables[document.problems.name] = [document.problems.frame]
    paths = []
    for name, parts in tables.items():
        paths.append(folder / f"{name}.csv")
        pd.concat(parts, ignore_index=True).to_csv(paths[-1], index=False)
    return paths


def write_parquet(document: Document, folder: Path) -> list[Path]:
    """``report.parquet``: every value of every table, see :func:`long_frame`; nothing without pyarrow."""
    if not parquet_available():
        return []
    tables = [(table, section.title) for section in document.sections for table in section.tables]
    path = folder / "report.parquet"
    long_frame(tables or [(document.problems, "")]).to_parquet(path, engine="pyarrow", index=False)
    return [path]


def parquet_available() -> bool:
    """Whether pandas can write Parquet."""
    return importlib.util.find_spec("pyarrow") is not None


def long_frame(tables: Iterable[tuple[Table, str]]) -> pd.DataFrame:
    """One line per value of these tables.

    Args:
        tables: each with the title of its section.

    Returns:
        Columns ``section``, ``table``, ``key`` (what names the line, ``scale=1, ratio=3``), ``quantity`` (title of the
        column), ``value`` (a number), ``text`` (a value that is none), ``std``, ``n``, ``low``, ``high``, ``flag``,
        ``reason``.
    """
    made: dict[str, list[Any]] = {name: [] for name in ("section", "table", "key", "quantity", *_PARTS)}
    for table, section in tables:
        _add(made, table, section)
    return pd.DataFrame(made).astype({**_NUMBERS, **dict.fromkeys(("text", "flag", "reason"), object)})


def _add(made: dict[str, list[Any]], table: Table, section: str) -> None:
    keys = [column for column in table.columns if column.key]
    named = [
        ", ".join(f"{column.title or column.name}={value}" for column, value in zip(keys, line, strict=True))
        for line in table.frame[[column.name for column in keys]].astype(object).to_numpy()
    ]
    for column in table.columns:
        if column.key:
            continue
        values = table.frame[column.name].tolist()
        made["section"] += [section] * len(named)
        made["table"] += [table.name] * len(named)
        made["key"] += named
        made["quantity"] += [column.title or column.name] * len(named)
        made["value"] += [_number(each) if column.numeric else None for each in values]
        made["text"] += [each if isinstance(each, str) else None for each in values]
        for kind in _PARTS[2:]:
            name = f"{column.name}.{kind}"
            made[kind] += table.frame[name].tolist() if name in table.frame else [None] * len(named)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def write_files(document: Document, folder: Path) -> list[Path]:
    """Files that a report brings along as text, under their own names."""
    paths = [folder / name for name in document.files]
    for path in paths:
        path.write_text(document.files[path.name], encoding="utf-8")
    return paths


_OPEN = (
    '<?xml version="1.0" encoding="utf-8"?>\n'
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'style="color: #1c2024; background: #ffffff" '
)


def write_png(document: Document, folder: Path) -> list[Path]:
    """``<figure name>.png`` for every figure."""
    paths = []
    for section in document.sections:
        for figure in section.figures:
            paths.append(folder / f"{figure.name}.png")
            paths[-1].write_bytes(figure.png)
    return paths


def write_svg(document: Document, folder: Path) -> list[Path]:
    """``<figure name>.svg`` for every figure, dark ink on white, text as text."""
    paths = []
    for section in document.sections:
        for figure in section.figures:
            paths.append(folder / f"{figure.name}.svg")
            text = re.sub(r'<svg( style="[^"]*")? ', _OPEN, figure.svg, count=1)
            paths[-1].write_text(text, encoding="utf-8")
    return paths
