"""Evaluating a model in the folds of a dataset: the rows that training would have written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.callbacks.predictions import PredictedRun
from dgbench.callbacks.recorder import rows_of_counts
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError
from dgbench.models.adapting import Adapted
from dgbench.models.averaged_runs import Accuracy, AveragedRuns
from dgbench.models.counting import Logits, counted
from dgbench.models.evaluated_folds import Subject, domain, folds_of, identity_of, same_dataset, same_images
from dgbench.models.feature_file import write_features
from dgbench.models.kept_predictions import kept
from dgbench.models.loaded import LoadedModel, Predictor
from dgbench.plan.folds import Fold, planned_folds
from dgbench.plan.settings import TrainerSettings
from dgbench.records.files import write_whole
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.rows import IDENTITY_FILE, ROW_FILE, Row, RunIdentity
from dgbench.records.spec import digest
from dgbench.records.status import finish
from dgbench.tensors import ErrorRecipe
from dgbench.training.fold_data import environments_of, recipes_of

OF_A_FOLD = ("run", "fold", "held_out", "n_parameters", "n_trainable", "code")  # keys in which runs of a study differ
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Keep:
    """What is kept beside rows.

    Args:
        features: images of an environment whose features are kept; 0 keeps none.
        predictions: ``predictions.parquet``, as ``trainer.predictions`` writes it.
        root: folder of the image files, for reports that show some.
    """

    features: int = 0
    predictions: bool = False
    root: str | None = None


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
        own = {key: value for key, value in record.identity.items() if key not in OF_A_FOLD}
        study = digest([own, record.hparams, model.step])
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


def evaluate_model(
    model: Predictor,
    subject: Subject,
    environments: Environments,
    protocol: Mapping[str, Any],
    settings: TrainerSettings,
    parent: Path,
    tell: Tell = lambda text: None,
    keep: Keep | None = None,
) -> list[Path]:
    """Evaluate a model in every fold whose tested environments it never saw, and write its rows.

    Args:
        model: on the device of the environments.
        subject: what its rows say of it.
        environments: the dataset.
        protocol: keys of ``conf/protocol``.
        settings: ``eval_subsets``, ``eval_batch_size`` and ``precision`` count.
        parent: folder that receives a folder of the model's own.
        tell: called with the eval set that comes next.
        keep: what else is kept in the folder of each fold.

    Returns:
        A run folder for each fold.

    Raises:
        ConfigError: the model does not fit the dataset, or there is no such fold.
        OSError: the rows cannot be written.
    """
    info, keep = environments.info, keep or Keep()
    folds = folds_of(subject, planned_folds(protocol, info), info)
    logits = _logits(model, subject, environments)
    what = digest([subject.study, info.facts()])
    study = parent / f"{info.name}-{_file_name(subject.name)}-evaluated-{what}"
    folders: dict[str, Path] = {}
    alike = [fold for fold in folds if fold.membership is None]
    for together in [alike, *([fold] for fold in folds if fold.membership is not None)]:
        if not together:
            continue
        seen = environments_of(together[0], environments)  # a membership has other images in every fold
        evaluated = [_Evaluated.of(subject, fold, seen, settings, str(protocol["name"]), study) for fold in together]
        with kept(
            [each.predicted(keep.root) for each in evaluated] if keep.predictions else [], model.step, seen
        ) as listen:
            counts = counted(
                logits, seen, [recipe for each in evaluated for recipe in each.recipes], listen=listen, tell=tell,
                batch_size=settings.eval_batch_size, group_size=model.group_size, precision=settings.precision,
            )  # fmt: skip
        for each in evaluated:
            if keep.features:
                write_features(each.folder, model, seen, each.recipes, keep.features)
            each.write(rows_of_counts(each.identity, model.step, each.recipes, counts))
            folders[each.fold.name] = each.folder
    return [folders[fold.name] for fold in folds]


def validation_accuracy(
    model: LoadedModel, environments: Environments, protocol: Mapping[str, Any], settings: TrainerSettings
) -> Accuracy:
    """How a model does on the validation images of the environments that it was trained on; no others are looked at.

    Args:
        model: on the device of the environments.
        environments: of the dataset that it was trained on.
        protocol, settings: as of :func:`evaluate_model`.

    Raises:
        ConfigError: the dataset is another one, or does not have its fold.
    """
    subject, info = subject_of(model, "", ""), environments.info
    if not same_dataset(model.record, info):
        raise ConfigError(
            f"runs of {model.record.identity['dataset']} are chosen on their own validation images, and these are "
            "others; correct dataset.root"
        )
    (fold,) = folds_of(subject, planned_folds(protocol, info), info)
    seen = environments_of(fold, environments)
    recipes = [each for each in recipes_of(fold, seen, ["val"], subject.grouped) if each.env in fold.training]
    counts = counted(
        _logits(model, subject, environments), seen, recipes,
        batch_size=settings.eval_batch_size, group_size=model.group_size, precision=settings.precision,
    )  # fmt: skip
    rows = rows_of_counts(identity_of(subject, fold, info, str(protocol["name"])), model.step, recipes, counts)
    wrong, n = sum(row.wrong for row in rows), sum(row.seen for row in rows)
    return Accuracy(1 - sum(row.error for row in rows) / len(rows), 1 - wrong / n)


@dataclass(frozen=True)
class _Evaluated:
    """A model in one fold."""

    subject: Subject
    fold: Fold
    recipes: list[ErrorRecipe]
    identity: RunIdentity
    folder: Path
    classes: tuple[str, ...]

    @staticmethod
    def of(
        subject: Subject, fold: Fold, seen: Environments, settings: TrainerSettings, protocol: str, study: Path
    ) -> _Evaluated:
        recipes = recipes_of(fold, seen, settings.eval_subsets, subject.grouped)
        record, info = subject.record, seen.info
        if record and same_images(record, info) and not same_dataset(record, info):
            known = {domain(env) for env in record.training}
            recipes = [replace(recipe, held_out=domain(recipe.env) not in known) for recipe in recipes]
        identity = identity_of(subject, fold, info, protocol)
        return _Evaluated(
            subject, fold, recipes, identity, study / f"fold-{fold.name}-{identity.run}", seen.class_names
        )

    def predicted(self, root: str | None) -> PredictedRun:
        """Where its predictions go; ``root`` is the folder of the image files."""
        identity, record = self.identity, self.subject.record
        about = {
            "run": identity.run,
            "dataset": identity.dataset,
            "algorithm": identity.algorithm,
            "seed": identity.seed,
            "fold": identity.fold,
            "training": list(record.training if record else self.fold.training),
            "held_out": identity.held_out,
            "classes": list(self.classes),
            "root": root,
        }
        return PredictedRun(self.folder / PREDICTION_FILE, about, self.recipes)

    def write(self, rows: list[Row]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        told = {"name": self.subject.name, "content": self.subject.content}
        averaged = {"averaged": list(self.subject.members)} if self.subject.members else {}
        about = {"run": self.identity.run, "evaluated": {**told, **averaged}}
        write_whole(self.folder / IDENTITY_FILE, json.dumps(about, indent=1) + "\n")
        write_whole(self.folder / ROW_FILE, "".join(row.to_json() + "\n" for row in rows))
        finish(self.folder)


def _logits(model: Predictor, subject: Subject, environments: Environments) -> Logits:
    """On its own dataset a run predicts batch by batch as it did in training."""
    if isinstance(model, LoadedModel) and subject.record and same_dataset(subject.record, environments.info):
        run = model.run
        return lambda x, name, index: run.predict_logits(x.to(run.networks.dtype), name, index)[0]
    return Adapted(model, environments.class_names, environments.preprocessing)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.@+]+", "_", name).strip("_") or "model"
