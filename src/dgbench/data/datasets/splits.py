"""Rows of images or features: their environments and classes, and how each one's are split.

Imports no torch.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgbench.data.datasets.labeled_rows import LabeledRows
from dgbench.data.datasets.small_environments import refuse_together
from dgbench.data.datasets.split_units import check_listed_units, cut_units, units_in_several
from dgbench.data.description import AS_LISTED, SUBSETS, Counts, check_names
from dgbench.data.options import list_of_names
from dgbench.errors import ConfigError, DataError
from dgbench.seeding import derive

log = logging.getLogger(__name__)

Subsets = Mapping[tuple[str, str], np.ndarray]  #: (environment, subset) -> positions in the table


@functools.cache
def warn_once(text: str) -> None:
    """Warn about files once per process.

    It looks at them for its plan, for training and for its record.
    """
    log.warning("%s", text)


def chosen_environments(present: Sequence[str], environments: Sequence[str] | None) -> list[str]:
    """List the environments to take, in order; all ``present`` ones for None.

    Raises:
        ConfigError: ``dataset.environments`` is no list, empty, or names one that is not
            ``present``.
    """
    if environments is None:
        return list(present)
    names = list_of_names("environments", environments, f"choose from [{','.join(present)}]")
    if not names:
        raise ConfigError(
            f"dataset.environments=[] is no list of names; choose from [{','.join(present)}]"
        )
    for env in names:
        if env not in present:
            raise ConfigError(
                f"dataset.environments names {env}, which is not there; choose from "
                f"{', '.join(present)}"
            )
    return names


def check_classes(
    names: Sequence[str], labels: Sequence[str], present: set[tuple[str, str]]
) -> None:
    """Refuse a table with unclear class names, or an environment without images.

    Args:
        names: of the environments.
        labels: names of the classes.
        present: (environment, class) pairs that have images.

    Raises:
        DataError: an environment lacks every class; see also
            :func:`~dgbench.data.description.check_names`.
    """
    check_names("classes", labels)
    filled = {env for env, _ in present}
    for env in names:
        if env not in filled:
            others = ",".join(name for name in names if name in filled)
            raise DataError(
                f"environment {env} holds no images; fill it, or leave it out with "
                f"dataset.environments=[{others}]"
            )


@dataclass(frozen=True)
class CorruptedSection:
    """Images that are corrupted alike."""

    name: str  #: unique; part of the seed and of the file's name
    corruption: str | None  #: what is done to them; None leaves them clean
    positions: np.ndarray  #: (m,) of the clean images in their store


def cut(
    images: np.ndarray, share: float, seed: int, *purpose: str
) -> tuple[np.ndarray, np.ndarray]:
    """Split images at random, by a seed and a purpose: a share, rounded down, and the rest."""
    shuffled = images[np.random.default_rng(derive(seed, *purpose)).permutation(len(images))]
    n = int(len(images) * share)
    return shuffled[:n], shuffled[n:]


def counts_of(subsets: Subsets) -> Counts:
    """Count the images of each subset: environment -> ``train``, ``val``, ``test`` -> images."""
    counts: dict[str, dict[str, int]] = {}
    for (env, subset), positions in subsets.items():
        counts.setdefault(env, dict.fromkeys(SUBSETS, 0))[subset] = len(positions)
    return counts


def split_variant(
    split_by: str | None, split_pattern: str | None, min_images: int
) -> dict[str, Any]:
    """Collect the keys of the split that are not at their default, for rows.

    Older rows lack these keys.
    """
    keys = {"split_by": split_by, "split_pattern": split_pattern, "min_images": min_images}
    return {key: value for key, value in keys.items() if value}


def check_units(units: np.ndarray, table: LabeledRows, key: str) -> None:
    """Refuse a list that divides a unit; warn if units are in several environments.

    Args:
        units: (n,) numbers of what the rows show.
        table: the rows.
        key: what asked for the units, with its value.

    Raises:
        DataError: it divides one.
    """
    # val is cut from rows that no list assigns, unit by unit
    subset = np.where(table.listed < 0, SUBSETS.index("train"), table.listed)
    check_listed_units(units, table.env, subset, key, table.environments)
    several = units_in_several(units, table.env)
    if several:
        warn_once(
            f"{key}: {several} of {len(np.unique(units))} values are in several environments; if "
            "a value is the same thing in each, held-out environments show what was trained on"
        )


def subsets_of(
    table: LabeledRows,
    counted: np.ndarray,
    val_fraction: float,
    seed: int,
    units: np.ndarray | None = None,
    min_images: int = 0,
) -> Subsets:
    """Split every environment into positions of ``train``, ``val`` and ``test``.

    Only a list puts rows into ``test``.

    An environment whose images are all listed as ``val`` or ``test`` has no others, and cannot be
    trained on.

    Args:
        table: the images, or features.
        counted: (n,) bool, those that count.
        val_fraction: share of an environment's images in its val subset.
        seed: decides the split.
        units: (n,) numbers of what the rows show, none of which is in two subsets; None splits row
            by row.
        min_images: images that an environment is trained on with; a smaller one needs no validation
            images.

    Raises:
        ConfigError: environments that leave a subset empty, all in one line.
        DataError: environments that lack classes, all in one line; a list that divides a unit.
    """
    subsets: dict[tuple[str, str], np.ndarray] = {}
    in_val: dict[int, bool] = {}
    for number, env in enumerate(table.environments):
        rows = np.flatnonzero((table.env == number) & counted)
        split = _split(table, rows, env, val_fraction, seed, units, in_val)
        for subset, positions in split.items():
            subsets[env, subset] = positions
    refuse_together(table, counted, subsets, val_fraction, min_images, units)
    return subsets


def drawn(val_fraction: float, seed: int) -> str:
    """Describe that images for validation are a share of every environment's."""
    return (
        f"{100 * val_fraction:.3g} % of each environment's images, drawn at random "
        f"(dataset.split_seed={seed})"
    )


def origin_of_val(table: LabeledRows, val_fraction: float, seed: int) -> str:
    """Describe where the images for validation come from: the list, or a share at random."""
    listed = set(table.env[table.listed == SUBSETS.index("val")].tolist())
    if not listed:
        return drawn(val_fraction, seed)
    others = len(table.environments) - len(listed)
    if not others:
        return AS_LISTED
    share = drawn(val_fraction, seed)
    return f"{AS_LISTED} in {len(listed)} environments, of {others} others {share}"


def _split(
    table: LabeledRows,
    rows: np.ndarray,
    env: str,
    val_fraction: float,
    seed: int,
    units: np.ndarray | None,
    in_val: dict[int, bool],
) -> dict[str, np.ndarray]:
    """Split the rows of an environment into the positions of its subsets.

    Args:
        table, val_fraction, seed, units: see :func:`subsets_of`.
        rows: positions of the environment.
        env: its name.
        in_val: unit -> whether an earlier environment has it in ``val``; those of this one are
            added.
    """
    listed = table.listed[rows]
    test = rows[listed == SUBSETS.index("test")]
    val = rows[listed == SUBSETS.index("val")]
    train = rows[(listed == -1) | (listed == SUBSETS.index("train"))]
    if len(train) and not len(val):
        if units is None:
            val, train = cut(train, val_fraction, seed, "split", env)
        else:
            own_seed = derive(seed, "split", env)
            val, train = cut_units(train, units[train], val_fraction, own_seed, in_val)
    return {"train": train, "val": val, "test": test}
