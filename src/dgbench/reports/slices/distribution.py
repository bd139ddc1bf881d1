"""``report=distribution``: accuracy out of distribution against accuracy in distribution.

In distribution are the ``val`` rows of environments that a run was trained on, at its selected
step: validation data of the training environments, or what a table of others calls so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from dgbench.analysis import Statistics, correlation_interval, spearman
from dgbench.analysis.distributions import t
from dgbench.analysis.effective_robustness import Axes
from dgbench.analysis.intervals import Interval
from dgbench.analysis.selection import Selection
from dgbench.errors import ConfigError, MeasureError, RecordError
from dgbench.plan.settings import FileName, Name
from dgbench.reports.document import (
    Document,
    Figure,
    ReportOfMeasures,
    Section,
    leads,
    problem_table,
    selection_text,
    warnings,
)
from dgbench.reports.evaluation import PAIRS, Evaluation, evaluate
from dgbench.reports.groups import groups_of
from dgbench.reports.labels import slug
from dgbench.reports.over_seeds import by_seed, comparable
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.slices.distribution_figure import scatter
from dgbench.reports.slices.distribution_points import (
    Points,
    complete,
    inside_by_run,
    paired_lines,
    points_of,
)
from dgbench.reports.tables import Column, Table, entry, interval_entry, percent, table
from dgbench.reports.words import WORDS, glossary
from dgbench.validation import Refusal, some_of

AVERAGE = "average"  #: name of the mean over environments, among these
_MOST_SHOWN = 60  # algorithms whose table stands open


def line_table(
    parts: Sequence[Points], lines: pd.DataFrame, statistics: Statistics, axes: Axes
) -> Table:
    """List for every environment, and their average, the line and the rank correlation."""
    cells = []
    for points in parts:
        drop = float((points.inside - points.outside).mean())
        line: dict[str, Any] = {"environment": points.environment, **entry("drop", drop)}
        if points.line is None:
            for name in ("slope", "intercept", "determination", "curved"):
                line |= entry(name, reason=points.reason)
        else:
            line |= entry("slope", points.line.slope)
            line |= entry("intercept", points.line.intercept)
            line |= entry("determination", points.line.determination)
            line |= entry("curved", points.line.curved)
        line |= _correlation(points, lines, statistics)
        names = [points.names[place] for place in points.leaving()]
        line["outliers"] = ", ".join(names[:3]) + (f" and {len(names) - 3} more" * (len(names) > 3))
        line["algorithms"] = len(points.names)
        cells.append(line)
    columns = [
        Column("environment", key=True),
        Column("drop", "mean drop", "points", "accuracy in distribution less that outside"),
        Column("slope", unit="coefficient", help=f"of the line on {axes} axes"),
        Column("intercept", unit="coefficient", help=f"on {axes} axes"),
        Column("determination", "R²", "coefficient", "of what the line is fitted to"),
        Column("curved", "R², curved", "coefficient", "of a parabola, which may bend"),
        Column(
            "rank correlation",
            unit="correlation",
            help="Spearman's, of accuracy in and out of distribution, means over seeds",
        ),
        Column("outliers", help="farthest from the line first"),
        Column("algorithms", unit="count"),
    ]
    notes = [
        (
            "The mean over environments comes first. Intervals resample algorithms and seeds: "
            f"{statistics.draws:,} times, {statistics.level:.0%}."
        )
    ]
    title = "Accuracy out of distribution against accuracy in distribution"
    return table(cells, "lines", title, columns, notes)


def _correlation(points: Points, lines: pd.DataFrame, statistics: Statistics) -> dict[str, Any]:
    """Correlate the ranks of algorithms in and out of distribution, with the interval."""
    name = "rank correlation"
    if points.environment != AVERAGE:
        lines = lines[lines["env"] == points.environment]
    studies = lines.groupby(["algorithm", "seed"])[["inside", "outside"]].mean().reset_index()
    outside = comparable(by_seed(studies, "outside"))
    inside = by_seed(studies, "inside").loc[outside.index, outside.columns]
    rng = np.random.default_rng(statistics.seed)
    try:
        interval = correlation_interval(
            inside, outside, rng, draws=statistics.draws, level=statistics.level
        )
    except MeasureError as error:
        return entry(name, reason=str(error))
    return interval_entry(name, interval, n=len(outside))


def algorithm_table(points: Points, lines: pd.DataFrame, axes: Axes) -> Table:
    """List accuracy in and out of distribution of every algorithm, and its effective robustness."""
    studies = lines.groupby(["algorithm", "seed"])[["inside", "outside"]].mean()
    deviations = studies.groupby("algorithm").std()
    seeds = studies.groupby("algorithm").size()
    robustness = points.robustness
    order = np.argsort(-np.nan_to_num(robustness), kind="stable")
    cells = []
    for place in order.tolist():
        name = points.names[place]
        line: dict[str, Any] = {"algorithm": name}
        for column, values in (("inside", points.inside), ("outside", points.outside)):
            deviation = float(deviations.loc[name, column])
            std = deviation if deviation == deviation else None
            line |= entry(column, float(values[place]), std=std, n=int(seeds[name]))
        if points.line is None:
            line |= entry("robustness", reason=points.reason)
        else:
            line |= entry("robustness", float(robustness[place]))
        line["outlier"] = "yes" if points.is_outlier[place] else ""
        line["seeds"] = int(seeds[name])
        cells.append(line)
    columns = [
        Column("algorithm", key=True),
        Column("inside", "in distribution", "percent", WORDS["in distribution"]),
        Column("outside", "out of distribution", "percent", "mean over held-out environments"),
        Column("robustness", "effective robustness", "points", WORDS["effective robustness"]),
        Column("outlier", help=WORDS["outlier"]),
        Column("seeds", unit="count"),
    ]
    return table(
        cells,
        "robustness",
        "Effective robustness of every algorithm",
        columns,
        [f"± standard deviation over seeds; the line is straight on {axes} axes."],
        detail=len(cells) > _MOST_SHOWN,
    )


def selection_table(evaluation: Evaluation, lines: pd.DataFrame, statistics: Statistics) -> Table:
    """List for each measure what it costs to select the algorithm by accuracy in distribution."""
    studies = lines.groupby(["algorithm", "seed"])["inside"].mean().rename("inside").reset_index()
    studies["inside"] = 1 - studies["inside"]  # an error: the lowest is selected, as of measures
    cells = []
    for measure in evaluation.measures.computed:
        if evaluation.studies[measure.name].isna().all():
            continue  # the ideal of a table of others
        line: dict[str, Any] = {"measure": measure.title}
        line |= _cost(evaluation, studies, measure.name, statistics)
        cells.append(line)
    columns = [
        Column("measure", key=True),
        Column("chosen", "chosen in distribution", help="by the mean over seeds"),
        Column("level", "its value", "percent"),
        Column("best", "best by the measure"),
        Column("best level", "its value", "percent"),
        Column("cost", unit="points", help="value of the chosen less that of the best"),
        Column("rank correlation", unit="correlation", help="of the error in distribution"),
    ]
    notes = [
        (
            "Errors, lower is better. The cost's interval is that of a paired t-test over seeds. "
            "Both algorithms were found in these numbers, so that the cost is rather too high."
        )
    ]
    title = "What selecting by accuracy in distribution costs"
    return table(cells, "selecting", title, columns, notes)


def _cost(
    evaluation: Evaluation, studies: pd.DataFrame, name: str, statistics: Statistics
) -> dict[str, Any]:
    """Compute the cells of a measure; or say why there are none."""
    shared = evaluation.studies.merge(studies, on=["algorithm", "seed"]).dropna(subset=[name])
    values = comparable(by_seed(shared, name)) if len(shared) else pd.DataFrame()
    if len(values) < 2:
        reason = f"{len(values)} algorithm{'s' * (len(values) != 1)} with this measure"
        return entry("cost", reason=reason) | entry("rank correlation", reason=reason)
    inside = by_seed(shared, "inside").loc[values.index, values.columns]
    chosen = str(inside.mean(axis=1).idxmin())
    best = str(values.mean(axis=1).idxmin())
    differences = (values.loc[chosen] - values.loc[best]).to_numpy(dtype=float)
    cells: dict[str, Any] = {"chosen": chosen, "best": best}
    cells |= entry("level", float(values.loc[chosen].to_numpy().mean()))
    cells |= entry("best level", float(values.loc[best].to_numpy().mean()))
    cells |= _paired("cost", differences, statistics.level)
    rng = np.random.default_rng(statistics.seed)
    try:
        interval = correlation_interval(
            inside, values, rng, draws=statistics.draws, level=statistics.level
        )
    except MeasureError as error:
        return cells | entry("rank correlation", reason=str(error))
    return cells | interval_entry("rank correlation", interval, n=len(values))


def _paired(name: str, differences: np.ndarray[Any, Any], level: float) -> dict[str, Any]:
    count = len(differences)
    estimate = float(differences.mean())
    if count < 2 or not differences.any():
        return entry(name, estimate, n=count)
    error = float(differences.std(ddof=1)) / count**0.5
    margin = float(t.ppf((1 + level) / 2, count - 1)) * error
    return interval_entry(name, Interval(estimate, estimate - margin, estimate + margin, level))


class DistributionReport(ReportOfMeasures):
    """Sets accuracy out of distribution against accuracy in distribution.

    Args:
        axes: on which the line is straight.
        baselines: algorithms that it is fitted to; None takes all.
        statistics: settings of the bootstrap.
    """

    name: FileName = "distribution"
    axes: Annotated[Axes, Refusal("is no pair of axes", "choose probit, logit or linear")] = (
        "probit"
    )
    baselines: Annotated[
        Annotated[list[Name], Field(min_length=1)] | None,
        Refusal("is no list of algorithms", "write e.g. [erm,irm], or null for all"),
    ] = None
    statistics: Statistics = Statistics()

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        selected = select_runs(collection, selection, split_by)
        evaluation = evaluate(selected, split_by, self.choice)
        groups = [
            group for group in groups_of(selected, split_by) if group.identity["protocol"] != PAIRS
        ]
        inside = inside_by_run(collection, selected)
        self._check_baselines({run.label for run in selected.runs})
        problems = [*collection.problems, *evaluation.problems]
        sections = []
        for setting, group in zip(evaluation.settings, groups, strict=True):
            lines = paired_lines(group, inside)
            if lines.empty:
                reason = "no run has accuracies both in and out of distribution"
                problems.append(Problem("no accuracy in distribution", setting.title, reason))
                continue
            section, lacking = self._section(evaluation.of(setting.title), lines)
            sections.append(section)
            if lacking:
                text = f"{len(lacking)} lack an environment or its accuracy in distribution"
                problems.append(Problem("algorithms left out", ", ".join(lacking[:4]), text))
        if not sections:
            raise RecordError(
                "no run has accuracies both in and out of distribution; train with val rows "
                "(dataset.holdout above 0), or name them with import.in_distribution=[NAME]"
            )
        content = f"{len(collection.runs)} runs in {len(sections)} settings"
        content = content if len(sections) != 1 else content.removesuffix("s")
        return Document(
            "In and out of distribution",
            selection_text(selection, collection),
            sections,
            problem_table(problems),
            warnings(selection, collection, bool(evaluation.studies["trained_on_tested"].any())),
            leads(content, problems),
            glossary("distribution", terms=["held-out environment", "selection"]),
        )

    def _check_baselines(self, algorithms: set[str]) -> None:
        """Refuse a baseline without rows.

        Raises:
            ConfigError: there is one.
        """
        for name in self.baselines or ():
            if name not in algorithms:
                present = some_of(sorted(algorithms), 12)
                raise ConfigError(
                    f"report.baselines: {name} is no algorithm with rows here; choose from "
                    f"{present}"
                )

    def _section(self, evaluation: Evaluation, lines: pd.DataFrame) -> tuple[Section, list[str]]:
        """Build the section of a setting, and name the algorithms without every environment."""
        (setting,) = evaluation.settings
        whole, lacking = complete(lines)
        average = points_of(whole, AVERAGE, self.axes, self.baselines)
        parts = [average]
        environments = [env for env in setting.given if (whole["env"] == env).any()]
        for environment in environments if len(environments) > 1 else ():
            of_environment = whole[whole["env"] == environment]
            parts.append(points_of(of_environment, environment, self.axes, self.baselines))
        tables = [
            line_table(parts, whole, self.statistics, self.axes),
            selection_table(evaluation, whole, self.statistics),
            algorithm_table(average, whole, self.axes),
        ]
        name = f"distribution_{setting.name}"
        title = f"Accuracy in and out of distribution, {setting.title}"
        figures = [scatter([average], self.axes, name, title)]
        if len(parts) > 1:
            panels = scatter(parts[1:], self.axes, f"{name}_environments", f"{title}, each")
            figures.append(_folded(panels))
        answer = _answer(average, tables[1])
        facts = [("line fitted to", ", ".join(self.baselines or ["all algorithms"]))]
        section = Section(slug(setting.title), setting.title, tables, figures, answer, facts)
        return section, lacking


def _folded(figure: Figure) -> Figure:
    return Figure(
        figure.name, figure.title, figure.caption, figure.pictures, figure.size, detail=True
    )


def _answer(points: Points, selecting: Table) -> list[str]:
    """Describe how well accuracy in distribution orders algorithms, and what it costs to use it."""
    sentences = []
    count = len(points.names)
    drop = float((points.inside - points.outside).mean())
    text = f"{count} algorithms lose {percent(drop)} points out of distribution on average"
    if points.line is not None:
        rank = spearman(points.inside.tolist(), points.outside.tolist())
        text += f"; rank correlation {rank:.2f}, R² {points.line.determination:.2f}"
        text += f" on {points.line.axes} axes"
    sentences.append(f"{text}.")
    if points.line is not None and points.line.bends:
        sentences.append(
            f"The line does not describe them: a curve has R² {points.line.curved:.2f}. What "
            "leaves it may lie at the end of a bend; report.baselines=[...] fits it to some."
        )
    leaving = [points.names[place] for place in points.leaving()]
    if leaving:
        named = ", ".join(leaving[:3])
        more = f" and {len(leaving) - 3} more" if len(leaving) > 3 else ""
        sentences.append(f"Outliers from the line of the others: {named}{more}.")
    elif points.line is not None:
        sentences.append("No algorithm leaves the line of the others by more than chance allows.")
    frame = selecting.frame
    for line in frame[frame["cost"].notna()].head(1).to_dict("records"):
        judged = f"the best by {line['measure']} too"
        if line["chosen"] != line["best"]:
            cost = percent(line["cost"])
            judged = f"{cost} points of {line['measure']} above {line['best']}"
        sentences.append(f"Accuracy in distribution selects {line['chosen']}, {judged}.")
    return sentences
