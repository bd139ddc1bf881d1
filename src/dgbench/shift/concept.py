"""Covariate and concept shift as NICO++ defines them (Zhang et al. 2023), from classifiers of
labels of either side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import DataError
from dgbench.seeding import derive
from dgbench.shift.classifiers import LabelClassifier, SideClassifier, TargetClassifier
from dgbench.shift.estimators import (
    EstimatedValues,
    Estimator,
    Fitted,
    Fitting,
    PairSample,
    Schedule,
    Share,
)
from dgbench.shift.pairs import held_out_split
from dgbench.validation import Count1, NotNegative

Ints = NDArray[np.int64]


def disagreement(pred_a: Ints, pred_b: Ints) -> float:
    """Compute the share of images on which two classifiers' (n,) predictions differ: their loss,
    with the 0-1 loss.
    """
    return float(np.mean(pred_a != pred_b))


def concept(f_tr_on_p: Ints, f_te_on_p: Ints, f_tr_on_q: Ints, f_te_on_q: Ints) -> dict[str, float]:
    """Compute concept shift: disagreement of the classifiers of either side (equation 2).

    Args:
        f_tr_on_p, f_te_on_p: (n_p,) predictions for images of p of the classifiers fitted on p and
            on q.
        f_tr_on_q, f_te_on_q: (n_q,) the same for images of q; no classifier has learned from these
            images.

    Returns:
        ``l_tr``, ``l_te``: disagreement on p and on q; ``min``, ``max`` of both.
    """
    l_tr = disagreement(f_tr_on_p, f_te_on_p)
    l_te = disagreement(f_tr_on_q, f_te_on_q)
    return {"l_tr": l_tr, "l_te": l_te, "min": min(l_tr, l_te), "max": max(l_tr, l_te)}


def discrepancy(on_p: Ints, on_q: Ints, rng: np.random.Generator) -> float:
    """Compute covariate shift: the largest difference of two classifiers' disagreement between p
    and q (equation 1).

    The supremum is over the given classifiers. Their pair, and the sign of the difference, is
    chosen on a random half of the images, and the value is taken on the other: the largest of
    several noisy values is too large. So the result may be slightly negative where there is no
    shift.

    Args:
        on_p, on_q: (C, n_p), (C, n_q) predictions of C >= 2 classifiers for images that none has
            learned from; 2 or more of either side.
        rng: source of the halves.
    """
    on_p, on_q = (side[:, rng.permutation(side.shape[1])] for side in (on_p, on_q))
    half_p, half_q = on_p.shape[1] // 2, on_q.shape[1] // 2
    differences = _all_disagreements(on_p[:, :half_p]) - _all_disagreements(on_q[:, :half_q])
    a, b = np.unravel_index(np.abs(differences).argmax(), differences.shape)
    value = disagreement(on_p[a, half_p:], on_p[b, half_p:]) - disagreement(
        on_q[a, half_q:], on_q[b, half_q:]
    )
    return float(np.sign(differences[a, b]) * value)


def _all_disagreements(predictions: Ints) -> NDArray[np.float64]:
    """Compute the (C, C) disagreements of every two of C classifiers, given (C, n) predictions."""
    return np.array([(predictions != row).mean(axis=1) for row in predictions])


class ConceptEstimator(Estimator):
    """How much classifiers of p and of q disagree, on images of either side that neither of them
    saw.

    The paper does not say how it estimates its quantities. Here each side is halved within its
    classes; f_tr is fitted on one half of p, f_te on one of q, and both are judged on the other
    halves. ``noise`` is the disagreement of two classifiers of two halves of both sides together:
    what is left of it without concept shift. Keys as in ``conf/estimator/concept.yaml``, where each
    is explained.
    """

    key = "estimator.concept"
    balances = False

    name: str = "concept"
    steps: Count1 = 600
    batch_size: Count1 = 64
    lr: NotNegative = 1e-2
    weight_decay: NotNegative = 1e-2
    val_fraction: Share = 0.2
    look_every: Count1 = 50

    def _parts(self, sample: PairSample) -> tuple[np.ndarray, np.ndarray]:
        """Split the rows into those that classifiers are fitted on and those that they are judged
        on, half and half.
        """
        return held_out_split(sample.groups, 0.5, sample.rng("judged"))

    def fittings(self, sample: PairSample) -> list[Fitting]:
        rows, judged = self._parts(sample)
        rows_p, rows_q = (rows[sample.sides[rows] == side] for side in (0, 1))
        first, second = held_out_split(sample.groups[rows], 0.5, sample.rng("noise"))
        fitted_on = {
            "f_tr": (rows_p,),
            "f_te": (rows_q,),
            "first": (rows[first],),
            "second": (rows[second],),
        }
        return [
            *(
                self._fitting(sample, LabelClassifier, sides, judged, name)
                for name, sides in fitted_on.items()
            ),
            self._fitting(sample, SideClassifier, (rows_p, rows_q), judged, "side"),
        ]

    def _fitting(
        self,
        sample: PairSample,
        kind: type[TargetClassifier],
        sides: Sequence[np.ndarray],
        judged: np.ndarray,
        name: str,
    ) -> Fitting:
        train = []
        validation = []
        for number, rows in enumerate(sides):
            kept, held_out = held_out_split(
                sample.labels[rows], self.val_fraction, sample.rng("split", name, number)
            )
            if not len(held_out) or not len(kept):
                raise DataError(
                    "too few images of every class to choose a step with; raise min_per_class, or "
                    "add images"
                )
            train.append(sample.labeled(rows[kept]))
            validation.append(sample.labeled(rows[held_out]))
        hparams = {"lr": self.lr, "weight_decay": self.weight_decay, "width": 0, "hidden": 0}
        batch = min(self.batch_size // len(sides) or 1, *(len(side.positions) for side in train))
        return Fitting(
            Schedule(kind, hparams, self.steps, batch, self.look_every, chooses="loss"),
            sample.n_classes,
            tuple(train),
            tuple(validation),
            sample.positions[judged],
            derive(sample.seed, "classifier", name),
        )

    def estimate(self, sample: PairSample, fitted: Sequence[Fitted]) -> EstimatedValues:
        _, judged = self._parts(sample)
        sides = sample.sides[judged]
        # (5, n): four of labels
        predictions = np.stack([classifier.outputs.argmax(1) for classifier in fitted])
        on_p = predictions[:4, sides == 0]
        on_q = predictions[:4, sides == 1]
        accuracy = float(
            np.mean([(predictions[4, sides == side] == side).mean() for side in (0, 1)])
        )
        values = {
            **concept(on_p[0], on_p[1], on_q[0], on_q[1]),
            "noise": disagreement(predictions[2], predictions[3]),
            "tv": max(0.0, 2 * accuracy - 1),
            "disc": discrepancy(on_p, on_q, sample.rng("discrepancy")),
        }
        diagnostics = {
            "accuracy": accuracy,
            "error_on_own": float(np.mean([fitted[0].error, fitted[1].error])),
        }
        flags = []
        if values["max"] - values["min"] > values["tv"] + 0.05:
            flags.append("max - min is above tv, which therefore underestimates covariate shift")
        if values["max"] <= values["noise"]:
            flags.append(
                "the two sides' classifiers agree as well as two of both sides together: no "
                "concept shift is seen"
            )
        return EstimatedValues(values, diagnostics, tuple(flags))
