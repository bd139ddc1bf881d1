"""Experimental: recording a step once and replaying it, one launch on the device instead of one for each operation.

Small networks leave a CUDA device waiting for Python: a step of a stack is a few hundred short kernels. A CUDA graph
holds them all. It reads and writes fixed addresses, so inputs are copied to where it was recorded with, and whatever
it changes must be changed in place.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

log = logging.getLogger(__name__)

WARM_UP = 3  # calls before a recording, in which libraries allocate what they keep
TOLERANCE = 1e-5  # relative; the same kernels in the same order give the same bits, others are not "equal"

Recorder = Callable[[Callable[[], Any]], tuple[Any, Callable[[], None]]]


class Replay:
    """A function of tensors that is recorded after a few calls, if that is equal and faster, else called as it is.

    Args:
        function: tensors (in any nesting of mappings and sequences) -> tensors; everything else that it reads or
            changes stays at its address. It draws no random numbers and does not wait for the device.
        changed: the tensors that it changes in place, asked for at each call.
        record: makes a recording, see :func:`cuda_graph`.
    """

    def __init__(self, function: Callable[..., Any], changed: Callable[[], Sequence[Tensor]], record: Recorder) -> None:
        self.function, self.changed, self.record = function, changed, record
        self.calls = 0
        self.recorded: bool | None = None  #: None until it is decided
        self._inputs: list[Tensor] = []
        self._outputs: Any = None
        self._replay: Callable[[], None] = lambda: None

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.recorded is None and self.calls > WARM_UP:
            return self._decide(arguments)
        if not self.recorded:
            return self.function(*arguments)
        for place, value in zip(self._inputs, pytree.tree_leaves(arguments), strict=True):
            place.copy_(value)
        self._replay()
        return self._outputs

    def _decide(self, arguments: tuple[Any, ...]) -> Any:
        """Call the function, record it, and keep the recording if it gives the same in less time."""
        before = [tensor.clone() for tensor in self.changed()]
        expected, alone = _clocked(lambda: self.function(*arguments))
        expected = pytree.tree_map_only(Tensor, torch.clone, expected)
        after = [tensor.clone() for tensor in self.changed()]
        self._put(before)
        try:
            self._inputs = [value.clone() for value in pytree.tree_leaves(arguments)]
            places = pytree.tree_unflatten(self._inputs, pytree.tree_structure(arguments))
            self._outputs, self._replay = self.record(lambda: self.function(*places))
            self._put(before)
            _, replayed = _clocked(self._replay)
            same = _close(self._outputs, expected) and _close(list(self.changed()), after)
            self.recorded = same and replayed < alone
            log.debug("a recorded step takes %.2f of its time, %s", replayed / alone, "equal" if same else "NOT equal")
        except RuntimeError as error:  # what a graph cannot hold; the step is computed as before
            log.debug("a step cannot be recorded: %s", error)
            self.recorded = False
        self._put(after)
        return expected

    def _put(self, values: Sequence[Tensor]) -> None:
        for tensor, value in zip(self.changed(), values, strict=True):
            tensor.copy_(value)


def cuda_graph(function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
    """A CUDA graph of one call: its outputs, which every replay overwrites, and what replays it."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # once more off the main stream, as capturing asks for
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = function()
    return outputs, graph.replay


def _clocked(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its seconds on the device."""
    _wait()
    begun = time.perf_counter()
    result = call()
    _wait()
    return result, time.perf_counter() - begun


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _close(found: Any, expected: Any) -> bool:
    pairs = [[leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)] for values in (found, expected)]
    return all(
        torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True) for a, b in zip(*pairs, strict=True)
    )
