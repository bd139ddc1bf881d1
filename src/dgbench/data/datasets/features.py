"""Datasets of feature vectors: tables of numbers, or what an encoder made of any kind of data.

They lie in one .npz, .parquet or .csv file. Imports no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import SkipValidation

from dgbench.data.datasets.class_order import in_order
from dgbench.data.datasets.labeled_rows import LabeledRows
from dgbench.data.datasets.lists import column_of_subsets, sign_between, subset_of
from dgbench.data.datasets.small_environments import too_small
from dgbench.data.datasets.split_units import caution_of_columns, columns_across, units_by_column
from dgbench.data.datasets.splits import (
    Subsets,
    check_classes,
    check_units,
    chosen_environments,
    counts_of,
    origin_of_val,
    split_variant,
    subsets_of,
    warn_once,
)
from dgbench.data.description import SUBSETS, DatasetInfo, Preprocessing
from dgbench.data.options import (
    DatasetOptions,
    MinImages,
    PathText,
    Seed,
    SplitBy,
    SubsetColumn,
    ValFraction,
    expanded,
    list_of_names,
)
from dgbench.errors import ConfigError, DataError
from dgbench.phases import phase
from dgbench.records.files import read_arrays
from dgbench.records.predictions import need_pyarrow, read_parquet
from dgbench.validation import Refusal, shown, some_of

if TYPE_CHECKING:
    import pandas as pd

    from dgbench.data.environments import Environments

FEATURES = "features"
ENVIRONMENT = "environment"
LABEL = "label"
SUBSET = "subset"
KNOWN_COLUMNS = (FEATURES, ENVIRONMENT, LABEL, SUBSET)  #: further columns are attributes
LARGEST_EXACT = 2**53  #: below it every whole number is a float
Columns = dict[str, np.ndarray]
LAYOUT = (
    "an array features (n, d) with environment and label (n,), or the same as columns of a "
    ".parquet or .csv file"
)


def columns_of(path: Path, features: str | Sequence[str] | None) -> Columns:
    """Read the arrays of a file by name: ``features`` (n, d), ``environment`` and ``label`` (n,).

    Further arrays of n values become attributes.

    Args:
        path: a .npz file with these arrays, or a .parquet or .csv file with these columns.
        features: of .parquet and .csv, names or patterns (``pixel_*``) of the columns of numbers
            that are the features; None takes the one column ``features``, each of whose values is a
            list of d numbers.

    Raises:
        ConfigError: another suffix, names of features that the file lacks, or a package that is
            missing.
        DataError: the file is absent or cannot be read, or lacks a column.
    """
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise ConfigError(
            f"dataset.path={path} is no {', '.join(READERS)} file; write one with {LAYOUT}"
        )
    if not path.is_file():
        raise DataError(f"dataset.path={path} is no file; give one with {LAYOUT}")
    try:
        with phase(f"reading {path}", 1, "files") as progress:
            arrays = read(path, features)
            progress.advance()
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:120]
        wrong_encoding = isinstance(error, UnicodeDecodeError)
        fix = "save it as UTF-8" if wrong_encoding else "write it anew"
        raise DataError(
            f"dataset.path={path} cannot be read ({type(error).__name__}: {reason}); {fix}"
        ) from error
    for name in (FEATURES, ENVIRONMENT, LABEL):
        if name not in arrays:
            present = some_of(list(arrays), 8) or "nothing"
            raise DataError(f"dataset.path={path} has no {name}, only {present}; add {LAYOUT}")
    return arrays


def _npz(path: Path, features: str | Sequence[str] | None) -> Columns:
    if features is not None:
        raise ConfigError(
            f"dataset.columns={shown(features)} names columns of .parquet and .csv files, and an "
            ".npz has its array features; set dataset.columns=null"
        )
    return read_arrays(path)


def _parquet(path: Path, features: str | Sequence[str] | None) -> Columns:
    need_pyarrow(f"dataset.path={path.name}")
    return _columns_of_frame(path, read_parquet(path).to_pandas(), features)


def _csv(path: Path, features: str | Sequence[str] | None) -> Columns:
    import pandas as pd

    with path.open(encoding="utf-8-sig") as file:
        heading = next((line for line in file if line.strip()), "")
    sign = sign_between(heading.rstrip("\n"), (ENVIRONMENT, LABEL))
    frame = pd.read_csv(path, sep=sign, keep_default_na=False)  # NA may name an environment
    frame.columns = frame.columns.map(str).str.strip()
    # pandas takes first values without a name for names of lines
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError("its lines hold more values than the first names")
    return _columns_of_frame(path, frame, features)


def _columns_of_frame(
    path: Path, frame: pd.DataFrame, features: str | Sequence[str] | None
) -> Columns:
    names = [str(name) for name in frame.columns]
    frame.columns = names  # type: ignore[assignment]
    if features is None:
        if FEATURES not in names:
            numbers = map(str, frame.select_dtypes("number").columns)
            example = next((name for name in numbers if name not in KNOWN_COLUMNS), "f*")
            raise DataError(
                f"dataset.path={path} has no column features of lists of numbers; add it, or name "
                f"columns of numbers, e.g. dataset.columns=[{example}]"
            )
        used = [FEATURES]
        values = _stacked(path, frame[FEATURES].to_numpy())
    else:
        used = _matching(path, names, features)
        for name in used:
            _need_numbers(path, name, frame[name].to_numpy())
        values = np.stack([frame[name].to_numpy() for name in used], axis=1)
    others = {name: frame[name].to_numpy() for name in names if name not in used}
    return {FEATURES: values, **others}


def _need_numbers(path: Path, name: str, values: np.ndarray) -> None:
    """Refuse a column of features that holds anything but numbers."""
    if values.dtype.kind in "biuf":
        return
    texts = (value for value in values.tolist() if isinstance(value, str))
    text = next((text for text in texts if not _is_number(text)), "")
    example = f", e.g. {text!r}," if text else ""
    fix = "write numbers with a point" if _is_number(text.replace(",", ".")) else "fill or drop it"
    raise DataError(
        f"dataset.path={path}: column {name} holds {values.dtype}{example} not numbers alone; "
        f"{fix}, or leave it out of dataset.columns"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _matching(path: Path, names: Sequence[str], features: str | Sequence[str]) -> list[str]:
    """List the columns that names or patterns choose, in the order of the file."""
    fix = "name columns of numbers, or a pattern of theirs, e.g. dataset.columns='f*'"
    asked = [features] if isinstance(features, str) else features
    patterns = list_of_names("columns", asked, fix)
    free = [name for name in names if name not in KNOWN_COLUMNS[1:]]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in free):
            raise ConfigError(
                f"dataset.columns names {pattern}, which {path} does not have; choose from "
                f"{some_of(free, 8)}"
            )
    if not patterns:
        raise ConfigError(f"dataset.columns=[] names no features; choose from {some_of(free, 8)}")
    chosen = []
    for name in free:
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            chosen.append(name)
    return chosen


def _stacked(path: Path, lists: np.ndarray) -> np.ndarray:
    """Stack n lists of d numbers into an (n, d) array."""
    shapes = {np.shape(row) for row in lists}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        examples = ", ".join(map(str, sorted(shapes)[:3]))
        raise DataError(
            f"dataset.path={path}: values of features have the shapes {examples}; give each d "
            "numbers"
        )
    return np.stack([np.asarray(row) for row in lists])


Reader = Callable[[Path, "str | Sequence[str] | None"], Columns]
READERS: Mapping[str, Reader] = {".npz": _npz, ".parquet": _parquet, ".csv": _csv}


@dataclass(frozen=True, kw_only=True)
class FeatureTable(LabeledRows):
    """Rows of features, in the order of their file."""

    features: np.ndarray  #: (n, d) float32
    rows: np.ndarray  #: (n,) number of each row in the file, from 0

    def content(self) -> str:
        """Hash numbers, environments, classes and subsets to 16 hexadecimal digits.

        The hash is the same however the file stores them.
        """
        heading = repr((self.features.shape, self.environments, self.classes))
        digest = hashlib.sha256(heading.encode())
        for values in (self.env, self.label, self.listed):
            digest.update(values.astype("<i8").tobytes())
        digest.update(self.features.astype("<f4").tobytes())
        return digest.hexdigest()[:16]


def table_of_features(
    path: Path,
    columns: str | Sequence[str] | None,
    environments: Sequence[str] | None,
    classes: str,
    subset_column: str | None = None,
) -> FeatureTable:
    """Read the rows of the chosen environments from a file.

    Args:
        path, columns: see :func:`~dgbench.data.datasets.features.columns_of`.
        environments: names of the environments to take, in order; None takes all, sorted.
        classes: ``same`` refuses environments with different classes, ``union`` allows them.
        subset_column: see :func:`~dgbench.data.datasets.lists.column_of_subsets`.

    Raises:
        ConfigError, DataError: see :func:`~dgbench.data.datasets.features.columns_of`; also
            features that are no matrix of finite numbers, columns of other lengths, rows without
            environment or label, an unknown subset, a single class.
    """
    arrays = columns_of(path, columns)
    features = _matrix(path, arrays[FEATURES])
    _check_lengths(path, arrays, len(features))
    subsets = column_of_subsets(
        subset_column,
        [name for name in arrays if name not in KNOWN_COLUMNS[:3]],
        lambda name: _texts(arrays[name]),
        f"dataset.path={path}",
    )
    listed = np.full(len(features), -1) if subsets is None else _listed(path, arrays[subsets])
    env_names, env = _named(path, ENVIRONMENT, arrays[ENVIRONMENT])
    chosen = chosen_environments(env_names, environments)
    rows = np.flatnonzero(np.isin(env, [env_names.index(name) for name in chosen]))
    place = np.full(len(env_names), -1)
    for number, name in enumerate(chosen):
        place[env_names.index(name)] = number
    class_names, label = _named(path, LABEL, arrays[LABEL][rows])
    if len(class_names) < 2:
        raise DataError(
            f"dataset.path={path}: every row has the label {class_names[0]}; give two classes or "
            "more"
        )
    chosen_env = place[env[rows]]
    present = set()
    for number, k in set(zip(chosen_env.tolist(), label.tolist(), strict=True)):
        present.add((chosen[number], class_names[k]))
    check_classes(chosen, class_names, present)
    attributes = {}
    for name, values in arrays.items():
        if name not in (*KNOWN_COLUMNS[:3], subsets):
            attributes[name] = list(_texts(values[rows]))
    return FeatureTable(
        features=features[rows],
        rows=rows,
        environments=chosen,
        classes=class_names,
        env=chosen_env,
        label=label,
        listed=listed[rows],
        same_classes=classes == "same",
        attributes=attributes,
    )


def _check_lengths(path: Path, arrays: Columns, rows: int) -> None:
    """Refuse columns beside the features that have not one value for each row."""
    for name, values in arrays.items():
        if name != FEATURES and values.shape != (rows,):
            raise DataError(
                f"dataset.path={path}: {name} has the shape {values.shape} beside {rows} "
                "rows of features; give one value for each row, or leave it out"
            )


def _matrix(path: Path, features: np.ndarray) -> np.ndarray:
    """Convert features to a float32 matrix, (n, d); refuse what is no matrix of finite numbers."""
    if features.ndim != 2 or features.dtype.kind not in "biuf" or 0 in features.shape:
        raise DataError(
            f"dataset.path={path}: features is an array {features.shape} of {features.dtype}; "
            "give numbers (n, d), one row of d for each"
        )
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused
        single = features.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(single))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise DataError(
            f"dataset.path={path}: features has {features[row, column]} in row {row}, column "
            f"{column}, as {len(np.unique(wrong[:, 0]))} row(s) hold no finite single-precision "
            "number; fill or drop them"
        )
    return single


def _named(path: Path, column: str, values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Sort the different names, whole numbers by value, and index each row's, (n,).

    Blanks around names do not count.
    """
    plain = values.tolist()
    for row, value in enumerate(plain):
        if _is_missing(value):
            raise DataError(
                f"dataset.path={path}: row {row} has no {column}; give it one, or drop it"
            )
        whole = isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_EXACT
        if not isinstance(value, (str, int)) and not whole:
            raise DataError(
                f"dataset.path={path}: {column} holds {value!r} in row {row}; give names or "
                "integers in every row"
            )
    # 0.0 and 1.0, as pandas writes integers of a column that once had a gap
    if values.dtype.kind == "f":
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu":
        texts = [_name(value) for value in plain]
        names = in_order(texts)
        number_of = {name: i for i, name in enumerate(names)}
        return names, np.array([number_of[text] for text in texts], np.int64)
    different, number = np.unique(values, return_inverse=True)
    return [str(name) for name in different.tolist()], number.astype(np.int64)


def _name(value: str | float) -> str:
    """Write a name as text, a whole number without a point."""
    if isinstance(value, str):
        return value.strip()
    return str(int(value)) if isinstance(value, float) else str(value)


def _texts(values: np.ndarray) -> Iterator[str]:
    """Convert values of a column to text, empty for those that are missing."""
    for value in values.tolist():
        yield "" if _is_missing(value) else str(value)


def _listed(path: Path, values: np.ndarray) -> np.ndarray:
    """Look up the (n,) index of each row's subset, -1 if it names none."""
    listed = np.full(len(values), -1)
    for row, value in enumerate(values.tolist()):
        if not _is_missing(value):
            subset = subset_of(str(value))
            if subset not in SUBSETS:
                raise DataError(
                    f"dataset.path={path}: row {row} is in subset {value}; use train, val, test "
                    "or leave it empty"
                )
            listed[row] = SUBSETS.index(subset)
    return listed


def _is_missing(value: Any) -> bool:
    """Return whether a table has no value there.

    Blank text, None, pandas' NA, and what is unequal to itself, as nan, count as missing.
    """
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or type(value).__name__ == "NAType"
        or value != value
    )


class FeatureOptions(DatasetOptions):
    """Environments of feature vectors; ``conf/dataset/features.yaml`` explains each key.

    Nothing is standardized: statistics of all rows would show a run its held-out environment. The
    featurizers for vectors normalize by what they train on, see :mod:`dgbench.networks.small`.
    """

    path: Annotated[PathText, Refusal("is no path", "name a .npz, .parquet or .csv file")]
    columns: SkipValidation[str | Sequence[str] | None]  # checked with those of the file
    environments: SkipValidation[Sequence[str] | None]  # likewise
    classes: Literal["same", "union"]
    val_fraction: ValFraction
    split_seed: Seed
    subset_column: SubsetColumn = None
    split_by: SplitBy = None
    min_images: MinImages = 0

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """Describe the dataset; this reads the whole file."""
        if absent_ok and not expanded(self.path).is_file() and self.environments:
            return self._info(map(str, self.environments))
        return self._described(self._table())[0]

    def build(self) -> Environments:
        """Build the environments, with their features in memory."""
        table = self._table()
        info, subsets = self._described(table)

        import torch

        from dgbench.data.environments import Catalog, Environments, Table, TensorStore

        preprocessing = Preprocessing(info.image, (), (), pictures=False)
        names = table.rows.tolist()
        catalog = Catalog(table.label, tuple(table.classes), preprocessing, names, table.attributes)
        store = TensorStore(torch.from_numpy(table.features), torch.from_numpy(table.label))
        return Environments(Table(info, subsets), catalog, store)

    def _table(self) -> FeatureTable:
        return table_of_features(
            expanded(self.path), self.columns, self.environments, self.classes, self.subset_column
        )

    def _described(self, table: FeatureTable) -> tuple[DatasetInfo, Subsets]:
        units = None
        if self.split_by is not None:
            names = [f"row {row}" for row in table.rows.tolist()]
            units = units_by_column(table.attributes, self.split_by, names)
            check_units(units, table, f"dataset.split_by={self.split_by}")
        every = np.ones(len(table), bool)
        subsets = subsets_of(
            table, every, self.val_fraction, self.split_seed, units, self.min_images
        )
        if units is None:
            across = columns_across(table.attributes, subsets, len(table.classes))
            caution = caution_of_columns(across)
            if caution:
                warn_once(caution)
        content = table.content()
        d = table.features.shape[1]
        info = self._info(table.environments)
        info = replace(
            info,
            variant={**info.variant, "features": d, "images": len(table), "files": content[:12]},
            n_classes=len(table.classes),
            image=(d,),
            counts=counts_of(subsets),
            only_tested=too_small(subsets, table.environments, self.min_images),
            content=content,
            class_names=tuple(table.classes),
            val_from=origin_of_val(table, self.val_fraction, self.split_seed),
        )
        return info, subsets

    def _info(self, environments: Iterable[str]) -> DatasetInfo:
        """Describe the dataset with these environments, as far as it is known without its file."""
        given = tuple(environments)
        split = split_variant(self.split_by, None, self.min_images)
        return DatasetInfo(
            name=self.name,
            variant={"val_fraction": self.val_fraction, "features": 0, **split},
            base="features",
            split_seed=self.split_seed,
            given=given,
            everywhere=given,
            n_classes=0,
            image=(0,),
        )
