"""Which folds of a dataset a model can be evaluated in, and who its rows are from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError
from dgbench.plan.folds import Fold
from dgbench.records.rows import EVALUATED, RunIdentity
from dgbench.records.spec import canonical, code_version, digest
from dgbench.trained.diwa import AveragedRuns
from dgbench.trained.predictor import Predictor
from dgbench.training.run_folder import ModelRecord

OF_A_FOLD = ("run", "fold", "held_out", "n_parameters", "n_trainable", "code")  # keys in which runs of a study differ


@dataclass(frozen=True)
class Subject:
    """What is evaluated.

    Args:
        name: for tables.
        content: changes with the weights.
        study: equal for the runs of one study; of any other model, its content.
        n_parameters: of the network; None where it is not known.
        record: of a run; None of a model that dgbench did not train.
        grouped: predictions depend on what is evaluated together.
        members: hashes of the runs that it is the mean of, where it is one.
    """

    name: str
    content: str
    study: str
    n_parameters: int | None = None
    record: ModelRecord | None = None
    grouped: bool = False
    members: tuple[str, ...] = ()


def subject_of(model: Predictor, name: str, source: str) -> Subject:
    """What the rows of a model say of it.

    Args:
        model: loaded.
        name: for tables; empty takes the algorithm of a run, as ``ALGORITHM@DATASET``.
        source: what named it.
    """
    record = model.record
    if record is not None:
        trained = record.identity_of_rows
        called = name or f"{trained.algorithm}@{trained.dataset}"
        shared = {key: value for key, value in record.identity.items() if key not in OF_A_FOLD}
        study = digest([shared, record.hparams, model.step])
        members = model.members if isinstance(model, AveragedRuns) else ()
        return Subject(
            called, f"{trained.run} {model.step}", study, trained.n_parameters, record, model.group_size > 0, members
        )
    n = sum(parameter.numel() for parameter in model.parameters())
    content = weights_digest(model)
    return Subject(name or source, content, content, n or None, None, model.group_size > 0)


def weights_digest(module: nn.Module) -> str:
    """12 hexadecimal digits of all tensors of a module; of a plain function, of none."""
    content = hashlib.sha256()
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor):
            content.update(
                name.encode() + value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            )
    return content.hexdigest()[:12]


def folds_of(subject: Subject, planned: Sequence[Fold], info: DatasetInfo) -> list[Fold]:
    """The folds whose tested environments the model never saw.

    A run on the dataset that it was trained on has one fold, its own. On another form of the same images (the same
    photographs, corrupted) it has the folds that test none of the domains that it was trained on. Any other model has
    all folds.

    Args:
        subject: the model.
        planned: all folds of the protocol.
        info: the dataset.

    Raises:
        ConfigError: there is none.
    """
    record = subject.record
    if record is not None and same_dataset(record, info):
        return _own(record, planned)
    if record is None or not same_images(record, info):
        return list(planned)
    seen = {domain(env) for env in record.training}
    names = info.everywhere
    unseen = [fold for fold in planned if not seen & {domain(e) for e in (names if fold.everywhere else fold.tested)}]
    if not unseen:
        raise ConfigError(
            f"{subject.name} was trained on {', '.join(record.training)}, images of every environment that it would be "
            "tested in; choose another dataset, or a run that holds out a domain"
        )
    return unseen


def domain(env: str) -> str:
    """``photo`` of ``photo+fog``."""
    return env.partition("+")[0]


def same_dataset(record: ModelRecord, info: DatasetInfo) -> bool:
    """Whether a run was trained on this very dataset: environments, images, splits and seeds."""
    facts = info.facts()
    return bool(canonical({key: record.identity[key] for key in facts}) == canonical(json.loads(json.dumps(facts))))


def same_images(record: ModelRecord, info: DatasetInfo) -> bool:
    """Whether a run was trained on the files of this dataset, in this form or another."""
    return bool(info.content) and record.identity["content"] == info.content


def _own(record: ModelRecord, planned: Sequence[Fold]) -> list[Fold]:
    same = [fold for fold in planned if canonical(_plain(fold.key())) == canonical(_plain(record.fold))]
    if not same:
        raise ConfigError(
            f"fold {record.identity['fold']} of {record.identity['protocol']} is not among the folds of this protocol; "
            "leave protocol= out, and the run's own counts"
        )
    return same


def _plain(key: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(key))


def identity_of(subject: Subject, fold: Fold, info: DatasetInfo, protocol: str) -> RunIdentity:
    """Who the rows are from: the run itself on its own dataset, else the model as evaluated here.

    A model that dgbench did not train has the backbone, initial weights and tuning ``evaluated``, and stands in every
    table of the same environments and protocol. A run on another dataset is called ``ALGORITHM@DATASET``, where it was
    trained.
    """
    record = subject.record
    if record is not None and same_dataset(record, info):
        return replace(record.identity_of_rows, code=code_version())
    facts, place = info.facts(), fold.key()
    where = {
        **facts,
        "run": digest({"evaluated": subject.content, "name": subject.name, "dataset": facts, "fold": place}),
        "protocol": protocol,
        "fold": fold.name,
        "held_out": list(fold.held_out),
        "folds": None if fold.folds is None else [list(tested) for tested in fold.folds],
        "beyond": info.beyond,
        "grouped": subject.grouped,
        "code": code_version(),
    }
    if record is not None:
        trained = record.identity_of_rows
        return replace(trained, **{**where, "algorithm": subject.name})
    return RunIdentity(
        **where,
        algorithm=subject.name,
        hparams={},
        backbone=EVALUATED,
        init=EVALUATED,
        tuning=EVALUATED,
        n_parameters=subject.n_parameters,
        n_trainable=0,
        seed=0,
    )
