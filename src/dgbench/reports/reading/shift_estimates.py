"""Rows of one dataset as lines: values of every pair with intervals, their mean over pairs, and facts of the pairs."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import pandas as pd

from dgbench.errors import ConfigError
from dgbench.records.shift_rows import HALF, HALVES, NO_NULL, TRIAL, ShiftIdentity, ShiftRow
from dgbench.reports.reading.folders import Problem
from dgbench.reports.settings.labels import dataset_titles, slug, words_of
from dgbench.reports.settings.over_seeds import mean, standard_deviation
from dgbench.statistics.shift_intervals import shift_interval

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


# Rows of estimated shift as tidy frames, sorted into settings: what may be compared.

#: what must be equal for two estimates to be compared
SETTING_KEYS = ("estimator", "settings", "features", "backbone", "init", "images")
#: what tells the lines of a table apart
LINE_KEYS = (
    "dataset", "variant", "base", "evaluation", "data_seed", "split_seed", "given", "content", "seed", "pairs",
)  # fmt: skip
_TITLES = {
    "joint": "Joint classifier",
    "ood_bench": "OoD-Bench estimator",
    "distances": "Distances",
    "concept": "Covariate and concept shift",
    "frechet": "Frechet distance",
}
_ORDER = tuple(_TITLES)
_FORMULAS = {"ye2022": ("div", "cor"), "hellinger": ("div_plus", "cor_plus")}


@dataclass(frozen=True)
class ShiftLine:
    """One form of a dataset with one way to pair its environments."""

    title: str  #: unique in its setting
    identity: Mapping[str, Any]  #: :data:`LINE_KEYS`


@dataclass(frozen=True)
class ShiftSetting:
    """Estimates that may be compared.

    ``values`` has one line per ``dataset`` (a title), ``pair`` (or :data:`ALL_PAIRS`), ``null``, ``part`` (value or
    diagnostic) and ``name``: ``value`` (mean of the trials; over pairs the mean of their means), ``std`` (sample
    standard deviation over trials), ``trials``, ``halves``, ``low``, ``high``, ``interval`` (which kind), ``exact``
    (NaN where it is unknown), ``pairs`` (how many have the value).

    ``pairs`` has one line per ``dataset`` and ``pair``: ``p``, ``q`` (names of environments), ``n_p``, ``n_q``,
    ``classes``, ``of`` (how many there are), ``dropped``, ``flags``, ``refused`` (texts, empty where there is nothing).
    """

    title: str  #: unique in a report
    identity: Mapping[str, Any]  #: :data:`SETTING_KEYS`, and what the report is split by
    lines: tuple[ShiftLine, ...]
    values: pd.DataFrame
    pairs: pd.DataFrame
    codes: tuple[str, ...]  #: versions of dgbench that wrote the rows

    @property
    def name(self) -> str:
        """For files and anchors."""
        return slug(self.title)

    @property
    def formula(self) -> str:
        """``ye2022`` or ``hellinger``."""
        return str(self.identity["settings"].get("formula", "ye2022"))

    @property
    def axes(self) -> tuple[str, str] | None:
        """Names of the values that are diversity and correlation shift; None where the estimator has none."""
        names = _FORMULAS.get(self.formula, _FORMULAS["ye2022"])
        return names if set(names) <= set(self.values["name"]) else None

    def line_of(self, title: str) -> ShiftLine:
        """The line of that title."""
        return next(line for line in self.lines if line.title == title)


def shift_settings(rows: Sequence[ShiftRow], split_by: str | None = None) -> tuple[list[ShiftSetting], list[Problem]]:
    """All settings that the rows allow, estimators of diversity and correlation first, and what is odd in them.

    Args:
        rows: each estimate once.
        split_by: one more identity key whose values get settings of their own.

    Raises:
        ConfigError: ``split_by`` is no identity key.
    """
    known = tuple(ShiftIdentity.__dataclass_fields__)
    if split_by is not None and split_by not in known:
        raise ConfigError(f"split_by={split_by} is no identity key of shifts; choose one of {', '.join(known)}")
    keys = SETTING_KEYS + ((split_by,) if split_by and split_by not in SETTING_KEYS else ())
    grouped: dict[str, list[ShiftRow]] = defaultdict(list)
    for row in rows:
        grouped[_key({key: getattr(row.identity, key) for key in keys})].append(row)
    groups = sorted(grouped.items(), key=lambda item: (_place(item[1][0].identity.estimator), item[0]))
    identities = [{key: getattr(own[0].identity, key) for key in keys} for _, own in groups]
    settings, problems = [], []
    for title, identity, (_, own) in zip(_setting_titles(identities), identities, groups, strict=True):
        setting, odd = _setting(title, identity, own)
        settings.append(setting)
        problems += odd
    return settings, problems


def _place(estimator: str) -> tuple[int, str]:
    return (_ORDER.index(estimator) if estimator in _ORDER else len(_ORDER), estimator)


def _key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, default=str)


def _setting_titles(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Estimator, network and features, with every setting in which those of one estimator differ."""
    titles = []
    plain = [{**who["settings"], **{k: v for k, v in who.items() if k != "settings"}} for who in identities]
    for mine in plain:
        others = [other for other in plain if other["estimator"] == mine["estimator"]]
        shown = ("estimator", "backbone", "init", "features")
        differing = [
            k
            for k in mine
            if k not in shown and mine[k] is not None and any(other.get(k) != mine[k] for other in others)
        ]
        words = [_TITLES.get(mine["estimator"], mine["estimator"]), f"{mine['backbone']}/{mine['init']}"]
        words += [f"{mine['features']} features", *(f"{key}={words_of(mine[key])}" for key in differing)]
        if "formula" in mine and "formula" not in differing:
            words.append(f"formula={mine['formula']}")
        titles.append(", ".join(words))
    return titles


def _setting(title: str, identity: Mapping[str, Any], rows: Sequence[ShiftRow]) -> tuple[ShiftSetting, list[Problem]]:
    grouped: dict[str, list[ShiftRow]] = defaultdict(list)
    for row in rows:
        grouped[_key(_line_identity(row))].append(row)
    groups = list(grouped.values())
    identities = [_line_identity(own[0]) for own in groups]
    named = sorted(zip(dataset_titles(identities, LINE_KEYS), identities, groups, strict=True), key=lambda one: one[0])
    values, pairs, problems = [], [], []
    for line_title, _, own in named:
        values += [{"dataset": line_title, **line} for line in value_lines(own)]
        pairs += [{"dataset": line_title, **line} for line in pair_lines(own)]
        codes = sorted({row.identity.code for row in own})
        if len(codes) > 1:
            why = f"rows of code {' and '.join(codes)} in one line; split_by=code keeps them apart"
            problems.append(Problem("several code versions", f"{line_title}, {title}", why))
    setting = ShiftSetting(
        title=title,
        identity=identity,
        lines=tuple(ShiftLine(line_title, who) for line_title, who, _ in named),
        values=pd.DataFrame(values, columns=_VALUE_COLUMNS).astype(dict.fromkeys(_NUMBERS, "float64")),
        pairs=pd.DataFrame(pairs),
        codes=tuple(sorted({row.identity.code for row in rows})),
    )
    return setting, problems


_NUMBERS = ("value", "std", "low", "high", "exact")
_VALUE_COLUMNS = [
    "dataset", "pair", "null", "part", "name", "value", "std", "trials", "halves", "low", "high", "interval", "exact",
    "pairs",
]  # fmt: skip


def _line_identity(row: ShiftRow) -> dict[str, Any]:
    identity = asdict(row.identity)
    return {key: row.pairs if key == "pairs" else identity[key] for key in LINE_KEYS}


# Which shift dominates a dataset: said only where intervals tell it from two halves of one distribution.

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
