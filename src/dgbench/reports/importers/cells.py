"""What the cells of foreign tables say: numbers with units, marks and error bars, counts, names.

A comma between digits is a decimal mark in a mean (``84,7``) and separates thousands in a count
(``10,000``); a count that can be read in both ways is no number here, so that it is asked about.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HPARAMS = "hparams."  #: what the column of a hyperparameter begins with
#: cells that hold no value
NOTHING = {"", "-", "\u2013", "\u2014", "nan", "none", "null", "n/a", "na"}  # fmt: skip
#: what is printed above and behind a number, and says nothing of its value
_FOOTNOTE_MARKS = "\u2020\u2021\u00a7\u00b6\u2191\u2193"  # dagger, double dagger, section, ...
_MARKS = re.compile(
    rf"\\(textbf|textit|underline|mathbf)|</?[bi]>|[{{}}$~{_FOOTNOTE_MARKS}]"
    r"|(?<!\d)\*+|\*+(?!\d)|^_+|_+$|_(?=\{?\s*±)"
)
_PLUS_MINUS = r"\\pm|\+/-|\+-"
_MINUS = "\u2212"
# each character can be matched in one way, or a long cell would take the square of its length
_CELL = (
    r"^(?P<mean>[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+|inf))\s*(?:%\s*)?"
    r"(?:[±(]\s*(?P<error>-?(?:\d+(?:\.\d+)?|\.\d+))\s*(?:%\s*)?\)?)?$"
)
_LONGEST_NUMBER = 200  # characters of a cell that may be one
_ENGLISH_THOUSANDS = r"^[-+]?\d{1,3}(?:,\d{3})+(?=\.\d)"
_GERMAN_THOUSANDS = r"^[-+]?\d{1,3}(?:\.\d{3})+(?=,\d)"
_COMMA_GROUPS = r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.0*)?"
_POINT_GROUPS = r"[-+]?[1-9]\d{0,2}(?:\.\d{3}){2,}"
_ONE_POINT_GROUP = r"[-+]?[1-9]\d{0,2}\.\d{3}"
# no whole number of thousands can be written so
_DECIMAL_COMMA = r"[-+]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))\s*%?"
# W&B's and MLflow's, before a name
_EXPORTED = re.compile(r"^(config|params|metrics|summary|args|tags)[./]")


def letters(name: Any) -> str:
    """Extract a name's letters and digits, without what W&B and MLflow put before it."""
    text = str(name)
    if text.startswith(HPARAMS):
        return ""
    return re.sub(r"[^a-z0-9]", "", _EXPORTED.sub("", text.lower()))


def words_of(name: Any) -> list[str]:
    """Split a name into words: ``top1_err (%)`` is top1 and err, ``testTime`` is test and time."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", str(name))
    return re.findall(r"[a-z0-9#]+", parted.lower())


def is_text(column: pd.Series[Any]) -> bool:
    """Return whether a column holds anything but numbers."""
    return column.dtype.kind not in "iuf"


def parsed(column: pd.Series[Any], part: str = "mean") -> Floats:
    """Parse the numbers among the cells: 0.847, ``84.7 %``, ``84,7``; NaN if a cell holds none.

    Args:
        column: of cells.
        part: ``mean``, or ``error``: what ``84.7 ± 0.4``, ``84.7 (0.4)`` and LaTeX's like have
            after the mean.
    """
    nothing = np.full(len(column), np.nan)
    if not is_text(column):
        return column.to_numpy(dtype="float64") if part == "mean" else nothing
    plain = pd.to_numeric(column.astype(str).str.strip("% "), errors="coerce").to_numpy(
        dtype="float64", copy=True
    )
    unread = np.isnan(plain)
    values = plain if part == "mean" else nothing
    if unread.any():
        text = _plain_text(column[unread]).str.extract(_CELL)[part]
        values[unread] = pd.to_numeric(text, errors="coerce")
    return values


def _plain_text(cells: pd.Series[Any]) -> pd.Series[str]:
    """Write numbers as ``84.7 ± 0.4``, without marks, separators of thousands and commas."""
    text = cells.astype(str)
    text = text.where(text.str.len() <= _LONGEST_NUMBER, "")
    text = text.str.replace(_PLUS_MINUS, "±", regex=True)
    text = text.str.replace(_MARKS, "", regex=True).str.replace(_MINUS, "-").str.strip()
    for thousands, separator in ((_ENGLISH_THOUSANDS, ","), (_GERMAN_THOUSANDS, ".")):
        grouped = text.str.contains(thousands, regex=True)
        if grouped.any():
            joined = text[grouped].map(_without_groups(thousands, separator))
            text = text.where(~grouped, joined)
    return text.str.replace(r"(?<=\d),(?=\d)", ".", regex=True).str.strip()


def _without_groups(pattern: str, separator: str) -> Callable[[str], str]:
    def join(text: str) -> str:
        return re.sub(pattern, lambda group: group[0].replace(separator, ""), text)

    return join


def counts(column: pd.Series[Any], decimal_comma: bool) -> Floats:
    """Parse counts: ``10,000`` is ten thousand; NaN for what is none, or may be two numbers.

    Args:
        column: of cells.
        decimal_comma: other cells of the table have a decimal comma, so that ``10,000`` may be 10.
    """
    if not is_text(column):
        return column.to_numpy(dtype="float64")
    text = column.astype(str).str.strip()
    values = pd.to_numeric(text, errors="coerce").to_numpy(dtype="float64", copy=True)
    values[text.str.fullmatch(_ONE_POINT_GROUP).to_numpy()] = np.nan
    grouped = text.str.fullmatch(_POINT_GROUPS).to_numpy(copy=True)
    if not decimal_comma:
        grouped |= text.str.fullmatch(_COMMA_GROUPS).to_numpy()
    joined = (
        text[grouped].str.replace(r"\.0*$", "", regex=True).str.replace(r"[.,]", "", regex=True)
    )
    values[grouped] = pd.to_numeric(joined, errors="coerce")
    return values


def two_readings(text: str) -> tuple[str, str] | None:
    """Return the two numbers that a count may be, 10 or 10000 for ``10.000``; None if clear."""
    if not re.fullmatch(rf"{_COMMA_GROUPS}|{_ONE_POINT_GROUP}", text):
        return None
    return f"{float(text.replace(',', '.', 1).replace(',', '')):g}", re.sub("[.,]", "", text)


def has_point_groups(texts: pd.Series[str]) -> bool:
    """Return whether any text may be thousands that a point separates, as ``10.000``."""
    return bool(texts.str.strip().str.fullmatch(f"{_ONE_POINT_GROUP}|{_POINT_GROUPS}").any())


def has_decimal_comma(frame: pd.DataFrame) -> bool:
    """Return whether any cell has a comma that can only be a decimal mark, as ``84,7``."""
    texts = [column for _, column in frame.items() if is_text(column)]
    return any(column.astype(str).str.fullmatch(_DECIMAL_COMMA).any() for column in texts)


def mapped(cells: pd.Series[Any], function: Callable[[str], Any]) -> pd.Series[Any]:
    """Apply a function to every cell, calling it once for each of the different ones."""
    return cells.map({cell: function(cell) for cell in cells.unique()})


def text_of(value: Any) -> str:
    """Write a name; a whole number without decimals."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def listed(cell: str) -> set[str]:
    """List the environments that a cell names: ``photo``, ``photo, sketch``, ``[0, 1]``, ``()``."""
    text = re.sub(r"^[\[(]|[\])]$", "", cell)
    return {name.strip(" '\"") for name in re.split(r"[,;+|]", text)} - NOTHING
