"""A model on the images and classes of a dataset that it was not made for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError
from dgbench.models.loaded import Predictor


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
        self.model, self.classes, self.given = model, list(classes), preprocessing
        own = model.preprocessing
        if own.vectors != preprocessing.vectors:
            sees, holds = ("vectors", "images") if own.vectors else ("images", "vectors")
            raise ConfigError(f"the model sees {sees}, the dataset holds {holds}; choose another dataset")
        if own.image[0] != preprocessing.image[0]:
            what = "vectors of {} features" if own.vectors else "images of {} channels"
            raise ConfigError(
                f"the model sees {what.format(own.image[0])}, the dataset has {preprocessing.image[0]}; choose another "
                "dataset"
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
        own, given = self.model.preprocessing, self.given
        if own == given:
            return x
        plain = x * _channels(given.std, x) + _channels(given.mean, x)
        if own.image != given.image:
            plain = F.interpolate(plain, size=own.image[1:], mode="bilinear", antialias=True).clamp(0, 1)
        return (plain - _channels(own.mean, x)) / _channels(own.std, x)


def _channels(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, 1, 1)
