"""Spawrious and SVIRO from small trees in the published layouts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from dgbench.data.datasets import readers as spawrious
from dgbench.errors import ConfigError, DataError
from tests.data.layouts import contents, image, made
from tests.studies import composed

LOCATIONS = ("beach", "desert", "dirt", "jungle", "mountain", "snow")


@pytest.fixture(scope="module")
def dogs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve empty images in every folder, made in the reverse order of their names, and a file
    that is none.
    """
    root = tmp_path_factory.mktemp("dogs") / "spawrious224"
    for folder in (0, 1):
        for location in LOCATIONS:
            for breed in spawrious.BREEDS:
                place = root / str(folder) / location / breed
                place.mkdir(parents=True)
                for i in reversed(range(12)):
                    (place / f"{i:02}.png").touch()
                (place / "notes.txt").touch()
    return root


def places(rows: list[spawrious.Row]) -> dict[tuple[str, str, str], int]:
    """(environment, folder/location, class) -> images."""
    assert len({path for path, *_ in rows}) == len(rows), "no image twice"
    assert all(path.split("/")[2] == breed and subset is None for path, _, breed, subset in rows)
    return dict(
        Counter((env, "/".join(path.split("/")[:2]), breed) for path, env, breed, _ in rows)
    )


def test_one_to_one(dogs: Path) -> None:
    """Of 10 images, 9 (97 %, rounded down) or 8 (87 %) are in the breed's location, the rest in the
    filler's.
    """
    rows = spawrious.spawrious(dogs, "o2o_easy", per_class=10)
    train = {"bulldog": "desert", "dachshund": "jungle", "labrador": "dirt", "corgi": "snow"}
    test = {"bulldog": "dirt", "dachshund": "snow", "labrador": "desert", "corgi": "jungle"}
    assert places(rows) == {
        **{("SC_group_1", f"0/{location}", breed): 9 for breed, location in train.items()},
        **{("SC_group_1", "0/beach", breed): 1 for breed in train},
        **{("SC_group_2", f"1/{location}", breed): 8 for breed, location in train.items()},
        **{("SC_group_2", "1/beach", breed): 2 for breed in train},
        **{
            ("Test", f"{folder}/{location}", breed): 12
            for breed, location in test.items()
            for folder in (0, 1)
        },
    }
    firsts = [
        path for path, env, *_ in rows if env == "SC_group_2" and path.startswith("1/snow/corgi")
    ]
    assert firsts == [f"1/snow/corgi/{i:02}.png" for i in range(8)], "the first by name"


def test_many_to_many(dogs: Path) -> None:
    rows = spawrious.spawrious(dogs, "m2m_hard", per_class=10)
    groups = {
        "SC_group_1": {
            "bulldog": "dirt",
            "dachshund": "jungle",
            "labrador": "snow",
            "corgi": "beach",
        },
        "SC_group_2": {
            "bulldog": "jungle",
            "dachshund": "dirt",
            "labrador": "beach",
            "corgi": "snow",
        },
    }
    tested = {"bulldog": ("snow", "beach"), "dachshund": ("snow", "beach")}
    tested |= {"labrador": ("dirt", "jungle"), "corgi": ("dirt", "jungle")}
    assert places(rows) == {
        **{
            (env, f"0/{location}", breed): 10
            for env, of in groups.items()
            for breed, location in of.items()
        },
        **{
            ("Test", f"0/{location}", breed): 12
            for breed, both in tested.items()
            for location in both
        },
    }


#: train and test locations of bulldog, dachshund, labrador, corgi in SC_group_1 and Test (folder
#: 0), as published
PUBLISHED = {
    "o2o_easy": ("desert jungle dirt snow", "dirt snow desert jungle", "beach"),
    "o2o_medium": ("mountain beach dirt jungle", "jungle dirt beach snow", "desert"),
    "o2o_hard": ("jungle mountain snow desert", "mountain snow desert jungle", "beach"),
    "m2m_easy": ("desert mountain dirt jungle", "dirt jungle mountain desert", ""),
    "m2m_medium": ("beach snow mountain desert", "desert mountain beach snow", ""),
    "m2m_hard": ("dirt jungle snow beach", "snow beach dirt jungle", ""),
}


@pytest.mark.parametrize("variant", PUBLISHED)
def test_every_variant(dogs: Path, variant: str) -> None:
    train, test, filler = PUBLISHED[variant]
    found = places(spawrious.spawrious(dogs, variant, per_class=10))
    own = {
        breed: place for (env, place, breed), n in found.items() if env == "SC_group_1" and n > 5
    }
    assert own == dict(
        zip(spawrious.BREEDS, (f"0/{place}" for place in train.split()), strict=True)
    )
    assert {place for (env, place, _), n in found.items() if env == "SC_group_1" and n < 5} == (
        {f"0/{filler}"} if filler else set()
    )
    for breed, place in zip(spawrious.BREEDS, test.split(), strict=True):
        assert found["Test", f"0/{place}", breed] == 12
    of_tests = Counter(breed for env, _, breed in found if env == "Test")
    assert of_tests == dict.fromkeys(spawrious.BREEDS, 2)


def test_published_numbers() -> None:
    """3,072 and 96, 2,756 and 412 of 3,168."""
    parts = list(
        spawrious._one_to_one(
            spawrious.SPAWRIOUS_VARIANTS["o2o_easy"], "beach", spawrious.PER_CLASS
        )
    )
    counts = {
        (env, location): n
        for env, _, location, breed, n in parts
        if breed == "bulldog" and env != "Test"
    }
    assert counts == {
        ("SC_group_1", "desert"): 3072, ("SC_group_1", "beach"): 96,
        ("SC_group_2", "desert"): 2756, ("SC_group_2", "beach"): 412,
    }  # fmt: skip


def test_folders_that_will_not_do(dogs: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^dataset\.reader\.variant=o2o is unknown; choose o2o_easy, .*$"
    ):
        spawrious.spawrious(dogs, "o2o")
    with pytest.raises(
        DataError, match=r"0/desert/bulldog holds 12 images, fewer than the 3072 of this variant; "
    ):
        spawrious.spawrious(dogs, "o2o_easy")
    with pytest.raises(DataError, match=r"0/desert/bulldog cannot be read"):
        spawrious.spawrious(dogs.parent, "o2o_easy")


def test_as_its_yaml_has_it(tmp_path: Path) -> None:
    """Test is never augmented, the groups are; the order of environments and classes is the
    published one.
    """
    root = tmp_path / "spawrious224"
    for location in ("desert", "mountain", "dirt", "jungle"):
        for breed in spawrious.BREEDS:
            for i in range(2):
                image(root / "0" / location / breed / f"{i}.png")
    environments = made(
        "spawrious_m2m_easy", root, "+dataset.reader.per_class=2", "dataset.image_size=8"
    )
    assert list(environments.info.given) == ["Test", "SC_group_1", "SC_group_2"]
    assert environments.catalog.classes == ("bulldog", "corgi", "dachshund", "labrador")
    groups = {(env, breed): 2 for env in ("SC_group_1", "SC_group_2") for breed in spawrious.BREEDS}
    assert contents(environments) == {
        **groups,
        **{("Test", breed): 4 for breed in spawrious.BREEDS},
    }
    at = torch.from_numpy(
        np.concatenate(
            [environments.table.subset(env, "train")[:2] for env in environments.info.given]
        )
    )
    noise = environments.store.training_noise(np.random.default_rng(0), 6)
    plain, augmented = (
        environments.store.gather(at)[0],
        environments.store.gather_for_training(at, noise)[0],
    )
    assert torch.equal(augmented[:2], plain[:2])
    assert ((augmented - plain).abs().amax((1, 2, 3)) > 0).tolist() == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("variant", spawrious.SPAWRIOUS_VARIANTS)
def test_every_yaml_names_its_variant(variant: str) -> None:
    dataset = composed(f"dataset=spawrious_{variant}").dataset
    assert (dataset.name, dataset.reader.variant) == (f"spawrious_{variant}", variant)
    assert dataset.split == {"train": ["SC_group_1", "SC_group_2"], "test": ["Test"]}
    assert dataset.environments == ["Test", "SC_group_1", "SC_group_2"]


def test_plain_environments_are_a_list(dogs: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.plain_environments=Test .*list"):
        made("spawrious_o2o_hard", dogs, "dataset.plain_environments=Test")


def test_sviro(tmp_path: Path) -> None:
    """Ten cars in the order of their names; gray pictures get three equal channels."""
    cars = ["zoe", "x5", "tucson", "tiguan", "tesla", "lexus", "i3", "hilux", "escape", "aclass"]
    for car in cars:
        for label in ("0", "3"):
            for i in range(2):
                image(tmp_path / "sviro" / car / label / f"{i}.png", gray=True)
    environments = made("sviro", tmp_path / "sviro")
    assert list(environments.info.given) == sorted(cars)
    assert contents(environments) == {(car, label): 2 for car in cars for label in ("0", "3")}
    pixels = environments.store.pixels.rows(torch.tensor([0]))[0]  # type: ignore[attr-defined]
    assert torch.equal(pixels[:, 0], pixels[:, 1]) and torch.equal(pixels[:, 0], pixels[:, 2])
