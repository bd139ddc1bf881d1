"""From selected runs to one long frame of errors: by setting, algorithm, seed, fold and
environment.

A setting is what may stand in one table: the same dataset, network and protocol. A study is the
folds of one algorithm, hyperparameter set and seed; its measures are made of its errors.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import Measured
from dgbench.analysis.accuracy import mean
from dgbench.analysis.selection import Selection
from dgbench.errors import RecordError
from dgbench.phases import tracked
from dgbench.plan.folds import FULL, LOO, tested, tested_by_fold
from dgbench.plan.measures import IDEAL, MeasureChoice, choose
from dgbench.records.run_identity import Role, identity_keys, keys
from dgbench.reports.chance import Chance, chance_of
from dgbench.reports.importers import IMPORTED, is_from_table
from dgbench.reports.labels import setting_titles, slug, variant_text
from dgbench.reports.missing import (
    NO_ROWS,
    MissingFolds,
    account_of,
    folds_in_words,
    grouped_reasons,
    missing_lines,
    planned_tests,
)
from dgbench.reports.over_seeds import algorithms_of, by_seed
from dgbench.reports.predictions import correlation_frame, selection_frame
from dgbench.reports.reading.collect import ADVICE
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import BY_SEED
from dgbench.reports.reading.selected import (
    Selected,
    SelectedRun,
    check_key,
    name_column,
    no_seeds,
    once_per_network,
    select_study,
)
from dgbench.reports.standing import Verdict, judge
from dgbench.reports.unlearnable import notes_of_setting
from dgbench.seeding import ALL
from dgbench.validation import some_of

#: protocol of runs that hold out every pair of environments, for leave-one-domain-out validation
PAIRS = "pairs"
_NO_PAIRS = (
    "every environment is held out several times: used by selection=loo_val and "
    "report=leaderboard, not here"
)
_NO_WORST_GAP = (
    "protocol={} does not hold out each given environment once and alone, as eq. 6 asks; use "
    "protocol=loo"
)
_NO_FULL = "imported runs have no model of all environments, so the ideal is not known"
_ONLY_GIVEN = "only the given environments exist, so the ideal is not known"
#: columns of ``studies`` after the measures
_OF_STUDY = ("ideal_env", "steps", "missing", "trained_on_tested", "sampled")


@dataclass(frozen=True)
class Setting:
    """What the studies of one table share."""

    title: str
    #: its keys of :attr:`Role.SETTING`, and what the report is split by
    identity: Mapping[str, Any]
    codes: tuple[str, ...]  #: code version of the runs that count, or nothing if no run counts
    #: what its results must beat, or None if the number of classes is not known
    chance: Chance | None = field(default=None, compare=False)
    #: on classes that no model could learn
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """Title as a name for files and anchors."""
        return slug(self.title)

    @property
    def given(self) -> list[str]:
        """Names of the N given environments."""
        return list(map(str, self.identity["given"]))


def repeats(identity: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether another setting repeats the first's results with seeds that vary only a part
    of its randomness.

    Where every seed of the first has data of its own, the other may have one draw of them.
    """
    if identity["seed_moves"] != ALL or other["seed_moves"] == ALL:
        return False
    return all(
        other[key] == value
        for key, value in identity.items()
        if key != "seed_moves" and value != BY_SEED
    )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Errors and measures of every study.

    ``errors`` has one line per study, environment and ``role``: ``setting`` (a title),
    ``algorithm``, ``seed``, ``role``, ``env``, ``error`` (a fraction, the mean over the runs that
    are tested there) and ``error.reason``.

    ``studies`` has one line per study: ``setting``, ``algorithm`` (as tables name it), ``seed``,
    the computed ``measures`` (with ``NAME.reason`` where there is none), ``ideal_env``, ``steps``
    (selected), ``missing`` (folds without errors, with reasons), ``trained_on_tested`` (the models
    saw other images of the environments that they are tested in), ``sampled`` (errors among exact
    ones that had to be sampled).
    """

    settings: tuple[Setting, ...]
    studies: pd.DataFrame
    errors: pd.DataFrame
    left_out: tuple[Problem | MissingFolds, ...] = ()
    measures: MeasureChoice = field(default_factory=choose)

    @cached_property
    def problems(self) -> list[Problem]:
        """What was left out, and what studies lack with the command that fills it.

        A report asks for it: only this looks into the folders of runs, for what was typed.
        """
        return account_of(self.left_out)

    @cached_property
    def correlations(self) -> pd.DataFrame:
        """Rank correlations with the ideal of every other measure, see
        :func:`~dgbench.reports.predictions.correlation_frame`.
        """
        others = [measure.name for measure in self.measures.computed if measure.name != IDEAL]
        return correlation_frame(self.studies, others)

    @cached_property
    def selections(self) -> pd.DataFrame:
        """Whom every measure selects, see :func:`~dgbench.reports.predictions.selection_frame`."""
        return selection_frame(self.studies, [measure.name for measure in self.measures.computed])

    @cached_property
    def verdicts(self) -> dict[str, Verdict | None]:
        """Name of the ideal or of a measure that ranks -> who leads this one setting by it, or None
        if no algorithm has a value.
        """
        names = algorithms_of(self.studies)
        ranking = [measure.name for measure in self.measures.ranked]
        return {name: judge(by_seed(self.studies, name), absent=names) for name in ranking}

    def of(self, title: str) -> Evaluation:
        """Restrict the evaluation to one setting, without the problems.

        It is the same object each time, so that what is computed of it is computed once.
        """
        if title not in self._of_settings:
            self._of_settings[title] = Evaluation(
                tuple(setting for setting in self.settings if setting.title == title),
                _of_setting(self.studies, title),
                _of_setting(self.errors, title),
                measures=self.measures,
            )
        return self._of_settings[title]

    @cached_property
    def _of_settings(self) -> dict[str, Evaluation]:
        return {}

    def repetitions(self, setting: Setting) -> dict[str, pd.DataFrame]:
        """Map ``seed_moves`` -> studies of the settings that repeat one, see :func:`repeats`."""
        repeating = {
            s.title: s.identity for s in self.settings if repeats(setting.identity, s.identity)
        }
        return {
            identity["seed_moves"]: self.of(title).studies for title, identity in repeating.items()
        }


def _of_setting(lines: pd.DataFrame, title: str) -> pd.DataFrame:
    """Return the lines of a setting: the frame itself, which may be large, if it has no others."""
    is_of_setting = lines["setting"] == title
    return lines if is_of_setting.all() else lines[is_of_setting]


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one setting, those that do not count included, and the ``tests`` of those that
    do.
    """

    identity: Mapping[str, Any]  #: what they share
    runs: Sequence[SelectedRun]
    codes: tuple[str, ...]
    tests: pd.DataFrame  #: see :class:`~dgbench.reports.reading.selected.Selected`

    def studies(self) -> Iterator[tuple[list[SelectedRun], pd.DataFrame]]:
        """Iterate over the runs of every study with their lines of ``tests``, by algorithm and
        seed.

        One study at a time is in memory: there may be thousands.
        """
        runs: dict[tuple[str, int], list[SelectedRun]] = defaultdict(list)
        for run in self.runs:
            runs[run.label, run.identity["seed"]].append(run)
        lines: dict[Any, Any] = self.tests.groupby(["algorithm", "seed"], sort=False).indices
        for key in sorted(runs):
            yield runs[key], self.tests.take(lines.get(key, np.empty(0, dtype=np.intp)))


def groups_of(selected: Selected, split_by: str | None = None, ideal: bool = True) -> list[Group]:
    """Group runs by setting.

    Args:
        selected: runs at their selected steps.
        split_by: one more identity key (e.g. ``code``) whose values get settings of their own.
        ideal: False leaves out runs that are tested in no given environment.

    Raises:
        RecordError: one setting would mix code versions.
        ConfigError: ``split_by`` is no identity key.
    """
    check_key(split_by)
    if selected.published:
        raise no_seeds(selected.published)
    names = keys(Role.SETTING, split_by)
    placed: dict[tuple[str, ...], list[tuple[int, SelectedRun]]] = defaultdict(list)
    numbered = once_per_network([run.identity for run in selected.runs])
    for (number, identity), key in zip(
        numbered, identity_keys([i for _, i in numbered], names), strict=True
    ):
        if ideal or tested(identity):
            run = selected.runs[number]
            run = run if identity is run.identity else replace(run, identity=identity)
            placed[key].append((number, run))
    groups = []
    for _, of_setting in sorted(placed.items()):
        runs = [run for _, run in of_setting]
        identity = {key: runs[0].identity[key] for key in names}
        counted = selected.tests["run"].isin(
            [number for number, run in of_setting if not run.reason]
        )
        tests = selected.tests if counted.all() else selected.tests[counted]
        groups.append(Group(identity, runs, one_code(runs, identity), tests))
    return groups


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


def evaluate(
    selected: Selected, split_by: str | None = None, measures: MeasureChoice | None = None
) -> Evaluation:
    """Evaluate every study, setting by setting.

    Args:
        selected: runs at their selected steps.
        split_by: one more identity key (e.g. ``code``) whose values get tables of their own.
        measures: of the tables; None takes all that there are.

    Raises:
        RecordError: one table would mix code versions, or two runs of one fold would share a line.
        ConfigError: ``split_by`` is no identity key.
    """
    measures = measures or choose()
    problems: list[Problem | MissingFolds] = list(selected.problems)
    groups = groups_of(selected, split_by)
    settings: list[tuple[Setting, Group]] = []
    lines: list[dict[str, Any]] = []
    errors = _ErrorLines()
    titles = iter(
        setting_titles([group.identity for group in groups if group.identity["protocol"] != PAIRS])
    )
    for group in tracked(groups, "evaluating studies", len(groups), "settings"):
        if group.identity["protocol"] == PAIRS:
            place = f"{variant_text(group.identity)}, {len(group.runs)} runs"
            problems.append(Problem("pair runs", place, _NO_PAIRS))
            continue
        setting = Setting(next(titles), group.identity, group.codes)
        coverage = _Coverage()
        for study in _studies(group, selected, measures):
            coverage.add(study)
            errors.add(study, setting)
            study_key = {"setting": setting.title, "algorithm": study.algorithm, "seed": study.seed}
            lines.append({**study_key, **_line(study)})
            problems += _missing_folds(study)
        settings.append((replace(setting, chance=_chance(group, coverage, measures)), group))
        problems += coverage.problems()
    # both frames keep names as Python's strings: tables read them by the thousand, Arrow's make
    # that ten times slower
    names = [measure.name for measure in measures.computed]
    study_columns = ["setting", "algorithm", "seed", *names, *_OF_STUDY]
    reason_columns = [f"{name}.reason" for name in names]
    study_frame = pd.DataFrame(lines).reindex(columns=[*study_columns, *reason_columns])
    study_frame = study_frame.astype(
        {**dict.fromkeys(names, "float64"), "setting": object, "algorithm": object}
    )
    error_frame = errors.frame()
    noted = tuple(
        replace(setting, notes=_on_classes(group, setting, error_frame))
        for setting, group in settings
    )
    return Evaluation(noted, study_frame, error_frame, tuple(problems), measures)


class _ErrorLines:
    """The ``errors`` of :class:`Evaluation`, column by column: lines as mappings would take ten
    times the memory.
    """

    def __init__(self) -> None:
        self._studies: list[tuple[str, str, int]] = []
        self._counts: list[int] = []  # lines of each study
        self._roles: list[str] = []
        self._environments: list[str] = []
        self._errors = array("d")
        self._reasons: list[str | None] = []

    def add(self, study: Study, setting: Setting) -> None:
        """Append the lines of a study."""
        planned = tested_by_fold(setting.identity)
        in_a_fold = set(chain.from_iterable(planned or [setting.given]))
        held_out = [env for env in setting.given if env in in_a_fold]
        for env in held_out:
            self._errors.append(study.held_out.get(env, math.nan))
            self._reasons.append(_why_missing(study, env, planned))
        self._errors.extend(study.everywhere.values())
        self._reasons += [None] * len(study.everywhere)
        self._environments += [*held_out, *study.everywhere]
        self._roles += ["held_out"] * len(held_out) + ["everywhere"] * len(study.everywhere)
        self._studies.append((setting.title, study.algorithm, study.seed))
        self._counts.append(len(held_out) + len(study.everywhere))

    def frame(self) -> pd.DataFrame:
        """Build the frame; names stay Python's strings, see :func:`evaluate`."""
        settings, algorithms, seeds = (
            zip(*self._studies, strict=True) if self._studies else ((), (), ())
        )

        def per_line(names: Sequence[str]) -> pd.Series[Any]:
            return name_column(np.repeat(np.array(names, dtype=object), self._counts))

        return pd.DataFrame(
            {
                "setting": per_line(settings),
                "algorithm": per_line(algorithms),
                "seed": np.repeat(np.array(seeds, dtype="int64"), self._counts),
                "role": name_column(np.array(self._roles, dtype=object)),
                "env": name_column(np.array(self._environments, dtype=object)),
                "error": np.array(self._errors),
                "error.reason": name_column(np.array(self._reasons, dtype=object)),
            },
            copy=False,
        )


class _Coverage:
    """In which environments the studies of a setting were tested, and which measures they have."""

    def __init__(self) -> None:
        self.held_out: set[str] = set()
        self.everywhere: dict[str, None] = {}
        self.measures: set[str] = set()
        self._grids: set[frozenset[str]] = set()
        self._without_ideal: set[str] = set()

    def add(self, study: Study) -> None:
        """Count a study in."""
        self.held_out.update(study.held_out)
        self.everywhere |= dict.fromkeys(study.everywhere)
        self.measures.update(study.measures.values)
        if study.everywhere:
            self._grids.add(frozenset(study.everywhere))
            if IDEAL not in study.measures.values:
                self._without_ideal.add(study.algorithm)

    def problems(self) -> list[Problem]:
        """Report models of all given environments that were tested in different ones."""
        if len(self._grids) < 2:
            return []
        sizes = ", ".join(map(str, sorted(map(len, self._grids))))
        reason = (
            f"models of all given environments were tested in sets of {sizes} environments: "
            "no ideal where one is missing"
        )
        return [Problem("environments differ", ", ".join(sorted(self._without_ideal)), reason)]


def _chance(group: Group, coverage: _Coverage, choice: MeasureChoice) -> Chance | None:
    """Compute what the studies of a setting must beat, in the environments in which any of them is
    tested.
    """
    held_out = [env for env in group.identity["given"] if env in coverage.held_out]
    measures = [measure for measure in choice.computed if measure.name in coverage.measures]
    identities = [run.identity for run in group.runs]
    return chance_of(identities, group.tests, held_out, list(coverage.everywhere), measures)


def _on_classes(group: Group, setting: Setting, errors: pd.DataFrame) -> tuple[str, ...]:
    """Name the classes that the models of a setting were tested on and could not learn."""
    identities = [run.identity for run in group.runs if not run.reason]
    if not any(identity.get("unlearnable") for identity in identities):
        return ()
    held_out = errors[(errors["setting"] == setting.title) & (errors["role"] == "held_out")]
    return tuple(notes_of_setting(identities, held_out[["env", "error"]]))


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
    (study,) = _studies(group, selected, measures or choose())
    return study


def _studies(group: Group, selected: Selected, measures: MeasureChoice) -> Iterator[Study]:
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


def _line(study: Study) -> dict[str, Any]:
    return {
        **study.measures.values,
        **{f"{name}.reason": reason for name, reason in study.measures.reasons.items()},
        "ideal_env": study.ideal_env,
        "steps": ", ".join(map(str, sorted(set(study.steps.values())))) or None,
        "missing": grouped_reasons(study.missing),
        "trained_on_tested": study.trained_on_tested,
        "sampled": study.sampled,
    }


def one_code(runs: Sequence[SelectedRun], shared: Mapping[str, Any]) -> tuple[str, ...]:
    """Find the code version of the finished runs among these; none when no run is finished.

    Raises:
        RecordError: there are several.
    """
    folders: dict[str, str] = {}
    for run in runs:
        if run.finished:
            folders.setdefault(str(run.identity["code"]), run.folder)
    if len(folders) > 1:
        listed = ", ".join(f"{code} (e.g. {folder})" for code, folder in sorted(folders.items()))
        raise RecordError(
            f"{shared['dataset']} results of {len(folders)} code versions would share a table: "
            f"{listed}; give them tables of their own with "
            f"{ADVICE.replace('...', ','.join(sorted(folders)))}"
        )
    return tuple(folders)


def _why_missing(study: Study, env: str, planned: Sequence[Sequence[str]] | None) -> str | None:
    """Return why an environment that some fold tests has no error, or None if it has one."""
    if env in study.held_out:
        return None
    for fold, reason in study.missing.items():
        if env in planned_tests(fold, planned):
            return reason
    return None


def _missing_folds(study: Study) -> list[MissingFolds]:
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
