"""The errors of a classifier that always predicts one class.

It is the most frequent class among the images that a run trains on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from dgbench.batches import ErrorRecipe
from dgbench.data.environments import Environments


def majority_class(environments: Environments, training: Sequence[str]) -> int | None:
    """Find the most frequent label of the training images of these environments together.

    Args:
        environments: as the run sees them.
        training: names of those that it trains on.

    Returns:
        the label, the lowest of those that tie, or None if there are no training images.
    """
    subsets = [environments.table.subset(env, "train") for env in training]
    positions = np.concatenate(subsets) if subsets else np.empty(0, np.int64)
    if not len(positions):
        return None
    return int(np.bincount(environments.catalog.labels[positions]).argmax())


def with_majority_errors(
    recipes: Sequence[ErrorRecipe], environments: Environments, training: Sequence[str]
) -> list[ErrorRecipe]:
    """Add to each recipe how many of its images the majority class gets wrong.

    That is the most frequent class of the training images.

    Labels alone are counted, once for each eval set; no image is looked at.

    Args:
        recipes: errors that a run records.
        environments: as the run sees them.
        training: names of the environments that it trains on.
    """
    label = majority_class(environments, training)
    if label is None:
        return list(recipes)
    wrong: dict[str, int] = {}
    for name in dict.fromkeys(chain.from_iterable(recipe.mixture for recipe in recipes)):
        positions = environments.table.eval_set(name).indices.numpy()
        wrong[name] = int((environments.catalog.labels[positions] != label).sum())
    return [replace(recipe, majority_wrong=_mixed(recipe, wrong)) for recipe in recipes]


def _mixed(recipe: ErrorRecipe, wrong: dict[str, int]) -> float:
    """Mix the counts of eval sets as the recipe does; equal ones without rounding."""
    counts = {wrong[name] for name in recipe.mixture}
    if len(counts) == 1:
        return float(counts.pop())
    return sum(weight * wrong[name] for name, weight in recipe.mixture.items())
