"""Evaluating a model in the folds of a dataset: the rows that training would have written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.batches import ErrorRecipe, EvalBatch
from dgbench.callbacks.predictions import PredictedRun
from dgbench.callbacks.recorder import rows_of_counts
from dgbench.data.description import Preprocessing
from dgbench.data.environments import Environments
from dgbench.data.minibatches import EnvironmentData
from dgbench.errors import ConfigError
from dgbench.plan.folds import Fold, planned_folds
from dgbench.plan.settings import TrainerSettings
from dgbench.records.files import write_whole
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.rows import IDENTITY_FILE, ROW_FILE, Row, RunIdentity
from dgbench.records.spec import digest
from dgbench.records.status import finish
from dgbench.trained.diwa import Accuracy
from dgbench.trained.folds import Subject, domain, folds_of, identity_of, same_dataset, same_images, subject_of
from dgbench.trained.per_image import kept, write_features
from dgbench.trained.predictor import LoadedModel, Predictor
from dgbench.training.study import environments_of, recipes_of

Logits = Callable[[Tensor, str, int], Tensor]
Counts = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Keep:
    """What is kept beside rows.

    Args:
        features: images of an environment whose features are kept; 0 keeps none.
        predictions: ``predictions.parquet``, as ``trainer.predictions`` writes it.
        root: folder of the image files, for reports that show some.
    """

    features: int
    predictions: bool
    root: str | None


def evaluate_model(
    model: Predictor,
    subject: Subject,
    environments: Environments,
    protocol: Mapping[str, Any],
    settings: TrainerSettings,
    parent: Path,
    tell: Callable[[str], None],
    keep: Keep,
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
    info = environments.info
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
    recipes = [recipe for recipe in recipes_of(fold, seen, ["val"], subject.grouped) if recipe.env in fold.training]
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
            domains = {domain(env) for env in record.training}
            recipes = [replace(recipe, held_out=domain(recipe.env) not in domains) for recipe in recipes]
        identity = identity_of(subject, fold, info, protocol)
        return _Evaluated(
            subject, fold, recipes, identity, study / f"fold-{fold.name}-{identity.run}", seen.catalog.classes
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
        model = {"name": self.subject.name, "content": self.subject.content}
        averaged = {"averaged": list(self.subject.members)} if self.subject.members else {}
        about = {"run": self.identity.run, "evaluated": {**model, **averaged}}
        write_whole(self.folder / IDENTITY_FILE, json.dumps(about, indent=1) + "\n")
        write_whole(self.folder / ROW_FILE, "".join(row.to_json() + "\n" for row in rows))
        finish(self.folder)


@torch.no_grad()
def counted(
    logits: Logits,
    environments: Environments,
    recipes: Sequence[ErrorRecipe],
    *,
    batch_size: int,
    group_size: int = 0,
    precision: str = "32-true",
    tell: Callable[[str], None] = lambda text: None,
    listen: Callable[[EvalBatch, Tensor], None] | None = None,
) -> Counts:
    """``seen``, ``wrong`` and summed ``loss`` of every eval set that some recipe mixes, each evaluated once.

    Args:
        logits: (x, name of the eval set, number of the batch) -> (n, K), x on the device of the environments.
        environments: the images.
        recipes: errors that are asked for.
        batch_size: images in a batch at most.
        group_size: images whose predictions depend on one another.
        precision: Lightning's; ``bf16-mixed`` and ``16-mixed`` predict as they trained.
        tell: called with the eval set that comes next.
        listen: is given every batch and its logits.
    """
    data = EnvironmentData(
        environments, [], recipes, steps=1, eval_every=1, batch_size=1, eval_batch_size=batch_size, seed=0,
        group_size=group_size,
    )  # fmt: skip
    counts: Counts = {}
    loaders = data.val_dataloader()
    for number, loader in enumerate(loaders, start=1):
        tell(f"eval set {number} of {len(loaders)}: {loader.name}")
        sums = {"seen": 0.0, "wrong": 0.0, "loss": 0.0}
        for batch in loader:
            with _autocast(precision, batch.x.device.type):
                predicted = logits(batch.x, batch.name, batch.index)
            losses = F.cross_entropy(predicted, batch.y, reduction="none")
            if listen:
                listen(batch, predicted)
            sums["seen"] += len(batch.y)
            sums["wrong"] += float((predicted.argmax(1) != batch.y).sum())
            sums["loss"] += float(losses.double().sum())
        counts[loader.name] = sums
    return counts


def _autocast(precision: str, device: str) -> AbstractContextManager[object]:
    types = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    return torch.autocast(device, types[precision]) if precision in types else nullcontext()


def _logits(model: Predictor, subject: Subject, environments: Environments) -> Logits:
    """On its own dataset a run predicts batch by batch as it did in training."""
    if isinstance(model, LoadedModel) and subject.record and same_dataset(subject.record, environments.info):
        run = model.run
        return lambda x, name, index: run.predict_logits(x.to(run.networks.dtype), name, index)[0]
    return Adapted(model, environments.catalog.classes, environments.catalog.preprocessing)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.@+]+", "_", name).strip("_") or "model"


class Adapted:
    """Logits of a model for the classes of a dataset, from the images that the dataset gives.

    Args:
        model: with classes and images of its own.
        classes: of the dataset.
        preprocessing: of the dataset's images.

    Raises:
        ConfigError: the model lacks a class, sees other channels, or vectors of another length.
    """

    def __init__(self, model: Predictor, classes: Sequence[str], preprocessing: Preprocessing) -> None:
        self.model, self.classes, self.source = model, list(classes), preprocessing
        takes = model.preprocessing
        if takes.vectors != preprocessing.vectors:
            sees, holds = ("vectors", "images") if takes.vectors else ("images", "vectors")
            raise ConfigError(f"the model sees {sees}, the dataset holds {holds}; choose another dataset")
        if takes.image[0] != preprocessing.image[0]:
            what = "vectors of {} features" if takes.vectors else "images of {} channels"
            raise ConfigError(
                f"the model sees {what.format(takes.image[0])}, the dataset has {preprocessing.image[0]}; choose "
                "another dataset"
            )
        missing = [name for name in classes if model.classes and name not in model.classes]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ConfigError(
                f"the model knows no class {', '.join(missing[:3])}{more} of the dataset; name its outputs in their "
                "order with classes=[...], or choose a dataset of its classes"
            )
        same = not model.classes or model.classes == tuple(classes)
        self._columns = None if same else torch.tensor([model.classes.index(name) for name in classes])

    def __call__(self, x: Tensor, name: str, index: int) -> Tensor:
        """(n, C, H, W) as the dataset gives them -> (n, K) logits; (name, index) tell the batch."""
        like = next((p for p in self.model.parameters() if p.is_floating_point()), x)
        logits: Tensor = self.model(self._images(x).to(like.dtype))
        if self._columns is not None:
            return logits[:, self._columns.to(logits.device)]
        if logits.dim() != 2 or logits.shape[1] != len(self.classes):
            raise ConfigError(
                f"the model gives logits of shape {tuple(logits.shape)} for {len(x)} images of {len(self.classes)} "
                "classes; name its outputs in their order with classes=[...]"
            )
        return logits

    def _images(self, x: Tensor) -> Tensor:
        """The dataset's images as the model was made for them."""
        takes, source = self.model.preprocessing, self.source
        if takes == source:
            return x
        plain = x * _channels(source.std, x) + _channels(source.mean, x)
        if takes.image != source.image:
            plain = F.interpolate(plain, size=takes.image[1:], mode="bilinear", antialias=True).clamp(0, 1)
        return (plain - _channels(takes.mean, x)) / _channels(takes.std, x)


def _channels(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, 1, 1)
