"""Why an accuracy of a leaderboard is missing, and the command that fills it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from dgbench.plan.folds import tested, tested_by_fold
from dgbench.reports.importers import IMPORTED
from dgbench.reports.reading.folders import Problem, filling_command
from dgbench.reports.settings.evaluation import PAIRS
from dgbench.reports.settings.labels import variant_text
from dgbench.reports.settings.selected_runs import SelectedRun, SelectedRuns

HeldOut = frozenset[str]


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
    runs: Sequence[SelectedRun], lacking: Sequence[HeldOut], selected: SelectedRuns
) -> tuple[dict[HeldOut, str], list[Problem]]:
    """Why an algorithm and seed lack a result, with the command that fills it.

    Args:
        runs: the runs of that algorithm and seed.
        lacking: sets of tested environments without a usable result.
        selected: all runs, with what is known of those without rows.

    Returns:
        A reason for every lacking set, and one problem that names them all; none where nothing is lacking.
    """
    if not lacking:
        return {}, []
    identity = runs[0].identity
    folds_of = [frozenset(tests) for tests in tested_by_fold(identity) or []]
    have: dict[HeldOut, list[SelectedRun]] = defaultdict(list)
    for run in runs:
        have[frozenset(tested(run.identity))].append(run)
    studies = list(dict.fromkeys(Path(run.folder).parent for run in runs))
    silent, reasons, folds = selected.silent, {}, []
    nothing = "no run in these results holds out" if selected.partial else "not planned: no run holds out"
    for held_out in lacking:
        fold = str(folds_of.index(held_out)) if held_out in folds_of else ""
        folds.append(fold)
        before = next((silent[study][fold] for study in studies if fold in silent.get(study, {})), "")
        reasons[held_out] = _of_a_run(have[held_out]) or before or f"{nothing} {', '.join(sorted(held_out))}"
    fill = _fill(identity, Path(runs[0].folder), folds)
    what = "; ".join(f"{', '.join(sorted(held_out))} held out: {why}" for held_out, why in reasons.items())
    where = f"{variant_text(identity)}, {runs[0].label} seed {identity['seed']}"
    told = {held_out: f"{why}. To fill: {fill}" for held_out, why in reasons.items()}
    return told, [Problem("missing cells", where, f"{what}. To fill: {fill}")]


def _of_a_run(same: Sequence[SelectedRun]) -> str:
    """Why none of the runs with those tested environments has a result; empty where there is no such run."""
    for run in same:
        if not run.lost:
            return run.why or "its accuracy is NaN, or it has no test row, at the selected step"
    return ""


def _fill(identity: Mapping[str, Any], folder: Path, folds: Sequence[str]) -> str:
    if identity["code"].startswith(IMPORTED):
        return f"run it where the sweep was made (trial {identity['seed']}) and import the folder again"
    return filling_command(folder, folds if all(folds) else [])
