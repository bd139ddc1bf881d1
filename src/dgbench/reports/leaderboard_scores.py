"""OoD-Bench's ranking score of a leaderboard (Ye et al. 2022, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.measures.accuracy_summary import SPREADS, mean, spread
from dgbench.measures.ranking import ranking_score
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.leaderboard_cells import Board, DatasetCells
from dgbench.reports.leaderboard_tables import Options

SHIFTS = ("diversity", "correlation")


def score_table(board: Board, titles: Sequence[str], options: Options, how: str) -> Table | None:
    """OoD-Bench's ranking score against the reference algorithm; None where that is not on the board."""
    if options.reference not in board.algorithms or len(board.algorithms) < 2:
        return None
    kinds = [options.shifts.get(str(cells.identity["dataset"]), "other") for cells in board.datasets]
    splits = [kind for kind in (*SHIFTS, "other") if kind in kinds]
    columns = [Column("algorithm"), *(Column(title, "count", kind) for title, kind in zip(titles, kinds, strict=True))]
    columns += [
        Column(f"{kind} shift" if kind != "other" else "other", "count", "sum over its datasets") for kind in splits
    ]
    columns.append(Column("score", "count", "sum over all datasets"))
    body = []
    for algorithm in board.algorithms:
        scores = [_score(cells, algorithm, options) for cells in board.datasets]
        line = [Cell(algorithm), *(_signed(score, why) for score, why in scores)]
        for kind in splits:
            line.append(_sum([score for score, of in zip(scores, kinds, strict=True) if of == kind]))
        body.append([*line, _sum(scores)])
    body.sort(key=lambda line: (line[-1].value is None, -float(line[-1].value or 0), str(line[0].value)))
    bar = SPREADS[options.spread]
    notes = [
        f"-1, 0 or +1: the mean accuracy is below, within (ends included) or above the error bar of "
        f"{options.reference} ({bar}); summed over datasets. It does not compare two others (Ye et al. 2022)."
    ]
    return Table("ranking_score", f"Ranking score against {options.reference} ({how})", columns, body, notes)


def _score(cells: DatasetCells, algorithm: str, options: Options) -> tuple[int | None, str]:
    mine, theirs = (list(cells.averages(name).values()) for name in (algorithm, options.reference))
    if not mine or not theirs:
        name = algorithm if not mine else options.reference
        return None, cells.why(name) or f"no result of {name}"
    bar = spread(theirs, options.spread)
    if bar is None or len(theirs) < 2:
        return None, f"{options.reference} has 1 seed and so no error bar; train more seeds"
    return ranking_score(mean(mine), mean(theirs), bar), ""


def _signed(score: int | None, why: str) -> Cell:
    return Cell(reason=why) if score is None else Cell(f"{score:+d}" if score else "0")


def _sum(scores: Sequence[tuple[int | None, str]]) -> Cell:
    known = [score for score, _ in scores if score is not None]
    if len(known) < len(scores):
        return Cell(reason=next(why for score, why in scores if score is None))
    return _signed(sum(known), "")
