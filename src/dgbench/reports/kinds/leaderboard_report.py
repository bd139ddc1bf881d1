"""``report=leaderboard``: accuracies, places and scores of every algorithm, ours and published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dgbench.errors import ConfigError
from dgbench.reports.boards.board_values import ranked
from dgbench.reports.boards.boards import Board, boards
from dgbench.reports.boards.leaderboard_answer import WORDS, leaderboard_answer
from dgbench.reports.boards.leaderboard_figures import leaderboard_figures
from dgbench.reports.boards.leaderboard_published import (
    Baseline,
    agreement_section,
    baseline_of,
    beside_tables,
    published_boards,
)
from dgbench.reports.boards.leaderboard_scores import score_table
from dgbench.reports.boards.leaderboard_tables import chosen_table, dataset_table, leaderboard_table
from dgbench.reports.boards.leaderboard_variance import test_curves, variance_table
from dgbench.reports.boards.shift_split import ShiftSplit, shift_split
from dgbench.reports.document import Document, Section, leads, problem_table, warnings
from dgbench.reports.frames import Table
from dgbench.reports.reading.collect import Collection
from dgbench.reports.settings.apply_selection import select_runs
from dgbench.reports.settings.choices import choices
from dgbench.reports.settings.labels import slug, variant_text
from dgbench.reports.settings.selected_runs import of_collection
from dgbench.reports.shift.verdicts import DOMINANT
from dgbench.selection.methods import Selection, describe
from dgbench.statistics.accuracy_summary import DIVISORS, SPREADS


@dataclass(frozen=True)
class LeaderboardReport:
    """Builds the leaderboards.

    Args:
        name: names the output folder.
        spread: error bar over seeds, a key of :data:`~dgbench.statistics.accuracy_summary.SPREADS`.
        std_divisor: of the standard deviation over test environments, ``K-1`` or ``K``.
        reference: algorithm whose error bar decides the ranking score.
        shifts: dataset -> ``diversity`` or ``correlation``, the shift that dominates it.
        shifts_from: folders with ``shifts.jsonl``, whose estimates take the place of ``shifts``.
        shifts_estimator: which of them count where there are several, see
            :func:`~dgbench.reports.boards.shift_split.shift_split`.
        epochs: evaluations at the end of a run over which its variance is taken.
        baseline: leaderboard that places are compared with: a published table's name or a title of ours.
        published: names of published tables to print beside ours.
    """

    name: str = "leaderboard"
    spread: str = "domainbed"
    std_divisor: str = "K-1"
    reference: str = "erm"
    shifts: Mapping[str, str] = field(default_factory=dict)
    shifts_from: str | Sequence[str] | None = None
    shifts_estimator: str | None = None
    epochs: int = 10
    baseline: str | None = None
    published: Sequence[str] = ()

    def __post_init__(self) -> None:
        for key, allowed in (("spread", SPREADS), ("std_divisor", DIVISORS)):
            if getattr(self, key) not in allowed:
                raise ConfigError(f"report.{key}={getattr(self, key)} is unknown; choose from {', '.join(allowed)}")
        if odd := sorted(set(self.shifts.values()) - set(DOMINANT)):
            raise ConfigError(f"report.shifts has {', '.join(odd)}; choose from {', '.join(DOMINANT)}")
        if self.epochs < 2:
            raise ConfigError(f"report.epochs={self.epochs} has no variance; give 2 or more")

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        theirs = published_boards(self.published)
        split = shift_split(self.shifts, self.shifts_from, self.shifts_estimator)
        selected = select_runs(collection, selection, split_by)
        unreported = selection.validation_environments
        found, missing = boards(of_collection(collection, selected), unreported, split_by)
        own = {board.title: level for board in found if (level := ranked(board))}
        baseline = baseline_of(self.baseline, own)
        curves = test_curves(collection, selected, unreported, self.epochs)
        chosen = choices(collection, selected, unreported)
        sections = []
        for board in found:
            beside = [frame for other in theirs for frame in beside_tables(board, other, selection.name)]
            tables = [
                *self._tables(board, split, baseline if baseline and baseline.title != board.title else None, beside),
                variance_table(board, curves, self.epochs),
                chosen_table(board, chosen),
            ]
            figures, answer = leaderboard_figures(board), leaderboard_answer(board)
            sections.append(Section(slug(board.title), board.title, tables, figures, answer, facts=_facts(board)))
        agreement = agreement_section(own, theirs)
        problems = [*collection.problems, *missing, *split.problems]
        used = f"{len(selected.rows)} of {len(collection.runs)} runs count: one hyperparameter draw of each search"
        return Document(
            title="Leaderboards of domain generalization: accuracy, higher is better",
            selection=describe(selection),
            sections=[*sections, *([agreement] if agreement else [])],
            problems=problem_table(problems),
            warnings=warnings(selection, any(board.trained_on_tested for board in found)),
            lead=leads(used, problems),
            words=WORDS,
        )

    def _tables(
        self, board: Board, split: ShiftSplit, baseline: Baseline | None, beside: Sequence[Table]
    ) -> list[Table]:
        score = score_table(board, self.reference, split, self.spread)
        return [
            leaderboard_table(board, self.spread, baseline),
            *([] if score is None else [score]),
            *beside,
            *(dataset_table(board, dataset, self.spread, self.std_divisor) for dataset in board.datasets),
        ]


def _facts(board: Board) -> list[tuple[str, str]]:
    facts = [(key, str(value)) for key, value in board.identity.items()]
    for dataset in board.datasets:
        form = f"base images {dataset.identity['base']}, {dataset.identity['evaluation']} errors"
        held_out = ", ".join(dataset.environments)
        facts.append((dataset.title, f"{variant_text(dataset.identity)}; {form}; held out: {held_out}"))
    return [*facts, *([("code", ", ".join(board.codes))] if board.codes else [])]
