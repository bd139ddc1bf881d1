"""The answer of a suite, in a sentence or two: who ranks first, and how well the measures predict who is truly best."""

from __future__ import annotations

from dgbench.reports.suites.suite_selection import correct_selections
from dgbench.reports.suites.suite_statistics import RANKED_BY, rankings
from dgbench.reports.suites.suites import Suite


def suite_answer(suite: Suite) -> list[str]:
    """Who ranks first by which measure, and how well worst+gap and average predict the truly best algorithm."""
    selected = [
        f"by {title} in {found.right} of {found.count} (mean cost {100 * found.cost:.1f} points of ideal error)"
        for title, found in correct_selections(suite).items()
    ]
    if not selected:
        return ["No setting has ideal errors: how well the measures predict the truly best algorithm is not known."]
    guess = f"a blind guess is right in 1 of {len(suite.algorithms)}"
    right = f"Over settings and seeds, the truly best algorithm is selected {', '.join(selected)}; {guess}."
    return [*_ranked_first(suite), right]


def _ranked_first(suite: Suite) -> list[str]:
    """The algorithm with the lowest mean rank by each measure, and how many others the test separates it from."""
    found, _ = rankings(suite)
    if not found:
        return []
    shown = {title: found[measure] for measure, title in RANKED_BY.items() if measure in found}
    firsts = [f"{each.first} by {title} ({each.ranks[each.first]:.1f})" for title, each in shown.items()]
    *most, last = [str(each.separated) for each in shown.values()]
    count, blocks = next((len(each.ranks), each.test.blocks) for each in shown.values())
    apart = f"them from {', '.join(most)} and {last} of the {count - 1} others"
    if not any(each.separated for each in shown.values()):
        apart = "none of them from any other"
    return [
        f"Lowest mean rank among {count} algorithms over {blocks} settings: {', '.join(firsts)}; Nemenyi's test "
        f"separates {apart}."
    ]
