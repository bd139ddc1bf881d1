"""Estimates of shift under folders: every ``shifts.jsonl`` is read, each estimate once, and sorted
into settings.

A setting holds what may be compared. Whatever cannot be used is named.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.analysis.shift_verdicts import MeanEstimate, interval, verdict_kind, verdict_words
from dgbench.configuration import command_words
from dgbench.errors import ConfigError, RecordError
from dgbench.phases import tracked
from dgbench.records.rows import identity_key
from dgbench.records.shift_rows import (
    HALF,
    HALVES,
    NO_NULL,
    SHIFT_FILE,
    TRIAL,
    ShiftIdentity,
    ShiftRow,
    read_shift_rows,
)
from dgbench.records.status import DONE, STATUS_FILE, read_status
from dgbench.reports.labels import dataset_titles, slug, words_of
from dgbench.reports.reading.folders import (
    UNREADABLE_FILE,
    Problem,
    nothing_found,
    places,
    printable,
    searched,
)
from dgbench.reports.reading.row_files import BY_SEED

TOLERANCE = 1e-9  # that sums in another order may change
ALL_PAIRS = ""  #: in place of a pair's name: mean over the pairs of a dataset
VALUE, DIAGNOSTIC = "value", "diagnostic"
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
_FORMULAS = {"ye2022": ("div", "cor"), "hellinger": ("div_plus", "cor_plus")}


@dataclass(frozen=True)
class ShiftCollection:
    """All estimates of shift under some roots, each once."""

    rows: list[ShiftRow]
    problems: list[Problem]
    folders: list[str]  #: those that the rows are from


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
        """Look up the estimate of that name, by default over all pairs; None where there is none."""
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
        """Names of the values that are diversity and correlation shift; None where the estimator
        has none.
        """
        names = _FORMULAS.get(self.formula, _FORMULAS["ye2022"])
        return names if set(names) <= set(self.names()) else None

    def names(self, part: str = VALUE) -> list[str]:
        """List the names of all values or diagnostics."""
        return list(dict.fromkeys(name for line in self.lines for name in line.names(part)))


@dataclass(frozen=True)
class Verdict:
    """What may be said of a dataset."""

    #: see :func:`~dgbench.analysis.shift_verdicts.verdict_kind`; empty where nothing may be said
    kind: str
    reason: str  #: why nothing may be said, else empty
    sentence: str


def read_shifts(roots: str | Path | Iterable[str | Path]) -> ShiftCollection:
    """Read every ``shifts.jsonl`` under ``roots``, recursively; hidden folders are passed over.

    Args:
        roots: folders, or one.

    Raises:
        RecordError: there is not one estimate.
    """
    paths, problems = places(roots), list[Problem]()
    placed: list[tuple[str, ShiftRow]] = []  # folder, row
    seen: set[str] = set()
    with_rows: list[Path] = []
    for root in paths:
        for folder, files in searched(root, (SHIFT_FILE, STATUS_FILE), problems):
            if SHIFT_FILE in files and (real := os.path.realpath(folder)) not in seen:
                seen.add(real)
                with_rows.append(Path(folder))
    for place in tracked(with_rows, "reading estimates", len(with_rows), "folders"):
        placed += _read_folder(place, problems)
    if not placed:
        estimate = " ".join([*command_words("shift"), "dataset=pacs"])
        raise RecordError(
            f"{nothing_found(paths, problems, f'rows of {SHIFT_FILE}')}; make some with "
            f"`{estimate}`, or name a folder with runs=[DIR]"
        )
    placed = _each_once(placed, problems)
    folders = list(dict.fromkeys(folder for folder, _ in placed))
    return ShiftCollection([row for _, row in placed], list(dict.fromkeys(problems)), folders)


def _read_folder(folder: Path, problems: list[Problem]) -> list[tuple[str, ShiftRow]]:
    path, file = printable(folder), folder / SHIFT_FILE
    status = read_status(folder)
    if status.word not in ("", DONE):
        reason = f"{printable(status.reason)}; " if status.reason else ""
        problems.append(
            Problem(
                f"{status.word.lower()} estimates", path, f"{reason}the same command continues them"
            )
        )
    try:
        rows, faults = read_shift_rows(file)
    except OSError as error:
        problems.append(
            Problem(
                UNREADABLE_FILE, printable(file), f"{error.strerror or error}; make it readable"
            )
        )
        return []
    problems += [
        Problem("unreadable row", f"{printable(file)}:{fault.line}", printable(fault.reason))
        for fault in faults
    ]
    if not rows and not faults:
        problems.append(Problem("estimates without rows", path, f"nothing in {SHIFT_FILE} yet"))
    return [(path, row) for row in rows]


def _each_once(
    placed: Sequence[tuple[str, ShiftRow]], problems: list[Problem]
) -> list[tuple[str, ShiftRow]]:
    """Keep one row for each estimate: of the folder with the most rows, then the first by name."""
    count = Counter(folder for folder, _ in placed)
    by_estimate: dict[tuple[Any, ...], list[tuple[str, ShiftRow]]] = defaultdict(list)
    for folder, row in placed:  # what is estimated and how; not by which version of the code
        identity = {
            key: value for key, value in asdict(row.identity).items() if key not in ("run", "code")
        }
        by_estimate[_key(identity), *row.key].append((folder, row))
    kept = []
    differences_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    for copies in by_estimate.values():
        used, *rest = sorted(copies, key=lambda one: (-count[one[0]], one[0]))
        kept.append(used)
        for folder, row in rest:
            differences_of[folder, used[0]].append(_difference(used[1], row))
    for (folder, used_folder), differences in differences_of.items():
        differ = [text for text in differences if text]
        kind = "disagreement" if differ else "duplicate"
        text = f"{len(differences)} estimates stand in {used_folder} too, which is used"
        problems.append(
            Problem(
                kind, folder, f"{text}; {len(differ)} differ, e.g. {differ[0]}" if differ else text
            )
        )
    return kept


def _difference(used: ShiftRow, other: ShiftRow) -> str:
    """Describe how two rows of one estimate differ; empty where they agree."""
    estimate = f"{used.pair}, {used.kind} {used.number}, null={used.null}"
    code = (
        ""
        if used.identity.code == other.identity.code
        else f"; code {used.identity.code}, {other.identity.code}"
    )
    if bool(used.refused) != bool(other.refused):
        return f"{estimate}: one of them is refused{code}"
    ours, theirs = used.values, other.values  # infinitely apart where only one has a value
    apart = {
        n: abs(ours[n] - theirs[n]) if n in ours and n in theirs else math.inf
        for n in sorted({*ours, *theirs})
    }
    name = max(apart, key=apart.__getitem__, default="")
    return (
        f"{estimate}: {name} differs by {apart[name]:.3g}{code}"
        if name and apart[name] > TOLERANCE
        else ""
    )


def shift_settings(
    rows: Sequence[ShiftRow], split_by: str | None = None
) -> tuple[list[ShiftSetting], list[Problem]]:
    """Group rows into settings, estimators of diversity and correlation shift first, and name what
    is odd in them.

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
    keys = SETTING_KEYS + ((split_by,) if split_by and split_by not in SETTING_KEYS else ())
    groups = _grouped([{key: getattr(row.identity, key) for key in keys} for row in rows], rows)
    order = {name: number for number, name in enumerate(_TITLES)}
    groups.sort(
        key=lambda group: (
            order.get(name := group[0]["estimator"], len(order)),
            name,
            _key(group[0]),
        )
    )
    settings, problems = [], list[Problem]()
    for title, (identity, members) in zip(
        _titles([identity for identity, _ in groups]), groups, strict=True
    ):
        lines = _lines(members)
        codes = {
            line.title: sorted({row.identity.code for row in of_line}) for line, of_line in lines
        }
        for line_title, versions in codes.items():
            if len(versions) > 1:
                reason = (
                    f"rows of code {' and '.join(versions)} in one line; split_by=code keeps them "
                    "apart"
                )
                problems.append(Problem("several code versions", f"{line_title}, {title}", reason))
        versions = sorted({version for versions in codes.values() for version in versions})
        settings.append(
            ShiftSetting(title, identity, tuple(line for line, _ in lines), tuple(versions))
        )
    return settings, problems


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
        groups.setdefault(_key(identity), (identity, []))[1].append(row)
    return list(groups.values())


def _key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, default=str)


def _titles(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name settings by estimator, network and features, and by every setting in which those of one
    estimator differ.
    """
    titles = []
    plain = [
        {**identity["settings"], **{k: v for k, v in identity.items() if k != "settings"}}
        for identity in identities
    ]
    shown = ("estimator", "backbone", "init", "features")
    for setting in plain:
        peers = [other for other in plain if other["estimator"] == setting["estimator"]]
        differing = [
            key
            for key, value in setting.items()
            if key not in shown
            and value is not None
            and any(other.get(key) != value for other in peers)
        ]
        words = [
            _TITLES.get(setting["estimator"], setting["estimator"]),
            f"{setting['backbone']}/{setting['init']}",
        ]
        words += [
            f"{setting['features']} features",
            *(f"{key}={words_of(setting[key])}" for key in differing),
        ]
        if "formula" in setting and "formula" not in differing:
            words.append(f"formula={setting['formula']}")
        titles.append(", ".join(words))
    return titles


def _lines(rows: Sequence[ShiftRow]) -> list[tuple[ShiftLine, list[ShiftRow]]]:
    """Build the lines of a setting, sorted by title, each with its rows."""
    keys = [key for key in LINE_KEYS if key != "pairs"]
    groups = _grouped(
        [{**{key: getattr(row.identity, key) for key in keys}, "pairs": row.pairs} for row in rows],
        rows,
    )
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
    frame = pd.DataFrame(
        [
            (part, row.null, name, row.pair, row.kind, row.number, value)
            for row in rows
            for part, numbers in ((VALUE, row.values), (DIAGNOSTIC, row.diagnostics))
            for name, value in numbers.items()
        ],
        columns=[*keys, "kind", "number", "value"],
    ).drop_duplicates([*keys, "kind", "number"], keep="last")
    exact = {
        (row.pair, name): value
        for row in rows
        if row.null == NO_NULL
        for name, value in row.exact.items()
    }
    estimates = {}
    for key, group in frame.groupby(keys[:3], sort=False):
        part, null, name = map(str, key)
        by_number = {
            kind: group[group["kind"] == kind].pivot(index="pair", columns="number", values="value")
            for kind in (TRIAL, HALF)
        }
        trials, halves = by_number[TRIAL], by_number[HALF]
        pairs = [pair for pair in group["pair"].unique() if pair in trials.index]
        trials, halves = trials.reindex(pairs), halves.reindex(pairs)
        true = [
            exact.get((pair, name)) if (part, null) == (VALUE, NO_NULL) else None for pair in pairs
        ]
        values = trials.mean(axis=1)
        for i, pair in enumerate(pairs):
            estimates[part, null, pair, name] = _estimate(
                values.iloc[i], trials.iloc[i], halves.iloc[i], [true[i]]
            )
        if pairs:
            means = trials.mean(skipna=False), halves.mean(skipna=False)
            estimates[part, null, ALL_PAIRS, name] = _estimate(values.mean(), *means, true)
    return estimates


def _estimate(
    value: Any, trials: pd.Series[Any], halves: pd.Series[Any], exact: Sequence[float | None]
) -> MeanEstimate:
    exact_values = [true for true in exact if true is not None]
    trials, truth = (
        trials.dropna(),
        math.fsum(exact_values) / len(exact_values) if len(exact_values) == len(exact) else None,
    )
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
        flags = Counter(flag for row in trials for flag in dict.fromkeys(row.flags))
        refused = Counter(row.refused for row in trials if row.refused)
        lines.append({
            "pair": pair, "p": "+".join(first.p), "q": "+".join(first.q),
            "n_p": first.n[0] if first.n else None, "n_q": first.n[-1] if first.n else None,
            "classes": len(first.classes), "of": len(first.classes) + len(first.dropped),
            "dropped": ", ".join(f"{name} ({'/'.join(map(str, n))})" for name, n in first.dropped.items()),
            "flags": _counted(flags, len(trials)), "refused": _counted(refused, len(trials)),
        })  # fmt: skip
    return pd.DataFrame(lines).set_index("pair")


def _counted(texts: Mapping[str, int], total: int) -> str:
    return "; ".join(
        text if count == total else f"{text} ({count} of {total} trials)"
        for text, count in texts.items()
    )


def verdicts(setting: ShiftSetting) -> dict[str, Verdict]:
    """Map dataset -> which shift dominates it; empty where the estimator has no diversity and
    correlation shift.
    """
    return (
        {line.title: _verdict(line, setting.axes) for line in setting.lines} if setting.axes else {}
    )


def _verdict(line: ShiftLine, axes: tuple[str, str]) -> Verdict:
    estimates = [line.value(name, null) for name in axes for null in (NO_NULL, HALVES)]
    if reason := _why_not(line, estimates):
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
    """Say why estimates of a dataset (diversity, null, correlation, null) allow no verdict; empty
    where they do.
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
