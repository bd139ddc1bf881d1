"""Segments of a training and averages over them, SWAD's material."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from dgbench.batches import Tensors
from dgbench.training.weight_averages import RunningMean, snapshot


@dataclass(frozen=True)
class Segment:
    """The mean over the updates between two evaluations, or over several such segments.

    Args:
        weights: mean parameters.
        buffers: buffers at the segment's beginning.
        start, end: its first and last step.
        count: number of updates, or of segments, in the mean.
        loss: validation loss at its end.
    """

    weights: Tensors
    buffers: Tensors
    start: int
    end: int
    count: int
    loss: float


class Valley:
    """Mean over the segments that SWAD keeps; until one is added, those of the segment where the loss converged."""

    def __init__(self, base: Segment) -> None:
        self.base, self.mean, self.start, self.end = base, RunningMean(), base.start, base.end

    def add(self, segment: Segment, start: int | None = None) -> None:
        """Count one more segment; the first one says where the average starts, unless ``start`` does."""
        if self.mean.count == 0:
            self.start = segment.start if start is None else start
        self.mean.add(segment.weights)
        self.end = segment.end

    def segment(self) -> Segment:
        """The average so far."""
        weights = self.mean.mean if self.mean.count else self.base.weights
        return Segment(weights, self.base.buffers, self.start, self.end, self.mean.count, math.nan)

    def copy(self) -> Valley:
        """One that can go on while this one stays."""
        twin = copy(self)
        twin.mean = RunningMean(self.mean.count, snapshot(self.mean.mean))
        return twin

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`restored` takes."""
        return {"base": vars(self.base), "mean": vars(self.mean), "start": self.start, "end": self.end}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Valley:
        """The same again."""
        valley = cls(Segment(**state["base"]))
        valley.mean, valley.start, valley.end = RunningMean(**state["mean"]), state["start"], state["end"]
        return valley
