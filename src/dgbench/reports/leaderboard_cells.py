"""What a leaderboard is made of: test accuracies by setting, dataset, algorithm, seed and held-out environment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.protocols.folds import tested, trained_on_tested
from dgbench.protocols.selection import Selection
from dgbench.reports.collect import Collection
from dgbench.reports.comparisons import identity_key, one_code, variant_text, words_of
from dgbench.reports.folders import Problem
from dgbench.reports.leaderboard_gaps import Gaps, planned, why_missing
from dgbench.reports.selected import Selected

#: what must be equal for results to stand on one board
BOARD_KEYS = ("backbone", "init", "tuning", "protocol")
#: what tells the datasets of a board apart
DATASET_KEYS = ("dataset", "variant", "base", "evaluation", "data_seed", "split_seed", "given", "folds")

HeldOut = frozenset[str]


@dataclass(frozen=True)
class DatasetCells:
    """One dataset of a board. Accuracies are fractions in [0, 1]."""

    identity: dict[str, Any]  #: shared part of the identity
    environments: list[str]  #: those tested, in order
    accuracy: dict[str, dict[int, dict[str, float]]]  #: algorithm -> seed -> environment -> accuracy
    images: dict[str, float]  #: environment -> test images; empty where unknown
    reasons: dict[str, dict[str, str]]  #: algorithm -> environment -> why a seed lacks it
    runs: dict[str, dict[int, list[int]]]  #: algorithm -> seed -> runs that count

    def whole(self, algorithm: str) -> dict[int, dict[str, float]]:
        """seed -> accuracies, for the seeds that have every environment."""
        seeds = self.accuracy.get(algorithm, {})
        return {seed: cells for seed, cells in sorted(seeds.items()) if len(cells) == len(self.environments)}

    def averages(self, algorithm: str) -> dict[int, float]:
        """seed -> mean over the environments, for the seeds that have every one."""
        return {seed: math.fsum(cells.values()) / len(cells) for seed, cells in self.whole(algorithm).items()}

    def why(self, algorithm: str) -> str:
        """Why an algorithm has no average; empty when nothing is missing."""
        if algorithm not in self.accuracy and algorithm not in self.reasons:
            return (
                f"not planned: no run of {algorithm} here; to fill: python train.py algorithm={algorithm.split(' ')[0]}"
            )
        return next(iter(self.reasons.get(algorithm, {}).values()), "")


@dataclass(frozen=True)
class Board:
    """Results of one setting: algorithms x datasets."""

    identity: dict[str, Any]
    datasets: list[DatasetCells]
    codes: tuple[str, ...] = ()

    @property
    def trained_on_tested(self) -> bool:
        """Whether the models saw other images of the environments they are tested in (``protocol=target_oracle``)."""
        return any(trained_on_tested(cells.identity) for cells in self.datasets)

    @property
    def algorithms(self) -> list[str]:
        return sorted({name for cells in self.datasets for name in (*cells.accuracy, *cells.reasons)})

    def mean(self, algorithm: str) -> float | None:
        """Unrounded mean over all datasets of the mean over seeds; None where a dataset is missing."""
        means = [list(cells.averages(algorithm).values()) for cells in self.datasets]
        if not all(means):
            return None
        return math.fsum(math.fsum(values) / len(values) for values in means) / len(means)

    def ranked(self) -> dict[str, float]:
        """Algorithm -> mean, best first, for those with a result on every dataset."""
        known = {name: self.mean(name) for name in self.algorithms}
        return dict(sorted(((n, v) for n, v in known.items() if v is not None), key=lambda item: (-item[1], item[0])))


def short_titles(identities: Sequence[Mapping[str, Any]], keys: Sequence[str] = DATASET_KEYS) -> list[str]:
    """The dataset's name, with whatever else tells several forms of it apart."""
    flat = []
    for identity in identities:
        form = {key: value for key, value in identity.items() if key in keys and key not in ("dataset", "variant")}
        flat.append({"dataset": identity["dataset"], **form, **identity["variant"]})
    titles = []
    for mine in flat:
        others = [other for other in flat if other["dataset"] == mine["dataset"]]
        differing = [key for key in mine if any(other.get(key) != mine[key] for other in others)]
        if sum(mine.get("protocol") == other.get("protocol") for other in others) == 1:
            differing = [key for key in differing if key != "folds"]  # the protocol tells them
        words = [f"{key}={words_of(mine[key])}" for key in differing]
        titles.append(" ".join([str(mine["dataset"]), *words]))
    return titles


def leaderboard_cells(
    collection: Collection, selected: Selected, selection: Selection, split_by: str | None = None
) -> tuple[list[Board], list[Problem]]:
    """All boards that the runs allow, and what is missing in them.

    Args:
        collection: what was collected.
        selected: the steps and draws that count.
        selection: the method, whose validation environments are not reported on.
        split_by: one more identity key whose values get boards of their own.

    Raises:
        RecordError: one dataset of a board would mix code versions.
    """
    keys = BOARD_KEYS + ((split_by,) if split_by and split_by not in BOARD_KEYS else ())
    grouped: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, run in enumerate(collection.runs):
        if tested(run.identity):
            grouped[identity_key(run.identity, keys)][identity_key(run.identity, DATASET_KEYS)].append(index)
    gaps = Gaps.of(collection)
    boards, problems = [], []
    for _, by_dataset in sorted(grouped.items()):
        identity: dict[str, Any] = {}
        datasets: list[DatasetCells] = []
        codes: dict[str, None] = {}
        for _, runs in sorted(by_dataset.items()):
            shared = collection.runs[runs[0]].identity
            identity = {key: shared[key] for key in keys}
            codes |= dict.fromkeys(one_code(collection, runs, shared))
            cells, missing = _dataset(collection, selected, runs, gaps, selection.validation_environments)
            if any(run in selected.rows for run in runs):
                datasets.append(cells)
                problems += missing
            else:
                problems.append(_nothing(collection, selected, runs))
        if not datasets:
            continue
        boards.append(Board(identity, datasets, tuple(codes)))
    return boards, problems


def _dataset(
    collection: Collection, selected: Selected, runs: Sequence[int], gaps: Gaps, unreported: Sequence[str]
) -> tuple[DatasetCells, list[Problem]]:
    shared = collection.runs[runs[0]].identity
    studies: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index in runs:
        studies[selected.labels[index], collection.runs[index].identity["seed"]].append(index)
    plan = planned(shared, [frozenset(tested(collection.runs[index].identity)) for index in runs])
    reported = {env for held_out in plan for env in held_out} - set(unreported)
    environments = [env for env in shared["given"] if env in reported]
    accuracy: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)
    reasons: dict[str, dict[str, str]] = defaultdict(dict)
    counting: dict[str, dict[int, list[int]]] = defaultdict(dict)
    images: dict[str, float] = {}
    problems: list[Problem] = []
    for (label, seed), indices in sorted(studies.items()):
        counting[label][seed] = [index for index in indices if index in selected.rows]
        found: dict[str, dict[HeldOut, float]] = defaultdict(dict)
        for index in counting[label][seed]:
            held_out = frozenset(tested(collection.runs[index].identity))
            for row in selected.rows[index]:
                if row["env"] in held_out and row["env"] in reported:
                    found[row["env"]][held_out] = row["accuracy"]
                    images[row["env"]] = row["seen"]
        missing = why_missing(collection, selected, indices, [h for h in plan if not _has(found, h, reported)], gaps)
        accuracy[label][seed] = {
            env: math.fsum(found[env].values()) / len(found[env])
            for env in environments
            if found[env] and not any(env in held_out for held_out in missing.reasons)
        }
        for env in environments:
            for held_out, why in missing.reasons.items():
                if env in held_out:
                    reasons[label].setdefault(env, f"seed {seed}: {why}")
        problems += missing.problems
    known = images if any(count > 1 for count in images.values()) else {}
    return DatasetCells(dict(shared), environments, dict(accuracy), known, dict(reasons), dict(counting)), problems


def _has(found: Mapping[str, Mapping[HeldOut, float]], held_out: HeldOut, reported: set[str]) -> bool:
    return all(not math.isnan(found.get(env, {}).get(held_out, math.nan)) for env in held_out & reported)


def _nothing(collection: Collection, selected: Selected, runs: Sequence[int]) -> Problem:
    identity = collection.runs[runs[0]].identity
    where = f"{variant_text(identity)}, protocol {identity['protocol']}, {len(runs)} runs"
    return Problem("no leaderboard", where, f"no run counts, e.g. {selected.why.get(runs[0], 'none has rows')}")
