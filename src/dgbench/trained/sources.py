"""From what a user names (folders, files, functions, models of timm) to models, their datasets, and rows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from pydantic import ConfigDict, InstanceOf, PrivateAttr, SkipValidation

from dgbench.data.description import Preprocessing
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError
from dgbench.networks.weights import ImageRecord
from dgbench.plan.building import built, dataset_options, filled_dataset
from dgbench.plan.code import refuse_code
from dgbench.plan.settings import TrainerSettings
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.status import STATUS_FILE
from dgbench.trained.diwa import Accuracy, Siblings, averaged, siblings
from dgbench.trained.evaluation import Subject, evaluate_model, validation_accuracy
from dgbench.trained.foreign import foreign
from dgbench.trained.loading import load, run_folders
from dgbench.trained.predictor import LoadedModel, Predictor
from dgbench.training.run_folder import MODEL_FILE, ModelRecord
from dgbench.validation import Checked, Count0, NonBlank, Refusal, Switch

CHOOSE = ("dataset=", "corruptions=", "+corruptions=")  # a word that names another dataset than that of a run
PACKED = (".ckpt", ".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2")  # names of files that hold a run, or a part of one

#: a model, or how to make one for the images of a dataset
Model = Predictor | Callable[[Preprocessing], Predictor]
Source = tuple[Any, Callable[[], Model]]  #: what to call a model, and how to load it


class Evaluator(Checked):
    """Evaluates models by what names them; the options are those of :func:`dgbench.evaluate`, or text as it is typed.

    Args:
        compose: overrides -> keys of ``dataset``, ``paths``, ``protocol`` and ``trainer``.
        tell: called with what is done next.
    """

    key = ""
    model_config = ConfigDict(strict=False)

    overrides: list[str]
    name: str
    classes: Annotated[list[NonBlank], Refusal("is no list of names", "write e.g. [dog,cat]")]
    weights: Annotated[NonBlank | InstanceOf[Path] | None, Refusal("is no file", "give its path, or leave it out")]
    step: Literal["last", "best"] | None
    averaging: Literal["diwa_uniform", "diwa_greedy"] | None
    ensemble: Switch
    features: Count0
    predictions: Switch
    trust: Switch
    output: Annotated[NonBlank | InstanceOf[Path], Refusal("is no folder", "give its path")]
    compose: SkipValidation[Callable[[Sequence[str]], dict[str, Any]]]
    tell: SkipValidation[Callable[[str], None]]
    _datasets: dict[str, Environments] = PrivateAttr(default_factory=dict)

    def evaluate(self, model: Any) -> list[Path]:
        """Evaluate one model or several, and write their rows.

        Args:
            model: as :func:`dgbench.evaluate` takes it.

        Returns:
            Folders with rows.

        Raises:
            ConfigError: an unknown model or override, or a model that does not fit the dataset.
        """
        sources = self._means(model) if self.averaging else self._sources(model)
        if not sources:
            raise ConfigError("model=[] names no model; give one, or several")
        return [folder for source, make in sources for folder in self._evaluate(source, make())]

    def _evaluate(self, source: Any, loaded: Model) -> list[Path]:
        model = loaded if isinstance(loaded, Predictor) else None
        record = model.record if model else None
        dataset, protocol, settings = self._where(record, self.overrides)
        device = torch.device(_device(settings.device))
        environments = self._environments(dataset, model, device)
        if model is None:
            model = loaded(environments.catalog.preprocessing)
        elif self.classes:
            model.classes = tuple(self.classes)
        title = self.name or (source if isinstance(source, str) else getattr(source, "__name__", ""))
        if record is None and (not title or title == "<lambda>"):
            raise ConfigError("a function has no name for the tables; give name=")
        subject = Subject.of(model, self.name, Path(title).name if "/" in title else title)
        model.to(device)
        folders = evaluate_model(
            subject, environments, protocol, settings, Path(self.output), self.tell,
            features=self.features, predictions=self.predictions, root=dataset.get("root"),
        )  # fmt: skip
        if self.predictions and record is not None and folders[0].name.endswith(record.identity["run"]):
            _complete(Path(source), folders[0])
        return folders

    def _sources(self, model: Any) -> list[Source]:
        step = self.step or "last"
        if self.ensemble:
            members = model if isinstance(model, (list, tuple)) else run_folders(Path(str(model)))
            return [("ensemble", partial(load, members, step, trust=self.trust))]
        if isinstance(model, (list, tuple)):
            return [source for member in model for source in self._sources(member)]
        if isinstance(model, Predictor):
            return [("", lambda: model)]
        if not isinstance(model, (str, Path)):
            return [(model, partial(foreign, model, self.classes, self.weights))]
        path = Path(model).expanduser()
        if path.is_dir() and not (path / MODEL_FILE).exists():
            return [(str(run), partial(load, run, step, trust=self.trust)) for run in run_folders(path)]
        if path.is_dir() or path.name.endswith(PACKED):
            return [(str(model), partial(load, path, step, trust=self.trust))]
        return [(str(model), partial(foreign, str(model), self.classes, self.weights, self.trust))]

    def _means(self, model: Any) -> list[Source]:
        """The means of runs that belong together."""
        kind = str(self.averaging)
        if self.ensemble:
            raise ConfigError(
                "averaging= makes one model of several runs, and so does ensemble=true; choose one of them"
            )
        named = model if isinstance(model, (list, tuple)) else [model]
        return [(kind, partial(self._mean, group, kind)) for group in siblings(named, self.trust)]

    def _mean(self, group: Siblings, kind: str) -> Predictor:
        """The mean of some runs. They are judged on the dataset that they were trained on, wherever the mean goes."""
        elsewhere = any(word.startswith(CHOOSE) for word in self.overrides)
        words = [word for word in self.overrides if word.startswith("trainer.") or not elsewhere]
        record = group[0][1]
        where = cache(lambda: self._where(record, words))  # the greedy rule alone looks at images
        trainer = self.compose([word for word in words if word.startswith("trainer.")])["trainer"]
        device = torch.device(_device(trainer["device"]))

        def judge(member: LoadedModel) -> Accuracy:
            dataset, protocol, settings = where()
            return validation_accuracy(member, self._environments(dataset, member, device), protocol, settings)

        place = "fold {fold}, seed {seed}".format(**record.identity)
        self.tell(f"averaging {len(group)} runs of {place} ...")
        mean = averaged(group, kind, self.step, judge, device, self.trust)
        self.tell(f"{place}: the mean of {len(mean.averaged)} of {len(group)} runs")
        return mean

    def _where(
        self, record: ModelRecord | None, overrides: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Any], TrainerSettings]:
        """Keys of the dataset and of the protocol, and settings of the evaluation.

        A run has its own, with the keys that were typed, unless another dataset was named.
        """
        chosen = any(word.startswith(CHOOSE) for word in overrides)
        if record is None or chosen:
            if not chosen and not any(word.startswith("dataset.") for word in overrides):
                raise ConfigError("dataset= is missing; name one of conf/dataset, since only a run brings its own")
            config = self.compose(overrides)
            return config["dataset"], config["protocol"], TrainerSettings(**config["trainer"])
        here = self.compose([word for word in overrides if not word.startswith(("dataset.", "protocol."))])
        trainer, typed_paths = here["trainer"], _typed(overrides, "paths")
        if not self.trust:
            place = "{run}: its {{}}".format(**record.identity)
            refuse_code(record.dataset, place.format("dataset"), "dataset", "corruptions")
            refuse_code(record.protocol, place.format("protocol"), "protocol")
        content = dict(record.dataset)
        for key in content.keys() & here["paths"].keys():  # a folder of another machine is not made on this one
            if key in typed_paths or not Path(str(content[key])).expanduser().is_dir():
                content[key] = here["paths"][key]
        dataset = _set(content, overrides, "dataset")
        protocol = _set(record.protocol, overrides, "protocol")
        typed = {key: trainer[key] for key in _typed(overrides, "trainer")}
        keys = {**trainer, **record.trainer, "device": trainer["device"], **typed}  # an earlier version had others, too
        settings = TrainerSettings(**{key: keys[key] for key in keys.keys() & TrainerSettings.model_fields.keys()})
        return dataset, {**protocol, "folds": [record.identity["fold"]]}, settings

    def _environments(self, keys: dict[str, Any], model: Predictor | None, device: torch.device) -> Environments:
        """The dataset on a device; what it leaves to the model is the model's own, or ImageNet's."""
        images = ImageRecord()
        if model:
            sees = model.preprocessing
            size = sees.image[-1]
            images = ImageRecord(sees.mean, sees.std, size) if sees.pictures else ImageRecord(input_size=size)
        filled = filled_dataset(images, keys)
        text = repr(filled)
        if text not in self._datasets:
            self._datasets[text] = built(dataset_options(filled))
        self._datasets[text].store.to(device)
        return self._datasets[text]


def _complete(run: Path, evaluated: Path) -> None:
    """Give a run its predictions, as if it had been trained with ``trainer.predictions``, unless it has some."""
    target = run.expanduser() / PREDICTION_FILE
    if (target.parent / STATUS_FILE).exists() and not os.path.lexists(target):
        with suppress(OSError):  # of somebody else's; the evaluated folder has them
            shutil.copyfile(evaluated / PREDICTION_FILE, target)


def _typed(overrides: Sequence[str], group: str) -> dict[str, Any]:
    """Values typed for keys of a group, by key."""
    parser = OverridesParser.create()
    parsed = [parser.parse_override(word) for word in overrides if word.startswith(f"{group}.")]
    return {override.key_or_group.removeprefix(f"{group}."): override.value() for override in parsed}


def _set(content: Mapping[str, Any], overrides: Sequence[str], group: str) -> dict[str, Any]:
    """The keys of a run's group with those that were typed."""
    changed = deepcopy(dict(content))
    for key, value in _typed(overrides, group).items():
        *parents, last = key.split(".")
        node = changed
        for part in parents:
            node = node.get(part, {})
        if last not in node:
            raise ConfigError(f"{group}.{key} is no key of the run's {group}; choose from {', '.join(content)}")
        node[last] = value
    return changed


def _device(device: str) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    name = "cuda" if device == "gpu" else device
    try:
        torch.empty(0, device=name)
    except (AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split()).partition(". ")[0]
        raise ConfigError(f"trainer.device={device} is not here ({reason}); set trainer.device=auto") from error
    return name
