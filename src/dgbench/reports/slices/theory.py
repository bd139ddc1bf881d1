"""``report=theory``: how often what theorems assume, and what they conclude, holds for the models
of a report.

Hwang et al. (2024) bound a model's largest error over all environments by its errors in the N given
ones (Theorem 3.4, eq. 30), and from that the ideal error by worst+gap (eq. 39). Zhang et al. (2023)
bound the error in held-out environments by that in training plus covariate and concept shift
(Theorem 4.2). Every statement here says of a case, a model or a study, that one number is at most
another; the difference is its slack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.accuracy import mean
from dgbench.analysis.selection import Selection
from dgbench.plan.folds import FULL, tested
from dgbench.plan.settings import FileName
from dgbench.reports.document import (
    Document,
    Report,
    Section,
    leads,
    problem_table,
    selection_text,
    warnings,
)
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.labels import setting_labels, sortable
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import Identity, Selected, select_runs
from dgbench.reports.reading.shift_settings import estimates_of, form_of, forms_of
from dgbench.reports.tables import Column, Table, entries, entry, percent, table
from dgbench.reports.words import WORDS, glossary
from dgbench.validation import Folders

RANGE = "range"
BOUND = "bound"
ADDED = "added"
IDEAL = "ideal"
WORST = "worst"
SHIFT = "shift"
#: statement -> where it stands, and what it says
STATEMENTS = {
    RANGE: ("Theorem 3.4, assumption", "M and m are within (b - a) / N of b and a"),
    BOUND: ("Theorem 3.4, eq. 30", "b <= M + (M - m) / (N - 2)"),
    ADDED: ("section 3.3.3, assumption", "an added environment does not raise the largest error"),
    IDEAL: ("eq. 39", "ideal <= worst + gap / (N - 2)"),
    WORST: ("eq. 39 without the gap", "ideal <= worst"),
    SHIFT: ("Zhang et al., Theorem 4.2", "held-out error <= training error + M_cov + M_cpt min"),
}
_TERMS = ("training", "covariate", "concept")  # of Theorem 4.2's right side
#: names of environments are rounded to 4 digits, so that errors in them are off a straight line by
#: as much
TOLERANCE = 1e-4
_COLUMNS = ("statement", "setting", "algorithm", "seed", "env", "left", "right", "reason", *_TERMS)

#: M_cov and M_cpt min, by form of the dataset and the environments of either side
Shifts = Mapping[tuple[str, frozenset[str], frozenset[str]], tuple[float, float]]


def errors_everywhere(
    identity: Identity, errors: Mapping[str, float], environments: frozenset[str]
) -> Mapping[str, float]:
    """Compute the errors of one model in all environments; return {} if they are not known.

    Exact errors of a model that predicts each image by itself are a straight line in the number
    that names an environment, so a few of them give all (``docs/concepts/evaluation.md``).

    Args:
        identity: of the run.
        errors: environment -> error there, a fraction.
        environments: all that there are.
    """
    if environments <= errors.keys():
        return {env: errors[env] for env in environments}
    if identity["evaluation"] != "exact" or identity["grouped"] or len(errors) < 3:
        return {}
    try:
        tested_in, all_of_them = (
            np.array([*map(float, names)]) for names in (errors, environments)
        )
    except ValueError:
        return {}
    values = np.array([*errors.values()])
    line = np.polynomial.Polynomial.fit(tested_in, values, 1)
    straight = np.allclose(line(tested_in), values, rtol=0, atol=TOLERANCE)
    return dict(zip(environments, line(all_of_them).tolist(), strict=True)) if straight else {}


def checks_of(
    collection: Collection,
    selected: Selected,
    evaluation: Evaluation,
    shifts: Shifts,
    split_by: str | None = None,
) -> pd.DataFrame:
    """Check every statement in every case.

    Args:
        collection: all rows.
        selected: the steps and draws that count.
        evaluation: their measures.
        shifts: estimates of :func:`shifts_of`.
        split_by: one more identity key whose values are kept apart.

    Returns:
        One line per statement and case: ``statement`` (a key of :data:`STATEMENTS`), ``setting`` (a
        title), ``algorithm``, ``seed``, ``env`` (what is held out), ``left``, ``right`` (fractions;
        NaN where one is not known), ``reason`` (why not), ``training``, ``covariate``, ``concept``
        (what adds up to the right side of Theorem 4.2), ``slack``.
    """
    lines = [*_check_studies(evaluation), *_check_models(collection, selected, shifts, split_by)]
    checks = pd.DataFrame(lines, columns=list(_COLUMNS)).astype(
        {"left": "float64", "right": "float64"}
    )
    return checks.assign(slack=checks["right"] - checks["left"])


def _check_studies(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Check equation 39, with and without its gap term, for every study."""
    for study in evaluation.studies.to_dict("records"):
        for statement, measure in ((IDEAL, "worst_gap"), (WORST, "worst")):
            reasons = [study["ideal.reason"], study[f"{measure}.reason"]]
            reason = next((text for text in reasons if isinstance(text, str)), "")
            case = {key: study[key] for key in ("setting", "algorithm", "seed")}
            yield {
                "statement": statement,
                **case,
                "left": study["ideal"],
                "right": study[measure],
                "reason": reason,
            }


def _check_models(
    collection: Collection, selected: Selected, shifts: Shifts, split_by: str | None
) -> Iterator[dict[str, Any]]:
    """Check Theorem 3.4 for every model, section 3.3.3 and Theorem 4.2 for those trained without an
    environment.
    """
    rows = collection.rows.assign(error=collection.rows["wrong"] / collection.rows["seen"])
    steps = np.array([run.step if not run.reason else -1 for run in selected.runs])
    rows = rows[rows["step"].to_numpy() == steps[rows["run"].to_numpy()]]
    errors: dict[tuple[int, str], dict[str, float]] = defaultdict(dict)
    columns = [rows[name] for name in ("run", "subset", "env", "error")]
    for number, subset, env, error in zip(*columns, strict=True):
        errors[number, subset][str(env)] = error
    studies: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    environments: dict[str, frozenset[str]] = defaultdict(frozenset)
    labels = setting_labels([run.identity for run in selected.runs], split_by)
    for number, (run, (title, _)) in enumerate(zip(selected.runs, labels, strict=True)):
        given = {*run.identity["given"]}
        # tested in given environments alone, a run does not tell what an unseen one would do
        if not run.environments <= given:
            environments[title] |= run.environments | given
        if not run.reason:
            studies[title, run.label, run.identity["seed"]].append(number)
    for (title, algorithm, seed), numbers in studies.items():
        identity_of = {number: selected.runs[number].identity for number in numbers}
        everywhere = {
            number: errors_everywhere(identity, errors[number, "test"], environments[title])
            for number, identity in identity_of.items()
        }
        of_all = [number for number in numbers if identity_of[number]["fold"] == FULL]
        full = of_all[0] if of_all else None
        ideal = everywhere[full] if full is not None else {}
        for number, identity in identity_of.items():
            case = {"setting": title, "algorithm": algorithm, "seed": seed}
            if number == full or identity["held_out"]:
                for line in _theorem(identity["given"], everywhere[number]):
                    yield {**case, **line}
            if number != full and identity["held_out"]:
                case["env"] = "+".join(tested(identity))
                yield {**case, **_added(ideal, everywhere[number])}
                shifted = _shifted(identity, errors[number, "test"], errors[number, "val"], shifts)
                yield {**case, **shifted}


def _theorem(given: Sequence[str], errors: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Check assumption and conclusion of Theorem 3.4 for one model with its errors in all
    environments.
    """
    n = len(given)
    reason = "" if errors else "models were not tested in environments besides the given ones"
    if n < 3 or not errors:
        reason = reason or f"N - 2 is {n - 2}; 3 given environments are needed"
        for statement in (RANGE, BOUND):
            yield {"statement": statement, "reason": reason}
        return
    a = min(errors.values())
    b = max(errors.values())
    errors_given = [errors[env] for env in given]
    smallest = min(errors_given)
    largest = max(errors_given)
    yield {"statement": RANGE, "left": max(b - largest, smallest - a), "right": (b - a) / n}
    yield {"statement": BOUND, "left": b, "right": largest + (largest - smallest) / (n - 2)}


def _added(ideal: Mapping[str, float], without: Mapping[str, float]) -> dict[str, Any]:
    """Check whether a model of all given environments has no larger error than one that lacks some
    (section 3.3.3).
    """
    if not ideal or not without:
        which = "that lack an environment" if ideal else "of all given environments"
        return {"statement": ADDED, "reason": f"models {which} were not tested in all environments"}
    return {"statement": ADDED, "left": max(ideal.values()), "right": max(without.values())}


def _shifted(
    identity: Identity, tests: Mapping[str, float], validation: Mapping[str, float], shifts: Shifts
) -> dict[str, Any]:
    """Check Theorem 4.2 for a model: mean errors where it is tested and where it was trained
    (unseen images there).
    """
    held_out = frozenset(tested(identity))
    training = frozenset(identity["given"]) - held_out - frozenset(identity["held_out"])
    estimate = shifts.get((form_of(identity), training, held_out))
    if estimate is None:
        reason = "no estimate of M_cov and M_cpt for these environments"
        return {"statement": SHIFT, "reason": reason}
    known = {**validation, **tests}
    unseen = {env: known[env] for env in training if env in known}
    if not held_out <= tests.keys() or unseen.keys() != training:
        return {"statement": SHIFT, "reason": "an error is missing"}
    terms = mean([*unseen.values()]), *estimate
    left = mean([tests[env] for env in held_out])
    return {
        "statement": SHIFT,
        "left": left,
        "right": sum(terms),
        **dict(zip(_TERMS, terms, strict=True)),
    }


def shifts_of(folders: Any) -> tuple[Shifts, list[Problem]]:
    """Read estimated covariate and concept shift of pairs, as ``python shift.py
    estimator=[concept]`` leaves them.

    Args:
        folders: with ``shifts.jsonl``; None is none.

    Raises:
        RecordError, ConfigError: see :func:`~dgbench.reports.reading.shift_settings.estimates_of`.
    """
    if folders is None:
        return {}, []
    setting, problems = estimates_of(folders, "concept", "report.shifts_from")
    shifts: dict[tuple[str, frozenset[str], frozenset[str]], tuple[float, float]] = {}
    for line in setting.lines:
        for pair, facts in line.pairs.iterrows():
            covariate = line.value("tv", pair=str(pair))
            concept = line.value("min", pair=str(pair))
            if covariate and concept:
                p = frozenset(str(facts["p"]).split("+"))
                q = frozenset(str(facts["q"]).split("+"))
                for form in forms_of(line.identity):
                    shifts[form, p, q] = covariate.value, concept.value
    return shifts, problems


def _holds(cases: pd.DataFrame, name: str = "holds") -> dict[str, Any]:
    """Compute the share of the known cases that hold, as part of a line."""
    complete = cases.dropna(subset="slack")
    if complete.empty:
        return entry(name, reason=_reason(cases))
    return entry(name, float(_held(complete).mean()), n=len(complete), flag=f"({_count(complete)})")


def _slacks(cases: pd.DataFrame) -> dict[str, Any]:
    slack = cases["slack"].dropna()
    if slack.empty:
        return entries(("median", "smallest"), "no case is known")
    return {"median": float(slack.median()), "smallest": float(slack.min())}


_SLACKS = (
    Column("median", "median slack (points)", "points"),
    Column("smallest", "smallest slack (points)", "points"),
)


def statement_table(checks: pd.DataFrame) -> Table:
    """Build a table with one line per statement, over all cases."""
    lines = []
    for statement, (place, says) in STATEMENTS.items():
        cases = checks[checks["statement"] == statement]
        lines.append({"statement": place, "says": says} | _holds(cases) | _slacks(cases))
    columns = [
        Column("statement", key=True),
        Column("holds", unit="percent", help="of known cases"),
        *_SLACKS,
    ]
    notes = [
        (
            "Cases: models (Theorem 3.4), models that lack an environment (section 3.3.3, Theorem "
            "4.2), algorithms x seeds (eq. 39). They share seeds, images and environments, so a "
            "share is a description and has no interval."
        )
    ]
    return table(
        lines, "statements", "How often each statement holds", [*columns, Column("says")], notes
    )


def held_out_table(checks: pd.DataFrame) -> Table:
    """Build a table by held-out environment: whether adding it to training raises the largest error
    (section 3.3.3).
    """
    added = checks[checks["statement"] == ADDED]
    by_env = sorted(added.groupby("env"), key=lambda group: sortable(str(group[0])))
    lines = [{"env": env} | _holds(cases) | _slacks(cases) for env, cases in by_env]
    columns = [
        Column("env", "held out", key=True),
        Column("holds", "not raised", "percent", STATEMENTS[ADDED][1]),
    ]
    title = "Largest error with an environment added to training against that without it"
    return table(lines, "added_environment", title, [*columns, *_SLACKS])


def shift_table(checks: pd.DataFrame) -> Table:
    """Build a table by setting and held-out environments: mean errors over algorithms and seeds,
    and the bound.
    """
    bounded = checks[(checks["statement"] == SHIFT) & checks["slack"].notna()]
    lines = []
    for (title, env), cases in bounded.groupby(["setting", "env"], sort=False):
        means = {
            name: float(cases[name].mean())
            for name in ("training", "covariate", "concept", "right", "left")
        }
        lines.append({"setting": title, "env": env} | means | _holds(cases) | _slacks(cases))
    columns = [
        Column("setting", key=True),
        Column("env", "held out", key=True),
        Column("training", "training error", "percent", "mean over the other environments"),
        Column("covariate", "M_cov", "percent", WORDS["M_cov"]),
        Column("concept", "M_cpt min", "percent", WORDS["M_cpt"]),
        Column("right", "bound", "percent", "sum of the three"),
        Column("left", "held-out error", "percent"),
        Column("holds", unit="percent"),
    ]
    notes = [
        (
            "Errors are of noisy labels and shifts of estimated labeling functions; the theorem "
            "is of true ones. M_cov as total variation is estimated from below, so a bound that "
            "fails by little is no counterexample."
        )
    ]
    title = (
        "Bound of the held-out error by covariate and concept shift, means over algorithms and "
        "seeds"
    )
    return table(lines, "shift_bound", title, [*columns, *_SLACKS], notes)


def theory_answer(checks: pd.DataFrame) -> list[str]:
    """Summarize whether worst+gap bounds the ideal error, and what is unknown."""
    complete = checks.dropna(subset="slack")
    cases_of: dict[str, pd.DataFrame] = {
        str(name): cases for name, cases in complete.groupby("statement")
    }
    sentences = []
    if IDEAL in cases_of:
        with_gap = cases_of[IDEAL]
        without = cases_of[WORST]
        points = percent(with_gap["slack"].median())
        points_without = percent(without["slack"].median())
        empty = int((with_gap["right"] >= 1).sum())
        sentences += [
            (
                f"worst+gap bounds the ideal error (eq. 39) in {_count(with_gap)} studies, worst "
                f"in {_count(without)}."
            ),
            f"Median slack: {points} points, without the gap term {points_without}; in {empty} of "
            f"{len(with_gap)} the bound is 100% or more, which no model could break.",
        ]
    if ADDED in cases_of:
        added = cases_of[ADDED]
        best_env = str(_held(added).groupby(added["env"]).mean().idxmax())
        in_env = added["env"] == best_env
        elsewhere = f", {_count(added[~in_env])} elsewhere" if not in_env.all() else ""
        sentences.append(
            "An added environment does not raise the largest error (section 3.3.3) in "
            f"{_count(added)} models: {_count(added[in_env])} where {best_env} was held "
            f"out{elsewhere}."
        )
    unknown: dict[str, list[str]] = defaultdict(list)
    for statement, (place, _) in STATEMENTS.items():
        if statement not in cases_of:
            unknown[_reason(checks[checks["statement"] == statement])].append(place)
    listed = "; ".join(f"{', '.join(places)} ({reason})" for reason, places in unknown.items())
    return [*sentences, f"Not known: {listed}."] if listed else sentences


def _held(cases: pd.DataFrame) -> pd.Series[bool]:
    return cases["slack"] >= -TOLERANCE


def _count(cases: pd.DataFrame) -> str:
    """Count the cases that hold: ``175 of 585``."""
    return f"{int(_held(cases).sum())} of {len(cases)}"


def _reason(cases: pd.DataFrame) -> str:
    return next(
        (text for text in cases["reason"] if isinstance(text, str) and text),
        "there is no such model",
    )


class TheoryReport(Report):
    """Builds the theory report.

    Args:
        shifts_from: folders with ``shifts.jsonl`` of ``estimator=[concept]``, for Theorem 4.2.
    """

    name: FileName = "theory"
    shifts_from: Folders | None = None

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        shifts, shift_problems = shifts_of(self.shifts_from)
        selected = select_runs(collection, selection, split_by)
        evaluation = evaluate(selected, split_by)
        checks = checks_of(collection, selected, evaluation, shifts, split_by)
        if not shifts:
            checks.loc[checks["statement"] == SHIFT, "reason"] = (
                "name estimates with report.shifts_from=[DIR]"
            )
        tables = [statement_table(checks), held_out_table(checks), shift_table(checks)]
        title = "What the theorems say of these models"
        filled = [item for item in tables if len(item)]
        section = Section("theory", title, filled, answer=theory_answer(checks))
        problems = [*collection.problems, *evaluation.problems, *shift_problems]
        used = sum(not run.reason for run in selected.runs)
        count = len(evaluation.settings)
        return Document(
            title="Theorems of domain generalization, tested on trained models",
            selection=selection_text(selection, collection),
            sections=[section],
            problems=problem_table(problems),
            warnings=warnings(
                selection, collection, bool(evaluation.studies["trained_on_tested"].any())
            ),
            lead=leads(f"{used} models in {count} setting{'s' * (count != 1)}", problems),
            words=glossary("theory", terms=["given environment"]),
        )
