"""Why a cell of a leaderboard is empty, and the command that fills it."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from dgbench.protocols.folds import tested, tested_by_fold
from dgbench.reports.collect import Collection
from dgbench.reports.comparisons import PAIRS, silent_folds, variant_text
from dgbench.reports.folders import Problem, typed_overrides
from dgbench.reports.importers import IMPORTED
from dgbench.reports.selected import Selected

HeldOut = frozenset[str]


@dataclass(frozen=True)
class Missing:
    """What one algorithm and seed lack."""

    reasons: dict[HeldOut, str]  #: held-out environments -> why there is no result
    problems: list[Problem]


@dataclass(frozen=True)
class Gaps:
    """Members that stopped before their first row: study folder -> fold -> why."""

    silent: Mapping[Path, Mapping[str, str]]

    @classmethod
    def of(cls, collection: Collection) -> Gaps:
        return cls(silent_folds(collection))


def planned(identity: Mapping[str, Any], present: Sequence[HeldOut]) -> list[HeldOut]:
    """The sets of environments that a complete study tests in, in the order of its folds.

    Where neither the rows tell nor the given environments, they are those that any algorithm and seed has.
    """
    known = tested_by_fold(identity)
    if known is not None:
        return [frozenset(tests) for tests in known]
    if identity["protocol"] == PAIRS:
        return [frozenset(pair) for pair in combinations(identity["given"], 2)]
    return sorted(set(present), key=sorted)


def why_missing(
    collection: Collection, selected: Selected, runs: Sequence[int], lacking: Sequence[HeldOut], gaps: Gaps
) -> Missing:
    """The reason for every set of held-out environments that an algorithm and seed lack.

    Args:
        collection: what was collected.
        selected: the steps and draws that count.
        runs: the runs of that algorithm and seed.
        lacking: sets without a usable result.
        gaps: members without rows.
    """
    if not lacking:
        return Missing({}, [])
    identity = collection.runs[runs[0]].identity
    folds_of = [frozenset(tests) for tests in tested_by_fold(identity) or []]
    have: dict[HeldOut, list[int]] = defaultdict(list)
    for index in runs:
        have[frozenset(tested(collection.runs[index].identity))].append(index)
    reasons = {}
    folds = []
    for held_out in lacking:
        fold = str(folds_of.index(held_out)) if held_out in folds_of else ""
        folds.append(fold)
        reasons[held_out] = _why(collection, selected, have.get(held_out, []), held_out, fold, runs, gaps)
    study = Path(collection.runs[runs[0]].folder)
    fill = _fill(identity, study, folds)
    what = "; ".join(f"{', '.join(sorted(held_out))} held out: {why}" for held_out, why in reasons.items())
    where = f"{variant_text(identity)}, {selected.labels[runs[0]]} seed {identity['seed']}"
    reasons = {held_out: f"{why}. To fill: {fill}" for held_out, why in reasons.items()}
    return Missing(reasons, [Problem("missing cells", where, f"{what}. To fill: {fill}")])


def _why(
    collection: Collection,
    selected: Selected,
    same: Sequence[int],
    held_out: HeldOut,
    fold: str,
    runs: Sequence[int],
    gaps: Gaps,
) -> str:
    for index in same:
        if index in selected.why and index not in selected.lost:
            return selected.why[index]
        if index in selected.rows:
            return f"accuracy is NaN or no test row at step {selected.steps[index]}"
    for parent in {Path(collection.runs[index].folder).parent for index in runs}:
        if fold in gaps.silent.get(parent, {}):
            return gaps.silent[parent][fold]
    return f"not planned: no run holds out {', '.join(sorted(held_out))}"


def _fill(identity: Mapping[str, Any], folder: Path, folds: Sequence[str]) -> str:
    if identity["code"].startswith(IMPORTED):
        return f"run it where the sweep was made (trial {identity['seed']}) and import the folder again"
    typed = typed_overrides(folder)
    overrides = [word for word in typed or [] if not word.startswith("protocol.folds=")]
    narrow = [f"protocol.folds=[{','.join(folds)}]"] if all(folds) else []
    hint = "" if typed is not None else f", with the other keys as in {folder}"
    return shlex.join(["python", "train.py", *overrides, *narrow]) + hint
