"""From pairs of environments to the samples of their estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from dgbench.data.environments import Environments
from dgbench.errors import ConfigError, DataError
from dgbench.estimation.estimators import Estimator, Reference, Sample
from dgbench.estimation.shift_plan import Pair, Slot
from dgbench.records.shift_rows import HALF, HALVES, LABELS
from dgbench.seeding import derive
from dgbench.shifts.pairs import balanced, half, null_pair, shuffled_labels


@dataclass(frozen=True)
class Drawn:
    """The sample of one estimate, and what was left out of it.

    Args:
        sample: the images.
        dropped: class -> images of p and q, of classes that are left out.
    """

    sample: Sample
    dropped: dict[str, list[int]]


class Pools:
    """The images of every given environment, from which samples are drawn.

    Attributes:
        reference: what environments are compared with, where it is not one another.

    Args:
        source: the images, or their features.
        images: ``all``, or ``train``, those that are trained on.
        seed: base seed of the job.
        min_per_class, max_per_class: of either side, see :func:`~dgbench.shifts.pairs.balanced`.
    """

    def __init__(
        self, source: Environments, images: str, seed: int, min_per_class: int, max_per_class: int | None
    ) -> None:
        self.source, self.seed = source, seed
        self.min_per_class, self.max_per_class = min_per_class, max_per_class
        self.reference: Reference | None = None
        self._positions = {env: own_images(source, env, images) for env in source.info.given}

    @cached_property
    def _labels(self) -> dict[str, np.ndarray]:
        return {env: self.source.catalog.labels[own] for env, own in self._positions.items()}

    def size(self, env: str) -> int:
        """Images of an environment."""
        return len(self._positions[env])

    def drawn(self, estimator: Estimator, pair: Pair, slot: Slot) -> Drawn:
        """The sample of one estimate.

        Raises:
            DataError: no class has enough images on both sides.
        """
        seed = slot.seed(self.seed, pair)
        if estimator.against_reference:
            return Drawn(self._alone(pair, slot, seed), {})
        rng = np.random.default_rng(derive(seed, "sample"))
        whole = [self._pool(envs) for envs in (pair.p, pair.q)]
        names = self.source.catalog.classes
        first = balanced(whole[0][1], whole[1][1], self.min_per_class, rng, self.max_per_class)
        if len(first.classes) < 2:
            raise DataError(
                f"one class only, {names[first.classes[0]]}, has {self.min_per_class} images on both sides; lower "
                "min_per_class, or choose other environments"
            )
        sides = whole if slot.kind != HALF else [self._pool(envs, slot.number) for envs in (pair.p, pair.q)]
        kept = [np.isin(labels, first.classes) for _, labels in sides]
        (p, y_p), (q, y_q) = (
            (positions[own], labels[own]) for (positions, labels), own in zip(sides, kept, strict=True)
        )
        if estimator.balances:
            cap = self.max_per_class if slot.kind != HALF or self.max_per_class is None else self.max_per_class // 2
            both = balanced(y_p, y_q, 2, rng, cap)
            (p, y_p), (q, y_q) = (p[both.p], y_p[both.p]), (q[both.q], y_q[both.q])
        if slot.null == HALVES:
            (p, y_p), (q, y_q) = _null(p, y_p, q, y_q, rng)
        elif slot.null == LABELS:
            y_p, y_q = shuffled_labels(y_p, rng), shuffled_labels(y_q, rng)
        sample = Sample(
            p, q, np.searchsorted(first.classes, y_p), np.searchsorted(first.classes, y_q),
            tuple(names[label] for label in first.classes), seed, slot.null, self.features,
        )  # fmt: skip
        return Drawn(sample, {names[label]: list(counts) for label, counts in first.dropped.items()})

    def features(self, positions: np.ndarray) -> np.ndarray:
        """(n,) positions -> (n, m) float64."""
        if len(self.source.store.image) > 1:
            raise ConfigError("features=trained leaves no fixed features; set features=frozen")
        x, _ = self.source.store.gather(torch.from_numpy(positions))
        found: np.ndarray = x.double().cpu().numpy()
        return found

    def check_varying(self, sample: Sample) -> None:
        """Refuse features that say nothing.

        Raises:
            DataError: all of them are the same for every image.
        """
        if len(self.source.store.image) == 1 and np.ptp(self.features(sample.positions), axis=0).max() < 1e-12:
            raise DataError("every image has the same features; choose another backbone or init")

    def _pool(self, envs: Sequence[str], half_number: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Positions and labels of environments together; of a half, the same half of an environment in every pair."""
        own: list[tuple[np.ndarray, np.ndarray]] = []
        for env in envs:
            positions, labels = self._positions[env], self._labels[env]
            if half_number is not None:
                rows = half(labels, np.random.default_rng(derive(self.seed, "shift", "half", env, half_number)))
                positions, labels = positions[rows], labels[rows]
            own.append((positions, labels))
        positions, labels = zip(*own, strict=True)
        return np.concatenate(positions), np.concatenate(labels)

    def _alone(self, pair: Pair, slot: Slot, seed: int) -> Sample:
        """An environment against a reference that the estimator knows; its null compares two halves of itself."""
        positions, labels = self._pool(pair.q, slot.number if slot.kind == HALF else None)
        p = positions[:0]
        if slot.null == HALVES:
            rows = half(labels, np.random.default_rng(derive(seed, "null")))
            p, positions = positions[rows], np.delete(positions, rows)
        y_p, y_q = (np.zeros(len(each), dtype=np.int64) for each in (p, positions))
        return Sample(p, positions, y_p, y_q, ("all",), seed, slot.null, self.features, self.reference)


def own_images(source: Environments, env: str, images: str) -> np.ndarray:
    """Positions of the images of an environment, each once: those it is trained and validated on, and lists of its own.

    Test images that all environments share, painted as the environment would be, are no images of their own.
    """
    found = [source.table.subset(env, "train")]
    if images == "all":
        found.append(source.table.subset(env, "val"))
        for recipe in source.table.error_recipes(False, ["test"]):
            if recipe.env == env and len(recipe.mixture) == 1:
                (scored,) = source.eval_sets(list(recipe.mixture)).values()
                found += [] if scored.feature is not None else [scored.indices.cpu().numpy()]
    return np.unique(np.concatenate(found))


def _null(
    p: np.ndarray, y_p: np.ndarray, q: np.ndarray, y_q: np.ndarray, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    found = []
    for members in null_pair(y_p, y_q, rng):
        of_p, of_q = (members[members[:, 0] == side, 1] for side in (0, 1))
        found.append((np.concatenate([p[of_p], q[of_q]]), np.concatenate([y_p[of_p], y_q[of_q]])))
    return found
