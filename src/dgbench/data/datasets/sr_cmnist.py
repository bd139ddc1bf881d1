"""SR-CMNIST: colored digits whose given environments follow a ratio and a scale (Hwang et al., 2024, sec. 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.data.datasets.base_files import (
    DIGITS_SIDE,
    IMAGES,
    base_name,
    check_base,
    content,
    is_there,
    need_mnist,
)
from dgbench.data.datasets.spurious_options import SpuriousOptions, SpuriousPlan
from dgbench.data.description import DatasetInfo
from dgbench.data.option_checks import check_path, shown
from dgbench.errors import ConfigError

if TYPE_CHECKING:
    from dgbench.data.datasets.spurious import SpuriousEnvironments


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
        """As :meth:`~dgbench.data.options.DatasetOptions.describe`.

        With ``base=auto`` this is MNIST where it is on disk. Only ``download`` (or :meth:`build`) tries to fetch it,
        once per process and folder; from then on every answer is the outcome of that.
        """
        return self._plan(absent_ok, download).info

    def build(self) -> SpuriousEnvironments:
        """The environments; MNIST is downloaded where that is asked for and possible."""
        plan = self._plan(absent_ok=False, download=True)

        from dgbench.data.datasets.base_images import load_base_images
        from dgbench.data.datasets.spurious import SpuriousEnvironments
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
