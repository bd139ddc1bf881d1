"""Average a model's weights over its training, around any algorithm: EoA, SWAD and CLIPood's.

A *rule* is pure logic over named tensors; a callback (``averaged.py``) feeds it and scores with
what it gives. Steps are optimizer updates done, so the first update is step 1.

SWAD (Cha et al., 2021) averages segments of the training, each between two evaluations. The loss
*converges* at the first of ``n_converge`` segments of which none is better; from there to where the
loss stays above a tolerance lies the valley, whose segments are averaged.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from dgbench.batches import Tensors
from dgbench.errors import ConfigError

log = logging.getLogger("dgbench")


class AveragingRule(Protocol):
    """What is averaged, and when."""

    #: evaluations in training judge the live weights, and only the end scores :meth:`result`
    final_only: bool
    finished: bool  #: training may end
    ends_training: bool  #: whether :attr:`finished` may become true; left out, it may
    #: forward passes that renew an unfrozen BatchNorm before the final evaluation
    batchnorm_batches: int
    #: each minibatch moves the running statistics of :meth:`result`, in place; may be left out
    renews: bool

    def begin(self, buffers: Tensors) -> None:
        """Prepare for training from its beginning, with the initial ``buffers``."""

    def prepare(self, steps: int, params: Tensors, buffers: Tensors) -> None:
        """Take in the length of training and the initial weights; may be left out."""

    def update(self, step: int, params: Tensors, buffers: Tensors) -> None:
        """Take in step number ``step``, counted from 1, which was just made."""

    def evaluated(self, step: int, loss: float, buffers: Tensors) -> None:
        """Take in the validation loss after ``step`` steps, mean over the training environments."""

    def result(self) -> Tensors:
        """Return the tensors to predict with; those left out are the live ones."""

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs, as torch.save takes it."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state_dict` gave."""


class Averaging:
    """What ``conf/averaging`` names: the rule that an averaging follows.

    :class:`~dgbench.callbacks.averaged.AveragedScores` applies it.

    Args:
        rule: what is averaged.

    Raises:
        ConfigError: it is no rule.
    """

    def __init__(self, rule: AveragingRule) -> None:
        needed = ("final_only", "begin", "update", "result")
        lacking = [name for name in needed if not hasattr(rule, name)]
        if lacking:
            raise ConfigError(
                f"averaging.rule._target_ names a {type(rule).__name__} without {lacking[0]}; "
                "name a rule of averaging"
            )
        self.rule = rule


def snapshot(tensors: Tensors) -> dict[str, Tensor]:
    """Copy tensors, so that later updates do not touch the copies."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@dataclass
class RunningMean:
    """Weighted mean of named tensors."""

    count: float = 0  #: sum of the weights
    mean: dict[str, Tensor] = field(default_factory=dict)

    def add(self, values: Tensors, weight: float = 1) -> None:
        """Set mean <- (count mean + weight values) / (count + weight).

        The first values are copied.
        """
        self.count += weight
        if self.count == weight:
            self.mean = snapshot(values)
        else:
            new = [values[name].detach() for name in self.mean]
            torch._foreach_lerp_(list(self.mean.values()), new, weight / self.count)


class MovingAverage:
    """The simple moving average of Ensemble of Averages (Arpit et al., 2022).

    - ``flavor=state``: parameters and floating-point buffers; after step k >= start - 1 the mean of
      steps start - 1, ..., k (the authors' code).
    - ``flavor=parameters``: parameters; buffers stay as they were before training; after step k >=
      start the mean of steps start, start, start + 1, ..., k, the first counted twice (code of
      NICO++ and of Yu et al., 2024).
    - ``flavor=renewed``: as ``state``, and after every step, from the first one on, the averaged
      network sees the step's minibatch in training mode: it moves its running statistics before the
      next step's are averaged with them (DomainBed's ERM++).

    Before that the live weights count.
    """

    final_only = False  #: every evaluation scores :meth:`result`
    finished = ends_training = False
    batchnorm_batches = 0  #: running statistics are what they are

    # first less start, its weight
    _FLAVORS: Mapping[str, tuple[int, int]] = {
        "state": (-1, 1),
        "parameters": (0, 2),
        "renewed": (-1, 1),
    }

    def __init__(self, start: int = 100, flavor: str = "state") -> None:
        offset, first_weight = self._FLAVORS[flavor]
        self._first = start + offset
        self._first_weight = first_weight
        self._whole_state = flavor != "parameters"
        self.renews = flavor == "renewed"
        self._mean = RunningMean()
        self._initial: dict[str, Tensor] = {}

    def begin(self, buffers: Tensors) -> None:
        self._initial = {} if self._whole_state else snapshot(buffers)

    def update(self, step: int, params: Tensors, buffers: Tensors) -> None:
        if self.renews and step <= self._first:
            self._mean = RunningMean()  # of one step alone, whose statistics are to be moved
        if self.renews or step >= self._first:
            weight = 1 if self._mean.count else self._first_weight
            self._mean.add({**params, **buffers} if self._whole_state else params, weight)

    def evaluated(self, step: int, loss: float, buffers: Tensors) -> None:
        """Ignore an evaluation: it changes nothing."""

    def result(self) -> Tensors:
        return {**self._initial, **self._mean.mean}

    def state_dict(self) -> dict[str, Any]:
        return {"mean": vars(self._mean), "initial": self._initial}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._mean = RunningMean(**state["mean"])
        self._initial = state["initial"]


class BetaMovingAverage:
    """The Beta moving average of CLIPood (Shu et al., 2023; its code).

    With theta_0 the initial weights, theta_t those after step t, and T steps in all, it is

        sum_t w_t theta_t / sum_t w_t,  w_t = p((t + 1/2) / (T + 1)),  t = 0, ..., T,

    p being the density of Beta(beta, beta): with beta < 1 the beginning and the end weigh most,
    with 1 all weigh alike. Floating-point buffers are averaged with the parameters; the authors'
    networks have none that move. As there, the live weights are evaluated in training, and the
    average is scored at the end alone.
    """

    final_only = True
    finished = ends_training = renews = False
    batchnorm_batches = 0  #: running statistics are averaged

    def __init__(self, beta: float = 0.5) -> None:
        self.beta = beta
        self._steps = 0
        self._mean = RunningMean()

    def begin(self, buffers: Tensors) -> None:
        """Ignore the initial buffers: they come with the parameters."""

    def prepare(self, steps: int, params: Tensors, buffers: Tensors) -> None:
        self._steps = steps
        self.update(0, params, buffers)

    def update(self, step: int, params: Tensors, buffers: Tensors) -> None:
        self._mean.add({**params, **buffers}, self.weight(step))

    def weight(self, step: int) -> float:
        """Compute the density at a step, as a multiple of the density at 1/2."""
        x = (step + 0.5) / (self._steps + 1)
        return float((4 * x * (1 - x)) ** (self.beta - 1))

    def evaluated(self, step: int, loss: float, buffers: Tensors) -> None:
        """Ignore an evaluation: it changes nothing."""

    def result(self) -> Tensors:
        return self._mean.mean

    def state_dict(self) -> dict[str, Any]:
        return {"mean": vars(self._mean), "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._mean = RunningMean(**state["mean"])
        self._steps = state["steps"]


@dataclass(frozen=True)
class Segment:
    """The mean over the updates between two evaluations, or over several such segments."""

    weights: Tensors  #: mean parameters
    buffers: Tensors  #: buffers at the segment's beginning
    #: its first and last step
    start: int
    end: int
    count: float  #: number of updates, or of segments, in the mean
    loss: float  #: validation loss at its end


class Valley:
    """Mean over the segments that SWAD keeps.

    Until one is added it is that of the segment where the loss converged.
    """

    def __init__(self, base: Segment) -> None:
        self.base = base
        self.mean = RunningMean()
        self.start = base.start
        self.end = base.end

    def add(self, segment: Segment, start: int | None = None) -> None:
        """Add one more segment to the mean.

        The first one says where the average starts, unless ``start`` does.
        """
        if self.mean.count == 0:
            self.start = segment.start if start is None else start
        self.mean.add(segment.weights)
        self.end = segment.end

    def segment(self) -> Segment:
        """Return the average so far."""
        weights = self.mean.mean if self.mean.count else self.base.weights
        return Segment(weights, self.base.buffers, self.start, self.end, self.mean.count, math.nan)

    def copy(self) -> Valley:
        """Copy the valley, so that the copy can go on while this one stays."""
        twin = copy(self)
        twin.mean = RunningMean(self.mean.count, snapshot(self.mean.mean))
        return twin

    def state_dict(self) -> dict[str, Any]:
        return {
            "base": vars(self.base),
            "mean": vars(self.mean),
            "start": self.start,
            "end": self.end,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Valley:
        valley = cls(Segment(**state["base"]))
        valley.mean = RunningMean(**state["mean"])
        valley.start = state["start"]
        valley.end = state["end"]
        return valley


class Swad:
    """Stochastic weight averaging densely (Cha et al., 2021), as its code decides.

    Segments may count twice, as there. They are the evaluations of ``conf/averaging/swad.yaml``,
    which says what each argument means. The tolerance is (1 + ``tolerance_ratio``) times the mean
    loss of the segments of convergence.
    """

    #: evaluations in training judge the live weights; only the end scores :meth:`result`
    final_only = True
    renews = False  #: statistics are renewed at the end, by ``batchnorm_batches``

    def __init__(
        self,
        n_converge: int = 3,
        n_tolerance: int = 6,
        tolerance_ratio: float = 0.3,
        batchnorm_batches: int = 500,
    ) -> None:
        self.n_converge = n_converge
        self.n_tolerance = n_tolerance
        self.ratio = tolerance_ratio
        self.batchnorm_batches = batchnorm_batches
        self.finished = False  #: the valley is left, so training may end
        self._open = RunningMean()
        self._start = 0
        self._buffers: dict[str, Tensor] = {}
        self.recent: list[Segment] = []
        self._valley: Valley | None = None
        self._tolerance = math.inf

    def begin(self, buffers: Tensors) -> None:
        self._buffers = snapshot(buffers)

    def update(self, step: int, params: Tensors, buffers: Tensors) -> None:
        if not self._open.count:
            self._start = step
        self._open.add(params)

    def evaluated(self, step: int, loss: float, buffers: Tensors) -> None:
        """Close the open segment with an evaluation of the live weights."""
        count = self._open.count
        if count:
            self.add(Segment(self._open.mean, self._buffers, self._start, step, count, loss))
            self._open = RunningMean()
            self._buffers = snapshot(buffers)

    def add(self, segment: Segment) -> None:
        """Decide with one more segment whether the valley begins, continues or has been left."""
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
        """Begin the valley if the loss has converged, with the segments that lie in it by now."""
        window = self.recent[-self.n_converge :]
        if len(window) < self.n_converge or window[0].loss > _lowest(window):
            return
        self._valley = Valley(window[0])
        self._tolerance = (1 + self.ratio) * math.fsum(s.loss for s in window) / len(window)
        for segment in self._inside(window):
            self._valley.add(segment)

    def _inside(self, window: Sequence[Segment]) -> Sequence[Segment]:
        """List the segments that lie in the valley when the loss of ``window`` has converged."""
        surplus = self.n_tolerance - self.n_converge
        if surplus == 0:
            return []
        if surplus < 0:
            return window[1 : 1 - surplus]
        before = self.recent[-self.n_tolerance :][: surplus + 1]
        above = [i for i, segment in enumerate(before) if segment.loss > self._tolerance]
        # the first one inside is skipped, as in the reference
        return before[above[-1] + 2 :] if above else before[1:]

    def average(self) -> Segment | None:
        """Compute what SWAD would return if training ended now.

        It is None before the first evaluation.
        """
        if self._valley is None:
            return self.recent[-1] if self.recent else None
        valley = self._valley.copy()
        window = [] if self.finished else self.recent[-self.n_tolerance :][1:]
        while window and _lowest(window) <= self._tolerance:
            valley.add(window[0], start=window[0].end)
            window = window[1:]
        return valley.segment()

    def result(self) -> Tensors:
        average = self.average()
        if average and self._valley is None:
            log.warning(
                "averaging.rule.n_converge=%d: the validation loss did not converge, so the last "
                "%d steps are averaged instead of a valley; train longer, or evaluate more often",
                self.n_converge,
                average.count,
            )
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
        self.finished = state["finished"]
        self._start = state["start"]
        self._buffers = state["buffers"]
        self._open = RunningMean(**state["open"])
        self.recent = [Segment(**segment) for segment in state["recent"]]
        self._valley = state["valley"] and Valley.restored(state["valley"])
        self._tolerance = state["tolerance"]


def _lowest(segments: Sequence[Segment]) -> float:
    return min(segment.loss for segment in segments)
