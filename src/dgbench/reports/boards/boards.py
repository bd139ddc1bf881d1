"""What leaderboards are made of: test accuracies by dataset, algorithm, seed and tested environment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from dgbench.protocols.folds import tested, trained_on_tested
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.boards.board_gaps import HeldOut, planned, why_missing
from dgbench.reports.frames import entry
from dgbench.reports.reading.folders import Problem
from dgbench.reports.settings.evaluation import one_code
from dgbench.reports.settings.foreign_runs import beside_trained
from dgbench.reports.settings.labels import dataset_titles, variant_text
from dgbench.reports.settings.over_seeds import mean
from dgbench.reports.settings.selected_runs import SelectedRun, SelectedRuns

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
