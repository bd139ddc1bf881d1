"""What ``conf/head`` names: the values that a classifier starts from."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.errors import ConfigError, WeightsError, one_line
from dgbench.networks.checkpoint_layouts import misfit
from dgbench.networks.weight_files import read_tensors


class RandomHead:
    """The classifier's own random weights; base class of all others.

    Args:
        name: for the rows.
        unit_length: what ``backbone.unit_length`` is unless typed.
    """

    def __init__(self, *, name: str = "random", unit_length: bool = False) -> None:
        self.name = name

    def check(self, classifier: nn.Module, weights: Any, unit_length: bool) -> None:
        """Refuse what :meth:`set` cannot set, without reading files.

        Arguments and errors are those of :meth:`set`. Tensors of the classifier may be on the meta
        device.
        """

    def set(
        self, classifier: nn.Module, weights: Any, classes: Sequence[str], unit_length: bool
    ) -> None:
        """Set the initial values of the classifier.

        Args:
            classifier: the algorithm's.
            weights: initial weights of the featurizer, see :mod:`dgbench.networks.weights`.
            classes: names of the K classes.
            unit_length: whether the features have length one.

        Raises:
            ConfigError: the classifier is not one linear layer, or something else does not go
                together.
            WeightsError: the file of the weights does not hold what is needed.
        """


class ZeroHead(RandomHead):
    """Weights and bias are zero."""

    def check(self, classifier: nn.Module, weights: Any, unit_length: bool) -> None:
        linear(classifier, self.name)

    def set(
        self, classifier: nn.Module, weights: Any, classes: Sequence[str], unit_length: bool
    ) -> None:
        layer = linear(classifier, self.name)
        with torch.no_grad():
            layer.weight.zero_()
            if layer.bias is not None:
                layer.bias.zero_()


def linear(classifier: nn.Module, name: str) -> nn.Linear:
    """Return the classifier if it is one linear layer, with a bias or without.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(classifier, nn.Linear):
        raise ConfigError(
            f"head={name} sets one linear layer, and this algorithm's classifier is a "
            f"{type(classifier).__name__}; use head=random"
        )
    return classifier


@dataclass(frozen=True)
class ClassTexts:
    """Embeddings of the texts of K classes, with the scale and bias of the encoder."""

    embeddings: Tensor  #: (K, d), each of length one
    scale: float  #: factor of the cosines that the encoder was trained with
    bias: float  #: added to them (SigLIP); 0 in CLIP


class ZeroShotHead(RandomHead):
    """A classifier made of the texts of its classes.

    Weight k is the scaled embedding of the texts of class k, the bias that of the encoder. With
    features of length one in the space of images and texts, the classifier's logits are the
    encoders' own (Radford et al., 2021, section 3.1.2). Embeddings of several prompts are divided
    by their length, averaged and divided again. Arguments are the keys of
    ``conf/head/zero_shot.yaml``, which says what each means.
    """

    def __init__(
        self,
        *,
        name: str = "zero_shot",
        unit_length: bool = True,
        prompts: Sequence[str] = ("a photo of a {}.",),
        class_names: Mapping[Any, str] | None = None,
        scale: float | None = None,
        model: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.prompts = prompts
        self.scale = scale
        self.model = model
        self.class_names = {str(key): str(value) for key, value in (class_names or {}).items()}

    def check(self, classifier: nn.Module, weights: Any, unit_length: bool) -> None:
        linear(classifier, self.name)
        if not unit_length:
            raise ConfigError(
                f"head={self.name} needs features of length one in the space of images and texts; "
                "set backbone.unit_length=true, with backbone=vit_b16_clip or "
                "backbone=vit_b16_siglip"
            )
        model = self.model or weights.text_model
        if model is None or not hasattr(type(weights), "file"):
            raise ConfigError(
                f"head={self.name} finds no text encoder in init={weights.name}; use init=clip or "
                "init=siglip, or init=file, with OpenCLIP's name of its model in head.model"
            )
        _open_clip_name(model)

    def set(
        self, classifier: nn.Module, weights: Any, classes: Sequence[str], unit_length: bool
    ) -> None:
        self.check(classifier, weights, unit_length)
        unknown = sorted(self.class_names.keys() - set(classes))
        if unknown:
            raise ConfigError(
                f"head.class_names names {unknown[0]}, which is no class; choose from "
                f"{', '.join(classes)}"
            )
        layer = linear(classifier, self.name)
        texts = class_texts(weights.file, self.model or weights.text_model, self._texts(classes))
        if texts.embeddings.shape[1] != layer.in_features:
            raise ConfigError(
                f"head={self.name}: texts have {texts.embeddings.shape[1]} numbers, features "
                f"{layer.in_features}; set backbone.projection={texts.embeddings.shape[1]}"
            )
        with torch.no_grad():
            layer.weight.copy_((self.scale or texts.scale) * texts.embeddings)
            if layer.bias is not None:  # the same number for every class changes no prediction
                layer.bias.fill_(texts.bias)

    def _texts(self, classes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Insert the name of each class into all prompts: one tuple of texts per class."""
        texts = []
        for label in classes:
            name = self.class_names.get(label, label.replace("_", " "))
            texts.append(tuple(prompt.replace("{}", name) for prompt in self.prompts))
        return tuple(texts)


@lru_cache(maxsize=8)  # the runs of a study share it
def class_texts(file: Path, model: str, texts: tuple[tuple[str, ...], ...]) -> ClassTexts:
    """Embed the texts of K classes.

    Args:
        file: weights of image and text encoder, in OpenCLIP's or OpenAI's layout.
        model: OpenCLIP's name of the model, or the path of a JSON file with its configuration.
        texts: one tuple per class.

    Raises:
        ConfigError: OpenCLIP is missing or does not know the model, or its tokenizer cannot be had.
        WeightsError: the file does not fit the model.
    """
    encoder, tokenizer = _open_clip(model)
    content = read_tensors(file)
    tensors = content.get("state_dict", content) if isinstance(content, Mapping) else {}
    tensors = {str(name).removeprefix("module."): value for name, value in tensors.items()}
    expected = encoder.state_dict()
    problems = misfit(expected, tensors, may_lack=("visual.*", "*attn_mask"), may_add=("*",))
    if problems:
        raise WeightsError(
            f"{file} does not hold the text encoder of {model} ({problems}); give the file of "
            "both encoders with init.path, or its model with head.model"
        )
    fitting = {name: tensors[name].float() for name in expected if name in tensors}
    encoder.load_state_dict(fitting, strict=False)
    with torch.no_grad():
        rows = []
        for prompts in texts:
            embedding = encoder.encode_text(tokenizer(list(prompts)), normalize=True)
            rows.append(embedding.mean(0))
        embeddings = F.normalize(torch.stack(rows), dim=1)
        scale = float(encoder.logit_scale.exp())
        bias = getattr(encoder, "logit_bias", None)
        return ClassTexts(embeddings, scale, 0.0 if bias is None else float(bias))


def _open_clip_name(model: str) -> str:
    """Return OpenCLIP's name of a model.

    If ``model`` is a JSON file with its configuration, register that first.

    Raises:
        ConfigError: OpenCLIP is missing or does not know the model.
    """
    try:
        import open_clip
    except ImportError as error:
        raise ConfigError(
            "head=zero_shot needs OpenCLIP's text encoder; pip install 'dgbench[clip]'"
        ) from error
    name = model
    if model.endswith(".json"):
        name = Path(model).stem
        file = Path(model).expanduser()
        try:
            json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"head.model={model} is no JSON file with a model of OpenCLIP; correct it"
            ) from error
        open_clip.add_model_config(file)
    if open_clip.get_model_config(name) is None:
        raise ConfigError(f"head.model={model} is unknown to OpenCLIP; see open_clip.list_models()")
    return name


def _open_clip(model: str) -> tuple[Any, Any]:
    """Build a model of OpenCLIP in evaluation mode, with random weights, and its tokenizer."""
    import open_clip

    name = _open_clip_name(model)
    try:
        with torch.random.fork_rng(devices=[]), _without_warnings():
            encoder = open_clip.create_model(name, pretrained=None).eval()
            return encoder, open_clip.get_tokenizer(name)
    except Exception as error:  # tokenizers of some models come from the hub
        raise ConfigError(
            f"head.model={model}: OpenCLIP cannot build the text encoder ({one_line(error)}); "
            "install what it names, or fetch its tokenizer into the Hugging Face cache of this "
            "machine"
        ) from error


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress logged warnings: OpenCLIP warns of random weights, which are then replaced."""
    previous_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous_level)
