"""Which of the collected runs have predictions, and which of them belong together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgbench.errors import RecordError
from dgbench.plan.folds import tested
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.reports.errors.tested_images import Predicted
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.settings.evaluation import SETTING_KEYS, identity_key, one_code
from dgbench.reports.settings.foreign_runs import beside_trained
from dgbench.reports.settings.labels import algorithm_labels, setting_titles
from dgbench.reports.settings.selected_runs import SelectedRun

Together = dict[str, list[Predicted]]  # algorithm -> its runs


def predicted_runs(collection: Collection) -> tuple[list[Predicted], list[Problem]]:
    """Finished runs that have predictions and test environments; and what is missing.

    Raises:
        RecordError: there is none.
    """
    found, problems = [], list(collection.problems)
    lacking: dict[str, list[str]] = defaultdict(list)
    for run in collection.runs:
        if run.unusable or not tested(run.identity):
            continue
        if not (Path(run.folder) / PREDICTION_FILE).is_file():
            lacking[str(Path(run.folder).parent)].append(run.folder)
            continue
        try:
            found.append(Predicted.of(run))
        except RecordError as error:
            problems.append(Problem("unreadable predictions", run.folder, str(error)))
    ways = "train with trainer.predictions=last, or write them with dgbench evaluate and predictions=true"
    for where, folders in lacking.items():
        problems.append(Problem("no predictions", where, f"{len(folders)} finished run(s) have none; {ways}"))
    if not found:
        raise RecordError(f"no finished run has {PREDICTION_FILE}; {ways}")
    return found, problems


def settings_of(found: Sequence[Predicted], split_by: str | None) -> list[tuple[str, Together]]:
    """Title of each setting, and its runs by algorithm.

    Raises:
        RecordError: one setting would mix code versions.
    """
    keys = SETTING_KEYS + ((split_by,) if split_by and split_by not in SETTING_KEYS else ())
    grouped: dict[str, list[Predicted]] = defaultdict(list)
    shared: dict[str, dict[str, Any]] = {}
    for number, identity in beside_trained([each.run.identity for each in found]):
        group = identity_key(identity, keys)
        grouped[group].append(found[number])
        shared.setdefault(group, {key: identity[key] for key in keys})
    titles = setting_titles(list(shared.values()))
    settings = []
    for own in grouped.values():
        one_code([SelectedRun(each.run.identity, "", each.run.folder) for each in own], own[0].run.identity)
    for title, own in zip(titles, grouped.values(), strict=True):
        runs: Together = defaultdict(list)
        for label, each in zip(algorithm_labels([each.run.identity for each in own]), own, strict=True):
            runs[label].append(each)
        settings.append((title, dict(runs)))
    return settings
