"""The sentences on top of ``report=errors``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dgbench.reports.errors.error_counts import Counts
from dgbench.reports.errors.error_groups import confusions, worst_group


def answer(best: str, counts: Mapping[str, Sequence[Counts]], classes: Sequence[str]) -> list[str]:
    """What the section shows, in two sentences.

    Args:
        best: the algorithm that they are about.
        counts: of every algorithm.
        classes: names.
    """
    seeds = counts[best]
    measured = [seed.of() for seed in seeds]
    accuracy, ece, excess = (
        sum(getattr(each, name) for each in measured) / len(measured) for name in ("accuracy", "ece", "excess")
    )
    among = f", the most of {len(counts)} algorithms" if len(counts) > 1 else ""
    mean = f" (mean of {len(seeds)} seeds)" if len(seeds) > 1 else ""
    first = f"{best} gets {100 * accuracy:.1f}% of the held-out test images right{mean}{among}"
    if worst := worst_group(seeds, attributes=True):
        named = worst.named(classes)
        first += f"; its worst group is {named}: {100 * worst.accuracy:.1f}% of {worst.n:.0f} images"
    sentences = []
    if taken := next(confusions(seeds), None):
        label, other, _, share = taken
        sentences.append(
            f"Most often {classes[label]} is taken for {classes[other]} ({100 * share:.0f}% of its images)"
        )
    direction = "above" if excess > 0 else "below"
    sentences.append(
        f"its confidence is {100 * abs(excess):.1f} points {direction} its accuracy (ECE {100 * ece:.1f}%)"
    )
    second = "; ".join(sentences)
    return [f"{first}.", f"{second[0].upper()}{second[1:]}."]
