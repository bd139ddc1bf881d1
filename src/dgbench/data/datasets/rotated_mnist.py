"""RotatedMNIST as DomainBed has it: environments are angles (Ghifary et al., 2015; Gulrajani and Lopez-Paz, 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgbench.data.datasets.dealt_digits import DealtDigits, check_environments
from dgbench.data.option_checks import check_numbers

if TYPE_CHECKING:
    from dgbench.data.datasets.dealt_environments import Maker


@dataclass(frozen=True, kw_only=True)
class RotatedMNIST(DealtDigits):
    """Gray digits of ten classes, turned counter-clockwise by the angle of their environment.

    Args:
        angles: in degrees, one environment each, e.g. ``[0, 15, 30, 45, 60, 75]``; named ``0``, ``15``, ...
    """

    angles: Sequence[float]

    _channels_and_classes = (1, 10)

    def _environments(self) -> list[str]:
        check_numbers("angles", self.angles)
        return check_environments("angles", [f"{angle:g}" for angle in self.angles], self.angles)

    def _variant(self) -> dict[str, Any]:
        return {"angles": list(self.angles)}

    def _maker(self) -> Maker:
        from dgbench.data.transforms.rotate import rotated

        return lambda i, images, classes, generator: (rotated(images, self.angles[i]), classes)
