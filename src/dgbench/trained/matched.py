"""A model whose logits are for the classes of a dataset, from the images that the dataset gives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.data.datasets.class_order import is_unclear
from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError
from dgbench.trained.predictor import Predictor
from dgbench.validation import some_of


class Matched(nn.Module):
    """Logits of a model for the classes of a dataset, from the images that the dataset gives.

    Args:
        model: with classes and images of its own.
        classes: of the dataset.
        preprocessing: of the dataset's images.
        at_once: predict a whole batch in one call, see :meth:`Predictor.at_once`.

    Attributes:
        n_outputs: of the model, which may know more classes than the dataset.

    Raises:
        ConfigError: the model lacks a class, or names none where their order is unclear; it sees
            other channels, or vectors of another length.
    """

    def __init__(
        self,
        model: Predictor,
        classes: Sequence[str],
        preprocessing: Preprocessing,
        at_once: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.at_once = at_once
        self.classes = list(classes)
        self.source = preprocessing
        inputs = model.preprocessing
        if inputs.vectors != preprocessing.vectors:
            sees, holds = ("vectors", "images") if inputs.vectors else ("images", "vectors")
            raise ConfigError(
                f"the model sees {sees}, the dataset holds {holds}; choose another dataset"
            )
        if inputs.image[0] != preprocessing.image[0]:
            form = "vectors of {} features" if inputs.vectors else "images of {} channels"
            raise ConfigError(
                f"the model sees {form.format(inputs.image[0])}, the dataset has "
                f"{preprocessing.image[0]}; choose another dataset"
            )
        if not model.classes and is_unclear(classes):
            raise ConfigError(
                f"the order of the model's {len(classes)} outputs is not known: the dataset's "
                f"classes are ordered {some_of(classes, 4)}, which is another order as numbers "
                "than as text; name the outputs in their order with classes=[...]"
            )
        missing = [name for name in classes if model.classes and name not in model.classes]
        if missing:
            raise ConfigError(
                f"the model knows no class {some_of(missing)} of the dataset; name its outputs in "
                "their order with classes=[...], or choose a dataset of its classes"
            )
        self.n_outputs = len(model.classes or classes)
        self._columns: Tensor | None = None  # where the order of the classes differs
        if model.classes and model.classes != tuple(classes):
            self._columns = torch.tensor([model.classes.index(name) for name in classes])

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images as the dataset gives them to (n, K) logits."""
        like = next((p for p in self.model.parameters() if p.is_floating_point()), x)
        images = self._images(x).to(like.dtype)
        logits: Tensor = self.model.at_once(images) if self.at_once else self.model(images)
        k = self.n_outputs
        if not isinstance(logits, Tensor) or logits.shape != (len(x), k):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ConfigError(
                f"the model makes {shape} of {len(x)} images of {k} classes, not logits (n, {k}); "
                "name its outputs in their order with classes=[...], or name another model"
            )
        return self.of_classes(logits)

    def of_classes(self, outputs: Tensor) -> Tensor:
        """Select those of the model's (n, outputs) that are for the dataset's classes, (n, K)."""
        if self._columns is None:
            return outputs
        return outputs[:, self._columns.to(outputs.device)]

    def _images(self, x: Tensor) -> Tensor:
        """Convert the dataset's images to the size and normalization that the model takes."""
        inputs = self.model.preprocessing
        source = self.source
        if inputs == source:
            return x
        plain = x * _channels(source.std, x) + _channels(source.mean, x)
        if inputs.image != source.image:
            size = inputs.image[1:]
            plain = F.interpolate(plain, size=size, mode="bilinear", antialias=True).clamp(0, 1)
        return (plain - _channels(inputs.mean, x)) / _channels(inputs.std, x)


def _channels(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, 1, 1)
