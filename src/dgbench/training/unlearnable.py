"""Classes that a run cannot learn, since no training environment has such an image."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from dgbench.batches import ErrorRecipe
from dgbench.data.environments import Environments


def trained_classes(environments: Environments, training: Sequence[str]) -> tuple[str, ...]:
    """List the names of the classes that some training image has, in the order of the labels."""
    catalog = environments.catalog
    images = [environments.table.subset(env, "train") for env in training]
    labels = np.unique(catalog.labels[np.concatenate(images)])
    return tuple(catalog.classes[k] for k in labels.tolist())


def unlearnable(
    environments: Environments, recipes: Sequence[ErrorRecipe], trained: Collection[str]
) -> dict[str, float]:
    """Compute the share of each class that is tested and was not trained on.

    Args:
        environments: as the run sees them.
        recipes: errors that are recorded of it.
        trained: names of the classes that it was trained on.

    Returns:
        ``ENVIRONMENT: CLASS`` -> share of the tested images of that environment.
    """
    table = environments.table
    catalog = environments.catalog
    missing = [k for k, name in enumerate(catalog.classes) if name not in trained]
    shares: dict[str, float] = {}
    if not missing:
        return shares
    for recipe in recipes:
        if recipe.subset != "test":
            continue
        share = np.zeros(len(catalog.classes))
        for name, weight in recipe.mixture.items():
            labels = catalog.labels[table.eval_set(name).indices.numpy()]
            share += weight * np.bincount(labels, minlength=len(share)) / len(labels)
        for k in missing:
            if share[k]:
                shares[f"{recipe.env}: {catalog.classes[k]}"] = round(float(share[k]), 6)
    return shares
