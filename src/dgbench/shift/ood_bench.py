"""Diversity and correlation shift as Ye et al. (2022) estimate them: a classifier of environments, then densities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from dgbench.errors import ConfigError, DataError
from dgbench.records.shift_rows import NO_NULL
from dgbench.seeding import derive
from dgbench.shift.classifiers import BottleneckClassifier
from dgbench.shift.density import (
    DensitiesAtPoints,
    DensityOptions,
    calibrated_thresholds,
    densities_at,
    from_densities,
    standardized,
)
from dgbench.shift.estimators import (
    LEAST_OVERLAP,
    Estimate,
    Estimator,
    Fitted,
    Fitting,
    Recipe,
    Sample,
    check_choice,
    check_number,
    no_overlap,
)
from dgbench.shift.pairs import held_out_split, shuffled_labels

EPOCHS = 10  # of the code's recipe: in the first half the learning rate falls, over the second weights are averaged
RECIPES: dict[str, dict[str, Any]] = {
    "code": {"optimizer": "sgd", "lr": 0.05, "weight_decay": 1e-4},
    "paper": {"optimizer": "adam", "lr": 3e-4, "weight_decay": 0.0},
}
PAPER_STEPS, LOOK_EVERY, BATCH = 2000, 50, 32


@dataclass(frozen=True, kw_only=True)
class DensityEstimator(Estimator):
    """Algorithms 1 and 2 of Ye et al. (2022), by the paper or as in the authors' released code.

    Args:
        name: of the estimator in the rows.
        recipe: ``code``: SGD over 10 epochs, mean weights of the last five, densities of held-out images; ``paper``:
            Adam, 2000 steps, the step of the lowest validation error, densities of all images.
        bottleneck: dimensions of the features whose densities are estimated, m.
        formula: which values count, ``ye2022`` (definition 1) or ``hellinger`` (the code's later default).
        thresholds: ``fixed``, or ``calibrated``: chosen so that pairs without shift have almost none, as in the
            code's tables.
        eps_div, eps_cor: thresholds on densities, unit 1 / volume of standardized features.
        density: of a side: ``separate``, its own estimate, or ``mixture``, that of its classes weighted.
        proposal: points come from ``pooled``, the estimate of the union, or ``mixture``, (p + q) / 2.
        class_weights: of a class: ``counts``, its share of the images (the code), or ``uniform`` (the paper).
        points: drawn for the integrals, M.
    """

    name: str = "ood_bench"
    recipe: str = "code"
    bottleneck: int = 8
    formula: str = "ye2022"
    thresholds: str = "fixed"
    eps_div: float = 1e-12
    eps_cor: float = 5e-4
    density: str = "separate"
    proposal: str = "pooled"
    class_weights: str = "counts"
    points: int = 10_000

    def __post_init__(self) -> None:
        check_choice("ood_bench.recipe", self.recipe, list(RECIPES))
        check_choice("ood_bench.thresholds", self.thresholds, ("fixed", "calibrated"))
        check_number("ood_bench.bottleneck", self.bottleneck, 1, whole=True)
        check_number("ood_bench.points", self.points, 100, whole=True)
        check_number("ood_bench.eps_div", self.eps_div, 0)
        check_number("ood_bench.eps_cor", self.eps_cor, 0)
        try:
            self._options()
        except ConfigError as error:
            raise ConfigError(f"estimator.ood_bench.{error}") from None

    def _options(self) -> DensityOptions:
        names = ("formula", "eps_div", "eps_cor", "points", "density", "proposal", "class_weights")
        return DensityOptions(**{name: getattr(self, name) for name in names})

    @property
    def whole_pair(self) -> bool:
        return self.thresholds == "calibrated"

    def fittings(self, sample: Sample) -> list[Fitting]:
        train, held_out = self._split(sample)
        own, judged = sample.by_side(train), sample.by_side(held_out)
        fewest = min(len(side.positions) for side in own)
        if not all(len(side.positions) for side in judged) or not fewest:
            raise DataError("too few images of every class to hold some out; raise min_per_class, or add images")
        batch = min(BATCH, fewest)
        per_epoch = fewest // batch
        common = {**RECIPES[self.recipe], "bottleneck": self.bottleneck}
        if self.recipe == "code":
            half = EPOCHS // 2 * per_epoch
            hparams = {**common, "decay_steps": half}
            recipe = Recipe(BottleneckClassifier, hparams, 2 * half, batch, 2 * half, mean_from=half, epochs=True)
        else:
            hparams = {**common, "decay_steps": 0}
            recipe = Recipe(BottleneckClassifier, hparams, PAPER_STEPS, batch, LOOK_EVERY, chooses="error")
        predicted = sample.positions[self._measured(sample)]
        return [Fitting(recipe, sample.n_classes, own, judged, predicted, derive(sample.seed, "classifier"))]

    def _split(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and held out: 20 % of every class of either side, or 10 % at random."""
        if self.recipe == "code":
            return held_out_split(sample.groups, 0.2, sample.rng("split"))
        return held_out_split(sample.sides, 0.1, sample.rng("split"))

    def _measured(self, sample: Sample) -> np.ndarray:
        """Rows of the images whose densities are estimated."""
        return self._split(sample)[1] if self.recipe == "code" else np.arange(len(sample.labels))

    def estimate(self, sample: Sample, fitted: Sequence[Fitted]) -> Estimate:
        return self._values(sample, fitted, self._densities(sample, fitted), (self.eps_div, self.eps_cor))

    def estimates(
        self, samples: Sequence[Sample], nulls: Sequence[bool], fitted: Sequence[Sequence[Fitted]]
    ) -> list[Callable[[], Estimate]]:
        if not self.whole_pair:
            return super().estimates(samples, nulls, fitted)
        known: dict[int, DensitiesAtPoints] = {}
        thresholds: list[tuple[float, float]] = []

        def densities(i: int) -> DensitiesAtPoints:
            if i not in known:
                known[i] = self._densities(samples[i], fitted[i])
            return known[i]

        def make(i: int) -> Estimate:
            if not thresholds:
                found = calibrated_thresholds([densities(k) for k, null in enumerate(nulls) if null])
                thresholds.append((found.eps_div, found.eps_cor))
            return self._values(samples[i], fitted[i], densities(i), thresholds[0])

        return [partial(make, i) for i in range(len(samples))]

    def _features(self, sample: Sample, fitted: Sequence[Fitted]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(N, m) features, (N,) labels and (N,) sides of the images whose densities are estimated."""
        rows = self._measured(sample)
        return fitted[0].outputs[:, : self.bottleneck], sample.labels[rows], sample.sides[rows]

    def _densities(
        self, sample: Sample, fitted: Sequence[Fitted], labels: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> DensitiesAtPoints:
        z, y, sides = self._features(sample, fitted)
        of_p, of_q = z[sides == 0], z[sides == 1]
        z_p, z_q, _ = standardized(of_p, of_q)
        y_p, y_q = y[sides == 0], y[sides == 1]
        if labels is not None:
            y_p, y_q = labels(y_p), labels(y_q)
        return densities_at(z_p, y_p, z_q, y_q, self._options(), rng=sample.rng("points"))

    def _values(
        self,
        sample: Sample,
        fitted: Sequence[Fitted],
        densities: DensitiesAtPoints,
        thresholds: tuple[float, float],
    ) -> Estimate:
        found = from_densities(densities, *thresholds)
        values = {name: float(getattr(found, name)) for name in ("div", "cor", "div_plus", "cor_plus")}
        _, y, sides = self._features(sample, fitted)
        logits = fitted[0].outputs[:, self.bottleneck :].reshape(len(y), -1, 2)[np.arange(len(y)), y]
        told = softmax(logits, axis=1)[:, 1] > 0.5
        accuracy = float(np.mean([(told[sides == side] == bool(side)).mean() for side in (0, 1)]))
        diagnostics = {
            "in_s": found.in_s, "in_t": found.in_t, "ess": found.ess, "accuracy": accuracy,
            "eps_div": thresholds[0], "eps_cor": thresholds[1], "classes_used": len(found.classes_used),
            "val_loss": fitted[0].loss,
        }  # fmt: skip
        if sample.null == NO_NULL:  # the same classifier, without correlation shift
            rng = sample.rng("shuffled")
            shuffled = self._densities(sample, fitted, lambda own: shuffled_labels(own, rng))
            diagnostics["cor_shuffled"] = from_densities(shuffled, *thresholds).cor
        flags = []
        if found.in_t < LEAST_OVERLAP:
            values = {name: value for name, value in values.items() if not name.startswith("cor")}
            flags.append(no_overlap(found.in_t))
        used = np.isin(y, found.classes_used).mean()
        if used < 0.5:
            raise DataError(
                f"the classes with enough images for a density hold {100 * used:.0f} % of them only; use more images "
                "of a class, or a smaller estimator.ood_bench.bottleneck"
            )
        if len(found.classes_failed):
            names = ", ".join(sample.names[label] for label in found.classes_failed)
            flags.append(f"too few images for a density: {names}")
        flags += [f"{name} {value:.2f} is above 1" for name, value in values.items() if value > 1]
        if values["div"] > 2 * accuracy - 1 + 0.1:
            flags.append("the densities say that the sides are further apart than the classifier can tell them")
        return Estimate(values, diagnostics, tuple(flags))
