"""From pictures to what a network sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Preprocessing:
    """What was done to the images that a network was trained on.

    Args:
        image: C, H, W of what the network sees, or d where it sees vectors.
        mean, std: of each channel, subtracted from and divided by, of values in [0, 1]; empty of vectors, which are
            taken as they are.
        pictures: the channels are red, green and blue, so that an image file can be brought to this form; False where
            a dataset paints channels of its own.
    """

    image: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pictures: bool = True

    @property
    def vectors(self) -> bool:
        """Whether the network sees vectors, not images."""
        return len(self.image) == 1

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @staticmethod
    def of_json(plain: Mapping[str, Any]) -> Preprocessing:
        """The inverse of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        mean, std = (tuple(map(float, plain[key])) for key in ("mean", "std"))
        return Preprocessing(tuple(map(int, plain["image"])), mean, std, bool(plain["pictures"]))
