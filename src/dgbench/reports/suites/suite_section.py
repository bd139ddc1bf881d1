"""The sections that a report has when a dataset occurs in several settings, and the answer on top of each."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.reports.document import Figure, Section
from dgbench.reports.figures.curves import highlighted, suite_curves
from dgbench.reports.figures.rank_diagram import rank_figures
from dgbench.reports.figures.scatter import scatter_figures
from dgbench.reports.figures.suite_figures import asymptotic_figure, baseline_figures, degradation_figure
from dgbench.reports.reading.folders import Problem
from dgbench.reports.settings.labels import network_text
from dgbench.reports.settings.statistics_options import Statistics
from dgbench.reports.suites.suite_published import suite_published_tables
from dgbench.reports.suites.suite_selection import correct_selections, suite_hit_table, suite_selection_table
from dgbench.reports.suites.suite_statistics import RANKED_BY, rankings, suite_interval_table, suite_rank_table
from dgbench.reports.suites.suite_tables import overview_table, suite_correlation_table, suite_seed_table
from dgbench.reports.suites.suites import Suite


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
