"""What a module of many runs knows of each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dgbench.containers import Networks
from dgbench.objectives.contract import Algorithm
from dgbench.training.modules.run_inputs import Draws


class OneRun(Protocol):
    """A single run: :class:`~dgbench.training.modules.single.SingleRun`."""

    algorithm: Algorithm
    networks: Networks
    draws: Draws
    steps_done: int

    def activations(self, image: tuple[int, ...]) -> list[int]:
        """Numbers that each layer of the featurizer puts out for one image of this shape."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> Any:
        """Put in weights, memory and ``steps_done``."""
