"""Files of tables as data frames: CSV, TSV, Parquet, JSON lines, Excel; several files are put one below the other."""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.errors import RecordError
from dgbench.records.files import read_regular
from dgbench.reports.reading.folders import ASSUMED, Problem, places, printable

_RESULTS = "results.jsonl"  # of DomainBed, whose records are no table
_COMMENTS = re.compile(r"\A(\s*#[^\n]*\n)+")  # before the names of the columns
_SAMPLE = 65536  # characters from which the separator of a file is told


def read_frames(path: Any, problems: list[Problem]) -> pd.DataFrame:
    """The lines of all files of tables that a user named, or that lie in a folder.

    Args:
        path: a file, a folder, or several of them.
        problems: receives what had to be assumed.

    Raises:
        RecordError: there is none, or one cannot be read.
    """
    if not places(path):
        raise RecordError("no table to import; name a file with import.path=FILE")
    files = [file for place in places(path) for file in _files(place)]
    frames = [_read(file, problems) for file in files]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def is_table(path: str | Path) -> bool:
    """Whether a file's name ends as that of a table does."""
    return Path(path).suffix.lower() in READERS


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    if next(place.rglob(_RESULTS), None):
        raise RecordError(
            f"{printable(place)} holds {_RESULTS}, the records of DomainBed; use import=domainbed import.path={place}"
        )
    files = sorted(file for file in place.rglob("*") if is_table(file) and not file.name.startswith("."))
    if not files:
        raise RecordError(f"no file *{', *'.join(READERS)} under {printable(place)}; name a file with import.path=FILE")
    return files


def _read(file: Path, problems: list[Problem]) -> pd.DataFrame:
    name = printable(file)
    if not is_table(file):
        raise RecordError(f"{name} is no table (its name ends in none of {', '.join(READERS)}); rename or convert it")
    try:
        content = read_regular(file)
        if not content.strip():
            raise RecordError(f"{name} is empty; name a file with a line of column names and lines of values")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pandas warns of a line that is cut
            frame = READERS[file.suffix.lower()](content, name, problems)
    except OSError as error:
        raise RecordError(f"{name} cannot be read ({error.strerror or error}); name a file of a table") from None
    except ImportError as error:
        package = {".xlsx": "openpyxl", ".parquet": "pyarrow"}.get(file.suffix.lower(), error.name)
        raise RecordError(f"{name} needs the package {package}; pip install {package}, or save it as CSV") from None
    except RecordError:
        raise
    except Exception as error:  # whatever pandas and its engines raise
        reason = " ".join(str(error).split())[:200]
        raise RecordError(f"{name} is no whole table ({reason}); correct that line, or save it again") from None
    check_names(list(frame.columns), name)
    return frame


def check_names(names: Sequence[Any], where: str) -> None:
    """Refuse columns of one name.

    Raises:
        RecordError: there are some.
    """
    if twice := [name for at, name in enumerate(names) if name in names[:at]]:
        raise RecordError(f"{where} has two columns {twice[0]}; rename one")


def _csv(content: bytes, name: str, problems: list[Problem]) -> pd.DataFrame:
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
        problems.append(Problem(ASSUMED, name, "no UTF-8: read as Latin-1 (Windows-1252)"))
    text = _COMMENTS.sub("", text)
    first = next((line for line in text[:_SAMPLE].splitlines() if line.strip(" |+:=-")), "")
    separator = max("\t;,|", key=first.count)
    if separator == "|":  # as Markdown and PrettyTable draw
        text = "\n".join(line for line in text.splitlines() if line.strip(" |+:=-"))
    check_names([cell.strip() for cell in next(csv.reader([first], delimiter=separator)) if cell.strip()], name)
    decimal = "," if separator == ";" else "."
    return pd.read_csv(
        io.StringIO(text), sep=separator, decimal=decimal, skipinitialspace=True, index_col=False, low_memory=False
    ).rename(columns=lambda column: str(column).strip())


def _json(content: bytes, name: str, problems: list[Problem]) -> pd.DataFrame:
    text = content.decode("utf-8-sig")
    records = json.loads(text) if text.lstrip().startswith("[") else [json.loads(x) for x in text.splitlines() if x]
    if not all(type(record) is dict for record in records):
        raise RecordError(f"{name} holds no records; write one JSON object a line, {{column: value}}")
    nested = any(type(value) is dict for record in records[:100] for value in record.values())
    return pd.json_normalize(records) if nested else pd.DataFrame(records)


#: ending of a file -> what reads its content
READERS: dict[str, Callable[[bytes, str, list[Problem]], pd.DataFrame]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), _csv),
    **dict.fromkeys((".jsonl", ".json"), _json),
    ".parquet": lambda content, name, problems: pd.read_parquet(io.BytesIO(content)),
    ".xlsx": lambda content, name, problems: pd.read_excel(io.BytesIO(content)),
}
