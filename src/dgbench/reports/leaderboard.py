"""``report=leaderboard``: accuracies, places and scores of every algorithm, ours and published."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dgbench.errors import ConfigError
from dgbench.measures.accuracy_summary import DIVISORS, SPREADS
from dgbench.protocols.selection import Selection, describe
from dgbench.reports.closing import TARGET_ORACLE
from dgbench.reports.collect import Collection
from dgbench.reports.comparisons import variant_text
from dgbench.reports.document import Document, Section, Table
from dgbench.reports.leaderboard_cells import Board, leaderboard_cells, short_titles
from dgbench.reports.leaderboard_chosen import chosen_table
from dgbench.reports.leaderboard_published import agreement_section, baseline_of, beside_table, published_boards
from dgbench.reports.leaderboard_scores import SHIFTS, score_table
from dgbench.reports.leaderboard_tables import Baseline, Options, dataset_table, leaderboard_table
from dgbench.reports.leaderboard_variance import test_curves, variance_table
from dgbench.reports.measures_report import problem_table
from dgbench.reports.published import Published
from dgbench.reports.selected import select_runs

_WARNING = "ORACLE SELECTION looks at the test environments: these numbers are no estimate of unseen performance."


@dataclass(frozen=True)
class LeaderboardReport:
    """Builds the leaderboards.

    Args:
        name: names the output folder.
        spread: error bar over seeds, a key of :data:`~dgbench.measures.accuracy_summary.SPREADS`.
        std_divisor: of the standard deviation over test environments, ``K-1`` or ``K``.
        reference: algorithm whose error bar decides the ranking score.
        shifts: dataset -> ``diversity`` or ``correlation``, the shift that dominates it.
        epochs: evaluations at the end of a run over which its variance is taken.
        baseline: leaderboard that places are compared with: a published table's name or a title of ours.
        published: names of published tables to print beside ours.
    """

    name: str = "leaderboard"
    spread: str = "domainbed"
    std_divisor: str = "K-1"
    reference: str = "erm"
    shifts: Mapping[str, str] = field(default_factory=dict)
    epochs: int = 10
    baseline: str | None = None
    published: Sequence[str] = ()

    def __post_init__(self) -> None:
        for key, allowed in (("spread", SPREADS), ("std_divisor", DIVISORS)):
            if getattr(self, key) not in allowed:
                raise ConfigError(f"report.{key}={getattr(self, key)} is unknown; choose from {', '.join(allowed)}")
        if odd := sorted(set(self.shifts.values()) - set(SHIFTS)):
            raise ConfigError(f"report.shifts has {', '.join(odd)}; choose from {', '.join(SHIFTS)}")
        if self.epochs < 2:
            raise ConfigError(f"report.epochs={self.epochs} has no variance; give 2 or more")

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        tables = published_boards(self.published)
        selected = select_runs(collection, selection, split_by)
        boards, missing = leaderboard_cells(collection, selected, selection, split_by)
        titles = board_titles(boards)
        own = {title: board.ranked() for title, board in zip(titles, boards, strict=True) if board.ranked()}
        baseline = baseline_of(self.baseline, own)
        how = describe(selection)
        curves = test_curves(collection, selected, selection.validation_environments, self.epochs)
        options = Options(self.spread, self.std_divisor, self.reference, self.shifts)
        sections = []
        for title, board in zip(titles, boards, strict=True):
            names = short_titles([cells.identity for cells in board.datasets])
            own_baseline = baseline if baseline and baseline.title != title else None
            parts = self._tables(board, names, options, how, own_baseline, tables)
            parts.append(variance_table(board, names, collection, selected, curves, self.epochs, how))
            parts.append(chosen_table(board, names, collection, selected, how))
            sections.append(Section(_slug(title), title, _facts(board, names), parts, []))
        agreement = agreement_section(own, tables)
        sections += [agreement] if agreement else []
        problems = [*collection.problems, *missing]
        used = len(selected.rows)
        lead = [
            *([_WARNING] if selection.uses_test_environments else []),
            *([TARGET_ORACLE] if any(board.trained_on_tested for board in boards) else []),
            f"{used} of {len(collection.runs)} runs count: one hyperparameter draw of each search; {how}.",
            f"{len(problems)} problem{'s' * (len(problems) != 1)}, listed at the end." if problems else "No problems.",
        ]
        return Document("Leaderboards of domain generalization", lead, sections, problem_table(problems))

    def _tables(
        self,
        board: Board,
        names: Sequence[str],
        options: Options,
        how: str,
        baseline: Baseline | None,
        published: Sequence[Published],
    ) -> list[Table]:
        parts = [leaderboard_table(board, names, options, how, baseline)]
        score = score_table(board, names, options, how)
        parts += [score] if score else []
        parts += [table for other in published if (table := beside_table(board, names, other, how))]
        for title, cells in zip(names, board.datasets, strict=True):
            parts.append(dataset_table(cells, f"dataset_{_slug(title)}", title, board.algorithms, options, how))
        return parts


def board_titles(boards: Sequence[Board]) -> list[str]:
    """Network, initial weights, tuning, protocol, and whatever else a board is split by."""
    words = {"init": "{} init", "protocol": "protocol {}"}
    titles = [", ".join(words.get(k, "{}").format(value) for k, value in board.identity.items()) for board in boards]
    return [
        f"TARGET ORACLE, {title}" if board.trained_on_tested else title
        for board, title in zip(boards, titles, strict=True)
    ]


def _facts(board: Board, names: Sequence[str]) -> list[tuple[str, str]]:
    facts = [(key, str(value)) for key, value in board.identity.items()]
    for name, cells in zip(names, board.datasets, strict=True):
        form = f"base images {cells.identity['base']}, {cells.identity['evaluation']} errors"
        facts.append((name, f"{variant_text(cells.identity)}; {form}; held out: {', '.join(cells.environments)}"))
    return [*facts, *([("code", ", ".join(board.codes))] if board.codes else [])]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_")
