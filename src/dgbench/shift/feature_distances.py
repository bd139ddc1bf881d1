"""Estimators of distances between features: of two sides, and of pretraining images and every environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from zipfile import BadZipFile

import numpy as np

from dgbench.errors import ConfigError, DataError
from dgbench.records.shift_rows import HALVES, NO_NULL
from dgbench.shift.distances import (
    emd,
    extrapolated,
    frechet,
    frechet_of_moments,
    kernel_matrix,
    median_distance,
    mmd2_mean_over_widths,
    mmd2_of_kernel,
    ni,
    ni_by_class,
    permutation_p,
)
from dgbench.shift.estimators import Estimate, Estimator, Fitted, Reference, Sample, check_number

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
FEWEST_IMAGES = 100  # images, below which the bias is larger than any distance of interest
SIZES = 5  # numbers of images between half of them and all, equally far apart in 1 / n


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
        of_p, of_q = (rng.permutation(len(side))[: self.max_images] for side in (sample.p, sample.q))
        a, b = sample.features(sample.p)[of_p], sample.features(sample.q)[of_q]
        y_a, y_b = sample.y_p[of_p], sample.y_q[of_q]
        both = np.concatenate([a, b])
        std = both.std(0)
        varies = std > 1e-12 * (1 + np.abs(both).max())
        a, b = ((side[:, varies] - both.mean(0)[varies]) / std[varies] for side in (a, b))
        sigma = median_distance(a, b)
        kernel, sides = kernel_matrix(a, b, sigma), np.repeat([0, 1], [len(a), len(b)])
        biased, unbiased = (float(values[0]) for values in mmd2_of_kernel(kernel, sides[None]))
        if self.mean_over_widths:
            biased, unbiased = mmd2_mean_over_widths(a, b, sigma)
        index, by_class = ni_by_class(a, y_a, b, y_b)
        values = {"emd": emd(a, b), "mmd2": unbiased, "mmd2_biased": biased, "ni": index, "ni_pooled": ni(a, b)}
        if self.permutations and sample.null == NO_NULL:
            values["mmd2_p"] = permutation_p(
                kernel, sides, np.concatenate([y_a, y_b]), self.permutations, sample.rng("permutations")
            )
        values |= {f"ni:{sample.names[label]}": value for label, value in by_class.items()}
        return Estimate(values, {"sigma": sigma, "dimensions": float(varies.sum()), "images": float(len(a))})


@dataclass(frozen=True, kw_only=True)
class FrechetEstimator(Estimator):
    """|mu_1 - mu_2|^2 + Tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)) of features, biased upwards by about c / n.

    Environments are therefore compared at one number of images n, and extrapolated to infinitely many. Values of
    other features cannot be compared, nor with the FID, which needs the Inception network it is defined by.

    Args:
        name: of the estimator in the rows.
        reference: folder of pretraining images, searched recursively, or an ``.npz`` file with ``mean`` (m,), ``cov``
            (m, m), ``n`` and ``features``, the text that says of what network they are.
        n: images of every environment; None is those of the smallest.
    """

    kinds: ClassVar[tuple[str, ...]] = ("frozen",)
    against_reference: ClassVar[bool] = True

    name: str = "frechet"
    reference: str | None = None
    n: int | None = None

    def __post_init__(self) -> None:
        if self.n is not None:
            check_number("frechet.n", self.n, FEWEST_IMAGES + 1, whole=True)
        if self.reference is None:
            raise ConfigError(
                "estimator=frechet compares with pretraining images; name a folder of images, or an .npz file of their "
                "moments, with estimator.frechet.reference=PATH"
            )
        if not Path(self.reference).exists():
            raise ConfigError(f"estimator.frechet.reference={self.reference} does not exist; give a folder or a file")

    def reference_of(
        self, features_of: Callable[[Sequence[Path]], np.ndarray], features: str, smallest: int
    ) -> Reference:
        path = Path(str(self.reference))
        common = min(self.n or smallest, smallest)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in PICTURES)
            if len(files) <= FEWEST_IMAGES:
                raise DataError(
                    f"{path} holds {len(files)} images, too few for moments; give more than {FEWEST_IMAGES}"
                )
            z = features_of(files)
            return Reference(z.mean(0), np.cov(z, rowvar=False), len(z), common)
        try:
            with np.load(path, allow_pickle=False) as file:
                of_features, mean, cov, n = str(file["features"]), file["mean"], file["cov"], int(file["n"])
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise DataError(f"{path} holds no moments ({error}); it needs mean, cov, n and features") from error
        if of_features != features:
            raise DataError(
                f"{path} holds moments of {of_features}, and these are features of {features}; make them anew"
            )
        return Reference(mean, cov, n, common)

    def estimate(self, sample: Sample, fitted: Sequence[Fitted]) -> Estimate:
        assert sample.reference is not None
        z = sample.features(sample.q)
        n = min(len(z), sample.reference.common)
        if n <= FEWEST_IMAGES:
            raise DataError(f"{n} images are too few for a Fréchet distance; give more than {FEWEST_IMAGES}")
        rng = sample.rng("images")
        flags = [f"fewer images ({n}) than features ({z.shape[1]})"] if n <= z.shape[1] else []
        if sample.null == HALVES:
            return Estimate({"d2": frechet(sample.features(sample.p), z)}, {"n": float(len(z))}, tuple(flags))
        sizes = np.array([round(1 / inverse) for inverse in np.linspace(2 / n, 1 / n, SIZES)])
        order, reference = rng.permutation(len(z)), sample.reference
        distances = [_distance(reference, z[order[:size]]) for size in sizes]
        values = {"d2": distances[-1], "d2_inf": extrapolated(sizes, distances)}
        return Estimate(values, {"n": float(n), "n_reference": float(reference.n)}, tuple(flags))


def _distance(reference: Reference, z: np.ndarray) -> float:
    return frechet_of_moments(reference.mean, reference.cov, z.mean(0), np.cov(z, rowvar=False))
