"""What every estimator of dataset shift is: the classifiers that it needs, and the values that it
makes of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

from dgbench.errors import ConfigError
from dgbench.records.shift_rows import HALVES, NO_NULL
from dgbench.records.spec import digest
from dgbench.seeding import derive
from dgbench.validation import Checked, Number, Refusal

if TYPE_CHECKING:
    from dgbench.shift.classifiers import ShiftClassifier

FEATURE_KINDS = ("frozen", "trained")
# share of images where both sides have density, below which correlation shift is not estimated
LEAST_OVERLAP = 0.01
EARLY = 100  # steps
LOOKS_MORE = 5

Share = Annotated[
    Number, Field(ge=0.01, le=0.9), Refusal("is not a number from 0.01 to 0.9", "give one")
]


@dataclass(frozen=True)
class Schedule:
    """How a classifier is trained."""

    algorithm: type[ShiftClassifier]
    hparams: Mapping[str, Any]
    steps: int
    batch_size: int  #: images of each side and step
    #: steps between two looks at the validation images; in the first :data:`EARLY` steps, where
    #: small samples are best, a fifth of it
    look_every: int
    #: ``loss`` or ``error``: the step where it is lowest counts; None: the last
    chooses: str | None = None
    #: the mean of the weights after every later step counts; None: it does not
    mean_from: int | None = None
    #: draw minibatches without replacement, epoch by epoch; otherwise uniformly with replacement
    epochs: bool = False

    @property
    def interval(self) -> int:
        """Steps after which training pauses."""
        return max(1, self.look_every // LOOKS_MORE)

    def looks(self, step: int) -> bool:
        """Return whether validation images are evaluated when training pauses after this step."""
        return step <= EARLY or step % self.look_every == 0 or step >= self.steps

    @property
    def key(self) -> str:
        """Digest, equal for equal schedules."""
        return digest({**vars(self), "algorithm": self.algorithm.__name__})


@dataclass(frozen=True)
class Labeled:
    """Images of one side with labels."""

    positions: np.ndarray  #: (n,) in the source of images
    labels: np.ndarray  #: (n,) int64 in 0..K-1


@dataclass(frozen=True)
class Fitting:
    """One classifier to train."""

    schedule: Schedule
    n_classes: int
    sides: tuple[Labeled, ...]  #: images that it trains on, of p and of q (or of one side alone)
    validation: tuple[Labeled, ...]  #: images that choose the step, by side
    predicted: np.ndarray  #: (n,) positions of images whose outputs are wanted
    seed: int  #: of its weights and minibatches


@dataclass(frozen=True)
class Fitted:
    """A classifier that was trained."""

    outputs: np.ndarray  #: (n, c) float64, of the images that were asked for
    loss: float  #: mean cross entropy of the validation images
    error: float  #: fraction of them that is wrong
    step: int  #: that counts
    seconds: float  #: its share of those of its stack
    together: int  #: classifiers of its stack


@dataclass(frozen=True)
class PairSample:
    """The images of one estimate."""

    p: np.ndarray  #: (n_p,) positions of the images of one side
    q: np.ndarray  #: (n_q,)
    y_p: np.ndarray  #: (n_p,) labels in 0..K-1
    y_q: np.ndarray  #: (n_q,)
    names: tuple[str, ...]  #: of the K classes
    seed: int  #: base seed of everything that is drawn for this estimate
    null: str  #: why there is no shift between the sides, ``none`` where there may be
    #: features of images by the initial weights, (n,) positions -> (n, m) float64
    features: Callable[[np.ndarray], np.ndarray] = field(repr=False)
    #: class that is left out -> its images in p and in q
    dropped: dict[str, list[int]] = field(default_factory=dict)

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.names)

    @property
    def positions(self) -> np.ndarray:
        """(n_p + n_q,), those of p first."""
        return np.concatenate([self.p, self.q])

    @property
    def labels(self) -> np.ndarray:
        """(n_p + n_q,)."""
        return np.concatenate([self.y_p, self.y_q])

    @property
    def sides(self) -> np.ndarray:
        """(n_p + n_q,), 0 for p and 1 for q."""
        return np.repeat([0, 1], [len(self.p), len(self.q)])

    @property
    def groups(self) -> np.ndarray:
        """(n_p + n_q,) numbers of side and class together, side K + y."""
        return np.asarray(self.sides * self.n_classes + self.labels)

    def labeled(self, rows: np.ndarray) -> Labeled:
        """Select some of the images, by their rows in :attr:`positions`, with their labels."""
        return Labeled(self.positions[rows], self.labels[rows])

    def by_side(self, rows: np.ndarray) -> tuple[Labeled, Labeled]:
        """Select some images by their rows, and split them into those of p and those of q."""
        sides = self.sides[rows]
        return self.labeled(rows[sides == 0]), self.labeled(rows[sides == 1])

    def rng(self, *purpose: str | int) -> np.random.Generator:
        """Seed a random generator for one purpose."""
        return np.random.default_rng(derive(self.seed, *purpose))


@dataclass(frozen=True)
class EstimatedValues:
    """The values of one estimate, or why there are none."""

    values: dict[str, float] = field(default_factory=dict)
    diagnostics: dict[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()  #: what a reader must know, one line each
    refused: str = ""  #: why there are no values, in one line; empty if there are


class Estimator(Checked, ABC):
    """Base of all estimators.

    A subclass is a file of ``conf/estimator``, whose keys are its fields.

    Attributes:
        nulls: kinds of pairs that it can estimate: those that are compared (``none``), and pairs
            without shift.
        kinds: the features that it can work on.
        balances: give both sides equally many images of every class.
        against_reference: it compares every environment with pretraining images instead of two
            environments.
        whole_pair: the estimates of one pair depend on one another.
    """

    nulls: ClassVar[tuple[str, ...]] = (NO_NULL, HALVES)
    kinds: ClassVar[tuple[str, ...]] = FEATURE_KINDS
    balances: ClassVar[bool] = True
    against_reference: ClassVar[bool] = False

    name: str

    @property
    def whole_pair(self) -> bool:
        return False

    def nulls_of(self, asked: bool) -> tuple[str, ...]:
        """List the kinds of pairs to estimate: the compared ones (``none``), and if asked those
        without shift.

        Args:
            asked: whether pairs without shift are wanted.

        Raises:
            ConfigError: they are not wanted, and the estimator cannot do without.
        """
        if self.whole_pair and not asked:
            raise ConfigError(
                f"{self.key}.thresholds=calibrated needs pairs without shift; set null=true, or "
                "thresholds=fixed"
            )
        return self.nulls if asked else (NO_NULL,)

    def prepared(
        self, features_of: Callable[[Sequence[Path]], np.ndarray], features: str, smallest: int
    ) -> Self:
        """Return the estimator for one dataset, with the reference that it compares environments
        with, if any.

        Args:
            features_of: image files -> (n, m) features.
            features: names the network that computes them, ``BACKBONE/INIT``.
            smallest: images of the smallest environment.

        Raises:
            DataError: the reference cannot be had.
        """
        return self

    def fittings(self, sample: PairSample) -> list[Fitting]:
        """List the classifiers that the estimate of a sample needs.

        Raises:
            DataError: there are too few images.
        """
        return []

    def calibrated(self, nulls: Sequence[tuple[PairSample, Sequence[Fitted]]]) -> Self:
        """Return the estimator for one pair, given the pair's trials without shift and their
        classifiers.

        Raises:
            DataError: these trials cannot calibrate it.
        """
        return self

    @abstractmethod
    def estimate(self, sample: PairSample, fitted: Sequence[Fitted]) -> EstimatedValues:
        """Compute the values, given the classifiers of :meth:`fittings`.

        Raises:
            DgbenchError: there are no values, and why.
        """


def without_overlap(
    values: Mapping[str, float], share: float
) -> tuple[dict[str, float], list[str]]:
    """Drop the values of correlation shift where the sides hardly overlap, and return a flag that
    says so.

    ``share`` is that of the images where both sides have density.
    """
    if share >= LEAST_OVERLAP:
        return dict(values), []
    flag = (
        f"no correlation shift: both sides have density at {100 * share:.1f} % of the images "
        "only, and it is defined where they overlap"
    )
    return {name: value for name, value in values.items() if not name.startswith("cor")}, [flag]
