"""Tries an objective at the first step of a training.

It must reach a parameter, and be a pure function: its first updates are computed twice from the
same inputs, come to the same, and leave global generators alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from dgbench.errors import ConfigError

Seen = Mapping[str, Sequence[Tensor]]  #: what an update came to, by what it is
#: share of the largest number by which atomic additions of a GPU may change others, with room
ROUNDING = 1e-3
#: numbers of a gradient that are compared, evenly spread: copies of all would take memory that
#: training needs
SAMPLE = 4096


def draws_globally(networks: nn.Module) -> bool:
    """Return whether layers draw from the global generator of torch, as dropout does."""
    return any(isinstance(layer, _DropoutNd) and layer.p > 0 for layer in networks.modules())


def no_gradient(name: str) -> ConfigError:
    """Build the error that says that an objective trains nothing."""
    return ConfigError(
        f"algorithm {name}: its loss reaches no parameter that trains, so training would change "
        "nothing; compute the loss from what the networks put out, without detach() or no_grad()"
    )


class Trial:
    """What is seen of an objective at one step.

    Args:
        draws: layers of its networks draw from torch's generator, so that this says nothing of the
            objective.
        device: of the training.
    """

    def __init__(self, draws: bool, device: torch.device) -> None:
        self._draws = draws
        self._device = device
        self._generators = self._states()
        self._is_noted = False
        self._reaches = False
        self._outcome: Seen = {}
        self._differs = ""

    def note_gradients(self, gradients: Iterable[Tensor]) -> None:
        """Note whether one of the gradients of an update is not zero."""
        self._is_noted = True
        for gradient in gradients:
            # where operations are only counted, tensors have no values
            self._reaches = self._reaches or gradient.is_meta or bool((gradient != 0).any())

    def note_outcome(self, outcome: Seen) -> None:
        """Note what an update came to."""
        self._outcome = outcome

    def note_again(self, outcome: Seen) -> None:
        """Note what the same update came to from the same inputs."""
        before = self._outcome
        self._outcome = {}
        for kind, tensors in outcome.items():
            if not self._differs and not _are_close(before[kind], tensors):
                self._differs = kind

    def judge(self, name: str, scaled: bool) -> None:
        """Refuse an objective that cannot train, or that breaks the contract.

        Args:
            name: of the algorithm.
            scaled: gradients are scaled, and those of a first step may be lost in half precision.

        Raises:
            ConfigError: it is one.
        """
        if self._is_noted and not self._reaches and not scaled:
            raise no_gradient(name)
        states = self._states()
        changed = [package for package in states if states[package] != self._generators[package]]
        if changed:
            raise ConfigError(
                f"algorithm {name} draws from the global generator of {changed[0]}, so a resumed "
                "run would draw other numbers; declare random inputs, and take them from "
                "step.random"
            )
        if self._differs:
            raise ConfigError(
                f"algorithm {name} came to another {self._differs} from the same inputs, so a "
                "resumed run would train otherwise; compute all from the step, and keep what "
                "lasts in Outcome.state"
            )

    def _states(self) -> dict[str, Any]:
        """Return the state of every global generator, by the name of its package."""
        numpy_state = np.random.get_state(legacy=True)
        states: dict[str, Any] = {
            "Python": random.getstate(),
            "NumPy": [*map(str, numpy_state), numpy_state[1].tobytes()],  # type: ignore[index]
        }
        if not self._draws:
            states["torch"] = torch.random.get_rng_state().numpy().tobytes()
            if self._device.type == "cuda":
                states["torch"] += torch.cuda.get_rng_state(self._device).numpy().tobytes()
        return states


def _are_close(before: Sequence[Tensor], again: Sequence[Tensor]) -> bool:
    """Return whether tensors are equal but for rounding."""
    if len(before) != len(again):
        return False
    for one, other in zip(before, again, strict=True):
        if torch.equal(one, other):
            continue
        both = torch.stack([one.double(), other.double()]).nan_to_num()
        if float((both[0] - both[1]).abs().max()) > ROUNDING * float(both.abs().max()):
            return False
    return True


def sampled(tensor: Tensor) -> Tensor:
    """Copy up to about :data:`SAMPLE` evenly spread numbers of a tensor."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLE)].clone()


@contextmanager
def drawing_again(device: torch.device) -> Iterator[None]:
    """Let what follows the block draw the same numbers from torch's generator as the block.

    Dropout uses that generator.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
