"""Runs that started from the same weights as one model, the mean of their weights (DiWA).

Runs of one fold belong together if they differ in nothing but their hyperparameters, as the draws
of one trial of a search do: the same seed gave them the same initial weights, and the mean of
networks that were fine-tuned from one point is a network that works (Rame et al., 2022). Of each
run the weights of its best evaluation on the training environments' validation images are taken, or
the last ones of a run that kept no others. Parameters are averaged; running statistics, and what an
algorithm remembers, are those of the first run.

- ``diwa_uniform``: all runs.
- ``diwa_greedy`` (the paper's restricted selection): the best first, by mean accuracy over the
  training environments' validation images; a run stays if with it the mean's accuracy on all these
  images together is no lower.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgbench.callbacks.averaging import RunningMean, snapshot
from dgbench.errors import ConfigError
from dgbench.networks.checkpoint_layouts import misfit
from dgbench.records.run_identity import RunIdentity
from dgbench.records.spec import canonical, digest
from dgbench.records.status import is_done, read_status
from dgbench.trained.loading import load_one, run_folders
from dgbench.trained.predictor import LoadedModel
from dgbench.training.run_folder import MODEL_FILE, ModelRecord

UNIFORM = "diwa_uniform"
GREEDY = "diwa_greedy"
#: keys of an identity in which runs that are averaged may differ
MAY_DIFFER = (
    "run",
    "hparams",
    "draw",
    "trial",
    "space",
    "n_parameters",
    "n_trainable",
    "n_classes",
    "code",
)

log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of one model on the validation images of the environments that it was trained on."""

    mean: float  #: over the environments
    pooled: float  #: over all images


#: runs of one fold that started from the same weights, in the order of their draws
Siblings = list[tuple[Path, ModelRecord]]


def siblings(models: Sequence[Any], trust: bool = False) -> list[Siblings]:
    """Group the runs in some folders by fold and initial weights.

    Runs of a group differ in :data:`MAY_DIFFER` keys only. A run that is not finished, or has no
    other beside it, is left out with a warning.

    Args:
        models: folders.
        trust: as in :func:`dgbench.load`.

    Raises:
        ConfigError: there are no two that belong together.
        RecordError: a folder holds no run.
    """
    groups: dict[str, dict[str, tuple[Path, ModelRecord]]] = {}
    for folder, record in finished_runs(models, trust):
        group = groups.setdefault(digest(_fixed(record)), {})
        group.setdefault(record.identity["run"], (folder, record))
    alone = [next(iter(group.values())) for group in groups.values() if len(group) == 1]
    together = [sorted(group.values(), key=_place) for group in groups.values() if len(group) > 1]
    if not together:
        raise ConfigError(
            "averaging needs two runs or more that started from the same weights; "
            f"{_differences(alone)}"
        )
    for folder, _ in alone:
        log.warning("%s is left out: no other run here has its fold and initial weights", folder)
    return together


def needed_runs(models: Sequence[Any], kind: str, trust: bool = False) -> Siblings:
    """List the finished runs in some folders, of which ``averaging=kind`` needs one or more.

    Raises:
        ConfigError: none is finished.
        RecordError: a folder holds no run.
    """
    runs = finished_runs(models, trust)
    if not runs:
        raise ConfigError(f"averaging={kind} needs a finished run; none of those here is finished")
    return runs


def averaging_with(identity: Mapping[str, Any], kind: str) -> str:
    """Name the averaging of a run's weights after one more kind: ``swad+wise_ft``."""
    averaging = identity.get("averaging", "none")
    return kind if averaging == "none" else f"{averaging}+{kind}"


def _folders(model: Any) -> list[Path]:
    is_path = isinstance(model, (str, Path))
    folder = Path(model).expanduser() if is_path else Path()
    if not is_path or not folder.is_dir():
        named = model if is_path else type(model).__name__
        raise ConfigError(
            f"averaging takes folders of runs, which {named} is not; name those of a search"
        )
    return [folder] if (folder / MODEL_FILE).exists() else run_folders(folder)


def _fixed(record: ModelRecord) -> dict[str, Any]:
    return {key: value for key, value in record.identity.items() if key not in MAY_DIFFER}


def _place(run: tuple[Path, ModelRecord]) -> tuple[int, int, str]:
    identity = run[1].identity
    return identity["trial"], identity["draw"], identity["run"]


def _differences(alone: Siblings) -> str:
    """Describe in what runs that cannot be averaged differ."""
    if not alone:
        return "none of those here is finished"
    (first, record), *other_runs = alone
    if not other_runs:
        return f"{first} is the only one here"
    second, second_record = other_runs[0]
    one = _fixed(record)
    two = _fixed(second_record)
    differing = [key for key in one if canonical(one[key]) != canonical(two[key])]
    examples = ", ".join(f"{key} ({one[key]}, {two[key]})" for key in differing[:3])
    return f"{first.name} and {second.name} differ in {examples}"


def averaged(
    group: Siblings,
    kind: str,
    step: str | None,
    judge: Callable[[LoadedModel], Accuracy],
    device: torch.device,
    trust: bool = False,
) -> LoadedModel:
    """Average the weights of runs that belong together.

    Args:
        group: the runs.
        kind: ``diwa_uniform`` or ``diwa_greedy``.
        step: ``last`` or ``best`` weights of every run; None: the best ones of runs that kept them.
        judge: scores a model, for :data:`GREEDY`.
        device: that models are judged on, and that the mean comes on.
        trust: as in :func:`dgbench.load`.

    Raises:
        ConfigError: their networks differ.
    """

    def member(folder: Path) -> LoadedModel:
        return load_kept(folder, step, trust).to(device)

    order = list(group)
    if kind == GREEDY:
        accuracies = {folder: judge(member(folder)).mean for folder, _ in group}
        order.sort(key=lambda run: -accuracies[run[0]])
    first, _ = order[0]
    carrier = member(first)
    mean = RunningMean()
    members = []
    best = -1.0
    for folder, record in order:
        model = member(folder)
        weights = _weights(model)
        if misfit(_weights(carrier), weights):
            raise ConfigError(
                f"{first} and {folder} have different networks, which have no mean; name runs of "
                "one"
            )
        candidate = RunningMean(mean.count, snapshot(mean.mean))
        candidate.add(weights)
        if kind == GREEDY:
            _put(carrier, candidate.mean)
            accuracy = judge(carrier).pooled
            if accuracy < best:
                continue
            best = accuracy
        mean = candidate
        members.append((record.identity["run"], model.step))
    _put(carrier, mean.mean)
    records = [record for _, record in group]
    run = digest([kind, [record.identity["run"] for record in records], members])
    steps = max(int(record.trainer["steps"]) for record in records)
    average = LoadedModel(carrier.run, _record(records, kind, run), steps)
    average.averaged = tuple(name for name, _ in members)
    return average.to(device)


def load_kept(folder: Path, step: str | None, trust: bool) -> LoadedModel:
    """Load the ``step`` weights of a run; None loads the best ones if it kept them, else the last.

    Raises:
        RecordError, WeightsError: as :func:`dgbench.load`.
    """
    best = folder / "checkpoints" / "best.ckpt"
    kept_step = step or ("best" if best.exists() else "last")
    return load_one(folder, kept_step, trust)


def finished_runs(models: Sequence[Any], trust: bool) -> Siblings:
    """List the finished runs in some folders; any other is left out with a warning.

    Raises:
        ConfigError: something is no folder.
        RecordError: a folder holds no run.
    """
    folders: list[Path] = []
    for model in models:
        folders += _folders(model)
    runs = []
    for folder in folders:
        if is_done(folder):
            runs.append((folder, ModelRecord.load(folder, trust)))
        else:
            log.warning("%s is left out: %s", folder, read_status(folder) or "not started")
    return runs


def _weights(model: LoadedModel) -> dict[str, Tensor]:
    """Collect the parameters that predictions depend on, by name."""
    weights: dict[str, Tensor] = {}
    for name in model.networks_that_predict:
        for key, value in model.run.networks[name].named_parameters():
            weights[f"{name}.{key}"] = value
    return weights


@torch.no_grad()
def _put(model: LoadedModel, values: Mapping[str, Tensor]) -> None:
    for key, parameter in _weights(model).items():
        parameter.copy_(values[key])


def _record(records: Sequence[ModelRecord], kind: str, run: str) -> ModelRecord:
    """Build the record of the mean.

    It is its first member's, without hyperparameters of the algorithm, which may differ.
    """
    first = records[0]
    identity = RunIdentity(**first.identity)
    trials = {record.identity["trial"] for record in records}
    shown = {key: value for key, value in identity.hparams.items() if key not in first.hparams}
    changed = {
        "run": run,
        "hparams": shown,
        "draw": 0,
        "trial": trials.pop() if len(trials) == 1 else 0,
        "averaging": averaging_with(first.identity, kind),
    }
    return replace(first, identity={**first.identity, **changed})
