"""Tables that somebody else wrote, as data frames: their files, what each column holds, and the
values of their cells.

Files are CSV, TSV, Parquet, JSON lines or Excel; several are put one below the other. Columns are
found by their names (:data:`ALIASES`) or named by the user; whatever had to be assumed is said in
one line; what is ambiguous is refused.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.errors import ConfigError, RecordError
from dgbench.records.files import check_unpacked, read_regular
from dgbench.records.predictions import parquet_size
from dgbench.records.rows import LARGEST_COUNT, LONGEST
from dgbench.reports.reading.folders import ASSUMED, Problem, places, printable
from dgbench.validation import shown, some_of

Floats = NDArray[np.float64]

#: what a column holds -> letters and digits of its usual names; those behind | count where none of
#: the first is there
ALIASES = {
    "algorithm": "algorithm | algo alg method model approach",
    "seed": "seed trialseed | trial run repetition rep replicate randomseed",
    "environment": "environment env domain",
    "held_out": "heldout testenv testenvs testdomain testdomains testenvironment target targetdomain ted",
    "role": "role",
    "fold": "fold",
    "error": "error | err testerror testerr errorrate",
    "accuracy": "accuracy | acc testacc testaccuracy accavg top1 top1acc acc1",
    "wrong": "wrong | misclassified nwrong",
    "n": "n | seen images nimages ntest count total",
    "standard_error": "standarderror | stderr se sem",
    "dataset": "dataset | benchmark",
    "subset": "subset split",
    "step": "step | steps iteration epoch",
    "draw": "draw hparamsseed paramindex",
    "backbone": "backbone | network arch architecture",
    "init": "init | pretraining weights",
    "status": "status state",
}
AUTO = "auto"  #: of a key: its column is found by its usual names
HPARAMS = "hparams."  #: what the column of a hyperparameter begins with
# W&B's and MLflow's, before a name
_EXPORTED = re.compile(r"^(config|params|metrics|summary|args|tags)[./]")
_DOMAINBED = re.compile(r"env\d+_(in|out)(_acc)?")
_MARKS = re.compile(r"\\(textbf|textit|underline|mathbf)|[{}$*~]")
# each character can be matched in one way, or a long cell would take the square of its length
_CELL = (
    r"^(?P<mean>[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+|inf))\s*(?:%\s*)?"
    r"(?:[±(]\s*(?P<error>\d+(?:\.\d+)?|\.\d+)\s*(?:%\s*)?\)?)?$"
)
_LONGEST_NUMBER = 200  # characters of a cell that may be one
_MOST_CELLS = 50_000_000  # of a sheet, empty ones between others included
_AVERAGE = {"avg", "average", "mean"}
#: cells that hold no value
NOTHING = {
    "",
    "-",
    "\u2013",
    "\u2014",
    "nan",
    "none",
    "null",
    "n/a",
    "na",
}
_RESULTS = "results.jsonl"  # of DomainBed, whose records are no table
_COMMENTS = re.compile(r"\A(\s*#[^\n]*\n)+")  # before the names of the columns
_SAMPLE = 65536  # characters from which the separator of a file is told


def read_frames(path: Any, problems: list[Problem]) -> pd.DataFrame:
    """Read the lines of all files of tables that a user named, or that lie in a folder.

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
    """Return whether a file's name ends as that of a table does."""
    return Path(path).suffix.lower() in READERS


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    if next(place.rglob(_RESULTS), None):
        raise RecordError(
            f"{printable(place)} holds {_RESULTS}, the records of DomainBed; use import=domainbed "
            f"import.path={place}"
        )
    files = sorted(
        file for file in place.rglob("*") if is_table(file) and not file.name.startswith(".")
    )
    if not files:
        raise RecordError(
            f"no file *{', *'.join(READERS)} under {printable(place)}; name a file with "
            "import.path=FILE"
        )
    return files


def _read(file: Path, problems: list[Problem]) -> pd.DataFrame:
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
            frame = READERS[file.suffix.lower()](content, name, problems)
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
    check_names(list(frame.columns), name)
    return frame


def check_names(names: Sequence[Any], source: str) -> None:
    """Refuse two columns of one name.

    Raises:
        RecordError: there are some.
    """
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise RecordError(f"{source} has two columns {twice}; rename one")


def _with_words(read: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """Read a frame in which NA among words is one: an environment may be called so.

    Args:
        read: with options of pandas' readers of text and of sheets.
    """
    frame = read()
    worded = [
        name for name in frame if frame[name].dtype.kind not in "iufb" and frame[name].isna().any()
    ]
    if not worded:
        return frame
    as_text = read(dtype=str, keep_default_na=False)
    for column in worded:
        is_word = frame[column].isna() & (as_text[column].astype(str).str.strip() == "NA")
        frame[column] = frame[column].mask(is_word, "NA")
    return frame


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
    check_names(
        [cell.strip() for cell in next(csv.reader([first], delimiter=separator)) if cell.strip()],
        name,
    )
    decimal = "," if separator == ";" else "."

    def read(**options: Any) -> pd.DataFrame:
        frame: pd.DataFrame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            decimal=decimal,
            skipinitialspace=True,
            index_col=False,
            low_memory=False,
            **options,
        )
        return frame.rename(columns=lambda column: str(column).strip())

    return _with_words(read)


def _parquet(content: bytes, name: str, problems: list[Problem]) -> pd.DataFrame:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(content))
    check_unpacked(name, len(content), parquet_size(file))
    return pd.read_parquet(io.BytesIO(content))


def _excel(content: bytes, name: str, problems: list[Problem]) -> pd.DataFrame:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
    check_unpacked(name, len(content), unpacked)
    _check_sheet(content, name)
    return _with_words(lambda **options: pd.read_excel(io.BytesIO(content), **options))


def _check_sheet(content: bytes, name: str) -> None:
    """Refuse a sheet whose cells are so far apart that the empty ones between them would fill the
    memory.

    Raises:
        RecordError: it is one.
    """
    openpyxl: Any = importlib.import_module("openpyxl")  # optional, and without types
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    width = 0
    rows = book.worksheets[0].iter_rows(values_only=True)
    for height, row in enumerate(rows, start=1):
        width = max(width, len(row))
        if height * width > _MOST_CELLS:
            raise RecordError(
                f"{name} has a sheet of more than {_MOST_CELLS:,} cells, most of them empty; "
                "delete what stands far from the table, or save it as CSV"
            )
    book.close()


def _json(content: bytes, name: str, problems: list[Problem]) -> pd.DataFrame:
    text = content.decode("utf-8-sig")
    records = (
        json.loads(text)
        if text.lstrip().startswith("[")
        else [json.loads(x) for x in text.splitlines() if x]
    )
    if not all(type(record) is dict for record in records):
        raise RecordError(
            f"{name} holds no records; write one JSON object a line, {{column: value}}"
        )
    nested = any(type(value) is dict for record in records[:100] for value in record.values())
    return pd.json_normalize(records) if nested else pd.DataFrame(records)


#: ending of a file -> what reads its content
READERS: dict[str, Callable[[bytes, str, list[Problem]], pd.DataFrame]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), _csv),
    **dict.fromkeys((".jsonl", ".json"), _json),
    ".parquet": _parquet,
    ".xlsx": _excel,
}


class Columns:
    """A table and what its columns hold.

    Args:
        frame: as it was read.
        where: what it is called in messages.
        problems: receives what is assumed and left out.
    """

    def __init__(self, frame: pd.DataFrame, source: str, problems: list[Problem]) -> None:
        self.frame, self.where, self.problems = frame, source, problems
        self.wide = False  #: each environment had a column
        self.unit = ""  #: of the values, once they were read
        self.height = len(frame)  #: lines, as they are counted in messages
        self.column: dict[str, Any] = {}  #: key of :data:`ALIASES` -> column
        self.hparams: dict[str, Any] = {
            str(name).removeprefix(HPARAMS): name for name in frame if str(name).startswith(HPARAMS)
        }

    def assume(self, text: str) -> None:
        """Record an assumption that a reader must know."""
        self.problems.append(Problem(ASSUMED, self.where, text))

    def refusal(self, fault: str, fix: str) -> RecordError:
        return RecordError(f"{self.where}: {fault}; {fix}")

    def find(self, typed: Mapping[str, Any]) -> None:
        """Find the column of every key.

        Raises:
            ConfigError: a typed one is not there.
            RecordError: several may be meant.
        """
        if any(_DOMAINBED.fullmatch(str(name)) for name in self.frame):
            raise self.refusal(
                "it holds records of DomainBed", "use import=domainbed import.path=DIR"
            )
        typed = {key: column for key, column in typed.items() if column != AUTO}
        for name, column in {**(typed.pop("hparams", None) or {})}.items():
            typed[f"{HPARAMS}{name}"] = column
        present = some_of([str(name) for name in self.frame], 12)
        for key, column in typed.items():
            if key not in ALIASES and not key.startswith(HPARAMS):
                raise ConfigError(
                    f"import.columns.{key} is unknown; choose {', '.join(ALIASES)} or {HPARAMS}NAME"
                )
            for name in column if isinstance(column, (list, tuple)) else [column]:
                if name is not None and name not in self.frame:
                    raise ConfigError(
                        f"import.columns.{key}={shown(column)} is no column; the columns are "
                        f"{present}"
                    )
            if key.startswith(HPARAMS):
                self.hparams[key.removeprefix(HPARAMS)] = column
            elif column is not None:
                self.column[key] = column
        named = [*self.column.values(), *self.hparams.values()]
        free = {name: letters(name) for name in self.frame if name not in named}
        for key, text in ALIASES.items():
            for usual in text.split("|") if key not in typed else ():
                if matches := [name for name, plain in free.items() if plain in usual.split()]:
                    if len(matches) > 1:
                        raise self.refusal(
                            f"columns {' and '.join(map(str, matches))} may each be the {key}",
                            f"choose with import.columns.{key}={matches[0]}, or rename one",
                        )
                    self.column[key] = matches[0]
                    break

    def add(self, key: str, name: str) -> None:
        """Add a column for a key that no column holds, with ``name`` in every line.

        Raises:
            ConfigError: a column holds it.
        """
        if key in self.column:
            raise ConfigError(
                f"import.{key}={name}, but {self.where} has a column {self.column[key]}; leave "
                "one out"
            )
        self.frame = self.frame.assign(**{key: name})
        self.column[key] = key

    def lengthen(self, values: str | None) -> None:
        """Turn the columns of environments, where each has one, into lines: one for each
        environment.

        Raises:
            RecordError: no column is the algorithm; or none is the environment, and none may be
                that of one.
        """
        if "algorithm" not in self.column:
            raise self.missing("algorithm")
        wide = self.column.get("environment")
        if "environment" not in self.column and "held_out" in self.column:
            self.column["environment"] = self.column["held_out"]
        if "environment" in self.column and not isinstance(wide, (list, tuple)):
            return
        used = {*self.column.values(), *self.hparams.values()} if wide is None else set()
        names = wide or [
            name
            for name in self.frame
            if name not in used
            and not str(name).startswith("Unnamed: ")
            and self._holds_numbers(name)
        ]
        average = [name for name in names if letters(name) in _AVERAGE] if wide is None else []
        names = [name for name in names if name not in set(average)]
        if len(names) < 2 or {"error", "accuracy", "wrong"} & self.column.keys():
            raise self.missing("environment")
        for name in average:
            self._check_average(name, names)
        self.assume(
            f"one column for each environment: {', '.join(map(str, names))}; they hold "
            f"{values or 'accuracy'}"
        )
        holds = (values or "accuracy") + " (%)" * any("%" in str(name) for name in names)
        melted = {*names, *average}
        id_columns = [name for name in self.frame if name not in melted]
        self.frame = self.frame.melt(id_columns, names, "environment", holds)
        self.column |= {"environment": "environment", values or "accuracy": holds}
        self.wide = True

    def _holds_numbers(self, name: Any) -> bool:
        return not np.isnan(parsed(self.frame[name])).all()

    def _check_average(self, name: Any, names: Sequence[Any]) -> None:
        """Note that a printed average is not read, and where it is not that of its line by more
        than its rounding.
        """
        values = np.column_stack([parsed(self.frame[column]) for column in names])
        printed = parsed(self.frame[name])
        digits = 0.1 if np.nanmax(printed) > 1 else 0.001
        apart = np.abs(values.mean(axis=1) - printed) > digits
        self.assume(f"column {name} is not read")
        if apart.any():
            line = int(np.argmax(apart))
            text = (
                f"{name}: line {line + 1} prints {printed[line]:g}, its environments average "
                f"{values[line].mean():.4g}"
            )
            self.problems.append(Problem("average", self.where, text))

    def missing(self, key: str) -> RecordError:
        present = some_of([str(name) for name in self.frame], 12)
        return self.refusal(
            f"no column is the {key} (there are {present})",
            f"name it with import.columns.{key}=COLUMN, or rename it {key}"
            + (
                ", or say what trained all models with import.algorithm=NAME"
                if key == "algorithm"
                else ""
            ),
        )

    def refuse(self, bad: Any, key: str, fault: str, fix: str) -> None:
        """Refuse the first line that is bad.

        Raises:
            RecordError: there is one.
        """
        if (positions := np.flatnonzero(np.asarray(bad))).size:
            name, line = self.column[key], positions[0] % self.height + 1
            value = shown(self.frame[name].iloc[positions[0]])
            addition = f" (and {positions.size - 1} more)" if positions.size > 1 else ""
            if self.wide and key in ("accuracy", "error"):
                name = self.frame["environment"].iloc[positions[0]]
                fix = f"{fix}, or name the columns with import.columns.environment=[A,B,...]"
            raise self.refusal(
                f"{name} is {value} in line {line} of the values{addition}, {fault}", fix
            )

    def names(self, key: str) -> pd.Series[Any]:
        codes, values = pd.factorize(self.frame[self.column[key]])
        self.refuse(codes < 0, key, "no name", "fill it in, or drop the line")
        texts = np.array(
            [printable(text_of(value))[:LONGEST] for value in values.tolist()], dtype=object
        )
        return pd.Series(texts[codes], dtype=object)

    def whole(self, key: str) -> Any:
        values = self.numbers(key)
        bad = ~(
            np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) <= LARGEST_COUNT)
        )
        bad = bad | (values < 0) if key == "step" else bad
        self.refuse(bad, key, "not a whole number", "number them 0, 1, 2, ...")
        return values.astype("int64")

    def numbers(self, key: str) -> Floats:
        """Parse the numbers of a column; NaN where a cell is empty.

        Raises:
            RecordError: a cell holds something else.
        """
        column = self.frame[self.column[key]]
        values = parsed(column)
        empty = column.isna().to_numpy()
        if np.isnan(values).sum() > empty.sum():
            text = column.astype(str).str.strip().str.lower()
            self.refuse(
                np.isnan(values) & ~empty & ~text.isin(NOTHING), key, "no number", "correct it"
            )
        self.refuse(np.isinf(values), key, "not finite", "correct it")
        return values

    def fractions(self, key: str, unit: str | None) -> Floats:
        """Convert the values of a column to fractions; its unit is that of the whole column."""
        values, name = self.numbers(key), self.column[key]
        self.refuse(values < 0, key, "below 0", "correct it")
        self.refuse(values > 100, key, "above 100", "correct it")
        small, large = (values > 0) & (values <= 1), values > 1
        cells = self.frame[name]
        signs = np.zeros(len(cells), dtype=bool)
        if cells.dtype.kind not in "iuf":
            signs = cells.astype(str).str.contains("%").to_numpy() | np.isnan(values)
        if unit is None:
            headed = "%" in str(name)
            unit = "percent" if headed or signs.any() or large.any() else "fraction"
            if unit == "percent" and not signs.all():
                alike = "write all alike, or add import.unit=percent"
                self.refuse(small & ~signs, key, "a fraction where others are percent", alike)
            self.assume(f"{name} is {'in percent' if unit == 'percent' else 'a fraction of 1'}")
        self.unit = unit
        if unit == "fraction":
            self.refuse(large, key, "above 1", "leave out import.unit=fraction")
            return values
        return values / 100


def letters(name: Any) -> str:
    """Extract the letters and digits of a column's name, without what W&B and MLflow put before it."""
    text = str(name)
    return (
        ""
        if text.startswith(HPARAMS)
        else re.sub(r"[^a-z0-9]", "", _EXPORTED.sub("", text.lower()))
    )


def parsed(column: pd.Series[Any], part: str = "mean") -> Floats:
    """Parse the numbers among the cells of a column, NaN where there is none: 0.847, ``84.7 %``,
    ``84,7``.

    Args:
        column: of cells.
        part: ``mean``, or ``error``: what ``84.7 ± 0.4``, ``84.7 (0.4)`` and LaTeX's like have
            after the mean.
    """
    if column.dtype.kind in "iuf":
        return column.to_numpy(dtype="float64") if part == "mean" else np.full(len(column), np.nan)
    plain = pd.to_numeric(column.astype(str).str.strip("% "), errors="coerce").to_numpy(
        dtype="float64", copy=True
    )
    if not (unread := np.isnan(plain)).any():
        return plain if part == "mean" else np.full(len(column), np.nan)
    text = column[unread].astype(str)
    text = text.where(text.str.len() <= _LONGEST_NUMBER, "").str.replace(_MARKS, "", regex=True)
    text = text.str.replace(r"\\pm|\+/-|\+-", "±", regex=True)
    text = text.str.replace(r"(?<=\d),(?=\d)", ".", regex=True).str.strip().str.extract(_CELL)[part]
    plain = plain if part == "mean" else np.full(len(column), np.nan)
    plain[unread] = pd.to_numeric(text, errors="coerce")
    return plain


def mapped(cells: pd.Series[Any], function: Callable[[str], Any]) -> pd.Series[Any]:
    """Apply a function to every cell, calling it once for each of the different ones."""
    return cells.map({cell: function(cell) for cell in cells.unique()})


def text_of(value: Any) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def listed(cell: str) -> set[str]:
    """List the environments that a cell names: ``photo``, ``photo, sketch``, ``[0, 1]``, ``()``,
    nothing.
    """
    text = re.sub(r"^[\[(]|[\])]$", "", cell)
    return {name.strip(" '\"") for name in re.split(r"[,;+|]", text)} - NOTHING
