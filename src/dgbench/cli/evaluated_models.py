"""From what a user names to models, datasets and rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.cli.api import own_hydra
from dgbench.cli.entry import sign_of_life
from dgbench.configuration import CONF
from dgbench.data.environments import Environments
from dgbench.data.preprocessing import Preprocessing
from dgbench.errors import ConfigError
from dgbench.models.averaged_runs import KINDS, Accuracy, Siblings, averaged, siblings
from dgbench.models.evaluating import Keep, evaluate_model, subject_of, validation_accuracy
from dgbench.models.foreign import check_known, foreign
from dgbench.models.loaded import LoadedModel, Predictor
from dgbench.models.loading import load, run_folders
from dgbench.networks.weights import IMAGENET, ImageRecord
from dgbench.plan.explain import explain
from dgbench.plan.inputs import built, dataset_options
from dgbench.plan.settings import TrainerSettings, trainer_settings
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.status import STATUS_FILE
from dgbench.training.run_folder import MODEL_FILE, ModelRecord

CHOOSE = ("dataset=", "corruptions=", "+corruptions=")  # a word that names another dataset than that of a run


@dataclass(frozen=True)
class How:
    """How models are evaluated, and where their rows go; see :func:`dgbench.cli.evaluate.evaluate`."""

    name: str
    classes: Sequence[str]
    weights: str | Path | None
    step: str | None
    averaging: str | None
    ensemble: bool
    features: int
    predictions: bool
    output: Path


def evaluate_all(model: Any, overrides: Sequence[str], how: How) -> list[Path]:
    """Evaluate one model or several, and write their rows; see :func:`dgbench.cli.evaluate.evaluate`.

    Returns:
        Folders with rows.
    """
    known: dict[str, Environments] = {}
    folders: list[Path] = []
    for source, make in _averages(model, overrides, how, known) if how.averaging else _sources(model, how):
        found = make() if make else None
        if found is None and isinstance(source, str):
            check_known(source)
        record = found.record if found else None
        keys, protocol, settings = _where(record, overrides)
        device = torch.device(_device(settings.device))
        environments = _environments(keys, found, known)
        environments.to(device)
        if found is None:
            found = foreign(source, environments.preprocessing, how.classes, how.weights)
        elif how.classes:
            found.classes = tuple(how.classes)
        title = how.name or (source if isinstance(source, str) else getattr(source, "__name__", ""))
        if record is None and (not title or title == "<lambda>"):
            raise ConfigError("a function has no name for the tables; give name=")
        subject = subject_of(found, how.name, Path(title).name if "/" in title else title)
        keep = Keep(how.features, how.predictions, keys.get("root"))
        made = evaluate_model(
            found.to(device), subject, environments, protocol, settings, how.output, sign_of_life, keep
        )
        if how.predictions and record is not None and made[0].name.endswith(record.identity["run"]):
            _complete(Path(source), made[0])
        folders += made
    return folders


def _complete(run: Path, evaluated: Path) -> None:
    """Give a run its predictions, as if it had been trained with ``trainer.predictions``, unless it has some."""
    target = run.expanduser() / PREDICTION_FILE
    if (target.parent / STATUS_FILE).exists() and not target.exists():
        with suppress(OSError):  # of somebody else's; the evaluated folder has them
            shutil.copyfile(evaluated / PREDICTION_FILE, target)


def _where(
    record: ModelRecord | None, overrides: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any], TrainerSettings]:
    """Keys of the dataset and of the protocol, and settings of the evaluation.

    A run has its own, with the keys that were typed, unless another dataset was named.
    """
    chosen = any(word.startswith(CHOOSE) for word in overrides)
    if record is None or chosen:
        if not chosen and not any(word.startswith("dataset.") for word in overrides):
            raise ConfigError("dataset= is missing; name one of conf/dataset, since only a run brings its own")
        config = _composed(overrides)
        return config["dataset"], config["protocol"], trainer_settings(config["trainer"])
    config = _composed([word for word in overrides if not word.startswith(("dataset.", "protocol."))])
    dataset, protocol = (_set(dict(getattr(record, group)), overrides, group) for group in ("dataset", "protocol"))
    typed = {key: config["trainer"][key] for key in _typed(overrides, "trainer")}
    own = {**config["trainer"], **record.trainer, "device": config["trainer"]["device"], **typed}
    return dataset, {**protocol, "folds": [record.identity["fold"]]}, trainer_settings(own)


def _sources(model: Any, how: How) -> list[tuple[Any, Callable[[], Predictor] | None]]:
    """What to call each model, and how to load it; None for one that needs to know the dataset first."""
    step = how.step or "last"
    if how.ensemble:
        members = model if isinstance(model, (list, tuple)) else run_folders(Path(str(model)))
        return [("ensemble", lambda: load(members, step))]
    if isinstance(model, (list, tuple)):
        return [source for each in model for source in _sources(each, how)]
    if isinstance(model, Predictor):
        return [("", lambda: model)]
    if isinstance(model, (str, Path)):
        path = Path(model).expanduser()
        if path.is_dir() and not (path / MODEL_FILE).exists():
            return [(str(run), _loader(run, step)) for run in run_folders(path)]
        if path.is_dir() or path.name.endswith((".ckpt", ".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2")):
            return [(str(model), _loader(path, step))]
        return [(str(model), None)]
    return [(model, None)]


def _averages(
    model: Any, overrides: Sequence[str], how: How, known: dict[str, Environments]
) -> list[tuple[Any, Callable[[], Predictor] | None]]:
    """The means of runs that belong together, and how to make them."""
    kind = str(how.averaging)
    if kind not in KINDS:
        raise ConfigError(f"averaging={kind} is unknown; choose {' or '.join(KINDS)}")
    if how.ensemble:
        raise ConfigError("averaging= makes one model of several runs, and so does ensemble=true; choose one of them")
    named = model if isinstance(model, (list, tuple)) else [model]
    if unknown := [each for each in named if not isinstance(each, (str, Path))]:
        raise ConfigError(f"averaging takes folders of runs, and {type(unknown[0]).__name__} is none")
    return [(kind, partial(_average, group, overrides, how, known)) for group in siblings(named)]


def _average(group: Siblings, overrides: Sequence[str], how: How, known: dict[str, Environments]) -> Predictor:
    """The mean of some runs. They are judged on the dataset that they were trained on, wherever the mean goes then."""
    elsewhere = any(word.startswith(CHOOSE) for word in overrides)
    words = [word for word in overrides if word.startswith("trainer.")] if elsewhere else overrides
    keys, protocol, settings = _where(group.records[0], words)
    device = torch.device(_device(settings.device))

    def judge(member: LoadedModel) -> Accuracy:
        environments = _environments(keys, member, known)
        environments.to(device)
        return validation_accuracy(member, environments, protocol, settings)

    place = "fold {fold}, seed {seed}".format(**group.records[0].identity)
    sign_of_life(f"averaging {len(group.folders)} runs of {place} ...")
    found = averaged(group, str(how.averaging), how.step, judge, device)
    sign_of_life(f"{place}: the mean of {len(found.members)} of {len(group.folders)} runs")
    return found


def _loader(path: Path, step: str) -> Callable[[], Predictor]:
    return lambda: load(path, step)


def _environments(keys: dict[str, Any], model: Predictor | None, known: dict[str, Environments]) -> Environments:
    """The dataset; what it leaves to the model is the model's own, or ImageNet's."""
    usual = ImageRecord()
    images = model.preprocessing if model else Preprocessing((3, usual.input_size, usual.input_size), *IMAGENET)
    filled = deepcopy(keys)
    if "image_size" in filled and filled["image_size"] is None:
        filled["image_size"] = images.image[1]
    normalize = filled.get("normalize")
    if isinstance(normalize, dict) and images.pictures:
        for key in ("mean", "std"):
            if normalize.get(key) is None:
                normalize[key] = list(getattr(images, key))
    text = repr(filled)
    if text not in known:
        known[text] = built(dataset_options(filled))
    return known[text]


def _composed(words: Sequence[str]) -> dict[str, Any]:
    """The configuration of train.py, for its dataset, protocol and trainer."""
    with own_hydra(), initialize_config_dir(str(CONF), job_name="evaluate", version_base="1.3"):
        try:
            config = compose("train", list(words))
            parts = {
                key: OmegaConf.to_container(config[key], resolve=True) for key in ("dataset", "protocol", "trainer")
            }
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(explain(error, "train", words)) from error
    return parts


def _typed(overrides: Sequence[str], group: str) -> dict[str, Any]:
    """Values typed for keys of a group, by key."""
    parser = OverridesParser.create()
    parsed = [parser.parse_override(word) for word in overrides if word.startswith(f"{group}.")]
    return {each.key_or_group.removeprefix(f"{group}."): each.value() for each in parsed}


def _set(content: dict[str, Any], overrides: Sequence[str], group: str) -> dict[str, Any]:
    """The keys of a run's group with those that were typed."""
    changed = deepcopy(content)
    for key, value in _typed(overrides, group).items():
        *parents, last = key.split(".")
        node = changed
        for part in parents:
            node = node.get(part, {})
        if last not in node:
            raise ConfigError(f"{group}.{key} is no key of the run's {group}; choose from {', '.join(content)}")
        node[last] = value
    return changed


def _device(wanted: str) -> str:
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if wanted == "gpu" else wanted
