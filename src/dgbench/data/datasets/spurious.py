"""Datasets whose environments differ in how often a spurious feature disagrees with the label.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from pydantic import AfterValidator, BeforeValidator, Field

from dgbench.data.datasets.base_images import (
    LARGE_OR_SMALL,
    Base,
    BaseFacts,
    base_facts,
    describe_pictures,
    load_base_images,
    load_pictures,
)
from dgbench.data.datasets.splits import Subsets, counts_of, cut, drawn
from dgbench.data.description import Counts, DatasetInfo
from dgbench.data.options import (
    NO_SIDE,
    CacheFolder,
    DataFolder,
    DatasetOptions,
    ImageSize,
    Numbers,
    PathText,
    PoolFraction,
    Seed,
    ValFraction,
    Workers,
    expanded,
    known_size,
    mapping_or,
)
from dgbench.errors import ConfigError
from dgbench.seeding import derive
from dgbench.validation import Number, Refusal, shown

if TYPE_CHECKING:
    from dgbench.data.datasets.painted import Painter
    from dgbench.data.environments import Environments

GRID = [round(0.01 * i, 2) for i in range(101)]  #: e of all environments
USUAL_SIDES = "32, 64, 224 are usual"
MOST_GIVEN = 1000  #: the largest ratio and scale; there are 101 environments


def environment_name(e: float) -> str:
    """Format e with two decimals (``0.80``), or four if two do not tell environments apart."""
    short = f"{e:.2f}"
    return short if abs(float(short) - e) < 5e-5 else f"{e:.4f}"


def _some(values: Any) -> Any:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise ValueError("is no list; give at least two environments, e.g. dataset.given=[0.9,0.1]")
    return values


#: e of environments
Given = Annotated[
    Sequence[
        Annotated[
            Number, Field(ge=0, le=1), Refusal("is not a number in [0, 1]", "e is a probability")
        ]
    ],
    BeforeValidator(_some),
]
LabelNoise = Annotated[
    Number, Field(ge=0, lt=1), Refusal("is not in [0, 1)", "0.25 is the papers'")
]
Count = Annotated[
    Annotated[int, Field(ge=1, le=MOST_GIVEN)] | None,
    Refusal(
        f"is not an integer >= 1 and <= {MOST_GIVEN}",
        "the paper uses ratio 3, 4, 5 and scale 1 to 4",
    ),
]


class SpuriousOptions(DatasetOptions):
    """What every dataset with a spurious feature takes; ``conf/dataset`` explains each key.

    ``e_means`` is in ``c_cats_dogs.yaml``, ``shares`` and ``val_only`` are in ``cmnist_irm.yaml``,
    the others in ``sr_cmnist.yaml``.
    """

    label_noise: LabelNoise
    given: Given | None
    pool_fraction: PoolFraction
    val_fraction: ValFraction
    evaluation: Literal["exact", "sampled"]
    data_seed: Seed
    split_seed: Seed
    e_means: Literal["agree", "disagree"] = "disagree"
    shares: Numbers | None = None  # None: evenly
    val_only: Numbers = ()

    def plan(
        self,
        given: Sequence[float],
        variant: Mapping[str, Any],
        base: BaseFacts,
        n_classes: int,
        channels: int,
        class_names: Sequence[str] = (),
    ) -> tuple[DatasetInfo, Subsets]:
        """Deal the images; return the dataset, and which images are in which subset.

        Args:
            given: e of the given environments.
            variant: what tells this form of the dataset from others, besides the keys of this
                class.
            base: the base images; if their files are absent, nothing is dealt.
            n_classes: K.
            channels: of an image after painting.
            class_names: in the order of the outputs, for people; empty if they are not known.

        Raises:
            ConfigError: an environment that is repeated, or that only ``val_only`` names; a
                fraction that leaves a subset empty.
        """
        names = self._names_of(given)
        everywhere = tuple(dict.fromkeys([*map(environment_name, GRID), *names]))
        pool, subsets = self._dealt(base.n_images, names)
        counts: Counts = {}
        if base.n_images:
            counts = counts_of({**subsets, **{(env, "test"): pool for env in names}})
        info = DatasetInfo(
            name=self.name,
            variant={**variant, **self._shared_variant()},
            base=base.name,
            evaluation=self.evaluation,
            data_seed=self.data_seed,
            split_seed=self.split_seed,
            given=tuple(names),
            everywhere=everywhere,
            n_classes=n_classes,
            image=(channels, base.side, base.side),
            beyond=True,
            counts=counts,
            content=base.content,
            class_names=tuple(class_names),
            val_from=drawn(self.val_fraction, self.split_seed),
        )
        return info, {**subsets, **{(env, "test"): pool for env in everywhere}}

    def _names_of(self, given: Sequence[float]) -> list[str]:
        """Name the given environments, and refuse those that do not go together."""
        names = [environment_name(e) for e in given]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ConfigError(
                f"dataset.given holds {repeated[0]} more than once; give each environment once"
            )
        if not {environment_name(e) for e in self.val_only} <= set(names):
            raise ConfigError(
                f"dataset.val_only={shown(self.val_only)} names environments that are not "
                f"in dataset.given={shown(given)}; correct it"
            )
        return names

    def _shared_variant(self) -> dict[str, Any]:
        """Collect the keys of this class that tell forms of a dataset apart."""
        variant: dict[str, Any] = {
            "label_noise": self.label_noise,
            "pool_fraction": self.pool_fraction,
            "val_fraction": self.val_fraction,
        }
        if self.shares is not None:
            variant["shares"] = list(self.shares)
        if self.val_only:
            variant["val_only"] = list(self.val_only)
        return variant

    def disagreement(self, given: Sequence[float]) -> dict[str, float]:
        """Map every environment to the probability that feature and label differ."""
        means = {environment_name(e): float(e) for e in [*given, *GRID]}
        if self.e_means == "disagree":
            return means
        return {name: 1 - e for name, e in means.items()}

    def _dealt(
        self, n: int, names: Sequence[str]
    ) -> tuple[np.ndarray, dict[tuple[str, str], np.ndarray]]:
        """Deal n images to the pool and to train and val of each given environment."""
        order = np.random.default_rng(derive(self.data_seed, "deal")).permutation(n)
        n_pool = round(self.pool_fraction * n)
        pool = order[:n_pool]
        remaining = order[n_pool:]
        spared = {environment_name(e) for e in self.val_only}
        subsets: dict[tuple[str, str], np.ndarray] = {}
        for name, hand in zip(names, self._hands(remaining, len(names)), strict=True):
            share = 1.0 if name in spared else self.val_fraction
            val, train = cut(hand, share, self.split_seed, "split", name)
            if n and not (len(val) and (len(train) or name in spared) and n_pool):
                raise ConfigError(
                    f"environment {name} has {len(hand)} images, {len(val)} of them for val, and "
                    f"the pool {n_pool}: one subset is empty; use fewer environments, more images "
                    "(dataset.base=mnist) or other fractions"
                )
            subsets[name, "val"] = val
            subsets[name, "train"] = train
        return pool, subsets

    def _hands(self, images: np.ndarray, n: int) -> list[np.ndarray]:
        """Deal images to n environments, evenly or by ``shares``."""
        if self.shares is None:
            return [images[i::n] for i in range(n)]
        if len(self.shares) != n or not all(share > 0 for share in self.shares):
            raise ConfigError(
                f"dataset.shares={shown(self.shares)} is not {n} positive numbers, one per given "
                "environment"
            )
        ends = np.rint(np.cumsum(self.shares) / sum(self.shares) * len(images)).astype(int)
        return np.split(images, ends[:-1])


def given_environments(ratio: int, scale: int) -> list[float]:
    """Compute e of the given environments.

    These are ``ratio * scale`` evenly spaced in [0.8, 0.9], and ``scale`` in [0.1, 0.2].

    A group of one is the lower end of its range (the paper says so for the minority; the majority
    follows suit).
    """
    majority = np.linspace(0.8, 0.9, ratio * scale).tolist()
    minority = np.linspace(0.1, 0.2, scale).tolist()
    return [*majority, *minority]


class SRCMNIST(SpuriousOptions):
    """SR-CMNIST (Hwang et al., 2024, section 4.1): given environments follow a ratio and a scale.

    Colored digits: label digit < 5, flipped with probability 0.25; color from the final label,
    flipped with e. The image has two channels; the digit stands in the channel of its color, the
    other is zero. All environments are e = 0.00, 0.01, ..., 1.00.
    """

    base: Base
    data_dir: DataFolder
    resolution: Annotated[
        int, Field(ge=14, le=28, multiple_of=14), Refusal("is not 28 or 14", "choose one of them")
    ]
    ratio: Count = None
    scale: Count = None

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """Describe the dataset as every ``DatasetOptions`` does.

        With ``base=auto`` this is MNIST if it is on disk. Only ``download`` (or :meth:`build`)
        tries to fetch it, once per process and folder; every later call goes by the outcome.
        """
        return self._planned(absent_ok, download)[0]

    def build(self) -> Environments:
        """Build the environments.

        MNIST is downloaded if ``base`` asks for it, it is absent and a mirror answers.
        """
        info, subsets = self._planned(absent_ok=False, download=True)

        from dgbench.data.datasets.painted import painted
        from dgbench.data.transforms.paint import two_channel_color

        base = load_base_images(self.base, expanded(self.data_dir), self.resolution)
        labels = (base.classes < 5).long()
        disagreement = self.disagreement(self._given()[0])
        return painted(
            info, subsets, disagreement, base, labels, self.label_noise, two_channel_color
        )

    def _planned(self, absent_ok: bool, download: bool) -> tuple[DatasetInfo, Subsets]:
        given, variant = self._given()
        base = base_facts(self.base, expanded(self.data_dir), self.resolution, absent_ok, download)
        variant = {**variant, "resolution": base.side}
        return self.plan(given, variant, base, n_classes=2, channels=2, class_names=LARGE_OR_SMALL)

    def _given(self) -> tuple[Sequence[float], dict[str, Any]]:
        if self.given is not None:
            return self.given, {}
        if self.ratio is None or self.scale is None:
            raise ConfigError(
                "dataset.given is null and dataset.ratio or dataset.scale too; set given, or both "
                "others"
            )
        given = given_environments(self.ratio, self.scale)
        return given, {"ratio": self.ratio, "scale": self.scale}


def _function(value: Any) -> Any:
    if not callable(value) and not (isinstance(value, Mapping) and value.get("_target_")):
        raise ValueError(
            "is no function; write dataset.paint._target_=MODULE.FUNCTION, e.g. "
            "dgbench.data.transforms.paint.tint"
        )
    return value


class SpuriousPictures(SpuriousOptions):
    """C-Cats&Dogs, L-CIFAR10 (Hwang et al., 2024, section 4.2) and others: pictures with a feature.

    Classes of pictures are labels, replaced with probability ``label_noise``; a feature painted by
    the final label.

    All environments are e = 0.00, 0.01, ..., 1.00.

    **What e means.** The paper says only that an environment is "parameterized by a spurious
    feature (between 0.00 and 1.00)". The defaults are its likely reading:

    - C-Cats&Dogs: e is the probability to *disagree*, as in section 4.1 of the same paper. With two
      classes the other reading is this one with the two tints swapped, so nothing hangs on it.
    - L-CIFAR10: e is the probability to *agree*. Of ten colors, a line that disagrees with
      probability 0.9 agrees with 0.1 and says nothing about the label: the given set 0.80 to 0.95,
      the majority, would hold next to no spurious correlation, and the paper says one is induced.

    **Given sets.** The paper prints the one of ratio 4:1: for C-Cats&Dogs 0.05, 0.10, 0.15, 0.20
    and, as minority, 0.50; for L-CIFAR10 0.95, 0.90, 0.85, 0.80 and 0.50. Those of 3:2 and 5:0
    (Table 2) it does not print. Here they keep the printed set's starts and its step of 0.05: the
    majority is the first three (five) of 0.05, 0.10, 0.15, 0.20, 0.25, the minority the first two
    (none) of 0.50, 0.55; for L-CIFAR10 of 0.95, 0.90, ... and 0.50, 0.45. So all given environments
    are among the 101.
    """

    root: Annotated[PathText, Refusal("is no path", "name a folder that holds CLASS/IMAGE.png")]
    image_size: Annotated[ImageSize, Refusal(NO_SIDE, USUAL_SIDES)]
    on_bad_image: Literal["fail", "skip"]
    cache_dir: CacheFolder
    workers: Workers
    # a painter, or what Hydra makes it from: a plan needs no torch
    paint: Annotated[Any, AfterValidator(_function)]
    ratio: Any
    given_sets: Annotated[
        Mapping[str, Given], mapping_or("names no sets; use dataset.given=[0.9,0.1]")
    ]

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """Describe the dataset; download nothing.

        Which images cannot be decoded is known only after a first decoding; until then all are
        counted. The painter is assumed to leave the number of channels as it is.
        """
        if absent_ok and not expanded(self.root).is_dir():
            return self._planned(BaseFacts("absent", 0, 0, self.image_size or 0, ""))[0]
        return self._planned(self._files())[0]

    def build(self) -> Environments:
        """Build the environments; images are decoded once into the cache."""
        side = known_size(self.image_size, USUAL_SIDES)
        files = self._files()
        self._planned(files)  # refuses what needs no pixels

        import torch

        from dgbench.data.datasets.painted import painted

        paint: Painter = self.paint  # or what Hydra makes a painter from
        try:
            if isinstance(self.paint, Mapping):
                paint = instantiate(self.paint)
        except InstantiationException as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"dataset.paint={shown(self.paint)} cannot be used: {reason}; correct it"
            ) from error
        base = load_pictures(
            self.root, side, self.on_bad_image, expanded(self.cache_dir), self.workers
        )
        n_classes = 1 + int(base.classes.max())
        # without bad images
        files = replace(files, name=base.name, n_images=len(base.classes), n_classes=n_classes)
        info, subsets = self._planned(files)
        try:
            paint(base.images[:1] / base.peak, torch.tensor([n_classes - 1]))
        except IndexError as error:
            raise ConfigError(
                f"dataset.root={self.root} has {n_classes} classes, more than this dataset's "
                "painter has features; name a folder with fewer classes"
            ) from error
        disagreement = self.disagreement(self._given()[0])
        return painted(info, subsets, disagreement, base, base.classes, self.label_noise, paint)

    def _files(self) -> BaseFacts:
        return describe_pictures(
            self.root, self.image_size, self.on_bad_image, expanded(self.cache_dir)
        )

    def _given(self) -> tuple[Sequence[float], dict[str, Any]]:
        if self.given is not None:
            return self.given, {}
        if not isinstance(self.ratio, str) or self.ratio not in self.given_sets:
            raise ConfigError(
                f"dataset.ratio={shown(self.ratio)} has no given set; choose from "
                f"{', '.join(self.given_sets)}"
            )
        return list(self.given_sets[self.ratio]), {"ratio": self.ratio}

    def _planned(self, files: BaseFacts) -> tuple[DatasetInfo, Subsets]:
        given, variant = self._given()
        variant = {"e_means": self.e_means, **variant, "image_size": self.image_size}
        names = files.class_names[: files.n_classes]
        return self.plan(given, variant, files, files.n_classes, channels=3, class_names=names)
