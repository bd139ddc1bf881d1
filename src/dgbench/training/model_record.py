"""``model.json`` in every run folder: what a trained model is besides its weights, enough to build it anywhere."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dgbench.data.description import Preprocessing
from dgbench.errors import RecordError
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_networks
from dgbench.plan.code import present_paths
from dgbench.records.files import write_whole
from dgbench.records.rows import RunIdentity
from dgbench.training.modules import SingleRun
from dgbench.training.modules.factory import algorithm_class

MODEL_FILE = "model.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """A trained model without its weights.

    Args:
        identity: of its rows.
        objective: import path of the algorithm's class.
        hparams: resolved values of every hyperparameter that the algorithm reads.
        featurizer: ``_target_``, import path of a module's class, and its arguments but the shape of the image.
        dtype: name of the floating-point type.
        averaging: ``_target_`` and arguments of the rule that averages the weights; None where nothing does.
        training: environments that it was trained on.
        fold: what else tells its fold, see :meth:`dgbench.plan.folds.Fold.key`.
        classes: names of the K classes, in the order of the logits.
        preprocessing: from a picture to what the network sees.
        dataset, protocol, trainer: resolved keys of the configuration that it was trained with.
        n_images: what numbers of training images are below; algorithms may keep something for each.
        step: optimizer steps that exported weights had; None in the folder of a run, whose checkpoints say it.
    """

    identity: Mapping[str, Any]
    objective: str
    hparams: Mapping[str, Any]
    featurizer: Mapping[str, Any]
    dtype: str
    averaging: Mapping[str, Any] | None
    training: tuple[str, ...]
    fold: Mapping[str, Any]
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    dataset: Mapping[str, Any]
    protocol: Mapping[str, Any]
    trainer: Mapping[str, Any]
    n_images: int = 0
    step: int | None = None

    def save(self, folder: Path) -> None:
        """Write the file, whole.

        Raises:
            OSError: it cannot be written; what was there stays.
        """
        write_whole(folder / MODEL_FILE, json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    @staticmethod
    def load(folder: Path) -> ModelRecord:
        """Read the file of a folder.

        Raises:
            RecordError: it is absent, or something else.
        """
        file = folder / MODEL_FILE
        try:
            content: Any = present_paths(json.loads(file.read_text(encoding="utf-8")))
            if content.pop("format") != FORMAT:
                raise ValueError("another format")
            content |= {key: tuple(content[key]) for key in ("training", "classes")}
            content["preprocessing"] = Preprocessing.of_json(content["preprocessing"])
            return ModelRecord(**content)
        except FileNotFoundError:
            raise RecordError(
                f"{folder} has no {MODEL_FILE}; name the folder of an exported model, or of a run of this version of "
                "dgbench (earlier ones wrote none)"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(
                f"{file} is no record of a model ({type(error).__name__}: {error}); train it again"
            ) from None

    @property
    def identity_of_rows(self) -> RunIdentity:
        """What the rows of the run say of it."""
        return RunIdentity(**self.identity)

    def build(self) -> SingleRun:
        """The module in evaluation mode, with random weights.

        Raises:
            RecordError: a class that it names is not there, or takes other arguments.
        """
        algorithm = algorithm_class(self.objective)
        image = self.preprocessing.image
        shapes = Sizes(
            n_features=0,
            n_classes=len(self.classes),
            n_envs=len(self.training),
            image=image,
            n_steps=self.trainer["steps"],
            n_images=self.n_images,
            pixel_mean=self.preprocessing.mean,
            pixel_std=self.preprocessing.std,
        )
        try:
            networks, sizes = build_networks(
                self._featurizer,
                shapes,
                lambda sizes: algorithm.networks_needed(sizes, self.hparams),
                algorithm.extra_channels,
                seed=0,
            )
            module = SingleRun(
                algorithm(sizes, self.hparams), networks, self.identity["seed"], dtype=getattr(torch, self.dtype)
            )
        except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            raise RecordError(
                f"{MODEL_FILE}: its model cannot be built "
                f"({type(error).__name__}: {error}); use the version of dgbench that trained it"
            ) from error
        return module.eval()

    def _featurizer(self, image: tuple[int, ...]) -> nn.Module:
        kind = module_class(str(self.featurizer["_target_"]))
        made: nn.Module = kind(image=image, **{k: v for k, v in self.featurizer.items() if k != "_target_"})
        return made

    def averaging_rule(self) -> Any:
        """The rule that averaged the weights, without its state; None where nothing was averaged.

        Raises:
            RecordError: the file names something else, which is not called.
        """
        if self.averaging is None:
            return None
        path = str(self.averaging["_target_"])
        kind = _class(path)
        if not all(hasattr(kind, part) for part in ("update", "evaluated", "result", "load_state_dict")):
            raise RecordError(f"{path} averages no weights; {MODEL_FILE} must name what does")
        return kind(**{key: value for key, value in self.averaging.items() if key != "_target_"})


def module_class(path: str) -> type[nn.Module]:
    """A class of networks by its import path; nothing else that a file may name is called.

    Raises:
        RecordError: there is none.
    """
    kind = _class(path)
    if not issubclass(kind, nn.Module):
        raise RecordError(f"{path} is no torch module; {MODEL_FILE} must name one as the featurizer")
    return kind


def _class(path: str) -> type[Any]:
    try:
        module, _, name = path.rpartition(".")
        found: Any = getattr(importlib.import_module(module), name)
        if not isinstance(found, type):
            raise TypeError(f"{path} is no class")
    except Exception as error:  # also whatever the module itself raises
        raise RecordError(f"{path} cannot be imported; install what the model was trained with") from error
    return found
