"""Runs that started from the same weights as one model, the mean of their weights (DiWA: Rame et al., 2022).

Runs of one fold belong together if they differ in nothing but their hyperparameters, as the draws of one trial of a
search do: the same seed gave them the same initial weights, and the mean of networks that were fine-tuned from one
point is a network that works. Of each run the weights of its best evaluation on the training environments' validation
images are taken, or the last ones of a run that kept no others. Parameters are averaged; running statistics, and what
an algorithm remembers, are those of the first run.

- ``diwa_uniform``: all of them.
- ``diwa_greedy`` (the paper's restricted selection): the best first, by mean accuracy over the training environments'
  validation images; a run stays if with it the mean's accuracy on all these images together is no lower.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgbench.errors import ConfigError
from dgbench.models.loaded import LoadedModel
from dgbench.models.loading import TENSORS, load_one, run_folders
from dgbench.objectives.contract import Algorithm
from dgbench.records.rows import RunIdentity
from dgbench.records.spec import canonical, digest
from dgbench.records.status import is_done, read_status
from dgbench.training.averaging import RunningMean
from dgbench.training.run_folder import MODEL_FILE, ModelRecord

UNIFORM, GREEDY = "diwa_uniform", "diwa_greedy"
KINDS = (UNIFORM, GREEDY)
#: keys of an identity in which runs that are averaged may differ
FREE = ("run", "hparams", "draw", "trial", "space", "n_parameters", "n_trainable", "code")

log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class Accuracy:
    """Of one model on the validation images of the environments that it was trained on."""

    mean: float  #: over the environments
    pooled: float  #: over all images


@dataclass(frozen=True)
class Siblings:
    """Runs of one fold that started from the same weights, in the order of their draws."""

    folders: tuple[Path, ...]
    records: tuple[ModelRecord, ...]


class AveragedRuns(LoadedModel):
    """The mean of several runs.

    Attributes:
        members: hashes of the runs that it is the mean of.
    """

    members: tuple[str, ...] = ()


def siblings(models: Sequence[str | Path]) -> list[Siblings]:
    """The runs in some folders, put together with those of the same fold and initial weights.

    A run that is not finished, or has no other beside it, is left out with a warning.

    Raises:
        ConfigError: there are no two that belong together.
        RecordError: a folder holds no run.
    """
    groups: dict[str, dict[str, tuple[Path, ModelRecord]]] = {}
    for folder in (run for model in models for run in _folders(Path(model).expanduser())):
        if not is_done(folder) and not (folder / TENSORS).exists():
            log.warning("%s is left out: %s", folder, read_status(folder) or "not started")
            continue
        record = ModelRecord.load(folder)
        groups.setdefault(digest(_fixed(record)), {}).setdefault(record.identity["run"], (folder, record))
    alone = [next(iter(group.values())) for group in groups.values() if len(group) == 1]
    together = [_siblings(list(group.values())) for group in groups.values() if len(group) > 1]
    if not together:
        raise ConfigError(f"averaging needs two runs or more that started from the same weights; {_apart(alone)}")
    for folder, _ in alone:
        log.warning("%s is left out: no other run here has its fold and initial weights", folder)
    return together


def _folders(model: Path) -> list[Path]:
    if not model.is_dir():
        raise ConfigError(f"averaging takes folders of runs, and {model} is none; name those of a search")
    return [model] if (model / MODEL_FILE).exists() else run_folders(model)


def _fixed(record: ModelRecord) -> dict[str, Any]:
    return {key: value for key, value in record.identity.items() if key not in FREE}


def _siblings(found: list[tuple[Path, ModelRecord]]) -> Siblings:
    found.sort(key=lambda each: (each[1].identity["trial"], each[1].identity["draw"], each[1].identity["run"]))
    folders, records = zip(*found, strict=True)
    return Siblings(folders, records)


def _apart(alone: Sequence[tuple[Path, ModelRecord]]) -> str:
    """In what runs that cannot be averaged differ."""
    if not alone:
        return "none of those here is finished"
    (first, record), *others = alone
    if not others:
        return f"{first} is the only one here"
    second, other = others[0]
    one, two = _fixed(record), _fixed(other)
    differing = [f"{key} ({one[key]}, {two[key]})" for key in one if canonical(one[key]) != canonical(two[key])]
    return f"{first.name} and {second.name} differ in {', '.join(differing[:3])}"


def averaged(
    group: Siblings,
    kind: str,
    step: str | None,
    judge: Callable[[LoadedModel], Accuracy],
    device: torch.device,
) -> AveragedRuns:
    """The mean of runs that belong together.

    Args:
        group: the runs.
        kind: one of :data:`KINDS`.
        step: ``last`` or ``best`` weights of every run; None: the best ones of runs that kept them.
        judge: scores a model, for :data:`GREEDY`.
        device: that models are judged on, and that the mean comes on.

    Raises:
        ConfigError: their networks differ.
    """

    def member(i: int) -> LoadedModel:
        folder = group.folders[i]
        wanted = step or ("best" if (folder / "checkpoints" / "best.ckpt").exists() else "last")
        return load_one(folder, wanted).to(device)

    order = list(range(len(group.folders)))
    if kind == GREEDY:
        worth = [judge(member(i)).mean for i in order]
        order.sort(key=lambda i: -worth[i])
    carrier = member(order[0])
    mean, kept, best = RunningMean(), [], -1.0
    for i in order:
        model = member(i)
        tried = RunningMean(mean.count, {key: value.clone() for key, value in mean.mean.items()})
        tried.add(_same_shapes(_weights(carrier), _weights(model), group.folders[order[0]], group.folders[i]))
        if kind == GREEDY:
            _put(carrier, tried.mean)
            accuracy = judge(carrier).pooled
            if accuracy < best:
                continue
            best = accuracy
        mean = tried
        kept.append((group.records[i].identity["run"], model.step))
    _put(carrier, mean.mean)
    runs = [record.identity["run"] for record in group.records]
    record = _record(group, kind, digest([kind, runs, kept]))
    made = AveragedRuns(carrier.run, record, max(int(each.trainer["steps"]) for each in group.records))
    made.members = tuple(run for run, _ in kept)
    return made.to(device)


def _weights(model: LoadedModel) -> dict[str, Tensor]:
    """Parameters that predictions depend on, by name."""
    networks, algorithm = model.run.networks, model.run.algorithm
    names = ("featurizer", "classifier") if type(algorithm).predict is Algorithm.predict else tuple(networks)
    return {f"{name}.{key}": value for name in names for key, value in networks[name].named_parameters()}


def _same_shapes(
    first: Mapping[str, Tensor], other: Mapping[str, Tensor], first_folder: Path, folder: Path
) -> Mapping[str, Tensor]:
    if {key: value.shape for key, value in first.items()} != {key: value.shape for key, value in other.items()}:
        raise ConfigError(f"{first_folder} and {folder} have different networks, which have no mean; name runs of one")
    return other


@torch.no_grad()
def _put(model: LoadedModel, values: Mapping[str, Tensor]) -> None:
    for key, parameter in _weights(model).items():
        parameter.copy_(values[key])


def _record(group: Siblings, kind: str, run: str) -> ModelRecord:
    """What the mean is: a run as its members, without the hyperparameters in which they differ."""
    first = group.records[0]
    known = RunIdentity(**first.identity)
    trials = {record.identity["trial"] for record in group.records}
    before = "" if known.averaging == "none" else f"{known.averaging}+"
    changed = {
        "run": run,
        "hparams": {key: value for key, value in known.hparams.items() if key not in first.hparams},
        "draw": 0,
        "trial": trials.pop() if len(trials) == 1 else 0,
        "averaging": f"{before}{kind}",
    }
    return replace(first, identity={**first.identity, **changed})
