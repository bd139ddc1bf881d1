"""The numbers of augmentations and the names of corruptions; no torch is needed to know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from annotated_types import Predicate
from pydantic import Field

from dgbench.validation import Keys, Number, Refusal

#: the 15 corruptions, in the order of the paper
CORRUPTION_NAMES = (
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
#: raise it whenever a corruption's output changes: files made by older code are then made again
CORRUPTION_VERSION = 1
SMALLEST_SIDE = 32  #: pixels; trails and kernels are up to 41 pixels long


_Two = Annotated[
    Sequence[Number], Field(min_length=2, max_length=2), Predicate(lambda two: 0 < two[0] <= two[1])
]
_Probability = Annotated[
    Number, Field(ge=0, le=1), Refusal("is not a number in [0, 1]", "correct it")
]
_Strength = Annotated[Number, Field(ge=0), Refusal("is not a number >= 0", "correct it")]


class AugmentationScheme(Keys):
    """A scheme of random transforms, in this order; ``image_folder.yaml`` explains each key.

    ``crop_area=[1,1]`` with ``crop_aspect=[1,1]`` is no crop of a square image; no factor of a
    color is below 0. ``crop_in=file``: crops are drawn in the pixels of the file and then resized
    (DomainBed's image folders); ``square``: the file is resized to a square first (DomainBed's
    WILDS datasets). What a crop shows differs for files that are no squares, and by rounding.
    """

    crop_area: Annotated[
        _Two,
        Predicate(lambda two: two[1] <= 1),
        Refusal("is not two numbers above 0, the smaller first, at most 1", "correct it"),
    ]
    crop_aspect: Annotated[
        _Two, Refusal("is not two numbers above 0, the smaller first", "correct it")
    ]
    flip: _Probability
    brightness: _Strength
    contrast: _Strength
    saturation: _Strength
    hue: Annotated[
        Number, Field(ge=0, le=0.5), Refusal("is not a number in [0, 0.5]", "correct it")
    ]
    grayscale: _Probability
    crop_in: Literal["file", "square"] = "file"
