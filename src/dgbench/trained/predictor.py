"""A trained model as an ordinary module that knows its classes and its input.

It says how pictures or vectors become that input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.data.description import Preprocessing
from dgbench.data.store.decoding import resized, rgb, rgb_of
from dgbench.errors import DataError, RecordError
from dgbench.objectives.contract import Algorithm
from dgbench.training.modules import SingleRun
from dgbench.training.run_folder import ModelRecord
from dgbench.validation import some_of

AT_ONCE = 256  # pictures predicted in one batch
RGB = 3
ROUNDING = 1e-4  # by which values may leave [0, 1]


@dataclass(frozen=True)
class Predictions:
    """What a model says of n pictures."""

    logits: Tensor  #: (n, K)
    classes: tuple[str, ...]  #: names of the K classes

    @property
    def labels(self) -> Tensor:
        """(n,) int64, numbers of the predicted classes."""
        return self.logits.argmax(1)

    @property
    def names(self) -> list[str]:
        """Names of the n predicted classes."""
        return [self.classes[label] for label in self.labels.tolist()]

    @property
    def probabilities(self) -> Tensor:
        """(n, K), the softmax of the logits."""
        return self.logits.softmax(1)


class Predictor(nn.Module):
    """A model with logits, classes, and a way from pictures to its input.

    Args:
        classes: names of the K classes, in the order of the logits.
        preprocessing: from pictures to input.
        group_size: pictures whose predictions depend on one another; 0: each by itself.

    Attributes:
        record: what a run is; None of any other model.
        step: optimizer steps that a run had made; 0 of any other model.
        averaged: hashes of the runs that it is the mean of, if it is one.
        title: what tables call it, if its file says that.
        seen: dataset -> environments of it that the model was trained on, as far as its file says
            it.
    """

    record: ModelRecord | None = None
    step: int = 0
    averaged: tuple[str, ...] = ()
    title: str = ""
    seen: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def __init__(
        self, classes: Sequence[str], preprocessing: Preprocessing, group_size: int = 0
    ) -> None:
        super().__init__()
        self.classes = tuple(classes)
        self.preprocessing = preprocessing
        self.group_size = group_size

    def at_once(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images to (n, K) logits in one call of the networks.

        Statistics of the batch are then those of all n images. A call of the model may take large
        images in parts.
        """
        logits: Tensor = self(x)
        return logits

    @torch.no_grad()
    def predict(self, images: Any) -> Predictions:
        """Predict the class of every picture.

        Pictures are resized and normalized as those that the model was trained on. A method whose
        predictions depend on what it sees together (ARM) takes the pictures in groups of
        ``group_size``, in the order given.

        Args:
            images: image files, PIL images, arrays or tensors, one or many; see
                :func:`batches`. An array (n, d) for a model of vectors.

        Raises:
            DataError: something that is no picture, or has other channels than the model was
                trained on.
        """
        group = max(1, self.group_size)
        size = group * max(1, AT_ONCE // group)
        like = next(self.parameters(), torch.empty(0))
        parts = []
        for batch in batches(images, self.preprocessing, size):
            parts.append(self(batch.to(like.device, like.dtype)).cpu())
        return Predictions(torch.cat(parts), self.classes)


class LoadedModel(Predictor):
    """A trained run in evaluation mode.

    It maps (n, C, H, W) normalized images, or (n, d) vectors, to (n, K) logits.

    Args:
        module: the run.
        record: what it is.
        step: optimizer steps after which it had these weights.

    Attributes:
        run: the :class:`~dgbench.training.modules.SingleRun`; ``run.networks`` holds featurizer and
            classifier.
    """

    record: ModelRecord

    def __init__(self, module: SingleRun, record: ModelRecord, step: int) -> None:
        group_size = module.algorithm.group_size(module.algorithm.values)
        super().__init__(record.classes, record.preprocessing, group_size)
        self.run = module
        self.record = record
        self.step = step
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images, normalized as the preprocessing says, to (n, K) logits."""
        logits: Tensor = self.run(x)
        return logits

    def at_once(self, x: Tensor) -> Tensor:
        run = self.run
        like = x.new_empty((), dtype=run.networks.dtype)
        drawn = run.draws.for_prediction(len(x), like, "forward", 0)
        random = {name: values[None] for name, values in drawn.items()}
        return run.predicted(run.algorithm.predict, x, random, {})[0]

    @property
    def networks_that_predict(self) -> tuple[str, ...]:
        """Names of the networks that predictions depend on."""
        usual = type(self.run.algorithm).predict is Algorithm.predict
        return ("featurizer", "classifier") if usual else tuple(self.run.networks)

    def features(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images to the (n, m) features in front of the classifier.

        Raises:
            RecordError: a featurizer that reads more than the image (ARM's).
        """
        if self.run.algorithm.extra_channels:
            name = self.record.identity["algorithm"]
            raise RecordError(
                f"the featurizer of {name} reads more than an image; choose another algorithm's run"
            )
        features: Tensor = self.run.networks.featurizer(x)
        return features


class Ensemble(Predictor):
    """Several models as one: the mean of their logits, as ensembles of averages (EoA) predict.

    Source: Arpit et al. 2022, "Ensemble of Averages", section 3.2.

    Args:
        members: models of the same classes and images.

    Raises:
        RecordError: they have other classes, or see other images.
    """

    def __init__(self, members: Sequence[Predictor]) -> None:
        first = members[0]
        for member in members[1:]:
            if member.classes != first.classes:
                raise RecordError(
                    "an ensemble needs models of the same classes in the same order; these have "
                    f"{some_of(first.classes)}, and {some_of(member.classes)}"
                )
            if member.preprocessing != first.preprocessing:
                raise RecordError(
                    "an ensemble needs models of images of one size and normalization; load them "
                    "apart"
                )
        group_size = max(member.group_size for member in members)
        super().__init__(first.classes, first.preprocessing, group_size)
        self.members = nn.ModuleList(members)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images to (n, K) logits, the mean of the members'."""
        return torch.stack([member(x) for member in self.members]).mean(0)

    def at_once(self, x: Tensor) -> Tensor:
        members: Any = self.members
        return torch.stack([member.at_once(x) for member in members]).mean(0)


def batches(images: Any, to: Preprocessing, size: int) -> Iterator[Tensor]:
    """Convert pictures to batches of input to the network, (n, C, H, W) each.

    Vectors are converted as :func:`vector_batches` does.

    Args:
        images: one picture, a sequence of them, or an array or tensor of n. A picture is

            - the path of an image file, or a PIL image;
            - a uint8 array (H, W) or (H, W, channels), or a uint8 tensor (channels, H, W), of 1, 3
              or 4 channels;
            - a floating-point array (H, W, C) or tensor (C, H, W) with values in [0, 1], before
              normalization.
        to: what the network was trained on. Pictures of another size are resized, as those that it
            was trained on.
        size: pictures in a batch.

    Raises:
        DataError: something else, other channels, values outside [0, 1], or a file that cannot be
            read.
    """
    if to.vectors:
        yield from vector_batches(images, to.image[0], size)
        return
    pictures = pictures_of(images)
    for first in range(0, len(pictures), size):
        yield torch.stack([as_input(picture, to) for picture in pictures[first : first + size]])


def pictures_of(images: Any) -> Sequence[Any]:
    """List the pictures in what :func:`batches` takes, one by one."""
    if isinstance(images, (str, Path, Image.Image)):
        return [images]
    if isinstance(images, (Tensor, np.ndarray)):
        images = list(images) if images.ndim == 4 else [images]
    if isinstance(images, Sequence) and len(images):
        return images
    raise DataError(
        f"{type(images).__name__} holds no pictures; give files, PIL images, arrays or tensors, "
        "one or a list of them"
    )


def as_input(picture: Any, to: Preprocessing) -> Tensor:
    """Convert one picture to (C, H, W), resized and normalized; see :func:`batches`."""
    mean = torch.tensor(to.mean, dtype=torch.float64).view(-1, 1, 1)
    std = torch.tensor(to.std, dtype=torch.float64).view(-1, 1, 1)
    image = _floating(picture, to)
    return image.sub_(mean.to(image)).div_(std.to(image))


def _floating(picture: Any, to: Preprocessing) -> Tensor:
    """Convert a picture to (C, H, W), resized, with values in [0, 1], in memory of its own."""
    values = picture if isinstance(picture, (Tensor, np.ndarray)) else None
    if values is None or values.dtype in (torch.uint8, np.uint8):
        return _from_bytes(_pil(picture), to)
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(np.ascontiguousarray(values))
        values = values.movedim(-1, 0) if values.dim() == 3 else values[None]
    if not values.is_floating_point():
        raise DataError(
            f"pictures of type {values.dtype} have no known range; give uint8, or numbers in [0, 1]"
        )
    values = values[None] if values.dim() == 2 else values
    if values.dim() != 3 or values.shape[0] != to.image[0]:
        raise DataError(
            f"a picture of shape {tuple(values.shape)} is not (C, H, W) with C = {to.image[0]}, "
            f"as this model was trained on (C, H, W = {', '.join(map(str, to.image))}); convert it"
        )
    low = float(values.min())
    high = float(values.max())
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise DataError(
            f"a picture has values from {low:.3g} to {high:.3g}; give values in [0, 1] before "
            "normalization, or call the model itself on what is normalized already"
        )
    values = values.detach().cpu().to(torch.get_default_dtype(), copy=True)
    if tuple(values.shape) != to.image:
        values = F.interpolate(values[None], size=to.image[1:], mode="bilinear", antialias=True)[0]
    return values


def _from_bytes(picture: Image.Image, to: Preprocessing) -> Tensor:
    channels, height, width = to.image
    if not to.pictures or channels != RGB:
        raise DataError(
            f"this model was trained on images of {channels} x {height} x {width} that no picture "
            f"file holds; give a floating-point tensor (n, {channels}, {height}, {width}) with "
            "values in [0, 1]"
        )
    pixels = np.array(resized(picture, height, width))
    return torch.from_numpy(pixels).permute(2, 0, 1).to(torch.get_default_dtype()).div_(255)


def _pil(picture: Any) -> Image.Image:
    """Convert a picture to 8-bit RGB."""
    if isinstance(picture, Image.Image):
        return rgb_of(picture)
    if isinstance(picture, (str, Path)):
        try:
            return rgb(picture)
        except Exception as error:  # PIL raises whatever a broken file leads it to
            reason = " ".join(str(error).split())
            raise DataError(
                f"{picture} is no picture ({type(error).__name__}: {reason}); leave it out"
            ) from error
    if isinstance(picture, Tensor):
        if picture.dim() == 3:
            picture = picture.movedim(0, -1)
        picture = picture.cpu().numpy()
    if not isinstance(picture, np.ndarray):
        raise DataError(
            f"{type(picture).__name__} is no picture; give files, PIL images, arrays or tensors"
        )
    if not picture.size:
        raise DataError(f"a picture of shape {picture.shape} is empty; leave it out")
    squeezed = picture[..., 0] if picture.ndim == 3 and picture.shape[2] == 1 else picture
    if squeezed.ndim not in (2, 3) or (squeezed.ndim == 3 and squeezed.shape[2] not in (3, 4)):
        raise DataError(
            f"a uint8 picture of shape {picture.shape} has not 1, 3 or 4 channels; arrays are (H, "
            "W, channels), tensors (channels, H, W)"
        )
    return Image.fromarray(np.ascontiguousarray(squeezed)).convert("RGB")


def vector_batches(vectors: Any, d: int, size: int) -> Iterator[Tensor]:
    """Split vectors into batches of input to the network, (n, d) each, as they are.

    Args:
        vectors: an array, tensor or sequence of numbers, (n, d), or (d,) for one.
        d: features that the network was trained on.
        size: vectors in a batch.

    Raises:
        DataError: something else, or numbers that are not finite.
    """
    try:
        numbers = vectors if isinstance(vectors, Tensor) else np.asarray(vectors, np.float32)
        rows = torch.as_tensor(numbers)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{type(vectors).__name__} holds no rows of numbers; give an array (n, {d})"
        ) from error
    rows = rows[None] if rows.dim() == 1 else rows
    if rows.dim() != 2 or rows.shape[1] != d or not len(rows):
        raise DataError(
            f"vectors of the shape {tuple(rows.shape)} are not (n, {d}), as this model was "
            "trained on; convert them"
        )
    if not rows.isfinite().all():
        raise DataError("vectors hold numbers that are not finite; fill or drop them")
    rows = rows.detach().cpu().to(torch.get_default_dtype())
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
