"""Models of vectors: they predict from arrays, are exported, and are not evaluated on pictures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgbench
from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError, DataError
from dgbench.trained.foreign import Foreign, foreign
from dgbench.trained.matched import Matched
from dgbench.trained.predictor import vector_batches
from tests.complaints import refused
from tests.studies import make_study, train_study
from tests.trained.conftest import FOLD
from tests.vectors import columns, save

VECTORS, PICTURES = (
    Preprocessing((4,), (), (), pictures=False),
    Preprocessing((3, 8, 8), (0.5,) * 3, (0.5,) * 3),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    study = make_study(
        folder, *FOLD, "dataset=features", f"dataset.path={save(folder / 'x.npz')}",
        "trainer.steps=40", "trainer.eval_every=40", "trainer.device=cpu", "hparams.batch_size=8",
        "hparams.lr=0.01",
    )  # fmt: skip
    assert train_study(study) == {study.runs[0].hash: True}
    return study.runs[0].folder


def test_a_loaded_run_classifies_vectors(run: Path) -> None:
    model = dgbench.load(run)
    assert model.preprocessing == VECTORS
    content = columns()
    found = model.predict(content["features"])
    assert np.mean(np.array(found.names) == content["label"]) > 0.9
    one = model.predict(content["features"][3])
    torch.testing.assert_close(one.logits, found.logits[3:4])


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (["a.png"], "(n, 4)"),
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
        (np.zeros((0, 4)), r"shape \(0, 4\)"),
        (torch.zeros(1, 3, 8, 8), r"shape \(1, 3, 8, 8\)"),
        ([[1.0, 2.0, float("nan"), 4.0]], "not finite"),
    ],
)
def test_what_is_no_vector(vectors: Any, said: str) -> None:
    with refused(said, DataError):
        list(vector_batches(vectors, 4, 2))


def test_batches_of_vectors() -> None:
    parts = list(vector_batches(np.arange(20).reshape(5, 4), 4, 2))
    assert [len(part) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat(parts), torch.arange(20.0).view(5, 4))


@pytest.mark.parametrize(
    ("own", "given", "said"),
    [
        (VECTORS, PICTURES, "sees vectors, .* holds images"),
        (PICTURES, VECTORS, "sees images, .* holds vectors"),
        (VECTORS, Preprocessing((5,), (), ()), "of 4 features, .* has 5"),
    ],
)
def test_another_kind_of_dataset(own: Preprocessing, given: Preprocessing, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Matched(Foreign(lambda x: x, ["cat"], own), ["cat"], given)


def test_networks_of_timm_see_pictures() -> None:
    with pytest.raises(ConfigError, match=r"^model=resnet18 of timm"):
        foreign("resnet18")(VECTORS)


def test_preprocessing_is_read_again() -> None:
    assert Preprocessing.of_json(asdict(VECTORS)) == VECTORS
