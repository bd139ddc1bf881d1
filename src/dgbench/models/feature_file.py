"""``features.npz`` in the folder of an evaluated run: features of some of its images, for ``report=features``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dgbench.data.environments import Environments
from dgbench.errors import ConfigError
from dgbench.models.loaded import LoadedModel, Predictor
from dgbench.records.files import write_whole_with
from dgbench.records.rows import FEATURE_FILE
from dgbench.seeding import derive
from dgbench.tensors import ErrorRecipe

AT_ONCE = 256


@torch.no_grad()
def write_features(
    folder: Path, model: Predictor, environments: Environments, recipes: Sequence[ErrorRecipe], most: int
) -> None:
    """Features of up to ``most`` images of each environment: ``test`` images where it has any, else ``val``.

    The file holds ``features`` (n, m) float16, ``env``, ``held_out``, ``label`` and ``predicted`` (n,), and ``about``,
    JSON with the names of environments and classes. Which images are taken depends on their eval set alone, so that
    several models are seen on the same ones. Environments whose error mixes several eval sets are left out.

    Args:
        folder: that receives it.
        model: a run on images as the dataset gives them.
        environments: the dataset.
        recipes: errors that were recorded.
        most: images of an environment.

    Raises:
        ConfigError: the model has no features, or no environment has an eval set of its own.
    """
    if not isinstance(model, LoadedModel):
        raise ConfigError("features= needs a run of dgbench, whose featurizer is known; leave it out for this model")
    chosen = {r.env: r for r in sorted(recipes, key=lambda r: r.subset == "test") if len(r.mixture) == 1}
    if not chosen:
        raise ConfigError(
            "features= needs environments with images of their own; set dataset.evaluation=sampled for painted ones"
        )
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("features", "env", "held_out", "label", "predicted")}
    for number, recipe in enumerate(chosen.values()):
        (name,) = recipe.mixture
        scored = environments.eval_sets([name])[name]
        order = np.random.default_rng(derive(0, "features", name)).permutation(len(scored.indices))[:most]
        held_out = recipe.env not in model.record.training if recipe.held_out is None else recipe.held_out
        for rows in map(torch.from_numpy, np.split(order, range(AT_ONCE, len(order), AT_ONCE))):
            feature = None if scored.feature is None else scored.feature[rows]
            x, y = environments.store.gather(scored.indices[rows], feature)
            found = model.features(x.to(model.run.networks.dtype))
            logits = model.run.networks.classifier(found)
            parts["features"].append(found.to(torch.float16).cpu().numpy())
            parts["label"].append(y.cpu().numpy())
            parts["predicted"].append(logits.argmax(1).cpu().numpy())
            parts["env"].append(np.full(len(rows), number))
            parts["held_out"].append(np.full(len(rows), held_out))
    about = json.dumps({"environments": list(chosen), "classes": list(environments.catalog.classes)})
    content = {name: np.concatenate(own) for name, own in parts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_whole_with(folder / FEATURE_FILE, partial(_save, about=np.array(about), **content))


def _save(file: object, **arrays: np.ndarray) -> None:
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
