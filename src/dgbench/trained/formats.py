"""What others read a trained model by: programs of torch.export (.pt2) and ONNX, and timm's names of tensors.

A network of timm with one linear layer on its features is exported as timm saves it, so that
``timm.create_model(arch, num_classes=K, checkpoint_path=...)`` reads it; what only training needs (the discriminators
of DANN, the weights of Group DRO's environments) is left out. Any other model keeps its own names, and all tensors.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.containers import Networks
from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError, one_line
from dgbench.networks.timm_networks import TimmFeaturizer
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Hyperparameters, Prediction
from dgbench.trained.predictor import LoadedModel
from dgbench.training.modules import SingleRun

PT2, ONNX = "model.pt2", "model.onnx"
FACTS = "dgbench.json"  # in a .pt2 file
BODY, HEAD = "networks.featurizer.body.", "networks.classifier."


class LogitsOfImages(nn.Module):
    """Maps (n, C, H, W) normalized images to (n, K) logits, each by itself: the part of a run that a program expresses.

    Args:
        model: the run.
    """

    def __init__(self, model: LoadedModel) -> None:
        super().__init__()
        run, self.algorithm = model.run, model.run.algorithm
        self.networks = Networks({name: run.networks[name] for name in model.networks_that_predict})
        self.hp, self.memory = run.hp, run.memory
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Map (n, C, H, W) images to (n, K) logits."""
        hp = Hyperparameters(self.hp.tensors())
        return self.algorithm.predict(Prediction(self.networks, images, hp, self.memory.tensors(), {}))


def refuse_program(model: LoadedModel, name: str) -> None:
    """Refuse a format that cannot express a model, or cannot be written here.

    Raises:
        ConfigError: predictions depend on a group of images or on random numbers, or packages are missing.
    """
    algorithm, label = model.run.algorithm, model.record.identity["algorithm"]
    reasons = {
        f"{label} predicts {model.group_size} images together": model.group_size,
        f"{label} adds channels to an image": algorithm.extra_channels,
        f"{label} predicts with random numbers": algorithm.prediction_inputs(1),
    }
    if reason := next((reason for reason, applies in reasons.items() if applies), ""):
        raise ConfigError(
            f"format={name} cannot express this model: {reason}; leave format= out, model.safetensors always works"
        )
    if name == "onnx":
        missing = [package for package in ("onnx", "onnxscript") if importlib.util.find_spec(package) is None]
        if missing:
            raise ConfigError(
                f"format=onnx needs {' and '.join(missing)}; pip install 'dgbench[onnx]', or use format=pt2"
            )


def write_pt2(model: LoadedModel, file: Path) -> None:
    """Write a ``torch.export`` program whose batches may have any size, with :func:`facts_of` inside.

    Raises:
        ConfigError: torch cannot express the network.
    """
    facts = {"classes": list(model.classes), "preprocessing": asdict(model.preprocessing)}
    with _one_line("pt2"):
        torch.export.save(_program(model), file, extra_files={FACTS: json.dumps(facts)})


def facts_of(file: Path) -> tuple[tuple[str, ...], Preprocessing] | None:
    """Read classes and preprocessing from a .pt2 file that :func:`write_pt2` wrote; None of any other file."""
    try:
        with zipfile.ZipFile(file) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(f"/{FACTS}")]
            facts = json.loads(archive.read(name))
        return tuple(map(str, facts["classes"])), Preprocessing.of_json(facts["preprocessing"])
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError):
        return None


def write_onnx(model: LoadedModel, file: Path) -> None:
    """Write an ONNX program whose batches may have any size, weights inside.

    Raises:
        ConfigError: ONNX cannot express the network.
    """
    with _one_line("onnx"):
        torch.onnx.export(
            _program(model),
            (),
            file,
            input_names=["images"],
            output_names=["logits"],
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _program(model: LoadedModel) -> torch.export.ExportedProgram:
    images = torch.zeros(2, *model.preprocessing.image, dtype=model.run.networks.dtype)
    with torch.no_grad():
        return torch.export.export(
            LogitsOfImages(model),
            (images,),
            dynamic_shapes={"images": {0: torch.export.Dim("n", min=1)}},
            strict=False,  # the default from torch 2.7 on
        )


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Suppress an exporter's warnings, which no user can act on, and raise its errors as a ConfigError of one line."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise ConfigError(f"format={name} cannot express this network ({one_line(error)}); leave it out") from error
    finally:
        log.setLevel(level)


def is_plain_timm(module: SingleRun) -> bool:
    """Return whether a run predicts with a network of timm and one linear layer, and with nothing else."""
    networks, algorithm = module.networks, module.algorithm
    body = networks["featurizer"]
    return (
        type(algorithm).predict is Algorithm.predict
        and not algorithm.extra_channels
        and isinstance(body, TimmFeaturizer)
        and not body.projected
        and not body.unit_length
        and isinstance(networks["classifier"], nn.Linear)
    )


def timm_head(module: SingleRun) -> str:
    """Look up timm's name of the last layer of a network, with a dot, e.g. ``fc.``."""
    featurizer = module.networks["featurizer"]
    assert isinstance(featurizer, TimmFeaturizer)
    return f"{featurizer.body.pretrained_cfg['classifier']}."


def exported_names(module: SingleRun) -> dict[str, Tensor]:
    """Collect the tensors of a run by their exported names: timm's if :func:`is_plain_timm` holds, else the run's."""
    state = {key: value.contiguous() for key, value in module.weights().items()}
    if not is_plain_timm(module):
        return state
    names = ((BODY, ""), (HEAD, timm_head(module)))
    return {new + key.removeprefix(old): state[key] for old, new in names for key in state if key.startswith(old)}


def trained_names(tensors: Mapping[str, Tensor], module: SingleRun, step: int) -> dict[str, Any]:
    """Restore a run's ``state_dict`` after ``step`` steps from :func:`exported_names`; the run may have any weights."""
    if not is_plain_timm(module):
        return dict(tensors)
    head = timm_head(module)
    trained = {
        (HEAD + key.removeprefix(head)) if key.startswith(head) else BODY + key: value for key, value in tensors.items()
    }
    other_tensors = {key: value for key, value in module.state_dict().items() if not key.startswith((BODY, HEAD))}
    return {**other_tensors, **trained, "steps_done": torch.tensor(step)}


def timm_config(model: LoadedModel) -> dict[str, Any] | None:
    """Describe a model for ``timm.create_model("local-dir:FOLDER")``, less its weights; None if timm cannot build it.

    Pictures are squashed to a square as dgbench does it, without a crop (``crop_mode``).
    """
    run, record, inputs = model.run, model.record, model.preprocessing
    if not is_plain_timm(run) or run.networks.dtype != torch.float32:  # timm builds networks of 32 bits
        return None
    featurizer = run.networks["featurizer"]
    assert isinstance(featurizer, TimmFeaturizer)
    arguments: dict[str, Any] = {} if inputs.image[0] == 3 else {"in_chans": inputs.image[0]}
    if featurizer.family.needs_size:
        arguments["img_size"] = list(inputs.image[1:])
    pretrained = featurizer.body.pretrained_cfg
    return {
        "architecture": featurizer.arch,
        "num_classes": len(record.classes),
        "num_features": featurizer.n_features,
        "label_names": list(record.classes),
        **({"model_args": arguments} if arguments else {}),
        "pretrained_cfg": {
            "input_size": list(inputs.image),
            "fixed_input_size": "img_size" in arguments,
            "mean": list(inputs.mean),
            "std": list(inputs.std),
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "num_classes": len(record.classes),
            "first_conv": pretrained["first_conv"],
            "classifier": pretrained["classifier"],
        },
    }
