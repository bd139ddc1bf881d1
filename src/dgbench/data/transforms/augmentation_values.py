"""The numbers of a random augmentation, checked; no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dgbench.data.option_checks import is_number
from dgbench.errors import ConfigError


@dataclass(frozen=True)
class AugmentationValues:
    """A scheme of random transforms, in this order.

    Args:
        crop_area: least and largest share of the image that a crop covers; [1, 1] with aspect [1, 1] is no crop of a
            square image.
        crop_aspect: least and largest width over height of a crop.
        flip: probability of a horizontal flip.
        brightness, contrast, saturation: factors are uniform in [max(0, 1 - value), 1 + value].
        hue: shift is uniform in [-value, value], in turns of the color wheel, at most 0.5.
        grayscale: probability of a gray image.

    Raises:
        ConfigError: a value out of its bounds.
    """

    crop_area: Sequence[float]
    crop_aspect: Sequence[float]
    flip: float
    brightness: float
    contrast: float
    saturation: float
    hue: float
    grayscale: float

    def __post_init__(self) -> None:
        most = {"flip": 1.0, "grayscale": 1.0, "hue": 0.5}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("crop"):
                top = 1.0 if field.name == "crop_area" else math.inf
                sound = _numbers(value, 2) and 0 < value[0] <= value[1] <= top
                wanted = "two numbers above 0, the smaller first" + (", at most 1" if top == 1 else "")
            else:
                top = most.get(field.name, math.inf)
                sound = _numbers([value], 1) and 0 <= value <= top
                wanted = "a number >= 0" if top == math.inf else f"a number in [0, {top:g}]"
            if not sound:
                raise ConfigError(f"dataset.augmentations: {field.name}={value} is not {wanted}; correct it")


def chosen_values(name: str, known: Mapping[str, Mapping[str, Any]]) -> AugmentationValues | None:
    """The scheme of that name; None for ``none``.

    Raises:
        ConfigError: an unknown name, or wrong or missing values.
    """
    if name == "none":
        return None
    if name not in known:
        raise ConfigError(f"dataset.augment={name} is unknown; choose none, {', '.join(map(str, known))}")
    values: dict[str, Any] = {str(key): list(v) if isinstance(v, Sequence) else v for key, v in known[name].items()}
    try:
        return AugmentationValues(**values)
    except TypeError as error:
        raise ConfigError(f"dataset.augmentations.{name}: {error}; see conf/dataset/image_folder.yaml") from error


def _numbers(values: object, n: int) -> bool:
    return (
        isinstance(values, Sequence)
        and not isinstance(values, str)
        and len(values) == n
        and all(is_number(value) for value in values)
    )
