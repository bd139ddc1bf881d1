"""``report=measures``: which algorithm is best, by which measure, and how far each measure can be trusted.

A section for each setting; before them, where a dataset occurs in several settings, sections over all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dgbench.analysis import Statistics
from dgbench.analysis.selection import Selection, describe
from dgbench.records.rows import Role, keys
from dgbench.reports.document import Document, Figure, Section, leads, problem_table, warnings
from dgbench.reports.evaluation import Evaluation, check_key, evaluate
from dgbench.reports.figures.curves import error_curves, highlighted, suite_curves
from dgbench.reports.figures.rank_diagram import rank_figures
from dgbench.reports.figures.scatter import scatter_figures
from dgbench.reports.figures.suite_figures import asymptotic_figure, baseline_figures, degradation_figure
from dgbench.reports.labels import network_text, variant_text
from dgbench.reports.measuring.certainty import WORDS, certainty_table, difference_table, measures_answer
from dgbench.reports.measuring.suite_tables import (
    RANKED_BY,
    correct_selections,
    overview_table,
    rankings,
    suite_correlation_table,
    suite_hit_table,
    suite_interval_table,
    suite_published_tables,
    suite_rank_table,
    suite_seed_table,
    suite_selection_table,
)
from dgbench.reports.measuring.suites import Suite, suites
from dgbench.reports.measuring.tables import (
    correlation_table,
    held_out_table,
    measure_table,
    seed_table,
    selection_table,
)
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import select_runs


def suite_sections(
    suites: Sequence[Suite], statistics: Statistics, baseline: str
) -> tuple[list[Section], list[Problem]]:
    """The datasets side by side, then every suite; a refused one holds the reason instead of tables."""
    if not suites:
        return [], []
    sections: list[Section] = []
    problems: list[Problem] = []
    for suite in suites:
        name, heading = f"suite_{suite.name}", f"{suite.title}: {len(suite.lines)} settings"
        if suite.refused:
            problems.append(Problem("settings kept apart", suite.title, suite.refused))
            sections.append(Section(name, heading, facts=[("no common tables", suite.refused)]))
            continue
        figures, absent = _figures(suite, baseline)  # first, since another process saves them meanwhile
        tables = [
            suite_rank_table(suite),
            suite_hit_table(suite),
            suite_selection_table(suite),
            suite_correlation_table(suite),
            suite_interval_table(suite, statistics),
            *suite_published_tables(suite),
            suite_seed_table(suite),
        ]
        sections.append(Section(name, heading, tables, figures, suite_answer(suite), facts=[*_facts(suite), *absent]))
    return [Section("overview", "All settings", [overview_table(suites)]), *sections], problems


def _figures(suite: Suite, baseline: str) -> tuple[list[Figure], list[tuple[str, str]]]:
    """The figures that can be drawn, and those that cannot with the reason."""
    absent = []
    against, scattered = baseline_figures(suite, baseline), scatter_figures(suite)
    if not against:
        why = f"{baseline} has no ideal error, or nothing to be compared with; choose another with report.baseline"
        absent.append(("no figure of the baseline", why))
    if not scattered:
        absent.append(("no scatter", "no study has both a practical measure and an ideal error"))
    sized = [degradation_figure(suite), asymptotic_figure(suite)]
    if suite.size_axis is None:
        why = "no key scales N alone; name the one to use with report.size_axis"
        absent.append(("no figures against N", why))
    elif not all(sized):
        absent.append(("no figures against N", "no two sizes have both a practical measure and an ideal error"))
    curves = suite_curves(suite, highlighted(suite.studies, baseline))
    return [*curves, *scattered, *against, *(figure for figure in sized if figure), *rank_figures(suite)], absent


def _facts(suite: Suite) -> list[tuple[str, str]]:
    identity = suite.identity
    return [
        ("settings", f"{len(suite.lines)}, told apart by {', '.join(suite.axes)}"),
        ("algorithms", ", ".join(suite.algorithms)),
        ("seeds", ", ".join(map(str, suite.seeds))),
        ("base images", str(identity["base"])),
        ("errors", str(identity["evaluation"])),
        ("network", network_text(identity)),
        ("protocol", str(identity["protocol"])),
    ]


def suite_answer(suite: Suite) -> list[str]:
    """Who ranks first by which measure, and how well worst+gap and average predict the truly best algorithm."""
    selected = [
        f"by {title} in {found.right} of {found.count} (mean cost {100 * found.cost:.1f} points of ideal error)"
        for title, found in correct_selections(suite).items()
    ]
    if not selected:
        return ["No setting has ideal errors: how well the measures predict the truly best algorithm is not known."]
    guess = f"a blind guess is right in 1 of {len(suite.algorithms)}"
    right = f"Over settings and seeds, the truly best algorithm is selected {', '.join(selected)}; {guess}."
    return [*_ranked_first(suite), right]


def _ranked_first(suite: Suite) -> list[str]:
    """The algorithm with the lowest mean rank by each measure, and how many others the test separates it from."""
    found, _ = rankings(suite)
    if not found:
        return []
    shown = {title: found[measure] for measure, title in RANKED_BY.items() if measure in found}
    firsts = [f"{each.first} by {title} ({each.ranks[each.first]:.1f})" for title, each in shown.items()]
    *most, last = [str(each.separated) for each in shown.values()]
    count, blocks = next((len(each.ranks), each.test.blocks) for each in shown.values())
    apart = f"them from {', '.join(most)} and {last} of the {count - 1} others"
    if not any(each.separated for each in shown.values()):
        apart = "none of them from any other"
    return [
        f"Lowest mean rank among {count} algorithms over {blocks} settings: {', '.join(firsts)}; Nemenyi's test "
        f"separates {apart}."
    ]


#: more settings than these are folded away, one line each, so that the tables over all of them are found
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
        check_key(split_by)
        selected = select_runs(collection, selection, split_by)
        evaluation = evaluate(selected, split_by)
        problems = [*collection.problems, *evaluation.problems]
        found = suites(evaluation, self.size_axis)
        sections, apart = suite_sections(found, self.statistics, self.baseline)
        problems += apart
        folded = len(evaluation.settings) > _MOST_OPEN
        suite_of = {line.setting.title: suite for suite in found for line in suite.lines}
        own = [
            self._section(evaluation.of(setting.title), suite_of.get(setting.title), folded)
            for setting in evaluation.settings
        ]
        used, count = sum(not run.unusable for run in collection.runs), len(evaluation.settings)
        return Document(
            title="Measures of domain generalization",
            selection=describe(selection),
            sections=[*sections, *own],
            problems=problem_table(problems),
            warnings=warnings(selection, bool(evaluation.studies["trained_on_tested"].any())),
            lead=leads(f"{used} finished runs in {count} setting{'s' * (count != 1)}", problems),
            words=WORDS,
        )

    def _section(self, evaluation: Evaluation, suite: Suite | None, folded: bool) -> Section:
        (setting,) = evaluation.settings
        oracle = bool(evaluation.studies["trained_on_tested"].any())
        tables = [
            measure_table(evaluation),
            held_out_table(evaluation),
            selection_table(evaluation),
            correlation_table(evaluation),
            certainty_table(evaluation, self.statistics),
            seed_table(evaluation),
            difference_table(evaluation, self.statistics),
        ]
        colors = highlighted((suite or evaluation).studies, self.baseline)
        # of many settings, a suite's picture shows each one's curves already
        figure = None if folded and suite and suite.side_by_side(setting) else error_curves(evaluation, colors)
        return Section(
            name=setting.name,
            title=f"TARGET ORACLE {setting.title}" if oracle else setting.title,
            tables=tables,
            figures=[figure] if figure else [],
            answer=measures_answer(evaluation, self.statistics),
            facts=setting_facts(evaluation),
            folded=folded,
        )


def setting_facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """What the results of one setting share, in words."""
    (setting,) = evaluation.settings
    identity = setting.identity
    extra = {key: str(value) for key, value in identity.items() if key not in keys(Role.SETTING)}
    return [
        ("dataset", variant_text(identity)),
        ("given environments", ", ".join(setting.given)),
        ("base images", identity["base"]),
        ("errors", identity["evaluation"]),
        ("network", network_text(identity)),
        ("protocol", identity["protocol"]),
        ("dataset seeds", f"data {identity['data_seed']}, split {identity['split_seed']}"),
        *([("code", ", ".join(setting.codes))] if setting.codes and "code" not in extra else []),
        *extra.items(),
    ]
