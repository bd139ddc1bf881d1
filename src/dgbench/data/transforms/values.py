"""The numbers of augmentations, checked, and the names of corruptions; no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dgbench.data.option_checks import check_choice, is_finite, shown
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
        crop_in: ``file``, crops are drawn in the pixels of the file and then resized (DomainBed's image folders), or
            ``square``, the file is resized to a square first (DomainBed's WILDS datasets). What a crop shows differs
            for files that are no squares, and by rounding.
        name: of the scheme, for messages.

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
    crop_in: str = "file"
    name: str = "OWN"

    def __post_init__(self) -> None:
        check_choice(f"augmentations.{self.name}.crop_in", self.crop_in, ("file", "square"))
        most = {"flip": 1.0, "grayscale": 1.0, "hue": 0.5}
        for field in fields(self)[:-2]:
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
                raise ConfigError(
                    f"dataset.augmentations.{self.name}.{field.name}={shown(value)} is not {wanted}; correct it"
                )


def chosen_values(name: str, known: Mapping[str, Mapping[str, Any]]) -> AugmentationValues | None:
    """The scheme of that name; None for ``none``.

    Raises:
        ConfigError: an unknown name, or wrong or missing values.
    """
    if not isinstance(known, Mapping):
        raise ConfigError(f"dataset.augmentations={shown(known)} names no schemes; leave the key as it is")
    check_choice("augment", name, ["none", *map(str, known)])
    schemes = {str(scheme): _scheme(str(scheme), values) for scheme, values in known.items()}
    return schemes.get(name)


def _scheme(name: str, values: Any) -> AugmentationValues:
    try:
        return AugmentationValues(**{str(key): value for key, value in values.items()}, name=name)
    except (AttributeError, TypeError) as error:
        raise ConfigError(
            f"dataset.augmentations.{name}={shown(values)} is no scheme ({error}); give it the keys of domainbed in "
            "conf/dataset/image_folder.yaml"
        ) from error


def _numbers(values: object, n: int) -> bool:
    return (
        isinstance(values, Sequence)
        and not isinstance(values, str)
        and len(values) == n
        and all(is_finite(value) for value in values)
    )


#: the 15 corruptions, in the order of the paper
NAMES = (
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
VERSION = 1  # raise whenever a corruption's output changes: files made by older code are then made again
SMALLEST = 32  # pixels; trails and kernels are up to 41 pixels long
