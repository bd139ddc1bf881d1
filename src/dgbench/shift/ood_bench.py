"""Diversity and correlation shift as Ye et al. (2022) estimate them: a classifier of environments, then densities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import softmax

from dgbench.errors import DataError
from dgbench.records.shift_rows import NO_NULL
from dgbench.seeding import derive
from dgbench.shift.classifiers import BottleneckClassifier
from dgbench.shift.density import (
    CLASS_WEIGHTS,
    DENSITIES,
    FORMULAS,
    PROPOSALS,
    DensitiesAtPoints,
    calibrated_thresholds,
    densities_at,
    from_densities,
    standardized,
)
from dgbench.shift.estimators import (
    Estimate,
    Estimator,
    Fitted,
    Fitting,
    Sample,
    Schedule,
    check_choice,
    check_number,
    without_overlap,
)
from dgbench.shift.pairs import held_out_split

EPOCHS = 10  # of the code's recipe: in the first half the learning rate falls, over the second weights are averaged
RECIPES: dict[str, dict[str, Any]] = {
    "code": {"optimizer": "sgd", "lr": 0.05, "weight_decay": 1e-4},
    "paper": {"optimizer": "adam", "lr": 3e-4, "weight_decay": 0.0},
}
PAPER_STEPS, LOOK_EVERY, BATCH = 2000, 50, 32
CHOICES = {
    "recipe": tuple(RECIPES),
    "formula": tuple(FORMULAS),
    "thresholds": ("fixed", "calibrated"),
    "density": DENSITIES,
    "proposal": PROPOSALS,
    "class_weights": tuple(CLASS_WEIGHTS),
}


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
        for key, choices in CHOICES.items():
            check_choice(f"ood_bench.{key}", getattr(self, key), choices)
        check_number("ood_bench.bottleneck", self.bottleneck, 1, whole=True)
        check_number("ood_bench.points", self.points, 100, whole=True)
        check_number("ood_bench.eps_div", self.eps_div, 0)
        check_number("ood_bench.eps_cor", self.eps_cor, 0)

    @property
    def whole_pair(self) -> bool:
        return self.thresholds == "calibrated"

    def fittings(self, sample: Sample) -> list[Fitting]:
        train, held_out = self._split(sample)
        sides, validation = sample.by_side(train), sample.by_side(held_out)
        fewest = min(len(side.positions) for side in sides)
        if not all(len(side.positions) for side in validation) or not fewest:
            raise DataError("too few images of every class to hold some out; raise min_per_class, or add images")
        batch = min(BATCH, fewest)
        hparams = {**RECIPES[self.recipe], "bottleneck": self.bottleneck, "decay_steps": 0}
        if self.recipe == "code":
            half = EPOCHS // 2 * (fewest // batch)
            hparams["decay_steps"] = half
            schedule = Schedule(BottleneckClassifier, hparams, 2 * half, batch, 2 * half, mean_from=half, epochs=True)
        else:
            schedule = Schedule(BottleneckClassifier, hparams, PAPER_STEPS, batch, LOOK_EVERY, chooses="error")
        predicted = sample.positions[self._measured(sample)]
        return [Fitting(schedule, sample.n_classes, sides, validation, predicted, derive(sample.seed, "classifier"))]

    def _split(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and held out: 20 % of every class of either side, or 10 % at random."""
        if self.recipe == "code":
            return held_out_split(sample.groups, 0.2, sample.rng("split"))
        return held_out_split(sample.sides, 0.1, sample.rng("split"))

    def _measured(self, sample: Sample) -> np.ndarray:
        """Rows of the images whose densities are estimated."""
        return self._split(sample)[1] if self.recipe == "code" else np.arange(len(sample.labels))

    def estimate(self, sample: Sample, fitted: Sequence[Fitted]) -> Estimate:
        return self._values(sample, fitted[0], self._densities(sample, fitted[0]), (self.eps_div, self.eps_cor))

    def estimates(
        self, samples: Sequence[Sample], nulls: Sequence[bool], fitted: Sequence[Sequence[Fitted]]
    ) -> list[Callable[[], Estimate]]:
        if not self.whole_pair:
            return super().estimates(samples, nulls, fitted)
        densities = cache(lambda i: self._densities(samples[i], fitted[i][0]))
        thresholds = cache(lambda: calibrated_thresholds([densities(i) for i, null in enumerate(nulls) if null]))
        return [
            lambda i=i: self._values(samples[i], fitted[i][0], densities(i), thresholds())  # type: ignore[misc]
            for i in range(len(samples))
        ]

    def _densities(
        self, sample: Sample, fitted: Fitted, labels: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> DensitiesAtPoints:
        """Of the features of held-out images, those of one side with ``labels`` made of their own."""
        rows = self._measured(sample)
        z, y, sides = fitted.outputs[:, : self.bottleneck], sample.labels[rows], sample.sides[rows]
        z_p, z_q = standardized(z[sides == 0], z[sides == 1])
        y_p, y_q = y[sides == 0], y[sides == 1]
        if labels is not None:
            y_p, y_q = labels(y_p), labels(y_q)
        return densities_at(
            z_p, y_p, z_q, y_q, sample.rng("points"),
            n_points=self.points, density=self.density, proposal=self.proposal, class_weights=self.class_weights,
        )  # fmt: skip

    def _values(
        self, sample: Sample, fitted: Fitted, densities: DensitiesAtPoints, thresholds: tuple[float, float]
    ) -> Estimate:
        shift = from_densities(densities, *thresholds)
        rows = self._measured(sample)
        y, sides = sample.labels[rows], sample.sides[rows]
        logits = fitted.outputs[:, self.bottleneck :].reshape(len(y), -1, 2)[np.arange(len(y)), y]
        predicted = softmax(logits, axis=1)[:, 1] > 0.5
        accuracy = float(np.mean([(predicted[sides == side] == bool(side)).mean() for side in (0, 1)]))
        diagnostics = {
            "in_s": shift.in_s, "in_t": shift.in_t, "ess": shift.ess, "accuracy": accuracy,
            "eps_div": thresholds[0], "eps_cor": thresholds[1], "classes_used": len(shift.classes_used),
            "val_loss": fitted.loss,
        }  # fmt: skip
        if sample.null == NO_NULL:  # the same classifier, without correlation shift
            shuffled = self._densities(sample, fitted, sample.rng("shuffled").permutation)
            diagnostics["cor_shuffled"] = from_densities(shuffled, *thresholds).cor
        values = {name: getattr(shift, name) for name in ("div", "cor", "div_plus", "cor_plus")}
        values, flags = without_overlap(values, shift.in_t)
        used = np.isin(y, shift.classes_used).mean()
        if used < 0.5:
            raise DataError(
                f"the classes with enough images for a density hold {100 * used:.0f} % of them only; use more images "
                "of a class, or a smaller estimator.ood_bench.bottleneck"
            )
        if len(shift.classes_failed):
            names = ", ".join(sample.names[label] for label in shift.classes_failed)
            flags.append(f"too few images for a density: {names}")
        flags += [f"{name} {value:.2f} is above 1" for name, value in values.items() if value > 1]
        if values["div"] > 2 * accuracy - 1 + 0.1:
            flags.append("the densities say that the sides are further apart than the classifier can tell them")
        return Estimate(values, diagnostics, tuple(flags))
