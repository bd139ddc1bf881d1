"""``report=measures``: which algorithm is best, by which measure, and how far each measure can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field

from dgbench.records.rows import Role, keys
from dgbench.reports.document import Document, Section, leads, problem_table, warnings
from dgbench.reports.figures.curves import error_curves, highlighted
from dgbench.reports.reading.collect import Collection
from dgbench.reports.settings.answers import WORDS, measures_answer
from dgbench.reports.settings.apply_selection import select_runs
from dgbench.reports.settings.certainty_tables import certainty_table, difference_table
from dgbench.reports.settings.choice_tables import correlation_table, selection_table
from dgbench.reports.settings.evaluation import Evaluation, check_key, evaluate
from dgbench.reports.settings.labels import network_text, variant_text
from dgbench.reports.settings.measure_tables import held_out_table, measure_table, seed_table
from dgbench.reports.settings.selected_runs import of_collection
from dgbench.reports.settings.statistics_options import Statistics
from dgbench.reports.suites.suite_section import suite_sections
from dgbench.reports.suites.suites import Suite, suites
from dgbench.selection.methods import Selection, describe

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
        evaluation = evaluate(of_collection(collection, selected), split_by)
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
