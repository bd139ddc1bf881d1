"""``report=measures``: which algorithm is best, by which measure, and how far each measure can be trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.protocols.selection import Selection, describe
from dgbench.reports.certainty import certainty_table, difference_table
from dgbench.reports.closing import TARGET_ORACLE
from dgbench.reports.collect import Collection
from dgbench.reports.comparisons import SECTION_KEYS, Comparison, compare, variant_text, words_of
from dgbench.reports.curves import error_curves
from dgbench.reports.document import Cell, Column, Document, Section, Table
from dgbench.reports.folders import Problem
from dgbench.reports.measure_tables import (
    correlation_table,
    held_out_table,
    measure_table,
    seed_table,
    selection_table,
)
from dgbench.reports.statistics_options import Statistics
from dgbench.reports.survey_section import survey_sections
from dgbench.reports.surveys import surveys

#: more comparisons than these are folded away, one line each, so that the tables over all of them are found
_MOST_OPEN = 3


@dataclass(frozen=True)
class MeasuresReport:
    """Builds the measure report.

    Args:
        name: names the output folder.
        baseline: algorithm that figures compare with the truly best one.
        size_axis: key that scales the number of given environments, e.g. ``scale``; None finds it.
        statistics: settings of the bootstrap.
        wandb: log the finished report to Weights & Biases (done by the caller).
        wandb_project: where it is logged.
    """

    name: str = "measures"
    baseline: str = "erm"
    size_axis: str | None = None
    statistics: Statistics = field(default_factory=Statistics)
    wandb: bool = False
    wandb_project: str = "dgbench"

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        comparisons, problems = compare(collection, selection, split_by)
        problems = [*collection.problems, *problems]
        how = describe(selection)
        titles = section_titles([comparison.identity for comparison in comparisons])
        titles = [
            f"TARGET ORACLE {title}" if comparison.trained_on_tested else title
            for title, comparison in zip(titles, comparisons, strict=True)
        ]
        names = [re.sub(r"[^a-z0-9.]+", "_", title.lower()).strip("_") for title in titles]
        found = surveys(comparisons, self.size_axis)
        wide_titles = section_titles([survey.identity for survey in found])
        wide_names = [re.sub(r"[^a-z0-9.]+", "_", title.lower()).strip("_") for title in wide_titles]
        sections, apart = survey_sections(found, wide_titles, wide_names, how, self.statistics, self.baseline)
        problems += apart
        folded = len(comparisons) > _MOST_OPEN
        for comparison, title, name in zip(comparisons, titles, names, strict=True):
            sections.append(_section(comparison, title, name, how, self.statistics, folded))
        used = sum(not run.unusable for run in collection.runs)
        warning = (
            "ORACLE SELECTION looks at the test environments: these numbers are no estimate of unseen performance."
        )
        lead = [
            *([warning] if selection.uses_test_environments else []),
            *([TARGET_ORACLE] if any(comparison.trained_on_tested for comparison in comparisons) else []),
            f"{used} finished runs in {len(comparisons)} comparison{'s' * (len(comparisons) != 1)}; {how}.",
            f"{len(problems)} problem{'s' * (len(problems) != 1)}, listed at the end." if problems else "No problems.",
        ]
        return Document("Measures of domain generalization", lead, sections, problem_table(problems))


def problem_table(problems: Sequence[Problem]) -> Table:
    """Everything that was left out, and why."""
    columns = [Column("problem"), Column("where"), Column("reason")]
    rows = [[Cell(problem.kind), Cell(problem.where), Cell(problem.reason)] for problem in problems]
    notes = [] if rows else ["Nothing was left out: every run found is finished and in the tables above."]
    return Table("problems", "Runs and rows left out, and what is missing", columns, rows, notes)


def _section(comparison: Comparison, title: str, name: str, how: str, statistics: Statistics, folded: bool) -> Section:
    tables = [
        *(table(comparison, how) for table in (measure_table, held_out_table, selection_table, correlation_table)),
        certainty_table(comparison, how, statistics),
        seed_table(comparison, how),
        difference_table(comparison, how, statistics),
    ]
    figure = error_curves(comparison, f"curves_{name}", how)
    return Section(name, title, _facts(comparison), tables, [figure] if figure else [], folded)


def section_titles(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dataset, base images and errors, with everything else in which comparisons of one dataset differ."""
    flat = [
        {**{key: value for key, value in identity.items() if key != "variant"}, **identity.get("variant", {})}
        for identity in identities
    ]
    titles = []
    for mine in flat:
        others = [other for other in flat if other["dataset"] == mine["dataset"] and other is not mine]
        keys = [key for key in sorted(mine) if key not in ("dataset", "base", "evaluation", "given", "folds")]
        differing = [key for key in keys if any(other.get(key) != mine[key] for other in others)]
        seen = ("base", "evaluation", *differing)
        if any(all(other.get(key) == mine[key] for key in seen) for other in others):
            long = [key for key in ("folds", "given") if any(other.get(key) != mine.get(key) for other in others)]
            differing += long[:1]  # mostly told by the other keys
        words = [mine["dataset"], *(f"{key}={words_of(mine[key])}" for key in differing if key in mine)]
        titles.append(f"{' '.join(words)}, {mine['base']}, {mine['evaluation']}")
    return titles


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    identity = comparison.identity
    extra = {key: str(value) for key, value in identity.items() if key not in SECTION_KEYS}
    return [
        ("dataset", variant_text(identity)),
        ("given environments", ", ".join(map(str, identity["given"]))),
        ("base images", identity["base"]),
        ("errors", identity["evaluation"]),
        ("network", f"{identity['backbone']}, {identity['init']} init, {identity['tuning']}"),
        ("protocol", identity["protocol"]),
        ("dataset seeds", f"data {identity['data_seed']}, split {identity['split_seed']}"),
        *([("code", ", ".join(comparison.codes))] if comparison.codes and "code" not in extra else []),
        *extra.items(),
    ]
