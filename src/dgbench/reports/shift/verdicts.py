"""Which shift dominates a dataset: said only where intervals tell it from two halves of one distribution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd

from dgbench.records.shift_rows import HALVES, NO_NULL
from dgbench.reports.shift.pair_values import ALL_PAIRS, VALUE
from dgbench.reports.shift.shift_estimates import ShiftSetting

DIVERSITY, CORRELATION, BOTH, NEITHER, UNDECIDED = "diversity", "correlation", "both", "neither", "undecided"
DOMINANT = (DIVERSITY, CORRELATION)
_SAID = {
    DIVERSITY: "dominated by diversity shift",
    CORRELATION: "dominated by correlation shift",
    BOTH: "both shifts",
    NEITHER: "neither can be told from no shift",
}


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; without one, ``low`` and ``high`` are None."""

    value: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> list[tuple[float, float]]:
        """Of its interval, as a list of one; empty without one."""
        return [] if self.low is None or self.high is None else [(self.low, self.high)]

    def __str__(self) -> str:
        return f"{self.value:.2f}" + "".join(f" [{low:.2f}, {high:.2f}]" for low, high in self.ends)


@dataclass(frozen=True)
class Verdict:
    """What may be said of a dataset."""

    kind: str  #: one of the names above; empty where nothing may be said
    why: str  #: why nothing may be said, else empty
    sentence: str


def estimate_of(setting: ShiftSetting, dataset: str, name: str, null: str = NO_NULL) -> Estimate | None:
    """The value of a dataset over its pairs; None where there is none."""
    own = value_line(setting, dataset, name, null)
    if own is None:
        return None
    low, high = (None if pd.isna(own[end]) else float(own[end]) for end in ("low", "high"))
    return Estimate(float(own["value"]), low, high)


def value_line(
    setting: ShiftSetting, dataset: str, name: str, null: str = NO_NULL, pair: str = ALL_PAIRS, part: str = VALUE
) -> Mapping[str, Any] | None:
    """The line of ``setting.values``, None where there is none."""
    frame = setting.values
    mask = (frame["dataset"] == dataset) & (frame["name"] == name) & (frame["null"] == null)
    found: list[dict[str, Any]] = frame[mask & (frame["pair"] == pair) & (frame["part"] == part)].to_dict("records")  # type: ignore[assignment]
    return found[0] if found else None


def verdicts(setting: ShiftSetting) -> dict[str, Verdict]:
    """Dataset -> verdict; empty where the estimator has no diversity and correlation shift."""
    return {line.title: _verdict(setting, line.title) for line in setting.lines} if setting.axes else {}


def _verdict(setting: ShiftSetting, dataset: str) -> Verdict:
    assert setting.axes is not None
    found = [estimate_of(setting, dataset, name) for name in setting.axes]
    nulls = [estimate_of(setting, dataset, name, HALVES) for name in setting.axes]
    why = _why_not(setting, dataset, found, nulls)
    if why:
        return Verdict("", why, f"{dataset}: no verdict, {why}.")
    div, cor = (one for one in found if one)
    null_div, null_cor = (one for one in nulls if one)
    kind = verdict_kind(div, cor, null_div, null_cor)
    measured = f"diversity {div} against {null_div} without shift, correlation {cor} against {null_cor}"
    return Verdict(kind, "", f"{dataset}: {_said(kind, div, null_div)} ({measured}; 95% intervals).")


def verdict_kind(div: Estimate, cor: Estimate, null_div: Estimate, null_cor: Estimate) -> str:
    """Compares the excess of either shift over its null, as intervals.

    A shift is there where the interval of the estimate lies above that of the null, ends excluded; two 95% intervals
    that do not meet are stronger evidence than a test at 5%. It dominates where, besides, the whole interval of its
    excess lies above that of the other shift's.

    Args:
        div, cor: with intervals.
        null_div, null_cor: the same of two halves of one distribution.
    """
    div_low, div_high = _excess(div, null_div)
    cor_low, cor_high = _excess(cor, null_cor)
    if div_low <= 0 and cor_low <= 0:
        return NEITHER
    if div_low > max(0.0, cor_high):
        return DIVERSITY
    if cor_low > max(0.0, div_high):
        return CORRELATION
    return BOTH if min(div_low, cor_low) > 0 else UNDECIDED


def is_above(estimate: Estimate, null: Estimate) -> bool:
    """Whether the interval of an estimate lies above that of its null; both have one."""
    return _excess(estimate, null)[0] > 0


def _excess(estimate: Estimate, null: Estimate) -> tuple[float, float]:
    ((low, high),), ((null_low, null_high),) = estimate.ends, null.ends
    return low - null_high, high - null_low


def _said(kind: str, div: Estimate, null_div: Estimate) -> str:
    if kind in _SAID:
        return _SAID[kind]
    there, other = (DIVERSITY, CORRELATION) if is_above(div, null_div) else (CORRELATION, DIVERSITY)
    return f"a {there} shift; the {other} shift is known too poorly to say which dominates"


def _why_not(setting: ShiftSetting, dataset: str, found: list[Estimate | None], nulls: list[Estimate | None]) -> str:
    pairs = setting.pairs[setting.pairs["dataset"] == dataset]
    if None in found:
        why = next((text for text in pairs["refused"] if text), "a value is missing")
        return f"not estimated: {why}"
    if None in nulls:
        return "nothing to compare with: estimate the null too (null=true)"
    for name, null in product(setting.axes or (), (NO_NULL, HALVES)):
        line = value_line(setting, dataset, name, null)
        if line is not None and line["pairs"] < len(pairs):
            what = "a value" if null == NO_NULL else "a null"
            return f"only {line['pairs']} of {len(pairs)} pairs have {what}"
    if any(one is not None and not one.ends for one in [*found, *nulls]):
        return "one trial has no interval: estimate again with trials=5 halves=8"
    return ""
