"""What a file of features holds, column by column: .npz, .parquet or .csv. No torch."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dgbench.data.option_checks import check_list, shown
from dgbench.errors import ConfigError, DataError
from dgbench.records.predictions import need_pyarrow

if TYPE_CHECKING:
    import pandas as pd

FEATURES, ENVIRONMENT, LABEL, SUBSET = "features", "environment", "label", "subset"
OWN = (FEATURES, ENVIRONMENT, LABEL, SUBSET)  # further columns are attributes
Columns = dict[str, np.ndarray]
LAYOUT = "an array features (n, d) with environment and label (n,), or the same as columns of a .parquet or .csv file"


def columns_of(path: Path, features: str | Sequence[str] | None) -> Columns:
    """The arrays of a file by name: ``features`` (n, d), ``environment`` and ``label`` (n,), and what else it has.

    Args:
        path: a .npz file with these arrays, or a .parquet or .csv file with these columns.
        features: of .parquet and .csv, names or patterns (``pixel_*``) of the columns of numbers that are the features;
            None takes the one column ``features``, each of whose values is a list of d numbers.

    Raises:
        ConfigError: another suffix, names of features that the file has not, or a package that is missing.
        DataError: the file is absent or cannot be read, or lacks a column.
    """
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise ConfigError(f"dataset.path={path} is no {', '.join(READERS)} file; write one with {LAYOUT}")
    if not path.is_file():
        raise DataError(f"dataset.path={path} is no file; give one with {LAYOUT}")
    try:
        found = read(path, features)
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())[:120]
        raise DataError(
            f"dataset.path={path} cannot be read ({type(error).__name__}: {reason}); write it anew"
        ) from error
    for name in (FEATURES, ENVIRONMENT, LABEL):
        if name not in found:
            raise DataError(f"dataset.path={path} has no {name}, only {_few(list(found)) or 'nothing'}; add {LAYOUT}")
    return found


def _npz(path: Path, features: str | Sequence[str] | None) -> Columns:
    if features is not None:
        raise ConfigError(
            f"dataset.columns={shown(features)} names columns of .parquet and .csv files, and an .npz has its array "
            "features; set dataset.columns=null"
        )
    with zipfile.ZipFile(path):  # what is no archive may be an array, or a pickle
        pass
    with np.load(path, allow_pickle=False) as file:
        return {name: _array(path, file, name) for name in file.files}


def _array(path: Path, file: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    try:
        return file[name]
    except ValueError as error:
        raise DataError(
            f"dataset.path={path}: {name} holds Python objects, which are not loaded; save names as "
            "np.array(names, dtype=str)"
        ) from error


def _parquet(path: Path, features: str | Sequence[str] | None) -> Columns:
    need_pyarrow(f"dataset.path={path.name}")
    import pandas as pd

    return _columns_of_frame(path, pd.read_parquet(path, engine="pyarrow"), features)


def _csv(path: Path, features: str | Sequence[str] | None) -> Columns:
    import pandas as pd

    return _columns_of_frame(path, pd.read_csv(path, keep_default_na=False), features)  # NA may name an environment


def _columns_of_frame(path: Path, frame: pd.DataFrame, features: str | Sequence[str] | None) -> Columns:
    names = [str(name) for name in frame.columns]
    frame.columns = names  # type: ignore[assignment]
    if features is None:
        if FEATURES not in names:
            raise DataError(
                f"dataset.path={path} has no column features of lists of numbers; add it, or name columns of numbers, "
                f"e.g. dataset.columns=[{next((name for name in names if name not in OWN), 'f*')}]"
            )
        found: Columns = {FEATURES: _stacked(path, frame[FEATURES].to_numpy())}
        used = [FEATURES]
    else:
        used = _matching(path, names, features)
        found = {FEATURES: np.stack([_numbers(path, name, frame[name].to_numpy()) for name in used], axis=1)}
    return {**found, **{name: frame[name].to_numpy() for name in names if name not in used}}


def _matching(path: Path, names: Sequence[str], features: str | Sequence[str]) -> list[str]:
    """The columns that names or patterns choose, in the order of the file."""
    fix = "name columns of numbers, or a pattern of theirs, e.g. dataset.columns='f*'"
    patterns = check_list("columns", [features] if isinstance(features, str) else features, fix)
    free = [name for name in names if name not in OWN[1:]]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in free):
            raise ConfigError(f"dataset.columns names {pattern}, which {path} has not; choose from {_few(free)}")
    if not patterns:
        raise ConfigError(f"dataset.columns=[] names no features; choose from {_few(free)}")
    return [name for name in free if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _numbers(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "biuf":
        raise DataError(
            f"dataset.path={path}: column {name} holds {values.dtype}, not numbers alone; fill or drop it, or leave it "
            "out of dataset.columns"
        )
    return values


def _stacked(path: Path, lists: np.ndarray) -> np.ndarray:
    """(n, d) of n lists of d numbers."""
    lengths = {np.shape(each) for each in lists}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        several = ", ".join(map(str, sorted(lengths)[:3]))
        raise DataError(f"dataset.path={path}: values of features have the shapes {several}; give each d numbers")
    return np.stack([np.asarray(each) for each in lists])


Reader = Callable[[Path, "str | Sequence[str] | None"], Columns]
READERS: Mapping[str, Reader] = {".npz": _npz, ".parquet": _parquet, ".csv": _csv}
