"""Evaluating a model in the folds of a dataset: the rows that training would have written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.callbacks.recorder import rows_of_counts
from dgbench.data.environments import Environments
from dgbench.models.adapting import Adapted
from dgbench.models.counting import Counts, Logits, counted
from dgbench.models.evaluated_folds import Subject, domain, folds_of, identity_of, same_dataset
from dgbench.models.feature_file import write_features
from dgbench.models.loaded import LoadedModel, Predictor
from dgbench.protocols.folds import Fold
from dgbench.records.files import write_whole
from dgbench.records.rows import IDENTITY_FILE, ROW_FILE, Row
from dgbench.records.spec import digest
from dgbench.records.status import finish
from dgbench.tensors import ErrorRecipe
from dgbench.training.fold_data import environments_of, recipes_of
from dgbench.training.fold_plan import planned_folds
from dgbench.training.settings import TrainerSettings

Tell = Callable[[str], None]


def subject_of(model: Predictor, name: str, source: str) -> Subject:
    """What the rows of a model say of it.

    Args:
        model: loaded.
        name: for tables; empty takes the algorithm of a run, as ``ALGORITHM@DATASET``.
        source: what named it.
    """
    record = model.record if isinstance(model, LoadedModel) else None
    if record is not None:
        trained = record.identity_of_rows
        step = model.step if isinstance(model, LoadedModel) else 0
        called = name or f"{trained.algorithm}@{trained.dataset}"
        return Subject(called, f"{trained.run} {step}", trained.n_parameters, record, model.group_size > 0)
    n = sum(parameter.numel() for parameter in model.parameters())
    return Subject(name or source, weights_digest(model), n or None, None, model.group_size > 0)


def weights_digest(module: nn.Module) -> str:
    """12 hexadecimal digits of all tensors of a module; of a plain function, of none."""
    content = hashlib.sha256()
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor):
            content.update(
                name.encode() + value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            )
    return content.hexdigest()[:12]


def evaluate_model(
    model: Predictor,
    subject: Subject,
    environments: Environments,
    protocol: Mapping[str, Any],
    settings: TrainerSettings,
    parent: Path,
    tell: Tell = lambda text: None,
    features: int = 0,
) -> list[Path]:
    """Evaluate a model in every fold whose tested environments it never saw, and write its rows.

    Args:
        model: on the device of the environments.
        subject: what its rows say of it.
        environments: the dataset.
        protocol: keys of ``conf/protocol``.
        settings: ``eval_subsets``, ``eval_batch_size`` and ``precision`` count.
        parent: folder that receives a folder of the model's own.
        tell: is told which eval set comes next.
        features: images of an environment whose features are kept in each fold's folder.

    Returns:
        A run folder for each fold.

    Raises:
        ConfigError: the model does not fit the dataset, or there is no such fold.
        OSError: the rows cannot be written.
    """
    info = environments.info
    folds = folds_of(subject, planned_folds(protocol, info), info)
    logits = _logits(model, subject, environments)
    recipes = {fold.name: _recipes(subject, fold, environments, settings) for fold in folds}
    counts: Counts = {}
    own = {"batch_size": settings.eval_batch_size, "group_size": model.group_size, "precision": settings.precision}
    whole = [recipe for fold in folds if fold.membership is None for recipe in recipes[fold.name]]
    if whole:
        counts = counted(logits, environments, whole, tell=tell, **own)  # type: ignore[arg-type]
    folders = []
    study = parent / "-".join(
        [info.name, _file_name(subject.name), "evaluated", digest([subject.content, info.facts()])]
    )
    for fold in folds:
        found = counts
        if fold.membership is not None:  # other images for every fold
            seen = environments_of(fold, environments)
            found = counted(logits, seen, recipes[fold.name], tell=tell, **own)  # type: ignore[arg-type]
        identity = identity_of(subject, fold, info, str(protocol["name"]))
        folder = study / f"fold-{fold.name}-{identity.run}"
        step = model.step if isinstance(model, LoadedModel) else 0
        if features:
            write_features(folder, model, environments, recipes[fold.name], features)
        _write(folder, subject, rows_of_counts(identity, step, recipes[fold.name], found))
        folders.append(folder)
    return folders


def _logits(model: Predictor, subject: Subject, environments: Environments) -> Logits:
    """On its own dataset a run predicts batch by batch as it did in training."""
    if isinstance(model, LoadedModel) and subject.record and same_dataset(subject.record, environments.info):
        run = model.run
        return lambda x, name, index: run.predict_logits(x.to(run.networks.dtype), name, index)[0]
    return Adapted(model, environments.class_names, environments.preprocessing)


def _recipes(subject: Subject, fold: Fold, environments: Environments, settings: TrainerSettings) -> list[ErrorRecipe]:
    found = recipes_of(fold, environments_of(fold, environments), settings.eval_subsets, subject.grouped)
    record = subject.record
    if (
        record is None
        or same_dataset(record, environments.info)
        or record.identity["content"] != environments.info.content
    ):
        return found
    seen = {domain(env) for env in record.training}  # of the same images
    return [replace(recipe, held_out=domain(recipe.env) not in seen) for recipe in found]


def _write(folder: Path, subject: Subject, rows: list[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = {"run": rows[0].identity.run, "evaluated": {"name": subject.name, "content": subject.content}}
    write_whole(folder / IDENTITY_FILE, json.dumps(about, indent=1) + "\n")
    write_whole(folder / ROW_FILE, "".join(row.to_json() + "\n" for row in rows))
    finish(folder)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.@+]+", "_", name).strip("_") or "model"
