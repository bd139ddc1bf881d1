"""What leaderboards are made of: test accuracies by dataset, algorithm, seed and tested environment.

Why an accuracy of a leaderboard is missing, and the command that fills it.

What tables, figures and answers read off a leaderboard: averages by algorithm and seed, and why one is missing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.configuration import command_words
from dgbench.protocols.folds import tested, tested_by_fold, trained_on_tested
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.evaluation import PAIRS, one_code
from dgbench.reports.importers import IMPORTED
from dgbench.reports.labels import dataset_titles, variant_text
from dgbench.reports.over_seeds import Values, mean, reasons
from dgbench.reports.reading.folders import Problem, filling_command
from dgbench.reports.reading.selected import SelectedRun, SelectedRuns, beside_trained
from dgbench.reports.tables import entry

#: what tells the datasets of a board apart
_DATASET = keys(Role.DATA | Role.FOLDS)
_WORDS = {"init": "{} init", "head": "{} head", "protocol": "protocol {}"}
_USUAL = ("head", "random")  # not said
_COLUMNS = ("dataset", "algorithm", "seed", "env", "accuracy", "images", "accuracy.reason")


@dataclass(frozen=True)
class BoardDataset:
    """One column of a leaderboard."""

    title: str  #: unique on its board
    identity: Mapping[str, Any]  #: of any of its runs
    environments: tuple[str, ...]  #: those tested and reported, in order


@dataclass(frozen=True)
class Board:
    """Results that may be ranked together: algorithms by datasets.

    ``accuracies`` has one line per dataset, algorithm, seed and tested environment: ``dataset`` (a title),
    ``algorithm`` (as tables name it), ``seed``, ``env``, ``accuracy`` (a fraction, the mean over the runs that test
    there; NaN where it is missing), ``accuracy.reason`` (why, with the command that fills it) and ``images`` (tested
    ones). ``runs`` has one line per run that counts: ``dataset``, ``algorithm``, ``seed``, ``run`` (hash), ``folder``.
    """

    title: str  #: unique among the boards of a report
    identity: Mapping[str, Any]  #: network and protocol, and what the report is split by
    datasets: tuple[BoardDataset, ...]
    codes: tuple[str, ...]  #: code versions of the runs that count
    accuracies: pd.DataFrame
    runs: pd.DataFrame

    @property
    def trained_on_tested(self) -> bool:
        """Whether the models saw other images of the environments that they are tested in (``target_oracle``)."""
        return any(trained_on_tested(dataset.identity) for dataset in self.datasets)


def boards(
    selected: SelectedRuns, unreported: Sequence[str] = (), split_by: str | None = None
) -> tuple[list[Board], list[Problem]]:
    """All boards that the runs allow, and what is missing in them.

    Args:
        selected: runs at their selected steps.
        unreported: environments that chose among models, so that no accuracy is reported on them.
        split_by: one more identity key whose values get boards of their own.

    Raises:
        RecordError: one dataset of a board would mix code versions.
    """
    names = keys(Role.NETWORK | Role.PROTOCOL, split_by)
    grouped: dict[str, dict[str, list[SelectedRun]]] = defaultdict(lambda: defaultdict(list))
    for number, identity in beside_trained([run.identity for run in selected.runs]):
        run = selected.runs[number]
        run = run if identity is run.identity else replace(run, identity=identity)
        if tested(run.identity):
            grouped[identity_key(run.identity, names)][identity_key(run.identity, _DATASET)].append(run)
    found: list[Board] = []
    problems: list[Problem] = []
    for _, by_dataset in sorted(grouped.items()):
        groups = [_Group.of(runs, unreported) for _, runs in sorted(by_dataset.items())]
        problems += [group.nothing() for group in groups if not group.counts]
        shown = [group for group in groups if group.counts]
        if shown:
            board, missing = _board({key: shown[0].identity[key] for key in names}, shown, selected)
            found.append(board)
            problems += missing
    return found, problems


@dataclass(frozen=True)
class _Group:
    """The runs of one dataset of a board."""

    runs: Sequence[SelectedRun]
    environments: tuple[str, ...]  #: those tested and reported, in order
    plan: Sequence[HeldOut]  #: sets of environments that a complete study tests in
    codes: tuple[str, ...]

    @classmethod
    def of(cls, runs: Sequence[SelectedRun], unreported: Sequence[str]) -> _Group:
        identity = runs[0].identity
        plan = planned(identity, [frozenset(tested(run.identity)) for run in runs])
        reported = {env for held_out in plan for env in held_out} - set(unreported)
        environments = tuple(env for env in identity["given"] if env in reported)
        return cls(runs, environments, plan, one_code(runs, identity))

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.runs[0].identity

    @property
    def counts(self) -> bool:
        return bool(self.environments) and any(not run.why for run in self.runs)

    def nothing(self) -> Problem:
        """Why the dataset is on no board."""
        where = f"{variant_text(self.identity)}, protocol {self.identity['protocol']}, {len(self.runs)} runs"
        why = "every tested environment is one that chooses among models"
        if self.environments:
            why = f"no run counts, e.g. {self.runs[0].why or 'none has rows'}"
        return Problem("no leaderboard", where, why)


def _board(
    identity: Mapping[str, Any], groups: Sequence[_Group], selected: SelectedRuns
) -> tuple[Board, list[Problem]]:
    titles = dataset_titles([group.identity for group in groups], _DATASET)
    lines: list[dict[str, Any]] = []
    counting: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for title, group in zip(titles, groups, strict=True):
        own, missing = _accuracies(group, selected)
        lines += [{"dataset": title, **line} for line in own]
        counting += [{"dataset": title, **line} for line in _counting(group.runs)]
        problems += missing
    frame = pd.DataFrame(lines).reindex(columns=list(_COLUMNS))
    board = Board(
        title=_title(identity, groups),
        identity=identity,
        datasets=tuple(BoardDataset(t, g.identity, g.environments) for t, g in zip(titles, groups, strict=True)),
        codes=tuple(dict.fromkeys(code for group in groups for code in group.codes)),
        accuracies=frame.astype({"accuracy": "float64", "images": "float64"}),
        runs=pd.DataFrame(counting),
    )
    return board, problems


def _title(identity: Mapping[str, Any], groups: Sequence[_Group]) -> str:
    """Network, initial weights, tuning, protocol, and whatever else a board is split by."""
    title = ", ".join(_WORDS.get(key, "{}").format(value) for key, value in identity.items() if (key, value) != _USUAL)
    oracle = any(trained_on_tested(group.identity) for group in groups)
    return f"TARGET ORACLE, {title}" if oracle else title


def _accuracies(group: _Group, selected: SelectedRuns) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Every algorithm, seed and environment of one dataset."""
    studies: dict[tuple[str, int], list[SelectedRun]] = defaultdict(list)
    for run in group.runs:
        studies[run.label, run.identity["seed"]].append(run)
    lines, problems = [], []
    for (label, seed), own in sorted(studies.items(), key=lambda item: item[0]):
        found: dict[str, dict[HeldOut, float]] = {env: {} for env in group.environments}
        images: dict[str, float] = {}
        for run in own:
            held_out = frozenset(tested(run.identity))
            for row in run.rows:
                if row["env"] in held_out and row["env"] in found:
                    found[row["env"]][held_out] = row["accuracy"]
                    images[row["env"]] = row["seen"]
        lacking = [h for h in group.plan if any(math.isnan(found[env].get(h, math.nan)) for env in h & found.keys())]
        missing, named = why_missing(own, lacking, selected)
        problems += named
        for env in group.environments:
            why = next((text for held_out, text in missing.items() if env in held_out), "")
            value = mean(list(found[env].values())) if found[env] and not why else None
            reason = f"seed {seed}: {why}" if why else ""
            line = {"algorithm": label, "seed": seed, "env": env, "images": images.get(env)}
            lines.append(line | entry("accuracy", value, reason=reason))
    return lines, problems


def _counting(runs: Sequence[SelectedRun]) -> list[dict[str, Any]]:
    counting = sorted((run for run in runs if not run.why), key=lambda run: (run.label, run.identity["seed"]))
    return [
        {
            "algorithm": run.label, "seed": run.identity["seed"], "run": run.identity["run"], "folder": run.folder,
        }
        for run in counting
    ]  # fmt: skip


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


def lines_of(board: Board, dataset: BoardDataset) -> pd.DataFrame:
    """The accuracies of one dataset."""
    return board.accuracies[board.accuracies["dataset"] == dataset.title]


def averages(lines: pd.DataFrame) -> Values:
    """Algorithm -> seed -> mean accuracy over the environments of a dataset, for the seeds that have every one.

    Args:
        lines: the accuracies of one dataset.
    """
    found: dict[tuple[str, int], list[float]] = {}
    for algorithm, seed, value in zip(lines["algorithm"], lines["seed"], lines["accuracy"], strict=True):
        found.setdefault((str(algorithm), int(seed)), []).append(float(value))
    whole: Values = {}
    for (algorithm, seed), values in sorted(found.items()):
        if not any(map(math.isnan, values)):
            whole.setdefault(algorithm, {})[seed] = mean(values)
    return whole


def seed_counts(lines: pd.DataFrame) -> dict[str, int]:
    """Algorithm -> seeds with at least one run."""
    return {str(name): int(count) for name, count in lines.groupby("algorithm")["seed"].nunique().items()}


def ranked(board: Board) -> dict[str, float]:
    """Algorithm -> unrounded mean over the datasets of the means over seeds, best first; complete ones alone."""
    by_dataset = [averages(lines_of(board, dataset)) for dataset in board.datasets]
    names = set.intersection(*(set(own) for own in by_dataset))
    level = {name: mean([mean(list(own[name].values())) for own in by_dataset]) for name in names}
    return dict(sorted(level.items(), key=lambda item: (-item[1], item[0])))


def seed_averages(board: Board) -> Values:
    """Algorithm -> seed -> mean over the datasets, for the seeds that are complete on every dataset."""
    by_dataset = [averages(lines_of(board, dataset)) for dataset in board.datasets]
    found: Values = {}
    for name in ranked(board):
        seeds = set.intersection(*(set(own[name]) for own in by_dataset))
        found[name] = {seed: mean([own[name][seed] for own in by_dataset]) for seed in sorted(seeds)}
    return found


def why_absent(lines: pd.DataFrame, algorithm: str) -> str:
    """Why an algorithm has no average on a dataset; empty where nothing is missing.

    Args:
        lines: the accuracies of the dataset.
        algorithm: as tables name it.
    """
    if algorithm not in set(lines["algorithm"]):
        fill = [*command_words("train"), f"algorithm={algorithm.split(' ')[0]}"]
        return f"not planned: no run of {algorithm} here; to fill: {' '.join(fill)}"
    return reasons(lines, "accuracy").get(algorithm, "")
