"""The shift that is known by construction: two classes, and a color that differs from the label with probability e."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.errors import ConfigError, DataError, DgbenchError
from dgbench.records.code import code_version
from dgbench.records.locks import RunLocks, lock_holder
from dgbench.records.shift_rows import HALVES, NO_NULL, TRIAL, ShiftIdentity, ShiftRow, append_shift_rows
from dgbench.records.status import RUNNING, finish, mark_interrupted, write_status
from dgbench.shift.estimators import Estimate, Estimator, Fitted, Fitting
from dgbench.shift.fitting import ClassifierTraining
from dgbench.shift.plan import Pair, PlannedEstimator, PlannedShift, Slot, slots_of
from dgbench.shift.posterior import colored_table, exact_shift
from dgbench.shift.sampling import Drawn, Pools
from dgbench.shift.stores import ArrayEnvironments
from dgbench.training.building import build
from dgbench.training.known_keys import options
from dgbench.training.prepare import prepare_process
from dgbench.training.settings import TrainerSettings


def exact_values(job: PlannedShift, pair: Pair, size: Callable[[str], int]) -> dict[str, float]:
    """True values of a pair, where features tell color and noise-free class; empty where nothing is known.

    ``cor_color_alone`` is the correlation shift where features tell the color and nothing else: it is larger, and
    estimates on features that tell the class poorly lie between the two.

    Environments that are pooled are one distribution, whose e is their mean, weighted by their images.

    Args:
        job: what is estimated; its dataset says of what kind it is.
        pair: two sides.
        size: images of an environment.
    """
    noise = getattr(job.dataset, "label_noise", None)
    if noise is None or job.info.n_classes != 2:
        return {}
    try:
        pooled = [sum(float(e) * size(e) for e in side) / sum(map(size, side)) for side in (pair.p, pair.q)]
    except ValueError:  # environments that are no probabilities
        return {}
    found, color = (
        exact_shift(*(colored_table(e, noise, features=features) for e in pooled))
        for features in ("color_shape", "color")
    )
    known = {name: float(found[name]) for name in ("div", "cor", "div_plus", "cor_plus")}
    return {**known, "cor_color_alone": float(color["cor"])}


# Making estimates: samples, classifiers as stacks, values as soon as their classifiers are trained.

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


# The rows of a job: what is there is left alone, the rest is estimated and appended.

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
        smallest = min(map(pools.size, training.source.given))
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


def estimate_shift(
    x_p: np.ndarray,
    y_p: np.ndarray,
    x_q: np.ndarray,
    y_q: np.ndarray,
    estimator: str = "joint",
    *,
    keys: Mapping[str, Any] | None = None,
    trials: int = 5,
    halves: int = 8,
    null: bool = True,
    min_per_class: int = 20,
    max_per_class: int | None = None,
    seed: int = 0,
    device: str = "auto",
) -> list[ShiftRow]:
    """How far two sets of labeled features are apart, as ``shift.py`` estimates it.

    Args:
        x_p, x_q: (n_p, m) and (n_q, m) features.
        y_p, y_q: (n_p,) and (n_q,) integer labels >= 0.
        estimator: a file of ``conf/estimator`` that needs no reference.
        keys: of that file, in place of its own.
        trials, halves, null, min_per_class, max_per_class, seed: as in ``conf/shift.yaml``.
        device: Lightning's accelerator.

    Returns:
        One row per estimate; ``dgbench.statistics.shift_intervals`` makes intervals of them.

    Raises:
        ConfigError: an unknown estimator or key.
        DataError: arrays that do not fit together.
    """
    if estimator not in options("estimator"):
        raise ConfigError(f"estimator={estimator} is unknown; choose from {', '.join(options('estimator'))}")
    if x_p.ndim != 2 or x_p.shape[1:] != x_q.shape[1:] or (len(x_p), len(x_q)) != (len(y_p), len(y_q)):
        raise DataError(
            f"features of shapes {x_p.shape} and {x_q.shape} with {len(y_p)} and {len(y_q)} labels do not fit; give "
            "(n, m) features with n labels each"
        )
    own: Any = OmegaConf.to_container(OmegaConf.load(CONF / "estimator" / f"{estimator}.yaml"))
    found: Estimator = build({"estimator": {**own, **(keys or {})}}, "estimator")
    if found.against_reference:
        raise ConfigError(f"estimator={estimator} compares with a reference; call dgbench.shift.distances itself")
    prepare_process()
    training = ClassifierTraining(ArrayEnvironments({"p": (x_p, y_p), "q": (x_q, y_q)}), TrainerSettings(device=device))
    identity = ShiftIdentity(
        run="", **training.source.info.facts(), backbone="", init="", features="frozen", images="all",
        estimator=estimator, settings=found.settings(), seed=seed, code=code_version(),
    )  # fmt: skip
    pair, rows = Pair("each", "p|q", ("p",), ("q",)), list[ShiftRow]()
    wanted = [(pair, slot) for slot in slots_of(trials, halves, found.nulls_of(null))]
    pools = Pools(training.source, "all", seed, min_per_class, max_per_class)

    def finished(each: Done) -> None:
        rows.append(row_of(identity, each, {}))

    make_estimates(found, wanted, pools, training, finished)
    return rows
