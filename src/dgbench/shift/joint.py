"""Diversity and correlation shift from one classifier of environment and label together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from dgbench.errors import ConfigError, DataError
from dgbench.records.shift_rows import HALVES, LABELS, NO_NULL
from dgbench.seeding import derive
from dgbench.shift.classifiers import JointClassifier
from dgbench.shift.estimators import (
    Estimate,
    Estimator,
    Fitted,
    Fitting,
    Sample,
    Schedule,
    check_number,
    without_overlap,
)
from dgbench.shift.pairs import cross_fit, held_out_split
from dgbench.shift.posterior import balanced_accuracy, shift_by_labels, shift_by_posterior

FEWEST = 4  # images of a side in one of the two folds


@dataclass(frozen=True, kw_only=True)
class JointEstimator(Estimator):
    """A classifier with 2K classes (environment, label), cross-fitted: every image is judged by one that never saw it.

    With r the posterior of p among (p, q), S is where min(r, 1 - r) < delta: a ratio of densities, free of the scale
    and dimension of features, in place of Ye et al.'s thresholds on densities. Values are not comparable with
    published ones.

    ``div`` and ``cor`` are counted on the images' own sides and labels; ``div_plugin`` and ``cor_plugin`` are means of
    absolute differences of posteriors, which are above 0 also without shift.

    Args:
        name: of the estimator in the rows.
        delta: threshold of S.
        deltas: further thresholds, reported beside it.
        width, hidden: units and number of hidden layers.
        steps, batch_size, lr, weight_decay: of training with AdamW; half of a minibatch is of p, half of q.
        val_fraction: of the training images, those that choose the step.
        look_every: steps between two looks at these; in the first 100 steps they are looked at five times as often.
    """

    nulls: ClassVar[tuple[str, ...]] = (NO_NULL, HALVES, LABELS)

    name: str = "joint"
    delta: float = 0.05
    deltas: Sequence[float] = (0.02, 0.01)
    width: int = 64
    hidden: int = 2
    steps: int = 600
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 1e-2
    val_fraction: float = 0.2
    look_every: int = 50

    def __post_init__(self) -> None:
        if isinstance(self.deltas, str):
            raise ConfigError(f"estimator.joint.deltas={self.deltas} is no list; give one, e.g. [0.02,0.01]")
        for delta in (self.delta, *self.deltas):
            check_number("joint.delta", delta, 0, 0.5)
        for key in ("width", "steps", "look_every"):
            check_number(f"joint.{key}", getattr(self, key), 1, whole=True)
        check_number("joint.hidden", self.hidden, 0, whole=True)
        check_number("joint.batch_size", self.batch_size, 2, whole=True)
        check_number("joint.lr", self.lr, 0)
        check_number("joint.weight_decay", self.weight_decay, 0)
        check_number("joint.val_fraction", self.val_fraction, 0.01, 0.9)

    def fittings(self, sample: Sample) -> list[Fitting]:
        folds = self._folds(sample)
        return [self._fitting(sample, folds[1 - k], folds[k], k) for k in (0, 1)]

    def _folds(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        return cross_fit(sample.groups, sample.rng("folds"))

    def _fitting(self, sample: Sample, seen: np.ndarray, unseen: np.ndarray, k: int) -> Fitting:
        train, validation = held_out_split(sample.groups[seen], self.val_fraction, sample.rng("split", k))
        if not len(validation):  # no class has enough: a plain random part
            order = sample.rng("split", k).permutation(len(seen))
            cut = math.ceil(self.val_fraction * len(seen))
            train, validation = order[cut:], order[:cut]
        sides = sample.by_side(seen[train])
        fewest = min(len(side.positions) for side in sides)
        if fewest < FEWEST:
            raise DataError(f"{fewest} images of a side to train on are too few; drop the pair, or add images")
        hparams = {key: getattr(self, key) for key in ("lr", "weight_decay", "width", "hidden")}
        batch = min(self.batch_size // 2, fewest)
        schedule = Schedule(JointClassifier, hparams, self.steps, batch, self.look_every, chooses="loss")
        return Fitting(
            schedule, sample.n_classes, sides, sample.by_side(seen[validation]), sample.positions[unseen],
            derive(sample.seed, "classifier", k),
        )  # fmt: skip

    def estimate(self, sample: Sample, fitted: Sequence[Fitted]) -> Estimate:
        prior = np.bincount(sample.groups, minlength=2 * sample.n_classes) / len(sample.groups)
        entropy = float(-(prior[prior > 0] * np.log(prior[prior > 0])).sum())
        loss = float(np.mean([fit.loss for fit in fitted]))
        diagnostics = {
            "val_loss": loss,
            "prior_entropy": entropy,
            "val_error": float(np.mean([fit.error for fit in fitted])),
            "step": float(np.mean([fit.step for fit in fitted])),
        }
        if loss >= entropy and sample.null == NO_NULL:
            return Estimate(
                diagnostics=diagnostics,
                refused=f"the classifier learned nothing: its loss {loss:.3f} on validation images is no better than "
                f"guessing, {entropy:.3f}; give it more images, or more informative features",
            )
        # fold k was predicted by classifier k, in the order of the fold
        order = np.concatenate(self._folds(sample))
        posterior = np.empty((len(order), 2 * sample.n_classes))
        posterior[order] = np.concatenate([softmax(fit.outputs, axis=1) for fit in fitted])
        if loss >= entropy:  # there is nothing to learn, and guessing is best
            posterior[:] = prior
        plugin = shift_by_posterior(posterior, self.delta)
        values = {
            **shift_by_labels(posterior, sample.sides, sample.labels, self.delta),
            **{name: plugin[name] for name in ("div_plus", "cor_plus", "tv", "h2")},
            **{f"{name}_plugin": plugin[name] for name in ("div", "cor")},
            "accuracy": balanced_accuracy(posterior, sample.sides),
        }
        of_p = posterior[:, : sample.n_classes].sum(1)
        diagnostics["in_t"] = float((np.minimum(of_p, 1 - of_p) >= self.delta).mean())
        for delta in self.deltas:
            counted = shift_by_labels(posterior, sample.sides, sample.labels, delta)
            values |= {f"{name}_{delta:g}": counted[name] for name in ("div", "cor")}
        values, flags = without_overlap(values, diagnostics["in_t"])
        if values["div"] > 2 * values["accuracy"] - 1 + 0.1:
            flags.append("the posteriors say that the sides are further apart than the classifier can tell them")
        return Estimate(values, diagnostics, tuple(flags))
