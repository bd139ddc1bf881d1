"""From whatever a user has of pictures, or of vectors of features, to what a network sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from dgbench.data.description import Preprocessing
from dgbench.data.store.decoding import resized, rgb, rgb_of
from dgbench.errors import DataError

RGB = 3
ROUNDING = 1e-4  # by which values may leave [0, 1]


def batches(images: Any, to: Preprocessing, size: int) -> Iterator[Tensor]:
    """Pictures in batches of what the network sees, (n, C, H, W) each; vectors as :func:`vector_batches` takes them.

    Args:
        images: one picture, a sequence of them, or an array or tensor of n. A picture is

            - the path of an image file, or a PIL image;
            - a uint8 array (H, W) or (H, W, channels), or a uint8 tensor (channels, H, W), of 1, 3 or 4 channels;
            - a floating-point array (H, W, C) or tensor (C, H, W) with values in [0, 1], before normalization.
        to: what the network was trained on. Pictures of another size are resized, as those that it was trained on.
        size: pictures in a batch.

    Raises:
        DataError: something else, other channels, values outside [0, 1], or a file that cannot be read.
    """
    if to.vectors:
        yield from vector_batches(images, to.image[0], size)
        return
    pictures = pictures_of(images)
    for first in range(0, len(pictures), size):
        yield torch.stack([as_input(picture, to) for picture in pictures[first : first + size]])


def pictures_of(images: Any) -> Sequence[Any]:
    """The pictures in what :func:`batches` takes, one by one."""
    if isinstance(images, (str, Path, Image.Image)):
        return [images]
    if isinstance(images, (Tensor, np.ndarray)):
        images = list(images) if images.ndim == 4 else [images]
    if isinstance(images, Sequence) and len(images):
        return images
    raise DataError(
        f"{type(images).__name__} holds no pictures; give files, PIL images, arrays or tensors, one or a list of them"
    )


def as_input(picture: Any, to: Preprocessing) -> Tensor:
    """One picture as (C, H, W), resized and normalized; see :func:`batches`."""
    mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (to.mean, to.std))
    image = _floating(picture, to)
    return image.sub_(mean.to(image)).div_(std.to(image))


def _floating(picture: Any, to: Preprocessing) -> Tensor:
    """(C, H, W) with values in [0, 1], in memory of its own."""
    values = picture if isinstance(picture, (Tensor, np.ndarray)) else None
    if values is None or values.dtype in (torch.uint8, np.uint8):
        return _from_bytes(_pil(picture), to)
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(np.ascontiguousarray(values))
        values = values.movedim(-1, 0) if values.dim() == RGB else values[None]
    if not values.is_floating_point():
        raise DataError(f"pictures of type {values.dtype} have no known range; give uint8, or numbers in [0, 1]")
    values = values[None] if values.dim() == 2 else values
    if values.dim() != 3 or values.shape[0] != to.image[0]:
        raise DataError(
            f"a picture of shape {tuple(values.shape)} is not (C, H, W) with C = {to.image[0]}, as this model "
            f"was trained on (C, H, W = {', '.join(map(str, to.image))}); convert it"
        )
    low, high = float(values.min()), float(values.max())
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise DataError(
            f"a picture has values from {low:.3g} to {high:.3g}; give values in [0, 1] before normalization, or call "
            "the model itself on what is normalized already"
        )
    values = values.detach().cpu().to(torch.get_default_dtype(), copy=True)
    if tuple(values.shape) != to.image:
        values = F.interpolate(values[None], size=to.image[1:], mode="bilinear", antialias=True)[0]
    return values


def _from_bytes(picture: Image.Image, to: Preprocessing) -> Tensor:
    channels, height, width = to.image
    if not to.pictures or channels != RGB:
        raise DataError(
            f"this model was trained on images of {channels} x {height} x {width} that no picture file holds; give a "
            f"floating-point tensor (n, {channels}, {height}, {width}) with values in [0, 1]"
        )
    pixels = np.array(resized(picture, height, width))
    return torch.from_numpy(pixels).permute(2, 0, 1).to(torch.get_default_dtype()).div_(255)


def _pil(picture: Any) -> Image.Image:
    """8-bit RGB."""
    if isinstance(picture, Image.Image):
        return rgb_of(picture)
    if isinstance(picture, (str, Path)):
        try:
            return rgb(picture)
        except Exception as error:  # PIL raises whatever a broken file leads it to
            reason = " ".join(str(error).split())
            raise DataError(f"{picture} is no picture ({type(error).__name__}: {reason}); leave it out") from error
    if isinstance(picture, Tensor):
        picture = picture.cpu().movedim(0, -1).numpy() if picture.dim() == 3 else picture.cpu().numpy()
    if not isinstance(picture, np.ndarray):
        raise DataError(f"{type(picture).__name__} is no picture; give files, PIL images, arrays or tensors")
    if not picture.size:
        raise DataError(f"a picture of shape {picture.shape} is empty; leave it out")
    squeezed = picture[..., 0] if picture.ndim == 3 and picture.shape[2] == 1 else picture
    if squeezed.ndim not in (2, 3) or (squeezed.ndim == 3 and squeezed.shape[2] not in (3, 4)):
        raise DataError(
            f"a uint8 picture of shape {picture.shape} has not 1, 3 or 4 channels; arrays are (H, W, channels), "
            "tensors (channels, H, W)"
        )
    return Image.fromarray(np.ascontiguousarray(squeezed)).convert("RGB")


def vector_batches(vectors: Any, d: int, size: int) -> Iterator[Tensor]:
    """Vectors in batches of what the network sees, (n, d) each, as they are.

    Args:
        vectors: an array, tensor or sequence of numbers, (n, d), or (d,) for one.
        d: features that the network was trained on.
        size: vectors in a batch.

    Raises:
        DataError: something else, or numbers that are not finite.
    """
    try:
        rows = torch.as_tensor(vectors if isinstance(vectors, Tensor) else np.asarray(vectors, np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"{type(vectors).__name__} holds no rows of numbers; give an array (n, {d})") from error
    rows = rows[None] if rows.dim() == 1 else rows
    if rows.dim() != 2 or rows.shape[1] != d or not len(rows):
        raise DataError(
            f"vectors of the shape {tuple(rows.shape)} are not (n, {d}), as this model was trained on; convert them"
        )
    if not rows.isfinite().all():
        raise DataError("vectors hold numbers that are not finite; fill or drop them")
    rows = rows.detach().cpu().to(torch.get_default_dtype())
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
