"""The job of ``shift.py``: rows that are there are left alone, the rest is estimated and appended.

All classifiers of one shape train as one stack, and values are made as soon as their classifiers
are trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.environments import Catalog, Environments, Table, TensorStore
from dgbench.errors import ConfigError, DataError, DgbenchError, reason_of
from dgbench.interruption import request_first, stopped_by
from dgbench.plan.building import build
from dgbench.plan.overrides import options
from dgbench.plan.settings import TrainerSettings
from dgbench.records.locks import RunLocks, is_locked, lock_holder
from dgbench.records.shift_rows import (
    HALVES,
    NO_NULL,
    TRIAL,
    ShiftIdentity,
    ShiftRow,
    append_shift_rows,
)
from dgbench.records.spec import code_version
from dgbench.records.status import RUNNING, finish, mark_interrupted, write_status
from dgbench.shift.estimators import EstimatedValues, Estimator, Fitted, Fitting, PairSample
from dgbench.shift.exact import exact_values
from dgbench.shift.fitting import ClassifierTraining
from dgbench.shift.plan import EnvironmentPair, PlannedEstimator, PlannedShift, Slot, slots_of
from dgbench.shift.sampling import Pools
from dgbench.training.processes import prepare_process
from dgbench.validation import Plain, Switch, Whole0, Whole1, checked

DIVERGED = "the loss of its classifier stopped being finite; lower its lr"
FIRST_SECONDS = 2.0  # before the first line of progress
LINE_SECONDS = 15.0  # between two lines
Tell = Callable[[str], None]


@dataclass
class _Waiting:
    """An estimate whose classifiers are not all trained."""

    slot: Slot
    sample: PairSample
    fittings: Sequence[Fitting]
    #: by their place in ``fittings``; None: it diverged
    fitted: dict[int, Fitted | None] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return len(self.fitted) == len(self.fittings)

    @property
    def diverged(self) -> bool:
        return None in self.fitted.values()

    @property
    def classifiers(self) -> list[Fitted]:
        return [classifier for _, classifier in sorted(self.fitted.items()) if classifier]


def estimate_all(
    job: PlannedShift, make_training: Callable[[], ClassifierTraining], tell: Tell
) -> None:
    """Make every row of a job that is not there yet.

    Args:
        job: what is planned.
        make_training: gives images or features, and how classifiers are trained; called once, if
            something is left.
        tell: is given lines of progress.

    Raises:
        DgbenchError: nothing can be estimated.
    """
    training: ClassifierTraining | None = None
    for planned in job.estimators:
        if next(planned.left(), None) is None:
            tell(f"{planned.estimator.name}: all {planned.size} estimates were done before")
            continue
        with RunLocks() as locks:
            if not is_locked(planned.folder):
                # before there is a folder: it may be refused
                training = training or make_training()
            if training is None or not locks.take(planned.folder):
                holder = lock_holder(planned.folder) or "another process"
                tell(
                    f"{planned.estimator.name}: {planned.folder} is estimated by {holder}; left "
                    "to it"
                )
                continue
            planned.file.touch()  # whoever looks for runs knows by it that this is none
            write_status(planned.folder, RUNNING)
            try:
                with request_first():
                    _estimate(job, planned, training, tell)
            except KeyboardInterrupt as stop:
                mark_interrupted(planned.folder, stopped_by(stop))
                raise
            except Exception as error:
                finish(planned.folder, reason_of(error))
                raise
            finish(planned.folder)


def _estimate(
    job: PlannedShift, planned: PlannedEstimator, training: ClassifierTraining, tell: Tell
) -> None:
    estimator = planned.estimator
    identity = planned.identity
    pending = list(planned.left())
    name = estimator.name
    training.scratch = planned.folder / "checkpoints"
    training.tell = lambda line: tell(f"{name}: {line}")
    bounds = identity.settings["min_per_class"], identity.settings["max_per_class"]
    pools = Pools(training.source, identity.images, identity.seed, *bounds)
    smallest = min(map(pools.size, training.source.info.given))
    estimator = estimator.prepared(
        training.features_of, f"{identity.backbone}/{identity.init}", smallest
    )
    pairs = planned.pairs if estimator.balances else []
    exact = {
        pair: exact_values(job.dataset, job.info.n_classes, (pair.p, pair.q), pools.size)
        for pair in pairs
    }
    begun = time.monotonic()
    last_line = begun + FIRST_SECONDS - LINE_SECONDS
    refusals = set[tuple[str, str]]()
    for count, row in enumerate(
        make_estimates(estimator, identity, pending, pools, training, exact), start=1
    ):
        append_shift_rows(planned.file, [row])
        if row.refused and (row.pair, row.refused) not in refusals:
            refusals.add((row.pair, row.refused))
            tell(
                f"{name}: {' + '.join(row.p)} against {' + '.join(row.q)} is refused: {row.refused}"
            )
        if time.monotonic() - last_line > LINE_SECONDS:
            last_line = time.monotonic()
            tell(f"{name}: {count} of {len(pending)} estimates")
    tell(f"{name}: {len(pending)} estimates in {time.monotonic() - begun:.0f} s")


def make_estimates(
    estimator: Estimator,
    identity: ShiftIdentity,
    planned: Sequence[tuple[EnvironmentPair, Slot]],
    pools: Pools,
    training: ClassifierTraining,
    exact: Mapping[EnvironmentPair, Mapping[str, float]],
) -> Iterator[ShiftRow]:
    """Make estimates, each as soon as its classifiers are trained.

    Args:
        estimator: what makes the values.
        identity: that of the rows.
        planned: estimates to make, pair and slot of each.
        pools, training: images of the environments, and how classifiers are trained.
        exact: true values of pairs, where they are known; those of a pair that is made without
            shift are 0.
    """
    row = partial(_row, identity, exact)
    waiting: dict[EnvironmentPair, list[_Waiting]] = {pair: [] for pair, _ in planned}
    owners = []  # of the classifiers, in the order in which they are trained
    for pair, slot in planned:
        try:
            sample = pools.sample(estimator, pair, slot)
            waiting[pair].append(_Waiting(slot, sample, estimator.fittings(sample)))
        except DgbenchError as error:
            yield row(pair, slot, EstimatedValues(refused=str(error)))
    for works in waiting.values():
        for work in works:
            owners += [(work, k) for k in range(len(work.fittings))]
    for trained in chain([{}], training.fit([work.fittings[k] for work, k in owners])):
        for number, fitted in trained.items():
            work, k = owners[number]
            work.fitted[k] = fitted
        for pair, works in waiting.items():
            ready = [work for work in works if work.ready]
            if estimator.whole_pair and len(ready) < len(works):
                continue
            works[:] = [work for work in works if not work.ready]
            yield from _rows_of_ready(estimator, pair, ready, row)


def _rows_of_ready(
    estimator: Estimator,
    pair: EnvironmentPair,
    works: Sequence[_Waiting],
    row: Callable[..., ShiftRow],
) -> Iterator[ShiftRow]:
    """Make the rows of estimates of one pair whose classifiers are trained, diverged ones first."""
    for work in works:
        if work.diverged:
            yield row(pair, work.slot, EstimatedValues(refused=DIVERGED), work.sample)
    trained = [work for work in works if not work.diverged]
    for work, estimate, seconds in _estimates(estimator, trained):
        together = max((classifier.together for classifier in work.classifiers), default=1)
        yield row(pair, work.slot, estimate, work.sample, seconds, together)


def _row(
    identity: ShiftIdentity,
    exact: Mapping[EnvironmentPair, Mapping[str, float]],
    pair: EnvironmentPair,
    slot: Slot,
    estimate: EstimatedValues,
    sample: PairSample | None = None,
    seconds: float = 0.0,
    together: int = 1,
) -> ShiftRow:
    """Make the row of an estimate; one that was refused may have no sample."""
    true = exact.get(pair, {})
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
        dropped=sample.dropped if sample else {},
        values=_finite(estimate.values),
        diagnostics=_finite(estimate.diagnostics),
        exact=dict(true) if slot.null == NO_NULL else dict.fromkeys(true, 0.0),
        flags=list(estimate.flags),
        refused=estimate.refused,
        seconds=seconds,
        together=together,
    )


def _estimates(
    estimator: Estimator, works: Sequence[_Waiting]
) -> Iterator[tuple[_Waiting, EstimatedValues, float]]:
    """Make the estimates of one pair whose classifiers are trained, and measure the seconds that
    each takes.
    """
    nulls = [work for work in works if work.slot.kind == TRIAL and work.slot.null == HALVES]
    refused = ""
    try:
        estimator = estimator.calibrated([(work.sample, work.classifiers) for work in nulls])
    except DgbenchError as error:
        refused = str(error)
    for work in works:
        begun = time.monotonic()
        try:
            estimate = (
                EstimatedValues(refused=refused)
                if refused
                else estimator.estimate(work.sample, work.classifiers)
            )
        except DgbenchError as error:
            estimate = EstimatedValues(refused=str(error))
        seconds = (
            time.monotonic() - begun + sum(classifier.seconds for classifier in work.classifiers)
        )
        yield work, estimate, seconds


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}


@checked
def estimate_shift(
    x_p: np.ndarray,
    y_p: np.ndarray,
    x_q: np.ndarray,
    y_q: np.ndarray,
    estimator: str = "joint",
    *,
    keys: Plain | None = None,
    trials: Whole1 = 5,
    halves: Whole0 = 8,
    null: Switch = True,
    min_per_class: Whole1 = 20,
    max_per_class: Whole1 | None = None,
    seed: Whole0 = 0,
    device: str = "auto",
) -> list[ShiftRow]:
    """Estimate how far two sets of labeled features are apart, as ``shift.py`` does.

    Args:
        x_p, x_q: (n_p, m) and (n_q, m) features.
        y_p, y_q: (n_p,) and (n_q,) integer labels >= 0.
        estimator: a file of ``conf/estimator`` that needs no reference.
        keys: of that file, in place of its own.
        trials, halves, null, min_per_class, max_per_class, seed: as in ``conf/shift.yaml``.
        device: Lightning's accelerator.

    Returns:
        One row per estimate; ``dgbench.analysis.shift_verdicts`` makes intervals of them.

    Raises:
        ConfigError: an unknown estimator or key.
        DataError: arrays that do not fit together.
    """
    if estimator not in options("estimator"):
        raise ConfigError(
            f"estimator={estimator} is unknown; choose from {', '.join(options('estimator'))}"
        )
    if {x_p.dtype.kind, x_q.dtype.kind} - {*"fiu"} or {y_p.dtype.kind, y_q.dtype.kind} - {*"iu"}:
        raise DataError(
            "features are no numbers, or labels no integers; convert them, e.g. with y.astype(int)"
        )
    if (
        x_p.ndim != 2
        or x_p.shape[1:] != x_q.shape[1:]
        or (len(x_p), len(x_q)) != (len(y_p), len(y_q))
    ):
        raise DataError(
            f"features of shapes {x_p.shape} and {x_q.shape} with {len(y_p)} and {len(y_q)} "
            "labels do not fit; give (n, m) features with n labels each"
        )
    defaults: Any = OmegaConf.to_container(OmegaConf.load(CONF / "estimator" / f"{estimator}.yaml"))
    built: Estimator = build(
        {"estimator": {**defaults, **(keys or {})}}, "estimator", _convert_="all"
    )
    if built.against_reference:
        raise ConfigError(
            f"estimator={estimator} compares with a reference; call dgbench.shift.distances itself"
        )
    prepare_process()
    source = _environments(np.concatenate([x_p, x_q]), np.concatenate([y_p, y_q]), len(y_p))
    training = ClassifierTraining(source, TrainerSettings.model_validate({"device": device}))
    identity = ShiftIdentity(
        run="",
        **source.info.facts(),
        backbone="",
        init="",
        features="frozen",
        images="all",
        estimator=estimator,
        settings=dict(built),
        seed=seed,
        code=code_version(),
    )
    pair = EnvironmentPair("each", "p|q", ("p",), ("q",))
    pending = [(pair, slot) for slot in slots_of(trials, halves, built.nulls_of(null))]
    pools = Pools(source, "all", seed, min_per_class, max_per_class)
    return list(make_estimates(built, identity, pending, pools, training, exact={}))


def _environments(x: np.ndarray, y: np.ndarray, n_p: int) -> Environments:
    """Turn (n, m) features and (n,) labels into environments p (``n_p`` rows first) and q.

    All rows are used for training.
    """
    rows = np.arange(len(y))
    names = ("p", "q")
    labels = y.astype(np.int64)
    classes = tuple(map(str, range(int(labels.max()) + 1)))
    info = DatasetInfo(
        name="arrays",
        variant={},
        base="arrays",
        split_seed=0,
        given=names,
        everywhere=names,
        n_classes=len(classes),
        image=x.shape[1:],
    )
    catalog = Catalog(labels, classes, Preprocessing(x.shape[1:], (), (), pictures=False))
    store = TensorStore(torch.from_numpy(x).to(torch.get_default_dtype()), torch.from_numpy(labels))
    return Environments(
        Table(info, {("p", "train"): rows[:n_p], ("q", "train"): rows[n_p:]}), catalog, store
    )
