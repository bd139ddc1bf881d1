"""Many environments, some of two rows: what is refused, what suffices, how they are trained on or
left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dgbench.data.datasets.features import FeatureOptions
from dgbench.data.datasets.small_environments import batch_refusal, sufficient_fraction
from dgbench.data.minibatches import ORDER_BLOCK, EnvironmentData
from dgbench.errors import DataError
from dgbench.plan.folds import planned_folds
from tests.complaints import refused
from tests.conftest import rows_in
from tests.studies import make_plan

SIZES = {"s0": 40, "s1": 30, "s2": 12, "s3": 4, "s4": 3, "s5": 2}


def save(folder: Path, sizes: dict[str, int] = SIZES, classes: int = 2) -> Path:
    rng = np.random.default_rng(0)
    env = np.repeat(list(sizes), list(sizes.values()))
    label = np.concatenate([np.arange(n) % classes for n in sizes.values()])
    frame = pd.DataFrame(
        {"environment": env, "label": label, "f0": rng.normal(size=len(env)) + label, "f1": 1.0}
    )
    frame.to_csv(folder / "sites.csv", index=False)
    return folder / "sites.csv"


def options(file: Path, **changed: Any) -> FeatureOptions:
    own = {
        "environments": None,
        "classes": "same",
        "val_fraction": 0.2,
        "split_seed": 0,
        "columns": "f*",
    }
    return FeatureOptions(**{"name": "sites", "path": str(file), **own, **changed})


def test_all_that_are_too_small_are_named_with_the_fraction_that_suffices(tmp_path: Path) -> None:
    file = save(tmp_path)
    with refused(
        r"3 of 6 environments have 0 val images at dataset\.val_fraction=0\.2 \(s5: 2, s4: 3, s3: "
        r"4\); dataset\.val_fraction=0\.5 suffices, or dataset\.min_images=5 leaves them out"
    ):
        options(file).describe()
    assert options(file, val_fraction=0.5).describe().counts["s5"] == {
        "train": 1,
        "val": 1,
        "test": 0,
    }
    assert options(file, min_images=5).describe().only_tested == ("s3", "s4", "s5")


@pytest.mark.parametrize("images", range(2, 120))
def test_the_fraction_suffices_and_a_smaller_one_does_not(images: int) -> None:
    fraction = sufficient_fraction(images)
    assert 1 <= int(images * fraction) < images
    assert int(images * (fraction - 0.01)) == 0


def test_one_image_cannot_be_divided(tmp_path: Path) -> None:
    file = save(tmp_path, {**SIZES, "s6": 1}, classes=2)
    with refused(
        r"no fraction suffices .*as 1 has: dataset\.min_images=5 .*min_images=2 with "
        r".*val_fraction=0\.5"
    ):
        options(file, classes="union").describe()
    info = options(file, classes="union", min_images=2, val_fraction=0.5).describe()
    assert info.only_tested == ("s6",)
    assert info.counts["s6"] == {"train": 1, "val": 0, "test": 0}


def test_classes_and_fractions_are_refused_in_one_line(tmp_path: Path) -> None:
    file = save(tmp_path, classes=3)
    with refused(
        (
            r"environment s5 has no images of class 2, .*dataset\.classes=union; and 3 of 6 "
            r".*val_fraction=0\.5"
        ),
        DataError,
    ):
        options(file).describe()
    file = save(tmp_path, classes=4)
    with refused(
        (
            r"2 of 6 environments have no images of classes .*s4 of class 3, environment s5 of "
            r"class 2, 3"
        ),
        DataError,
    ):
        options(file, val_fraction=0.5).describe()


def test_a_minibatch_larger_than_some() -> None:
    said = batch_refusal(8, {"a": 9, "b": 2, "c": 5})
    assert said.startswith(
        "hparams.batch_size=8 is larger than the smallest training environments, 2 of 3 (b: 2, c: "
        "5)"
    )
    assert "trainer.small_environments=repeat" in said


def words(file: Path, *more: str) -> list[str]:
    return [
        "dataset=features", f"dataset.path={file}", "dataset.columns='f*'", "hparams.batch_size=8",
        "trainer.steps=20", "trainer.eval_every=10", "protocol=fixed", "protocol.test=[s1]", *more,
    ]  # fmt: skip


def test_only_environments_that_are_trained_on_bound_a_minibatch(tmp_path: Path) -> None:
    file = save(tmp_path, {"s0": 40, "s1": 6, "s2": 30})
    assert make_plan(tmp_path, *words(file)).spec.hparams["batch_size"] == 8
    with refused("batch_size=8 is larger than the smallest training environment .s1., of 5 images"):
        make_plan(tmp_path, *words(file), "protocol.test=[s0]")


def test_fractions_classes_and_minibatches_are_refused_in_one_line(tmp_path: Path) -> None:
    """Of s3 one training row of four is left, of s1 none that a fold trains on counts."""
    file = save(tmp_path)
    with refused(
        r"^3 of 6 environments have 0 val images .*val_fraction=0\.5 suffices.*; and "
        r"hparams\.batch_size=8 is larger than the smallest training environments, 3 of 5 \(s5: "
        r"1, s4: 2, s3: 3\); set hparams\.batch_size=1 or less, "
        r"trainer\.small_environments=repeat .*dataset\.min_images=N"
    ):
        make_plan(tmp_path, *words(file))
    with refused(
        "val_fraction=0.5 suffices, or dataset.min_images=5 leaves them out of training and tests "
        "them still$"
    ):
        make_plan(tmp_path, *words(file), "trainer.small_environments=repeat")
    with refused(
        "val_fraction=0.5 suffices, or dataset.min_images=5 leaves them out of training and tests "
        "them still$"
    ):
        make_plan(tmp_path, *words(file), "protocol.train=[s0]")
    with refused(
        "has no images of class 2.*; and 3 of 6 .*; and hparams.batch_size=8 is larger than",
        DataError,
    ):
        make_plan(tmp_path, *words(save(tmp_path, classes=3)))
    both = ("dataset.val_fraction=0.5", "trainer.small_environments=repeat")
    assert make_plan(tmp_path, *words(save(tmp_path)), *both).folds[0].training == (
        "s0",
        "s2",
        "s3",
        "s4",
        "s5",
    )


def test_small_ones_are_tested_and_not_trained_on(tmp_path: Path) -> None:
    plan = make_plan(
        tmp_path, *words(save(tmp_path), "dataset.min_images=10", "protocol.test=[s4,s5]")
    )
    (fold,) = plan.folds
    assert (fold.training, fold.tested) == (("s0", "s1", "s2"), ("s4", "s5"))
    with refused("dataset.min_images leaves nothing to train fold 0 on"):
        make_plan(tmp_path, *words(save(tmp_path), "dataset.min_images=100"))


def test_leave_one_out_still_holds_out_small_ones(tmp_path: Path) -> None:
    info = options(save(tmp_path), min_images=10).describe()
    folds = planned_folds({"_target_": "dgbench.plan.folds.LeaveOneOut", "name": "loo"}, info)
    assert [fold.held_out for fold in folds] == [(env,) for env in SIZES]
    assert folds[5].training == ("s0", "s1", "s2")
    assert folds[0].training == ("s1", "s2")


def data_of(file: Path, **changed: Any) -> EnvironmentData:
    environments = options(file, min_images=4, val_fraction=0.25).build()
    keys = {
        "steps": 100,
        "eval_every": 50,
        "batch_size": 8,
        "eval_batch_size": 64,
        "seed": 0,
        **changed,
    }
    recipes = environments.table.error_recipes(False, ("val", "test"), ["s0", "s1", "s2", "s3"])
    return EnvironmentData(environments, ["s0", "s1", "s2", "s3"], recipes, **keys)


def test_images_of_small_ones_are_repeated(tmp_path: Path) -> None:
    """Three training rows in a minibatch of eight; others see what they see without it."""
    file = save(tmp_path)
    with refused("batch_size=8 is larger than the smallest training environment"):
        data_of(file)
    data = data_of(file, repeats=True)
    order = data.runs[0].order(70).reshape(4, 8)
    assert set(order[3]) <= set(data.environments.table.subset("s3", "train"))
    large = data_of(file, batch_size=3)
    assert len(large.runs[0].order(0)) == 12


def test_steps_draw_environments(tmp_path: Path) -> None:
    data = data_of(save(tmp_path), environments_per_step=2, repeats=True)
    run, table = data.runs[0], data.environments.table
    seen = set()
    for step in range(2 * ORDER_BLOCK):
        numbers = run.drawn(step)
        seen |= {tuple(numbers.tolist())}
        (batch,) = data.batches(step, 1)
        assert batch.sizes == (8, 8)
        assert batch.drawn is not None and batch.drawn.tolist() == numbers.tolist() == sorted(
            set(numbers.tolist())
        )
        assert batch.index is not None
        for number, rows in zip(numbers, batch.index.reshape(2, 8), strict=True):
            assert set(rows.tolist()) <= set(table.subset(data.training[number], "train"))
    assert len(seen) == 6, "every pair of four"
    again = data_of(save(tmp_path), environments_per_step=2, repeats=True).runs[0]
    assert np.array_equal(again.order(77), run.order(77)), "a function of seed and step alone"


def test_each_environment_is_drawn_as_often(tmp_path: Path) -> None:
    run = data_of(save(tmp_path), environments_per_step=2, repeats=True).runs[0]
    counts = np.bincount(np.concatenate([run.drawn(step) for step in range(2000)]))
    assert np.abs(counts / 2000 - 0.5).max() < 0.05


def test_more_than_there_are(tmp_path: Path) -> None:
    file = save(tmp_path, {"s0": 40, "s1": 30, "s2": 30})
    with refused(
        "environments_per_step=3 is more than the 2 training environments of a fold; set 2"
    ):
        make_plan(tmp_path, *words(file, "trainer.environments_per_step=3"))


def test_the_defaults_change_no_hash(tmp_path: Path) -> None:
    """Hashes are older than these keys: a specification does not name them at their defaults."""
    file = save(tmp_path, {"s0": 40, "s1": 30, "s2": 30})
    spec = make_plan(tmp_path, *words(file)).spec
    keys = {
        "environments_per_step",
        "small_environments",
        "split_by",
        "split_pattern",
        "min_images",
        "subset_column",
    }
    assert not keys & {*spec.training, *spec.dataset, *spec.dataset["variant"]}
    for key in (
        "trainer.environments_per_step=1",
        "trainer.small_environments=repeat",
        "dataset.min_images=5",
    ):
        assert make_plan(tmp_path, *words(file, key)).spec.digest != spec.digest, key


@pytest.mark.thorough
def test_hundreds_of_sites_are_trained_on(command: Any, tmp_path: Path) -> None:
    """323 sites, some of two pictures, as in camera traps: one line, and what it says trains."""
    rng = np.random.default_rng(0)
    sizes = [2, 2, 3, 4, *rng.integers(5, 9, 319).tolist()]
    for site, n in enumerate(sizes):
        for k in range(n):
            place = tmp_path / "sites" / f"site{site:03}" / ("cat", "dog")[k % 2]
            place.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{k}.png")
    asked = (
        "dataset=image_folder", "dataset.root=sites", "dataset.image_size=8", "backbone=mlp",
        "backbone.width=8", "init=random", "trainer.device=cpu", "trainer.steps=6",
        "trainer.eval_every=6", "protocol=fixed", "protocol.test=[site000,site010]",
        "hparams.batch_size=8", "dataset.augment=none", "paths.cache_dir=cache",
    )  # fmt: skip
    (line,) = command("train.py", *asked, cwd=tmp_path).complaints
    without_val = sum(int(0.2 * n) == 0 for n in sizes)
    assert line.startswith(
        f"dgbench: {without_val} of 323 environments have 0 val images at dataset.val_fraction=0.2"
    )
    assert "dataset.val_fraction=0.5 suffices, or dataset.min_images=5" in line
    assert (
        "; and hparams.batch_size=8 is larger than the smallest training environments, 321 of 321"
        in line
    )
    again = (
        "dataset.min_images=5",
        "trainer.small_environments=repeat",
        "trainer.environments_per_step=4",
    )
    ended = command("train.py", *asked, *again, cwd=tmp_path)
    assert ended.code == 0, ended.err
    rows = [row for row in rows_in(tmp_path) if row["step"] == 6]
    assert {row["env"] for row in rows if row["subset"] == "test"} == {"site000", "site010"}
    validated = {row["env"] for row in rows if row["subset"] == "val"}
    large = {f"site{site:03}" for site, n in enumerate(sizes) if n >= 5}
    assert validated == large
