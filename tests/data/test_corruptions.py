"""Each corruption against the maintained package of its authors, given the same random numbers.

``corruptions_reference.npz`` holds that package's output, recorded by
``make_corruption_reference.py``. Functions here draw everything from a ``RandomNumbers``;
:class:`Replay` hands them the numbers that the package drew from NumPy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.data.transforms.corruptions import (
    CORRUPTIONS,
    RandomNumbers,
    corrupt,
    edge,
    gaussian,
    mirror,
    mirror_inside,
    motion,
    padded,
)
from tests.scripts import script

SEED = 7
DRAWS_NOTHING = (
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
)
#: mean absolute difference in gray levels; whole gray levels are cut, so single precision is off by
#: one now and then. JPEG also depends on the version of the decoder.
TOLERANCE = {**dict.fromkeys(CORRUPTIONS, 0.03), "defocus_blur": 0.06, "jpeg_compression": 0.5}


class Replay(RandomNumbers):
    """The numbers that the package draws for one image, whose arrays are (H, W, 3), from NumPy's
    old generator.
    """

    def __init__(self, seed: int) -> None:
        self.legacy, self.modern = np.random.RandomState(seed), np.random.default_rng(seed)

    def normal(self, *shape: int) -> Tensor:
        return _channels_first(self.legacy.normal(size=_channels_last(shape)), shape).float()

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        if _channels_last(shape) != shape:  # only impulse noise, which scikit-image draws
            return _channels_first(self.modern.random(_channels_last(shape)), shape)
        return _channels_first(self.legacy.uniform(low, high, shape), shape).float()

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.from_numpy(self.legacy.randint(low, high, shape))

    def poisson(self, rates: Tensor) -> Tensor:
        drawn = self.legacy.poisson(rates[0].permute(1, 2, 0).double().numpy())
        return _channels_first(drawn, tuple(rates.shape)).float()


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[2:], 3) if len(shape) == 4 and shape[1] == 3 else shape


def _channels_first(array: np.ndarray, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.from_numpy(np.asarray(array))
    return tensor.permute(2, 0, 1)[None] if _channels_last(shape) != shape else tensor


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("corruptions_reference.npz")) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def images(reference: dict[str, np.ndarray]) -> Tensor:
    """(2, 3, 64, 64) pieces of photographs."""
    return torch.from_numpy(reference["images"]).permute(0, 3, 1, 2)


def _difference(ours: Tensor, theirs: np.ndarray, every: int) -> float:
    grid = ours[0].permute(1, 2, 0).numpy()[::every, ::every]
    assert grid.shape == theirs.shape
    return float(np.abs(grid.astype(float) - theirs).mean())


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("severity", [1, 3, 5])
def test_equals_recorded_output_at_64_pixels(
    name: str, severity: int, images: Tensor, reference: dict[str, np.ndarray]
) -> None:
    ours = corrupt(images[:1], name, severity, Replay(SEED))
    assert _difference(ours, reference[f"{name}-64-{severity}"], 4) <= TOLERANCE[name]
    assert (
        _difference(images[:1], reference[f"{name}-64-{severity}"], 4) > 1
    )  # the corruption does something


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_equals_recorded_output_at_224_pixels(
    name: str, images: Tensor, reference: dict[str, np.ndarray]
) -> None:
    large = images[:1].repeat_interleave(4, 2).repeat_interleave(4, 3)[..., :224, :224]
    assert (
        _difference(corrupt(large, name, 3, Replay(SEED)), reference[f"{name}-224-3"], 16)
        <= TOLERANCE[name]
    )


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in DRAWS_NOTHING])
@pytest.mark.parametrize("severity", [1, 5])
def test_own_draws_have_the_moments_of_the_recorded_ones(
    name: str, severity: int, images: Tensor, reference: dict[str, np.ndarray]
) -> None:
    """Mean and standard deviation over 256 images; the recorded ones are over 48, hence the margin
    of two to seven gray levels for those whose brightness varies as a whole from draw to draw
    (frost's standard error alone is 3).
    """
    ours = corrupt(images.repeat(128, 1, 1, 1), name, severity, RandomNumbers(3)).float()
    mean, spread = reference[f"{name}-moments-{severity}"]
    margin = 7 if name in ("frost", "fog", "snow") else 1
    assert ours.mean().item() == pytest.approx(mean, abs=margin)
    assert ours.flatten(1).std(1).mean().item() == pytest.approx(spread, abs=margin)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_same_seed_same_images_and_others_differ(name: str, images: Tensor) -> None:
    first, again, other = (corrupt(images, name, 2, RandomNumbers(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name in DRAWS_NOTHING)


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in DRAWS_NOTHING])
def test_equal_images_of_a_batch_get_draws_of_their_own(name: str, images: Tensor) -> None:
    one, two = corrupt(images[:1].repeat(2, 1, 1, 1), name, 3, RandomNumbers(0))
    assert not torch.equal(one, two)


@pytest.mark.parametrize("name", DRAWS_NOTHING)
def test_images_of_a_batch_do_not_touch_each_other(name: str, images: Tensor) -> None:
    together = corrupt(images, name, 3, RandomNumbers(0))
    apart = torch.cat([corrupt(images[i : i + 1], name, 3, RandomNumbers(0)) for i in range(2)])
    assert (together.int() - apart.int()).abs().max() <= 1  # sums of a batch may round otherwise


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(32, 32), (33, 50), (80, 40)])
def test_small_and_oblong_images(name: str, shape: tuple[int, int], images: Tensor) -> None:
    x = images.repeat(1, 1, 2, 1)[..., : shape[0], : shape[1]]
    for severity in (1, 5):
        out = corrupt(x, name, severity, RandomNumbers(0))
        assert out.shape == x.shape and out.dtype == torch.uint8
        assert not torch.equal(out, x)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("level", [0, 255])
def test_black_and_white_images(name: str, level: int) -> None:
    """Images of one color stay so under what only moves or averages pixels; nothing divides by
    zero.
    """
    x = torch.full((1, 3, 40, 40), level, dtype=torch.uint8)
    out = corrupt(x, name, 3, RandomNumbers(0))
    if name in (
        "defocus_blur",
        "glass_blur",
        "motion_blur",
        "zoom_blur",
        "contrast",
        "elastic_transform",
        "pixelate",
    ):
        assert torch.equal(out, x)
    if name == "brightness":
        assert (out == min(255, int(0.3 * 255) + level)).all()


def test_severities_get_stronger(images: Tensor) -> None:
    """The signal that a linear map can restore shrinks with severity, for those without random
    brightness.
    """
    x = images.float().flatten()
    for name in (
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "defocus_blur",
        "contrast",
        "jpeg_compression",
    ):
        errors = [
            (corrupt(images, name, s, RandomNumbers(0)).float().flatten() - x).square().mean()
            for s in range(1, 6)
        ]
        assert errors == sorted(errors)


def test_borders() -> None:
    row = torch.tensor([[[[1.0, 2.0, 3.0]]]]).expand(1, 1, 3, 3)
    assert padded(row, 2, edge)[0, 0, 0].tolist() == [1, 1, 1, 2, 3, 3, 3]
    assert padded(row, 2, mirror)[0, 0, 0].tolist() == [2, 1, 1, 2, 3, 3, 2]
    assert padded(row, 2, mirror_inside)[0, 0, 0].tolist() == [3, 2, 1, 2, 3, 2, 1]


def test_gaussian_filter_is_that_of_scipy() -> None:
    from scipy.ndimage import gaussian_filter

    x = np.random.default_rng(0).random((20, 30))
    ours = gaussian(torch.from_numpy(x)[None, None], (1.3, 2.1), 3.0, mirror)[0, 0]
    np.testing.assert_allclose(
        ours, gaussian_filter(x, (1.3, 2.1), mode="reflect", truncate=3.0), atol=1e-12
    )


def test_motion_trail_of_a_point() -> None:
    """Angle 0 smears a point to the left: weights exp(-i^2 / 2) for i = 0, 1, 2 over their sum,
    1.74186.
    """
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 2, 3] = 1
    row = motion(x, 1, 1.0, torch.tensor([0.0]))[0, 0, 2]
    expected = torch.tensor([0.0, 0.135335, 0.606531, 1.0, 0.0]) / 1.741866
    torch.testing.assert_close(row, expected, atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore")  # those of the package and of what it drags in
@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_equals_the_package_itself(severity: int, images: Tensor) -> None:
    pytest.importorskip("imagecorruptions", reason="needs pip install -e .[oracle]")
    made = script(Path(__file__).with_name("make_corruption_reference.py"))
    for name in CORRUPTIONS:
        for seed in (0, 1):
            theirs = made.oracle(images[1].permute(1, 2, 0).numpy(), name, severity, seed)
            assert (
                _difference(corrupt(images[1:], name, severity, Replay(seed)), theirs, 1)
                <= TOLERANCE[name]
            ), name
