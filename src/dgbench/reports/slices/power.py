"""What seeds can tell: the resolution of a table, its noise floor, and ``report=power``, how many a
study needs.

The report reads a pilot's rows or the error bars of a published table. It also says which pairs of
a pilot are decided, by a test that may be looked at after every seed, with the command that adds
seeds for the rest alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from dgbench.analysis import deviation_of, pairs
from dgbench.analysis.accuracy import SPREADS, deviation_behind
from dgbench.analysis.comparison import error_of_each
from dgbench.analysis.selection import Selection
from dgbench.errors import ConfigError, RecordError
from dgbench.phases import tracked
from dgbench.plan.needs import Need, where
from dgbench.plan.settings import FileName, Name
from dgbench.records.status import read_beat
from dgbench.reports.deciding import assumptions, pair_table, undecided
from dgbench.reports.document import (
    OF_RUNS,
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
from dgbench.reports.groups import Group, groups_of
from dgbench.reports.importers import IMPORTED
from dgbench.reports.labels import slug
from dgbench.reports.over_seeds import by_seed, ranked_by
from dgbench.reports.published import Published, boards, published
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.commands import adding_commands
from dgbench.reports.reading.selected import SelectedRun, select_runs
from dgbench.reports.render.drawing import canvas, colored, finish, grid
from dgbench.reports.resolution import Pilot, pilot_of, resolution
from dgbench.reports.tables import Column, Table, entry, interval_entry, percent, table
from dgbench.reports.words import WORDS, glossary
from dgbench.validation import Count1, Number, Refusal

_TITLE = "How many seeds a study needs"
#: seeds of the figure
_DRAWN = (3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 40, 50)
Seeds = Annotated[list[Annotated[int, Field(ge=2, lt=10_000)]], Field(min_length=1)]
Points = Annotated[list[Annotated[Number, Field(gt=0)]], Field(min_length=1)]


def published_pilots(theirs: Published) -> list[Pilot]:
    """Estimate a pilot from each column of a published table.

    Algorithms count as independent: no seed is known.
    """
    pilots = []
    for column in theirs.columns if theirs.bar else ():
        values = [line.get(column) for line in theirs.values.values()]
        bars = [value.error / 100 for value in values if value and value.error is not None]
        spreads = [deviation_behind(bar, theirs.seeds, theirs.bar) for bar in bars]
        deviations = [math.hypot(first, second) for first, second in combinations(spreads, 2)]
        if deviations:
            deviation = deviation_of(deviations, theirs.seeds)
            pilots.append(Pilot(f"{column} accuracy", deviation, len(deviations), len(bars)))
    return pilots


class PowerReport(ReportOfMeasures):
    """Builds the plan of a study.

    Args:
        differences: that are to be found, in percentage points.
        power: with which probability.
        seeds: numbers of seeds that are compared.
        batch: seeds that are added at a time.
        published: table whose error bars stand for a pilot; no runs are read then.
    """

    of_means = True

    name: FileName = "power"
    differences: Annotated[
        Points, Refusal("is no list of percentage points", "write e.g. [5,2,1]")
    ] = Field([5, 2, 1])
    power: Annotated[
        Number, Field(gt=0.05, le=0.999), Refusal("is not in (0.05, 0.999]", "0.8 is usual")
    ] = 0.8
    seeds: Annotated[Seeds, Refusal("is no list of seeds from 2 on", "write e.g. [3,5,10]")] = (
        Field([3, 5, 10, 20, 30])
    )
    batch: Count1 = 2
    published: Name | None = None
    needs: ClassVar[Mapping[str, Need]] = {
        "report.batch": Need(
            where("report.published", lambda name: name is None),
            "a published table has no command that adds seeds; leave it out",
            misleads=False,
        )
    }

    @property
    def unread(self) -> Sequence[str]:  # type: ignore[override]
        return OF_RUNS if self.published else ()

    def __call__(
        self, collection: Collection | None, selection: Selection, split_by: str | None = None
    ) -> Document:
        if collection is None or collection.published:
            return self._of_published(collection)
        selected = select_runs(collection, selection, split_by)
        evaluation = evaluate(selected, split_by, self.choice)
        groups = [
            group for group in groups_of(selected, split_by) if group.identity["protocol"] != PAIRS
        ]
        pilots = list(zip(evaluation.settings, groups, strict=True))
        sections = [
            self._section(evaluation.of(setting.title), group)
            for setting, group in tracked(pilots, "planning seeds", len(pilots), "settings")
        ]
        problems = [*collection.problems, *evaluation.problems]
        plural = "s" * (len(sections) != 1)
        summary = f"{len(collection.runs)} runs in {len(sections)} setting{plural}"
        return Document(
            _TITLE,
            selection_text(selection, collection),
            sections,
            problem_table(problems),
            warnings(selection, collection, bool(evaluation.studies["trained_on_tested"].any())),
            leads(summary, problems),
            glossary("power"),
        )

    def _of_published(self, collection: Collection | None) -> Document:
        """Plan from tables of means with error bars: those that were read, or the paper's.

        Raises:
            RecordError: the number of seeds behind the first table is not known.
            ConfigError: it is no table of accuracies.
        """
        if collection:
            papers = collection.published
            problems = collection.problems
            if not papers[0].seeds:
                raise RecordError(
                    f"how many seeds are behind {papers[0].source} is not known; add import.seeds=N"
                )
        else:
            papers = [published(str(self.published))]
            problems = []
        papers[0].accuracies()
        sections = [self._published_section(paper) for paper in papers]
        source = papers[0].source
        words = glossary("power")
        return Document(_TITLE, "", sections, problem_table(problems), lead=[source], words=words)

    def _published_section(self, theirs: Published) -> Section:
        pilots = published_pilots(theirs)
        if not pilots:
            having = [name for name in boards() if published_pilots(published(name))]
            raise ConfigError(
                f"report.published={theirs.name} has no error bars; choose one of "
                f"{', '.join(having)}"
            )
        unsaid = " (an assumption: the paper does not say)" if theirs.assumed_bar else ""
        note = (
            f"± of {theirs.name} read as {SPREADS[theirs.bar]}, over {theirs.seeds} "
            f"seeds{unsaid}; two algorithms are taken for independent, which is cautious where a "
            "seed moves both alike."
        )
        seeds = max(pilot.seeds(self.differences[-1], self.power).estimate for pilot in pilots)
        apart = f"{self.differences[-1]:g} point{'s' * (self.differences[-1] != 1)}"
        head = f"{seeds:,.0f} seeds find {apart} in every column; {theirs.seeds} are there."
        return Section(
            theirs.name,
            theirs.title,
            self._tables(pilots, note),
            [self._figure(pilots, theirs.name)],
            [head, note],
            facts=[("for a methods section", self._methods(pilots[0]))],
        )

    def _section(self, evaluation: Evaluation, group: Group) -> Section:
        (setting,) = evaluation.settings
        studies = evaluation.studies
        ranked = ranked_by(studies, evaluation.measures)
        ranked_title = ranked.in_prose
        ranking = by_seed(studies, ranked.name)
        others = [measure for measure in evaluation.measures.of_runs if measure != ranked]
        estimates = [
            pilot_of(measure.title, by_seed(studies, measure.name)) for measure in (ranked, *others)
        ]
        pilots = [pilot for pilot in estimates if pilot]
        main = estimates[0]
        if main is None:
            alone = (
                f"No two algorithms differ over 2 seeds in {ranked_title}: train 2 algorithms "
                "with 2 seeds or more."
            )
            return Section(setting.name, setting.title, answer=[alone])
        by_test = evaluation.verdicts[ranked.name]
        assert by_test is not None  # two algorithms differ
        order = [by_test.leader, *by_test.leaders.names[1:], *by_test.comparisons]
        judged = ranking.loc[list(dict.fromkeys(order))]
        every = pairs(judged.to_numpy())
        needed = 1 / error_of_each(len(judged), 0.05)
        lowest, highest = ranked.bounds(len(setting.given))
        bound = highest - lowest
        open_names = undecided(judged, every, needed)
        tables = [
            *self._tables(pilots),
            self._cost(main, models_of_seed(group.runs), hours_of(group.runs)),
            pair_table(judged, every, needed, bound, ranked_title),
        ]
        points = self.differences[0]
        takes = main.seeds(points, self.power)
        answer = [
            (
                f"{takes.estimate:,.0f} seeds find {points:g} points of {ranked_title}; "
                f"{judged.shape[1]} are there."
            )
        ]
        verdict = replace(
            by_test,
            open_to=frozenset([*open_names, *(by_test.open_to - {*judged.index})]),
            basis=f"{by_test.basis}, however often one looks,",
        )
        answer.append(verdict.headline(ranked_title))
        if verdict.decided:
            answer += assumptions(judged, every, needed, bound)
        else:
            answer.append("That takes differences over seeds to be about normal.")
            more = self._more(group, [verdict.leader, *verdict.rivals_left])
            answer += [f"Seeds for these alone: {text}" for text in more]
        answer += resolution(ranking, ranked_title, self.power)
        methods = [("for a methods section", self._methods(main))]
        return Section(
            setting.name,
            setting.title,
            tables,
            [self._figure(pilots, setting.name)],
            answer,
            methods,
        )

    def _tables(self, pilots: Sequence[Pilot], *notes: str) -> list[Table]:
        """Build the tables of seeds by difference, and of difference by seeds."""
        quantity = Column("quantity", key=True)
        spread = Column("deviation", unit="points", help=WORDS["deviation"])
        by_difference = [f"{points:g} point{'s' * (points != 1)}" for points in self.differences]
        by_seeds = [f"{seeds} seeds" for seeds in self.seeds]
        needed = []
        smallest = []
        for pilot in pilots:
            takes: dict[str, Any] = {"quantity": pilot.title}
            takes |= interval_entry("deviation", pilot.deviation, pilot.pairs)
            for name, points in zip(by_difference, self.differences, strict=True):
                takes |= interval_entry(name, pilot.seeds(points, self.power))
            needed.append(takes)
            finds: dict[str, Any] = {"quantity": pilot.title}
            for name, seeds in zip(by_seeds, self.seeds, strict=True):
                finds |= interval_entry(name, pilot.finds(seeds, self.power))
            smallest.append(finds)
        conditions = [
            (
                f"{100 * self.power:g}% power, one-sided paired t-test at 0.05 / "
                f"{max(2, pilots[0].algorithms - 1)}, as for bold: {pilots[0].algorithms} "
                "algorithms share 5%."
            ),
            "[low, high]: 95%, from the chi-square interval of the deviation.",
            *notes,
        ]
        columns = [quantity, spread, *(Column(name, unit="count") for name in by_difference)]
        return [
            table(needed, "seeds_needed", "Seeds that find a difference", columns, conditions),
            table(
                smallest, "resolution", "Smallest difference that seeds find",
                [quantity, *(Column(name, unit="points") for name in by_seeds)], conditions,
            ),
        ]  # fmt: skip

    def _cost(self, pilot: Pilot, models: int, hours: float | None) -> Table:
        """Compute the models, and hours where the pilot's speed is known, that follow from each
        difference.

        Args:
            pilot: of the quantity that ranks algorithms.
            models: that one seed takes.
            hours: of one model.
        """
        lines = []
        unknown = "no run folder tells its speed"
        for points in self.differences:
            seeds = pilot.seeds(points, self.power).estimate
            line = {
                "difference": f"{points:g} points of {pilot.title}",
                "seeds": seeds,
                "models": seeds * models,
            }
            lines.append(
                line
                | entry("hours", None if hours is None else seeds * models * hours, reason=unknown)
            )
        columns = [
            Column("difference", key=True),
            Column("seeds", unit="count"),
            Column(
                "models",
                unit="count",
                help=f"{models} for each seed: folds, times draws where there is a search",
            ),
            Column("hours", unit="rank", help="of one device, at the pilot's speed"),
        ]
        notes = [
            f"{models} models a seed.",
            *([] if hours else [f"Hours are not known: {unknown}."]),
        ]
        return table(lines, "cost", "What that costs", columns, notes)

    def _more(self, group: Group, names: Sequence[str]) -> list[str]:
        """Build the commands that train these algorithms with the seeds that others have, and a
        batch more.
        """
        runs: dict[str, list[SelectedRun]] = defaultdict(list)
        for run in group.runs:
            runs[run.label].append(run)
        have = {name: repetitions(runs[name]) for name in names}
        anywhere = set().union(*have.values())
        highest = max(anywhere)
        targets = anywhere.union(range(highest + 1, highest + 1 + self.batch))
        if str(runs[names[0]][0].identity["code"]).startswith(IMPORTED):
            lacking = (
                f"{name} {', '.join(map(str, sorted(targets - have[name])))}" for name in names
            )
            return [f"train them where these were trained: {'; '.join(lacking)}"]
        return adding_commands(
            (
                str(runs[name][0].identity["algorithm"]),
                Path(runs[name][0].folder),
                sorted(targets - have[name]),
            )
            for name in names
        )

    def _methods(self, pilot: Pilot) -> str:
        points = self.differences[0]
        needed = pilot.seeds(points, self.power)
        of_pairs = "the pair" if pilot.pairs == 1 else f"the median of {pilot.pairs} pairs"
        return (
            f"With {needed.estimate:,.0f} seeds, a paired t-test over seeds (one-sided, 0.05 / "
            f"{max(2, pilot.algorithms - 1)} for {pilot.algorithms} algorithms) finds a "
            f"difference of {points:g} points of {pilot.title} with {100 * self.power:g}% power, "
            f"where a paired difference deviates by {percent(pilot.deviation.estimate)} points "
            f"over seeds (95% interval {percent(pilot.deviation.low)} to "
            f"{percent(pilot.deviation.high)}, of {of_pairs} of a pilot)."
        )

    def _figure(self, pilots: Sequence[Pilot], name: str) -> Figure:
        """Draw the smallest difference over seeds: a line per quantity, a band for the first."""
        key = f"power_{slug(name)}"
        colors = colored([pilot.title for pilot in pilots], [pilot.title for pilot in pilots])
        with canvas(key, 5.2, 3.8) as drawn:
            axes = drawn.add_subplot()
            for pilot in pilots:
                smallest = [pilot.finds(seeds, self.power) for seeds in _DRAWN]
                line = [100 * value.estimate for value in smallest]
                color = colors.get(pilot.title)
                axes.plot(_DRAWN, line, color=color, linewidth=2, label=pilot.title)
                if pilot is pilots[0]:
                    low = [100 * value.low for value in smallest]
                    high = [100 * value.high for value in smallest]
                    axes.fill_between(_DRAWN, low, high, color=color, alpha=0.15, linewidth=0)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks([3, 5, 10, 20, 50], ["3", "5", "10", "20", "50"])
            axes.minorticks_off()
            axes.set_xlabel("seeds")
            axes.set_ylabel("difference found (points)")
            axes.yaxis.set_major_formatter("{x:g}")
            grid(axes)
            axes.legend(frameon=False)
            caption = (
                "Smallest true difference of two algorithms that is found in "
                f"{100 * self.power:g}% of studies. Band: 95%, from the uncertain deviation of "
                f"{pilots[0].title}."
            )
            return finish(drawn, key, "Smallest difference that seeds find", caption)


def repetitions(runs: Sequence[SelectedRun]) -> set[int]:
    """Return the seeds of an algorithm's runs, or the numbers of its search's trials where there
    are several.
    """
    trials = {int(run.identity["trial"]) for run in runs}
    if len(trials) > 1:
        return trials
    return {int(run.identity["seed"]) for run in runs}


def models_of_seed(runs: Sequence[SelectedRun]) -> int:
    """Count the models of one seed: the folds of every algorithm, times the draws of a search."""
    counts = (
        pd.Series([run.identity["seed"] for run in runs])
        .groupby([run.label for run in runs])
        .value_counts()
    )
    return int(counts.groupby(level=0).max().sum())


def hours_of(runs: Sequence[SelectedRun]) -> float | None:
    """Average the hours that one model trains, by the last sign of life of runs whose folder has
    one; None without.
    """
    hours = []
    for run in runs:
        beat = read_beat(Path(run.folder))
        if beat and beat.steps_per_s:
            hours.append(beat.steps / beat.steps_per_s / beat.runs / 3600)
    return float(np.mean(hours)) if hours else None
