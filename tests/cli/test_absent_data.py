"""Environments as the files of conf/dataset tell them, without an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dgbench.cli.absent_data import known_without_images
from dgbench.cli.entry import CONF
from dgbench.cli.fold_plan import Known
from dgbench.data.sr_cmnist import given_environments
from dgbench.protocols.groups import MultiTest


@pytest.mark.parametrize(
    ("dataset", "names", "n_classes", "beyond"),
    [
        ({"given": [0.9, 0.1]}, ["0.9", "0.1"], 0, True),
        ({"given": None, "ratio": "4:1", "given_sets": {"4:1": [0.05, 0.5]}}, ["0.05", "0.5"], 0, True),
        ({"given": "2-0-1-1", "published": {"environments": ["a"], "classes": 7}}, ["0", "1", "2", "3"], 7, True),
        ({"environments": ["b", "a"], "published": {"environments": ["a", "b", "c"]}}, ["b", "a"], 0, False),
        ({"environments": None, "published": {"environments": ["a", "b"], "classes": 3}}, ["a", "b"], 3, False),
    ],
)
def test_what_a_file_tells(dataset: dict[str, Any], names: list[str], n_classes: int, beyond: bool) -> None:
    assert known_without_images(dataset) == Known(names, n_classes, beyond)


@pytest.mark.parametrize("dataset", [{}, {"given": "clean"}, {"published": None}, {"ratio": "9:9", "given_sets": {}}])
def test_what_no_file_tells(dataset: dict[str, Any]) -> None:
    assert known_without_images(dataset) is None


@pytest.mark.parametrize("ratio", [3, 4, 5])
@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_as_many_as_the_dataset_itself_would_have(ratio: int, scale: int) -> None:
    found = known_without_images({"given": None, "ratio": ratio, "scale": scale})
    assert found is not None
    assert len(found.given) == len(given_environments(ratio, scale))


@pytest.mark.parametrize("path", sorted((CONF / "dataset").glob("*.yaml")), ids=lambda path: path.stem)
def test_test_groups_and_splits_name_environments_of_the_dataset(path: Path) -> None:
    """Groups of a file are groups of its own environments, and a split leaves no name out of what is published."""
    own = yaml.safe_load(path.read_text())
    known = known_without_images(own)
    if own.get("test_groups"):
        assert known
        groups = MultiTest(default_groups=own["test_groups"]).grouped(known.given)
        assert [sorted(group) for group in groups] == [sorted(group) for group in own["test_groups"]]
    if own.get("split"):
        assert known
        named = [
            float(env) if path.stem.startswith("cmnist") else env for part in own["split"].values() for env in part
        ]
        assert sorted(map(str, named)) == sorted(known.given)


def test_groups_of_the_papers() -> None:
    """Yu et al. (2024), section 3.1."""
    pairs = {
        "domain_net": [["clipart", "infograph"], ["painting", "quickdraw"], ["real", "sketch"]],
        "nico_pp": [["autumn", "rock"], ["dim", "grass"], ["outdoor", "water"]],
    }
    for name, groups in pairs.items():
        assert yaml.safe_load((CONF / "dataset" / f"{name}.yaml").read_text())["test_groups"] == groups
