"""Which shift dominates a dataset, as far as intervals of estimates and their nulls tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgbench.analysis.shift_verdicts import MeanEstimate, verdict_kind, verdict_words
from dgbench.records.shift_rows import HALVES, NO_NULL
from dgbench.reports.reading.shift_settings import ShiftLine, ShiftSetting


@dataclass(frozen=True)
class Verdict:
    """What may be said of a dataset."""

    #: see :func:`~dgbench.analysis.shift_verdicts.verdict_kind`; empty if nothing may be said
    kind: str
    reason: str  #: why nothing may be said, else empty
    sentence: str


def verdicts(setting: ShiftSetting) -> dict[str, Verdict]:
    """Map each dataset to which shift dominates it; empty if the estimator does not tell."""
    if setting.axes is None:
        return {}
    return {line.title: _verdict(line, setting.axes) for line in setting.lines}


def _verdict(line: ShiftLine, axes: tuple[str, str]) -> Verdict:
    estimates = []
    for name in axes:
        estimates += [line.value(name, NO_NULL), line.value(name, HALVES)]
    reason = _why_not(line, estimates)
    if reason:
        return Verdict("", reason, f"{line.title}: no verdict, {reason}.")
    div, null_div, cor, null_cor = (estimate for estimate in estimates if estimate)
    kind = verdict_kind(div, cor, null_div, null_cor)
    measured = (
        f"diversity {div} against {null_div} without shift, correlation {cor} against {null_cor}"
    )
    return Verdict(
        kind, "", f"{line.title}: {verdict_words(kind, div, null_div)} ({measured}; 95% intervals)."
    )


def _why_not(line: ShiftLine, estimates: Sequence[MeanEstimate | None]) -> str:
    """Explain why estimates of a dataset allow no verdict; return an empty text if they do.

    Args:
        line: the dataset.
        estimates: of diversity, its null, correlation, its null.
    """
    if None in estimates[::2]:
        reason = next((text for text in line.pairs["refused"] if text), "a value is missing")
        return f"not estimated: {reason}"
    if None in estimates[1::2]:
        return "nothing to compare with: estimate the null too (null=true)"
    for estimate, noun in zip(estimates, ("a value", "a null") * 2, strict=True):
        if estimate is not None and estimate.pairs < len(line.pairs):
            return f"only {estimate.pairs} of {len(line.pairs)} pairs have {noun}"
    if not all(estimate.ends for estimate in estimates if estimate):
        return "one trial has no interval: estimate again with trials=5 halves=8"
    return ""
