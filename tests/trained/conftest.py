"""Runs of seconds that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.studies import make_study, small_study, train_study

FOLD = ("protocol.folds=[0]", "execution=single")
CLASSES = {"cat": 9, "dog": 8}
ENVIRONMENTS = ("art_painting", "cartoon", "photo", "sketch")

Trained = Callable[..., Path]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """``trained("algorithm=arm")``: folder of a finished run on the digits, 4 steps, evaluated
    every 2, as MLP.
    """
    known: dict[tuple[str, ...], Path] = {}

    def make(*words: str) -> Path:
        if words not in known:
            steps = (
                ()
                if any(word.startswith("trainer.steps") for word in words)
                else ("trainer.steps=4",)
            )
            folder = tmp_path_factory.mktemp("runs")
            study = small_study(folder, *FOLD, *steps, "trainer.eval_every=2", *words)
            assert train_study(study) == {study.runs[0].hash: True}
            known[words] = study.runs[0].folder
        return known[words]

    return make


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four environments of PNG images in PACS' names; sides differ, and are no square."""
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for env in ENVIRONMENTS:
        for k, (label, count) in enumerate(CLASSES.items()):
            (root / env / label).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 80, (34 + i % 3, 40 + i % 2, 3)) + 170 // (k + 1)
                Image.fromarray(pixels.astype(np.uint8)).save(root / env / label / f"{i:02}.png")
    return root


@pytest.fixture(scope="session")
def pictures_run(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    """A ResNet-18 on 32 x 32 pictures of three environments, which never saw ``art_painting``."""
    folder = tmp_path_factory.mktemp("resnet")
    study = make_study(
        folder, *FOLD, "dataset=pacs", f"dataset.root={pictures}", "dataset.image_size=32",
        "backbone=resnet18",
        "dataset.published=null",
        "init=random", "algorithm=dann", "trainer.steps=2", "trainer.eval_every=1",
        "hparams.batch_size=3", "trainer.device=cpu", f"paths.cache_dir={folder / 'cache'}",
    )  # fmt: skip
    assert train_study(study) == {study.runs[0].hash: True}
    return study.runs[0].folder
