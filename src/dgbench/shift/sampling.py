"""The images or features of a job, and the samples that its estimates take from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dgbench.containers import example_of
from dgbench.data.description import Preprocessing
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.store.cached_features import CachedFeatures
from dgbench.errors import ConfigError, DataError
from dgbench.networks.featurizer import FirstStages
from dgbench.plan.building import build, built
from dgbench.records.shift_rows import HALF, HALVES, LABELS
from dgbench.seeding import derive
from dgbench.shift.estimators import Estimator, PairSample
from dgbench.shift.fitting import ClassifierTraining
from dgbench.shift.pairs import balanced, half, null_pair
from dgbench.shift.plan import EnvironmentPair, PlannedShift, Slot
from dgbench.trained.predictor import batches
from dgbench.training.blueprint import check_network, featurizer_keys
from dgbench.training.modules.predicting import activations, images_at_once

FILES_AT_ONCE = 64


def prepared(job: PlannedShift, tell: Callable[[str], None]) -> ClassifierTraining:
    """Build a job's images and network.

    With ``features=frozen`` all images' features are computed once, and kept.

    Raises:
        ConfigError, DataError, WeightsError: images, network, weights or features cannot be had.
    """
    source = built(job.dataset)
    execution = job.config["execution"]
    make = partial(_network, job, source)
    training = ClassifierTraining(
        source, job.settings, execution["mode"], execution["max_runs"], make
    )
    if job.config["features"] == "trained":
        return training
    tell("computing the features of all images, or reading them")
    network: Any = make(job.config["seed"])
    stages = FirstStages(network, len(network.stages())).to(training.dtype)
    eval_sets = [
        EvalSet(torch.from_numpy(own_images(source, env, job.config["images"])))
        for env in source.info.given
    ]
    at_once = partial(images_at_once, activations(stages, source.store.image))
    folder = job.config["cache_dir"]
    cache_dir = Path(folder) if folder else None
    remedy = "raise cache_gb, or set features=trained"
    store = CachedFeatures(
        source, stages, at_once, eval_sets, job.config["cache_gb"], cache_dir, remedy
    )
    features_of = partial(_file_features, stages, source.catalog.preprocessing)
    return replace(
        training, source=replace(source, store=store), backbone=None, features_of=features_of
    )


def check_network_of(job: PlannedShift) -> None:
    """Refuse a network that does not fit the images, the weights or frozen features, before an
    image is decoded.

    Raises:
        ConfigError, WeightsError: with the reason.
    """
    network = check_network(job.config, {}, job.info, job.weights)
    reason = getattr(network, "why_not_frozen", None)
    if reason and job.config["features"] == "frozen":
        raise ConfigError(
            f"features=frozen cannot freeze this backbone: {reason}, or features=trained"
        )


def _network(job: PlannedShift, source: Environments, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init"))
        network: nn.Module = build(
            {"backbone": featurizer_keys(job.config, {})}, "backbone", image=source.store.image
        )
        job.weights.load(network)
    return network


@torch.no_grad()
def _file_features(stages: FirstStages, to: Preprocessing, files: Sequence[Path]) -> np.ndarray:
    """Compute the (n, m) features of image files, preprocessed as the dataset's own images are."""
    like = example_of(stages)
    return np.concatenate(
        [stages(x.to(like)).double().cpu().numpy() for x in batches(files, to, FILES_AT_ONCE)]
    )


class Pools:
    """The images of every given environment, from which samples are drawn.

    Attributes:
        labels: of all images.

    Args:
        source: the images, or their features.
        images: ``all``, or ``train``, those that are trained on.
        seed: base seed of the job.
        min_per_class, max_per_class: of either side, see :func:`~dgbench.shift.pairs.balanced`.
    """

    def __init__(
        self,
        source: Environments,
        images: str,
        seed: int,
        min_per_class: int,
        max_per_class: int | None,
    ) -> None:
        self.source = source
        self.labels = source.catalog.labels
        self.seed = seed
        self.min_per_class = min_per_class
        self.max_per_class = max_per_class
        self._positions = {env: own_images(source, env, images) for env in source.info.given}

    def size(self, env: str) -> int:
        """Count the images of an environment."""
        return len(self._positions[env])

    def sample(self, estimator: Estimator, pair: EnvironmentPair, slot: Slot) -> PairSample:
        """Draw the sample of one estimate.

        Raises:
            DataError: no class has enough images on both sides, or the features of all images are
                the same.
        """
        seed = slot.seed(self.seed, pair)
        if estimator.against_reference:
            sample = self._sample_one(pair, slot, seed)
        else:
            sample = self._sample_pair(pair, slot, seed, estimator.balances)
        if (
            len(self.source.store.image) == 1
            and np.ptp(self.features(sample.positions), axis=0).max() < 1e-12
        ):
            raise DataError("every image has the same features; choose another backbone or init")
        return sample

    def features(self, positions: np.ndarray) -> np.ndarray:
        """Look up the (n, m) float64 features of the images at (n,) positions."""
        if len(self.source.store.image) > 1:
            raise ConfigError("features=trained leaves no fixed features; set features=frozen")
        return np.asarray(
            self.source.store.gather(torch.from_numpy(positions))[0].double().cpu().numpy()
        )

    def _sample_pair(
        self, pair: EnvironmentPair, slot: Slot, seed: int, balances: bool
    ) -> PairSample:
        rng = np.random.default_rng(derive(seed, "sample"))
        names = self.source.catalog.classes
        y = self.labels
        p, q = self._pool(pair.p), self._pool(pair.q)
        first = balanced(y[p], y[q], self.min_per_class, rng, self.max_per_class)
        if len(first.classes) < 2:
            raise DataError(
                f"one class only, {names[first.classes[0]]}, has {self.min_per_class} images on "
                "both sides; lower min_per_class, or choose other environments"
            )
        limit = self.max_per_class
        if slot.kind == HALF:
            p, q = self._pool(pair.p, slot.number), self._pool(pair.q, slot.number)
            limit = limit and limit // 2
        p, q = (side[np.isin(y[side], first.classes)] for side in (p, q))
        if balances:
            kept = balanced(y[p], y[q], 2, rng, limit)
            p, q = p[kept.p], q[kept.q]
        if slot.null == HALVES:
            rows_p, rows_q = null_pair(y[p], y[q], rng)
            together = np.concatenate([p, q])
            p, q = together[rows_p], together[rows_q]
        y_p, y_q = y[p], y[q]
        if slot.null == LABELS:
            y_p, y_q = rng.permutation(y_p), rng.permutation(y_q)
        return PairSample(
            p, q, np.searchsorted(first.classes, y_p), np.searchsorted(first.classes, y_q),
            tuple(names[label] for label in first.classes), seed, slot.null, self.features,
            dropped={names[label]: list(counts) for label, counts in first.dropped.items()},
        )  # fmt: skip

    def _sample_one(self, pair: EnvironmentPair, slot: Slot, seed: int) -> PairSample:
        """Take one environment as q, for an estimator that holds a reference.

        The null compares two halves of it.
        """
        q = self._pool(pair.q, slot.number if slot.kind == HALF else None)
        p = q[:0]
        if slot.null == HALVES:
            rows = half(self.labels[q], np.random.default_rng(derive(seed, "null")))
            p, q = q[rows], np.delete(q, rows)
        y_p, y_q = (np.zeros(len(side), dtype=np.int64) for side in (p, q))
        return PairSample(p, q, y_p, y_q, ("all",), seed, slot.null, self.features)

    def _pool(self, envs: Sequence[str], half_number: int | None = None) -> np.ndarray:
        """Join the positions of environments, or of halves of them: the same half of an environment
        in every pair.
        """
        pools = []
        for env in envs:
            positions = self._positions[env]
            if half_number is not None:
                rng = np.random.default_rng(derive(self.seed, "shift", "half", env, half_number))
                positions = positions[half(self.labels[positions], rng)]
            pools.append(positions)
        return np.concatenate(pools)


def own_images(source: Environments, env: str, images: str) -> np.ndarray:
    """List positions of an environment's images, each once.

    These are ``train``; with ``all`` also ``val`` and its own ``test``.

    Test images that all environments share, painted in the way of each environment, are not an
    environment's own.
    """
    subsets = [source.table.subset(env, "train")]
    if images == "all":
        subsets.append(source.table.subset(env, "val"))
        for recipe in source.table.error_recipes(False, ["test"]):
            if recipe.env == env and len(recipe.mixture) == 1:
                (scored,) = source.eval_sets(list(recipe.mixture)).values()
                subsets += [] if scored.feature is not None else [scored.indices.cpu().numpy()]
    return np.unique(np.concatenate(subsets))
