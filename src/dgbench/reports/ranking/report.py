"""``report=leaderboard``: accuracies, places and scores of every algorithm, ours and published.

On top the answer: who leads by accuracy, by how much, and what cannot be concluded.
"""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from dgbench.analysis.accuracy import Spread
from dgbench.analysis.selection import Selection
from dgbench.phases import tracked
from dgbench.plan.settings import FileName, Name
from dgbench.reports.chance import beaten
from dgbench.reports.choices import choices
from dgbench.reports.document import (
    Document,
    Report,
    Section,
    check_algorithm,
    leads,
    problem_table,
    selection_text,
    warnings,
)
from dgbench.reports.labels import slug, variant_text
from dgbench.reports.over_seeds import only_one_environment, too_few
from dgbench.reports.ranking.figures import leaderboard_figures
from dgbench.reports.ranking.leaderboards import Leaderboard, leaderboards
from dgbench.reports.ranking.published import (
    agreement_section,
    baseline_of,
    beside_tables,
    published_boards,
)
from dgbench.reports.ranking.relative_gap import gap_section
from dgbench.reports.ranking.score import score_table
from dgbench.reports.ranking.stated import standing_section
from dgbench.reports.ranking.tables import chosen_table, dataset_table, leaderboard_table
from dgbench.reports.ranking.variance import test_curves, variance_table
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.render.drawing import MOST_DRAWN, too_many
from dgbench.reports.resolution import no_verdict
from dgbench.reports.standing import judge
from dgbench.reports.tables import percent
from dgbench.reports.words import glossary
from dgbench.validation import Folders, Refusal


def leaderboard_answer(leaderboard: Leaderboard) -> list[str]:
    """Write who has the highest average accuracy, and from whom the seeds separate it."""
    level = leaderboard.level
    names = leaderboard.algorithms
    unjudged = no_verdict(leaderboard.identity)
    if unjudged:
        return unjudged
    if len(level) < 2:
        return [too_few(names, len(level), "an accuracy on every dataset")]
    verdict = judge(leaderboard.averages, highest=True, absent=names)
    if verdict is None:
        first = next(iter(level))
        text = "no algorithm has a seed that is complete on every dataset, so none can be compared"
        return [f"Undecided: {first} leads by average accuracy; {text}."]
    quantity = "average accuracy"
    if len(verdict.leaders.names) > 1:
        datasets = leaderboard.datasets
        trained_on_one = all(only_one_environment(dataset.identity) for dataset in datasets)
        parts = [
            dataset.accuracies.drop(columns="images").assign(dataset=dataset.title)
            for dataset in datasets
        ]
        results = pd.concat(parts)
        tie = verdict.leaders.sentence(f"highest {quantity}", results, "accuracy", trained_on_one)
        head = f"{tie}."
    else:
        head = verdict.headline(quantity)
    over = f" over {len(leaderboard.datasets)} datasets" if len(leaderboard.datasets) > 1 else ""
    numbers = verdict.numbers(f"{quantity}{over}", level[verdict.leader], above=True)
    answer = [head, f"{numbers}. {verdict.apart()}" if verdict.rivals else f"{numbers}."]
    partial = [name for name in level if name in verdict.remarks]
    if partial:
        named = ", ".join(f"{name} ({percent(level[name])}%)" for name in partial)
        answer.append(f"Compared over the seeds that both have, if at all: {named}.")
    unranked = [name for name in names if name not in level]
    if unranked:
        answer.append(f"Not ranked, since a dataset is missing: {', '.join(unranked)}.")
    warning = beaten(
        {verdict.leader: level[verdict.leader]},
        leaderboard.chance,
        "average accuracy",
        highest=True,
    )
    return [warning, *answer] if warning else answer


class LeaderboardReport(Report):
    """Builds the leaderboards.

    Args:
        spread: error bar over seeds, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
        std_divisor: of the standard deviation over test environments, ``K-1`` or ``K``.
        reference: algorithm whose error bar decides the ranking score.
        shifts: dataset -> ``diversity`` or ``correlation``, the shift that dominates it.
        distances_from: folders with ``shifts.jsonl`` of ``estimator=[frechet]``, beside what linear
            probing gains.
        epochs: evaluations at the end of a run over which its variance is taken.
        baseline: leaderboard that places are compared with: a published table's name or a title of
            ours.
        published: names of published tables to print beside ours.
    """

    of_means = True

    name: FileName = "leaderboard"
    spread: Spread = "domainbed"
    std_divisor: Literal["K-1", "K"] = "K-1"
    reference: Name = "erm"
    shifts: dict[str, Literal["diversity", "correlation"]] = Field({})
    distances_from: Folders | None = None
    epochs: Annotated[int, Field(ge=2), Refusal("has no variance", "give 2 or more")] = 10
    baseline: Name | None = None
    published: Annotated[
        list[Name], Refusal("is no list of published tables", "write e.g. [NAME]")
    ] = Field([])

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        published_boards(self.published)  # refuses unknown ones before runs are read
        if collection.published:
            return self._stated(collection)
        selected = select_runs(collection, selection, split_by)
        labels = {run.label for run in selected.runs}
        reference = check_algorithm(self, "reference", labels)
        datasets = {str(run.identity["dataset"]) for run in selected.runs}
        theirs = published_boards(self.published, labels, datasets)
        unreported = selection.validation_environments
        results, missing = leaderboards(selected, unreported, split_by)
        levels = {board.title: board.level for board in results if board.level}
        baseline = baseline_of(self.baseline, levels)
        curves = test_curves(collection, selected, unreported, self.epochs)
        chosen = choices(selected, unreported)
        sections = []
        for leaderboard in tracked(results, "statistics", len(results), "leaderboards"):
            score = score_table(leaderboard, reference, self.shifts, self.spread)
            other_board = baseline if baseline and baseline.title != leaderboard.title else None
            tables = [
                leaderboard_table(
                    leaderboard, self.spread, other_board, leaderboard.repetitions(results)
                ),
                *([] if score is None else [score]),
                *chain.from_iterable(
                    beside_tables(leaderboard, paper, selection.rule) for paper in theirs
                ),
                *(
                    dataset_table(leaderboard, dataset, self.spread, self.std_divisor)
                    for dataset in leaderboard.datasets
                ),
                variance_table(leaderboard, curves, self.epochs),
                chosen_table(leaderboard, chosen),
            ]
            figures, answer = leaderboard_figures(leaderboard), leaderboard_answer(leaderboard)
            sections.append(
                Section(
                    slug(leaderboard.title),
                    leaderboard.title,
                    tables,
                    figures,
                    answer,
                    facts=_facts(leaderboard),
                )
            )
        gaps, gap_problems = gap_section(results, self.distances_from)
        agreement = agreement_section(levels, theirs)
        problems = [*collection.problems, *missing, *gap_problems]
        counting = sum(not run.reason for run in selected.runs)
        used = f"{counting} of {len(collection.runs)} runs count"
        used += ": one hyperparameter draw of each search" * selection.chooses_draws
        return Document(
            title="Leaderboards of domain generalization: accuracy, higher is better",
            selection=selection_text(selection, collection),
            sections=[*sections, *(section for section in (gaps, agreement) if section)],
            problems=problem_table(problems),
            warnings=warnings(
                selection, collection, any(leaderboard.trained_on_tested for leaderboard in results)
            ),
            lead=leads(used, problems),
            words=glossary("studies", "accuracies"),
        )

    def _stated(self, collection: Collection) -> Document:
        papers, problems = collection.published, collection.problems
        return Document(
            title="Leaderboards of domain generalization: accuracy, higher is better",
            selection="",
            sections=[standing_section(paper) for paper in papers],
            problems=problem_table(problems),
            lead=leads(
                f"{sum(len(paper.values) for paper in papers)} lines of means with standard errors",
                collection.problems,
            ),
            words=glossary(terms=["average accuracy"]),
        )


def _facts(leaderboard: Leaderboard) -> list[tuple[str, str]]:
    facts = [(key, str(value)) for key, value in leaderboard.identity.items()]
    for dataset in leaderboard.datasets:
        form = f"base images {dataset.identity['base']}, {dataset.identity['evaluation']} errors"
        held_out = ", ".join(dataset.environments)
        facts.append(
            (dataset.title, f"{variant_text(dataset.identity)}; {form}; held out: {held_out}")
        )
    if len(leaderboard.algorithms) > MOST_DRAWN:
        facts.append(("no figure of ranks", too_many(len(leaderboard.algorithms))))
    return [*facts, *([("code", ", ".join(leaderboard.codes))] if leaderboard.codes else [])]
