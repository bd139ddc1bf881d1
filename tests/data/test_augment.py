"""Augmentation of a whole minibatch against torchvision, image by image,
with the same parameters.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import functional as tv

from dgbench.data.transforms import augment
from dgbench.data.transforms.augment import N_UNIFORM, TRIES, Augmentation
from dgbench.data.transforms.values import AugmentationScheme

DOMAINBED: dict[str, Any] = {
    "crop_area": [0.7, 1.0], "crop_aspect": [3 / 4, 4 / 3], "flip": 0.5,
    "brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.3, "grayscale": 0.1,
}  # fmt: skip

UNCHANGED: dict[str, Any] = {
    **dict.fromkeys(DOMAINBED, 0),
    "crop_area": [1, 1],
    "crop_aspect": [1, 1],
}


def scheme(**changes: Any) -> Augmentation:
    return Augmentation(AugmentationScheme(**{**DOMAINBED, **changes}))


@pytest.fixture(scope="module")
def images() -> Tensor:
    """16 smooth images of 20 x 20 with every kind of color, one gray, one black and one white."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(16, 3, 5, 5, generator=generator)
    found = torch.nn.functional.interpolate(coarse, 20, mode="bilinear")
    found[1] = found[1, :1]
    found[2], found[3] = 0, 1
    return found


@pytest.mark.parametrize(
    ("ours", "theirs", "factors"),
    [
        (augment.brightness, tv.adjust_brightness, (0.0, 0.7, 1.0, 1.3)),
        (augment.contrast, tv.adjust_contrast, (0.0, 0.7, 1.0, 1.3)),
        (augment.saturation, tv.adjust_saturation, (0.0, 0.7, 1.0, 1.3)),
        (augment.hue, tv.adjust_hue, (-0.5, -0.3, 0.0, 0.1, 0.5)),
    ],
)
def test_colors_are_torchvisions(
    images: Tensor, ours: Callable[..., Tensor], theirs: Any, factors: Any
) -> None:
    """In floating point, to 1e-5; each image with its own factor."""
    own = torch.tensor([factors[i % len(factors)] for i in range(16)])
    got = ours(images, own.view(-1, 1, 1, 1))
    for i in range(16):
        torch.testing.assert_close(got[i], theirs(images[i], float(own[i])), rtol=0, atol=1e-5)


def test_gray_is_torchvisions(images: Tensor) -> None:
    torch.testing.assert_close(
        augment.to_gray(images), tv.rgb_to_grayscale(images), rtol=0, atol=1e-6
    )


def test_jitter_in_the_order_of_each_image(images: Tensor) -> None:
    rng = np.random.default_rng(0)
    order = rng.permuted(np.tile(np.arange(4), (16, 1)), axis=1)
    factors = np.column_stack([rng.uniform(0.6, 1.4, (16, 3)), rng.uniform(-0.3, 0.3, 16)])
    changes = [tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue]
    got = augment.color_jitter(images.clone(), factors, order)
    for i in range(16):
        expected = images[i]
        for kind in order[i]:
            expected = changes[kind](expected, float(factors[i, kind]))
        torch.testing.assert_close(got[i], expected, rtol=0, atol=3e-5)


def test_crops_are_torchvisions(images: Tensor) -> None:
    """``resized_crop`` of the float image and of the 8-bit PIL image (half a level),
    then the flip.
    """
    boxes = np.array([[i % 4, (3 * i) % 5, 16 - i % 3, 12 + i % 4] for i in range(16)])
    flipped = np.arange(16) % 3 == 0
    got = augment.resized_crop(images, boxes / 20, flipped)
    eight = (images * 255).round().to(torch.uint8)
    got_eight = augment.resized_crop(eight / 255, boxes / 20, flipped)
    for i in range(16):
        expected = tv.resized_crop(images[i], *boxes[i].tolist(), [20, 20], antialias=True)
        expected = tv.hflip(expected) if flipped[i] else expected
        torch.testing.assert_close(got[i], expected, rtol=0, atol=1e-5)
        pil = tv.resized_crop(tv.to_pil_image(eight[i]), *boxes[i].tolist(), [20, 20])
        pil = tv.hflip(pil) if flipped[i] else pil
        assert (got_eight[i] * 255 - tv.pil_to_tensor(pil)).abs().max() < 1.51, (
            "PIL rounds after each of its two passes"
        )


def test_boxes_are_those_of_the_ten_tries() -> None:
    """torchvision's own loop, fed with the same uniform numbers; wide and tall files take the
    central crop.
    """
    rng = np.random.default_rng(0)
    sizes = np.array([[20, 20], [30, 40], [10, 100], [100, 10], [227, 227], [1, 1]] * 200)
    tries, place = rng.random((len(sizes), TRIES, 2)), rng.random((len(sizes), 2))
    got = scheme().boxes(tries, place, sizes)
    central = 0
    for i, (height, width) in enumerate(sizes):
        expected = None
        for u, v in tries[i]:
            area = height * width * (0.7 + 0.3 * u)
            aspect = np.exp(np.log(3 / 4) + v * (np.log(4 / 3) - np.log(3 / 4)))
            w, h = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                expected = [
                    int(place[i, 0] * (height - h + 1)),
                    int(place[i, 1] * (width - w + 1)),
                    h,
                    w,
                ]
                break
        if expected is None:
            central += 1
            w, h = (
                (round(height * 4 / 3), height)
                if width > height
                else (width, round(width / (3 / 4)))
            )
            expected = [(height - h) // 2, (width - w) // 2, h, w]
        assert got[i].tolist() == expected
    assert central >= 400


@pytest.mark.parametrize("size", [(20, 20), (15, 32)])
def test_parameters_are_distributed_as_torchvisions(size: tuple[int, int]) -> None:
    """Mean and spread of 3,000 crops and factors of each, within four standard errors."""
    rng, n = np.random.default_rng(1), 3000
    torch.manual_seed(1)
    random.seed(1)
    blank = Image.new("RGB", size[::-1])
    crop = transforms.RandomResizedCrop(20, scale=(0.7, 1.0))
    theirs = np.array(
        [crop.get_params(blank, [0.7, 1.0], [3 / 4, 4 / 3]) for _ in range(n)], dtype=float
    )
    uniform = scheme().draw(rng, n)
    ours = scheme().boxes(
        uniform[:, : 2 * TRIES].reshape(n, TRIES, 2), uniform[:, 20:22], np.tile(size, (n, 1))
    )
    for column in range(4):
        spread = np.sqrt(ours[:, column].var() / n + theirs[:, column].var() / n)
        assert abs(ours[:, column].mean() - theirs[:, column].mean()) <= 4 * spread + 1e-9
        assert (
            abs(ours[:, column].std() - theirs[:, column].std())
            <= 0.1 * theirs[:, column].std() + 1e-9
        )
    factors = scheme(brightness=1.5).factors(rng.random((n, 4)))
    assert factors.min(0) == pytest.approx([0.0, 0.7, 0.7, -0.3], abs=0.01)
    assert factors.max(0) == pytest.approx([2.5, 1.3, 1.3, 0.3], abs=0.01)


def test_the_whole_chain(images: Tensor) -> None:
    """One image at a time through torchvision's functions, with the parameters read off the same
    random numbers.
    """
    own = scheme(grayscale=0.5)
    uniform = own.draw(np.random.default_rng(3), 16)
    sizes = np.tile([40, 30], (16, 1))
    got = own(images.clone(), uniform, sizes)
    changes = [tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue]
    for i in range(16):
        u = uniform[i]
        box = own.boxes(u[None, :20].reshape(1, 10, 2), u[None, 20:22], sizes[:1])[0]
        shares = box / [40, 30, 40, 30]
        x = augment.resized_crop(images[i : i + 1], shares[None], np.array([False]))[0]
        x = tv.hflip(x) if u[22] < 0.5 else x
        for kind in np.argsort(u[27:31]):
            spread = 0.6 * u[23 + kind] - 0.3
            x = changes[kind](x, float(spread if kind == 3 else 1 + spread))
        x = tv.rgb_to_grayscale(x, 3) if u[31] < 0.5 else x
        torch.testing.assert_close(got[i], x, rtol=0, atol=1e-4)
    assert N_UNIFORM == 32


def test_an_image_does_not_depend_on_its_batch(images: Tensor) -> None:
    own = scheme()
    uniform = own.draw(np.random.default_rng(3), 16)
    sizes = np.tile([20, 20], (16, 1))
    together = own(images.clone(), uniform, sizes)
    for part in (slice(0, 1), slice(3, 10)):
        alone = own(images[part].clone(), uniform[part], sizes[part])
        torch.testing.assert_close(alone, together[part], rtol=0, atol=1e-6)


def test_nothing_is_nothing(images: Tensor) -> None:
    """No crop of square files, no flip, no jitter, no gray: the images themselves."""
    plain = scheme(**UNCHANGED)
    uniform = plain.draw(np.random.default_rng(0), 16)
    got = plain(images.clone(), uniform, np.tile([20, 20], (16, 1)))
    torch.testing.assert_close(got, images, rtol=0, atol=1e-5)


def test_crops_in_the_resized_square(images: Tensor) -> None:
    """As if every file had been such a square: the size of a file plays no part."""
    uniform = scheme().draw(np.random.default_rng(0), 16)
    files, squares = np.tile([10, 40], (16, 1)), np.tile([20, 20], (16, 1))
    wanted = scheme()(images.clone(), uniform, squares)
    assert torch.equal(scheme(crop_in="square")(images.clone(), uniform, files), wanted)
    assert not torch.allclose(scheme()(images.clone(), uniform, files), wanted)


def test_no_crop_of_files_that_are_no_squares(images: Tensor) -> None:
    """Area 1 and aspect 1 is the whole resized square; in the pixels of the file it is the central
    square.
    """
    uniform, files = scheme().draw(np.random.default_rng(0), 16), np.tile([10, 40], (16, 1))
    whole = scheme(**UNCHANGED, crop_in="square")
    torch.testing.assert_close(whole(images.clone(), uniform, files), images, rtol=0, atol=1e-5)
    central = scheme(**UNCHANGED)
    assert central.boxes(np.zeros((1, 10, 2)), np.zeros((1, 2)), files[:1]).tolist() == [
        [0, 15, 10, 10]
    ]
