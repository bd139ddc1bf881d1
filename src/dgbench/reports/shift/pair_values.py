"""Rows of one dataset as lines: values of every pair with intervals, their mean over pairs, and facts of the pairs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dgbench.analysis.accuracy import mean
from dgbench.records.shift_rows import HALF, NO_NULL, TRIAL, ShiftRow
from dgbench.reports.over_seeds import standard_deviation
from dgbench.reports.shift.shift_intervals import shift_interval

ALL_PAIRS = ""  #: in place of a pair's name: mean over the pairs of a dataset
VALUE, DIAGNOSTIC = "value", "diagnostic"

Numbers = Mapping[int, float]  # of a trial or half -> its value


def value_lines(rows: Sequence[ShiftRow]) -> list[dict[str, Any]]:
    """The lines of ``ShiftSetting.values`` of one dataset: of every pair and of their mean."""
    found: dict[tuple[str, str, str], dict[str, dict[str, dict[int, float]]]] = defaultdict(lambda: defaultdict(dict))
    exact: dict[tuple[str, str], float] = {}
    for row in rows:
        for part, numbers in ((VALUE, row.values), (DIAGNOSTIC, row.diagnostics)):
            for name, value in numbers.items():
                found[row.null, part, name][row.pair].setdefault(row.kind, {})[row.number] = value
        if row.null == NO_NULL:
            exact |= {(row.pair, name): value for name, value in row.exact.items()}
    lines = []
    for (null, part, name), of_pair in found.items():
        whole = {pair: kinds for pair, kinds in of_pair.items() if kinds.get(TRIAL)}
        true = {pair: exact.get((pair, name), math.nan) if null == NO_NULL and part == VALUE else math.nan
                for pair in whole}  # fmt: skip
        who = {"null": null, "part": part, "name": name}
        for pair, kinds in whole.items():
            own = _line(mean(list(kinds[TRIAL].values())), kinds[TRIAL], kinds.get(HALF, {}))
            lines.append({"pair": pair, **who, **own, "exact": true[pair], "pairs": 1})
        if whole:
            value = mean([mean(list(kinds[TRIAL].values())) for kinds in whole.values()])
            trials, halves = (_by_number([kinds.get(kind, {}) for kinds in whole.values()]) for kind in (TRIAL, HALF))
            own = _line(value, trials, halves)
            lines.append({"pair": ALL_PAIRS, **who, **own, "exact": mean(list(true.values())), "pairs": len(whole)})
    return lines


def _by_number(of_pairs: Iterable[Numbers]) -> dict[int, float]:
    """Mean over pairs of each trial or half that all of them have: halves are drawn once for all pairs."""
    every = list(of_pairs)
    shared = set.intersection(*(set(own) for own in every))
    return {number: mean([own[number] for own in every]) for number in sorted(shared)}


def _line(value: float, trials: Numbers, halves: Numbers) -> dict[str, Any]:
    ends = shift_interval(value, list(trials.values()), list(halves.values()))
    return {
        "value": value, "std": standard_deviation(list(trials.values())), "trials": len(trials), "halves": len(halves),
        "low": ends.low, "high": ends.high, "interval": ends.kind,
    }  # fmt: skip


def pair_lines(rows: Sequence[ShiftRow]) -> list[dict[str, Any]]:
    """The lines of ``ShiftSetting.pairs`` of one dataset."""
    by_pair: dict[str, list[ShiftRow]] = defaultdict(list)
    for row in rows:
        by_pair[row.pair].append(row)
    lines = []
    for pair, own in by_pair.items():
        trials = [row for row in own if row.kind == TRIAL and row.null == NO_NULL] or own
        first = next((row for row in trials if not row.refused), trials[0])
        flags = Counter(flag for row in trials for flag in dict.fromkeys(row.flags))
        refused = Counter(row.refused for row in trials if row.refused)
        lines.append({
            "pair": pair, "p": "+".join(first.p), "q": "+".join(first.q),
            "n_p": first.n[0] if first.n else None, "n_q": first.n[-1] if first.n else None,
            "classes": len(first.classes), "of": len(first.classes) + len(first.dropped),
            "dropped": ", ".join(f"{name} ({'/'.join(map(str, n))})" for name, n in first.dropped.items()),
            "flags": "; ".join(_counted(text, n, len(trials)) for text, n in flags.items()),
            "refused": "; ".join(_counted(text, n, len(trials)) for text, n in refused.items()),
        })  # fmt: skip
    return lines


def _counted(text: str, count: int, of: int) -> str:
    return text if count == of else f"{text} ({count} of {of} trials)"
