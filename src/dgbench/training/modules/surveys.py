"""Surveys: before some steps an algorithm looks at all training images of a run, and keeps what it makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dgbench.batches import TrainingImages
from dgbench.errors import ConfigError
from dgbench.objectives.step import Prediction, Surveyed
from dgbench.seeding import derive
from dgbench.training.modules.mixed_precision import half_for_networks
from dgbench.training.modules.run_predictions import PredictingModule, TrainingImagesOf


def survey(module: PredictingModule, due: Sequence[int], step: int) -> None:
    """Pass over the training images of some runs and put what their algorithm makes of them into their memory.

    Weights, seed and step decide all of it, so nothing else is saved to resume.

    Args:
        module: of the runs; its networks are in training mode before and after.
        due: numbers of the runs.
        step: the one that follows.

    Raises:
        ConfigError: the module was given no training images.
    """
    if module.training_images is None:
        raise ConfigError(
            f"{type(module.algorithm).__name__} looks at all training images before some steps; give the module's "
            "training_images a function that yields them"
        )
    for i in due:
        run = module.runs[i]
        networks, hp, state = module.evaluated(i)
        rows: list[Any] = []
        with torch.no_grad(), half_for_networks(networks, module.device) as called:
            for images in module.training_images(i):
                made = run.algorithm.survey(Prediction(called, images.x, hp, state, {}))
                rows.append((made, images.y, images.env, images.index))
        made, y, env, index = (torch.cat(each) for each in zip(*rows, strict=True))
        rng = np.random.default_rng(derive(run.draws.seed, "survey", step))
        module.remember(i, run.algorithm.digest(Surveyed(made, y, env, index, state, step, rng)))
    module.runs[0].networks.train()


def given(images: Sequence[TrainingImages]) -> TrainingImagesOf:
    """The same images for every run."""
    return lambda i: images
