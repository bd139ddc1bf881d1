"""Diversity and correlation shift from one classifier that predicts side and class together.

With equally many points of p and q, the points are draws of (p + q) / 2, and the posterior P(e, y |
z) of the 2K pairs of side e and class y holds every ratio of densities that the definitions need
(Ye et al. 2022, "OoD-Bench", definition 1; the set S of diversity shift is where a ratio of
densities is extreme, not where a density is 0). No density is estimated. This estimator is our own:
its values cannot be compared with published ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import softmax

from dgbench.errors import DataError
from dgbench.records.shift_rows import HALVES, LABELS, NO_NULL
from dgbench.seeding import derive
from dgbench.shift.classifiers import JointClassifier
from dgbench.shift.estimators import (
    EstimatedValues,
    Estimator,
    Fitted,
    Fitting,
    PairSample,
    Schedule,
    Share,
    without_overlap,
)
from dgbench.shift.pairs import cross_fit, held_out_split
from dgbench.validation import Count0, Count1, NotNegative, Number, Refusal

Floats = NDArray[np.floating[Any]]


def shift_by_posterior(posterior: Floats, delta: float) -> dict[str, float]:
    """Compute the shift between p and q as means over the points.

    Every value is in [0, 1] and symmetric in p and q.

    With a = sum_y P(0, y | z), b = sum_y P(1, y | z), r = a / (a + b), p(y | z) = P(0, y | z) / a,
    q(y | z) likewise:

    - ``div``: |2r - 1| where min(r, 1 - r) < delta, else 0
    - ``cor``: sqrt(r (1 - r)) * sum_y |p(y | z) - q(y | z)| where min(r, 1 - r) >= delta, else 0
    - ``div_plus``, ``cor_plus``: the same with squared differences of roots, (sqrt(r) - sqrt(1 -
      r))^2 and 2 sqrt(r (1 - r)) (1 - sum_y sqrt(p(y | z) q(y | z)))
    - ``tv``: |2r - 1| everywhere. Biased upwards: with finite data it is far from 0 where p = q.
    - ``h2``: squared Hellinger distance of (z, y), which is ``div_plus`` + ``cor_plus`` with both
      sets everywhere

    Args:
        posterior: (N, 2K), N/2 points of either side; column e * K + y; rows sum to 1.
        delta: points where one side is rarer than this belong to diversity shift, in [0, 1/2].

    Raises:
        ValueError: not such a posterior.
    """
    joint, side, conditional = _parts(posterior)
    root = np.sqrt(side.prod(axis=1))
    novel = side.min(axis=1) < delta
    apart = np.abs(side[:, 0] - side[:, 1])
    # 2 (1 - sum_y sqrt(p q)) = sum_y (sqrt(p) - sqrt(q))^2, which rounding cannot make negative
    values = {
        "div": novel * apart,
        "cor": ~novel * root * np.abs(conditional[:, 0] - conditional[:, 1]).sum(axis=1),
        "div_plus": novel * np.square(np.sqrt(side[:, 0]) - np.sqrt(side[:, 1])),
        "cor_plus": ~novel
        * root
        * np.square(np.sqrt(conditional[:, 0]) - np.sqrt(conditional[:, 1])).sum(axis=1),
        "tv": apart,
        "h2": np.square(np.sqrt(joint[:, 0]) - np.sqrt(joint[:, 1])).sum(axis=1),
    }
    return {name: float(value.mean()) for name, value in values.items()}


def shift_by_labels(
    posterior: Floats, env: NDArray[np.int64], y: NDArray[np.int64], delta: float
) -> dict[str, float]:
    """Count diversity and correlation shift on points' own sides and labels.

    The posterior gives sets, signs, weights.

    Both are integrals of |f| for a difference f of densities of p and q, and |f| = sign(f) f: the
    sign is the posterior's, and the integral of f itself is a mean over points that the classifier
    did not learn from:

    - ``div``: mean over p of s(z) minus mean over q of s(z), by 2, with s = sign(2r - 1) where
      min(r, 1 - r) < delta, else 0
    - ``cor``: mean over p of sqrt((1 - r) / r) s_y(z) minus mean over q of sqrt(r / (1 - r))
      s_y(z), by 2, with s_y = sign(p(y | z) - q(y | z)) where min(r, 1 - r) >= delta, else 0

    From s_y its mean under (p(y | z) + q(y | z)) / 2 is taken away, which changes nothing in the
    integral, since p(y | z) - q(y | z) sums to 0, and keeps an error of r out of it, which else
    would depend on that of the sign.

    A wrong sign makes them smaller. Without shift they scatter about 0, also below it, where the
    absolute values of :func:`shift_by_posterior` are always above: as 2 * accuracy - 1 does for the
    total variation.

    Args:
        posterior: (N, 2K), as in :func:`shift_by_posterior`, of points that the classifier did not
            learn from.
        env: (N,) side of each point, 0 or 1; both sides have the same shares of classes.
        y: (N,) class of each point.
        delta: threshold of S, in (0, 1/2].
    """
    _, side, conditional = _parts(posterior)
    r = side[:, 0]
    novel = side.min(axis=1) < delta
    signs = np.sign(conditional[:, 0] - conditional[:, 1])
    sign = signs[np.arange(len(y)), y] - (signs * conditional.mean(axis=1)).sum(axis=1)
    with np.errstate(divide="ignore"):
        weight = np.where(env == 0, np.sqrt(side[:, 1] / r), np.sqrt(r / side[:, 1]))
    terms = {
        "div": np.where(novel, np.sign(2 * r - 1), 0.0),
        "cor": np.where(novel, 0.0, weight * sign),
    }
    return {
        name: float((term[env == 0].mean() - term[env == 1].mean()) / 2)
        for name, term in terms.items()
    }


def balanced_accuracy(posterior: Floats, env: NDArray[np.int64]) -> float:
    """Average over both sides the share of points that are classified correctly; a tie counts as p.

    2 * accuracy - 1 is a lower bound of the total variation of p(x) and q(x), up to the luck of the
    points.

    Args:
        posterior: (N, 2K), as in :func:`shift_by_posterior`, of points that the classifier did not
            learn from.
        env: (N,) side of each point, 0 or 1.
    """
    _, side, _ = _parts(posterior)
    predicted = side[:, 0] < side[:, 1]
    return float(np.mean([np.mean(predicted[env == 0] == 0), np.mean(predicted[env == 1] == 1)]))


def _parts(posterior: Floats) -> tuple[Floats, Floats, Floats]:
    """Compute P(e, y | z), P(e | z) and P(y | z, e), in float64.

    Their shapes are (N, 2, K), (N, 2) and (N, 2, K). P(e | z) is r and 1 - r.
    """
    joint = np.asarray(posterior, dtype=np.float64)
    total = joint.sum(axis=1, keepdims=True)
    if joint.shape[1] % 2 or not (joint.min() >= 0 and np.allclose(total, 1, atol=1e-3)):
        raise ValueError(
            f"an array {joint.shape} of probabilities of (side, class) is needed, whose rows sum "
            "to 1"
        )
    joint = (joint / total).reshape(len(joint), 2, -1)
    side = joint.sum(axis=2)
    # where a side has no mass its classes do not matter: the root of r (1 - r) is 0
    return joint, side, joint / np.where(side > 0, side, 1)[:, :, None]


FEWEST = 4  # images of a side in one of the two folds
Threshold = Annotated[Number, Field(ge=0, le=0.5)]


class JointEstimator(Estimator):
    """A classifier with 2K classes (environment, label), cross-fitted: every image is judged by one
    that never saw it.

    With r the posterior of p among (p, q), S is where min(r, 1 - r) < delta: a ratio of densities,
    free of the scale and dimension of features, in place of Ye et al.'s thresholds on densities.

    ``div`` and ``cor`` are counted on the images' own sides and labels; ``div_plugin`` and
    ``cor_plugin`` are means of absolute differences of posteriors, which are above 0 also without
    shift. Keys as in ``conf/estimator/joint.yaml``, where each is explained.
    """

    key = "estimator.joint"
    nulls = (NO_NULL, HALVES, LABELS)

    name: str = "joint"
    delta: Annotated[Threshold, Refusal("is not a number from 0 to 0.5", "give one")] = 0.05
    deltas: Annotated[
        list[Threshold],
        Refusal("is no list of numbers from 0 to 0.5", "give one, e.g. [0.02,0.01]"),
    ] = Field(default=[0.02, 0.01])
    width: Count1 = 64
    hidden: Count0 = 2
    steps: Count1 = 600
    batch_size: Annotated[int, Field(ge=2), Refusal("is not an integer >= 2", "give one")] = 64
    lr: NotNegative = 1e-3
    weight_decay: NotNegative = 1e-2
    val_fraction: Share = 0.2
    look_every: Count1 = 50

    def fittings(self, sample: PairSample) -> list[Fitting]:
        folds = self._folds(sample)
        return [self._fitting(sample, folds[1 - k], folds[k], k) for k in (0, 1)]

    def _folds(self, sample: PairSample) -> tuple[np.ndarray, np.ndarray]:
        return cross_fit(sample.groups, sample.rng("folds"))

    def _fitting(
        self, sample: PairSample, own_fold: np.ndarray, other_fold: np.ndarray, k: int
    ) -> Fitting:
        train, validation = held_out_split(
            sample.groups[own_fold], self.val_fraction, sample.rng("split", k)
        )
        if not len(validation):  # no class has enough: a plain random part
            order = sample.rng("split", k).permutation(len(own_fold))
            cut = math.ceil(self.val_fraction * len(own_fold))
            train = order[cut:]
            validation = order[:cut]
        sides = sample.by_side(own_fold[train])
        fewest = min(len(side.positions) for side in sides)
        if fewest < FEWEST:
            raise DataError(
                f"{fewest} images of a side to train on are too few; drop the pair, or add images"
            )
        hparams = {key: getattr(self, key) for key in ("lr", "weight_decay", "width", "hidden")}
        batch = min(self.batch_size // 2, fewest)
        schedule = Schedule(
            JointClassifier, hparams, self.steps, batch, self.look_every, chooses="loss"
        )
        return Fitting(
            schedule,
            sample.n_classes,
            sides,
            sample.by_side(own_fold[validation]),
            sample.positions[other_fold],
            derive(sample.seed, "classifier", k),
        )

    def estimate(self, sample: PairSample, fitted: Sequence[Fitted]) -> EstimatedValues:
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
            return EstimatedValues(
                diagnostics=diagnostics,
                refused=(
                    f"the classifier learned nothing: its loss {loss:.3f} on validation images is "
                    f"no better than guessing, {entropy:.3f}; give it more images, or more "
                    "informative features"
                ),
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
        posterior_p = posterior[:, : sample.n_classes].sum(1)
        diagnostics["in_t"] = float((np.minimum(posterior_p, 1 - posterior_p) >= self.delta).mean())
        for delta in self.deltas:
            shifts = shift_by_labels(posterior, sample.sides, sample.labels, delta)
            values |= {f"{name}_{delta:g}": shifts[name] for name in ("div", "cor")}
        values, flags = without_overlap(values, diagnostics["in_t"])
        if values["div"] > 2 * values["accuracy"] - 1 + 0.1:
            flags.append(
                "the posteriors say that the sides are further apart than the classifier can tell "
                "them"
            )
        return EstimatedValues(values, diagnostics, tuple(flags))
