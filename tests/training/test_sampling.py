"""How the images of a minibatch are drawn: class by class, or from all environments together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgbench.data.minibatches import ORDER_BLOCK, balanced_chances
from dgbench.training.study import ReadyStudy
from tests.complaints import refused
from tests.conftest import rows_in
from tests.studies import SMALL, make_study, stopping_at, train_study

#: environment -> images of class 0 and of class 1
COUNTS = {"a": (90, 10), "b": (20, 20), "c": (300, 100)}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    env = np.repeat(list(COUNTS), [sum(counts) for counts in COUNTS.values()])
    label = np.concatenate([np.repeat([0, 1], counts) for counts in COUNTS.values()])
    columns = {"environment": env, "label": label, "f0": rng.normal(size=len(env)) + label}
    file = tmp_path_factory.mktemp("sites") / "sites.csv"
    pd.DataFrame({**columns, "f1": 1.0}).to_csv(file, index=False)
    return file


def words(sites: Path, *more: str) -> list[str]:
    return [
        "dataset=features", f"dataset.path={sites}", "dataset.columns='f*'",
        "hparams.batch_size=8", "trainer.steps=40", "trainer.eval_every=20", "trainer.device=cpu",
        "protocol.folds=[0,1]", "trainer.checkpoint_seconds=0", *more,
    ]  # fmt: skip


def drawn(study: ReadyStudy) -> tuple[np.ndarray, np.ndarray]:
    """The (steps, N) positions of two blocks of steps in fold 0, and their labels."""
    (run, *_) = study.runs
    order = run.data.runs[0]
    positions = np.stack([order.order(step) for step in range(2 * ORDER_BLOCK)])
    return positions, run.data.environments.catalog.labels[positions]


def test_chances_by_hand() -> None:
    """DomainBed's weights: 1 / (images of the class x classes that occur)."""
    np.testing.assert_allclose(
        balanced_chances(np.array([2, 0, 2, 2])), [1 / 6, 1 / 2, 1 / 6, 1 / 6]
    )


def test_each_class_of_each_environment_is_as_likely(sites: Path, tmp_path: Path) -> None:
    plain = make_study(tmp_path, *words(sites))
    balanced = make_study(tmp_path, *words(sites, "trainer.sampling=class_balanced"))
    assert balanced.runs[0].hash != plain.runs[0].hash
    for study, expected in ((plain, (0.5, 0.25)), (balanced, (0.5, 0.5))):
        positions, labels = drawn(study)
        data = study.runs[0].data
        assert data.training == ["b", "c"]
        for number, env in enumerate(data.training):
            rows = slice(8 * number, 8 * (number + 1))
            assert set(positions[:, rows].ravel()) <= set(
                data.environments.table.subset(env, "train")
            )
            n = labels[:, rows].size
            tolerance = 4 * np.sqrt(0.25 / n)  # standard errors
            assert labels[:, rows].mean() == pytest.approx(expected[number], abs=tolerance)


def test_pooled_draws_environments_by_their_size(sites: Path, tmp_path: Path) -> None:
    positions, _ = drawn(make_study(tmp_path, *words(sites, "trainer.sampling=pooled")))
    data = make_study(tmp_path, *words(sites)).runs[0].data
    assert positions.shape[1] == 16
    subsets = {env: data.environments.table.subset(env, "train") for env in data.training}
    share = len(subsets["c"]) / (len(subsets["b"]) + len(subsets["c"]))
    assert share > 0.85
    for rows in (slice(0, 8), slice(8, 16)):
        of_c = np.isin(positions[:, rows], subsets["c"])
        assert of_c.mean() == pytest.approx(share, abs=4 * np.sqrt(0.25 / of_c.size))


def test_painted_labels_are_those_that_are_balanced(tmp_path: Path) -> None:
    """Label noise is in the labels by which images are drawn."""
    study = make_study(tmp_path, *SMALL, "trainer.steps=4", "trainer.sampling=class_balanced")
    data = study.runs[0].data
    (batch,) = data.batches(0, 1)
    assert batch.index is not None
    labels = data.environments.catalog.labels[batch.index.numpy()]
    assert labels.tolist() == batch.y.tolist()


def without_together(folder: Path) -> list[dict[str, Any]]:
    rows = [{**row, "loss": None, "together": None} for row in rows_in(folder)]
    return sorted(rows, key=lambda row: (row["fold"], row["step"], row["subset"], row["env"]))


@pytest.mark.thorough
@pytest.mark.parametrize("sampling", ["class_balanced", "pooled"])
def test_stacked_as_alone_and_interrupted_as_undisturbed(
    sites: Path, tmp_path: Path, sampling: str
) -> None:
    chosen = words(sites, f"trainer.sampling={sampling}")
    for mode in ("single", "stacked"):
        train_study(make_study(tmp_path / mode, *chosen, f"execution={mode}"))
    with stopping_at(30):
        train_study(make_study(tmp_path / "again", *chosen, "execution=stacked"))
    train_study(make_study(tmp_path / "again", *chosen, "execution=stacked"))
    alone, stacked, again = (
        without_together(tmp_path / name) for name in ("single", "stacked", "again")
    )
    assert len(alone) > 0
    assert {row["hparams"]["trainer.sampling"] for row in alone} == {sampling}
    assert alone == stacked == again


def test_what_cannot_be_pooled(sites: Path, tmp_path: Path) -> None:
    with refused("trainer.sampling=pooled cannot go with algorithm=vrex"):
        make_study(tmp_path, *words(sites, "trainer.sampling=pooled", "algorithm=vrex"))
    with refused("trainer.sampling=pooled draws from all environments together"):
        make_study(
            tmp_path, *words(sites, "trainer.sampling=pooled", "trainer.environments_per_step=1")
        )
    with refused("trainer.sampling=weighted is unknown"):
        make_study(tmp_path, *words(sites, "trainer.sampling=weighted"))
    make_study(tmp_path, *words(sites, "trainer.sampling=class_balanced", "algorithm=vrex"))
