"""SWAD's decisions (Cha et al., 2021): which segments of the training are averaged, and when it may end.

A segment lies between two evaluations. The loss *converges* at the first of ``n_converge`` segments of which none is
better; from there to where the loss stays above a tolerance lies the valley, whose segments are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from dgbench.batches import Tensors
from dgbench.training.segments import Segment, Valley
from dgbench.training.weight_averages import RunningMean, snapshot


class Swad:
    """Stochastic weight averaging densely (Cha et al., 2021), as its code decides: segments may count twice.

    Args:
        n_converge: the loss has converged when it did not improve for this many segments, the first one included.
        n_tolerance: the valley ends when the loss was above the tolerance for this many segments.
        tolerance_ratio: the tolerance is (1 + this) times the mean loss of the segments of convergence.
        batchnorm_batches: forward passes that renew running statistics of an unfrozen BatchNorm.
    """

    final_only = True  #: evaluations in training judge the live weights; only the end scores :meth:`result`

    def __init__(
        self, n_converge: int = 3, n_tolerance: int = 6, tolerance_ratio: float = 0.3, batchnorm_batches: int = 500
    ) -> None:
        self.n_converge, self.n_tolerance, self.ratio = n_converge, n_tolerance, tolerance_ratio
        self.batchnorm_batches = batchnorm_batches
        self.finished = False  #: the valley is left, so training may end
        self._open, self._start, self._buffers = RunningMean(), 0, dict[str, Tensor]()
        self.recent: list[Segment] = []
        self._valley: Valley | None = None
        self._tolerance = math.inf

    def begin(self, buffers: Tensors) -> None:
        """Training starts from its beginning."""
        self._buffers = snapshot(buffers)

    def update(self, step: int, params: Tensors, buffers: Tensors) -> None:
        """An optimizer step was made."""
        if not self._open.count:
            self._start = step
        self._open.add(params)

    def evaluated(self, step: int, loss: float, buffers: Tensors) -> None:
        """An evaluation of the live weights was made: it closes the open segment."""
        if self._open.count:
            self.add(Segment(self._open.mean, self._buffers, self._start, step, self._open.count, loss))
            self._open, self._buffers = RunningMean(), snapshot(buffers)

    def add(self, segment: Segment) -> None:
        """Decide with one more segment."""
        if self.finished:
            return
        self.recent = [*self.recent, segment][-max(self.n_converge, self.n_tolerance) :]
        if self._valley is None:
            self._look_for_valley()
            return
        window = self.recent[-self.n_tolerance :]
        if window[0].end < self._valley.base.end:
            return
        if _lowest(window) > self._tolerance:
            self.finished = True
        else:
            self._valley.add(window[0])

    def _look_for_valley(self) -> None:
        window, surplus = self.recent[-self.n_converge :], self.n_tolerance - self.n_converge
        if len(window) < self.n_converge or window[0].loss > _lowest(window):
            return
        self._valley = Valley(window[0])
        self._tolerance = (1 + self.ratio) * math.fsum(s.loss for s in window) / len(window)
        if surplus < 0:
            inside = window[1 : 1 - surplus]
        elif surplus > 0:
            before = self.recent[-self.n_tolerance :][: surplus + 1]
            above = [i for i, s in enumerate(before) if s.loss > self._tolerance]
            inside = before[above[-1] + 2 if above else 1 :]  # the first one inside is skipped, as in the reference
        else:
            inside = []
        for kept in inside:
            self._valley.add(kept)

    def average(self) -> Segment | None:
        """What SWAD would return if training ended now; None before the first evaluation."""
        if self._valley is None:
            return self.recent[-1] if self.recent else None
        valley = self._valley.copy()
        window = [] if self.finished else self.recent[-self.n_tolerance :][1:]
        while window and _lowest(window) <= self._tolerance:
            valley.add(window[0], start=window[0].end)
            window = window[1:]
        return valley.segment()

    def result(self) -> Tensors:
        """The tensors to predict with; those left out are the live ones."""
        average = self.average()
        return {**average.buffers, **average.weights} if average else {}

    def state_dict(self) -> dict[str, Any]:
        return {
            "finished": self.finished,
            "open": vars(self._open),
            "start": self._start,
            "buffers": self._buffers,
            "recent": [vars(segment) for segment in self.recent],
            "valley": self._valley and self._valley.state_dict(),
            "tolerance": self._tolerance,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.finished, self._start, self._buffers = state["finished"], state["start"], state["buffers"]
        self._open, self.recent = RunningMean(**state["open"]), [Segment(**segment) for segment in state["recent"]]
        self._valley = state["valley"] and Valley.restored(state["valley"])
        self._tolerance = state["tolerance"]


def _lowest(segments: Sequence[Segment]) -> float:
    return min(segment.loss for segment in segments)
