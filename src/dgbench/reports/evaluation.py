"""From selected runs to one long frame of errors: by setting, algorithm, seed, fold and
environment.

A setting is what may stand in one table (:mod:`.groups`); its lines are those of its studies
(:mod:`.studies`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from dgbench.phases import tracked
from dgbench.plan.folds import tested_by_fold
from dgbench.plan.measures import IDEAL, MeasureChoice, choose
from dgbench.reports.chance import Chance, chance_of
from dgbench.reports.groups import Group, groups_of
from dgbench.reports.labels import setting_titles, slug, variant_text
from dgbench.reports.missing import MissingFolds, account_of
from dgbench.reports.over_seeds import algorithms_of, by_seed
from dgbench.reports.predictions import correlation_frame, selection_frame
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import BY_SEED
from dgbench.reports.reading.selected import Selected, name_column
from dgbench.reports.standing import Verdict, judge
from dgbench.reports.studies import Study, missing_folds, studies_of, study_line, why_missing
from dgbench.reports.unlearnable import notes_of_setting
from dgbench.seeding import ALL

#: protocol of runs that hold out every pair of environments, for leave-one-domain-out validation
PAIRS = "pairs"
_NO_PAIRS = (
    "every environment is held out several times: used by selection=loo_val and "
    "report=leaderboard, not here"
)
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
        for study in studies_of(group, selected, measures):
            coverage.add(study)
            errors.add(study, setting)
            study_key = {"setting": setting.title, "algorithm": study.algorithm, "seed": study.seed}
            lines.append({**study_key, **study_line(study)})
            problems += missing_folds(study)
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
            self._reasons.append(why_missing(study, env, planned))
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
