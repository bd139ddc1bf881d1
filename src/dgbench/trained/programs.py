"""A trained model as a program that needs no dgbench: torch.export's .pt2, and ONNX."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from dgbench.containers import Networks
from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError
from dgbench.objectives.step import Hyperparameters, Prediction
from dgbench.trained.predictor import LoadedModel

PT2, ONNX = "model.pt2", "model.onnx"
FACTS = "dgbench.json"  # in a .pt2 file
INPUT, OUTPUT = "images", "logits"  # what the program calls them


class LogitsOfImages(nn.Module):
    """(n, C, H, W) normalized images -> (n, K) logits, each image by itself: what of a run a program expresses.

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
        """(n, C, H, W) -> (n, K) logits."""
        hp = Hyperparameters(self.hp.tensors())
        return self.algorithm.predict(Prediction(self.networks, images, hp, self.memory.tensors(), {}))


def refuse_program(model: LoadedModel, name: str) -> None:
    """Refuse a format that cannot express a model, or cannot be written here.

    Raises:
        ConfigError: predictions depend on a group of images or on random numbers, or packages are missing.
    """
    algorithm, who = model.run.algorithm, model.record.identity["algorithm"]
    reason = ""
    if model.group_size:
        reason = f"{who} predicts {model.group_size} images together"
    elif algorithm.extra_channels:
        reason = f"{who} adds channels to an image"
    elif algorithm.prediction_inputs(1):
        reason = f"{who} predicts with random numbers"
    if reason:
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
    facts = {"classes": list(model.classes), "preprocessing": model.preprocessing.to_json()}
    with _one_line("pt2"):
        torch.export.save(_program(model), file, extra_files={FACTS: json.dumps(facts)})


def facts_of(file: Path) -> tuple[tuple[str, ...], Preprocessing] | None:
    """Classes and preprocessing of a .pt2 file that :func:`write_pt2` wrote; None of any other."""
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
            input_names=[INPUT],
            output_names=[OUTPUT],
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
            dynamic_shapes={INPUT: {0: torch.export.Dim("n", min=1)}},
            strict=False,  # the default from torch 2.7 on
        )


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Exporters warn of what a user cannot change, and raise whatever they stumble over."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise ConfigError(f"format={name} cannot express this network ({reason}); leave it out") from error
    finally:
        log.setLevel(before)
