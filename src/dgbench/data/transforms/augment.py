"""Random crops, flips and colors for whole minibatches, on the device, by given random numbers.

The operations and their random parameters are torchvision's ``RandomResizedCrop``,
``RandomHorizontalFlip``, ``ColorJitter`` and ``RandomGrayscale``, each image with its own
parameters, in floating point without rounding in between. Crops are drawn in the pixels of the
file, as torchvision draws them, and then read from the stored square: same framing, one
interpolation more for files of another size. (With ``crop_in=square`` they are drawn in the stored
square, as where torchvision resizes first.) Since a crop is never larger than the stored square, it
is only ever enlarged, so that antialiasing plays no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.data.transforms.values import AugmentationScheme

TRIES = 10  #: crops tried before the central one is taken (torchvision)
#: numbers for an image: tries (area, aspect), place, flip, factors, order of factors, grayscale
N_UNIFORM = 2 * TRIES + 2 + 1 + 4 + 4 + 1
GRAY = (0.2989, 0.587, 0.114)  #: shares of red, green, blue (torchvision)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


class Augmentation:
    """Draws the chance of a scheme of random transforms, and applies it to whole minibatches."""

    def __init__(self, scheme: AugmentationScheme) -> None:
        self.scheme = scheme

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw (n, N_UNIFORM) numbers, uniform in [0, 1): all that n images need."""
        return rng.random((n, N_UNIFORM))

    def __call__(self, images: Tensor, uniform: np.ndarray, sizes: np.ndarray) -> Tensor:
        """Augment (n, 3, H, W) images in [0, 1] with the numbers that were drawn for them.

        Args:
            images: (n, 3, H, W) floats in [0, 1].
            uniform: (n, N_UNIFORM) from :meth:`draw`.
            sizes: (n, 2) height and width of the files in pixels.
        """
        if self.scheme.crop_in == "square":
            sizes = np.full_like(sizes, images.shape[2:])
        parts = np.split(uniform, np.cumsum([2 * TRIES, 2, 1, 4, 4]), axis=1)
        tries, place, flip, factors, order, gray = parts
        boxes = self.boxes(tries.reshape(-1, TRIES, 2), place, sizes)
        shares = boxes / np.concatenate([sizes, sizes], axis=1)
        images = resized_crop(images, shares, flip[:, 0] < self.scheme.flip)
        images = color_jitter(images, self.factors(factors), np.argsort(order, axis=1))
        grayed = gray[:, 0] < self.scheme.grayscale
        return _change_at(images, grayed, lambda part: to_gray(part).expand_as(part))

    def boxes(self, tries: np.ndarray, place: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Compute the (n, 4) top, left, height and width of the crops, in pixels of ``sizes``.

        The rule is torchvision's: ten pairs of area and aspect are tried; the first that fits is
        placed at random; else the central crop of the nearest allowed aspect is taken.
        """
        height = sizes[:, 0:1].astype(np.float64)
        width = sizes[:, 1:2].astype(np.float64)
        narrowest, widest = self.scheme.crop_aspect
        low, high = np.log(np.asarray(self.scheme.crop_aspect, np.float64))
        area = height * width * _scale_to(tries[..., 0], *self.scheme.crop_area)
        aspect = np.exp(_scale_to(tries[..., 1], low, high))
        w = np.round(np.sqrt(area * aspect))
        h = np.round(np.sqrt(area / aspect))
        fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
        first = fits.argmax(1)[:, None]
        w = np.take_along_axis(w, first, 1)
        h = np.take_along_axis(h, first, 1)
        top = np.floor(place[:, :1] * (height - h + 1))
        left = np.floor(place[:, 1:] * (width - w + 1))
        ratio = width / height
        w_central = np.where(ratio > widest, np.round(height * widest), width)
        h_central = np.where(ratio < narrowest, np.round(width / narrowest), height)
        central = [(height - h_central) // 2, (width - w_central) // 2, h_central, w_central]
        return np.where(fits.any(1)[:, None], np.hstack([top, left, h, w]), np.hstack(central))

    def factors(self, uniform: np.ndarray) -> np.ndarray:
        """Map (n, 4) uniform numbers to three factors and a shift.

        The factors are those of brightness, contrast and saturation, the shift that of the hue.
        """
        spread = (self.scheme.brightness, self.scheme.contrast, self.scheme.saturation)
        columns = []
        for i, value in enumerate(spread):
            columns.append(_scale_to(uniform[:, i], max(0.0, 1 - value), 1 + value))
        columns.append(_scale_to(uniform[:, HUE], -self.scheme.hue, self.scheme.hue))
        return np.stack(columns, axis=1)


def resized_crop(images: Tensor, boxes: np.ndarray, flipped: np.ndarray) -> Tensor:
    """Crop images, enlarge the crops to the images' size and mirror some, in one bilinear sampling.

    Args:
        images: (n, 3, H, W).
        boxes: (n, 4) top, left, height, width as shares of the image's height and width.
        flipped: (n,) bool, the crops to mirror.
    """
    box = torch.from_numpy(boxes).to(images)
    rows = _positions(box[:, 0], box[:, 2], images.shape[2])
    columns = _positions(box[:, 1], box[:, 3], images.shape[3])
    mirrored = torch.from_numpy(flipped).to(images.device)[:, None]
    columns = torch.where(mirrored, columns.flip(1), columns)
    shape = (len(images), *images.shape[2:])
    grid = torch.stack([columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)], dim=-1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=True)


def _positions(start: Tensor, length: Tensor, n: int) -> Tensor:
    """Compute the (k, n) coordinates to read along an axis of n pixels.

    -1 is the center of the first pixel, 1 that of the last.

    Nothing outside the crop is read, as if it had been cut out before it was resized.
    """
    first = start[:, None] * n
    pixels = length[:, None] * n
    centers = first + (torch.arange(n, device=start.device) + 0.5) * pixels / n - 0.5
    centers = torch.minimum(torch.maximum(centers, first), (first + pixels - 1).clamp(min=0))
    return centers * (2 / max(n - 1, 1)) - 1


def color_jitter(images: Tensor, factors: np.ndarray, order: np.ndarray) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image, in its own order.

    Args:
        images: (n, 3, H, W) in [0, 1].
        factors: (n, 4) three factors and the shift of the hue, in turns.
        order: (n, 4) permutation of 0..3: which change comes first, second, ...
    """
    changes = (brightness, contrast, saturation, hue)
    neutral = (1, 1, 1, 0)  # the hue is shifted, the others are scaled
    idle = [np.all(factors[:, kind] == neutral[kind]) for kind in range(4)]
    for place in range(4):
        for kind, change in enumerate(changes):
            chosen = order[:, place] == kind
            if not idle[kind]:
                factor = torch.from_numpy(factors[chosen, kind]).to(images).view(-1, 1, 1, 1)
                images = _change_at(images, chosen, partial(change, factor=factor))
    return images


def to_gray(images: Tensor) -> Tensor:
    """Convert (n, 3, H, W) colors to (n, 1, H, W) gray."""
    red, green, blue = images.unbind(1)
    return (GRAY[0] * red).add_(green, alpha=GRAY[1]).add_(blue, alpha=GRAY[2])[:, None]


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Scale each image's distance from black by ``factor`` (n, 1, 1, 1), in [0, 1]."""
    return (images * factor).clamp_(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Scale each image's distance from its mean gray by ``factor`` (n, 1, 1, 1) in [0, 1]."""
    return _away(images, to_gray(images).mean((1, 2, 3), keepdim=True), factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Scale each image's distance from its gray form by ``factor`` (n, 1, 1, 1) in [0, 1]."""
    return _away(images, to_gray(images), factor)


def hue(images: Tensor, factor: Tensor) -> Tensor:
    """Turn the color wheel by ``factor`` (n, 1, 1, 1) turns; value and chroma stay."""
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    safe = chroma.masked_fill(chroma == 0, 1)
    around_red = (green - blue) / safe
    around_green = 2 + (blue - red) / safe
    around_blue = 4 + (red - green) / safe
    not_red = torch.where(value == green, around_green, around_blue)
    sixths = torch.where(value == red, around_red, not_red)
    sixths += 6 * factor[:, 0]
    out = torch.empty_like(images)
    for channel, offset in enumerate((5, 3, 1)):
        k = (sixths + offset) % 6
        torch.sub(value, chroma * torch.minimum(k, 4 - k).clamp_(0, 1), out=out[:, channel])
    return out


def _away(images: Tensor, anchor: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(anchor.expand_as(images), images, factor).clamp_(0, 1)


def _change_at(images: Tensor, chosen: np.ndarray, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Change the chosen images in place.

    The choice is known on the host, so nothing waits for the device.
    """
    if chosen.any():
        rows = torch.from_numpy(np.flatnonzero(chosen)).to(images.device, non_blocking=True)
        images[rows] = change(images[rows])
    return images


def _scale_to(uniform: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + (high - low) * uniform
