"""Small trees in the layouts that datasets are published in, and the datasets made of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from dgbench.data.environments import Environments
from tests.datasets import built
from tests.studies import composed

RNG = np.random.default_rng(0)


def image(path: Path, gray: bool = False) -> None:
    """A picture of 4 x 6 pixels of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (6, 4) if gray else (6, 4, 3), dtype=np.uint8)).save(path)


def made(name: str, root: Path, *words: str) -> Environments:
    """The dataset as its YAML has it, on a tree made here."""
    overrides = [
        f"dataset={name}",
        f"dataset.root={root}",
        "dataset.image_size=4",
        "dataset.val_fraction=0.5",
        f"paths.cache_dir={root}-cache",
        *words,
    ]
    config = composed(*overrides)
    if config.dataset.get("published"):
        config.dataset.published = None  # small trees have fewer environments and classes
    return built(config)  # type: ignore[no-any-return]


def contents(environments: Environments) -> dict[tuple[str, str], int]:
    """(environment, class) -> images of all subsets."""
    found: Counter[tuple[str, str]] = Counter()
    for env in environments.info.given:
        for subset in ("train", "val", "test"):
            for i in environments.table.subset(env, subset):
                found[env, environments.catalog.classes[environments.catalog.labels[i]]] += 1
    return dict(found)
