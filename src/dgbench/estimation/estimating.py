"""Making estimates: samples, classifiers as stacks, values as soon as their classifiers are trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dgbench.errors import DgbenchError
from dgbench.estimation.estimators import Estimate, Estimator
from dgbench.estimation.fitting import ClassifierTraining
from dgbench.estimation.recipes import Fitted, Fitting
from dgbench.estimation.sampling import Drawn, Pools
from dgbench.estimation.shift_plan import Pair, Slot
from dgbench.records.shift_rows import HALVES, TRIAL

DIVERGED = "the loss of its classifier stopped being finite; lower its lr"


@dataclass(frozen=True)
class Done:
    """An estimate that was made or refused.

    Args:
        pair, slot: which one.
        estimate: its values.
        drawn: its images; None where there are too few.
        seconds: of computation.
        together: classifiers that trained with its own.
    """

    pair: Pair
    slot: Slot
    estimate: Estimate
    drawn: Drawn | None = None
    seconds: float = 0.0
    together: int = 1


@dataclass
class _Waiting:
    """An estimate whose classifiers are not all trained."""

    pair: Pair
    slot: Slot
    drawn: Drawn
    fittings: Sequence[Fitting]
    fitted: dict[int, Fitted | None] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return len(self.fitted) == len(self.fittings)


def make_estimates(
    estimator: Estimator,
    wanted: Sequence[tuple[Pair, Slot]],
    pools: Pools,
    training: ClassifierTraining,
    finished: Callable[[Done], None],
) -> None:
    """Make estimates; all classifiers of one shape train as one stack.

    Args:
        estimator: what makes the values.
        wanted: which estimates.
        pools: images of the environments.
        training: how classifiers are trained.
        finished: is given every estimate when it is made; what it raises ends all.
    """
    waiting: dict[Pair, list[_Waiting]] = {pair: [] for pair, _ in wanted}
    for pair, slot in wanted:
        try:
            drawn = pools.drawn(estimator, pair, slot)
            pools.check_varying(drawn.sample)
            fittings = estimator.fittings(drawn.sample)
        except DgbenchError as error:
            finished(Done(pair, slot, Estimate(refused=str(error))))
        else:
            waiting[pair].append(_Waiting(pair, slot, drawn, fittings))
    every = [each for own in waiting.values() for each in own]
    owners = [(each, k) for each in every for k in range(len(each.fittings))]
    _finish(estimator, waiting, finished)
    for trained in training.fit([fitting for each in every for fitting in each.fittings]):
        for number, fitted in trained.items():
            each, k = owners[number]
            each.fitted[k] = fitted
        _finish(estimator, waiting, finished)


def _finish(estimator: Estimator, waiting: Mapping[Pair, list[_Waiting]], finished: Callable[[Done], None]) -> None:
    """Values of all that is ready; of a pair whose estimates depend on one another, once all of it is."""
    for own in waiting.values():
        ready = [each for each in own if each.ready]
        if not ready or (estimator.whole_pair and len(ready) < len(own)):
            continue
        own[:] = [each for each in own if not each.ready]
        for each in ready:
            if None in each.fitted.values():
                finished(Done(each.pair, each.slot, Estimate(refused=DIVERGED), each.drawn))
        _values(estimator, [each for each in ready if None not in each.fitted.values()], finished)


def _values(estimator: Estimator, ready: Sequence[_Waiting], finished: Callable[[Done], None]) -> None:
    fitted = [[each.fitted[k] for k in range(len(each.fittings))] for each in ready]
    known = [[one for one in own if one is not None] for own in fitted]
    nulls = [each.slot.kind == TRIAL and each.slot.null == HALVES for each in ready]
    makes = estimator.estimates([each.drawn.sample for each in ready], nulls, known)
    for each, make, own in zip(ready, makes, known, strict=True):
        begun = time.monotonic()
        try:
            found = make()
        except DgbenchError as error:
            found = Estimate(refused=str(error))
        seconds = time.monotonic() - begun + sum(one.seconds for one in own)
        together = max((one.together for one in own), default=1)
        finished(Done(each.pair, each.slot, found, each.drawn, seconds, together))
