"""Replaying a recorded step, with a recorder that needs no CUDA device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dgbench.training.replay import WARM_UP, Replay


def recorder(function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
    """What a CUDA graph does: the outputs stay where they are, a replay overwrites them."""
    outputs = function()

    def replay() -> None:
        for place, value in zip(pytree.tree_leaves(outputs), pytree.tree_leaves(function()), strict=True):
            place.copy_(value)

    return outputs, replay


class Counter:
    """f({"x": x}) = x + total, and total grows by 1 in place; slow until it is recorded."""

    def __init__(self) -> None:
        self.total, self.slow = torch.zeros(()), 0.02

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        time.sleep(self.slow)
        self.total += 1
        return {"y": inputs["x"] + self.total}

    def recorded(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        self.slow = 0.0
        return recorder(function)


def test_a_recorded_function_gives_what_it_gave_alone() -> None:
    """Calls 1 to 10 with x = k give k + k, whichever of them were replayed; the total counts each call once."""
    counter = Counter()
    replay = Replay(counter, lambda: [counter.total], counter.recorded)
    given = [float(replay({"x": torch.tensor(float(k))})["y"]) for k in range(1, 11)]
    assert given == [2.0 * k for k in range(1, 11)]
    assert replay.recorded is True and replay.calls == 10 and float(counter.total) == 10


def test_a_function_that_cannot_be_recorded_goes_on() -> None:
    counter = Counter()

    def refuse(function: Callable[[], Any]) -> Any:
        function()  # a capture may fail in the middle
        raise RuntimeError("operation not permitted when stream is capturing")

    replay = Replay(counter, lambda: [counter.total], refuse)
    given = [float(replay({"x": torch.tensor(0.0)})["y"]) for _ in range(WARM_UP + 3)]
    assert given == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] and replay.recorded is False


def test_a_recording_that_is_not_equal_is_not_used() -> None:
    """A recording that forgot the input gives the same number at every replay."""
    counter = Counter()

    def forgetful(function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        counter.slow = 0.0
        outputs = function()
        return outputs, lambda: outputs["y"].zero_()

    replay = Replay(counter, lambda: [counter.total], forgetful)
    given = [float(replay({"x": torch.tensor(1.0)})["y"]) for _ in range(WARM_UP + 3)]
    assert given == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0] and replay.recorded is False


def test_a_recording_that_is_slower_is_not_used() -> None:
    counter = Counter()
    counter.slow = 0.0

    def slow(function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        counter.slow = 0.2
        return recorder(function)

    replay = Replay(counter, lambda: [counter.total], slow)
    given = [float(replay({"x": torch.tensor(1.0)})["y"]) for _ in range(WARM_UP + 2)]
    assert given == [2.0, 3.0, 4.0, 5.0, 6.0] and replay.recorded is False
