"""The tables that end a command: of the study that it trained or evaluated, of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.analysis.measures import Measured
from dgbench.analysis.selection import Selection, describe
from dgbench.data.description import with_base
from dgbench.errors import RecordError
from dgbench.plan.folds import FULL, tested_by_fold
from dgbench.plan.measures import IDEAL, MeasureChoice, choose
from dgbench.reports.chance import chance_of, classes_of
from dgbench.reports.document import TARGET_ORACLE
from dgbench.reports.labels import adaptation_text, is_adapted
from dgbench.reports.missing import grouped_reasons, planned_tests
from dgbench.reports.render.formats import plain_table
from dgbench.reports.studies import Study, evaluate_study, expected_folds
from dgbench.reports.tables import ADAPTED, Column, percent, table
from dgbench.reports.unlearnable import notes_of_study

#: more folds without a result than these get no line of their own; the reasons below name them
_MOST_EMPTY = 4
_MOST_LINES = 40  # of the table of a sweep; more are counted
_SOME = 4  # environments of the blind guess, which is wrong equally often in all


def study_table(
    rows: Sequence[Mapping[str, Any]],
    selection: Selection,
    unusable: Mapping[str, str] | None = None,
) -> str:
    """Format the errors of the tested environments, and the measures, of one study.

    This ends what ``python train.py`` prints. A missing value is ``-``, with its reason below.

    Args:
        rows: rows of one study as :func:`dgbench.records.rows.read_rows` gives them, of any subset
            of its folds.
        selection: chooses the step of each run.
        unusable: fold -> why it has no result, e.g. ``{"2": "failed: loss became NaN at step
            40"}``.

    Raises:
        RecordError: there are no rows at all.
    """
    if not rows:
        reasons = grouped_reasons(unusable or {})
        in_brackets = f" ({reasons})" if reasons else ""
        raise RecordError(
            f"no fold has rows{in_brackets}; correct the cause and start the same command again"
        )
    identity = rows[0]
    choice = choose()
    study = evaluate_study(rows, selection, unusable, choice)
    held_out = study.tests[study.tests["role"] == "held_out"]
    lines = _fold_lines(study, held_out, rows)
    values = study.measures
    for measure in choice.of_runs:
        error = values.values.get(measure.name)
        place = ""
        if measure.name == IDEAL and study.ideal_env is not None:
            place = f"at {study.ideal_env}"
        # a measure of several runs has no step
        step = study.steps.get(FULL, "") if measure.needs == "everywhere" else ""
        lines.append({"fold": measure.title, "env": place, "step": step, "error": error})
    heading = "tested" if study.trained_on_tested else "held out"
    columns = [
        Column("fold", key=True),
        Column("env", heading),
        Column("step", unit="count"),
        Column("error", unit="percent"),
    ]
    dataset = with_base(identity["dataset"], identity["base"])
    title = f"{dataset} {study.algorithm} seed {study.seed} ({describe(selection)})"
    notes = [TARGET_ORACLE] if study.trained_on_tested else []
    if is_adapted(identity):
        notes.append(f"{adaptation_text(identity)}: {ADAPTED}")
    if held_out["env"].duplicated().any():
        notes.append("Measures: of each environment's mean error over the folds that hold it out.")
    notes += notes_of_study(rows, held_out)
    notes += _tuning_note(identity)
    notes += _chance_notes(study, choice)
    shown = {measure.name: measure.title for measure in choice.of_runs}
    absent = {shown[name]: text for name, text in values.reasons.items() if name in shown}
    for reason in dict.fromkeys(absent.values()):
        names = [title for title, text in absent.items() if text == reason]
        notes.append(f"{', '.join(names)}: {reason}")
    return plain_table(table(lines, "closing", title, columns, notes))


def _tuning_note(identity: Mapping[str, Any]) -> list[str]:
    """Write how many of the parameters were trained, if not all of them were.

    Rows older than these counts do not say.
    """
    trained = identity.get("n_trainable")
    parameters = identity.get("n_parameters")
    if trained is None or parameters is None or trained == parameters:
        return []
    return [f"tuning {identity['tuning']}: {trained:,} of {parameters:,} parameters were trained"]


def _chance_notes(study: Study, choice: MeasureChoice) -> list[str]:
    """Write what the study must beat, a line for each reference.

    There are none if the number of classes is not known.
    """
    known = [measure for measure in choice.of_runs if measure.name in study.measures.values]
    chance = chance_of(
        [study.run.identity], study.tests, list(study.held_out), list(study.everywhere), known
    )
    if chance is None or not known:
        return []
    lines = []
    for reference in chance.references:
        shown = [
            f"{choice.named(name).title} {percent(value)}"
            for name, value in reference.measures.items()
        ]
        lines.append(
            f"{reference.name} (K = {chance.n_classes}), for comparison: {', '.join(shown)}"
        )
    return lines


def _fold_lines(
    study: Study, held_out: pd.DataFrame, rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """List one line per fold and tested environment.

    Folds without a result have no lines if there are many of them.

    Args:
        study: of these rows.
        held_out: its errors, one line for each fold and environment.
        rows: of the study.
    """
    planned = tested_by_fold(rows[0])
    held_out_by = {row["fold"]: row["held_out"] for row in rows}
    errors = dict(
        zip(zip(held_out["fold"], held_out["env"], strict=True), held_out["error"], strict=True)
    )
    folds = [
        fold for fold in expected_folds(rows[0], [*held_out_by, *study.missing]) if fold != FULL
    ]
    empty = set(folds) - set(held_out["fold"])
    lines = []
    for fold in folds:
        if fold in empty and len(empty) > _MOST_EMPTY:
            continue
        for env in planned_tests(fold, planned) or held_out_by.get(fold, []):
            lines.append(
                {
                    "fold": fold,
                    "env": env,
                    "step": study.steps.get(fold),
                    "error": errors.get((fold, env)),
                }
            )
    return lines


def sweep_table(runs: Sequence[Path], selection: Selection) -> str:
    """Format a table of the measures, means over studies, of every algorithm and setting."""
    from dgbench.reports.frames import (
        measures,
        results,
    )  # with all importers, which no single study needs

    choice = choose()
    titles = {measure.name: measure.title for measure in choice.of_runs}
    frame = results(runs, selection)
    studies = measures(frame, measures=choice.shown)
    setting = map(str, studies.columns[: studies.columns.get_loc("label")])
    keys = [*(name for name in setting if studies[name].map(str).nunique() > 1), "label"]
    lines: list[dict[str, Any]] = []
    for key, group in studies.groupby(keys, dropna=False, sort=False):
        means = {name: group[name].mean(skipna=False) for name in titles}
        shown = {name: None if value != value else value for name, value in means.items()}
        lines.append(
            {
                **dict(zip(keys, map(str, key), strict=True)),
                "seeds": group["seed"].nunique(),
                **shown,
            }
        )
    columns = [
        *(Column(name, "algorithm" if name == "label" else "", key=True) for name in keys),
        Column("seeds", unit="count"),
        *(Column(name, title, unit="percent") for name, title in titles.items()),
    ]
    notes = (
        [f"and {len(lines) - _MOST_LINES} more lines, in the report"]
        if len(lines) > _MOST_LINES
        else []
    )
    notes += _blind_guess_note(frame, choice)
    datasets = {
        with_base(dataset, base)
        for dataset, base in zip(studies["dataset"], studies["base"], strict=True)
    }
    on_dataset = f" on {datasets.pop()}" if len(datasets) == 1 else ""
    title = f"Measures{on_dataset}, mean over seeds ({describe(selection)})"
    return plain_table(table(lines[:_MOST_LINES], "end", title, columns, notes))


def _blind_guess_note(frame: pd.DataFrame, choice: MeasureChoice) -> list[str]:
    """Write the error of a blind guess, if it is the same on all datasets of the results."""
    identities = frame[["dataset", "base", "n_classes"]].drop_duplicates().to_dict("records")
    numbers = set()
    for line in identities:
        identity = {str(key): value for key, value in line.items()}
        if pd.isna(identity["n_classes"]):
            identity["n_classes"] = None
        numbers.add(classes_of(identity))
    n_classes = numbers.pop() if len(numbers) == 1 else None
    if not n_classes:
        return []
    error = 1 - 1 / n_classes
    in_each = [error] * _SOME
    values = Measured.of(choice.of_runs, in_each, in_each).values
    others = "".join(
        f", {choice.named(name).title} {100 * value:g}"
        for name, value in values.items()
        if not math.isclose(value, error)
    )
    return [
        (f"blind guess (K = {n_classes}), for comparison: {percent(error)} by each measure{others}")
    ]
