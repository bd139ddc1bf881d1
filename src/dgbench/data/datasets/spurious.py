"""Datasets whose environments differ in how often a spurious feature disagrees with the label. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from dgbench.data.datasets.base_images import (
    DIGITS_SIDE,
    IMAGES,
    base_name,
    check_base,
    content,
    is_there,
    need_mnist,
)
from dgbench.data.datasets.pictures import PictureFiles, check_pictures, describe_pictures
from dgbench.data.description import DatasetInfo
from dgbench.data.option_checks import (
    check_choice,
    check_name,
    check_numbers,
    check_path,
    check_seeds,
    check_share,
    check_workers,
    is_number,
    shown,
)
from dgbench.errors import ConfigError
from dgbench.seeding import derive

if TYPE_CHECKING:
    from dgbench.data.datasets.base_images import BaseImages
    from dgbench.data.datasets.painted import Painter, SpuriousEnvironments

GRID = [round(0.01 * i, 2) for i in range(101)]  # e of all environments


def environment_name(e: float) -> str:
    """``0.8`` -> ``0.80``; up to four decimals where two do not tell environments apart."""
    short = f"{e:.2f}"
    return short if abs(float(short) - e) < 5e-5 else f"{e:.4f}"


@dataclass(frozen=True)
class SpuriousPlan:
    """Environments and the images of each.

    Args:
        info: the dataset.
        strength: environment -> e.
        e_means: ``disagree`` or ``agree``.
        pool: positions of the images that judge every environment.
        subsets: (given environment, ``train`` or ``val``) -> positions; empty where the files are absent, as the pool.
    """

    info: DatasetInfo
    strength: Mapping[str, float]
    e_means: str
    pool: np.ndarray
    subsets: Mapping[tuple[str, str], np.ndarray]

    @cached_property
    def disagreement(self) -> dict[str, float]:
        """Environment -> probability that feature and label differ."""
        return {name: e if self.e_means == "disagree" else 1 - e for name, e in self.strength.items()}


@dataclass(frozen=True, kw_only=True)
class SpuriousOptions:
    """What every dataset with a spurious feature takes.

    Args:
        name: of the dataset, in the rows.
        label_noise: probability that a label is replaced by another one.
        given: e of the given environments; None leaves them to the dataset.
        pool_fraction: share of the images in the evaluation pool.
        val_fraction: share of a given environment's images in its val subset.
        evaluation: ``exact`` or ``sampled``.
        data_seed: decides which images go where, label noise and features.
        split_seed: decides the split into train and val.
        e_means: ``disagree``, or ``agree`` where e is the probability that the feature equals the label.
        shares: how the images outside the pool are dealt to the given environments, in proportion; None is evenly.
        val_only: e of given environments whose own images are all ``val``: those that are never trained on.
    """

    name: str
    label_noise: float
    given: Sequence[float] | None
    pool_fraction: float
    val_fraction: float
    evaluation: str
    data_seed: int
    split_seed: int
    e_means: str = "disagree"
    shares: Sequence[float] | None = None
    val_only: Sequence[float] = ()

    def plan(
        self,
        given: Sequence[float],
        variant: Mapping[str, Any],
        *,
        base: str,
        n_images: int,
        n_classes: int,
        image: tuple[int, int, int],
        content: str,
    ) -> SpuriousPlan:
        """Check the values and deal the images.

        Args:
            given: e of the given environments.
            variant: what tells this form of the dataset from others, besides the keys of this class.
            base: name of the base images.
            n_images: how many there are; 0 where the files are absent, and nothing is dealt.
            n_classes: K.
            image: C, H, W after painting.
            content: of the files.

        Raises:
            ConfigError: a value that cannot work, e outside [0, 1] or repeated, a fraction that leaves a subset empty.
        """
        self._check_values()
        check_given(given)
        names = [environment_name(e) for e in given]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ConfigError(f"dataset.given holds {repeated[0]} more than once; give each environment once")
        if not {environment_name(e) for e in self.val_only} <= set(names):
            raise ConfigError(
                f"dataset.val_only={shown(self.val_only)} names others than dataset.given={shown(given)}; correct it"
            )
        pool, subsets = self._dealt(n_images, names)
        info = DatasetInfo(
            name=self.name,
            variant={
                **variant,
                "label_noise": self.label_noise,
                "pool_fraction": self.pool_fraction,
                "val_fraction": self.val_fraction,
                **({} if self.shares is None else {"shares": list(self.shares)}),
                **({} if not self.val_only else {"val_only": list(self.val_only)}),
            },
            base=base,
            evaluation=self.evaluation,
            data_seed=self.data_seed,
            split_seed=self.split_seed,
            given=tuple(names),
            everywhere=tuple(dict.fromkeys([*(environment_name(e) for e in GRID), *names])),
            n_classes=n_classes,
            image=image,
            beyond=True,
            counts={
                env: {"train": len(subsets[env, "train"]), "val": len(subsets[env, "val"]), "test": len(pool)}
                for env in names
            }
            if n_images
            else {},
            content=content,
        )
        strength = {environment_name(e): float(e) for e in [*given, *GRID]}
        return SpuriousPlan(info, strength, self.e_means, pool, subsets)

    def _check_values(self) -> None:
        check_name(self.name)
        check_seeds(data_seed=self.data_seed, split_seed=self.split_seed)
        check_choice("evaluation", self.evaluation, ("exact", "sampled"))
        check_choice("e_means", self.e_means, ("agree", "disagree"))
        check_share("pool_fraction", self.pool_fraction, "0.2 is usual")
        if not is_number(self.label_noise) or not 0 <= self.label_noise < 1:
            raise ConfigError(f"dataset.label_noise={shown(self.label_noise)} is not in [0, 1); 0.25 is the papers'")
        check_numbers("val_only", self.val_only)
        if self.shares is not None:
            check_numbers("shares", self.shares)
        check_share("val_fraction", self.val_fraction, "DomainBed uses 0.2")

    def _dealt(self, n: int, names: Sequence[str]) -> tuple[np.ndarray, dict[tuple[str, str], np.ndarray]]:
        """The pool, and train and val of each given environment."""
        order = np.random.default_rng(derive(self.data_seed, "deal")).permutation(n)
        cut = round(self.pool_fraction * n)
        pool, dealt = order[:cut], order[cut:]
        spared = {environment_name(e) for e in self.val_only}
        subsets: dict[tuple[str, str], np.ndarray] = {}
        for name, own in zip(names, _hands(dealt, len(names), self.shares), strict=True):
            shuffled = own[np.random.default_rng(derive(self.split_seed, "split", name)).permutation(len(own))]
            n_val = len(own) if name in spared else int(len(own) * self.val_fraction)
            if n and (not 0 < n_val < len(own) + (name in spared) or cut == 0):
                raise ConfigError(
                    f"environment {name} has {len(own)} images, {n_val} of them for val, and the pool {cut}: one "
                    "subset is empty; use fewer environments, more images (dataset.base=mnist) or other fractions"
                )
            subsets[name, "val"], subsets[name, "train"] = shuffled[:n_val], shuffled[n_val:]
        return pool, subsets


def _hands(dealt: np.ndarray, n: int, shares: Sequence[float] | None) -> list[np.ndarray]:
    """The images of each of n environments."""
    if shares is None:
        return [dealt[i::n] for i in range(n)]
    if len(shares) != n or not all(share > 0 for share in shares):
        raise ConfigError(f"dataset.shares={shown(shares)} is not {n} positive numbers, one per given environment")
    ends = np.rint(np.cumsum(shares) / sum(shares) * len(dealt)).astype(int)
    return np.split(dealt, ends[:-1])


def check_given(given: Sequence[float]) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(
            f"dataset.given={shown(given)} is no list; give at least two environments, e.g. dataset.given=[0.9,0.1]"
        )
    if not given:
        raise ConfigError("dataset.given is empty; give at least two environments, e.g. dataset.given=[0.9,0.8,0.1]")
    for e in given:
        if not isinstance(e, (int, float)) or isinstance(e, bool) or not 0 <= e <= 1:
            raise ConfigError(f"dataset.given holds {shown(e)}, which is not a number in [0, 1]; e is a probability")


MOST = 1000  # of ratio and of scale: there are 101 environments


def given_environments(ratio: int, scale: int) -> list[float]:
    """e of the given environments: ``ratio * scale`` evenly spaced in [0.8, 0.9], ``scale`` in [0.1, 0.2].

    A group of one is the lower end of its range (the paper says so for the minority; the majority follows suit).

    Raises:
        ConfigError: ratio or scale is not an integer >= 1.
    """
    for key, value in (("ratio", ratio), ("scale", scale)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
            raise ConfigError(
                f"dataset.{key}={shown(value)} is not an integer >= 1 and <= {MOST}; the paper uses ratio 3, 4, 5 and "
                "scale 1 to 4"
            )
    return [*_spread(0.8, 0.9, ratio * scale), *_spread(0.1, 0.2, scale)]


def _spread(low: float, high: float, n: int) -> list[float]:
    return [low] if n == 1 else [float(e) for e in np.linspace(low, high, n)]


@dataclass(frozen=True, kw_only=True)
class SRCMNIST(SpuriousOptions):
    """Colored digits: label digit < 5, flipped with probability 0.25; color from the final label, flipped with e.

    The image has two channels; the digit stands in the channel of its color, the other is zero. All environments
    are e = 0.00, 0.01, ..., 1.00.

    Args:
        base, data_dir, resolution: see :func:`~dgbench.data.datasets.base_images.load_base_images`.
        ratio: majority environments per minority environment, >= 1; read where ``given`` is None.
        scale: number of minority environments, >= 1; likewise.
    """

    base: str
    data_dir: str
    resolution: int
    ratio: int | None = None
    scale: int | None = None

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """As :meth:`~dgbench.data.description.DatasetOptions.describe`.

        With ``base=auto`` this is MNIST where it is on disk. Only ``download`` (or :meth:`build`) tries to fetch it,
        once per process and folder; from then on every answer is the outcome of that.
        """
        return self._plan(absent_ok, download).info

    def build(self) -> SpuriousEnvironments:
        """The environments; MNIST is downloaded where that is asked for and possible."""
        plan = self._plan(absent_ok=False, download=True)

        from dgbench.data.datasets.base_images import load_base_images
        from dgbench.data.datasets.painted import SpuriousEnvironments
        from dgbench.data.transforms.paint import two_channel_color

        images = load_base_images(self.base, self._folder(), self.resolution)
        return SpuriousEnvironments(self, plan, images, lambda classes: (classes < 5).long(), two_channel_color)

    def _plan(self, absent_ok: bool, download: bool) -> SpuriousPlan:
        given, variant = self._given()
        check_base(self.base, self.resolution)
        folder = self._folder()
        base = base_name(self.base, folder, download)
        there = is_there(base, folder, download)
        if not there and not absent_ok:
            need_mnist(folder, download)
        side = DIGITS_SIDE if base == "digits" else self.resolution
        return self.plan(
            given,
            {**variant, "resolution": side},
            base=base,
            n_images=IMAGES[base] if there else 0,
            n_classes=2,
            image=(2, side, side),
            content=content(base, folder) if there else "",
        )

    def _folder(self) -> Path:
        return check_path("data_dir", self.data_dir, "name the folder that holds MNIST/raw, or set paths.data_dir")

    def _given(self) -> tuple[Sequence[float], dict[str, Any]]:
        if self.given is not None:
            return self.given, {}
        if self.ratio is None or self.scale is None:
            raise ConfigError("dataset.given is null and dataset.ratio or dataset.scale too; set given, or both others")
        return given_environments(self.ratio, self.scale), {"ratio": self.ratio, "scale": self.scale}


@dataclass(frozen=True, kw_only=True)
class SpuriousPictures(SpuriousOptions):
    """Classes of pictures as labels, replaced with probability ``label_noise``; a feature painted by the final label.

    All environments are e = 0.00, 0.01, ..., 1.00.

    **What e means.** The paper says only that an environment is "parameterized by a spurious feature (between 0.00
    and 1.00)". The defaults are its likely reading:

    - C-Cats&Dogs: e is the probability to *disagree*, as in section 4.1 of the same paper. With two classes the
      other reading is this one with the two tints swapped, so nothing hangs on it.
    - L-CIFAR10: e is the probability to *agree*. Of ten colors, a line that disagrees with probability 0.9 agrees
      with 0.1 and says nothing about the label: the given set 0.80 to 0.95, the majority, would hold next to no
      spurious correlation, and the paper says one is induced.

    **Given sets.** The paper prints the one of ratio 4:1: for C-Cats&Dogs 0.05, 0.10, 0.15, 0.20 and, as minority,
    0.50; for L-CIFAR10 0.95, 0.90, 0.85, 0.80 and 0.50. Those of 3:2 and 5:0 (Table 2) it does not print. Here they
    keep the printed set's starts and its step of 0.05: the majority is the first three (five) of 0.05, 0.10, 0.15,
    0.20, 0.25, the minority the first two (none) of 0.50, 0.55; for L-CIFAR10 of 0.95, 0.90, ... and 0.50, 0.45. So
    all given environments are among the 101.

    Args:
        root, image_size, on_bad_image, cache_dir, workers: see :func:`~dgbench.data.datasets.pictures.load_pictures`.
        paint: draws the feature into (n, 3, S, S) images; or what Hydra makes it from, so that a plan needs no torch.
        ratio: a key of ``given_sets``; read where ``given`` is None.
        given_sets: e of the given environments by ratio.
    """

    root: str
    image_size: int | None
    on_bad_image: str
    cache_dir: str
    workers: int | None
    paint: Callable[..., Any] | Mapping[str, Any]
    ratio: str | None
    given_sets: Mapping[str, Sequence[float]]

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """As :meth:`~dgbench.data.description.DatasetOptions.describe`; nothing is downloaded.

        Images that cannot be decoded are known once they were decoded: until then all are counted. The painter is
        taken to leave the number of channels as it is.
        """
        self._check()
        if absent_ok and not Path(self.root).expanduser().is_dir():
            return self._plan(PictureFiles("absent", np.empty(0, np.int64), "")).info
        return self._plan(self._files()).info

    def build(self) -> SpuriousEnvironments:
        """The environments, their images decoded once into the cache."""
        self._check()
        files = self._files()
        self._plan(files)  # refuses what needs no pixels

        from dgbench.data.datasets.painted import SpuriousEnvironments
        from dgbench.data.datasets.pictures import load_pictures

        paint = self._painter()
        base = load_pictures(self.root, self.image_size, self.on_bad_image, self._cache(), self.workers)
        plan = self._plan(PictureFiles(base.name, base.classes.numpy(), files.content))
        self._check_painter(paint, base, plan.info.n_classes)
        return SpuriousEnvironments(self, plan, base, lambda classes: classes, paint)

    def _check(self) -> None:
        check_pictures(self.image_size, self.on_bad_image)
        check_path("root", self.root, "name a folder that holds CLASS/IMAGE.png")
        self._cache()
        check_workers(self.workers)
        if not callable(self.paint) and not (isinstance(self.paint, Mapping) and self.paint.get("_target_")):
            raise ConfigError(
                f"dataset.paint={shown(self.paint)} is no function; write dataset.paint._target_=MODULE.FUNCTION, e.g. "
                "dgbench.data.transforms.paint.tint"
            )
        if not isinstance(self.given_sets, Mapping):
            raise ConfigError(f"dataset.given_sets={shown(self.given_sets)} names no sets; use dataset.given=[0.9,0.1]")

    def _painter(self) -> Painter:
        try:
            painter: Painter = instantiate(self.paint) if isinstance(self.paint, Mapping) else self.paint
        except InstantiationException as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"dataset.paint={shown(self.paint)} cannot be had: {reason}; correct it") from error
        return painter

    def _cache(self) -> Path:
        return check_path("cache_dir", self.cache_dir, "name a folder with space for decoded images")

    def _files(self) -> PictureFiles:
        return describe_pictures(self.root, self.image_size, self.on_bad_image, self._cache())

    def _plan(self, files: PictureFiles) -> SpuriousPlan:
        variant: dict[str, Any] = {"e_means": self.e_means}
        given = self.given
        if given is None:
            if not isinstance(self.ratio, str) or self.ratio not in self.given_sets:
                raise ConfigError(
                    f"dataset.ratio={shown(self.ratio)} has no given set; choose from {', '.join(self.given_sets)}"
                )
            given, variant["ratio"] = list(self.given_sets[self.ratio]), self.ratio
        side = self.image_size or 0
        return self.plan(
            given,
            {**variant, "image_size": self.image_size},
            base=files.name,
            n_images=len(files.classes),
            n_classes=files.n_classes,
            image=(3, side, side),
            content=files.content,
        )

    def _check_painter(self, paint: Painter, base: BaseImages, n_classes: int) -> None:
        import torch

        try:
            paint(base.images[:1] / base.peak, torch.tensor([n_classes - 1]))
        except IndexError as error:
            raise ConfigError(
                f"dataset.root={self.root} has {n_classes} classes, more than this dataset's painter has features; "
                "name a folder with fewer classes"
            ) from error
