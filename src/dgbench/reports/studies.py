"""Errors and measures of one study, and what it lacks.

A study is the folds of one algorithm, hyperparameter set and seed; its measures are made of its
errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.analysis import Measured
from dgbench.analysis.accuracy import mean
from dgbench.analysis.selection import Selection
from dgbench.errors import RecordError
from dgbench.plan.folds import FULL, LOO, tested_by_fold
from dgbench.plan.measures import IDEAL, MeasureChoice, choose
from dgbench.reports.groups import Group, groups_of
from dgbench.reports.importers import IMPORTED, is_from_table
from dgbench.reports.missing import (
    NO_ROWS,
    MissingFolds,
    folds_in_words,
    grouped_reasons,
    missing_lines,
    planned_tests,
)
from dgbench.reports.reading.selected import Selected, SelectedRun, select_study
from dgbench.validation import some_of

_NO_WORST_GAP = (
    "protocol={} does not hold out each given environment once and alone, as eq. 6 asks; use "
    "protocol=loo"
)
_NO_FULL = "imported runs have no model of all environments, so the ideal is not known"
_ONLY_GIVEN = "only the given environments exist, so the ideal is not known"


@dataclass(frozen=True, eq=False)
class Study:
    """Errors of one algorithm and seed, fractions in [0, 1]."""

    run: SelectedRun  #: any of its runs
    algorithm: str  #: as tables name it
    seed: int
    #: tested environment -> error there, mean over the runs tested there
    held_out: dict[str, float]
    everywhere: dict[str, float]  #: environment -> error of the run trained on all given ones
    steps: dict[str, int]  #: fold -> selected step
    missing: dict[str, str]  #: expected fold -> why it has no errors
    measures: Measured
    ideal_env: str | None  #: environment of the ideal error, the first one on ties
    tests: pd.DataFrame  #: lines of :class:`Group` that they are made of
    trained_on_tested: (
        bool  #: some tested environment was not held out: no estimate of unseen performance
    )
    sampled: bool  #: errors among exact ones that had to be sampled, see ``RunIdentity.grouped``


def has_no_ideal(studies: pd.DataFrame) -> bool:
    """Return whether no training can make an ideal error known: for every study there is only what
    was imported, or the dataset has no other environments.
    """
    if studies[IDEAL].notna().any():
        return False
    return bool(studies[f"{IDEAL}.reason"].isin([_NO_FULL, _ONLY_GIVEN]).all())


def evaluate_study(
    rows: Sequence[Mapping[str, Any]],
    selection: Selection,
    unusable: Mapping[str, str] | None = None,
    measures: MeasureChoice | None = None,
) -> Study:
    """Select a step in each run of one study and read off its errors.

    Args:
        rows: as :func:`dgbench.records.rows.read_rows` gives them, of any subset of its folds.
        selection: chooses the step of each run.
        unusable: fold -> why its errors must not be used (failed, unfinished), even where there are
            rows.
        measures: that are computed; None takes all that there are.
    """
    selected = select_study(rows, selection, unusable or {})
    (group,) = groups_of(selected)
    (study,) = studies_of(group, selected, measures or choose())
    return study


def studies_of(group: Group, selected: Selected, measures: MeasureChoice) -> Iterator[Study]:
    """Evaluate the studies of a group one after the other."""
    environments = frozenset().union(*(run.environments for run in group.runs))
    for runs, tests in group.studies():
        yield _study(runs, tests, environments, selected.folds_without_rows, measures)


def _study(
    runs: Sequence[SelectedRun],
    tests: pd.DataFrame,
    environments: frozenset[str],
    without_rows: Mapping[Path, Mapping[str, str]],
    choice: MeasureChoice,
) -> Study:
    """Reduce the runs of one study to its errors.

    Args:
        runs: of the study.
        tests: its lines.
        environments: those in which any run of the setting on all given environments was tested, at
            any step. Where this study's lacks one of them, or a given one, its maximum is not the
            ideal error.
        without_rows: study folder -> fold without rows -> why.
        choice: the measures to compute.
    """
    identity = runs[0].identity
    given = list(map(str, identity["given"]))
    planned = tested_by_fold(identity)
    counting = _counting(runs)
    missing = _unusable(runs, counting, without_rows)
    if not missing.keys().isdisjoint(tests["fold"].tolist()):
        tests = tests[~tests["fold"].isin(missing)]
    steps = {fold: run.step for fold, run in counting.items() if fold not in missing}
    tested_in: dict[str, list[str]] = {fold: [] for fold in steps}
    errors: dict[str, dict[str, list[float]]] = {"everywhere": {}, "held_out": {}}
    all_unseen = True
    columns = (tests[name].tolist() for name in ("fold", "role", "env", "error", "env_held_out"))
    for fold, role, env, error, unseen in zip(*columns, strict=True):
        tested_in[fold].append(env)
        errors[role].setdefault(env, []).append(error)
        all_unseen = all_unseen and (unseen or role == "everywhere")
    everywhere = {env: mean(values) for env, values in errors["everywhere"].items()}
    held_out = {env: mean(errors["held_out"][env]) for env in given if env in errors["held_out"]}
    missing |= _lacking_folds(tested_in, steps, planned, bool(identity.get("beyond", True)))
    for fold in expected_folds(identity, [*counting, *missing]):
        if fold not in counting:
            missing.setdefault(fold, NO_ROWS)
    plan = planned
    if plan is None:
        plan = [present for fold, present in tested_in.items() if fold != FULL]
    one_each = sorted(map(list, plan)) == sorted([env] for env in given)
    no_held_out = _no_held_out(identity, missing)
    no_leave_one_out = no_held_out
    if not no_held_out and not (all_unseen and one_each):
        no_leave_one_out = _NO_WORST_GAP.format(identity["protocol"])
    measures = Measured.of(
        choice.computed,
        held_out,
        everywhere,
        {
            "held_out": no_held_out,
            "leave_one_out": no_leave_one_out,
            "everywhere": _no_ideal(identity, everywhere, environments, missing, steps),
        },
    )
    ideal_env = None
    if IDEAL in measures.values:
        ideal_env = max(everywhere, key=lambda env: everywhere[env])
    return Study(
        run=runs[0],
        algorithm=runs[0].label,
        seed=identity["seed"],
        held_out=held_out,
        everywhere=everywhere,
        steps=steps,
        missing=missing,
        measures=measures,
        ideal_env=ideal_env,
        tests=tests,
        trained_on_tested=not all_unseen,
        sampled=bool(identity.get("grouped")) and identity["evaluation"] == "exact",
    )


def _lacking_folds(
    tested_in: Mapping[str, Sequence[str]],
    steps: Mapping[str, int],
    planned: Sequence[Sequence[str]] | None,
    tests_full: bool,
) -> dict[str, str]:
    """Map each fold that lacks test rows at its step to what it lacks.

    Args:
        tested_in: fold -> environments with a row at its step.
        steps: fold -> its step.
        planned: environments that the protocol tests, by fold.
        tests_full: whether the fold ``full`` is tested at all.
    """
    lacking = {}
    for fold, present in tested_in.items():
        if not present and (fold != FULL or tests_full):
            lacking[fold] = f"no test row at step {steps[fold]}"
            continue
        absent = [env for env in planned_tests(fold, planned) if env not in present]
        if absent:
            lacking[fold] = _lacks(absent, steps[fold])
    return lacking


def _no_held_out(identity: Mapping[str, Any], missing: Mapping[str, str]) -> str:
    """Explain why held-out errors are not complete; return an empty text if they are."""
    absences = {fold: reason for fold, reason in missing.items() if fold != FULL}
    if is_from_table(identity):
        return missing_lines(identity, absences)
    return grouped_reasons(absences)


def _counting(runs: Sequence[SelectedRun]) -> dict[str, SelectedRun]:
    """Find the run that counts for each fold.

    Raises:
        RecordError: there are two.
    """
    counting: dict[str, SelectedRun] = {}
    for run in runs:
        if not run.reason:
            other = counting.setdefault(run.identity["fold"], run)
            if other is not run:
                raise RecordError(
                    f"fold {run.identity['fold']} of {run.label} seed {run.identity['seed']} is "
                    f"there twice, in {other.folder} and {run.folder}; take one, or keep them "
                    "apart with split_by"
                )
    return counting


def _unusable(
    runs: Sequence[SelectedRun],
    counting: Mapping[str, SelectedRun],
    without_rows: Mapping[Path, Mapping[str, str]],
) -> dict[str, str]:
    """Map fold -> why its errors must not be used."""
    unusable = {
        run.identity["fold"]: run.reason
        for run in runs
        if run.reason and not run.not_chosen and run.identity["fold"] not in counting
    }
    present = {run.identity["fold"] for run in runs}
    for parent in {Path(run.folder).parent for run in runs}:
        unusable |= {
            fold: reason
            for fold, reason in without_rows.get(parent, {}).items()
            if fold not in present
        }
    if FULL not in present and str(runs[0].identity["code"]).startswith(IMPORTED):
        unusable.setdefault(FULL, _NO_FULL)
    return unusable


def _no_ideal(
    identity: Mapping[str, Any],
    everywhere: Mapping[str, float],
    environments: frozenset[str],
    missing: Mapping[str, str],
    steps: Mapping[str, int],
) -> str:
    """Return why the ideal error of a study cannot be known, or an empty text if it can."""
    given = list(identity["given"])
    all_environments = {*given, *environments}
    if not identity.get("beyond", True) or (everywhere and all_environments <= set(given)):
        return _ONLY_GIVEN
    if (
        tested_by_fold(identity) is not None
        and FULL not in expected_folds(identity, ())
        and not everywhere
    ):
        return (
            f"protocol={identity['protocol']} trains no model on all given environments; use "
            "protocol=loo"
        )
    lacking = sorted(all_environments - everywhere.keys())
    if everywhere and lacking:
        return f"{folds_in_words([FULL])}: {_lacks(lacking, steps[FULL])}"
    if missing.get(FULL) == _NO_FULL:
        return _NO_FULL
    return grouped_reasons({fold: reason for fold, reason in missing.items() if fold == FULL})


def study_line(study: Study) -> dict[str, Any]:
    """Write what the frame of studies says of one, see :class:`.evaluation.Evaluation`."""
    return {
        **study.measures.values,
        **{f"{name}.reason": reason for name, reason in study.measures.reasons.items()},
        "ideal_env": study.ideal_env,
        "steps": ", ".join(map(str, sorted(set(study.steps.values())))) or None,
        "missing": grouped_reasons(study.missing),
        "trained_on_tested": study.trained_on_tested,
        "sampled": study.sampled,
    }


def why_missing(study: Study, env: str, planned: Sequence[Sequence[str]] | None) -> str | None:
    """Return why an environment that some fold tests has no error, or None if it has one."""
    if env in study.held_out:
        return None
    for fold, reason in study.missing.items():
        if env in planned_tests(fold, planned):
            return reason
    return None


def missing_folds(study: Study) -> list[MissingFolds]:
    """Describe what a study lacks, in at most one item; an imported one lacks no ideal."""
    missing = MissingFolds(study.run, study.missing)
    is_known = missing.is_imported and set(study.missing) == {FULL}
    return [] if is_known or not study.missing else [missing]


def expected_folds(identity: Mapping[str, Any], present: Iterable[str]) -> list[str]:
    """List the folds a complete study has; those that are present where the protocol does not tell.

    Args:
        identity: identity of any run.
        present: folds that there are.
    """
    planned = tested_by_fold(identity)
    if planned is None:
        return sorted(set(present))
    full = identity["protocol"] == LOO and identity.get("beyond", True)
    return [*map(str, range(len(planned))), *([FULL] if full else [])]


def _lacks(environments: Sequence[str], step: int) -> str:
    """Write ``no test row of 0.10, 0.20, 0.30 and 4 more at step 200``."""
    return f"no test row of {some_of(environments)} at step {step}"
