"""How people write lists: what separates the columns, and which one tells train, val and test."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence

from dgbench.errors import ConfigError, DataError
from dgbench.validation import some_of

SUBSET = "subset"  #: the column of subsets that needs no key
NO_SUBSETS = "none"  #: value of ``dataset.subset_column`` that follows no column
SEPARATORS = (",", ";", "\t")  #: that separate columns
MOST_WORDS = 3  #: different values of a column that a message shows
SPLIT_NAMES = frozenset({"split", "splits", "partition"})

#: how others call the subsets, in small letters
SUBSET_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


def sign_between(heading: str, columns: Sequence[str]) -> str:
    """Find the sign that separates a heading into names, ``columns`` among them.

    A comma is returned if none does.
    """
    for sign in SEPARATORS:
        names = next(csv.reader([heading], delimiter=sign), [])
        if set(columns) <= {name.strip() for name in names}:
            return sign
    return ","


def subset_of(text: str) -> str:
    """Map a value of a column of subsets to ``train``, ``val`` or ``test``.

    Another value stays as it is, to be refused.
    """
    return SUBSET_WORDS.get(text.strip().lower(), text)


def column_of_subsets(
    asked: str | None, columns: Sequence[str], values: Callable[[str], Iterable[str]], source: str
) -> str | None:
    """Choose the column of a list that tells train, val and test, or None.

    Args:
        asked: ``dataset.subset_column``; None takes ``subset``, if there is one.
        columns: names of those that hold no path, features, environment or class.
        values: the texts in a column.
        source: what the list is called in a message.

    Raises:
        ConfigError: a column was asked for that is not there.
        DataError: none was asked for, there is no ``subset``, and another column tells train, val
            or test.
    """
    if asked == NO_SUBSETS:
        return None
    if asked is not None:
        if asked not in columns:
            choices = some_of([*columns, NO_SUBSETS], 8)
            raise ConfigError(
                f"dataset.subset_column={asked} is no column of {source}; choose from {choices}"
            )
        return asked
    if SUBSET in columns:
        return SUBSET
    for column in columns:
        if _says_subsets(column, values(column)):
            words = list(dict.fromkeys(text for text in values(column) if text.strip()))
            raise DataError(
                f"{source} has a column {column} ({some_of(words, MOST_WORDS)}) and no column "
                f"{SUBSET}; write dataset.subset_column={column} to train, validate and test as "
                f"it says, or dataset.subset_column={NO_SUBSETS} to draw the validation set at "
                "random"
            )
    return None


def _says_subsets(column: str, values: Iterable[str]) -> bool:
    """Return whether a column is one of subsets: by its name, or as it holds only their names."""
    if column.strip().lower() in SPLIT_NAMES:
        return True
    filled = False
    for text in values:
        word = text.strip().lower()
        if word and word not in SUBSET_WORDS:
            return False
        filled = filled or bool(word)
    return filled
