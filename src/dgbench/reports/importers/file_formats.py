"""What one file of another tool holds, whatever its format: CSV, Parquet, Excel, JSON or LaTeX."""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.errors import RecordError
from dgbench.records.files import check_unpacked, read_regular
from dgbench.records.predictions import parquet_size
from dgbench.reports.importers import latex
from dgbench.reports.importers.cells import has_point_groups
from dgbench.reports.importers.headers import check_names, is_footnote, nameless, read_header
from dgbench.reports.reading.folders import ASSUMED, Problem, printable
from dgbench.validation import shown

_MOST_CELLS = 50_000_000  # of a sheet, empty ones between others included
DOMAINBED_FILE = "results.jsonl"  #: of DomainBed, whose records are no table
_COMMENTS = re.compile(r"\A(\s*#[^\n]*\n)+")  # before the names of the columns
_SAMPLE = 65536  # characters from which the separator of a file is guessed
_RULE = " |+:=-"  # what lines between those of a drawn table consist of


@dataclass(frozen=True)
class ForeignTable:
    """One table of a file."""

    file: str  #: its path, printable
    part: str  #: name of the sheet or ``tabular``; empty if the file holds one table
    frame: pd.DataFrame
    lines: NDArray[np.int64] | None = None  #: of the file, from 1; None: records are counted

    def place(self, row: int) -> str:
        """Say where a row of the frame stands: ``line 7``, ``record 6``."""
        if self.lines is None:
            return f"record {row + 1}"
        return f"line {self.lines[row]}"

    @property
    def name(self) -> str:
        """The file, with its part."""
        return f"{self.file} [{self.part}]" if self.part else self.file


def is_table(path: str | Path) -> bool:
    """Return whether a file's name ends as that of a table does."""
    return Path(path).suffix.lower() in READERS


def read_file(file: Path, problems: list[Problem]) -> list[ForeignTable]:
    """Read the tables of a file by the ending of its name.

    Args:
        file: any file.
        problems: receives what had to be assumed.

    Raises:
        RecordError: it is no table, or cannot be read.
    """
    name = printable(file)
    if not is_table(file):
        raise RecordError(
            f"{name} is no table (its name ends in none of {', '.join(READERS)}); rename or "
            "convert it"
        )
    try:
        content = read_regular(file)
        if not content.strip():
            raise RecordError(
                f"{name} is empty; name a file with a line of column names and lines of values"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pandas warns of a line that is cut
            # of formats and checks of cells that it does not keep; values are read all the same
            warnings.filterwarnings("ignore", module=r"openpyxl\b")
            tables = READERS[file.suffix.lower()](content, name, problems)
    except OSError as error:
        raise RecordError(
            f"{name} cannot be read ({error.strerror or error}); name a file of a table"
        ) from None
    except ImportError as error:
        package = {".xlsx": "openpyxl", ".parquet": "pyarrow"}.get(file.suffix.lower(), error.name)
        raise RecordError(
            f"{name} needs the package {package}; pip install {package}, or save it as CSV"
        ) from None
    except RecordError:
        raise
    except Exception as error:  # whatever pandas and its engines raise
        reason = " ".join(str(error).split())[:200]
        raise RecordError(
            f"{name} is no whole table ({reason}); correct that line, or save it again"
        ) from None
    for table in tables:
        check_names(list(table.frame.columns), table.name)
    return tables


def _with_words(read: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """Read a frame in which NA among words is one: an environment may be called so.

    Counts stay text if they are written with points, ``10.000``, which may be 10 or ten thousand.

    Args:
        read: with options of pandas' readers of text and of sheets.
    """
    frame = read()
    worded = [
        name for name in frame if frame[name].dtype.kind not in "iufb" and frame[name].isna().any()
    ]
    whole = [name for name in frame if _is_whole(frame[name])]
    if not worded and not whole:
        return frame
    as_text = read(dtype=str, keep_default_na=False)
    for column in worded:
        is_word = frame[column].isna() & (as_text[column].astype(str).str.strip() == "NA")
        frame[column] = frame[column].mask(is_word, "NA")
    for column in whole:
        if has_point_groups(as_text[column].astype(str)):
            frame[column] = as_text[column]
    return frame


def _is_whole(column: pd.Series[Any]) -> bool:
    """Return whether a column of floats holds whole numbers alone, as 10.000 and 12.000."""
    if column.dtype.kind != "f" or column.isna().any():
        return False
    return bool((column == column.round()).all())


def _decoded(content: bytes, name: str, problems: list[Problem]) -> str:
    """Decode a file of text: UTF-8, UTF-16 with or without its mark, or Latin-1, which is said."""
    sample = content[:_SAMPLE]
    encoding = "utf-8-sig"
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif sample[1::2].count(0) > len(sample) // 4:
        encoding = "utf-16-le"
    elif sample[::2].count(0) > len(sample) // 4:
        encoding = "utf-16-be"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            raise RecordError(f"{name} ends within a character of UTF-16; copy it again") from error
        text = content.decode("cp1252", errors="replace")
        problems.append(Problem(ASSUMED, name, "no UTF-8: read as Latin-1 (Windows-1252)"))
    nul = text.find("\0")
    if nul >= 0:
        line = text.count("\n", 0, nul) + 1
        raise RecordError(f"{name} holds a NUL character in line {line}; copy it again")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _csv(content: bytes, name: str, problems: list[Problem]) -> list[ForeignTable]:
    text = _decoded(content, name, problems)
    comments = _COMMENTS.match(text)
    skipped = comments[0].count("\n") if comments else 0
    physical = text.splitlines(keepends=True) if text.isascii() else _split(text)
    physical = physical[skipped:]
    beginning = "".join(physical[:50])[:_SAMPLE].split("\n")
    first = next((line for line in beginning if line.strip(_RULE)), "")
    separator = max("\t;,|", key=first.count)
    numbered = list(enumerate(physical, start=skipped + 1))
    if separator == "|":  # as Markdown and PrettyTable draw
        numbered = [(place, line) for place, line in numbered if line.strip(_RULE + "\n")]
    if numbered and not numbered[-1][1].endswith("\n"):
        ends = "its last line has no line break at its end, and is taken as whole"
        problems.append(Problem(ASSUMED, name, ends))
    header, texts, places_of_lines = _records(numbered, separator, name, problems)
    names, height = read_header(header, name, problems)
    body = "".join(texts[height:])
    lines = np.array(places_of_lines[height:], dtype=np.int64)
    columns = nameless(names)
    if not body:
        return [ForeignTable(name, "", pd.DataFrame(columns=columns), lines)]

    def read(**options: Any) -> pd.DataFrame:
        frame: pd.DataFrame = pd.read_csv(
            io.StringIO(body),
            sep=separator,
            skipinitialspace=True,
            index_col=False,
            low_memory=False,
            header=None,
            names=columns,
            **options,
        )
        return frame

    return [ForeignTable(name, "", _with_words(read), lines)]


def _split(text: str) -> list[str]:
    """Split a text at line breaks alone; ``splitlines`` also does at rare characters of Unicode."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _records(
    numbered: Sequence[tuple[int, str]], separator: str, name: str, problems: list[Problem]
) -> tuple[list[list[str]], list[str], list[int]]:
    """Part a text into records; footnotes are left out.

    Returns:
        the cells of the first three, the text of each, and the line where each begins.

    Raises:
        RecordError: a record has more or fewer cells than the first.
    """
    header: list[list[str]] = []
    texts: list[str] = []
    places_of_lines: list[int] = []
    width = 0
    blank = f"{separator} \n"
    for place, text, count in _parted(numbered, separator):
        if not text.strip():
            continue
        _check_quotes(text, separator, width, f"{name}: the quotation mark in line {place}")
        width = width or count
        lonely = count < width or (len(texts) > 2 and separator not in text.strip(blank))
        if width > 2 and lonely and is_footnote(_cells(text, separator)):
            _leave_out_footnote(name, place, text, problems)
            continue
        if count != width:
            raise RecordError(
                f"{name} has {count} cells in line {place}, {width} in the one of names; "
                "is it cut, or does a cell hold the separator? Correct it"
            )
        if len(header) < 3:
            header.append(_cells(text, separator))
        texts.append(text)
        places_of_lines.append(place)
    return header, texts, places_of_lines


def _parted(numbered: Sequence[tuple[int, str]], separator: str) -> Iterator[tuple[int, str, int]]:
    """Yield each record: the line where it begins, its text, and how many cells it has."""
    if not any('"' in line for _, line in numbered):
        for place, line in numbered:
            yield place, line, line.count(separator) + 1
        return
    reader = csv.reader((line for _, line in numbered), delimiter=separator, skipinitialspace=True)
    start = 0
    for cells in reader:  # a cell in quotation marks may hold separators and line breaks
        text = "".join(line for _, line in numbered[start : reader.line_num])
        yield numbered[start][0], text, len(cells)
        start = reader.line_num


def _check_quotes(text: str, separator: str, width: int, mark: str) -> None:
    """Refuse a record over several lines where a quotation mark too many made it of them.

    Args:
        text: of the record.
        separator: of its cells.
        width: how many cells each record has; 0 of the first.
        mark: for messages.

    Raises:
        RecordError: the mark is never closed, or what it holds are whole lines of the table.
    """
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return
    try:
        list(csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True))
    except csv.Error as error:
        if "end of data" in str(error):
            raise RecordError(f"{mark} is never closed; close or drop it") from None
    if all(line.count(separator) + 1 == width for line in lines):
        raise RecordError(f"{mark} holds {len(lines)} whole lines; drop it and the one that closes")


def _cells(text: str, separator: str) -> list[str]:
    return next(
        csv.reader(text.splitlines(keepends=True), delimiter=separator, skipinitialspace=True)
    )


def _leave_out_footnote(name: str, place: int, text: str, problems: list[Problem]) -> None:
    reason = f"line {place}, a footnote: {shown(text.strip())}"
    problems.append(Problem("lines left out", name, reason))


def _parquet(content: bytes, name: str, problems: list[Problem]) -> list[ForeignTable]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(content))
    check_unpacked(name, len(content), parquet_size(file))
    return [ForeignTable(name, "", pd.read_parquet(io.BytesIO(content)))]


def _excel(content: bytes, name: str, problems: list[Problem]) -> list[ForeignTable]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
    check_unpacked(name, len(content), unpacked)
    sheets = _sheets(content, name)
    tables = []
    for sheet, header in sheets.items():
        source = f"{name} [{sheet}]" if len(sheets) > 1 else name
        names, height = read_header(header, source, problems) if header else ([], 1)
        tables.append(_sheet(content, name, sheet, nameless(names), height, problems))
    if len(tables) == 1:
        return [ForeignTable(name, "", tables[0].frame, tables[0].lines)]
    return tables


def _sheet(
    content: bytes,
    name: str,
    sheet: str,
    columns: list[str],
    height: int,
    problems: list[Problem],
) -> ForeignTable:
    """Read one sheet below its rows of names."""

    def read(**options: Any) -> pd.DataFrame:
        frame: pd.DataFrame = pd.read_excel(
            io.BytesIO(content), sheet_name=sheet, header=None, skiprows=height, **options
        )
        missing = range(frame.shape[1], len(columns))
        frame = frame.reindex(columns=[*frame.columns, *missing])
        if frame.shape[1] > len(columns):
            raise RecordError(f"{name} [{sheet}] has values in a column without a name; name it")
        frame.columns = pd.Index(columns)
        return frame

    frame = _with_words(read)
    lines = np.arange(len(frame), dtype=np.int64) + height + 1
    filled = frame.notna().sum(axis=1).to_numpy()
    used = filled > 0
    for row in np.flatnonzero((filled == 1) & (len(columns) > 2)):
        text = str(frame.iloc[row].dropna().iloc[0])
        if is_footnote([text]):
            used[row] = False
            _leave_out_footnote(f"{name} [{sheet}]", int(lines[row]), text, problems)
    return ForeignTable(name, sheet, frame[used].reset_index(drop=True), lines[used])


def _sheets(content: bytes, name: str) -> dict[str, list[list[str]]]:
    """Read the first three rows of every sheet, as text.

    Raises:
        RecordError: cells of one are so far apart that the empty ones between them would fill the
            memory.
    """
    openpyxl: Any = importlib.import_module("openpyxl")  # optional, and without types
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    headers: dict[str, list[list[str]]] = {}
    for sheet in book.worksheets:
        width = 0
        header: list[list[str]] = []
        for height, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            width = max(width, len(row))
            if height * width > _MOST_CELLS:
                raise RecordError(
                    f"{name} has a sheet of more than {_MOST_CELLS:,} cells, most of them empty; "
                    "delete what stands far from the table, or save it as CSV"
                )
            if height <= 3:
                header.append(["" if cell is None else str(cell) for cell in row])
        headers[sheet.title] = [row + [""] * (width - len(row)) for row in header]
    book.close()
    return headers


def _json(content: bytes, name: str, problems: list[Problem]) -> list[ForeignTable]:
    text = _decoded(content, name, problems)
    lines: NDArray[np.int64] | None = None
    if text.lstrip().startswith("["):
        records = json.loads(text, object_pairs_hook=_without_repetitions)
    else:
        numbered = [(k, line) for k, line in enumerate(text.split("\n"), 1) if line.strip()]
        lines = np.array([place for place, _ in numbered], dtype=np.int64)
        records = [_json_line(line, place, name) for place, line in numbered]
    if not all(type(record) is dict for record in records):
        raise RecordError(
            f"{name} holds no records; write one JSON object a line, {{column: value}}"
        )
    nested = any(type(value) is dict for record in records[:100] for value in record.values())
    frame = pd.json_normalize(records) if nested else pd.DataFrame(records)
    return [ForeignTable(name, "", frame, lines)]


def _json_line(line: str, place: int, name: str) -> Any:
    try:
        return json.loads(line, object_pairs_hook=_without_repetitions)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or str(error) or "too deep"
        raise RecordError(
            f"{name} has no JSON object in line {place} ({reason}); correct it, or delete the line"
        ) from None


def _without_repetitions(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"{max(names, key=names.count)} is there twice")
    return record


def _latex(content: bytes, name: str, problems: list[Problem]) -> list[ForeignTable]:
    text = _decoded(content, name, problems)
    tables = []
    for tabular in latex.tabulars(text, name):
        source = f"{name} [{tabular.title}]"
        width = len(tabular.rows[0].cells)
        rows = []
        for row in tabular.rows:
            if width > 2 and is_footnote(row.cells):
                _leave_out_footnote(source, row.line, max(row.cells, key=len), problems)
            elif len(row.cells) == width:
                rows.append(row)
            else:
                raise RecordError(
                    f"{source} has one cell in line {row.line}, {row.cells[0]}; correct it"
                )
        header = [row.cells for row in rows[:3]]
        names, height = read_header(header, source, problems)
        body = [row.cells for row in rows[height:]]
        frame = pd.DataFrame(body, columns=nameless(names), dtype=object)
        lines = np.array([row.line for row in rows[height:]], dtype=np.int64)
        tables.append(ForeignTable(name, tabular.title, frame, lines))
    if not tables:
        raise RecordError(f"{name} holds no tabular; name a file with one")
    return tables


#: ending of a file -> what reads its content
READERS: dict[str, Callable[[bytes, str, list[Problem]], list[ForeignTable]]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), _csv),
    **dict.fromkeys((".jsonl", ".json"), _json),
    ".parquet": _parquet,
    ".xlsx": _excel,
    ".tex": _latex,
}
