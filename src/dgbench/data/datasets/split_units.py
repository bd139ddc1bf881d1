"""What must stay on one side of a split: frames of a clip, tiles of a patient, rows of a user."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from dgbench.data.description import SUBSETS
from dgbench.errors import ConfigError, DataError
from dgbench.validation import some_of

NAMED = 3  #: rows, values or columns that a message names
#: share of validation rows with a value of training rows from which on a column is named
SOME_OF_VAL = 0.1


def units_by_column(
    attributes: Mapping[str, Sequence[str]], column: str, names: Sequence[str]
) -> np.ndarray:
    """Give rows of one value in a column of a list one number, (n,): they belong together.

    Args:
        attributes: further columns of the list, n texts each.
        column: its name, ``dataset.split_by``.
        names: of the n rows, for messages.

    Raises:
        ConfigError: there is no such column.
        DataError: rows have no value there.
    """
    if column not in attributes:
        choices = some_of(list(attributes), 8) or "none, the list has no further columns"
        raise ConfigError(
            f"dataset.split_by={column} is no further column of the list; choose from {choices}"
        )
    values = [text.strip() for text in attributes[column]]
    blank = [name for name, value in zip(names, values, strict=True) if not value]
    if blank:
        raise DataError(
            f"dataset.split_by={column}: {len(blank)} of {len(values)} rows have no value there "
            f"({some_of(blank, NAMED)}); fill it, one of its own for what stands alone"
        )
    return numbered(values)


def units_by_pattern(pattern: str, paths: Sequence[str]) -> np.ndarray:
    """Give images in whose paths a pattern finds the same one number, (n,): they belong together.

    Args:
        pattern: a regular expression; its groups are what counts, or all that it finds if it has
            none.
        paths: below the root, with forward slashes.

    Raises:
        ConfigError: the pattern cannot be read, or finds nothing in some path.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"dataset.split_pattern={pattern} is no regular expression ({error}); write e.g. "
            "'([^/]+)_[0-9]+[.]'"
        ) from error
    matches = [expression.search(path) for path in paths]
    without = [path for path, match in zip(paths, matches, strict=True) if match is None]
    if without:
        raise ConfigError(
            f"dataset.split_pattern={pattern} finds nothing in {len(without)} of {len(paths)} "
            f"paths ({some_of(without, NAMED)}); correct it"
        )
    return numbered([match.groups() or match[0] for match in matches if match])


def numbered(values: Sequence[object]) -> np.ndarray:
    """Give different values numbers in the order in which they occur, (n,)."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def cut_units(
    rows: np.ndarray, units: np.ndarray, share: float, seed: int, in_val: dict[int, bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Split rows at random into a share and the rest, no unit into both.

    Units are taken in random order as long as they fit into the share; if none does, the smallest
    is taken.

    Args:
        rows: (n,) positions.
        units: (n,) unit of each.
        share: of the rows, an upper bound but for the smallest unit.
        seed: of the order.
        in_val: unit -> whether another environment has it in the share; those of these rows are
            added.
    """
    present, place, sizes = np.unique(units, return_inverse=True, return_counts=True)
    chosen = np.array([in_val.get(int(unit), False) for unit in present])
    free = np.array([int(unit) not in in_val for unit in present])
    room = int(len(rows) * share) - int(sizes[chosen].sum())
    for index in np.random.default_rng(seed).permutation(len(present)):
        if free[index] and sizes[index] <= room:
            chosen[index] = True
            room -= int(sizes[index])
    if not chosen.any() and free.sum() and len(present) > 1:
        candidates = np.flatnonzero(free)
        chosen[candidates[sizes[candidates].argmin()]] = True
    in_val |= {int(unit): bool(side) for unit, side in zip(present, chosen, strict=True)}
    return rows[chosen[place]], rows[~chosen[place]]


def check_listed_units(
    units: np.ndarray, env: np.ndarray, subset: np.ndarray, key: str, environments: Sequence[str]
) -> None:
    """Refuse a list that puts the rows of one unit of an environment into two subsets.

    Args:
        units, env, subset: (n,) numbers of each row.
        key: what asked for the units, for the message.
        environments: names.

    Raises:
        DataError: it does.
    """
    pairs = np.unique(np.stack([env, units, subset], axis=1), axis=0)
    places, counts = np.unique(pairs[:, :2], axis=0, return_counts=True)
    divided = places[counts > 1]
    if len(divided):
        number, unit = divided[0].tolist()
        of_first = (pairs[:, 0] == number) & (pairs[:, 1] == unit)
        names = " and ".join(SUBSETS[k] for k in pairs[of_first, 2].tolist())
        raise DataError(
            f"{key}: the list divides {len(divided)} of {len(places)} values between subsets, one "
            f"of {environments[number]} between {names}; list each in one, or follow no column "
            "with dataset.subset_column=none"
        )


def units_in_several(units: np.ndarray, env: np.ndarray) -> int:
    """Count the units that several environments have."""
    pairs = np.unique(np.stack([units, env], axis=1), axis=0)
    return int((np.unique(pairs[:, 0], return_counts=True)[1] > 1).sum())


def columns_across(
    attributes: Mapping[str, Sequence[str]],
    subsets: Mapping[tuple[str, str], np.ndarray],
    n_classes: int,
) -> list[tuple[str, float]]:
    """Find columns whose values stand in ``train`` and in ``val`` of one environment.

    A column counts if an environment has more different values of it than there are classes: fewer
    are kinds of images, such as weather, not the names of what they show.

    Args:
        attributes: further columns of a list, n texts each.
        subsets: (environment, subset) -> positions of rows.
        n_classes: K.
    """
    across = []
    for column, texts in attributes.items():
        values = numbered(texts)
        shared = 0
        counted = 0
        for (env, subset), val in subsets.items():
            train = subsets[env, "train"]
            if subset != "val" or not len(val) or not len(train):
                continue
            if len(np.unique(values[np.concatenate([train, val])])) <= n_classes:
                continue
            shared += int(np.isin(values[val], values[train]).sum())
            counted += len(val)
        if counted and shared / counted >= SOME_OF_VAL:
            across.append((column, shared / counted))
    return across


def caution_of_columns(across: Sequence[tuple[str, float]]) -> str:
    """Describe in one line which columns stand on both sides of a split, or return no text."""
    if not across:
        return ""
    column, share = max(across, key=lambda pair: pair[1])
    others = [name for name, _ in across if name != column]
    also = f" (so do {some_of(others, NAMED)})" if others else ""
    return (
        f"{share:.0%} of the validation rows share their {column} with training rows{also}: if "
        "these are frames of one clip or tiles of one patient, validation errors are those of "
        f"memory; dataset.split_by={column} keeps them together"
    )
