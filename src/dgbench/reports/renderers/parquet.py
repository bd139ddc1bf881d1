"""All values in one Parquet file, for whoever goes on in pandas, polars or DuckDB."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from dgbench.reports.document import Document
from dgbench.reports.renderers.tidy import text, values

MISSING = "report.parquet is not written: pyarrow is not installed; pip install 'dgbench[parquet]'"


def parquet_available() -> bool:
    """True when pandas can write Parquet."""
    return importlib.util.find_spec("pyarrow") is not None


def write_parquet(document: Document, folder: Path) -> list[Path]:
    """``report.parquet``; nothing without pyarrow, which the command line then says (:data:`MISSING`).

    Columns: section, table, key (what names the line, ``scale=1, ratio=3``), quantity, value (a number; errors are
    fractions), text (a value that is no number), std, low, high, n, reason.
    """
    if not parquet_available():
        return []
    import pandas as pd

    lines = [
        {
            "section": v.section,
            "table": v.table,
            "key": ", ".join(f"{title}={key}" for title, key in zip(v.key_titles, v.keys, strict=True)),
            "quantity": v.quantity,
            "value": v.value if isinstance(v.value, float) else None,
            "text": text(v.value) if isinstance(v.value, str) else None,
            "std": v.std,
            "low": v.low,
            "high": v.high,
            "n": v.n,
            "reason": v.reason,
        }
        for v in values(document)
    ]
    kinds = {"value": "float64", "std": "float64", "low": "float64", "high": "float64", "n": "Int64"}
    names = ["section", "table", "key", "quantity", "value", "text", "std", "low", "high", "n", "reason"]
    path = folder / "report.parquet"
    pd.DataFrame(lines, columns=names).astype(kinds).to_parquet(path, engine="pyarrow", index=False)
    return [path]
