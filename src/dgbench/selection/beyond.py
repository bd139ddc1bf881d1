"""Selection methods that need more than a run's own training environments: other runs, or other environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dgbench.errors import ConfigError, RecordError
from dgbench.plan.protocols import typed_name
from dgbench.selection.columns import Choices, Ints, Records, Rows, RunKey, first_best, scores
from dgbench.selection.methods import Choice, Method, best_by_training_val


@dataclass(frozen=True)
class LooVal(Method):
    """Leave-one-domain-out cross-validation: DomainBed's, for any number of held-out environments.

    A run that holds out the set H is judged at a step by the mean, over every other given environment v, of the
    ``test`` accuracy on v of the run that holds out H and v with the same draw and seed: v was unseen there. Steps
    that lack a v are dropped; the first best step wins, NaN is lowest.
    """

    name: ClassVar[str] = "loo_val"
    needs_other_runs: ClassVar[bool] = True
    title: ClassVar[str] = "leave-one-domain-out cross-validation"

    def __call__(self, rows: Rows) -> Choice:
        raise RecordError(
            "leave-one-domain-out cross-validation looks at runs that hold out one environment more; "
            "use it in report.py, or choose selection=train_val"
        )

    def choose(self, records: Records) -> Choices:
        judges = _judges(records)
        needed = np.array([len(set(key.given) - key.held_out) for key in records.keys], dtype=np.int64)
        rows = np.flatnonzero(records.held_out & records.of_subset("test"))
        judged = judges[records.run[rows], records.env[rows]]
        rows, judged = rows[judged >= 0], judged[judged >= 0].astype(np.int64)
        # a step counts only where the judged run was evaluated itself
        top = int(records.step.max(initial=0)) + 1
        own = np.isin(judged * top + records.step[rows], np.unique(records.run * top + records.step))
        rows, judged = rows[own], judged[own]
        order = np.lexsort((records.env[rows], records.step[rows], judged))
        rows, judged = rows[order], judged[order]
        found = scores(judged, records.step[rows], records.accuracy[rows], np.maximum(needed, 1))
        steps, accuracy = first_best(found, len(records.keys))
        return Choices(steps, accuracy, steps >= 0, _absent(records, judges, steps))


@dataclass(frozen=True)
class OodVal(Method):
    """OoD validation (OoD-Bench): the step that is best on the ``val`` rows of named environments.

    They are held out of training like a test environment, and no accuracy is reported on them.

    Args:
        environments: names of the validation environments.
    """

    environments: Sequence[str]
    name: ClassVar[str] = "ood_val"

    def __post_init__(self) -> None:
        wanted = self.environments
        if not wanted or isinstance(wanted, str) or not isinstance(wanted, Sequence):
            raise ConfigError(
                "selection.environments is no list of names; name one, e.g. selection.environments=[photo]"
            )
        names = self.validation_environments
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ConfigError(f"selection.environments names {repeated[0]} twice; name each environment once")

    @property
    def title(self) -> str:
        return f"OoD validation on {', '.join(self.validation_environments)}"

    @property
    def validation_environments(self) -> tuple[str, ...]:
        return tuple(map(typed_name, self.environments))

    def choose(self, records: Records) -> Choices:
        wanted = [records.environments.index(e) for e in self.validation_environments if e in records.environments]
        rows = records.of_subset("val") & records.held_out & np.isin(records.env, wanted)
        needed = np.full(len(records.keys), len(set(self.validation_environments)), dtype=np.int64)
        found = scores(records.run[rows], records.step[rows], records.accuracy[rows], needed)
        steps, accuracy = first_best(found, len(records.keys))
        lacks = f"no val rows of {', '.join(self.validation_environments)} held out; train a run that holds it out"
        return Choices(steps, accuracy, steps >= 0, {int(m): lacks for m in np.flatnonzero(steps < 0)})


@dataclass(frozen=True)
class Yu2024(Method):
    """Yu et al. 2024: the step with the highest accuracy over all ``val`` images of the training environments, pooled.

    The first best step and the first best draw win (strict improvement). The search runs with one seed; its draw
    counts for the other seeds, which run that draw only.
    """

    name: ClassVar[str] = "yu2024"
    title: ClassVar[str] = "pooled training-domain validation, search on the first seed (Yu et al. 2024)"
    one_search: ClassVar[bool] = True

    def choose(self, records: Records) -> Choices:
        return best_by_training_val(records, pooled=True)


def _judges(records: Records) -> Ints:
    """[p, v] -> the run that p judges by its accuracy on v (it holds out all that p does but v); -1 where none."""
    places = {name: code for code, name in enumerate(records.environments)}
    runs = {_place(key, key.held_out): run for run, key in enumerate(records.keys)}
    judges = np.full((len(records.keys), max(len(places), 1)), -1, dtype=np.int32)
    for judge, key in enumerate(records.keys):
        for env in key.held_out:
            run = runs.get(_place(key, key.held_out - {env}))
            if run is not None and env in places:
                judges[judge, places[env]] = run
    return judges


def _place(key: RunKey, held_out: frozenset[str]) -> tuple[object, ...]:
    return key.group, held_out, key.seed, key.draw


def _absent(records: Records, judges: Ints, chosen: Ints) -> dict[int, str]:
    """Why each run without a step has none."""
    places = {name: code for code, name in enumerate(records.environments)}
    judged = np.zeros(judges.shape, dtype=bool)
    judge, env = np.nonzero(judges >= 0)
    judged[judges[judge, env], env] = True
    why = {}
    for run in map(int, np.flatnonzero(chosen < 0)):
        key = records.keys[run]
        lacking = [v for v in key.given if v not in key.held_out and not (v in places and judged[run, places[v]])]
        beside = f"beside {', '.join(sorted(key.held_out))}" if key.held_out else "alone"
        why[run] = (
            f"loo_val: no run of this draw and seed holds out {' or '.join(lacking)} {beside}"
            if lacking
            else "loo_val: no step at which this run and all that judge it were evaluated"
        )
    return why
