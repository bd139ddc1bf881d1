"""Measures and errors of the algorithms of one setting (Hwang et al. 2024, Tables 1, 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.protocols.folds import LOO, tested_by_fold
from dgbench.reports.document import TARGET_ORACLE
from dgbench.reports.frames import Column, Table, table
from dgbench.reports.settings.conclusions import on_measures
from dgbench.reports.settings.evaluation import Evaluation, Setting
from dgbench.reports.settings.over_seeds import mean, seed_column
from dgbench.reports.settings.study_values import algorithms_of, ranked_by, reasons, values
from dgbench.statistics import MEASURES

FORMULAS = {
    "average": "mean error over the held-out environments (eq. 2)",
    "worst": "largest error over the held-out environments",
    "gap": "largest less smallest error over the held-out environments",
    "worst_gap": "worst + gap / (N - 2), N given environments (eq. 6)",
    "ideal": "largest error over all environments of the model trained on all given ones (eq. 4)",
}
ALGORITHM = Column("algorithm", key=True)


def measure_columns() -> list[Column]:
    """One column for each measure."""
    return [Column(name, title, "percent", FORMULAS[name]) for name, title in MEASURES.items()]


def measure_table(evaluation: Evaluation) -> Table:
    """One line per algorithm, best first, see :func:`ranked_by`: every measure, mean ± std over seeds."""
    studies = evaluation.studies
    found = {name: values(studies, name) for name in MEASURES}
    level = {a: mean(list(own.values())) for a, own in found[ranked_by(studies)[0]].items()}
    order = sorted(algorithms_of(studies), key=lambda a: (level.get(a, float("inf")), a))
    seeds = {str(a): int(n) for a, n in studies.groupby("algorithm")["seed"].nunique().items()}
    lines: list[dict[str, Any]] = [{"algorithm": a} for a in order]
    for name in MEASURES:
        column = seed_column(name, found[name], order, seeds, reasons(studies, name))
        lines = [line | own for line, own in zip(lines, column, strict=True)]
    lines = [line | {"seeds": seeds[a]} for line, a in zip(lines, order, strict=True)]
    columns = [ALGORITHM, *measure_columns(), Column("seeds", unit="count", help="seeds with at least one run")]
    return table(lines, "measures", "Measures of every algorithm", columns, on_measures(studies))


def held_out_table(evaluation: Evaluation) -> Table:
    """One line per algorithm: the error in each given environment of the model that never saw it."""
    (setting,) = evaluation.settings
    tested = evaluation.errors[evaluation.errors["role"] == "held_out"]
    own = bool(evaluation.studies["trained_on_tested"].any())
    environments = list(dict.fromkeys(map(str, tested["env"])))
    how = "trained on its other images" if own else "held out"
    columns = [ALGORITHM, *(Column(env, unit="percent", help=f"error in {env}, {how}") for env in environments)]
    order = algorithms_of(evaluation.studies)
    seeds = {str(a): int(n) for a, n in evaluation.studies.groupby("algorithm")["seed"].nunique().items()}
    lines: list[dict[str, Any]] = [{"algorithm": a} for a in order]
    for env, here in tested.groupby("env", sort=False):
        column = seed_column(str(env), values(here, "error"), order, seeds, reasons(here, "error"))
        lines = [line | part for line, part in zip(lines, column, strict=True)]
    title = f"Error in each {'tested' if own else 'held-out'} environment"
    return table(lines, "held_out_errors", title, columns, [_whose_models(setting, own)])


def seed_table(evaluation: Evaluation) -> Table:
    """Every study's measures, one line each: what the means are made of."""
    columns = [
        ALGORITHM, Column("seed", unit="count", key=True), *measure_columns(), Column("ideal_env", "ideal at"),
        Column("steps", "selected steps"),
    ]  # fmt: skip
    return table(evaluation.studies.drop(columns="setting"), "seeds", "Every seed", columns, detail=True)


def _whose_models(setting: Setting, trained_on_tested: bool) -> str:
    """Which models the columns of held-out errors are of."""
    planned: Sequence[Sequence[str]] | None = tested_by_fold(setting.identity)
    protocol = setting.identity["protocol"]
    if trained_on_tested:
        return TARGET_ORACLE
    if protocol == LOO:
        return f"Leave-one-out: each column is a model trained on the other {len(setting.given) - 1} environments."
    if planned is None:
        return f"protocol={protocol}: each column is of the models that held it out."
    often = max(sum(env in tests for tests in planned) for env in setting.given)
    if often > 1:
        return f"Each column is the mean over the {often} models that held the environment out."
    return "Environments held out together, one model each: " + "; ".join(", ".join(tests) for tests in planned) + "."
