"""Which algorithm each measure selects, and how it orders all of them (Hwang et al. 2024, section 6.1, Tables 5, 6)."""

from __future__ import annotations

from typing import Any

from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.settings.conclusions import on_correlation, on_selection
from dgbench.reports.settings.evaluation import Evaluation
from dgbench.reports.settings.over_seeds import over_seeds, seed_column
from dgbench.reports.settings.study_values import (
    COEFFICIENTS,
    algorithms_of,
    correlations,
    seeds_of,
    selected_by,
    selection_degradation,
    values,
)
from dgbench.statistics import MEASURES, PRACTICAL_MEASURES

MEASURE = Column("measure", key=True)


def selection_table(evaluation: Evaluation) -> Table:
    """One line per measure: the algorithm it selects and what that costs."""
    studies = evaluation.studies
    seeds = seeds_of(studies)
    columns = [
        MEASURE,
        *(Column(f"seed {seed}") for seed in seeds),
        Column("mean over seeds"),
        Column("degradation", unit="points", help="ideal error of the selected algorithm less the lowest, over seeds"),
        Column("degradation (mean)", unit="points", help="the same for the algorithm selected on the mean over seeds"),
        Column("truly best", unit="count", help="seeds in which the selected algorithm has the lowest ideal error"),
    ]
    lines = []
    for name, title in MEASURES.items() if len(algorithms_of(studies)) > 1 else ():
        line: dict[str, Any] = {"measure": title}
        for seed in seeds:
            line |= _names(f"seed {seed}", selected_by(studies, name, [seed]))
        line |= _names("mean over seeds", selected_by(studies, name, seeds))
        costs = {seed: selection_degradation(studies, name, [seed]) for seed in seeds}
        losses = {seed: loss for seed, loss in costs.items() if loss is not None}
        line |= over_seeds("degradation", losses, len(seeds), "no seed has both a selection and ideal errors")
        why = "nothing selected or no ideal error"
        line |= entry("degradation (mean)", overall := selection_degradation(studies, name, seeds), reason=why)
        if overall is not None:
            del line["degradation (mean).reason"]
        right = float(sum(loss == 0 for loss in losses.values()))
        count = entry("truly best", right, n=len(losses), flag=f"of {len(losses)}")
        lines.append(line | (count if losses else entry("truly best", reason="no ideal errors")))
    notes = on_selection(studies)
    return table(lines, "selected", "Algorithm each measure selects", columns, notes)


def correlation_table(evaluation: Evaluation) -> Table:
    """Rank correlation of each practical measure with the ideal one, per seed and mean ± std."""
    studies = evaluation.studies
    seeds, count = seeds_of(studies), len(algorithms_of(studies))
    columns = [MEASURE, Column("coefficient", key=True)]
    columns += [Column(f"seed {seed}", unit="correlation") for seed in seeds]
    columns += [Column("mean over seeds", unit="correlation", help="mean ± standard deviation of the values per seed")]
    ideal = values(studies, "ideal")
    lines: list[dict[str, Any]] = []
    for coefficient in COEFFICIENTS if count > 1 else ():
        found = {title: correlations(studies, name, coefficient) for name, title in PRACTICAL_MEASURES.items()}
        made: list[dict[str, Any]] = [{"measure": title, "coefficient": coefficient} for title in found]
        for line, (name, title) in zip(made, PRACTICAL_MEASURES.items(), strict=True):
            by_seed, why = found[title]
            own = values(studies, name)
            for seed in seeds:
                both = sum(seed in own[a] and seed in ideal.get(a, {}) for a in own)
                flag = f"({both} of {count})" if both < count else ""
                known = seed in by_seed
                line |= entry(f"seed {seed}", by_seed.get(seed), flag=flag if known else "", reason=why.get(seed, ""))
        means = seed_column(
            "mean over seeds",
            {title: by_seed for title, (by_seed, _) in found.items()},
            list(found),
            dict.fromkeys(found, len(seeds)),
            {title: next(iter(why.values()), "") for title, (_, why) in found.items()},
            highest=True,
        )
        lines += [line | own for line, own in zip(made, means, strict=True)]
    title = "Rank correlation with the ideal measure over algorithms"
    return table(lines, "correlation", title, columns, on_correlation(studies))


def _names(column: str, selected: tuple[str, ...]) -> dict[str, Any]:
    return entry(column, " = ".join(selected) or None, reason="" if selected else "no algorithm has this measure")
