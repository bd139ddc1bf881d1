"""FMoW, iWildCam, Camelyon17 and Waterbirds, from small trees in the layouts of WILDS."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dgbench.data.datasets import readers as wilds
from dgbench.data.environments import Environments
from dgbench.data.minibatches import RunOrder
from dgbench.errors import ConfigError, DataError
from tests.data.layouts import contents, image, made
from tests.data.test_ood_bench import camelyon  # noqa: F401  (a fixture)


def write(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def attributes(environments: Environments, path: str) -> dict[str, str]:
    """What is known of an image."""
    catalog = environments.catalog
    position = list(catalog.names or ()).index(path)
    return {name: values[position] for name, values in catalog.attributes.items()}


# ---- Camelyon17 as DomainBed has it


def test_camelyon17_wilds(camelyon: Path) -> None:  # noqa: F811
    environments = made("camelyon17_wilds", camelyon)
    assert list(environments.info.given) == [f"hospital_{i}" for i in range(5)]
    assert contents(environments) == {
        (f"hospital_{i}", label): 2 for i in range(5) for label in ("normal", "tumor")
    }
    assert environments.store.augmentation.scheme.crop_in == "square"  # type: ignore[attr-defined]
    assert environments.store.augmentation.scheme.crop_area == [0.7, 1.0]  # type: ignore[attr-defined]


# ---- FMoW

#: country, split; regions by the mapping below: Europe, Africa, Europe, Other, Africa, Asia, ...
FMOW = [
    ("FRA", "seq"), ("NGA", "train"), ("DEU", "val"), ("XKX", "test"), ("NGA", "seq"),
    ("JPN", "test"),
    ("FRA", "train"), ("JPN", "train"), ("XKX", "train"), ("NGA", "val"), ("FRA", "test"),
    ("JPN", "seq"),
]  # fmt: skip


@pytest.fixture
def fmow(tmp_path: Path) -> Path:
    """Twelve images of four countries, three of them sequestered; categories alternate."""
    root = tmp_path / "fmow_v1.1"
    codes = ["name,alpha-2,alpha-3,region", "France,FR,FRA,Europe", "Germany,DE,DEU,Europe"]
    write(root / "country_code_mapping.csv", *codes, "Nigeria,NG,NGA,Africa", "Japan,JP,JPN,Asia")
    lines = ["split,img_filename,category,country_code,timestamp"]
    for i, (country, split) in enumerate(FMOW):
        image(root / "images" / f"rgb_img_{i}.png")
        lines.append(
            f"{split},x_{i}.jpg,{('zoo', 'airport')[i % 2]},{country},20{10 + i}-03-01T00:00:00Z"
        )
    write(root / "rgb_metadata.csv", *lines)
    return root


def test_fmow_regions_in_the_order_of_the_list(fmow: Path) -> None:
    """Europe comes first, in a sequestered row; rows are counted over all, so row 6 is image 6."""
    rows = wilds.fmow(fmow)
    assert [(path, env, label) for path, env, label, *_ in rows] == [
        ("images/rgb_img_1.png", "region_1", "airport"),  # Nigeria
        ("images/rgb_img_2.png", "region_0", "zoo"),  # Germany
        ("images/rgb_img_3.png", "region_2", "airport"),  # not in the mapping
        ("images/rgb_img_5.png", "region_3", "airport"),  # Japan
        ("images/rgb_img_6.png", "region_0", "zoo"),
        ("images/rgb_img_7.png", "region_3", "airport"),
        ("images/rgb_img_8.png", "region_2", "zoo"),
        ("images/rgb_img_9.png", "region_1", "airport"),
        ("images/rgb_img_10.png", "region_0", "zoo"),
    ]
    assert {row[3] for row in rows} == {None}
    assert rows[2][4] == {"region": "Other", "year": "2013"}


def test_fmow(fmow: Path) -> None:
    environments = made("fmow", fmow)
    assert list(environments.info.given) == ["region_0", "region_1", "region_2", "region_3"]
    assert environments.catalog.classes == ("airport", "zoo")
    assert contents(environments) == {
        ("region_0", "zoo"): 3, ("region_1", "airport"): 2, ("region_2", "airport"): 1,
        ("region_2", "zoo"): 1,
        ("region_3", "airport"): 2,
    }  # fmt: skip
    assert attributes(environments, "images/rgb_img_5.png") == {"region": "Asia", "year": "2015"}
    assert environments.store.augmentation.scheme.crop_in == "square"  # type: ignore[attr-defined]


def test_fmow_that_will_not_do(fmow: Path) -> None:
    text = (fmow / "rgb_metadata.csv").read_text()
    write(fmow / "rgb_metadata.csv", text.replace("country_code", "country"))
    with pytest.raises(DataError, match=r"rgb_metadata\.csv.*column 'country_code'.*first line"):
        wilds.fmow(fmow)
    write(fmow / "rgb_metadata.csv", text, "train,x,zoo")
    with pytest.raises(DataError, match=r"rgb_metadata\.csv.*line.*cut short, 'train,x,zoo'.*$"):
        wilds.fmow(fmow)
    (fmow / "country_code_mapping.csv").unlink()
    with pytest.raises(DataError, match=r"country_code_mapping\.csv cannot be read"):
        wilds.fmow(fmow)


# ---- iWildCam

#: split, camera, label
WILDCAM = [
    ("train", 3, 0), ("train", 3, 12), ("train", 5, 0), ("id_val", 3, 0), ("id_test", 5, 12),
    ("id_test", 3, 0),
    ("val", 7, 0), ("val", 7, 12), ("test", 9, 0), ("test", 11, 0), ("test", 9, 12),
    ("test", 11, 101),
]  # fmt: skip


@pytest.fixture
def iwildcam(tmp_path: Path) -> Path:
    root = tmp_path / "iwildcam_v2.0"
    lines = ["split,location_remapped,location,y,category_id,filename,sequence_remapped"]
    for i, (split, location, label) in enumerate(WILDCAM):
        image(root / "train" / f"{i:02}.jpg")
        lines.append(f"{split},{location},{100 + location},{label},{label * 3},{i:02}.jpg,{i}")
    write(root / "metadata.csv", *lines)
    return root


def test_iwildcam_in_the_split_of_wilds(iwildcam: Path) -> None:
    environments = made("iwildcam", iwildcam)
    assert environments.catalog.classes == ("000", "012", "101")
    assert list(environments.info.given) == ["test", "train", "val"]
    sizes = {
        env: [environments.info.counts[env][s] for s in ("train", "val", "test")]
        for env in environments.info.given
    }
    assert sizes == {"train": [3, 1, 2], "val": [0, 2, 0], "test": [0, 0, 4]}
    assert attributes(environments, "train/04.jpg") == {"location": "5", "split": "id_test"}


def test_iwildcam_is_tested_on_all_images_of_the_test_cameras(iwildcam: Path) -> None:
    """WILDS' id_val and id_test for the cameras of train; an environment without images of a subset
    has no row.
    """
    environments = made("iwildcam", iwildcam)
    recipes = environments.table.error_recipes(False, ["train", "val", "test"], training=["train"])
    found = {(recipe.env, recipe.subset): recipe.mixture for recipe in recipes}
    assert found == {
        ("train", "train"): {"train/train": 1.0}, ("train", "val"): {"val/train": 1.0},
        ("train", "test"): {"test/train": 1.0}, ("val", "val"): {"val/val": 1.0},
        ("test", "test"): {"test/test": 1.0},
    }  # fmt: skip
    sets = environments.eval_sets(["test/train", "test/test"])
    paths = {
        name: environments.catalog.names_at(each.indices.numpy()) for name, each in sets.items()
    }
    assert paths["test/train"] == ["train/04.jpg", "train/05.jpg"]
    assert paths["test/test"] == [f"train/{i:02}.jpg" for i in (8, 9, 10, 11)]


def test_an_environment_that_only_judges_is_not_trained_on(iwildcam: Path) -> None:
    with pytest.raises(ConfigError, match=r"^environment test.*training images.*protocol=fixed$"):
        RunOrder(made("iwildcam", iwildcam), ["train", "test"], 1, 0)


def test_iwildcam_by_camera(iwildcam: Path) -> None:
    words = ("dataset.reader.environment=location", "dataset.environments=[location_3,location_9]")
    environments = made("iwildcam", iwildcam, *words)
    assert contents(environments) == {
        ("location_3", "000"): 3, ("location_3", "012"): 1, ("location_9", "000"): 1,
        ("location_9", "012"): 1,
    }  # fmt: skip
    assert all(len(environments.table.subset(env, "test")) == 0 for env in environments.info.given)


def test_iwildcam_that_will_not_do(iwildcam: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"dataset\.reader\.environment=camera.*unknown.*split.*location"
    ):
        wilds.iwildcam(iwildcam, "camera")
    text = (iwildcam / "metadata.csv").read_text()
    write(iwildcam / "metadata.csv", text.replace("id_val", "cis_val"))
    with pytest.raises(DataError, match=r"metadata\.csv.*line.*split 'cis_val'.*y '0'"):
        wilds.iwildcam(iwildcam, "split")
    write(iwildcam / "metadata.csv", text.replace("location_remapped", "location_id"))
    with pytest.raises(DataError, match=r"has no column 'location_remapped'"):
        wilds.iwildcam(iwildcam, "split")


# ---- Waterbirds

#: y, split, place
BIRDS = [
    *[(0, 0, 0)] * 4, (0, 0, 1), (1, 0, 0), *[(1, 0, 1)] * 3,
    *[(y, 1, place) for y in (0, 1) for place in (0, 1)],
    *[(y, 2, place) for y in (0, 1) for place in (0, 1)] * 2,
]  # fmt: skip


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    root = tmp_path / "waterbird_complete95_forest2water2"
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for i, (y, split, place) in enumerate(BIRDS):
        image(root / f"00{y}.Bird" / f"{i:02}.jpg")
        lines.append(f"{i + 1},00{y}.Bird/{i:02}.jpg,{y},{split},{place},/o/ocean/{i}.jpg")
    write(root / "metadata.csv", *lines)
    return root


def test_waterbirds(birds: Path) -> None:
    environments = made("waterbirds", birds)
    assert list(environments.info.given) == ["land", "water", "test_land", "test_water"]
    assert environments.catalog.classes == ("landbird", "waterbird")
    catalog, found = environments.catalog, Counter[tuple[str, str, str]]()
    for env in environments.info.given:
        for subset in ("train", "val", "test"):
            for i in environments.table.subset(env, subset):
                found[env, subset, catalog.classes[catalog.labels[i]]] += 1
                assert catalog.attributes["place"][i] == env.removeprefix("test_")
    trained = {
        ("land", "landbird"): 4,
        ("land", "waterbird"): 1,
        ("water", "landbird"): 1,
        ("water", "waterbird"): 3,
    }
    birds_of = ("landbird", "waterbird")
    assert found == {
        **{(env, "train", label): n for (env, label), n in trained.items()},
        **{(env, "val", label): 1 for env in ("land", "water") for label in birds_of},
        **{(env, "test", label): 2 for env in ("test_land", "test_water") for label in birds_of},
    }


def test_waterbirds_that_will_not_do(birds: Path) -> None:
    text = (birds / "metadata.csv").read_text()
    write(birds / "metadata.csv", text, "99,1.jpg,1,3,0,x")
    with pytest.raises(DataError, match=r"metadata\.csv.*line.*y '1', split '3'.*place '0'"):
        wilds.waterbirds(birds)
    write(birds / "metadata.csv", text.replace("place,", "background,"))
    with pytest.raises(DataError, match=r"column 'place'"):
        wilds.waterbirds(birds)
