"""What is kept of single images when a model is evaluated: features and predictions, in files
beside the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgbench.batches import ErrorRecipe, EvalBatch
from dgbench.callbacks.predictions import PredictedRun, PredictionLines, columns_of
from dgbench.data.description import SUBSETS
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError
from dgbench.records.files import write_whole_with
from dgbench.records.predictions import need_pyarrow
from dgbench.records.rows import FEATURE_FILE
from dgbench.seeding import derive
from dgbench.trained.predictor import LoadedModel, Predictor

AT_ONCE = 256


@torch.no_grad()
def write_features(
    folder: Path,
    model: Predictor,
    environments: Environments,
    recipes: Sequence[ErrorRecipe],
    most: int,
) -> None:
    """Write features of up to ``most`` images of each environment: ``test`` ones if any, else
    ``val`` ones.

    The file holds ``features`` (n, m) float16, ``env``, ``held_out``, ``label`` and ``predicted``
    (n,), and ``about``, JSON with the names of environments and classes. Which images are taken
    depends on their eval set alone, so that several models are seen on the same ones. Environments
    whose error mixes several eval sets are left out.

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
    recipe_by_env = {
        r.env: r
        for r in sorted(recipes, key=lambda r: SUBSETS.index(r.subset))
        if len(r.mixture) == 1
    }
    if not recipe_by_env:
        raise ConfigError(
            "features= needs environments with images of their own; set "
            "dataset.evaluation=sampled for painted ones"
        )
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("features", "env", "held_out", "label", "predicted")
    }
    for number, recipe in enumerate(recipe_by_env.values()):
        (name,) = recipe.mixture
        scored = environments.eval_sets([name])[name]
        order = np.random.default_rng(derive(0, "features", name)).permutation(len(scored.indices))[
            :most
        ]
        held_out = recipe.never_trained_on(model.record.training)
        for rows in map(torch.from_numpy, np.split(order, range(AT_ONCE, len(order), AT_ONCE))):
            batch = scored.at(rows)
            x, y = environments.store.gather(batch.indices, batch.feature)
            features = model.features(x.to(model.run.networks.dtype))
            logits = model.run.networks.classifier(features)
            parts["features"].append(features.to(torch.float16).cpu().numpy())
            parts["label"].append(y.cpu().numpy())
            parts["predicted"].append(logits.argmax(1).cpu().numpy())
            parts["env"].append(np.full(len(rows), number))
            parts["held_out"].append(np.full(len(rows), held_out))
    about = json.dumps(
        {"environments": list(recipe_by_env), "classes": list(environments.catalog.classes)}
    )
    arrays = {name: np.concatenate(array) for name, array in parts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save: Callable[..., None] = np.savez_compressed  # its stub takes names for its own options
    write_whole_with(
        folder / FEATURE_FILE, lambda file: save(file, about=np.array(about), **arrays)
    )


Listen = Callable[[EvalBatch, Tensor], None]


@contextmanager
def prediction_files(
    runs: Sequence[PredictedRun], step: int, environments: Environments
) -> Iterator[Listen | None]:
    """Yield a listener for every batch and its (n, K) logits; write a file for each run (fold) once
    all went well.

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
