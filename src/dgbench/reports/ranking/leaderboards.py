"""What leaderboards are made of: test accuracies by dataset, algorithm, seed and tested
environment.

Where one is missing, why, and the command that fills it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.analysis.accuracy import mean
from dgbench.plan.folds import LOO, tested, tested_by_fold, trained_on_tested
from dgbench.records.run_identity import Role, identity_key, keys
from dgbench.reports.chance import chance_of
from dgbench.reports.evaluation import PAIRS, repeats
from dgbench.reports.groups import Group, groups_of
from dgbench.reports.importers import is_from_table
from dgbench.reports.labels import dataset_titles, known_network, variant_text
from dgbench.reports.missing import advice
from dgbench.reports.over_seeds import by_seed, means, reasons, seed_counts
from dgbench.reports.reading.commands import algorithm_command
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import Selected, SelectedRun
from dgbench.seeding import ALL

HeldOut = frozenset[str]
#: what tells the datasets of a leaderboard apart
_DATASET = keys(Role.DATA | Role.FOLDS)
_WORDS = {
    "init": "{} init",
    "head": "{} head",
    "seed_moves": "seeds move {}",
    "protocol": "protocol {}",
}
_USUAL = (("head", "random"), ("seed_moves", ALL))  # not said
_COLUMNS = ("algorithm", "seed", "env", "accuracy", "images", "accuracy.reason")


@dataclass(frozen=True, eq=False)
class RankedDataset:
    """One column of a leaderboard.

    ``accuracies`` has one line per algorithm, seed and tested environment: ``algorithm`` (as tables
    name it), ``seed``, ``env``, ``accuracy`` (a fraction, the mean over the runs that test there;
    NaN where it is missing), ``accuracy.reason`` (why, with the command that fills it) and
    ``images`` (tested ones).
    """

    title: str  #: unique on its leaderboard
    identity: Mapping[str, Any]  #: of any of its runs
    environments: tuple[str, ...]  #: those tested and reported, in order
    accuracies: pd.DataFrame
    folder: Path  #: of any of its runs
    examples: Mapping[str, SelectedRun]  #: algorithm -> any of its runs on the leaderboard
    #: reference -> its mean accuracy over the environments; empty where the number of classes is
    #: not known
    chance: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def averages(self) -> pd.DataFrame:
        """Algorithm x seed: mean accuracy over the environments; NaN for a seed that lacks one."""
        by_study = self.accuracies.groupby(["algorithm", "seed"])["accuracy"].agg(
            lambda values: mean(values.tolist())
        )
        return by_seed(by_study.reset_index(), "accuracy")

    @cached_property
    def seeds(self) -> dict[str, int]:
        """Algorithm -> seeds with at least one run."""
        return seed_counts(self.accuracies)

    @cached_property
    def _reasons(self) -> dict[str, str]:
        return reasons(self.accuracies, "accuracy")

    def absence_reason(self, algorithm: str) -> str:
        """Return why an algorithm has no average, or an empty text if nothing is missing."""
        if algorithm not in self.seeds:
            example = self.examples[algorithm]
            if is_from_table(example.identity):
                return f"no line of {algorithm} in this dataset"
            fill = algorithm_command(
                self.folder, str(example.identity["algorithm"]), Path(example.folder)
            )
            return f"not planned: no run of {algorithm} here; to fill: {fill}"
        return self._reasons.get(algorithm, "")


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Results that may be ranked together: algorithms by datasets.

    ``runs`` has one line per run that counts: ``dataset`` (a title), ``algorithm``, ``seed``,
    ``run`` (hash), ``folder``.
    """

    title: str  #: unique among the leaderboards of a report
    identity: Mapping[str, Any]  #: network and protocol, and what the report is split by
    datasets: tuple[RankedDataset, ...]
    codes: tuple[str, ...]  #: code versions of the runs that count
    runs: pd.DataFrame

    @property
    def algorithms(self) -> list[str]:
        """The algorithms that occur, by the alphabet."""
        return sorted(set().union(*(dataset.seeds for dataset in self.datasets)))

    @cached_property
    def level(self) -> dict[str, float]:
        """Algorithm -> unrounded mean over the datasets of the means over seeds, best first;
        complete ones alone.
        """
        levels = [means(dataset.averages) for dataset in self.datasets]
        names = set.intersection(*(set(level) for level in levels))
        whole = {name: _mean_of(name, levels) for name in names}
        return dict(sorted(whole.items(), key=lambda item: (-item[1], item[0])))

    @cached_property
    def averages(self) -> pd.DataFrame:
        """Algorithm x seed: mean over the datasets of the ranked algorithms; NaN for a seed that
        lacks one.
        """
        order = list(self.level)
        seeds = sorted(set().union(*(dataset.averages.columns for dataset in self.datasets)))
        first, *others = (
            dataset.averages.reindex(index=order, columns=seeds) for dataset in self.datasets
        )
        return sum(others, first) / len(self.datasets)

    @property
    def chance(self) -> dict[str, float]:
        """Reference -> mean of its accuracies over the datasets, if it is known on all."""
        levels = [dataset.chance for dataset in self.datasets]
        shared = set.intersection(*(set(level) for level in levels))
        return {name: _mean_of(name, levels) for name in levels[0] if name in shared}

    def repetitions(self, boards: Sequence[Leaderboard]) -> dict[str, pd.DataFrame]:
        """Collect the averages of the leaderboards that repeat this one (:func:`repeats`), by their
        ``seed_moves``.
        """
        return {
            board.identity["seed_moves"]: board.averages
            for board in boards
            if len(board.datasets) == len(self.datasets)
            and all(map(repeats, self._identities(), board._identities()))
        }

    def _identities(self) -> list[dict[str, Any]]:
        """List what tells each of its datasets from those of other leaderboards."""
        identities = []
        for dataset in self.datasets:
            of_dataset = {key: dataset.identity[key] for key in _DATASET}
            identities.append({**self.identity, **of_dataset})
        return identities

    @property
    def trained_on_tested(self) -> bool:
        """Whether the models saw other images of the environments that they are tested in
        (``target_oracle``).
        """
        return any(trained_on_tested(dataset.identity) for dataset in self.datasets)


def leaderboards(
    selected: Selected, unreported: Sequence[str] = (), split_by: str | None = None
) -> tuple[list[Leaderboard], list[Problem]]:
    """Build all leaderboards that the runs allow, and list what is missing in them.

    Args:
        selected: runs at their selected steps.
        unreported: environments that chose among models, so that no accuracy is reported on them.
        split_by: one more identity key whose values get leaderboards of their own.

    Raises:
        RecordError: one dataset of a leaderboard would mix code versions.
    """
    names = keys(Role.NETWORK | Role.PROTOCOL, split_by)
    together: dict[str, list[Group]] = defaultdict(list)
    for group in groups_of(selected, split_by, ideal=False):
        together[identity_key(group.identity, names)].append(group)
    boards: list[Leaderboard] = []
    problems = list(selected.problems)
    for _, groups in sorted(together.items()):
        shown = []
        for group in sorted(groups, key=lambda group: identity_key(group.identity, _DATASET)):
            identity = group.runs[0].identity
            plan = planned(identity, [frozenset(tested(run.identity)) for run in group.runs])
            reported = set().union(*plan) - set(unreported)
            environments = tuple(env for env in identity["given"] if env in reported)
            if environments and any(not run.reason for run in group.runs):
                shown.append((group, environments, plan))
            else:
                place = (
                    f"{variant_text(identity)}, protocol {identity['protocol']}, "
                    f"{len(group.runs)} runs"
                )
                reason = "every tested environment is one that chooses among models"
                if environments:
                    reason = f"no run counts, e.g. {group.runs[0].reason or 'none has rows'}"
                problems.append(Problem("no leaderboard", place, reason))
        if not shown:
            continue
        datasets: list[RankedDataset] = []
        runs: list[dict[str, Any]] = []
        examples: dict[str, SelectedRun] = {}
        codes: dict[str, None] = {}
        for group, _, _ in shown:
            examples |= {run.label: run for run in group.runs}
            codes |= dict.fromkeys(group.codes)
        titles = dataset_titles([group.runs[0].identity for group, _, _ in shown], _DATASET)
        for title, (group, environments, plan) in zip(titles, shown, strict=True):
            accuracies: list[dict[str, Any]] = []
            for study_runs, tests in group.studies():
                study = {"algorithm": study_runs[0].label, "seed": study_runs[0].identity["seed"]}
                lines, missing = _accuracies(environments, plan, study_runs, tests, selected)
                accuracies += [{**study, **line} for line in lines]
                counting = [
                    {"run": run.identity["run"], "folder": run.folder}
                    for run in study_runs
                    if not run.reason
                ]
                runs += [{"dataset": title, **study, **run} for run in counting]
                problems += missing
            frame = pd.DataFrame(accuracies, columns=list(_COLUMNS)).astype(
                {"accuracy": float, "images": float}
            )
            references = chance_of(
                [run.identity for run in group.runs], group.tests, environments, [], []
            )
            levels = references.accuracies(environments) if references else {}
            first = group.runs[0]
            folder = Path(first.folder)
            datasets.append(
                RankedDataset(title, first.identity, environments, frame, folder, examples, levels)
            )
        identity = {key: groups[0].identity[key] for key in names}
        title = _title(identity, datasets)
        boards.append(
            Leaderboard(title, identity, tuple(datasets), tuple(codes), pd.DataFrame(runs))
        )
    return boards, problems


def _title(identity: Mapping[str, Any], datasets: Sequence[RankedDataset]) -> str:
    """Compose a title of network, initial weights, tuning, protocol, and whatever else a
    leaderboard is split by.
    """
    if is_from_table(datasets[0].identity):
        names = " and ".join(dict.fromkeys(dataset.title for dataset in datasets))
        protocol = f"protocol {identity['protocol']}" if identity["protocol"] != LOO else ""
        return ", ".join(filter(None, (names, known_network(identity), protocol)))
    unusual = (item for item in identity.items() if item not in _USUAL)
    title = ", ".join(_WORDS.get(key, "{}").format(value) for key, value in unusual)
    oracle = any(trained_on_tested(dataset.identity) for dataset in datasets)
    return f"TARGET ORACLE, {title}" if oracle else title


def _accuracies(
    environments: Sequence[str],
    plan: Sequence[HeldOut],
    runs: Sequence[SelectedRun],
    tests: pd.DataFrame,
    selected: Selected,
) -> tuple[list[dict[str, Any]], list[Problem]]:
    """List every environment of one algorithm and seed; and one problem that names all that is
    missing.

    Args:
        environments: those that are reported.
        plan: sets of environments that a complete study tests in.
        runs: of the study.
        tests: its lines of :class:`~dgbench.reports.groups.Group`.
        selected: all runs, with what is known of those without rows.
    """
    identity = runs[0].identity
    tested_by = {
        number: frozenset(tested(selected.runs[number].identity))
        for number in tests["run"].unique()
    }
    by_env: dict[str, dict[HeldOut, float]] = {env: {} for env in environments}
    images: dict[str, float] = {}
    columns = (tests[name].tolist() for name in ("run", "env", "accuracy", "images"))
    for run, env, accuracy, count in zip(*columns, strict=True):
        if env in by_env:
            by_env[env][tested_by[run]] = accuracy
            images[env] = count
    missing = {}
    for held_out in plan:
        there = [by_env[env].get(held_out, math.nan) for env in held_out & by_env.keys()]
        if any(map(math.isnan, there)):
            missing[held_out] = _why_missing(held_out, runs, selected)
    problems = []
    fill = ""
    if missing:
        folds = [fold for _, fold in missing.values()]
        fill = advice(runs[0], folds if all(folds) else [])
        gaps = [
            f"{', '.join(sorted(held_out))} held out: {reason}"
            for held_out, (reason, _) in missing.items()
        ]
        place = f"{variant_text(identity)}, {runs[0].label} seed {identity['seed']}"
        problems.append(Problem("missing cells", place, f"{'; '.join(gaps)}. {fill}"))
    lines = []
    for env, accuracies in by_env.items():
        cause = next((text for held_out, (text, _) in missing.items() if env in held_out), "")
        value = mean(list(accuracies.values())) if accuracies and not cause else None
        reason = f"seed {identity['seed']}: {cause}. {fill}" if cause else None
        lines.append(
            {"env": env, "images": images.get(env), "accuracy": value, "accuracy.reason": reason}
        )
    return lines, problems


def _why_missing(
    held_out: HeldOut, runs: Sequence[SelectedRun], selected: Selected
) -> tuple[str, str]:
    """Return why an algorithm and seed lack a result in tested environments, and the fold."""
    if is_from_table(runs[0].identity):
        return f"no line for {', '.join(sorted(held_out))}", ""
    folds = [frozenset(tests) for tests in tested_by_fold(runs[0].identity) or []]
    fold = str(folds.index(held_out)) if held_out in folds else ""
    for run in runs:
        if not run.not_chosen and frozenset(tested(run.identity)) == held_out:
            return (
                run.reason or "its accuracy is NaN, or it has no test row, at the selected step",
                fold,
            )
    nothing = (
        "no run in these results holds out" if selected.partial else "not planned: no run holds out"
    )
    reasons_of = (
        selected.folds_without_rows.get(Path(run.folder).parent, {}).get(fold) for run in runs
    )
    return next(filter(None, reasons_of), f"{nothing} {', '.join(sorted(held_out))}"), fold


def planned(identity: Mapping[str, Any], present: Sequence[HeldOut]) -> list[HeldOut]:
    """List the sets of environments that a complete study tests in, in the order of its folds.

    Where neither the identity nor the given environments tell, they are those that any run was
    tested in.
    """
    folds = tested_by_fold(identity)
    if folds is not None:
        return [frozenset(tests) for tests in folds]
    if identity["protocol"] == PAIRS:
        return [frozenset(pair) for pair in combinations(identity["given"], 2)]
    return sorted(set(present), key=sorted)


def accuracies_by_environment(leaderboard: Leaderboard) -> dict[tuple[str, str, str], float]:
    """Average accuracies over seeds: dataset, environment and algorithm -> mean."""
    accuracies = {}
    for dataset in leaderboard.datasets:
        name = str(dataset.identity["dataset"])
        for env, rows in dataset.accuracies.groupby("env", sort=False):
            for algorithm, level in means(by_seed(rows, "accuracy")).items():
                accuracies[name, str(env), algorithm] = level
    return accuracies


def _mean_of(name: str, levels: Sequence[Mapping[str, float]]) -> float:
    """Average one algorithm's levels over datasets."""
    return mean([level[name] for level in levels])
