"""Diversity and correlation shift as Ye et al. (2022) estimate them: a classifier of environments,
then densities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field
from scipy.special import softmax

from dgbench.errors import DataError
from dgbench.records.shift_rows import NO_NULL
from dgbench.seeding import derive
from dgbench.shift.classifiers import BottleneckClassifier
from dgbench.shift.density import (
    DensitiesAtPoints,
    calibrated_thresholds,
    densities_at,
    from_densities,
    standardized,
)
from dgbench.shift.estimators import (
    EstimatedValues,
    Estimator,
    Fitted,
    Fitting,
    PairSample,
    Schedule,
    without_overlap,
)
from dgbench.shift.pairs import held_out_split
from dgbench.validation import Count1, NotNegative, Refusal

# of the code's recipe: in the first half the learning rate falls, over the second weights are
# averaged
EPOCHS = 10
RECIPES: dict[str, dict[str, Any]] = {
    "code": {"optimizer": "sgd", "lr": 0.05, "weight_decay": 1e-4},
    "paper": {"optimizer": "adam", "lr": 3e-4, "weight_decay": 0.0},
}
PAPER_STEPS = 2000
LOOK_EVERY = 50
BATCH = 32


class DensityEstimator(Estimator):
    """Algorithms 1 and 2 of Ye et al. (2022), by the paper or as in the authors' released code.

    ``recipe=code``: SGD over 10 epochs, mean weights of the last five, densities of held-out
    images; ``paper``: Adam, 2000 steps, the step of the lowest validation error, densities of all
    images. ``eps_div`` and ``eps_cor`` are thresholds on densities, unit 1 / volume of standardized
    features. ``conf/estimator/ood_bench.yaml`` explains all.
    """

    key = "estimator.ood_bench"

    name: str = "ood_bench"
    recipe: Literal["code", "paper"] = "code"
    bottleneck: Count1 = 8
    formula: Literal["ye2022", "hellinger"] = "ye2022"
    thresholds: Literal["fixed", "calibrated"] = "fixed"
    eps_div: NotNegative = 1e-12
    eps_cor: NotNegative = 5e-4
    density: Literal["separate", "mixture"] = "separate"
    proposal: Literal["pooled", "mixture"] = "pooled"
    class_weights: Literal["counts", "uniform"] = "counts"
    points: Annotated[int, Field(ge=100), Refusal("is not an integer >= 100", "give one")] = 10_000

    @property
    def whole_pair(self) -> bool:
        return self.thresholds == "calibrated"

    def fittings(self, sample: PairSample) -> list[Fitting]:
        train, held_out = self._split(sample)
        sides = sample.by_side(train)
        validation = sample.by_side(held_out)
        fewest = min(len(side.positions) for side in sides)
        if not all(len(side.positions) for side in validation) or not fewest:
            raise DataError(
                "too few images of every class to hold some out; raise min_per_class, or add images"
            )
        batch = min(BATCH, fewest)
        hparams = {**RECIPES[self.recipe], "bottleneck": self.bottleneck, "decay_steps": 0}
        if self.recipe == "code":
            half = EPOCHS // 2 * (fewest // batch)
            hparams["decay_steps"] = half
            schedule = Schedule(
                BottleneckClassifier,
                hparams,
                2 * half,
                batch,
                2 * half,
                mean_from=half,
                epochs=True,
            )
        else:
            schedule = Schedule(
                BottleneckClassifier, hparams, PAPER_STEPS, batch, LOOK_EVERY, chooses="error"
            )
        predicted = sample.positions[self._measured(sample)]
        return [
            Fitting(
                schedule,
                sample.n_classes,
                sides,
                validation,
                predicted,
                derive(sample.seed, "classifier"),
            )
        ]

    def _split(self, sample: PairSample) -> tuple[np.ndarray, np.ndarray]:
        """Split rows into training and held out: 20 % of every class and side (``code``), or 10 %
        of either side.
        """
        if self.recipe == "code":
            return held_out_split(sample.groups, 0.2, sample.rng("split"))
        return held_out_split(sample.sides, 0.1, sample.rng("split"))

    def _measured(self, sample: PairSample) -> np.ndarray:
        """Return the rows of the images whose densities are estimated: held-out ones (``code``), or
        all (``paper``).
        """
        return self._split(sample)[1] if self.recipe == "code" else np.arange(len(sample.labels))

    def calibrated(self, nulls: Sequence[tuple[PairSample, Sequence[Fitted]]]) -> Self:
        if not self.whole_pair:
            return self
        densities = [self._densities(sample, classifier) for sample, (classifier,) in nulls]
        eps_div, eps_cor = calibrated_thresholds(densities)
        return self.model_copy(update={"eps_div": eps_div, "eps_cor": eps_cor})

    def _densities(
        self,
        sample: PairSample,
        fitted: Fitted,
        labels: Callable[[np.ndarray], np.ndarray] = lambda y: y,
    ) -> DensitiesAtPoints:
        """Estimate densities of the measured images' features, by class.

        Args:
            sample: the images.
            fitted: the classifier whose features they are.
            labels: maps the labels of a side to those that make the classes.
        """
        rows = self._measured(sample)
        z = fitted.outputs[:, : self.bottleneck]
        y = sample.labels[rows]
        sides = sample.sides[rows]
        z_p, z_q = standardized(z[sides == 0], z[sides == 1])
        return densities_at(
            z_p,
            labels(y[sides == 0]),
            z_q,
            labels(y[sides == 1]),
            sample.rng("points"),
            n_points=self.points,
            density=self.density,
            proposal=self.proposal,
            class_weights=self.class_weights,
        )

    def estimate(self, sample: PairSample, fitted: Sequence[Fitted]) -> EstimatedValues:
        (classifier,) = fitted
        shift = from_densities(self._densities(sample, classifier), self.eps_div, self.eps_cor)
        rows = self._measured(sample)
        y = sample.labels[rows]
        sides = sample.sides[rows]
        used = np.isin(y, shift.classes_used).mean()
        if used < 0.5:
            raise DataError(
                f"the classes with enough images for a density hold {100 * used:.0f} % of them "
                "only; use more images of a class, or a smaller estimator.ood_bench.bottleneck"
            )
        logits_by_class = classifier.outputs[:, self.bottleneck :].reshape(len(y), -1, 2)
        logits = logits_by_class[np.arange(len(y)), y]
        predicted = softmax(logits, axis=1)[:, 1] > 0.5
        accuracy = float(
            np.mean([(predicted[sides == side] == bool(side)).mean() for side in (0, 1)])
        )
        diagnostics = {
            "in_s": shift.in_s,
            "in_t": shift.in_t,
            "ess": shift.ess,
            "accuracy": accuracy,
            "eps_div": self.eps_div,
            "eps_cor": self.eps_cor,
            "classes_used": len(shift.classes_used),
            "val_loss": classifier.loss,
        }
        if sample.null == NO_NULL:  # the same classifier, without correlation shift
            shuffled = self._densities(sample, classifier, sample.rng("shuffled").permutation)
            diagnostics["cor_shuffled"] = from_densities(shuffled, self.eps_div, self.eps_cor).cor
        values = {name: getattr(shift, name) for name in ("div", "cor", "div_plus", "cor_plus")}
        values, flags = without_overlap(values, shift.in_t)
        if len(shift.classes_failed):
            names = ", ".join(sample.names[label] for label in shift.classes_failed)
            flags.append(f"too few images for a density: {names}")
        flags += [f"{name} {value:.2f} is above 1" for name, value in values.items() if value > 1]
        if values["div"] > 2 * accuracy - 1 + 0.1:
            flags.append(
                "the densities say that the sides are further apart than the classifier can tell "
                "them"
            )
        return EstimatedValues(values, diagnostics, tuple(flags))
