"""The short table at the end of ``python train.py``, for one study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dgbench.analysis import MEASURES
from dgbench.analysis.selection import Selection, describe
from dgbench.data.description import with_base
from dgbench.errors import RecordError
from dgbench.plan.folds import FULL, tested_by_fold
from dgbench.reports.document import TARGET_ORACLE
from dgbench.reports.evaluation import Study, evaluate_study, expected_folds, grouped_reasons, planned_tests
from dgbench.reports.render.formats import plain_table
from dgbench.reports.tables import Column, table

#: more folds without a result than these get no line of their own; the reasons below name them
_MOST_EMPTY = 4


def closing_table(
    rows: Sequence[Mapping[str, Any]], selection: Selection, unusable: Mapping[str, str] | None = None
) -> str:
    """Error in each tested environment, then the measures; what is absent is ``-`` with its reason below.

    Args:
        rows: rows of one study as :func:`dgbench.records.rows.read_rows` gives them, of any subset of its folds.
        selection: chooses the step of each run.
        unusable: fold -> why it has no result, e.g. ``{"2": "failed: loss became NaN at step 40"}``.

    Raises:
        RecordError: there are no rows at all.
    """
    if not rows:
        reasons = grouped_reasons(unusable or {})
        raise RecordError(
            f"no fold has rows{f' ({reasons})' if reasons else ''}; correct the cause and start the same command again"
        )
    identity = rows[0]
    study = evaluate_study(rows, selection, unusable)
    held_out = study.tests[study.tests["role"] == "held_out"]
    lines = _fold_lines(study, held_out, rows)
    measures = study.measures
    for name, title in MEASURES.items():
        where = f"at {measures.ideal_env}" if name == "ideal" and measures.ideal_env is not None else ""
        step = study.steps.get(FULL, "") if name == "ideal" else ""  # a measure of several runs has no step
        lines.append({"fold": title, "env": where, "step": step, "error": measures.value(name)})
    where = "tested" if study.trained_on_tested else "held out"
    columns = [
        Column("fold", key=True),
        Column("env", where),
        Column("step", unit="count"),
        Column("error", unit="percent"),
    ]
    dataset = with_base(identity["dataset"], identity["base"])
    title = f"{dataset} {study.algorithm} seed {study.seed} ({describe(selection)})"
    notes = [TARGET_ORACLE] if study.trained_on_tested else []
    if held_out["env"].duplicated().any():
        notes.append("Measures: of each environment's mean error over the folds that hold it out.")
    trained, parameters = identity.get("n_trainable"), identity.get("n_parameters")
    if None not in (trained, parameters) and trained != parameters:  # rows older than the counts do not say
        notes.append(f"tuning {identity['tuning']}: {trained:,} of {parameters:,} parameters were trained")
    for reason in dict.fromkeys(measures.reasons.values()):
        names = [MEASURES[name] for name, text in measures.reasons.items() if text == reason]
        notes.append(f"{', '.join(names)}: {reason}")
    return plain_table(table(lines, "closing", title, columns, notes))


def _fold_lines(study: Study, held_out: pd.DataFrame, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line per fold and tested environment; none for empty folds where these are many.

    Args:
        study: of these rows.
        held_out: its errors, one line for each fold and environment.
        rows: of the study.
    """
    planned = tested_by_fold(rows[0])
    held_out_by = {row["fold"]: row["held_out"] for row in rows}
    errors = dict(zip(zip(held_out["fold"], held_out["env"], strict=True), held_out["error"], strict=True))
    folds = [fold for fold in expected_folds(rows[0], [*held_out_by, *study.missing]) if fold != FULL]
    empty = set(folds) - set(held_out["fold"])
    lines = []
    for fold in folds:
        if fold in empty and len(empty) > _MOST_EMPTY:
            continue
        for env in planned_tests(fold, planned) or held_out_by.get(fold, []):
            lines.append({"fold": fold, "env": env, "step": study.steps.get(fold), "error": errors.get((fold, env))})
    return lines
