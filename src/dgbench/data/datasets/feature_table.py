"""Vectors of features with their environments and labels: what ``dataset=features`` trains on. No torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgbench.data.datasets.feature_files import ENVIRONMENT, FEATURES, LABEL, OWN, SUBSET, Columns, columns_of
from dgbench.data.datasets.image_table import SUBSETS
from dgbench.data.datasets.table_checks import check_classes, chosen_environments
from dgbench.errors import DataError


@dataclass(frozen=True)
class FeatureTable:
    """n rows of features, in the order of their file.

    Args:
        features: (n, d) float32.
        rows: (n,) number of each row in the file, from 0.
        environments, classes: names; positions in them are what ``env`` and ``label`` hold.
        env: (n,) int64.
        label: (n,) int64.
        listed: (n,) subset that the file gives each row, an index of ``SUBSETS``, or -1 where it gives none.
        attributes: what the file says besides: name -> n values. No hash holds them, they change nothing that is
            trained.
    """

    features: np.ndarray
    rows: np.ndarray
    environments: list[str]
    classes: list[str]
    env: np.ndarray
    label: np.ndarray
    listed: np.ndarray
    attributes: Mapping[str, list[str]]

    def __len__(self) -> int:
        return len(self.rows)

    def content(self) -> str:
        """16 hexadecimal digits of the numbers, environments, classes and subsets, however the file stores them."""
        digest = hashlib.sha256(repr((self.features.shape, self.environments, self.classes)).encode())
        for values in (self.env, self.label, self.listed):
            digest.update(values.astype("<i8").tobytes())
        digest.update(self.features.astype("<f4").tobytes())
        return digest.hexdigest()[:16]


def table_of_features(
    path: Path, columns: str | Sequence[str] | None, environments: Sequence[str] | None, classes: str
) -> FeatureTable:
    """The rows of a file, of the chosen environments.

    Args:
        path, columns: see :func:`~dgbench.data.datasets.feature_files.columns_of`.
        environments: names of the environments to take, in order; None takes all, sorted.
        classes: ``same`` refuses environments with different classes, ``union`` allows them.

    Raises:
        ConfigError, DataError: see :func:`~dgbench.data.datasets.feature_files.columns_of`; also features that are no
            matrix of finite numbers, columns of other lengths, rows without environment or label, an unknown subset,
            a single class.
    """
    found = columns_of(path, columns)
    features = _matrix(path, found[FEATURES])
    _check_lengths(path, found, len(features))
    env_names, env = _named(path, ENVIRONMENT, found[ENVIRONMENT])
    chosen = chosen_environments(env_names, environments)
    kept = np.flatnonzero(np.isin(env, [env_names.index(name) for name in chosen]))
    place = np.array([chosen.index(name) if name in chosen else -1 for name in env_names])
    class_names, label = _named(path, LABEL, found[LABEL][kept])
    if len(class_names) < 2:
        raise DataError(f"dataset.path={path}: every row has the label {class_names[0]}; give two classes or more")
    own_env = place[env[kept]]
    present = {(chosen[e], class_names[k]) for e, k in set(zip(own_env.tolist(), label.tolist(), strict=True))}
    check_classes(chosen, class_names, present, classes)
    return FeatureTable(
        features=features[kept],
        rows=kept,
        environments=chosen,
        classes=class_names,
        env=own_env,
        label=label,
        listed=_listed(path, found[SUBSET])[kept] if SUBSET in found else np.full(len(kept), -1),
        attributes={
            name: ["" if _missing(value) else str(value) for value in values[kept].tolist()]
            for name, values in found.items()
            if name not in OWN
        },
    )


def _matrix(path: Path, features: np.ndarray) -> np.ndarray:
    """(n, d) float32, all finite."""
    if features.ndim != 2 or features.dtype.kind not in "biuf" or 0 in features.shape:
        raise DataError(
            f"dataset.path={path}: features is an array {features.shape} of {features.dtype}; give numbers (n, d), one "
            "row of d for each"
        )
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused
        single = features.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(single))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise DataError(
            f"dataset.path={path}: features has {features[row, column]} in row {row}, column {column}, as "
            f"{len(np.unique(wrong[:, 0]))} row(s) hold no finite single-precision number; fill or drop them"
        )
    return single


def _check_lengths(path: Path, found: Columns, n: int) -> None:
    for name, values in found.items():
        if name != FEATURES and values.shape != (n,):
            raise DataError(
                f"dataset.path={path}: {name} has the shape {values.shape} beside {n} rows of features; give one value "
                "for each row, or leave it out"
            )


def _named(path: Path, column: str, values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names in their order, integers as numbers, and the position of each row's in them."""
    plain = values.tolist()
    for row, value in enumerate(plain):
        if _missing(value):
            raise DataError(f"dataset.path={path}: row {row} has no {column}; give it one, or drop it")
        if not isinstance(value, (str, int)):
            raise DataError(
                f"dataset.path={path}: {column} holds {value!r} in row {row}; give names or integers in every row"
            )
    whole = values.dtype.kind in "iu"
    names, number = np.unique(values if whole else np.array([str(value) for value in plain]), return_inverse=True)
    return [str(name) for name in names.tolist()], number.astype(np.int64)


def _listed(path: Path, values: np.ndarray) -> np.ndarray:
    """(n,) index of each row's subset, -1 where it names none."""
    listed = np.full(len(values), -1)
    for row, value in enumerate(values.tolist()):
        if not _missing(value):
            if value not in SUBSETS:
                raise DataError(
                    f"dataset.path={path}: row {row} is in subset {value}; use train, val, test or leave it empty"
                )
            listed[row] = SUBSETS.index(value)
    return listed


def _missing(value: Any) -> bool:
    """Whether a table has no value there: empty text, None, or one that is unlike itself, as nan is."""
    return value is None or value == "" or type(value).__name__ == "NAType" or value != value
