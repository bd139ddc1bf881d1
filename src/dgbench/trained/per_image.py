"""What is kept of single images when a model is evaluated.

Features and predictions stand in files beside the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgbench.batches import ErrorRecipe, EvalBatch
from dgbench.callbacks.predictions import PredictionLines, PredictionTarget, columns_of
from dgbench.data.description import SUBSETS
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError
from dgbench.records.files import write_whole_with
from dgbench.records.predictions import need_pyarrow
from dgbench.records.rows import FEATURE_FILE
from dgbench.seeding import derive
from dgbench.trained.predictor import LoadedModel, Predictor

AT_ONCE = 256  # images in a batch


@torch.no_grad()
def write_features(
    folder: Path,
    model: Predictor,
    environments: Environments,
    recipes: Sequence[ErrorRecipe],
    most: int,
) -> None:
    """Write features of up to ``most`` images of each environment.

    These are ``test`` images if it has any, else ``val`` ones. The file holds ``features`` (n, m)
    float16, ``env``, ``held_out``, ``label`` and ``predicted`` (n,), and ``about``, JSON with the
    names of environments and classes. Which images are taken depends on their eval set alone, so
    that several models are seen on the same ones. Environments whose error mixes several eval sets
    are left out.

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
        raise ConfigError(
            "features= needs a run of dgbench, whose featurizer is known; leave it out for this "
            "model"
        )
    recipe_by_env: dict[str, ErrorRecipe] = {}  # of the last subset, test after val
    for recipe in sorted(recipes, key=lambda recipe: SUBSETS.index(recipe.subset)):
        if len(recipe.mixture) == 1:
            recipe_by_env[recipe.env] = recipe
    if not recipe_by_env:
        raise ConfigError(
            "features= needs environments with images of their own; set "
            "dataset.evaluation=sampled for painted ones"
        )
    names = ("features", "env", "held_out", "label", "predicted")
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for number, recipe in enumerate(recipe_by_env.values()):
        (name,) = recipe.mixture
        scored = environments.eval_sets([name])[name]
        rng = np.random.default_rng(derive(0, "features", name))
        order = rng.permutation(len(scored.indices))[:most]
        held_out = recipe.never_trained_on(model.record.training)
        for chunk in np.split(order, range(AT_ONCE, len(order), AT_ONCE)):
            batch = scored.at(torch.from_numpy(chunk))
            x, y = environments.store.gather(batch.indices, batch.feature)
            features = model.features(x.to(model.run.networks.dtype))
            logits = model.run.networks.classifier(features)
            parts["features"].append(features.to(torch.float16).cpu().numpy())
            parts["label"].append(y.cpu().numpy())
            parts["predicted"].append(logits.argmax(1).cpu().numpy())
            parts["env"].append(np.full(len(chunk), number))
            parts["held_out"].append(np.full(len(chunk), held_out))
    classes = list(environments.catalog.classes)
    about = json.dumps({"environments": list(recipe_by_env), "classes": classes})
    arrays = {name: np.concatenate(chunks) for name, chunks in parts.items()}
    _save_arrays(folder, {"about": np.array(about), **arrays})


def _save_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the file of features, whole."""
    save: Callable[..., None] = np.savez_compressed  # its stub takes names for its own options
    folder.mkdir(parents=True, exist_ok=True)
    write_whole_with(folder / FEATURE_FILE, lambda file: save(file, **arrays))


Listen = Callable[[EvalBatch, Tensor], None]


@contextmanager
def prediction_files(
    runs: Sequence[PredictionTarget], step: int, environments: Environments
) -> Iterator[Listen | None]:
    """Yield a listener for every batch and its (n, K) logits, or None without runs.

    A file is written for each run (fold) once all went well.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    if not runs:
        yield None
        return
    need_pyarrow("predictions=true")
    attributes = list(environments.catalog.attributes)
    files: list[PredictionLines] = []
    try:
        for run in runs:
            assert run.file is not None
            run.file.parent.mkdir(parents=True, exist_ok=True)
            files.append(PredictionLines(run, step, "last", attributes))

        def listen(batch: EvalBatch, logits: Tensor) -> None:
            (columns,) = columns_of(batch, logits[None], environments)
            for file in files:
                file.add(batch.name, columns)

        yield listen
    except BaseException:
        for file in files:
            file.discard()
        raise
    for file in files:
        file.finish()
