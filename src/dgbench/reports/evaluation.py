"""Evaluates every study and sorts studies into settings: what may stand in one table.

A study: the folds of one algorithm, hyperparameter set and seed, reduced to its errors at the selected steps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.analysis import MEASURES, Measures
from dgbench.analysis.selection import Last, Rows, Selection
from dgbench.errors import ConfigError, DgbenchError, RecordError
from dgbench.protocols.folds import FULL, LOO, tested_by_fold
from dgbench.records.rows import Role, RunIdentity, identity_key, keys
from dgbench.reports.importers import IMPORTED
from dgbench.reports.labels import algorithm_name, setting_titles, slug, variant_text
from dgbench.reports.reading.collect import ADVICE
from dgbench.reports.reading.folders import Problem, filling_command
from dgbench.reports.reading.selected import SelectedRun, SelectedRuns, beside_trained
from dgbench.reports.tables import entry

IDENTITY_KEYS = tuple(RunIdentity.__dataclass_fields__)
#: protocol of runs that hold out every pair of environments, for leave-one-domain-out validation
PAIRS = "pairs"
#: missing folds that are named with their environments; more are given as ranges
_MOST_NAMED = 4


@dataclass(frozen=True)
class Setting:
    """What the studies of one table share."""

    title: str
    identity: Mapping[str, Any]  #: its keys of :attr:`Role.SETTING`, and what the report is split by
    codes: tuple[str, ...]  #: code versions of the runs that count: one, or none where no run does

    @property
    def name(self) -> str:
        """For files and anchors."""
        return slug(self.title)

    @property
    def given(self) -> list[str]:
        """Names of the N given environments."""
        return list(map(str, self.identity["given"]))


@dataclass(frozen=True)
class Evaluation:
    """Errors of every study.

    ``studies`` has one line per study: ``setting`` (a title), ``algorithm`` (as tables name it), ``seed``, the
    measures (fractions, with ``NAME.reason`` where there is none), ``ideal_env``, ``steps`` (selected), ``missing``
    (folds without errors, with reasons), ``trained_on_tested`` (the models saw other images of the environments
    that they are tested in), ``sampled`` (errors among exact ones that had to be sampled).

    ``errors`` has one line per study, environment and ``role``: ``held_out`` is the mean over the runs that are
    tested there, ``everywhere`` the error of the run trained on all given environments; ``error`` is a fraction.
    """

    settings: tuple[Setting, ...]
    studies: pd.DataFrame
    errors: pd.DataFrame
    problems: tuple[Problem, ...] = ()

    def of(self, title: str) -> Evaluation:
        """One setting."""
        return Evaluation(
            tuple(setting for setting in self.settings if setting.title == title),
            self.studies[self.studies["setting"] == title],
            self.errors[self.errors["setting"] == title],
        )


def evaluate(selected: SelectedRuns, split_by: str | None = None) -> Evaluation:
    """Evaluate every study, setting by setting.

    Args:
        selected: runs at their selected steps.
        split_by: one more identity key (e.g. ``code``) whose values get tables of their own.

    Raises:
        RecordError: one table would mix code versions, or two runs of one fold would share a line.
        ConfigError: ``split_by`` is no identity key.
    """
    check_key(split_by)
    names = keys(Role.SETTING, split_by)
    grouped: dict[str, list[SelectedRun]] = defaultdict(list)
    for number, identity in beside_trained([run.identity for run in selected.runs]):
        run = selected.runs[number]
        run = run if identity is run.identity else replace(run, identity=identity)
        grouped[identity_key(run.identity, names)].append(run)
    problems: list[Problem] = []
    found: list[tuple[dict[str, Any], tuple[str, ...], list[Study]]] = []
    for _, runs in sorted(grouped.items(), key=lambda item: item[0]):
        shared = {key: runs[0].identity[key] for key in names}
        codes = one_code(runs, shared)
        if shared["protocol"] == PAIRS:
            problems.append(_pairs(shared, len(runs)))
            continue
        known = frozenset().union(*(run.environments for run in runs))
        studies = []
        by_study: dict[tuple[str, int], list[SelectedRun]] = defaultdict(list)
        for run in runs:
            by_study[run.label, run.identity["seed"]].append(run)
        for (label, _), own in sorted(by_study.items(), key=lambda item: item[0]):
            study = _study(label, own, selected.silent, known)
            studies.append(study)
            problems += _missing(study, own[0].identity, Path(own[0].folder))
        found.append((shared, codes, studies))
        problems += _other_environments(studies)
    titles = setting_titles([shared for shared, _, _ in found])
    settings = tuple(Setting(title, shared, codes) for title, (shared, codes, _) in zip(titles, found, strict=True))
    lines: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for setting, (_, _, studies) in zip(settings, found, strict=True):
        for study in studies:
            lines.append({"setting": setting.title, **_line(study)})
            errors += [{"setting": setting.title, **line} for line in _errors(study, setting)]
    return Evaluation(settings, _studies_frame(lines), _errors_frame(errors), tuple(problems))


def check_key(split_by: str | None) -> None:
    """Refuse what runs cannot be split by.

    Raises:
        ConfigError: it is no identity key.
    """
    if split_by is not None and split_by not in IDENTITY_KEYS:
        raise ConfigError(f"split_by={split_by} is no identity key; choose one of {', '.join(IDENTITY_KEYS)}")


# Both frames keep names as Python's strings: tables read them by the thousand, which Arrow's make ten times slower.


def _studies_frame(lines: list[dict[str, Any]]) -> pd.DataFrame:
    names = ["setting", "algorithm", "seed", *MEASURES, "ideal_env", "steps", "missing", "trained_on_tested", "sampled"]
    frame = pd.DataFrame(lines)
    frame = frame.reindex(columns=[*names, *(f"{name}.reason" for name in MEASURES)])
    return frame.astype({**dict.fromkeys(MEASURES, "float64"), "setting": object, "algorithm": object})


def _errors_frame(lines: list[dict[str, Any]]) -> pd.DataFrame:
    names = ["setting", "algorithm", "seed", "role", "env", "error", "error.reason"]
    return pd.DataFrame(lines, columns=names).astype(dict.fromkeys(("setting", "algorithm", "role", "env"), object))


def _study(
    label: str, runs: Sequence[SelectedRun], silent: Mapping[Path, Mapping[str, str]], known: frozenset[str]
) -> Study:
    """``known``: environments in which any run of the setting was tested."""
    counting: dict[str, SelectedRun] = {}
    for run in runs:
        if not run.why:
            twice = counting.setdefault(run.identity["fold"], run)
            if twice is not run:
                raise RecordError(
                    f"fold {run.identity['fold']} of {label} seed {run.identity['seed']} is there twice, in "
                    f"{twice.folder} and {run.folder}; take one, or keep them apart with split_by"
                )
    unusable = {
        run.identity["fold"]: run.why
        for run in runs
        if run.why and not run.lost and run.identity["fold"] not in counting
    }
    present = {run.identity["fold"] for run in runs}
    for parent in {Path(run.folder).parent for run in runs}:
        unusable |= {fold: why for fold, why in silent.get(parent, {}).items() if fold not in present}
    identity = runs[0].identity
    if str(identity["code"]).startswith(IMPORTED):
        unusable.setdefault(FULL, "imported runs have no model of all environments, so the ideal is not known")
    rows = {fold: run.rows for fold, run in counting.items()}
    # the rows are those of the selected step
    return evaluate_study(rows, identity, Last(), algorithm=label, unusable=unusable, environments=known)


def _line(study: Study) -> dict[str, Any]:
    line: dict[str, Any] = {"algorithm": study.algorithm, "seed": study.seed}
    for name in MEASURES:
        line |= entry(name, study.measures.value(name), reason=study.measures.reasons.get(name, ""))
    return {
        **line,
        "ideal_env": study.measures.ideal_env,
        "steps": ", ".join(map(str, sorted(set(study.steps.values())))) or None,
        "missing": grouped_reasons(study.missing),
        "trained_on_tested": study.trained_on_tested,
        "sampled": study.sampled,
    }


def _errors(study: Study, setting: Setting) -> list[dict[str, Any]]:
    planned = tested_by_fold(setting.identity)
    who = {"algorithm": study.algorithm, "seed": study.seed}
    lines = []
    for env in tested_environments(setting):
        tests = [fold for fold in study.missing if env in _tests(fold, planned)]
        why = "" if env in study.held_out else next((study.missing[fold] for fold in tests), "")
        lines.append({**who, "role": "held_out", "env": env, **entry("error", study.held_out.get(env), reason=why)})
    everywhere = [{**who, "role": "everywhere", "env": env, "error": e} for env, e in study.everywhere.items()]
    return lines + everywhere


def tested_environments(setting: Setting) -> list[str]:
    """The given environments that some fold tests, in order."""
    planned = tested_by_fold(setting.identity)
    any_fold = {env for tests in planned or [setting.given] for env in tests}
    return [env for env in setting.given if env in any_fold]


def _tests(fold: str, planned: Sequence[Sequence[str]] | None) -> Sequence[str]:
    return planned[int(fold)] if planned and fold.isdecimal() and int(fold) < len(planned) else ()


def one_code(runs: Sequence[SelectedRun], shared: Mapping[str, Any]) -> tuple[str, ...]:
    """The code version of the runs among these that are finished; none when no run is.

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
            f"{shared['dataset']} results of {len(folders)} code versions would share a table: {listed}; "
            f"give them tables of their own with {ADVICE}"
        )
    return tuple(folders)


def _pairs(shared: Mapping[str, Any], runs: int) -> Problem:
    why = "every environment is held out several times: used by selection=loo_val and report=leaderboard, not here"
    return Problem("pair runs", f"{variant_text(shared)}, {runs} runs", why)


def _missing(study: Study, identity: Mapping[str, Any], folder: Path) -> list[Problem]:
    imported = str(identity["code"]).startswith(IMPORTED)
    if not study.missing or (imported and set(study.missing) == {FULL}):
        return []
    what = grouped_reasons(study.missing)
    if len(study.missing) <= _MOST_NAMED:
        what = "; ".join(f"{fold_name(fold, identity)}: {why}" for fold, why in study.missing.items())
    again = "run it where the sweep was made and import the folder again"
    fill = again if imported else filling_command(folder, list(study.missing))
    where = f"{variant_text(identity)}, {study.algorithm} seed {study.seed}"
    return [Problem("missing folds", where, f"{what}. To fill: {fill}")]


def _other_environments(studies: Sequence[Study]) -> list[Problem]:
    grids = {frozenset(study.everywhere) for study in studies if study.everywhere}
    if len(grids) < 2:
        return []
    sizes = ", ".join(str(size) for size in sorted(len(grid) for grid in grids))
    lacking = {study.algorithm for study in studies if study.everywhere and study.measures.ideal is None}
    why = f"models of all given environments were tested in sets of {sizes} environments: no ideal where one is missing"
    return [Problem("environments differ", ", ".join(sorted(lacking)), why)]


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
        elif lacking := [env for env in tested_in_fold(fold, planned) if env not in judged]:
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


def tested_in_fold(fold: str, planned: Sequence[Sequence[str]] | None) -> Sequence[str]:
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
