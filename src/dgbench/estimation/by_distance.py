"""Distances between the features of two sides: earth mover's distance, maximum mean discrepancy, non-i.i.d. index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dgbench.estimation.estimators import Estimate, Estimator, Sample, check_number
from dgbench.estimation.recipes import Fitted
from dgbench.records.shift_rows import NO_NULL
from dgbench.shifts.distances import (
    emd,
    kernel_matrix,
    median_distance,
    mmd2_mean_over_widths,
    mmd2_of_kernel,
    ni,
    ni_by_class,
    permutation_p,
)


@dataclass(frozen=True, kw_only=True)
class DistanceEstimator(Estimator):
    """Table 3 of Ye et al. (2022), which gives neither features nor kernels: ours are standardized features.

    Args:
        name: of the estimator in the rows.
        max_images: most images of a side; trials draw others.
        permutations: of the environments within each class, for the p-value of the discrepancy; 0 leaves it out.
        mean_over_widths: the discrepancy as mean over kernel widths from 1/4 to 4 median distances.
    """

    kinds: ClassVar[tuple[str, ...]] = ("frozen",)

    name: str = "distances"
    max_images: int = 500
    permutations: int = 200
    mean_over_widths: bool = False

    def __post_init__(self) -> None:
        check_number("distances.max_images", self.max_images, 4, whole=True)
        check_number("distances.permutations", self.permutations, 0, whole=True)

    def estimate(self, sample: Sample, fitted: Sequence[Fitted]) -> Estimate:
        rng = sample.rng("images")
        rows = [rng.permutation(len(side))[: self.max_images] for side in (sample.p, sample.q)]
        (a, b), (y_a, y_b) = sample.split(), (sample.y_p[rows[0]], sample.y_q[rows[1]])
        a, b = a[rows[0]], b[rows[1]]
        both = np.concatenate([a, b])
        std = both.std(0)
        varies = std > 1e-12 * (1 + np.abs(both).max())
        a, b = ((own[:, varies] - both.mean(0)[varies]) / std[varies] for own in (a, b))
        sigma = median_distance(a, b)
        kernel, sides = kernel_matrix(a, b, sigma), np.repeat([0, 1], [len(a), len(b)])
        biased, unbiased = (float(own[0]) for own in mmd2_of_kernel(kernel, sides[None]))
        if self.mean_over_widths:
            biased, unbiased = mmd2_mean_over_widths(a, b, sigma)
        index, by_class = ni_by_class(a, y_a, b, y_b)
        values = {"emd": emd(a, b), "mmd2": unbiased, "mmd2_biased": biased, "ni": index, "ni_pooled": ni(a, b)}
        if self.permutations and sample.null == NO_NULL:
            values["mmd2_p"] = permutation_p(
                lambda matrix, drawn: mmd2_of_kernel(matrix, drawn)[1], kernel, sides, np.concatenate([y_a, y_b]),
                self.permutations, sample.rng("permutations"),
            )  # fmt: skip
        values |= {f"ni:{sample.names[label]}": value for label, value in by_class.items()}
        return Estimate(values, {"sigma": sigma, "dimensions": float(varies.sum()), "images": float(len(a))})
