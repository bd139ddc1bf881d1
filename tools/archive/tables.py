"""The two tables of an entry, ``measures.csv`` and ``leaderboard.csv``, and the file format."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import dgbench
from dgbench.errors import RecordError, reason_of
from dgbench.records.files import read_regular
from dgbench.reports.labels import words_of
from dgbench.reports.render.formats import csv_text

#: columns of tables that are neither keys of a setting nor measures
BESIDE_MEASURES = ("setting", "selection", "algorithm", "seed", "seeds", "ideal_env", "steps",
                   "trained_on_tested", "missing")  # fmt: skip


def studies_of(rows: Path, selection: str) -> pd.DataFrame:
    """Compute the lines of ``measures.csv``, those of ``dgbench.measures``: errors are fractions.

    Raises:
        RecordError: the runs cannot share tables, e.g. two records of one run with the same code.
    """
    frame = dgbench.results(rows, selection, split_by="code")
    studies = dgbench.measures(frame, split_by="code").drop(columns="label")
    studies.insert(studies.columns.get_loc("algorithm"), "selection", selection)
    for name in setting_keys(studies):
        studies[name] = [words_of(_plain(value)) for value in studies[name]]
    return studies


def setting_keys(table: pd.DataFrame) -> list[str]:
    """List the columns of a table that say what its numbers may be compared with."""
    names = list(table.columns[: table.columns.get_loc("algorithm")])
    return [name for name in names if name != "setting"]


def measures_in(table: pd.DataFrame) -> list[str]:
    """List the columns of a table that are measures, or their deviations and numbers of seeds."""
    others = (*setting_keys(table), *BESIDE_MEASURES)
    return [name for name in table if name not in others]


def _plain(value: Any) -> Any:
    """Undo what a column of a frame made of a list, a whole number or a missing value."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return "" if value is None or value != value else value


def board_of(studies: pd.DataFrame) -> pd.DataFrame:
    """Compute the lines of ``leaderboard.csv``: means over seeds of an algorithm in one setting."""
    groups = studies.groupby([*setting_keys(studies), "algorithm"], sort=False)
    board = groups.size().rename("seeds").to_frame()
    for name in measures_in(studies):
        board[name] = groups[name].mean()
        board[f"{name}_std"] = groups[name].std()
        board[f"{name}_n"] = groups[name].count()
    return board.reset_index()


def missing_of(studies: pd.DataFrame) -> list[str]:
    """List what the grid of algorithms and seeds of each setting lacks: studies, and folds."""
    lacking = []
    for _, lines in studies.groupby(setting_keys(studies), sort=False):
        reasons = lines.set_index(["algorithm", "seed"])["missing"]
        title = title_of(lines.iloc[0])
        for algorithm, seed in pd.MultiIndex.from_product(reasons.index.levels):
            reason = str(reasons.get((algorithm, seed), "fold: no run"))
            if reason.startswith("fold"):  # else a measure that is not defined here
                lacking.append(f"{title}: {algorithm} seed {seed}: {reason}")
    return lacking


def title_of(line: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """Write the setting of a line of a table in a few words."""
    return f"{line['dataset']}, {line['base']}, {line['evaluation']} (code {line['code']})"


def table_text(table: pd.DataFrame) -> str:
    """Write a table as it is kept."""
    return csv_text(table, float_format="%.6f")


def read_table(file: Path) -> pd.DataFrame:
    """Read a CSV file, every cell as text.

    Raises:
        RecordError: it is none.
    """
    try:
        return pd.read_csv(io.BytesIO(read_regular(file)), dtype=str, keep_default_na=False)
    except ValueError as error:
        raise RecordError(f"{file.name}: it is no CSV file ({reason_of(error)})") from None
