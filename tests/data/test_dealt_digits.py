"""RotatedMNIST and ColoredMNIST as DomainBed makes them: which image goes where, and what becomes
of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, functional

from dgbench.data.datasets.base_images import IMAGES, BaseImages, load_base_images
from dgbench.data.datasets.domainbed_digits import ColoredMNIST, DealtDigits, RotatedMNIST
from dgbench.data.transforms.paint import rotated
from tests.complaints import refused

ANGLES = [0, 15, 30, 45, 60, 75]
COMMON: dict[str, Any] = {
    "base": "digits", "data_dir": "nowhere", "val_fraction": 0.2, "data_seed": 0, "split_seed": 0,
}  # fmt: skip
REAL = Path(os.environ.get("DGBENCH_DATA_DIR", "nowhere"))


def turned(**changes: Any) -> RotatedMNIST:
    return RotatedMNIST(**{**COMMON, "name": "rotated_mnist", "angles": ANGLES, **changes})


def colored(**changes: Any) -> ColoredMNIST:
    keys = {"name": "cmnist_domainbed", "given": [0.1, 0.2, 0.9], "label_noise": 0.25}
    return ColoredMNIST(**{**COMMON, **keys, **changes})


def dealt(options: DealtDigits, base: BaseImages, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The environments of these base images."""
    monkeypatch.setitem(IMAGES, "digits", len(base.images))
    monkeypatch.setattr("dgbench.data.datasets.domainbed_digits.load_base_images", lambda *_: base)
    return options.build()


def own(environments: Any, env: str) -> np.ndarray:
    """Positions of all images of an environment, in the order in which they were dealt."""
    return np.sort(
        np.concatenate([environments.table.subset(env, part) for part in ("train", "val")])
    )


def sources(environments: Any) -> torch.Tensor:
    """Positions of all images among the base images."""
    return torch.tensor(environments.catalog.names)


@pytest.fixture
def synthetic() -> BaseImages:
    """70 pictures with value (7 row + 13 column + 31 k) mod 256, of class k mod 10."""
    k, row, column = torch.meshgrid(
        torch.arange(70), torch.arange(28), torch.arange(28), indexing="ij"
    )
    images = ((7 * row + 13 * column + 31 * k) % 256).to(torch.uint8)[:, None]
    return BaseImages("digits", images, torch.arange(70) % 10, peak=255)


# ---- numbers of DomainBed itself, with torch's generator seeded with 0


def test_rotated_as_domainbed(synthetic: BaseImages, monkeypatch: pytest.MonkeyPatch) -> None:
    environments = dealt(turned(), synthetic, monkeypatch)
    assert list(environments.info.given) == ["0", "15", "30", "45", "60", "75"]
    places = [own(environments, env) for env in environments.info.given]
    assert [len(place) for place in places] == [12, 12, 12, 12, 11, 11]
    firsts = np.array([place[0] for place in places])
    assert environments.catalog.names_at(firsts) == ["4", "28", "31", "29", "23", "9"]
    x, y = environments.store.gather(torch.from_numpy(firsts))
    assert y.tolist() == [4, 8, 1, 9, 3, 9]
    pixels = (x * 255).round().long()
    assert pixels.sum((1, 2, 3)).tolist() == [99232, 91367, 75924, 78328, 80004, 92835]
    at = pixels[:, 0, [0, 14, 5, 27], [0, 14, 20, 3]].tolist()
    assert [at[i] for i in (0, 1, 2, 5)] == [
        [124, 148, 163, 96],
        [0, 122, 178, 10],
        [0, 214, 50, 0],
        [0, 36, 194, 0],
    ]


def test_colored_as_domainbed(synthetic: BaseImages, monkeypatch: pytest.MonkeyPatch) -> None:
    environments = dealt(colored(), synthetic, monkeypatch)
    assert list(environments.info.given) == ["0.10", "0.20", "0.90"]
    places = [own(environments, env) for env in environments.info.given]
    assert [len(place) for place in places] == [24, 23, 23]
    assert environments.catalog.names_at(places[0][:3]) == [
        "4",
        "29",
        "5",
    ]  # places 0, 3, 6 of 4 28 31 29 23 9 5 17
    x, y = environments.store.gather(torch.from_numpy(places[0][:12]))
    assert y.tolist() == [1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0]
    channel = torch.tensor([1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    index = torch.arange(12)
    assert torch.equal(
        x[index, channel] * 255, synthetic.images[sources(environments)[places[0][:12]], 0].float()
    )
    assert not x[index, 1 - channel].any()


def test_the_draws_continue_from_environment_to_environment(
    synthetic: BaseImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One generator: the permutation, then for each environment n numbers for labels and n for
    colors.
    """
    environments = dealt(colored(), synthetic, monkeypatch)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(70, generator=generator)
    for i, (env, e) in enumerate(zip(environments.info.given, (0.1, 0.2, 0.9), strict=True)):
        classes = order[i::3] % 10
        label = (classes < 5) != (torch.rand(len(classes), generator=generator) < 0.25)
        color = label != (torch.rand(len(classes), generator=generator) < e)
        x, y = environments.store.gather(torch.from_numpy(own(environments, env)))
        assert torch.equal(y, label.long())
        assert torch.equal(x.sum((2, 3)).argmax(1), color.long())


# ---- turning


@pytest.mark.parametrize("angle", [*ANGLES, -15, 90, 200.5])
def test_turned_as_torchvision_turns_pillow_pictures(angle: float) -> None:
    images = torch.randint(
        0, 256, (200, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    assert torch.equal(rotated(images, angle), reference(images, angle))


@pytest.mark.parametrize("angle", [15, 30, 45])
def test_other_sides(angle: float) -> None:
    images = torch.randint(
        0, 256, (50, 1, 9, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    assert torch.equal(rotated(images, angle), reference(images, angle))


def reference(images: torch.Tensor, angle: float) -> torch.Tensor:
    """DomainBed's line, picture by picture."""
    pictures = [
        functional.rotate(
            Image.fromarray(image.numpy()),
            angle,
            fill=(0,),
            interpolation=InterpolationMode.BILINEAR,
        )
        for image in images[:, 0]
    ]
    return torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))[:, None]


@pytest.mark.thorough
@pytest.mark.mnist
@pytest.mark.skipif(not (REAL / "MNIST" / "raw").is_dir(), reason="no MNIST in DGBENCH_DATA_DIR")
def test_mnist() -> None:
    """Sizes, the first images of seed 0, and 1,000 real images of each angle pixel for pixel."""
    environments = turned(base="mnist", data_dir=str(REAL)).build()
    base = load_base_images("mnist", REAL, 28)
    places = [own(environments, env) for env in environments.info.given]
    assert [len(place) for place in places] == [11667] * 4 + [11666] * 2
    assert [environments.catalog.names_at(place[:1])[0] for place in places[:4]] == [
        "26044",
        "34615",
        "62699",
        "39172",
    ]
    for angle, place in zip(ANGLES, places, strict=True):
        some = sources(environments)[place[:1000]]
        x, y = environments.store.gather(torch.from_numpy(place[:1000]))
        assert torch.equal((x * 255).round().to(torch.uint8), reference(base.images[some], angle))
        assert torch.equal(y, base.classes[some])
    sizes = {env: counts for env, counts in environments.info.counts.items() if env in ("0", "75")}
    assert sizes == {
        "0": {"train": 9334, "val": 2333, "test": 0},
        "75": {"train": 9333, "val": 2333, "test": 0},
    }


# ---- the digits that need no network, splits and roles


def test_digits_of_scikit_learn() -> None:
    """1,797 = 3 * 300 + 3 * 299 images of 8 x 8; 16 becomes 1, and angle 0 changes nothing."""
    environments = turned().build()
    assert environments.store.image == (1, 8, 8) and environments.info.n_classes == 10
    places = [own(environments, env) for env in environments.info.given]
    assert [len(place) for place in places] == [300, 300, 300, 299, 299, 299]
    assert sorted(sources(environments).tolist()) == list(range(1797))
    x, _ = environments.store.gather(torch.from_numpy(places[0]))
    base = load_base_images("digits", "nowhere", 28).images[sources(environments)[places[0]]]
    assert torch.allclose(x, base.float() / 16, atol=0.5 / 255 + 1e-6)
    assert x.max() == 1


def test_seeds() -> None:
    first, split, data = (
        turned(**seeds).build() for seeds in ({}, {"split_seed": 1}, {"data_seed": 1})
    )
    assert torch.equal(sources(first), sources(split)) and torch.equal(
        first.store.values, split.store.values
    )
    assert not np.array_equal(first.table.subset("15", "val"), split.table.subset("15", "val"))
    assert np.array_equal(first.table.subset("15", "val"), data.table.subset("15", "val"))
    assert not torch.equal(sources(first), sources(data))


def test_a_held_out_environment_is_tested_on_its_in_split() -> None:
    environments = turned().build()
    recipes = environments.table.error_recipes(
        False, ["train", "val", "test"], training=["15", "30", "45", "60", "75"]
    )
    found = {(recipe.env, recipe.subset): recipe.mixture for recipe in recipes}
    assert found["0", "test"] == {"train/0": 1.0}
    assert ("15", "test") not in found and ("0", "train") not in found
    assert {env for env, subset in found if subset == "val"} == set(environments.info.given)
    assert len(environments.eval_sets(["train/0"])["train/0"].indices) == 240


@pytest.mark.parametrize(
    ("make", "changes", "said"),
    [
        (turned, {"angles": "15"}, r"dataset\.angles=15.*list.*finite numbers"),
        (turned, {"angles": [15]}, r"dataset\.angles=\[15\].*two.*more different"),
        (turned, {"angles": [15, 15.0]}, r"dataset\.angles=\[15,15\.0\].*two.*more different"),
        (turned, {"data_seed": 2**64}, r"is not below 2\^64"),
        (turned, {"val_fraction": 0.001}, "environment 0.*300 images, 0.*val"),
        (turned, {"base": "letters"}, "dataset.base=letters is unknown"),
        (colored, {"given": [0.1, 1.5]}, r"dataset\.given.*1\.5.*number.*\[0, 1\]"),
        (colored, {"given": [0.1, 0.1]}, "two.*more different"),
        (colored, {"given": 0.1}, "dataset.given=0.1 is no list"),
        (colored, {"label_noise": 1}, r"dataset\.label_noise=1 is not in \[0, 1\)"),
        (colored, {"name": "a/b"}, "folder"),
    ],
)
def test_wrong_values_in_one_line(make: Any, changes: dict[str, Any], said: str) -> None:
    with refused(said):
        make(**changes).describe()
