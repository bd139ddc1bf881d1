"""What of a network is trained: fine-tuning, linear probing, frozen stages (Yu et al., 2024)."""

from __future__ import annotations

from dgbench.errors import ConfigError
from dgbench.types import Networks

ALL = "all"


class Tuning:
    """Freezes the beginning of the featurizer.

    What is frozen takes no gradient, is in no optimizer and under no weight decay, and computes as in evaluation:
    BatchNorm uses the statistics of its initial weights, dropout is off.

    Args:
        name: what rows and folders call it.
        freeze_stages: 0 trains everything, k freezes the stem and the first k stages, ``all`` the whole featurizer
            (linear probing, if what follows is linear).

    Raises:
        ConfigError: ``freeze_stages`` is neither ``all`` nor a number of stages.
    """

    def __init__(self, name: str = "ft", freeze_stages: int | str = 0) -> None:
        if freeze_stages != ALL and (not isinstance(freeze_stages, int) or freeze_stages < 0):
            raise ConfigError(f"tuning.freeze_stages={freeze_stages} is no number of stages; give 1, 2, ... or all")
        self.name, self.freeze_stages = name, freeze_stages

    def freeze(self, networks: Networks) -> None:
        """Freeze what is to stand still.

        Raises:
            ConfigError: the featurizer has not that many stages.
        """
        if self.freeze_stages == ALL:
            networks.freeze("featurizer", "")
