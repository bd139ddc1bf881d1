"""Rows of estimated shift as tidy frames, sorted into settings: what may be compared."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from dgbench.errors import ConfigError
from dgbench.records.shift_rows import ShiftIdentity, ShiftRow
from dgbench.reports.labels import dataset_titles, slug, words_of
from dgbench.reports.reading.folders import Problem
from dgbench.reports.shift.pair_values import pair_lines, value_lines

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
