"""Pictures with a painted spurious feature: C-Cats&Dogs, L-CIFAR10 (Hwang et al., 2024, sec. 4.2) and the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from dgbench.data.datasets.picture_files import PictureFiles, check_pictures, describe_pictures
from dgbench.data.datasets.spurious_options import SpuriousOptions, SpuriousPlan
from dgbench.data.description import DatasetInfo
from dgbench.data.option_checks import check_path, check_workers, shown
from dgbench.errors import ConfigError

if TYPE_CHECKING:
    from dgbench.data.datasets.base_images import BaseImages
    from dgbench.data.datasets.spurious import Painter, SpuriousEnvironments


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
        """As :meth:`~dgbench.data.options.DatasetOptions.describe`; nothing is downloaded.

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

        from dgbench.data.datasets.pictures import load_pictures
        from dgbench.data.datasets.spurious import SpuriousEnvironments

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
