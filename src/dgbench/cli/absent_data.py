"""What conf/dataset tells of a dataset whose images are not on this machine: enough to count the models of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgbench.cli.fold_plan import Known


def known_without_images(dataset: Mapping[str, Any]) -> Known | None:
    """Given environments of a composed ``conf/dataset``; None where the file does not tell.

    Where a file tells only how many environments are given, as ``ratio`` and ``scale`` or corruptions per domain do,
    numbers stand for their names; 0 classes stand for an unknown number.

    Args:
        dataset: the resolved keys of the dataset.
    """
    published = dataset.get("published") or {}
    chosen = _typed(dataset)  # out of all that there are
    names = chosen or dataset.get("environments") or published.get("environments")
    if not names:
        return None
    return Known([str(name) for name in names], int(published.get("classes") or 0), beyond=chosen is not None)


def _typed(dataset: Mapping[str, Any]) -> list[Any] | None:
    given, ratio, scale = (dataset.get(key) for key in ("given", "ratio", "scale"))
    if isinstance(given, list):
        return given
    if isinstance(given, str):  # corruptions drawn for each domain, e.g. 2-0-2-2
        counts = given.split("-")
        return list(range(sum(map(int, counts)))) if all(count.isdecimal() for count in counts) else None
    sets = dataset.get("given_sets")
    if isinstance(sets, Mapping):
        found: list[Any] | None = sets.get(str(ratio))
        return found
    if isinstance(ratio, int) and isinstance(scale, int):
        return list(range(scale * (ratio + 1)))
    return None
