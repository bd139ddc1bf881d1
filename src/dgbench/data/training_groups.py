"""Groups of the images that a run trains on: their classes beside what a list tells about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from dgbench.data.environments import Environments
from dgbench.records.predictions import MOST_VALUES, TrainingGroups


def training_groups(environments: Environments, training: Sequence[str]) -> TrainingGroups:
    """Count the training images of each class in each value of the attributes.

    Args:
        environments: as the run sees them.
        training: those that it trains on.

    Returns:
        attribute -> value -> class -> images; no attribute with one value, or with more than
        :data:`~dgbench.records.predictions.MOST_VALUES`.
    """
    catalog = environments.catalog
    if not catalog.attributes:
        return {}
    positions = np.concatenate([environments.table.subset(env, "train") for env in training])
    classes = np.array(catalog.classes, dtype=object)[catalog.labels[positions]]
    groups: TrainingGroups = {}
    for name, values in catalog.attributes_at(positions).items():
        if not 2 <= len(set(values)) <= MOST_VALUES:
            continue
        counts = Counter(zip(map(str, values), classes.tolist(), strict=True))
        by_value: dict[str, dict[str, int]] = {}
        for (value, label), images in sorted(counts.items()):
            by_value.setdefault(value, {})[label] = images
        groups[name] = by_value
    return groups
