"""Runs grouped by setting: what may stand in one table, the same dataset, network and protocol."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dgbench.errors import RecordError
from dgbench.plan.folds import tested
from dgbench.records.run_identity import Role, identity_keys, keys
from dgbench.reports.reading.collect import ADVICE
from dgbench.reports.reading.selected import (
    Selected,
    SelectedRun,
    check_key,
    no_seeds,
    once_per_network,
)


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one setting, those that do not count included, and the ``tests`` of those that
    do.
    """

    identity: Mapping[str, Any]  #: what they share
    runs: Sequence[SelectedRun]
    codes: tuple[str, ...]
    tests: pd.DataFrame  #: see :class:`~dgbench.reports.reading.selected.Selected`

    def studies(self) -> Iterator[tuple[list[SelectedRun], pd.DataFrame]]:
        """Iterate over the runs of every study with their lines of ``tests``, by algorithm and
        seed.

        One study at a time is in memory: there may be thousands.
        """
        runs: dict[tuple[str, int], list[SelectedRun]] = defaultdict(list)
        for run in self.runs:
            runs[run.label, run.identity["seed"]].append(run)
        lines: dict[Any, Any] = self.tests.groupby(["algorithm", "seed"], sort=False).indices
        for key in sorted(runs):
            yield runs[key], self.tests.take(lines.get(key, np.empty(0, dtype=np.intp)))


def groups_of(selected: Selected, split_by: str | None = None, ideal: bool = True) -> list[Group]:
    """Group runs by setting.

    Args:
        selected: runs at their selected steps.
        split_by: one more identity key (e.g. ``code``) whose values get settings of their own.
        ideal: False leaves out runs that are tested in no given environment.

    Raises:
        RecordError: one setting would mix code versions.
        ConfigError: ``split_by`` is no identity key.
    """
    check_key(split_by)
    if selected.published:
        raise no_seeds(selected.published)
    names = keys(Role.SETTING, split_by)
    placed: dict[tuple[str, ...], list[tuple[int, SelectedRun]]] = defaultdict(list)
    numbered = once_per_network([run.identity for run in selected.runs])
    for (number, identity), key in zip(
        numbered, identity_keys([i for _, i in numbered], names), strict=True
    ):
        if ideal or tested(identity):
            run = selected.runs[number]
            run = run if identity is run.identity else replace(run, identity=identity)
            placed[key].append((number, run))
    groups = []
    for _, of_setting in sorted(placed.items()):
        runs = [run for _, run in of_setting]
        identity = {key: runs[0].identity[key] for key in names}
        counted = selected.tests["run"].isin(
            [number for number, run in of_setting if not run.reason]
        )
        tests = selected.tests if counted.all() else selected.tests[counted]
        groups.append(Group(identity, runs, one_code(runs, identity), tests))
    return groups


def one_code(runs: Sequence[SelectedRun], shared: Mapping[str, Any]) -> tuple[str, ...]:
    """Find the code version of the finished runs among these; none when no run is finished.

    Raises:
        RecordError: there are several.
    """
    folders: dict[str, str] = {}
    for run in runs:
        if run.finished:
            folders.setdefault(str(run.identity["code"]), run.folder)
    if len(folders) > 1:
        listed = ", ".join(f"{code} (e.g. {folder})" for code, folder in sorted(folders.items()))
        raise RecordError(
            f"{shared['dataset']} results of {len(folders)} code versions would share a table: "
            f"{listed}; give them tables of their own with "
            f"{ADVICE.replace('...', ','.join(sorted(folders)))}"
        )
    return tuple(folders)
