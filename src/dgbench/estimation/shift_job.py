"""The rows of a job: what is there is left alone, the rest is estimated and appended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dgbench.errors import DgbenchError
from dgbench.estimation.estimating import Done, make_estimates
from dgbench.estimation.exact_values import exact_values
from dgbench.estimation.fitting import ClassifierTraining
from dgbench.estimation.sampling import Pools
from dgbench.estimation.shift_plan import PlannedEstimator, PlannedShift
from dgbench.records.locks import RunLocks, lock_holder
from dgbench.records.shift_rows import NO_NULL, ShiftIdentity, ShiftRow, append_shift_rows
from dgbench.records.status import RUNNING, finish, mark_interrupted, write_status

Tell = Callable[[str], None]
LINE_SECONDS = 15.0  # between two lines of progress


@dataclass(frozen=True)
class Ended:
    """How the estimates of one estimator ended.

    Args:
        planned: what was planned.
        holder: the process that makes them, to which they were left; empty where they were made here.
    """

    planned: PlannedEstimator
    holder: str = ""


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
        if not any(True for _ in planned.left()):
            tell(f"{planned.estimator.name}: all {planned.size} estimates were done before")
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
                known = isinstance(error, DgbenchError)
                finish(planned.folder, str(error) if known else f"{type(error).__name__}: {error}")
                raise
            finish(planned.folder)
            ended.append(Ended(planned))
    return ended


def _estimate(job: PlannedShift, planned: PlannedEstimator, training: ClassifierTraining, tell: Tell) -> None:
    estimator, identity, wanted = planned.estimator, planned.identity, list(planned.left())
    training.scratch = planned.folder / "checkpoints"
    training.told = lambda line: tell(f"{estimator.name}: {line}")
    bounds = identity.settings["min_per_class"], identity.settings["max_per_class"]
    pools = Pools(training.source, identity.images, identity.seed, *bounds)
    if estimator.against_reference:
        smallest = min(map(pools.size, training.source.info.given))
        pools.reference = estimator.reference_of(training.features_of, f"{identity.backbone}/{identity.init}", smallest)
    begun, told, done, refused = time.monotonic(), time.monotonic(), 0, set[tuple[str, str]]()

    def finished(each: Done) -> None:
        nonlocal told, done
        exact = exact_values(job, each.pair, pools.size) if estimator.balances else {}
        append_shift_rows(planned.file, [row_of(identity, each, exact)])
        done += 1
        why = each.estimate.refused
        if why and (each.pair.name, why) not in refused:
            refused.add((each.pair.name, why))
            tell(f"{estimator.name}: {' + '.join(each.pair.p)} against {' + '.join(each.pair.q)} is refused: {why}")
        if time.monotonic() - told > LINE_SECONDS:
            told = time.monotonic()
            tell(f"{estimator.name}: {done} of {len(wanted)} estimates")

    make_estimates(estimator, wanted, pools, training, finished)
    tell(f"{estimator.name}: {len(wanted)} estimates in {time.monotonic() - begun:.0f} s")


def row_of(identity: ShiftIdentity, each: Done, exact: Mapping[str, float]) -> ShiftRow:
    """An estimate as a row.

    Args:
        identity: of the folder.
        each: what was made.
        exact: true values, where they are known; there is no shift in a pair that is made without.
    """
    pair, slot, found, sample = each.pair, each.slot, each.estimate, each.drawn and each.drawn.sample
    return ShiftRow(
        identity=identity,
        pairs=pair.pairs,
        pair=pair.name,
        p=list(pair.p),
        q=list(pair.q),
        kind=slot.kind,
        number=slot.number,
        null=slot.null,
        n=[len(sample.p), len(sample.q)] if sample else [0, 0],
        classes=list(sample.names) if sample else [],
        dropped=each.drawn.dropped if each.drawn else {},
        values=_finite(found.values),
        diagnostics=_finite(found.diagnostics),
        exact=dict(exact) if slot.null == NO_NULL else dict.fromkeys(exact, 0.0),
        flags=list(found.flags),
        refused=found.refused,
        seconds=each.seconds,
        together=each.together,
    )


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}
