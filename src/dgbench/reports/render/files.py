"""Writes a document in every format, and tables as CSV and Parquet (errors are fractions), figures as PNG and SVG."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.errors import RecordError
from dgbench.reports.document import Document
from dgbench.reports.render.latex import write_latex
from dgbench.reports.render.page import write_html
from dgbench.reports.render.text import write_markdown
from dgbench.reports.tables import Table

MISSING = "report.parquet is not written: pyarrow is not installed; pip install 'dgbench[parquet]'"
_MOST_LISTED = 12
_NUMBERS = {"value": "float64", "std": "float64", "low": "float64", "high": "float64", "n": "Int64"}
_BESIDE = ("std", "n", "low", "high", "flag", "reason")
_OPEN = (
    '<?xml version="1.0" encoding="utf-8"?>\n'
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'style="color: #1c2024; background: #ffffff" '
)


def write(document: Document, folder: str | Path) -> list[Path]:
    """Write all formats into ``folder``, which is made when it is not there.

    Raises:
        RecordError: the folder cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [path for writer in WRITERS for path in writer(document, folder)]
    except OSError as error:
        raise RecordError(f"cannot write {error.filename or folder} ({error.strerror}); choose output=DIR") from error


def listed(paths: Sequence[Path]) -> list[str]:
    """Name one file a line, or one kind of file where there are many, the page first."""
    paths = sorted(paths, key=lambda path: path.suffix != ".html")
    if len(paths) <= _MOST_LISTED:
        return [f"  {path}" for path in paths]
    kinds = Counter((path.parent, path.suffix) for path in paths)
    alone = [path for path in paths if kinds[path.parent, path.suffix] == 1]
    many = [f"  {folder}/*{suffix} ({count} files)" for (folder, suffix), count in kinds.items() if count > 1]
    return [*(f"  {path}" for path in alone), *many]


def write_csv(document: Document, folder: Path) -> list[Path]:
    """Write ``<table>.csv``: its lines in full precision with all that stands beside the values.

    For programs: a name that begins with ``=`` stands there as it is; a spreadsheet must import such a column as text.
    """
    frames: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for section in document.sections:
        for table in section.tables:
            frame = table.frame
            if "section" not in frame:
                frame = frame.assign(section=section.title)[["section", *frame.columns]]
            frames[table.name].append(frame)
    frames[document.problems.name] = [document.problems.frame]
    for name, parts in frames.items():
        pd.concat(parts, ignore_index=True).to_csv(folder / f"{name}.csv", index=False)
    return [folder / f"{name}.csv" for name in frames]


def write_parquet(document: Document, folder: Path) -> list[Path]:
    """Write ``report.parquet``: every value of every table, see :func:`long_frame`; nothing without pyarrow."""
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
    """Set the values of these tables below one another.

    Args:
        tables: each with the title of its section.

    Returns:
        Columns ``section``, ``table``, ``key`` (what names the line, ``scale=1, ratio=3``), ``quantity`` (title of the
        column), ``value`` (a number), ``text`` (a value that is none), ``std``, ``n``, ``low``, ``high``, ``flag``,
        ``reason``.
    """
    lines: dict[str, list[Any]] = {k: [] for k in ("section", "table", "key", "quantity", "value", "text", *_BESIDE)}
    for table, section in tables:
        frame, keys = table.frame, [column for column in table.columns if column.key]
        named = [
            ", ".join(f"{column.title or column.name}={value}" for column, value in zip(keys, line, strict=True))
            for line in frame[[column.name for column in keys]].astype(object).to_numpy()
        ]
        for column in (column for column in table.columns if not column.key):
            values = frame[column.name].tolist()
            numbers = [v if column.numeric and isinstance(v, (int, float)) else None for v in values]
            lines["section"] += [section] * len(named)
            lines["table"] += [table.name] * len(named)
            lines["key"] += named
            lines["quantity"] += [column.title or column.name] * len(named)
            lines["value"] += numbers
            lines["text"] += [value if isinstance(value, str) else None for value in values]
            for kind in _BESIDE:
                name = f"{column.name}.{kind}"
                lines[kind] += frame[name].tolist() if name in frame else [None] * len(named)
    return pd.DataFrame(lines).astype({**_NUMBERS, **dict.fromkeys(("text", "flag", "reason"), object)})


def write_texts(document: Document, folder: Path) -> list[Path]:
    """Write the files that a report brings along as text, under their own names."""
    for name, text in document.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in document.files]


def write_figures(document: Document, folder: Path) -> list[Path]:
    """Write ``<figure>.png`` and ``<figure>.svg``, dark ink on white, text as text."""
    figures = [figure for section in document.sections for figure in section.figures]
    for figure in figures:
        (folder / f"{figure.name}.png").write_bytes(figure.png)
        svg = re.sub(r'<svg( style="[^"]*")? ', _OPEN, figure.svg, count=1)
        (folder / f"{figure.name}.svg").write_text(svg, encoding="utf-8")
    return [folder / f"{figure.name}.{kind}" for kind in ("png", "svg") for figure in figures]


WRITERS: tuple[Callable[[Document, Path], list[Path]], ...] = (
    write_markdown,
    write_latex,
    write_csv,
    write_parquet,
    write_texts,
    write_html,  # from here on with figures, which are drawn meanwhile
    write_figures,
)
