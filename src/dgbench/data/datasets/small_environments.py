"""What keeps small environments from being trained on, all of it in one line with what suffices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count

import numpy as np

from dgbench.data.datasets.labeled_rows import LabeledRows
from dgbench.errors import ConfigError, DataError
from dgbench.validation import some_of

NAMED = 3  #: environments that a message names

Subsets = Mapping[tuple[str, str], np.ndarray]


class TooFewImagesError(ConfigError):
    """Environments cannot be divided.

    What a minibatch takes from each is added to the same line by the code that knows it.

    Attributes:
        images: training images of each environment, once they are divided.
        only_tested: environments that are too small to be trained on.
    """

    def __init__(self, text: str, images: Mapping[str, int], only_tested: Sequence[str]) -> None:
        super().__init__(text)
        self.images = images
        self.only_tested = tuple(only_tested)


class LackingClassesError(TooFewImagesError, DataError):
    """Environments cannot be divided, and some lack classes besides."""


def too_small(subsets: Subsets, environments: Sequence[str], min_images: int) -> tuple[str, ...]:
    """List the environments with fewer than ``min_images`` images in ``train`` and ``val``."""
    return tuple(env for env in environments if _own_images(subsets, env) < min_images)


def refuse_together(
    table: LabeledRows,
    counted: np.ndarray,
    subsets: Subsets,
    val_fraction: float,
    min_images: int,
    units: np.ndarray | None,
) -> None:
    """Refuse environments that lack classes or validation images.

    Arguments and errors are those of ``subsets_of``.

    Environments that are too small to be trained on may have no validation images.
    """
    small = set(too_small(subsets, table.environments, min_images))
    without_val: dict[str, int] = {}
    without_train: dict[str, int] = {}
    for env in table.environments:
        train = len(subsets[env, "train"])
        val = len(subsets[env, "val"])
        if env in small:
            continue
        if train and not val:
            without_val[env] = train
        if units is not None and not train and _unlisted(table, counted, env):
            without_train[env] = val
    lacking = _lacking_classes(table) if table.same_classes else {}
    total = len(table.environments)
    faults = []
    if lacking:
        faults.append(_of_classes(lacking, total))
    if units is not None and (without_val or without_train):
        faults.append(_of_units({**without_val, **without_train}, total))
    elif without_val:
        faults.append(_of_fraction(without_val, total, val_fraction))
    if not faults:
        return
    images = {env: len(subsets[env, "train"]) - (env in without_val) for env in table.environments}
    error = LackingClassesError if lacking else TooFewImagesError
    raise error("; and ".join(faults), images, sorted(small))


def batch_refusal(batch_size: int, images: Mapping[str, int]) -> str:
    """Describe which environments are smaller than a minibatch, and what helps.

    Args:
        batch_size: images per environment and step.
        images: training images of every environment that some fold trains on.
    """
    small = {env: n for env, n in images.items() if n < batch_size}
    fewest = min(small.values())
    if len(small) == 1:
        name = next(iter(small))
        named = f" ({name})" if name else ""
        which = f"the smallest training environment{named}, of {fewest} images"
    else:
        number = f"{len(small)} of {len(images)}"
        which = f"the smallest training environments, {number} ({_listed(small)})"
    return (
        f"hparams.batch_size={batch_size} is larger than {which}; set hparams.batch_size={fewest} "
        "or less, trainer.small_environments=repeat to draw images of small ones repeatedly, or "
        "dataset.min_images=N to leave them out of training, where the dataset has that key"
    )


def with_batch_refusal(
    error: TooFewImagesError, batch_size: int, trained_on: Collection[str]
) -> TooFewImagesError:
    """Add to a refusal what a minibatch needs besides.

    The same one is returned if all environments have enough images.

    Args:
        error: the refusal.
        batch_size: images per environment and step.
        trained_on: environments that some fold trains on.
    """
    images = {env: n for env, n in error.images.items() if env in trained_on and n}
    enough = all(n >= batch_size for n in images.values())
    if enough:
        return error
    line = f"{error}; and {batch_refusal(batch_size, images)}"
    return type(error)(line, error.images, error.only_tested)


def _own_images(subsets: Subsets, env: str) -> int:
    return len(subsets[env, "train"]) + len(subsets[env, "val"])


def _unlisted(table: LabeledRows, counted: np.ndarray, env: str) -> bool:
    """Return whether a list leaves it to chance which rows of an environment validate."""
    rows = (table.env == table.environments.index(env)) & counted
    return bool((table.listed[rows] == -1).any())


def _lacking_classes(table: LabeledRows) -> dict[str, list[str]]:
    """List the classes that each environment lacks, for those that lack some."""
    n_classes = len(table.classes)
    has = np.zeros((len(table.environments), n_classes), dtype=bool)
    has[table.env, table.label] = True
    lacking = {}
    for env, row in zip(table.environments, has, strict=True):
        classes = [table.classes[k] for k in np.flatnonzero(~row)]
        if classes:
            lacking[env] = classes
    return lacking


def _of_classes(lacking: Mapping[str, Sequence[str]], environments: int) -> str:
    fix = "add some, or allow it with dataset.classes=union"
    if len(lacking) == 1:
        env, classes = next(iter(lacking.items()))
        return (
            f"environment {env} has no images of class {some_of(classes)}, which others have; {fix}"
        )
    faults = [f"environment {env} of class {some_of(names)}" for env, names in lacking.items()]
    return (
        f"{len(lacking)} of {environments} environments have no images of classes that others "
        f"have ({some_of(faults, NAMED)}); {fix}"
    )


def _of_fraction(without_val: Mapping[str, int], environments: int, val_fraction: float) -> str:
    fewest = min(without_val.values())
    least = next(n for n in count(2) if int(n * val_fraction))
    at_fraction = f"at dataset.val_fraction={val_fraction:g}"
    if len(without_val) == 1:
        env, n = next(iter(without_val.items()))
        fault = f"environment {env} has {n} train and 0 val images {at_fraction}"
    else:
        number = f"{len(without_val)} of {environments}"
        fault = f"{number} environments have 0 val images {at_fraction} ({_listed(without_val)})"
    leave_out = f"dataset.min_images={least} leaves them out of training and tests them still"
    if fewest > 1:
        sufficient = f"dataset.val_fraction={sufficient_fraction(fewest):g} suffices"
        or_leave_out = f", or {leave_out}" if len(without_val) < environments else ""
        return f"{fault}; {sufficient}{or_leave_out}"
    single = sum(n == 1 for n in without_val.values())
    with_two = sufficient_fraction(min((n for n in without_val.values() if n > 1), default=least))
    have = "has" if single == 1 else "have"
    return (
        f"{fault}; no fraction suffices where there is one image, as {single} {have}: {leave_out}, "
        f"dataset.min_images=2 with dataset.val_fraction={with_two:g} leaves out only those"
    )


def sufficient_fraction(images: int) -> float:
    """Compute the least hundredth that puts one of this many images, two or more, into ``val``."""
    return next(k / 100 for k in range(1, 100) if int(images * (k / 100)) >= 1)


def _of_units(undivided: Mapping[str, int], environments: int) -> str:
    return (
        f"{len(undivided)} of {environments} environments ({_listed(undivided)}) cannot "
        "be divided into train and val by dataset.split_by or dataset.split_pattern, "
        "because all of their images belong together; choose a finer one, or leave them "
        f"out of training with dataset.min_images={1 + max(undivided.values())}, which "
        "tests them still"
    )


def _listed(images: Mapping[str, int]) -> str:
    ordered = sorted(images.items(), key=lambda pair: pair[1])
    return some_of([f"{env}: {n}" for env, n in ordered], NAMED)
