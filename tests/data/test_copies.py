"""Files with the same bytes in two environments, or in train and val of one: named, dropped or
refused.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from dgbench.data.datasets import image_table
from dgbench.data.environments import Environments
from dgbench.data.understanding import lines_of_dataset
from dgbench.errors import DgbenchError
from tests.complaints import refused
from tests.data.layouts import image
from tests.datasets import built, described
from tests.studies import composed

Make = Callable[..., Any]
N = 10


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two environments of two classes with 10 different pictures each."""
    folder = tmp_path / "mine"
    for env in ("north", "south"):
        for label in ("cat", "dog"):
            for i in range(N):
                image(folder / env / label / f"{i}.png")
    image_table.warn_once.cache_clear()
    return folder


def config_of(root: Path, *words: str) -> Any:
    config = composed(
        "dataset=image_folder", f"dataset.root={root}", f"paths.cache_dir={root}-cache", *words
    )
    OmegaConf.set_struct(config, False)
    config.dataset.update({"image_size": 4, "val_fraction": 0.5})
    return config


def subset_paths(environments: Environments, env: str, name: str) -> set[str]:
    return set(environments.catalog.names_at(environments.table.subset(env, name)))


def test_copies_between_environments_are_counted(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three of south's cats are copies of north's, one stands as a dog there."""
    for i in (1, 2):
        shutil.copy(root / "north" / "cat" / f"{i}.png", root / "south" / "cat" / f"{i}.png")
    shutil.copy(root / "north" / "cat" / "3.png", root / "south" / "dog" / "3.png")
    assert described(config_of(root)).counts["north"]["train"] == N, "nothing is decoded for a plan"
    with caplog.at_level(logging.WARNING):
        environments = built(config_of(root))
    (line,) = [
        record.getMessage() for record in caplog.records if "same bytes" in record.getMessage()
    ]
    assert (
        "3 in north and south; 1 of them under two classes; e.g. north/cat/1.png and "
        "south/cat/1.png"
    ) in line
    assert environments.info.content == described(config_of(root)).content
    with refused(r"3 in north and south.*dataset\.duplicates=drop", DgbenchError):
        described(config_of(root, "dataset.duplicates=fail"))  # known without decoding again
    with refused(r"3 in north and south", DgbenchError):
        built(config_of(root, "dataset.duplicates=fail"))


def test_copies_in_train_and_val_of_one(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = built(config_of(root))
    trained = sorted(subset_paths(before, "north", "train"))[0]
    judged = sorted(subset_paths(before, "north", "val"))[0]
    shutil.copy(root / trained, root / judged)
    with caplog.at_level(logging.WARNING):
        after = built(config_of(root))
    assert trained in subset_paths(after, "north", "train") and judged in subset_paths(
        after, "north", "val"
    )
    assert any(
        "1 in train and in val or test of north" in record.getMessage() for record in caplog.records
    )


def test_copies_in_one_subset_leak_nothing(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, other = sorted(subset_paths(built(config_of(root)), "north", "train"))[:2]
    shutil.copy(root / one, root / other)
    with caplog.at_level(logging.WARNING):
        built(config_of(root, "dataset.duplicates=fail"))
    assert not [record for record in caplog.records if "same bytes" in record.getMessage()]


def test_the_first_of_each_is_left(root: Path) -> None:
    """North's pictures come first by path; south loses its four copies, and the rows say that they
    were dropped.
    """
    for i in range(4):
        shutil.copy(root / "north" / "cat" / f"{i}.png", root / "south" / "cat" / f"{i}.png")
    environments = built(config_of(root, "dataset.duplicates=drop"))
    paths = {env: subset_paths(environments, env, "train") | subset_paths(environments, env, "val")
             for env in ("north", "south")}  # fmt: skip
    assert len(paths["north"]) == 20
    assert paths["south"] == {f"south/{k}/{i}.png" for k in ("cat", "dog") for i in range(N)} - {
        f"south/cat/{i}.png" for i in range(4)
    }
    info = environments.info
    assert info.variant["duplicates"] == "drop" and info.left_out["copies of others"] == 4
    assert "duplicates" not in described(config_of(root)).variant, "hashes are older than the key"
    assert "left out: 4 copies of others" in lines_of_dataset(info)[2]


def test_images_that_are_not_kept_are_compared_too(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(root / "north" / "cat" / "1.png", root / "south" / "cat" / "1.png")
    words = ("dataset.store=none",)
    with caplog.at_level(logging.WARNING):
        built(config_of(root, *words))
    assert any("1 in north and south" in record.getMessage() for record in caplog.records)
    dropping = built(config_of(root, *words, "dataset.duplicates=drop"))
    kept = built(config_of(root, "dataset.duplicates=drop", "dataset.store=ram"))
    assert dropping.info == kept.info and dropping.info.left_out["copies of others"] == 1
    with refused(r"1 in north and south.*drop keeps", DgbenchError):
        built(config_of(root, *words, "dataset.duplicates=fail"))


def test_copies_are_refused_before_anything_is_decoded(root: Path) -> None:
    shutil.copy(root / "north" / "cat" / "1.png", root / "south" / "cat" / "1.png")
    with refused(r"1 in north and south", DgbenchError):
        built(config_of(root, "dataset.duplicates=fail", "dataset.store=ram"))
    assert not list(Path(f"{root}-cache").rglob("data.uint8"))


def test_a_plan_and_a_run_say_what_was_understood(root: Path, command: Any, tmp_path: Path) -> None:
    (root / "north" / "notes.txt").write_text("")
    words = [
        "dataset=image_folder", f"dataset.root={root}", "dataset.name=mine",
        "dataset.image_size=16", "backbone=mlp", "init=random", "trainer.steps=1",
        "hparams.batch_size=4", "trainer.device=cpu", "protocol=fixed", "protocol.test=[south]",
        f"paths.cache_dir={tmp_path}/cache",
    ]  # fmt: skip
    expected = [
        "mine: 2 environments, 40 images: north (20), south (20)",
        "2 classes, in the order of the outputs: cat, dog",
        "validation: 20 % of each environment's images, drawn at random (dataset.split_seed=0); "
        "left out: 1 of other kinds",
    ]
    planned = command("train.py", *words, "plan=true", cwd=tmp_path)
    assert planned.out.splitlines()[:3] == expected, planned.err
    ended = command("train.py", *words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    said = ended.err.splitlines()
    first = said.index(expected[0])
    assert said[first : first + 3] == expected
    (identity,) = tmp_path.glob("outputs/mine-*/fold-*/identity.json")
    assert json.loads(identity.read_text())["understood"] == expected
