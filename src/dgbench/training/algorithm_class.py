"""Import the class of an algorithm, without what trains it."""

from __future__ import annotations

from dgbench.objectives.contract import Algorithm
from dgbench.plan.building import class_at


def algorithm_class(path: str) -> type[Algorithm]:
    """Import the class that ``algorithm.objective`` names.

    Raises:
        ConfigError: it cannot be imported, or is no algorithm.
    """
    return class_at(path, "algorithm.objective", Algorithm)  # type: ignore[type-abstract]
