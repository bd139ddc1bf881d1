"""The sections that a report has when a dataset occurs in several configurations."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.reports.baseline_figure import baseline_figures
from dgbench.reports.document import Figure, Section
from dgbench.reports.folders import Problem
from dgbench.reports.overview import overview_table
from dgbench.reports.rank_diagram import rank_figures
from dgbench.reports.scatter import scatter_figures
from dgbench.reports.size_figures import asymptotic_figure, degradation_figure
from dgbench.reports.statistics_options import Statistics
from dgbench.reports.survey_picks import survey_hit_table, survey_pick_table
from dgbench.reports.survey_published import survey_published_tables
from dgbench.reports.survey_statistics import survey_interval_table, survey_rank_table
from dgbench.reports.survey_tables import survey_correlation_table, survey_seed_table
from dgbench.reports.surveys import Survey


def survey_sections(
    surveys: Sequence[Survey],
    titles: Sequence[str],
    names: Sequence[str],
    how: str,
    statistics: Statistics,
    baseline: str,
) -> tuple[list[Section], list[Problem]]:
    """The datasets side by side, then every survey; a refused one holds the reason instead of tables."""
    if not surveys:
        return [], []
    overview = Section("overview", "All configurations", [], [overview_table(surveys, titles, how)], [])
    sections, problems = [overview], []
    for survey, title, name in zip(surveys, titles, names, strict=True):
        heading = f"{title}: {len(survey.configurations)} configurations"
        if survey.refused:
            problems.append(Problem("configurations kept apart", title, survey.refused))
            sections.append(Section(f"survey_{name}", heading, [("no common tables", survey.refused)], [], []))
            continue
        tables = [
            survey_correlation_table(survey, how),
            *survey_published_tables(survey, how),
            survey_interval_table(survey, how, statistics),
            survey_pick_table(survey, how),
            survey_hit_table(survey, how),
            survey_rank_table(survey, how),
            survey_seed_table(survey, how),
        ]
        figures, absent = _figures(survey, name, how, baseline)
        sections.append(Section(f"survey_{name}", heading, _facts(survey, absent), tables, figures))
    return sections, problems


def _figures(survey: Survey, name: str, how: str, baseline: str) -> tuple[list[Figure], list[tuple[str, str]]]:
    """The figures that can be drawn, and those that cannot with the reason."""
    absent = []
    against = baseline_figures(survey, name, how, baseline)
    if not against:
        why = f"{baseline} has no ideal error, or nothing to be compared with; choose another with report.baseline"
        absent.append(("no figure of the baseline", why))
    scattered = scatter_figures(survey, name, how)
    if not scattered:
        absent.append(("no scatter", "no study has both a practical measure and an ideal error"))
    sized = [degradation_figure(survey, name, how), asymptotic_figure(survey, name, how)]
    if survey.size_axis is None:
        why = "no key scales N alone; name the one to use with report.size_axis"
        absent.append(("no figures against N", why))
    elif not all(sized):
        absent.append(("no figures against N", "no two sizes have both a practical measure and an ideal error"))
    figures = [*against, *scattered, *(figure for figure in sized if figure), *rank_figures(survey, name, how)]
    return figures, absent


def _facts(survey: Survey, absent: list[tuple[str, str]]) -> list[tuple[str, str]]:
    identity = survey.identity
    return [
        ("configurations", f"{len(survey.configurations)}, told apart by {', '.join(survey.axes)}"),
        ("algorithms", ", ".join(survey.algorithms)),
        ("seeds", ", ".join(map(str, survey.seeds))),
        ("base images", str(identity["base"])),
        ("errors", str(identity["evaluation"])),
        ("network", f"{identity['backbone']}, {identity['init']} init, {identity['tuning']}"),
        ("protocol", str(identity["protocol"])),
        *absent,
    ]
