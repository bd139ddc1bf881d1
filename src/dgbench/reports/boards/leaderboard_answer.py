"""The answer of a leaderboard: who leads by accuracy, by how much, and what cannot be concluded."""

from __future__ import annotations

from dgbench.reports.boards.board_values import ranked, seed_averages
from dgbench.reports.boards.boards import Board
from dgbench.reports.settings.answers import WORDS as MEASURE_WORDS
from dgbench.reports.settings.answers import too_few, verdict
from dgbench.reports.settings.over_seeds import comparable
from dgbench.reports.settings.study_values import algorithms_of
from dgbench.statistics.accuracy_summary import mean_interval

#: terms of the leaderboards, explained where they first stand
WORDS = {
    "average accuracy": "mean over the held-out environments of a dataset, then over the datasets; higher is better.",
    "held-out environment": MEASURE_WORDS["held-out environment"],
    "ranking score": "datasets on which an algorithm is above the reference's error bar, less those on which it is "
    "below (Ye et al. 2022).",
    "oracle gap": "what choosing step and hyperparameters by test accuracy itself would gain (Zhang et al. 2023).",
    "selection": MEASURE_WORDS["selection"],
}


def leaderboard_answer(board: Board) -> list[str]:
    """Who has the highest average accuracy, and from whom the seeds separate it."""
    level, names = ranked(board), algorithms_of(board.accuracies)
    if len(level) < 2:
        return [too_few(names, len(level), "an accuracy on every dataset")]
    found = seed_averages(board)
    judged, seeds = comparable(found)
    order = [name for name in level if name in judged]
    if len(order) < 2 or not seeds:
        first, second = list(level)[:2]
        return [
            f"{_lead(board, first, second)}. No two algorithms have the same seeds, so no difference can be tested."
        ]
    first, second = order[:2]
    other = [name for name in level if name not in judged]
    sentence = _lead(
        board, first, second, " of those with the same seeds" if other and first != next(iter(level)) else ""
    )
    if len(seeds) > 1:
        apart = mean_interval([found[first][seed] - found[second][seed] for seed in seeds])
        sentence += f" ([{100 * apart.low:.1f}, {100 * apart.high:.1f}], 95% interval over seeds)"
    answer = [f"{sentence}. {verdict(order, found, highest=True)}"]
    if other:
        named = ", ".join(f"{name} ({100 * level[name]:.1f} %)" for name in other)
        answer.append(f"Not compared, since other seeds are complete: {named}.")
    if absent := [name for name in names if name not in level]:
        answer.append(f"Not ranked, since a dataset is missing: {', '.join(absent)}.")
    return answer


def _lead(board: Board, first: str, second: str, among: str = "") -> str:
    level = ranked(board)
    over = f" over {len(board.datasets)} datasets" if len(board.datasets) > 1 else ""
    ahead = 100 * (level[first] - level[second])
    return (
        f"{first} has the highest average accuracy{over}{among}, {100 * level[first]:.1f} %, {ahead:.1f} points above "
        f"{second}"
    )
