"""Estimating what a job has planned: features once, classifiers as stacks, rows as soon as they can be made."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dgbench.errors import DgbenchError
from dgbench.estimation.estimators import Estimate
from dgbench.estimation.exact_values import exact_values
from dgbench.estimation.fitting import ClassifierTraining
from dgbench.estimation.planned import Pair, PlannedEstimator, PlannedShift, Slot
from dgbench.estimation.recipes import Fitted, Fitting
from dgbench.estimation.sampling import Drawn, Pools
from dgbench.records.locks import RunLocks, lock_holder
from dgbench.records.shift_rows import HALVES, TRIAL, ShiftRow, append_shift_rows
from dgbench.records.status import RUNNING, finish, mark_interrupted, write_status

Tell = Callable[[str], None]


@dataclass
class Estimation:
    """One estimate on its way: a slot of a pair, its sample, and the classifiers that it waits for."""

    pair: Pair
    slot: Slot
    drawn: Drawn
    fittings: Sequence[Fitting]
    fitted: dict[int, Fitted | None] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether all its classifiers are trained."""
        return len(self.fitted) == len(self.fittings)


@dataclass(frozen=True)
class Ended:
    """How the estimates of one estimator ended.

    Args:
        planned: what was planned.
        left: why another process's estimates were left to it; empty where they were not.
    """

    planned: PlannedEstimator
    left: str = ""


def estimate_all(job: PlannedShift, make_training: Callable[[], ClassifierTraining], tell: Tell) -> list[Ended]:
    """Make every row of a job that is not there yet.

    Args:
        job: what is planned.
        make_training: gives images or features, and how classifiers are trained; called once, if something is left.
        tell: is given lines of progress.

    Raises:
        DgbenchError: nothing can be estimated.
    """
    training: list[ClassifierTraining] = []
    ended = []
    for planned in job.estimators:
        n = len(planned.pairs) * len(planned.slots)
        if not any(True for _ in planned.left()):
            tell(f"{planned.estimator.name}: all {n} estimates were done before")
            ended.append(Ended(planned))
            continue
        with RunLocks() as locks:
            if not locks.take(planned.folder):
                holder = lock_holder(planned.folder) or "another process"
                tell(f"{planned.estimator.name}: {planned.folder} is estimated by {holder}; left to it")
                ended.append(Ended(planned, holder))
                continue
            training = training or [make_training()]
            planned.file.touch()  # whoever looks for runs knows by it that this is none
            write_status(planned.folder, RUNNING)
            try:
                _estimate(job, planned, training[0], tell)
            except KeyboardInterrupt:
                mark_interrupted(planned.folder)
                raise
            except Exception as error:
                finish(
                    planned.folder,
                    str(error) if isinstance(error, DgbenchError) else f"{type(error).__name__}: {error}",
                )
                raise
            finish(planned.folder)
            ended.append(Ended(planned))
    return ended


def _estimate(job: PlannedShift, planned: PlannedEstimator, training: ClassifierTraining, tell: Tell) -> None:
    estimator, left = planned.estimator, _left(planned)
    training.scratch = planned.folder / "checkpoints"
    training.told = lambda line: tell(f"{estimator.name}: {line}")
    pools = Pools(training.source, job.config["images"], job.config["seed"], *_bounds(planned))
    if estimator.against_reference:
        identity = planned.identity
        smallest = min(map(pools.size, training.source.given))
        pools.reference = estimator.reference_of(training.features_of, f"{identity.backbone}/{identity.init}", smallest)
    rows = _Rows(job, planned, pools, tell, len(left))
    jobs = []
    for pair, slot in left:
        try:
            drawn = pools.drawn(estimator, pair, slot)
            pools.check_varying(drawn.sample)
            jobs.append(Estimation(pair, slot, drawn, estimator.fittings(drawn.sample, training.backbone is not None)))
        except DgbenchError as error:
            rows.refuse(pair, slot, str(error))
    needed = [fitting for each in jobs for fitting in each.fittings]
    owners = [(each, k) for each in jobs for k in range(len(each.fittings))]
    waiting = {pair: [each for each in jobs if each.pair == pair] for pair in planned.pairs}
    rows.make(waiting)
    for trained in training.fit(needed):
        for number, fitted in trained.items():
            each, k = owners[number]
            each.fitted[k] = fitted
        rows.make(waiting)


def _left(planned: PlannedEstimator) -> list[tuple[Pair, Slot]]:
    left = list(planned.left())
    if planned.estimator.whole_pair:
        touched = {pair for pair, _ in left}
        return [(pair, slot) for pair in planned.pairs if pair in touched for slot in planned.slots]
    return left


def _bounds(planned: PlannedEstimator) -> tuple[int, int | None]:
    settings = planned.identity.settings
    return settings["min_per_class"], settings["max_per_class"]


class _Rows:
    """Makes rows of estimates whose classifiers are trained, and appends them."""

    def __init__(self, job: PlannedShift, planned: PlannedEstimator, pools: Pools, tell: Tell, n: int) -> None:
        self.job, self.planned, self.pools, self.tell = job, planned, pools, tell
        self.n, self.done, self.spoke = n, 0, time.monotonic()
        self.refused: Counter[tuple[str, str]] = Counter()

    def make(self, waiting: Mapping[Pair, list[Estimation]]) -> None:
        """Rows of all that is ready; of a pair whose estimates depend on one another, once all of it is."""
        for pair, jobs in waiting.items():
            if self.planned.estimator.whole_pair and not all(each.ready for each in jobs):
                continue
            ready = [each for each in jobs if each.ready]
            if ready:
                waiting[pair][:] = [each for each in jobs if not each.ready]
                self._append(pair, ready)

    def _append(self, pair: Pair, jobs: Sequence[Estimation]) -> None:
        failed = [each for each in jobs if None in each.fitted.values()]
        good = [each for each in jobs if each not in failed]
        for each in failed:
            self._row(each, Estimate(refused="the loss of its classifier stopped being finite; lower its lr"), 0.0)
        fitted = [[own for own in each.fitted.values() if own is not None] for each in good]
        nulls = [each.slot.kind == TRIAL and each.slot.null == HALVES for each in good]
        makes = self.planned.estimator.estimates([each.drawn.sample for each in good], nulls, fitted)
        for each, make, own in zip(good, makes, fitted, strict=True):
            begun = time.monotonic()
            try:
                found = make()
            except DgbenchError as error:
                found = Estimate(refused=str(error))
            self._row(each, found, time.monotonic() - begun + sum(one.seconds for one in own))

    def _row(self, job: Estimation, found: Estimate, seconds: float) -> None:
        sample = job.drawn.sample
        together = max((own.together for own in job.fitted.values() if own), default=1)
        exact = exact_values(self.job, job.pair, self.pools.size) if self.planned.estimator.balances else {}
        if job.slot.null != "none":
            exact = dict.fromkeys(exact, 0.0)
        self._write(
            ShiftRow(
                identity=self.planned.identity,
                pairs=job.pair.pairs,
                pair=job.pair.name,
                p=list(job.pair.p),
                q=list(job.pair.q),
                kind=job.slot.kind,
                number=job.slot.number,
                null=job.slot.null,
                n=[len(sample.p), len(sample.q)],
                classes=list(sample.names),
                dropped=job.drawn.dropped,
                values=_finite(found.values),
                diagnostics=_finite(found.diagnostics),
                exact=exact,
                flags=list(found.flags),
                refused=found.refused,
                seconds=seconds,
                together=together,
            )
        )

    def refuse(self, pair: Pair, slot: Slot, reason: str) -> None:
        """The row of an estimate that cannot be made."""
        self._write(
            ShiftRow(
                identity=self.planned.identity,
                pairs=pair.pairs,
                pair=pair.name,
                p=list(pair.p),
                q=list(pair.q),
                kind=slot.kind,
                number=slot.number,
                null=slot.null,
                n=[0, 0],
                classes=[],
                dropped={},
                values={},
                diagnostics={},
                refused=reason,
                seconds=0.0,
            )
        )

    def _write(self, row: ShiftRow) -> None:
        append_shift_rows(self.planned.file, [row])
        self.done += 1
        if row.refused:
            self.refused[row.pair, row.refused] += 1
            if self.refused[row.pair, row.refused] == 1:
                sides = f"{' + '.join(row.p)} against {' + '.join(row.q)}"
                self.tell(f"{self.planned.estimator.name}: {sides} is refused: {row.refused}")
        if time.monotonic() - self.spoke > 5 or self.done == self.n:
            self.spoke = time.monotonic()
            self.tell(f"{self.planned.estimator.name}: {self.done} of {self.n} estimates")


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}
