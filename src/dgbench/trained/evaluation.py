"""Evaluating a model in the folds of a dataset: the rows that training would have written.

A model is evaluated in the folds whose tested environments it never saw. On the dataset that it was
trained on, the rows are those of the run itself; elsewhere they are the model's, as evaluated
there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.batches import ErrorRecipe, EvalBatch
from dgbench.callbacks.predictions import PredictionTarget
from dgbench.callbacks.recorder import rows_of_counts
from dgbench.data.description import DatasetInfo
from dgbench.data.environments import Environments
from dgbench.data.minibatches import EnvironmentData, EvalSetLoader
from dgbench.data.training_groups import training_groups
from dgbench.data.understanding import lines_of_dataset
from dgbench.errors import ConfigError
from dgbench.plan.folds import Fold, planned_folds
from dgbench.plan.settings import TrainerSettings
from dgbench.records.evaluations import Evaluations
from dgbench.records.files import write_whole
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.rows import IDENTITY_FILE, ROW_FILE
from dgbench.records.run_identity import EVALUATED, RunIdentity
from dgbench.records.spec import canonical, code_version, digest
from dgbench.records.status import finish
from dgbench.trained.adaptation.choice import ChosenAdaptation
from dgbench.trained.adaptation.stream import AdaptingModel, StreamLoader
from dgbench.trained.diwa import Accuracy
from dgbench.trained.matched import Matched
from dgbench.trained.per_image import prediction_files, write_features
from dgbench.trained.predictor import LoadedModel, Predictor
from dgbench.training.study import environments_of, recipes_of, scored_by
from dgbench.training.unlearnable import unlearnable

Logits = Callable[[Tensor, str, int], Tensor]
Counts = dict[str, dict[str, float]]

#: keys in which runs of a study may differ; a run that is older than ``n_classes`` does not know it
OF_A_FOLD = ("run", "fold", "held_out", "n_parameters", "n_trainable", "n_classes", "code")


@dataclass(frozen=True)
class Subject:
    """A model and what its rows say of it."""

    model: Predictor  #: on the device of the images
    name: str  #: for tables
    content: str  #: changes with the weights
    study: str  #: equal for the runs of one study; of any other model, its content
    #: what happens to it on the images that it is tested on
    adaptation: ChosenAdaptation | None = None

    @staticmethod
    def of(model: Predictor, name: str, source: str) -> Subject:
        """Describe a model: its name, content and study.

        Args:
            model: loaded.
            name: for tables; "" takes the algorithm of a run, as ``ALGORITHM@DATASET``, or what
                named the model.
            source: what named it.
        """
        record = model.record
        if record is None:
            content = weights_digest(model)
            return Subject(model, name or model.title or source, content, content)
        identity = record.identity
        shared = {key: value for key, value in identity.items() if key not in OF_A_FOLD}
        study = digest([shared, record.hparams, model.step])
        default_name = "{algorithm}@{dataset}".format(**identity)
        return Subject(model, name or default_name, f"{identity['run']} {model.step}", study)

    @property
    def grouped(self) -> bool:
        """Whether predictions depend on what is evaluated together."""
        return self.model.group_size > 0 or self.adaptation is not None

    def trained_on(self, info: DatasetInfo) -> bool:
        """Return whether it is a run on this very dataset.

        That are environments, images, splits and seeds.
        """
        record = self.model.record
        if record is None:
            return False
        facts = _plain(info.facts())
        own_facts = {key: record.identity[key] for key in facts}
        return bool(canonical(own_facts) == canonical(facts))

    def domains_seen(self, info: DatasetInfo) -> set[str]:
        """List the domains of this dataset's images that a model was trained on.

        They are known of a run on another form of the images, and of a model whose file names them.
        """
        record = self.model.record
        if record is None:
            return self._named_domains(info)
        if self.trained_on(info) or not info.content or record.identity["content"] != info.content:
            return set()
        return {domain(env) for env in record.training}

    def _named_domains(self, info: DatasetInfo) -> set[str]:
        """List the environments of this dataset that the model's file says it was trained on."""
        domains = {domain(env) for env in info.everywhere}
        named: set[str] = set()
        for dataset, seen in self.model.seen.items():
            if dataset == info.name or domains >= set(seen):
                named.update(seen)
        return named


def weights_digest(module: nn.Module) -> str:
    """Hash all tensors of a module to 12 hexadecimal digits; a plain function has no tensors."""
    content = hashlib.sha256()
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor):
            content.update(name.encode())
            flat = value.detach().cpu().contiguous().view(-1)
            content.update(flat.view(torch.uint8).numpy().tobytes())
    return content.hexdigest()[:12]


def domain(env: str) -> str:
    """Cut the corruption off an environment's name: ``photo`` of ``photo+fog``."""
    return env.partition("+")[0]


def folds_of(subject: Subject, planned: Sequence[Fold], info: DatasetInfo) -> list[Fold]:
    """List the folds whose tested environments the model never saw.

    A run on the dataset that it was trained on has one fold, its own. On another form of the same
    images (the same photographs, corrupted) it has the folds that test none of the domains that it
    was trained on, and so has a model whose file names these (DomainBed's ``model.pkl``). Any other
    model has all folds.

    Args:
        subject: the model.
        planned: all folds of the protocol.
        info: the dataset.

    Raises:
        ConfigError: there is no such fold.
    """
    record = subject.model.record
    if record is not None and subject.trained_on(info):
        key = canonical(_plain(record.fold))
        own_folds = [fold for fold in planned if canonical(_plain(fold.key())) == key]
        if not own_folds:
            raise ConfigError(
                f"fold {record.identity['fold']} of {record.identity['protocol']} is not among "
                "the folds of this protocol; leave protocol= out, and the run's own counts"
            )
        return own_folds
    seen = subject.domains_seen(info)
    unseen = []
    for fold in planned:
        tested = info.everywhere if fold.everywhere else fold.tested
        if seen.isdisjoint(domain(env) for env in tested):
            unseen.append(fold)
    if seen and not unseen:
        training = record.training if record is not None else sorted(seen)
        raise ConfigError(
            f"{subject.name} was trained on {', '.join(training)}, images of every environment "
            "that it would be tested in; choose another dataset, or a run that holds out a domain"
        )
    return unseen


def _plain(value: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(value))


def identity_of(subject: Subject, fold: Fold, info: DatasetInfo, protocol: str) -> RunIdentity:
    """Build the identity of the rows.

    It is the run's own on its own dataset, else that of the model as evaluated here. A model that
    dgbench did not train has the backbone, initial weights and tuning ``evaluated``, and stands in
    every table of the same environments and protocol. A run on another dataset is called
    ``ALGORITHM@DATASET``, where it was trained. A model that adapts says how.
    """
    identity = _identity_without_adaptation(subject, fold, info, protocol)
    if subject.adaptation is None:
        return identity
    return subject.adaptation.identity(identity, subject.model.step)


def _identity_without_adaptation(
    subject: Subject, fold: Fold, info: DatasetInfo, protocol: str
) -> RunIdentity:
    record = subject.model.record
    if record is not None and subject.trained_on(info):
        return replace(
            record.identity_of_rows, n_classes=info.n_classes or None, code=code_version()
        )
    facts = info.facts()
    evaluation = {
        "evaluated": subject.content,
        "name": subject.name,
        "dataset": facts,
        "fold": fold.key(),
    }
    identity = {
        **facts,
        "run": digest(evaluation),
        "algorithm": subject.name,
        "protocol": protocol,
        "fold": fold.name,
        "held_out": list(fold.held_out),
        "folds": None if fold.folds is None else [list(tested) for tested in fold.folds],
        "beyond": info.beyond,
        "grouped": subject.grouped,
        "n_classes": info.n_classes or None,
        "code": code_version(),
    }
    if record is not None:
        return replace(record.identity_of_rows, **identity)
    n_parameters = sum(parameter.numel() for parameter in subject.model.parameters()) or None
    evaluated: dict[str, Any] = dict.fromkeys(("backbone", "init", "tuning"), EVALUATED)
    return RunIdentity(
        **identity, **evaluated, hparams={}, n_parameters=n_parameters, n_trainable=0, seed=0
    )


@dataclass(frozen=True)
class EvaluatedFold:
    """A fold that a model is evaluated in."""

    fold: Fold
    identity: RunIdentity  #: of the rows
    recipes: Sequence[ErrorRecipe]  #: errors that are recorded
    folder: Path  #: that receives the rows


def evaluate_model(
    subject: Subject,
    environments: Environments,
    protocol: Mapping[str, Any],
    settings: TrainerSettings,
    parent: Path,
    tell: Callable[[str], None],
    *,
    features: int,
    predictions: bool,
    root: str | None,
) -> list[Path]:
    """Evaluate a model in every fold whose tested environments it never saw, and write its rows.

    Args:
        subject: the model.
        environments: the dataset.
        protocol: keys of ``conf/protocol``.
        settings: ``eval_subsets``, ``eval_batch_size`` and ``precision`` count.
        parent: folder that receives a folder of the model's own.
        tell: called with the eval set that comes next.
        features: images of an environment whose features are kept beside the rows; 0 keeps none.
        predictions: keep ``predictions.parquet``, as ``trainer.predictions`` writes it.
        root: folder of the image files, for reports that show some.

    Returns:
        A run folder for each fold.

    Raises:
        ConfigError: the model does not fit the dataset, or there is no such fold.
        OSError: the rows cannot be written.
    """
    info = environments.info
    model = subject.model
    folds = folds_of(subject, planned_folds(protocol, info), info)
    adapting = _adapting(subject, environments)
    logits = adapting or _logits(subject, environments)
    study = parent / _study_folder(subject, info)
    folders: dict[str, Path] = {}
    for group in _with_the_same_images(folds):
        images = environments_of(group[0], environments)
        evaluated = []
        for fold in group:
            identity = identity_of(subject, fold, info, str(protocol["name"]))
            recipes = _recipes(subject, fold, images, settings.eval_subsets)
            folder = study / f"fold-{fold.name}-{identity.run}"
            evaluated.append(EvaluatedFold(fold, identity, recipes, folder))
            folders[fold.name] = folder
        targets = []
        if predictions:
            targets = [_prediction_target(subject, one, images, root) for one in evaluated]
        all_recipes: list[ErrorRecipe] = []
        for one in evaluated:
            all_recipes.extend(one.recipes)
        streams = adapting.loaders(images, all_recipes) if adapting else None
        with prediction_files(targets, model.step, images) as listen:
            counts = counted(
                logits, images, all_recipes, settings, model.group_size, tell, listen, streams
            )
        for one in evaluated:
            if features:
                write_features(one.folder, model, images, one.recipes, features)
            _write_rows(subject, one, images, counts)
    return [folders[fold.name] for fold in folds]


def _study_folder(subject: Subject, info: DatasetInfo) -> str:
    """Name the folder of a model's folds."""
    name = re.sub(r"[^\w.@+]+", "_", subject.name).strip("_") or "model"
    content: list[Any] = [subject.study, info.facts()]
    if subject.adaptation is not None:
        name += f"-{subject.adaptation.name}"
        content.append(subject.adaptation.key)
    return f"{info.name}-{name}-evaluated-{digest(content)}"


def _with_the_same_images(folds: Sequence[Fold]) -> list[list[Fold]]:
    """Group the folds that see the same images; a membership has other ones in every fold."""
    groups = [[fold for fold in folds if fold.membership is None]]
    groups += [[fold] for fold in folds if fold.membership is not None]
    return [group for group in groups if group]


def _prediction_target(
    subject: Subject, evaluated: EvaluatedFold, environments: Environments, root: str | None
) -> PredictionTarget:
    """Describe where the predictions of a fold go, and what their file says of them."""
    identity = evaluated.identity
    fold = evaluated.fold
    record = subject.model.record
    about: dict[str, Any] = {
        "run": identity.run,
        "dataset": identity.dataset,
        "algorithm": identity.algorithm,
        "seed": identity.seed,
        "fold": identity.fold,
        "held_out": identity.held_out,
        "training": list(record.training if record else fold.training),
        "classes": list(environments.catalog.classes),
        "root": root,
    }
    if subject.trained_on(environments.info):
        groups = training_groups(environments, fold.training)
        if groups:
            about["training_groups"] = groups
    return PredictionTarget(evaluated.folder / PREDICTION_FILE, about, evaluated.recipes)


def _write_rows(
    subject: Subject, evaluated: EvaluatedFold, environments: Environments, counts: Counts
) -> None:
    """Write the rows of a fold and what they are of to its folder.

    Raises:
        OSError: they cannot be written.
    """
    model = subject.model
    folder = evaluated.folder
    recipes = evaluated.recipes
    missing = _unlearnable(subject, evaluated.identity, environments, recipes)
    identity = replace(evaluated.identity, unlearnable=missing)
    rows = rows_of_counts(identity, model.step, recipes, counts)
    final = Evaluations(steps=model.step, every=0, scored=scored_by(recipes))
    what: dict[str, Any] = {"name": subject.name, "content": subject.content}
    if model.averaged:
        what["averaged"] = list(model.averaged)
    if subject.adaptation is not None:
        what["adaptation"] = subject.adaptation.described(model)
    about = {
        "run": identity.run,
        "evaluated": what,
        "evaluations": final.model_dump(),
        "understood": lines_of_dataset(environments.info),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / IDENTITY_FILE, json.dumps(about, indent=1) + "\n")
    write_whole(folder / ROW_FILE, "".join(row.to_json() + "\n" for row in rows))
    finish(folder)


def _unlearnable(
    subject: Subject,
    identity: RunIdentity,
    environments: Environments,
    recipes: Sequence[ErrorRecipe],
) -> dict[str, float]:
    """Find what a model is tested on and was not trained on.

    On its own dataset these are the words of its run, if it has any. Nothing is known of a model
    that was trained elsewhere, nor of a run that did not record its classes.
    """
    record = subject.model.record
    if record is None:
        return {}
    if record.trained_classes:
        return unlearnable(environments, recipes, record.trained_classes)
    return dict(identity.unlearnable) if subject.trained_on(environments.info) else {}


def images_of_own_fold(
    model: LoadedModel, environments: Environments, protocol: Mapping[str, Any]
) -> tuple[Fold, Environments]:
    """Find the fold that a run was trained for, and the dataset as that fold sees it.

    Args:
        model: the run.
        environments: the dataset.
        protocol: keys of ``conf/protocol``.

    Raises:
        ConfigError: the dataset is another one, or does not have its fold.
    """
    subject = Subject.of(model, "", "")
    info = environments.info
    if not subject.trained_on(info):
        raise ConfigError(
            f"runs of {model.record.identity['dataset']} are chosen on their own "
            "validation images, and these are different ones; correct dataset.root"
        )
    (fold,) = folds_of(subject, planned_folds(protocol, info), info)
    return fold, environments_of(fold, environments)


def validation_accuracy(
    model: LoadedModel,
    environments: Environments,
    protocol: Mapping[str, Any],
    settings: TrainerSettings,
) -> Accuracy:
    """Compute a run's accuracy on the validation images of its training environments.

    No other images are looked at.

    Raises:
        ConfigError: the dataset is another one, or does not have its fold.
    """
    subject = Subject.of(model, "", "")
    info = environments.info
    fold, fold_images = images_of_own_fold(model, environments, protocol)
    recipes = _recipes(subject, fold, fold_images, ["val"])
    recipes = [recipe for recipe in recipes if recipe.env in fold.training]
    logits = _logits(subject, environments)
    counts = counted(logits, fold_images, recipes, settings, model.group_size)
    identity = identity_of(subject, fold, info, str(protocol["name"]))
    rows = rows_of_counts(identity, model.step, recipes, counts)
    mean_error = sum(row.error for row in rows) / len(rows)
    wrong = sum(row.wrong for row in rows)
    seen = sum(row.seen for row in rows)
    return Accuracy(1 - mean_error, 1 - wrong / seen)


def _recipes(
    subject: Subject, fold: Fold, environments: Environments, subsets: Sequence[str]
) -> list[ErrorRecipe]:
    """List the errors to record.

    Of a run on another form of these images, only domains that it never saw are held out.
    """
    recipes = recipes_of(fold, environments, subsets, subject.grouped)
    domains = subject.domains_seen(environments.info)
    if not domains:
        return recipes
    return [replace(recipe, held_out=domain(recipe.env) not in domains) for recipe in recipes]


@torch.no_grad()
def counted(
    logits: Logits,
    environments: Environments,
    recipes: Sequence[ErrorRecipe],
    settings: TrainerSettings,
    group_size: int,
    tell: Callable[[str], None] = lambda text: None,
    listen: Callable[[EvalBatch, Tensor], None] | None = None,
    streams: Sequence[StreamLoader] | None = None,
) -> Counts:
    """Sum up ``seen``, ``wrong`` and ``loss`` of every eval set that some recipe mixes.

    Each is evaluated once.

    Args:
        logits: (x, name of the eval set, number of the batch) -> (n, K), x on the device of the
            environments.
        environments: the images.
        recipes: errors that are asked for.
        settings: size of a batch, and precision; ``bf16-mixed`` and ``16-mixed`` predict as they
            trained.
        group_size: images whose predictions depend on one another.
        tell: called with the eval set that comes next.
        listen: is given every batch and its logits.
        streams: eval sets in the order in which a model adapts to them; None makes batches of them
            in their own.
    """
    counts: Counts = {}
    loaders: Sequence[StreamLoader | EvalSetLoader] = streams or _loaders(
        environments, recipes, settings, group_size
    )
    for number, loader in enumerate(loaders, start=1):
        tell(f"eval set {number} of {len(loaders)}: {loader.name}")
        sums = {"seen": 0.0, "wrong": 0.0, "loss": 0.0}
        for batch in loader:
            with _autocast(settings.precision, batch.x.device.type):
                predicted = logits(batch.x, batch.name, batch.index)
            losses = F.cross_entropy(predicted, batch.y, reduction="none")
            if listen:
                listen(batch, predicted)
            sums["seen"] += len(batch.y)
            sums["wrong"] += float((predicted.argmax(1) != batch.y).sum())
            sums["loss"] += float(losses.double().sum())
        counts[loader.name] = sums
    return counts


def _loaders(
    environments: Environments,
    recipes: Sequence[ErrorRecipe],
    settings: TrainerSettings,
    group_size: int,
) -> Sequence[EvalSetLoader]:
    """Make batches of every eval set that some recipe mixes."""
    data = EnvironmentData(
        environments,
        [],
        recipes,
        steps=1,
        eval_every=1,
        batch_size=1,
        eval_batch_size=settings.eval_batch_size,
        seed=0,
        group_size=group_size,
    )
    return data.val_dataloader()


def _autocast(precision: str, device: str) -> AbstractContextManager[object]:
    types = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    if precision not in types:
        return nullcontext()
    return torch.autocast(device, types[precision])


def _adapting(subject: Subject, environments: Environments) -> AdaptingModel | None:
    """Return the model as it adapts to streams of images; None if it does not adapt.

    Raises:
        ConfigError: it cannot.
    """
    if subject.adaptation is None:
        return None
    catalog = environments.catalog
    network = Matched(subject.model, catalog.classes, catalog.preprocessing, at_once=True)
    return subject.adaptation.adapting(network, environments.info)


def _logits(subject: Subject, environments: Environments) -> Logits:
    """Return what computes logits.

    A run on its own dataset predicts batch by batch as in training.
    """
    model = subject.model
    catalog = environments.catalog
    if isinstance(model, LoadedModel) and subject.trained_on(environments.info):
        run = model.run
        return lambda x, name, index: run.predict_logits(x.to(run.networks.dtype), name, index)[0]
    matched = Matched(model, catalog.classes, catalog.preprocessing)
    return lambda x, name, index: matched(x)
