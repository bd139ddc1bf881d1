"""The 15 corruptions of Hendrycks & Dietterich (2019).

"Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", section 4 and
appendix A: batched functions of (n, 3, H, W) images in [0, 1], severity and :class:`RandomNumbers`.

Parameters per severity, borders and truncation to whole gray levels are those of the authors'
package for images of any size; ``tests/data/test_corruptions.py`` compares every one of them with
it, given the same random numbers. Pixelate and JPEG go through Pillow, image by image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from io import BytesIO

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from scipy.fft import next_fast_len
from torch import Tensor

from dgbench.data.transforms.values import CORRUPTION_NAMES


class RandomNumbers:
    """Draws from one generator, so a corruption is a pure function of images, severity and seed.

    Args:
        seed: of the generator; derive it with :func:`dgbench.seeding.derive`.
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal numbers."""
        return torch.randn(shape, generator=self.generator)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Draw uniform numbers in [low, high)."""
        return torch.rand(shape, generator=self.generator) * (high - low) + low

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Draw int64 numbers in {low, ..., high - 1}, all equally likely."""
        return torch.randint(low, high, shape, generator=self.generator)

    def poisson(self, rates: Tensor) -> Tensor:
        """Draw Poisson counts with these expectations."""
        return torch.poisson(rates, generator=self.generator)


def gaussian_noise(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Add normal noise to every channel, as it appears in low light."""
    return x + (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1] * chance.normal(*x.shape)


def shot_noise(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Draw each value as a Poisson count of photons, relative to the photons of full brightness."""
    photons = (60, 25, 12, 5, 3)[severity - 1]
    return chance.poisson(x * photons) / photons


def impulse_noise(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Add salt and pepper: set single channel values to 0 or 1, as bit errors do."""
    share = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    hit = chance.uniform(0, 1, *x.shape) <= share
    salt = chance.uniform(0, 1, *x.shape) <= 0.5
    return x.where(~hit, salt.to(x.dtype))


def defocus_blur(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Turn every point into a disk; draw nothing from ``chance``."""
    radius, softness = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1]
    return convolve(x, disk(radius, softness))


def glass_blur(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Simulate frosted glass: blur, copy each pixel from close by, blur again."""
    settings = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))
    sigma, reach, rounds = settings[severity - 1]
    blurred = gaussian(x, (sigma, sigma), 4.0, edge)
    flat = torch.floor(blurred * 255 + 1e-3).div_(255).flatten(2)
    for _ in range(rounds):
        source = _scattered(len(x), x.shape[2], x.shape[3], reach, chance)
        flat = flat.gather(2, source[:, None].expand_as(flat))
    return gaussian(flat.view_as(x), (sigma, sigma), 4.0, edge)


def _scattered(n: int, height: int, width: int, reach: int, chance: RandomNumbers) -> Tensor:
    """Draw the (n, height * width) positions from which pixels are copied in one round.

    The published code walks the pixels from the last to the first and means to swap each with one
    at most ``reach`` rows and columns away, but NumPy's views make the swap a copy. A pixel may so
    be copied from one that was overwritten earlier in the same walk; following those chains with
    pointer doubling gives the same result at once.
    """
    rows = height - 2 * reach
    columns = width - 2 * reach
    # drawn in the order of the walk
    offset = chance.integers(-reach, reach, n, rows, columns, 2).flip(1, 2)
    pixels = torch.arange(height * width).view(height, width)
    inner_rows = slice(reach + 1, reach + 1 + rows)
    inner_columns = slice(reach + 1, reach + 1 + columns)
    inner = pixels[inner_rows, inner_columns]
    sources = pixels.expand(n, -1, -1).clone()
    sources[:, inner_rows, inner_columns] = inner + offset[..., 1] * width + offset[..., 0]
    source = sources.flatten(1)
    place = pixels.flatten()
    # a pixel already overwritten stands further on in the image
    last = torch.where(source > place, source, place)
    while True:
        further = last.gather(1, last)
        if torch.equal(further, last):
            return source.gather(1, last)
        last = further


def motion_blur(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Simulate a camera that moves in a direction up to 45 degrees off the horizontal."""
    radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[severity - 1]
    return motion(x, radius, sigma, chance.uniform(-45, 45, len(x)))


def zoom_blur(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Average over magnifications, as if the camera moved closer; draw nothing from ``chance``."""
    count, step = ((12, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03))[severity - 1]
    total = x.clone()
    for i in range(count):
        total += magnified(x, 1 + i * step)[..., : x.shape[2], : x.shape[3]]
    return total / (count + 1)


#: photographs of ice; the original's third is its second again
TEXTURES = ("frost1", "frost2", "frost2", "frost4", "frost5", "frost6")


def snow(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Add flakes with trails to a whitened image."""
    settings = (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )
    mean, spread, zoom, threshold, radius, sigma, share = settings[severity - 1]
    n, _, height, width = x.shape
    flakes = magnified(mean + spread * chance.normal(n, 1, height, width), zoom)
    flakes = flakes.where(flakes >= threshold, 0.0).clamp(0, 1)
    flakes = motion(flakes, int(radius), sigma, chance.uniform(-135, -45, n))
    flakes = (torch.round(flakes * 255) / 255)[..., :height, :width]
    gray = (x * x.new_tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    whitened = share * x + (1 - share) * torch.maximum(x, gray * 1.5 + 0.5)
    return whitened + flakes + flakes.flip(2, 3)


def frost(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Add a piece of a photograph of ice; the photograph and the place of the piece are drawn."""
    share, ice = ((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    height, width = x.shape[2:]
    pieces = []
    for _ in range(len(x)):
        texture = _texture(TEXTURES[int(chance.integers(0, len(TEXTURES), 1))], height, width)
        top = int(chance.integers(0, texture.shape[1] - height, 1))
        left = int(chance.integers(0, texture.shape[2] - width, 1))
        pieces.append(texture[:, top : top + height, left : left + width])
    return share * x + ice * torch.stack(pieces)


@lru_cache(maxsize=len(TEXTURES))
def _texture(name: str, height: int, width: int) -> Tensor:
    """Read a (3, h, w) texture in [0, 1], enlarged by a tenth.

    For a larger image it is enlarged to a tenth more than the image needs.
    """
    with (files(__package__) / "frost" / f"{name}.jpg").open("rb") as file:
        picture = np.array(Image.open(file).convert("RGB"))
    pixels = torch.from_numpy(picture).permute(2, 0, 1).float()
    scale = 1.1 * max(1.0, height / pixels.shape[1], width / pixels.shape[2])
    size = [math.ceil(side * scale) for side in pixels.shape[1:]]
    grown = F.interpolate(pixels[None], size=size, mode="bicubic", align_corners=False)[0]
    return grown.round().clamp(0, 255) / 255


def fog(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Add clouds of all sizes (diamond-square heights); the image's brightest value stays."""
    thickness, decay = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))[severity - 1]
    n, _, height, width = x.shape
    side = 1 << (max(height, width) - 1).bit_length()
    clouds = _plasma(n, side, decay, chance)[:, None, :height, :width]
    peak = x.amax((1, 2, 3), keepdim=True)
    return (x + thickness * clouds) * peak / (peak + thickness)


def _plasma(n: int, side: int, decay: float, chance: RandomNumbers) -> Tensor:
    """Draw (n, side, side) heights in [0, 1] that tile; ``side`` is a power of 2.

    Each round halves the grid: the middle of four points is their mean plus noise, first for
    squares, then for the diamonds between them; the noise shrinks by ``decay`` squared from round
    to round.
    """
    heights = torch.zeros(n, side, side)
    step = side
    wobble = 100.0
    while step >= 2:
        half = step // 2
        count = side // step

        def mean(total: Tensor, wobble: float = wobble, count: int = count) -> Tensor:
            return total / 4 + wobble * chance.uniform(-wobble, wobble, n, count, count)

        corners = heights[:, ::step, ::step].clone()
        pairs = corners + corners.roll(-1, 1)
        centers = mean(pairs + pairs.roll(-1, 2))
        heights[:, half::step, half::step] = centers
        above_and_below = centers + centers.roll(1, 1)
        heights[:, ::step, half::step] = mean(above_and_below + corners + corners.roll(-1, 2))
        left_and_right = centers + centers.roll(1, 2)
        heights[:, half::step, ::step] = mean(left_and_right + corners + corners.roll(-1, 1))
        step = half
        wobble = wobble / decay
    heights -= heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)


def brightness(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Raise the value channel of HSV, keep hue and saturation; draw nothing from ``chance``."""
    value = x.amax(1, keepdim=True)
    raised = (value + (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1]).clamp(max=1)
    return torch.where(value > 0, x * (raised / value), raised)


def contrast(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Move every value toward the mean of its channel; draw nothing from ``chance``."""
    mean = x.mean((2, 3), keepdim=True)
    return mean + (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1] * (x - mean)


def elastic_transform(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Move pixels by a smooth random field, about 1 % of the side in size.

    The parameters are those of the original's maintained form, whose field grows with the image.
    """
    alpha = 250 * (0.05, 0.065, 0.085, 0.1, 0.12)[severity - 1]
    n, _, height, width = x.shape
    reach = 0.005 * height
    sigma = (0.01 * height, 0.01 * width)

    def displacement() -> Tensor:
        field = chance.uniform(-reach, reach, n, 1, height, width)
        return alpha * gaussian(field, sigma, 3.0, mirror)[:, 0]

    across = displacement()
    down = displacement()
    columns = (2 * (torch.arange(width) + across) + 1) / width - 1
    rows = (2 * (torch.arange(height)[:, None] + down) + 1) / height - 1
    grid = torch.stack([columns, rows], -1)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def pixelate(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Shrink to a share of the size, enlarge without interpolation; ``chance`` is not used."""
    share = (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1]

    def through(image: Image.Image) -> Image.Image:
        size = (int(image.width * share), int(image.height * share))
        small = image.resize(size, Image.Resampling.BOX)
        return small.resize(image.size, Image.Resampling.NEAREST)

    return _one_by_one(x, through)


def jpeg_compression(x: Tensor, severity: int, chance: RandomNumbers) -> Tensor:
    """Save as JPEG of low quality and read again; draw nothing from ``chance``."""
    quality = (25, 18, 15, 10, 7)[severity - 1]

    def through(image: Image.Image) -> Image.Image:
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _one_by_one(x, through)


def _one_by_one(x: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    pixels = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    changed = np.stack([np.asarray(change(Image.fromarray(image))) for image in pixels])
    return torch.from_numpy(changed).permute(0, 3, 1, 2) / 255


CORRUPTIONS: dict[str, Callable[[Tensor, int, RandomNumbers], Tensor]] = {
    name: globals()[name] for name in CORRUPTION_NAMES
}


def corrupt(images: Tensor, name: str, severity: int, chance: RandomNumbers) -> Tensor:
    """Apply one corruption to images.

    Args:
        images: (n, 3, H, W) uint8, at least 32 pixels high and wide.
        name: one of :data:`CORRUPTIONS`.
        severity: 1 (mild) to 5.
        chance: random numbers; the same seed and the same images give the same result.

    Returns:
        (n, 3, H, W) uint8.
    """
    x = CORRUPTIONS[name](images.float() / 255, severity, chance)
    # 1e-3: single precision, e.g. 254.9999 is 255
    return torch.floor(x.clamp(0, 1) * 255 + 1e-3).to(torch.uint8)


# Borders, convolutions, magnification, motion

Border = Callable[[Tensor, int], Tensor]


def edge(index: Tensor, size: int) -> Tensor:
    """Map indices beyond the border to the outermost pixel: aaa|abcd|ddd."""
    return index.clamp(0, size - 1)


def mirror(index: Tensor, size: int) -> Tensor:
    """Map indices beyond the border to the image mirrored, outermost pixel twice: cba|abcd|dcb."""
    beyond = torch.where(index >= size, 2 * size - 1 - index, index)
    return torch.where(index < 0, -index - 1, beyond)


def mirror_inside(index: Tensor, size: int) -> Tensor:
    """Map indices beyond the border to the image mirrored, outermost pixel once: dcb|abcd|cba."""
    beyond = torch.where(index >= size, 2 * (size - 1) - index, index)
    return torch.where(index < 0, -index, beyond)


def padded(x: Tensor, width: int, border: Border) -> Tensor:
    """Pad (n, C, H, W) images to (n, C, H + 2 width, W + 2 width)."""
    height, width_ = x.shape[2:]
    rows = border(torch.arange(-width, height + width), height)
    columns = border(torch.arange(-width, width_ + width), width_)
    return x[:, :, rows][..., columns]


def gaussian(x: Tensor, sigma: tuple[float, float], truncate: float, border: Border) -> Tensor:
    """Apply a Gaussian filter with one sigma, in pixels, for each direction.

    Args:
        x: images.
        sigma: vertical and horizontal standard deviation.
        truncate: the kernel ends at this many standard deviations.
        border: what lies outside the image.
    """
    for axis, deviation in enumerate(sigma):
        radius = int(truncate * deviation + 0.5)
        size = x.shape[2 + axis]
        indices = border(torch.arange(-radius, size + radius), size)
        distances = torch.arange(-radius, radius + 1, dtype=torch.float64)
        weights = torch.exp(-0.5 * (distances / deviation) ** 2)
        wide = x.index_select(2 + axis, indices)
        x = torch.zeros_like(x)
        # ten times faster than F.conv2d here
        for i, weight in enumerate((weights / weights.sum()).tolist()):
            x.add_(wide.narrow(2 + axis, i, size), alpha=weight)
    return x


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Convolve every channel with one odd, square kernel, by FFT.

    The border is :func:`mirror_inside`.

    Against a direct convolution in double precision the error is about 1e-6, at a tenth of the time
    for the 17 x 17 and 21 x 21 kernels of defocus blur.
    """
    side = len(kernel)
    wide = padded(x, side // 2, mirror_inside)
    shape = [next_fast_len(size, real=True) for size in wide.shape[2:]]
    product = torch.fft.rfft2(wide, s=shape) * torch.fft.rfft2(kernel.to(x.dtype), s=shape)
    whole: Tensor = torch.fft.irfft2(product, s=shape)
    return whole[..., side - 1 : side - 1 + x.shape[2], side - 1 : side - 1 + x.shape[3]]


def magnified(x: Tensor, factor: float) -> Tensor:
    """Magnify the middle of an image linearly to the size of the whole.

    By rounding it becomes a little larger.
    """
    height, width = x.shape[2:]
    crop_height = math.ceil(height / factor)
    crop_width = math.ceil(width / factor)
    top = (height - crop_height) // 2
    left = (width - crop_width) // 2
    middle = x[..., top : top + crop_height, left : left + crop_width]
    out = [round(crop_height * factor), round(crop_width * factor)]
    return F.interpolate(middle, size=out, mode="bilinear", align_corners=True)


def motion(x: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Blur each image along a direction of its own: a half Gaussian trail of 2 radius + 1 pixels.

    Args:
        x: images.
        radius: half the length of the trail.
        sigma: how fast it fades, in pixels.
        angles: (n,) directions in degrees.
    """
    length = 2 * radius + 1
    weights = torch.exp(-0.5 * (torch.arange(length, dtype=torch.float64) / sigma) ** 2)
    weights /= weights.sum()
    wide = padded(x, length - 1, edge)
    height, width = x.shape[2:]
    out = torch.zeros_like(x)
    for image, source, angle in zip(out, wide, angles.double().tolist(), strict=True):
        sine = math.sin(math.radians(angle))
        cosine = math.cos(math.radians(angle))
        for i, weight in enumerate(weights.tolist()):
            top = length - 1 + math.ceil(i * sine - 0.5)
            left = length - 1 + math.ceil(i * cosine - 0.5)
            image.add_(source[:, top : top + height, left : left + width], alpha=weight)
    return out


@lru_cache(maxsize=8)
def disk(radius: int, softness: float) -> Tensor:
    """Build a disk of ``radius`` pixels whose sum is 1.

    Its rim is softened by a Gaussian of ``softness`` pixels.
    """
    reach, soft = (8, 1) if radius <= 8 else (radius, 2)
    line = torch.arange(-reach, reach + 1)
    flat = (line[:, None] ** 2 + line**2 <= radius**2).double()
    distances = torch.arange(-soft, soft + 1, dtype=torch.float64)
    rim = torch.exp(-0.5 * (distances / softness) ** 2)
    rim = (rim / rim.sum())[:, None]
    wide = padded((flat / flat.sum())[None, None], soft, mirror_inside)
    return F.conv2d(wide, (rim * rim.T)[None, None])[0, 0]
