"""SR-CMNIST: colored digits whose given environments follow a ratio and a scale (Hwang et al., 2024, sec. 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgbench.data.base_images import load_base_images
from dgbench.data.paint import two_channel_color
from dgbench.data.spurious import SpuriousEnvironments
from dgbench.errors import ConfigError

ALL = [round(0.01 * i, 2) for i in range(101)]


def given_environments(ratio: int, scale: int) -> list[float]:
    """e of the given environments: ``ratio * scale`` evenly spaced in [0.8, 0.9], ``scale`` in [0.1, 0.2].

    A group of one is the lower end of its range (the paper says so for the minority; the majority follows suit).

    Raises:
        ConfigError: ratio or scale is not an integer >= 1.
    """
    for key, value in (("ratio", ratio), ("scale", scale)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"dataset.{key}={value} is not an integer >= 1; the paper uses ratio 3, 4, 5 and scale 1 to 4"
            )
    return [*_spread(0.8, 0.9, ratio * scale), *_spread(0.1, 0.2, scale)]


def _spread(low: float, high: float, n: int) -> list[float]:
    return [low] if n == 1 else [float(e) for e in np.linspace(low, high, n)]


def sr_cmnist(
    *,
    name: str,
    base: str,
    data_dir: str,
    resolution: int,
    given: Sequence[float] | None,
    ratio: int | None = None,
    scale: int | None = None,
    **chance: Any,
) -> SpuriousEnvironments:
    """Colored digits: label digit < 5, flipped with probability 0.25; color from the final label, flipped with e.

    The image has two channels; the digit stands in the channel of its color, the other is zero. All environments
    are e = 0.00, 0.01, ..., 1.00.

    Args:
        name: name of the dataset in the rows.
        base, data_dir, resolution: see :func:`~dgbench.data.base_images.load_base_images`.
        given: e of the given environments; None takes those of ``ratio`` and ``scale``.
        ratio: majority environments per minority environment, >= 1.
        scale: number of minority environments, >= 1.
        chance: what :class:`~dgbench.data.spurious.SpuriousEnvironments` takes besides.

    Raises:
        ConfigError, DataError: see the functions named above.
    """
    if given is None:
        if ratio is None or scale is None:
            raise ConfigError("dataset.given is null and dataset.ratio or dataset.scale too; set given, or both others")
        given, variant = given_environments(ratio, scale), {"ratio": ratio, "scale": scale}
    else:
        variant = {}
    images = load_base_images(base, data_dir, resolution)
    return SpuriousEnvironments(
        dataset=name,
        base=images,
        label_of=lambda classes: (classes < 5).long(),
        paint=two_channel_color,
        n_classes=2,
        given=given,
        grid=ALL,
        variant={**variant, "resolution": images.images.shape[-1]},
        **chance,
    )
