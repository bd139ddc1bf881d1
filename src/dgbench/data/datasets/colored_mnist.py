"""ColoredMNIST as DomainBed draws it (Arjovsky et al., 2019; Gulrajani and Lopez-Paz, 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgbench.data.datasets.dealt_digits import DealtDigits, check_environments
from dgbench.data.datasets.spurious_options import check_given, environment_name
from dgbench.data.option_checks import is_number, shown
from dgbench.errors import ConfigError

if TYPE_CHECKING:
    from dgbench.data.datasets.dealt_environments import Maker


@dataclass(frozen=True, kw_only=True)
class ColoredMNIST(DealtDigits):
    """Colored digits: label digit < 5, flipped with ``label_noise``; color from the final label, flipped with e.

    The image has two channels; the digit stands in the channel of its color, the other is zero. Unlike in
    :class:`~dgbench.data.datasets.sr_cmnist.SRCMNIST`, no image is kept apart to judge other environments: a held-out
    environment is tested on its own images.

    Args:
        given: e of the environments.
        label_noise: probability that a label is flipped.
    """

    given: Sequence[float]
    label_noise: float

    _channels_and_classes = (2, 2)

    def _environments(self) -> list[str]:
        check_given(self.given)
        if not is_number(self.label_noise) or not 0 <= self.label_noise < 1:
            raise ConfigError(f"dataset.label_noise={shown(self.label_noise)} is not in [0, 1); 0.25 is the paper's")
        return check_environments("given", [environment_name(e) for e in self.given], self.given)

    def _variant(self) -> dict[str, Any]:
        return {"label_noise": self.label_noise}

    def _maker(self) -> Maker:
        import torch

        from dgbench.data.transforms.paint import two_channel_color

        def colored(
            i: int, images: torch.Tensor, classes: torch.Tensor, generator: torch.Generator
        ) -> tuple[torch.Tensor, torch.Tensor]:
            def flips(probability: float) -> torch.Tensor:
                return torch.rand(len(classes), generator=generator, dtype=torch.float32) < probability

            labels = ((classes < 5) ^ flips(self.label_noise)).long()
            return two_channel_color(images, labels ^ flips(self.given[i])), labels

        return colored
