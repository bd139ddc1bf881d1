"""Estimates of shift that may be compared: a setting of them, its lines, and their means with
intervals.

Whatever is odd in them is named.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd

from dgbench.analysis.shift_verdicts import MeanEstimate, interval
from dgbench.errors import ConfigError
from dgbench.records.run_identity import identity_key
from dgbench.records.shift_rows import HALF, NO_NULL, TRIAL, ShiftIdentity, ShiftRow
from dgbench.reports.labels import dataset_titles, slug, words_of
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import BY_SEED
from dgbench.reports.reading.shifts import read_shifts, text_of

ALL_PAIRS = ""  #: in place of a pair's name: mean over the pairs of a dataset
VALUE = "value"
DIAGNOSTIC = "diagnostic"
#: what must be equal for two estimates to be compared
SETTING_KEYS = ("estimator", "settings", "features", "backbone", "init", "images")
#: what tells the lines of a table apart
LINE_KEYS = (
    "dataset",
    "variant",
    "base",
    "evaluation",
    "data_seed",
    "split_seed",
    "given",
    "content",
    "seed",
    "pairs",
)
_TITLES = {
    "joint": "Joint classifier",
    "ood_bench": "OoD-Bench estimator",
    "distances": "Distances",
    "concept": "Covariate and concept shift",
    "frechet": "Frechet distance",
}
_FORMULAS = {"ye2022": ("div", "cor"), "hellinger": ("div_plus", "cor_plus")}


@dataclass(frozen=True, eq=False)
class ShiftLine:
    """One form of a dataset with one way to pair its environments."""

    title: str  #: unique in its setting
    identity: Mapping[str, Any]  #: :data:`LINE_KEYS`
    #: by part (value or diagnostic), null, pair (or :data:`ALL_PAIRS`) and name
    values: Mapping[tuple[str, str, str, str], MeanEstimate]
    #: of every ``pair`` (the index): ``p``, ``q`` (names of environments), ``n_p``, ``n_q``,
    #: ``classes``, ``of`` (how many there are), ``dropped``, ``flags``, ``refused`` (texts, empty
    #: where there is nothing)
    pairs: pd.DataFrame

    def value(
        self, name: str, null: str = NO_NULL, pair: str = ALL_PAIRS, part: str = VALUE
    ) -> MeanEstimate | None:
        """Look up an estimate by name, by default over all pairs; None if it is missing."""
        return self.values.get((part, null, pair, name))

    def names(self, part: str = VALUE) -> list[str]:
        """List the names of all values or diagnostics."""
        return list(dict.fromkeys(name for of_part, _, _, name in self.values if of_part == part))


@dataclass(frozen=True, eq=False)
class ShiftSetting:
    """Estimates that may be compared."""

    title: str  #: unique in a report
    identity: Mapping[str, Any]  #: :data:`SETTING_KEYS`, and what the report is split by
    lines: tuple[ShiftLine, ...]
    codes: tuple[str, ...]  #: versions of dgbench that wrote the rows

    @property
    def name(self) -> str:
        """Title as a name for files and anchors."""
        return slug(self.title)

    @property
    def formula(self) -> str:
        """``ye2022`` or ``hellinger``."""
        return str(self.identity["settings"].get("formula", "ye2022"))

    @property
    def axes(self) -> tuple[str, str] | None:
        """Names of the values that are diversity and correlation shift, or None without them."""
        names = _FORMULAS.get(self.formula, _FORMULAS["ye2022"])
        return names if set(names) <= set(self.names()) else None

    def names(self, part: str = VALUE) -> list[str]:
        """List the names of all values or diagnostics."""
        names = chain.from_iterable(line.names(part) for line in self.lines)
        return list(dict.fromkeys(names))


def shift_settings(
    rows: Sequence[ShiftRow], split_by: str | None = None
) -> tuple[list[ShiftSetting], list[Problem]]:
    """Group rows into settings, estimators of both shifts first, and list what is odd in them.

    Args:
        rows: each estimate once.
        split_by: one more identity key whose values get settings of their own.

    Raises:
        ConfigError: ``split_by`` is no identity key.
    """
    identity_keys = tuple(ShiftIdentity.__dataclass_fields__)
    if split_by is not None and split_by not in identity_keys:
        raise ConfigError(
            f"split_by={split_by} is no identity key of shifts; choose one of "
            f"{', '.join(identity_keys)}"
        )
    keys = list(SETTING_KEYS)
    if split_by and split_by not in keys:
        keys.append(split_by)
    groups = _grouped([_values_of(row, keys) for row in rows], rows)
    groups.sort(key=lambda group: _place(group[0]))
    titles = _titles([identity for identity, _ in groups])
    settings = []
    problems: list[Problem] = []
    for title, (identity, members) in zip(titles, groups, strict=True):
        lines = _lines(members)
        all_versions: set[str] = set()
        for line, of_line in lines:
            versions = {row.identity.code for row in of_line}
            all_versions |= versions
            if len(versions) > 1:
                reason = (
                    f"rows of code {' and '.join(sorted(versions))} in one line; split_by=code "
                    "keeps them apart"
                )
                problems.append(Problem("several code versions", f"{line.title}, {title}", reason))
        shift_lines = tuple(line for line, _ in lines)
        settings.append(ShiftSetting(title, identity, shift_lines, tuple(sorted(all_versions))))
    return settings, problems


def _values_of(row: ShiftRow, keys: Sequence[str]) -> dict[str, Any]:
    return {key: getattr(row.identity, key) for key in keys}


def _place(identity: Mapping[str, Any]) -> tuple[int, str, str]:
    """Build the sort key of a setting: estimators in the order of their titles, then by name."""
    name = identity["estimator"]
    known = list(_TITLES)
    number = known.index(name) if name in known else len(known)
    return number, name, text_of(identity)


def form_of(identity: Mapping[str, Any]) -> str:
    """Build the key of the data that a run was trained on, by which the estimates of their shift
    are found.
    """
    return identity_key(identity, ("dataset", "variant", "base", "data_seed", "given"))


def forms_of(identity: Mapping[str, Any]) -> tuple[str, str]:
    """List the :func:`form_of` keys of runs an estimate is of: its own and that of data drawn anew
    for every seed.
    """
    return form_of(identity), form_of({**identity, "data_seed": BY_SEED})


def estimates_of(folders: Any, estimator: str, key: str) -> tuple[ShiftSetting, list[Problem]]:
    """Read the estimates of one estimator, which must be of one setting, and list what is odd in
    their folders.

    Args:
        folders: with ``shifts.jsonl``.
        estimator: its name in the rows.
        key: that names the folders, for a complaint.

    Raises:
        RecordError: there are no rows.
        ConfigError: that estimator made none, or with several settings.
    """
    collected = read_shifts(folders)
    settings, problems = shift_settings(collected.rows)
    settings = [setting for setting in settings if setting.identity["estimator"] == estimator]
    if len(settings) != 1:
        raise ConfigError(
            f"{key}={folders} holds {len(settings)} settings of estimator={estimator}, one is "
            "needed; name the folder of one, or estimate it with python shift.py "
            f"'estimator=[{estimator}]'"
        )
    return settings[0], [*collected.problems, *problems]


def _grouped(
    identities: Iterable[Mapping[str, Any]], rows: Sequence[ShiftRow]
) -> list[tuple[Mapping[str, Any], list[ShiftRow]]]:
    """Group rows of equal identity."""
    groups: dict[str, tuple[Mapping[str, Any], list[ShiftRow]]] = {}
    for identity, row in zip(identities, rows, strict=True):
        groups.setdefault(text_of(identity), (identity, []))[1].append(row)
    return list(groups.values())


def _titles(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name settings by estimator, network and features, and by what tells those of one estimator
    apart.
    """
    titles = []
    plain = []
    for identity in identities:
        outer = {key: value for key, value in identity.items() if key != "settings"}
        plain.append({**identity["settings"], **outer})
    for setting in plain:
        peers = [other for other in plain if other["estimator"] == setting["estimator"]]
        words = [
            _TITLES.get(setting["estimator"], setting["estimator"]),
            f"{setting['backbone']}/{setting['init']}",
            f"{setting['features']} features",
        ]
        differing = _differing_keys(setting, peers)
        words += [f"{key}={words_of(setting[key])}" for key in differing]
        if "formula" in setting and "formula" not in differing:
            words.append(f"formula={setting['formula']}")
        titles.append(", ".join(words))
    return titles


def _differing_keys(setting: Mapping[str, Any], peers: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the keys, beside those of every title, in which a setting differs from a peer."""
    keys = []
    for key, value in setting.items():
        if key in ("estimator", "backbone", "init", "features") or value is None:
            continue
        if any(peer.get(key) != value for peer in peers):
            keys.append(key)
    return keys


def _lines(rows: Sequence[ShiftRow]) -> list[tuple[ShiftLine, list[ShiftRow]]]:
    """Build the lines of a setting, sorted by title, each with its rows."""
    keys = [key for key in LINE_KEYS if key != "pairs"]
    groups = _grouped([{**_values_of(row, keys), "pairs": row.pairs} for row in rows], rows)
    titles = dataset_titles([identity for identity, _ in groups], LINE_KEYS)
    lines = [
        (ShiftLine(title, identity, _estimates(members), _pairs(members)), members)
        for title, (identity, members) in zip(titles, groups, strict=True)
    ]
    return sorted(lines, key=lambda line: line[0].title)


def _estimates(rows: Sequence[ShiftRow]) -> dict[tuple[str, str, str, str], MeanEstimate]:
    """Compute the estimates of one line: of every pair, and of the mean over the pairs that have
    the value.

    Trials and halves are averaged over pairs by their number, as far as all pairs have it: halves
    are drawn once for all pairs.
    """
    keys = ["part", "null", "name", "pair"]
    numbers = []
    exact = {}
    for row in rows:
        about = (row.pair, row.kind, row.number)
        for name, value in row.values.items():
            numbers.append((VALUE, row.null, name, *about, value))
        for name, value in row.diagnostics.items():
            numbers.append((DIAGNOSTIC, row.null, name, *about, value))
        if row.null == NO_NULL:
            exact.update({(row.pair, name): value for name, value in row.exact.items()})
    columns = [*keys, "kind", "number"]
    frame = pd.DataFrame(numbers, columns=[*columns, "value"]).drop_duplicates(columns, keep="last")
    estimates = {}
    for key, group in frame.groupby(keys[:3], sort=False):
        part, null, name = map(str, key)
        trials = _by_number(group, TRIAL)
        pairs = [pair for pair in group["pair"].unique() if pair in trials.index]
        trials = trials.reindex(pairs)
        halves = _by_number(group, HALF).reindex(pairs)
        true: list[float | None] = [None] * len(pairs)
        if (part, null) == (VALUE, NO_NULL):
            true = [exact.get((pair, name)) for pair in pairs]
        values = trials.mean(axis=1)
        for i, pair in enumerate(pairs):
            estimates[part, null, pair, name] = _estimate(
                values.iloc[i], trials.iloc[i], halves.iloc[i], [true[i]]
            )
        if pairs:
            means = trials.mean(skipna=False), halves.mean(skipna=False)
            estimates[part, null, ALL_PAIRS, name] = _estimate(values.mean(), *means, true)
    return estimates


def _by_number(lines: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Arrange values of one kind as pair x number."""
    of_kind = lines[lines["kind"] == kind]
    return of_kind.pivot(index="pair", columns="number", values="value")


def _estimate(
    value: Any, trials: pd.Series[Any], halves: pd.Series[Any], exact: Sequence[float | None]
) -> MeanEstimate:
    exact_values = [true for true in exact if true is not None]
    trials = trials.dropna()
    truth = None
    if len(exact_values) == len(exact):
        truth = math.fsum(exact_values) / len(exact_values)
    low, high, kind = interval(float(value), trials.to_numpy(), halves.dropna().to_numpy())
    return MeanEstimate(float(value), low, high, kind, len(trials), len(exact), truth)


def _pairs(rows: Sequence[ShiftRow]) -> pd.DataFrame:
    """Describe every pair of a line, see :class:`ShiftLine`."""
    by_pair: dict[str, list[ShiftRow]] = defaultdict(list)
    for row in rows:
        by_pair[row.pair].append(row)
    lines = []
    for pair, members in by_pair.items():
        trials = [row for row in members if row.kind == TRIAL and row.null == NO_NULL] or members
        first = next((row for row in trials if not row.refused), trials[0])
        flags = Counter[str]()
        for row in trials:
            flags.update(list(dict.fromkeys(row.flags)))
        refused = Counter(row.refused for row in trials if row.refused)
        dropped = []
        for name, counts in first.dropped.items():
            dropped.append(f"{name} ({'/'.join(map(str, counts))})")
        facts = {
            "pair": pair,
            "p": "+".join(first.p),
            "q": "+".join(first.q),
            "n_p": first.n[0] if first.n else None,
            "n_q": first.n[-1] if first.n else None,
            "classes": len(first.classes),
            "of": len(first.classes) + len(first.dropped),
            "dropped": ", ".join(dropped),
            "flags": _counted(flags, len(trials)),
            "refused": _counted(refused, len(trials)),
        }
        lines.append(facts)
    return pd.DataFrame(lines).set_index("pair")


def _counted(texts: Mapping[str, int], total: int) -> str:
    counted = []
    for text, count in texts.items():
        counted.append(text if count == total else f"{text} ({count} of {total} trials)")
    return "; ".join(counted)
