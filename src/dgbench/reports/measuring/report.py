"""``report=measures``: which algorithm is best, by which measure, and how far each measure can be
trusted.

A section for each setting; before them, where a dataset occurs in several settings, sections over
all of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from dgbench.analysis import Statistics
from dgbench.analysis.selection import Selection
from dgbench.phases import tracked
from dgbench.plan.measures import IDEAL
from dgbench.plan.settings import FileName, Name
from dgbench.records.run_identity import Role, keys
from dgbench.reports.chance import beaten
from dgbench.reports.document import (
    Document,
    Figure,
    ReportOfMeasures,
    Section,
    check_algorithm,
    leads,
    problem_table,
    selection_text,
    warnings,
)
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.importers import is_from_table
from dgbench.reports.labels import network_text, protocol_text, variant_text
from dgbench.reports.measuring.benchmark_tables import benchmark_tables
from dgbench.reports.measuring.benchmarks import Benchmark, benchmark_of_one, benchmarks
from dgbench.reports.measuring.beside_paper import benchmark_published_tables
from dgbench.reports.measuring.choices import correct_selections
from dgbench.reports.measuring.correlations import overview_table
from dgbench.reports.measuring.curves import benchmark_curves, error_curves, highlighted
from dgbench.reports.measuring.figures import (
    asymptotic_figure,
    baseline_figures,
    degradation_figure,
    scatter_figures,
)
from dgbench.reports.measuring.pair import NamedPair, labels_of_pair, pair_section
from dgbench.reports.measuring.rank_diagrams import rank_figures
from dgbench.reports.measuring.standings import rank_standing_figure, standing_figure
from dgbench.reports.measuring.tables import noise_notes, setting_tables
from dgbench.reports.over_seeds import (
    algorithms_of,
    by_seed,
    means,
    only_one_environment,
    ranked_by,
    too_few,
)
from dgbench.reports.predictions import costs, selected
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.render.drawing import MOST_DRAWN, too_many
from dgbench.reports.resolution import no_verdict
from dgbench.reports.tables import percent
from dgbench.reports.words import glossary


def benchmark_sections(
    benchmarks: Sequence[Benchmark], statistics: Statistics, baseline: str
) -> tuple[list[Section], list[Problem]]:
    """Build a section over all datasets, then one per benchmark; a refused one holds the reason
    instead of tables.
    """
    if not benchmarks:
        return [], []
    sections: list[Section] = []
    problems: list[Problem] = []
    for benchmark in tracked(
        benchmarks, "statistics over all settings", len(benchmarks), "datasets"
    ):
        name = f"suite_{benchmark.name}"
        heading = f"{benchmark.title}: {len(benchmark.lines)} settings"
        if benchmark.refused:
            problems.append(Problem("settings kept apart", benchmark.title, benchmark.refused))
            sections.append(Section(name, heading, facts=[("no common tables", benchmark.refused)]))
            continue
        # first, since another process saves them meanwhile
        figures, omissions = _figures(benchmark, baseline)
        tables = benchmark_tables(benchmark, statistics)
        facts = [*_facts(benchmark), *omissions]
        sections.append(
            Section(name, heading, tables, figures, benchmark_answer(benchmark), facts=facts)
        )
    return [Section("overview", "All settings", [overview_table(benchmarks)]), *sections], problems


def _figures(benchmark: Benchmark, baseline: str) -> tuple[list[Figure], list[tuple[str, str]]]:
    """Draw the figures of a benchmark; and list those that cannot be drawn, with the reason."""
    omissions = []
    against, scattered = baseline_figures(benchmark, baseline), scatter_figures(benchmark)
    if not against:
        reason = (
            f"{baseline} has no ideal error, or nothing to be compared with; choose another with "
            "report.baseline"
        )
        omissions.append(("no figure of the baseline", reason))
    if not scattered:
        omissions.append(("no scatter", "no study has both a practical measure and an ideal error"))
    if len(benchmark.algorithms) > MOST_DRAWN:
        omissions.append(("no figure of ranks", too_many(len(benchmark.algorithms))))
    sized = [degradation_figure(benchmark), asymptotic_figure(benchmark)]
    if benchmark.size_axis is None:
        reason = "no key scales N alone; name the one to use with report.size_axis"
        omissions.append(("no figures against N", reason))
    elif not all(sized):
        omissions.append(
            (
                "no figures against N",
                "no two sizes have both a practical measure and an ideal error",
            )
        )
    colors = highlighted(benchmark.studies, baseline, benchmark.measures)
    curves = benchmark_curves(benchmark, colors)
    standing = rank_standing_figure(benchmark)
    return [
        *([standing] if standing else []),
        *curves,
        *scattered,
        *against,
        *(figure for figure in sized if figure),
        *(replace(figure, certainty=True) for figure in rank_figures(benchmark)),
    ], omissions


def _facts(benchmark: Benchmark) -> list[tuple[str, str]]:
    identity = benchmark.identity
    return [
        ("settings", f"{len(benchmark.lines)}, which differ in {', '.join(benchmark.axes)}"),
        ("algorithms", ", ".join(benchmark.algorithms)),
        ("seeds", ", ".join(map(str, benchmark.seeds))),
        ("base images", str(identity["base"])),
        ("errors", str(identity["evaluation"])),
        ("network", network_text(identity)),
        ("protocol", protocol_text(identity)),
    ]


def benchmark_answer(benchmark: Benchmark) -> list[str]:
    """Write who ranks first by each measure, and how well the measures predict the truly best."""
    selected = []
    for name, right, number, cost in correct_selections(benchmark).itertuples():
        title = benchmark.measures.named(name).title
        selected.append(
            f"by {title} in {right:.0f} of {number:.0f} (mean cost {percent(cost)} points of "
            "ideal error)"
        )
    if not selected:
        return [
            (
                "No setting has ideal errors: how well the measures predict the lowest one is not "
                "known."
            )
        ]
    by_chance = f"a random pick is right in 1 of {len(benchmark.algorithms)}"
    right = (
        "Over settings and seeds, the algorithm with the lowest ideal error is selected "
        f"{', '.join(selected)}; {by_chance}."
    )
    return [*_ranked_first(benchmark), right]


def _ranked_first(benchmark: Benchmark) -> list[str]:
    """Name the algorithm of lowest mean rank by each measure in one plain sentence, and from how
    many others its settings tell the one by the ideal error.
    """
    ranked, _ = benchmark.rankings
    if not ranked:
        return []
    by_ideal = ranked[IDEAL]
    others = len(by_ideal.ranks) - 1
    number = f"the {others} others"
    if by_ideal.separated == others:
        sure = f"and is separated from {number}"
    elif by_ideal.separated:
        sure = f"and is separated from {by_ideal.separated} of {number}"
    else:
        sure = f"but is not separated from any of {number}"
    if " = " in by_ideal.firsts:
        sure = f"a tie; the first of them {sure.removeprefix('and ').removeprefix('but ')}"
    picks = []
    for name, ranking in ranked.items():
        if name != IDEAL:
            picks.append(f"{ranking.firsts} by {benchmark.measures.named(name).title}")
    ideal = benchmark.measures.named(IDEAL).title
    return [
        f"Over {by_ideal.test.blocks} settings {by_ideal.firsts} ranks first by the {ideal} "
        f"error, {sure}; first by another measure: {', '.join(picks)}."
    ]


#: groups of algorithms with other seeds that an answer names
_MOST_GROUPS = 4


def measures_answer(evaluation: Evaluation) -> list[str]:
    """Write who leads by the measure that ranks, and by the ideal, and whether that is decided."""
    unjudged = no_verdict(evaluation.settings[0].identity)
    if unjudged:
        return unjudged
    studies = evaluation.studies
    measure = ranked_by(studies, evaluation.measures)
    title = measure.in_prose
    names = algorithms_of(studies)
    values = by_seed(studies, measure.name)
    if len(values) < 2:
        return [too_few(names, len(values), "results"), *_by_seeds(studies, measure.name)]
    verdict = evaluation.verdicts[measure.name]
    if verdict is None:
        return []
    if len(verdict.leaders.names) > 1:
        errors = evaluation.errors
        held_out_only = not (errors["role"] == "everywhere").any()
        identity = evaluation.settings[0].identity
        trained_on_one = held_out_only and only_one_environment(identity)
        quantity = f"lowest {title}"
        head = f"{verdict.leaders.sentence(quantity, errors, 'error', trained_on_one)}."
    else:
        truly = selected(evaluation.selections, IDEAL)
        head = verdict.headline(title, truly=truly)
    level = means(values)[verdict.leader]
    numbers = verdict.numbers(title, level)
    apart = f" {verdict.apart()}" if verdict.rivals else ""
    answer = [head, f"{numbers}.{apart}", *_by_seeds(studies, measure.name), *_truth(evaluation)]
    chance = evaluation.settings[0].chance
    warning = ""
    if chance:
        warning = beaten({verdict.leader: level}, chance.levels(measure.name), title)
    return [warning, *answer] if warning else answer


def _by_seeds(studies: pd.DataFrame, measure: str) -> list[str]:
    """Count the algorithms that share a set of seeds, where these sets differ: the most common
    first.
    """
    table = by_seed(studies, measure)
    groups = Counter(tuple(table.columns[present]) for present in table.notna().to_numpy())
    if len(groups) < 2:
        return []
    parts = [
        f"{count} in seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        for seeds, count in groups.most_common(_MOST_GROUPS)
    ]
    return [
        f"Results: {'; '.join(parts)}. Two algorithms are compared over the seeds that both have."
    ]


def _truth(evaluation: Evaluation) -> list[str]:
    """Write who has the lowest ideal error, and what selecting by the measures costs."""
    studies = evaluation.studies
    selections = evaluation.selections
    best = selected(selections, IDEAL)
    if not best:
        return []
    verdict = evaluation.verdicts[IDEAL]
    error = percent(means(by_seed(studies, IDEAL))[best[0]])
    if verdict is not None and verdict.decided:
        text = f"Over all environments {best[0]} is truly best, with an ideal error of {error}%"
    else:
        have = "has" if len(best) == 1 else "have"
        text = f"Over all environments {' = '.join(best)} {have} the lowest ideal error, {error}%"
    prices = []
    for measure in evaluation.measures.compared:
        names = " = ".join(selected(selections, measure.name))
        for cost in costs(selections, measure.name, on_mean=True):
            prices.append(
                f"selecting by {measure.title} ({names}) costs {percent(cost)} points of it"
            )
    apart = ""
    if verdict is not None and verdict.rivals and not verdict.decided:
        apart = f" By the ideal, {verdict.apart(verdict.leader)}"
    return [f"{'; '.join([text, ', '.join(prices)]) if prices else text}.{apart}"]


#: more settings than these are folded away, one line each, so that the tables over all of them are
#: found
_MOST_OPEN = 3


class MeasuresReport(ReportOfMeasures):
    """Builds the measure report.

    Args:
        baseline: algorithm that figures compare with the truly best one.
        size_axis: key that scales the number of given environments, e.g. ``scale``; None finds it.
        pair: two algorithms that are compared with each other alone; None names none.
        statistics: settings of the bootstrap.
    """

    name: FileName = "measures"
    baseline: Name = "erm"
    size_axis: Name | None = None
    pair: NamedPair | None = None
    statistics: Statistics = Statistics()

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        chosen = select_runs(collection, selection, split_by)
        collection = collection.without_numbers()
        labels = [run.label for run in chosen.runs]
        baseline = check_algorithm(self, "baseline", labels)
        if self.pair:
            labels_of_pair(self.pair, set(labels))
        evaluation = evaluate(chosen, split_by, self.choice)
        del chosen  # a line for each of up to millions of tests, which nothing below reads
        all_benchmarks = benchmarks(evaluation, self.size_axis)
        sections, refusals = benchmark_sections(all_benchmarks, self.statistics, baseline)
        problems = [*collection.problems, *evaluation.problems, *refusals]
        count = len(evaluation.settings)
        folded = count > _MOST_OPEN
        benchmark_of = {}
        for benchmark in all_benchmarks:
            for line in benchmark.lines:
                benchmark_of[line.setting.title] = benchmark
        sections += [
            self._section(
                evaluation.of(setting.title),
                baseline,
                benchmark_of.get(setting.title),
                folded,
                noise_notes(evaluation, setting),
            )
            for setting in tracked(evaluation.settings, "statistics", count, "settings")
        ]
        if self.pair:
            sections.insert(0, pair_section(evaluation, self.pair, self.statistics))
        used = sum(not run.unusable for run in collection.runs)
        return Document(
            title="Measures of domain generalization",
            selection=selection_text(selection, collection),
            sections=sections,
            problems=problem_table(problems),
            warnings=warnings(
                selection, collection, bool(evaluation.studies["trained_on_tested"].any())
            ),
            lead=leads(f"{used} finished runs in {count} setting{'s' * (count != 1)}", problems),
            words=glossary("studies", "measures")
            | {measure.title: measure.formula for measure in self.choice.own},
        )

    def _section(
        self,
        evaluation: Evaluation,
        baseline: str,
        benchmark: Benchmark | None,
        folded: bool,
        noise: Sequence[str],
    ) -> Section:
        (setting,) = evaluation.settings
        oracle = bool(evaluation.studies["trained_on_tested"].any())
        studies = (benchmark or evaluation).studies
        colors = highlighted(studies, baseline, self.choice)
        # of many settings, a benchmark's picture shows each one's curves already
        figure = (
            None
            if folded and benchmark and benchmark.side_by_side(setting)
            else error_curves(evaluation, colors)
        )
        figures = [standing_figure(evaluation), figure]
        beside = [] if benchmark else benchmark_published_tables(benchmark_of_one(evaluation))
        return Section(
            name=setting.name,
            title=f"TARGET ORACLE {setting.title}" if oracle else setting.title,
            tables=[*setting_tables(evaluation, self.statistics, noise), *beside],
            figures=[drawn for drawn in figures if drawn],
            answer=measures_answer(evaluation),
            facts=setting_facts(evaluation),
            folded=folded,
        )


def setting_facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Describe what the results of one setting share, in words."""
    (setting,) = evaluation.settings
    identity = setting.identity
    extra = {key: str(value) for key, value in identity.items() if key not in keys(Role.SETTING)}
    from_table = is_from_table(identity)
    dataset_seeds = f"data {identity['data_seed']}, split {identity['split_seed']}"
    return [
        ("dataset", variant_text(identity)),
        ("given environments (N)", ", ".join(setting.given)),
        *([] if from_table else [("base images", identity["base"])]),
        *([] if from_table else [("errors", identity["evaluation"])]),
        ("network", network_text(identity)),
        ("protocol", protocol_text(identity)),
        *([] if from_table else [("dataset seeds", dataset_seeds)]),
        *([("code", ", ".join(setting.codes))] if setting.codes and "code" not in extra else []),
        *extra.items(),
    ]
