"""The images or features of a job, and what its classifiers are trained with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dgbench.data.environments import Environments, EvalSet
from dgbench.data.store.features import CachedFeatures
from dgbench.errors import ConfigError
from dgbench.estimation.fitting import ClassifierTraining
from dgbench.estimation.sampling import own_images
from dgbench.estimation.shift_plan import PlannedShift
from dgbench.models.picture_input import batches
from dgbench.modules import example_of
from dgbench.networks.stages import FirstStages
from dgbench.plan.building import build, without
from dgbench.plan.inputs import built
from dgbench.seeding import derive
from dgbench.training.compatibility import check_backbone, check_weights
from dgbench.training.modules.predicting import activations, images_at_once

FILES_AT_ONCE = 64


def prepared(job: PlannedShift, tell: Callable[[str], None]) -> ClassifierTraining:
    """Images and network of a job; with ``features=frozen`` the features of all images, computed once and kept.

    Raises:
        ConfigError, DataError, WeightsError: something cannot be had.
    """
    check_backbone(job.config, job.info)
    check_weights(job.weights, job.config)
    source = built(job.dataset)
    execution = job.config["execution"]
    make = partial(_network, job, source)
    if job.config["features"] == "trained":
        return ClassifierTraining(source, job.settings, execution["mode"], execution["max_runs"], make)
    tell("computing the features of all images, or reading them")
    stages = _stages(job, make(job.config["seed"]))
    frozen = _frozen(job, source, stages)
    features_of = partial(_of_files, stages, source)
    return ClassifierTraining(frozen, job.settings, execution["mode"], execution["max_runs"], features_of=features_of)


def _network(job: PlannedShift, source: Environments, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init"))
        keys = without(job.config, "backbone", "name", "hparams")["backbone"]
        network: nn.Module = build({"backbone": keys}, "backbone", image=source.image)
        job.weights.load(network)
    return network


def _stages(job: PlannedShift, network: Any) -> FirstStages:
    if reason := getattr(network, "why_not_frozen", None):
        raise ConfigError(f"features=frozen cannot freeze this backbone: {reason}, or features=trained")
    stages = FirstStages(network, len(network.stages()))
    return stages.to(torch.float64 if job.settings.precision == "64-true" else torch.float32)


def _frozen(job: PlannedShift, source: Environments, stages: FirstStages) -> CachedFeatures:
    asked = [EvalSet(torch.from_numpy(own_images(source, env, job.config["images"]))) for env in source.given]
    at_once = partial(images_at_once, activations(stages, source.image))
    folder = job.config["cache_dir"]
    where, smaller = Path(folder) if folder else None, "raise cache_gb, or set features=trained"
    return CachedFeatures(source, stages, at_once, asked, job.config["cache_gb"], where, smaller)


@torch.no_grad()
def _of_files(stages: FirstStages, source: Environments, files: Sequence[Path]) -> np.ndarray:
    """Image files, brought to what the dataset's images are, -> (n, m) features."""
    like = example_of(stages)
    parts = [stages(x.to(like)).double().cpu().numpy() for x in batches(files, source.preprocessing, FILES_AT_ONCE)]
    return np.concatenate(parts)
