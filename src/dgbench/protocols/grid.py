"""``grid``: the combinations of several studies in one job."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from dgbench.errors import ConfigError


def grid_combinations(grid: dict[str, Any]) -> list[list[str]]:
    """The overrides of every combination of the lists under ``grid``; one without any where there are none.

    An entry that is null, as one that is to be taken out of an experiment's grid, counts as not there.

    Raises:
        ConfigError: an entry is no list.
    """
    lists = grid_lists(grid)
    return [[f"{key}={value}" for key, value in zip(lists, own, strict=True)] for own in product(*lists.values())]


def grid_lists(grid: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists under ``grid`` by the key that each sets.

    Raises:
        ConfigError: an entry is no list.
    """
    grid = {key: values for key, values in dict(_flat(grid)).items() if values is not None}
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{key}={values} is no list; write grid.{key}=[...], or null to leave it out")
    return grid


def _flat(grid: dict[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Entries with dots in their keys; an experiment writes ``dataset.ratio``, a word of the command line nests it."""
    for key, values in grid.items():
        if isinstance(values, dict):
            yield from _flat(values, f"{under}{key}.")
        else:
            yield f"{under}{key}", values
