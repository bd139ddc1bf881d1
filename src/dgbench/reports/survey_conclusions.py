"""Plain sentences under the tables of a survey."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dgbench.reports.document import Cell
from dgbench.reports.surveys import Survey

if TYPE_CHECKING:
    from dgbench.reports.survey_picks import Hits


def on_survey_correlation(survey: Survey, body: Sequence[Sequence[Cell]], first: int) -> list[str]:
    """What Table 1 supports; ``first`` is its column of worst+gap by Spearman, average stands beside it."""
    count = len(survey.seeds)
    over = f"mean ± standard deviation (divisor n-1) over {count} seeds" if count > 1 else "1 seed, no deviation"
    sentences = [
        f"1: the measure orders the {len(survey.algorithms)} algorithms as the ideal one does; {over}. "
        "Highest of a line and coefficient in bold, negative ones underlined."
    ]
    for name, at in (("Spearman", first), ("Kendall", first + 4)):
        pairs = [(row[at].value, row[at + 1].value) for row in body]
        known = [(a, b) for a, b in pairs if isinstance(a, float) and isinstance(b, float)]
        if not known:
            sentences.append(f"{name}: no configuration has both worst+gap and average; nothing can be concluded.")
            continue
        wins, losses = sum(a > b for a, b in known), sum(a < b for a, b in known)
        sentences.append(
            f"{name}: worst+gap correlates better than average in {wins} of {len(known)} configurations, "
            f"which is {_sign_test(wins, losses)}."
        )
    return sentences


def on_survey_picks(survey: Survey) -> list[str]:
    """How to read Table 6."""
    return [
        "Bold: the same pick as by the ideal measure, which alone knows all environments. "
        "mean: the pick on the mean over seeds. Ties are shown as a = b.",
        *([] if len(survey.seeds) > 1 else ["1 seed: a pick may be the luck of that seed."]),
    ]


def on_survey_hits(survey: Survey, found: Sequence[Hits]) -> list[str]:
    """Worst+gap against average, the first two."""
    algorithms = len(survey.algorithms)
    sentences = [
        f"A blind guess among {algorithms} algorithms is right once in {algorithms}. Degradation 0: truly best. Over "
        "configurations and seeds, which are no independent trials: seeds share their configuration's environments."
    ]
    ours, other = found[0].per_seed, found[1].per_seed
    both = ours.keys() & other.keys()
    if both:
        better = sum(ours[key] < other[key] for key in both)
        worse = sum(ours[key] > other[key] for key in both)
        sentences.append(
            f"worst+gap picks a better algorithm than average in {better} of {len(both)} cases, "
            f"a worse one in {worse} and an equally good one in {len(both) - better - worse}."
        )
        lines = {key[0] for key in both}
        cost = {at: sum(ours[k] - other[k] for k in both if k[0] == at) for at in lines}
        wins, losses = sum(v < 0 for v in cost.values()), sum(v > 0 for v in cost.values())
        sentences.append(
            f"Counted by configuration, its picks cost less in {wins} and more in {losses} of {len(lines)}, "
            f"which is {_sign_test(wins, losses)}."
        )
    return sentences


def _sign_test(wins: int, losses: int) -> str:
    """Two-sided sign test over the configurations that do not tie, in words."""
    total = wins + losses
    if not total:
        return "a tie throughout"
    tail = sum(math.comb(total, k) for k in range(max(wins, losses), total + 1)) / 2**total
    p = min(1.0, 2 * tail)
    verdict = "more than chance" if p < 0.05 else "no more than chance may do"
    return f"{verdict} (sign test, p = {p:.2g})"
