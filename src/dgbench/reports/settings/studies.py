"""A study: the folds of one algorithm, hyperparameter set and seed, reduced to its errors at the selected steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.errors import DgbenchError
from dgbench.plan.folds import FULL, LOO, tested_by_fold
from dgbench.reports.settings.labels import algorithm_name
from dgbench.selection.methods import Rows, Selection
from dgbench.statistics import Measures


@dataclass(frozen=True)
class Study:
    """Errors of one (algorithm, seed). All errors are fractions in [0, 1]."""

    algorithm: str  #: as tables name it
    seed: int
    held_out: dict[str, float]  #: tested environment -> error there, mean over the runs tested there
    everywhere: dict[str, float]  #: environment -> error of the run trained on all given ones
    steps: dict[str, int]  #: fold -> selected step
    missing: dict[str, str]  #: expected fold -> why it has no errors
    measures: Measures
    by_fold: dict[str, dict[str, float]] = field(default_factory=dict)  #: fold -> tested environment -> error
    trained_on_tested: bool = False  #: some tested environment was not held out: no estimate of unseen performance
    sampled: bool = False  #: errors among exact ones that had to be sampled, see ``RunIdentity.grouped``


def expected_folds(identity: Mapping[str, Any], present: Iterable[str]) -> list[str]:
    """The folds a complete study has; those that are present where the protocol does not tell.

    Args:
        identity: identity of any run.
        present: folds that there are.
    """
    planned = tested_by_fold(identity)
    if planned is None:
        return sorted(set(present))
    return [*map(str, range(len(planned))), *([FULL] if identity["protocol"] == LOO and beyond(identity) else [])]


def beyond(identity: Mapping[str, Any]) -> bool:
    """Whether environments besides the given ones exist."""
    return bool(identity.get("beyond", True))


def evaluate_study(
    rows_by_fold: Mapping[str, Rows],
    identity: Mapping[str, Any],
    selection: Selection,
    *,
    algorithm: str | None = None,
    unusable: Mapping[str, str] | None = None,
    environments: Iterable[str] = (),
) -> Study:
    """Select a step in each run and read off its errors.

    Args:
        rows_by_fold: fold -> rows of that run (at least the keys of :class:`dgbench.records.rows.Row`, with
            ``env_held_out``).
        identity: identity of any run of the study.
        selection: chooses the step.
        algorithm: name for tables; by default the identity's.
        unusable: fold -> why its errors must not be used (failed, unfinished), even where there are rows.
        environments: environments in which other runs of the same setting were tested. Where the run of all given ones
            lacks one of them, a given one, or one of its own other steps, its maximum is not the ideal error.
    """
    given: list[str] = list(identity["given"])
    planned = tested_by_fold(identity)
    missing = dict(unusable or {})
    by_fold: dict[str, dict[str, float]] = {}
    everywhere: dict[str, float] = {}
    steps: dict[str, int] = {}
    honest = True  # every tested environment was held out
    for fold, rows in rows_by_fold.items():
        if fold in missing:
            continue
        try:
            step = selection(rows).step
        except DgbenchError as problem:
            missing[fold] = str(problem)
            continue
        test = [row for row in rows if row["step"] == step and row["subset"] == "test"]
        if fold != FULL:
            wanted = set(given)
            if identity.get("folds") and planned:
                wanted = set(planned[int(fold)])
            else:
                test = [row for row in test if row["env_held_out"]]
            test = [row for row in test if row["env"] in wanted]
            honest = honest and all(row["env_held_out"] for row in test)
        judged = {row["env"]: row["wrong"] / row["seen"] for row in test}
        if fold == FULL:
            everywhere = judged
        else:
            by_fold[fold] = judged
        steps[fold] = step
        if not judged and (fold != FULL or beyond(identity)):
            missing[fold] = f"no test row at step {step}"
        elif lacking := [env for env in _planned(fold, planned) if env not in judged]:
            missing[fold] = _lacks(lacking, step)
    expected = expected_folds(identity, [*rows_by_fold, *missing])
    for fold in expected:
        if fold not in rows_by_fold and fold not in missing:
            missing[fold] = "no rows"
    held_out = _means(by_fold, given)
    no_held_out = grouped_reasons({fold: why for fold, why in missing.items() if fold != FULL})
    no_everywhere = grouped_reasons({fold: why for fold, why in missing.items() if fold == FULL})
    known = {*given, *environments, *(row["env"] for row in rows_by_fold.get(FULL, ()) if row["subset"] == "test")}
    if not beyond(identity) or (everywhere and known <= set(given)):
        no_everywhere = "only the given environments exist, so the ideal is not known"
    elif planned is not None and FULL not in expected and not everywhere:
        no_everywhere = f"protocol={identity['protocol']} trains no model on all given environments; use protocol=loo"
    elif everywhere and (lacking := sorted(known - everywhere.keys())):
        no_everywhere = f"fold {FULL}: {_lacks(lacking, steps[FULL])}"
    tests = planned if planned is not None else [list(errors) for errors in by_fold.values()]
    measures = Measures.of(
        held_out,
        everywhere,
        no_held_out=no_held_out,
        no_worst_gap="" if honest and _one_each(tests, given) else _NO_WORST_GAP.format(identity["protocol"]),
        no_everywhere=no_everywhere,
    )
    name = algorithm or algorithm_name(identity)
    sampled = bool(identity.get("grouped")) and identity["evaluation"] == "exact"
    return Study(name, identity["seed"], held_out, everywhere, steps, missing, measures, by_fold, not honest, sampled)


_NO_WORST_GAP = "protocol={} does not hold out each given environment once and alone, as eq. 6 asks; use protocol=loo"


def _planned(fold: str, planned: Sequence[Sequence[str]] | None) -> Sequence[str]:
    """Environments in which the protocol tests that fold; none for ``full``, or where the protocol does not tell."""
    return planned[int(fold)] if planned and fold.isdecimal() and int(fold) < len(planned) else ()


def _lacks(environments: Sequence[str], step: int) -> str:
    """``no test row of 0.10, 0.20, 0.30 and 4 more at step 200``."""
    more = f" and {len(environments) - 3} more" if len(environments) > 3 else ""
    return f"no test row of {', '.join(environments[:3])}{more} at step {step}"


def _one_each(tests: Sequence[Sequence[str]], given: Sequence[str]) -> bool:
    """Whether every given environment is tested by one fold that tests nothing else."""
    return sorted(map(list, tests)) == sorted([env] for env in given)


def _means(by_fold: Mapping[str, Mapping[str, float]], given: Sequence[str]) -> dict[str, float]:
    """Mean error in each environment over the folds tested there, in the order of the given ones."""
    found: dict[str, list[float]] = defaultdict(list)
    for errors in by_fold.values():
        for env, error in errors.items():
            found[env].append(error)
    return {env: math.fsum(found[env]) / len(found[env]) for env in given if env in found}


def fold_name(fold: str, identity: Mapping[str, Any]) -> str:
    """``fold 2 (0.10 held out)``, with ``tested`` for a protocol of groups, or ``fold full``.

    Args:
        fold: name of the fold.
        identity: identity of any run of its study.
    """
    planned = tested_by_fold(identity)
    if planned and fold.isdecimal() and int(fold) < len(planned):
        return f"fold {fold} ({', '.join(planned[int(fold)])} {'tested' if identity.get('folds') else 'held out'})"
    return f"fold {fold}"


def grouped_reasons(missing: Mapping[str, str]) -> str:
    """``folds 0-2, 5: no rows; fold full: failed``: every reason once, with the folds that have it."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for fold, why in missing.items():
        by_reason[why].append(fold)
    return "; ".join(f"fold{'s' * (len(folds) > 1)} {fold_ranges(folds)}: {why}" for why, folds in by_reason.items())


def fold_ranges(folds: Sequence[str]) -> str:
    """``0-2, 5, full``: three or more consecutive numbers as a range, then what is no number."""
    runs: list[list[int]] = []
    for number in sorted(int(fold) for fold in folds if fold.isdecimal()):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join([*words, *sorted(fold for fold in folds if not fold.isdecimal())])
