"""Environments as the files of conf/dataset tell them, where no image is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.data.datasets.spurious import given_environments
from dgbench.data.description import DatasetInfo
from dgbench.errors import DataError
from dgbench.plan.protocols import MultiTest
from tests.datasets import described
from tests.studies import composed


def absent(name: str, **changes: Any) -> DatasetInfo:
    """The dataset as a plan sees it, with a data folder that is not there."""
    config = composed(f"dataset={name}", "paths.data_dir=nowhere")
    OmegaConf.set_struct(config, False)
    if OmegaConf.is_missing(config.dataset, "root"):
        config.dataset.root = "nowhere"
    config.dataset.update(changes)
    return described(config, absent_ok=True)


DRAWN = ("a+fog", "a+snow", "c+fog", "d+snow")


@pytest.mark.parametrize(
    ("name", "changes", "given", "n_classes", "beyond"),
    [
        ("sr_cmnist", {"base": "mnist", "given": [0.9, 0.1]}, ("0.90", "0.10"), 2, True),
        (
            "l_cifar10",
            {"ratio": "4:1", "given_sets": {"4:1": [0.05, 0.5]}},
            ("0.05", "0.50"),
            0,
            True,
        ),
        ("pacs", {"environments": ["photo", "cartoon"]}, ("photo", "cartoon"), 7, False),
        ("pacs", {}, ("art_painting", "cartoon", "photo", "sketch"), 7, False),
        (
            "pacs_corrupted",
            {
                "given": "2-0-1-1",
                "corruptions": ["fog", "snow"],
                "data_seed": 0,
                "environments": ["a", "b", "c", "d"],
            },
            DRAWN,
            7,
            True,
        ),
        ("pacs_corrupted", {"given": ["photo", "sketch+fog"]}, ("photo", "sketch+fog"), 7, True),
    ],
)
def test_what_a_configuration_tells(
    name: str, changes: dict[str, Any], given: tuple[str, ...], n_classes: int, beyond: bool
) -> None:
    info = absent(name, **changes)
    assert (info.n_classes, info.beyond, info.present) == (n_classes, beyond, False)
    assert (info.content, dict(info.counts), info.smallest_training) == ("", {}, 0)
    drawn = changes.get("given") == "2-0-1-1"
    assert sorted(info.given)[:2] == list(DRAWN[:2]) if drawn else info.given == given
    assert len(info.given) == len(given)
    assert len(info.everywhere) == {"sr_cmnist": 101, "l_cifar10": 101}.get(
        name, len(info.everywhere)
    )


def test_corruptions_of_domains_that_are_not_known_are_counted() -> None:
    words = (
        "dataset=image_folder",
        "dataset.root=nowhere",
        "corruptions=hendrycks",
        "dataset.given=2-0-1",
    )
    assert [env.partition("+")[0] for env in described(composed(*words), absent_ok=True).given] == [
        "0",
        "0",
        "2",
    ]


def test_what_no_configuration_tells() -> None:
    with pytest.raises(DataError, match="root=nowhere is no folder"):
        absent("image_folder")
    with pytest.raises(DataError, match=r"manifest=nowhere\.csv is no file"):
        absent("manifest", manifest="nowhere.csv")


def test_absent_files_are_refused_where_they_are_needed() -> None:
    for name in ("pacs", "pacs_corrupted", "c_cats_dogs", "cmnist_irm"):
        with pytest.raises(DataError, match="nowhere"):
            described(composed(f"dataset={name}", "paths.data_dir=nowhere"))


@pytest.mark.parametrize("ratio", [3, 4, 5])
@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_as_many_as_the_dataset_itself_would_have(ratio: int, scale: int) -> None:
    found = absent("sr_cmnist", base="mnist", ratio=ratio, scale=scale)
    assert len(found.given) == len(given_environments(ratio, scale)) == scale * (ratio + 1)


@pytest.mark.parametrize(
    "path", sorted((CONF / "dataset").glob("*.yaml")), ids=lambda path: path.stem
)
def test_test_groups_and_splits_name_environments_of_the_dataset(path: Path) -> None:
    """Groups of a file are groups of its own environments, and a split leaves no name out of what
    is published.
    """
    own = yaml.safe_load(path.read_text())
    if own.get("test_groups"):
        groups = MultiTest(default_groups=own["test_groups"]).grouped(list(absent(path.stem).given))
        assert [sorted(group) for group in groups] == [
            sorted(group) for group in own["test_groups"]
        ]
    if own.get("split"):
        named = [env for part in own["split"].values() for env in part]
        assert sorted(named) == sorted(absent(path.stem).given)


def test_groups_of_the_papers() -> None:
    """Yu et al. (2024), section 3.1."""
    pairs = {
        "domain_net": [["clipart", "infograph"], ["painting", "quickdraw"], ["real", "sketch"]],
        "nico_pp": [["autumn", "rock"], ["dim", "grass"], ["outdoor", "water"]],
    }
    for name, groups in pairs.items():
        assert (
            yaml.safe_load((CONF / "dataset" / f"{name}.yaml").read_text())["test_groups"] == groups
        )
