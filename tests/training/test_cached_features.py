"""Training on features of the frozen part, computed once: the same models and rows as without."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.data.environments import Store
from dgbench.data.store.array_cache import COMPLETE, DATA, cached_array
from dgbench.data.store.cached_features import CHECKED_ROWS, CHUNK_ROWS, CachedFeatures
from dgbench.errors import ConfigError
from dgbench.training.checkpoints import Snapshot, own_file
from tests.studies import groups_of, small_study
from tests.training.test_stacked import DOUBLE, both_ways, fit, modules_of, rows_of, run

pytestmark = pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
CNN = ("backbone=mnist_cnn", "backbone.min_size=8")  # four stages
CACHED = "tuning.cache_features=true"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "tuning", [("tuning=lp",), ("tuning=freeze", "tuning.freeze_stages=2")], ids=" ".join
)
@pytest.mark.parametrize("algorithm", ["erm", "fishr", "mldg", "dann"])
def test_it_equals_training_on_images(
    algorithm: str, tuning: tuple[str, ...], double: None, tmp_path: Path
) -> None:
    """Every tensor of the module after 5 steps, frozen ones included, and its predictions."""
    words = (f"algorithm={algorithm}", DOUBLE, *CNN, *tuning)
    plain, cached = small_study(tmp_path, *words), small_study(tmp_path, *words, CACHED)
    assert plain.runs[0].folder == cached.runs[0].folder, (
        "how it is computed is no part of the hash"
    )
    modules = [study.module(study.folds[0]) for study in (plain, cached)]
    for study, module in zip((plain, cached), modules, strict=True):
        fit(module, study.runs[0].data.batches(0, 5))
    for one, other in zip(
        modules[0].state_dict().values(), modules[1].state_dict().values(), strict=True
    ):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-12)
    for name, scored in plain.environments.eval_sets(plain.runs[0].data.eval_set_names()).items():
        positions = scored.indices[:7], None if scored.feature is None else scored.feature[:7]
        inputs = [study.environments.store.gather(*positions)[0] for study in (plain, cached)]
        both = [module.eval()(x) for module, x in zip(modules, inputs, strict=True)]
        torch.testing.assert_close(both[1], both[0], rtol=0, atol=1e-12, msg=name)


def test_stacked_heads_over_one_set_of_features(double: None, tmp_path: Path) -> None:
    """Four folds share the features; a frozen convolution no longer runs, so they stack on a CPU,
    too.
    """
    study = small_study(tmp_path, "algorithm=irm", DOUBLE, *CNN, "tuning=lp", CACHED)
    runs = [own for own in study.runs if own.fold.held_out]
    assert both_ways(modules_of(runs), [own.data for own in runs], 5) < 1e-12
    sizes = {}
    for name, words in {"cached": ("tuning=lp", CACHED), "images": ("tuning=lp",)}.items():
        other = small_study(tmp_path, *CNN, *words)
        sizes[name] = [len(group.runs) for group in groups_of(other)]
    assert sizes == {"cached": [4, 1], "images": [1] * 5}


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_rows_are_the_same(mode: str, tmp_path: Path) -> None:
    """In double precision, through training, evaluation with painted colors, and checkpoints."""
    words = (
        "tuning=lp",
        "trainer.precision=64-true",
        "protocol.folds=[0,full]",
        "dataset.evaluation=exact",
    )
    studies = [
        run(tmp_path / name, mode, *words, *more)[0] for name, more in (("a", ()), ("b", (CACHED,)))
    ]
    for one, other in zip(studies[0].runs, studies[1].runs, strict=True):
        expected, found = rows_of(one), rows_of(other)
        assert len(found) == len(expected) >= 16
        for a, b in zip(expected, found, strict=True):
            assert b["loss"] == pytest.approx(a["loss"], abs=1e-12)
            assert {**b, "loss": 0, "code": ""} == {**a, "loss": 0, "code": ""}
        last = [Snapshot.load(own_file(m)).runs[m.hash]["state_dict"] for m in (one, other)]  # type: ignore[union-attr]
        assert {key: value.shape for key, value in last[0].items()} == {
            key: v.shape for key, v in last[1].items()
        }


def test_studies_with_the_same_frozen_weights_share_them(tmp_path: Path) -> None:
    """Algorithms share, seeds with random initial weights do not."""
    first = small_study(tmp_path, "tuning=lp", CACHED)
    same = small_study(tmp_path, "tuning=lp", CACHED, "algorithm=vrex", source=first.source)
    other = small_study(tmp_path, "tuning=lp", CACHED, "seed=1", source=first.source)
    assert same.environments is first.environments
    assert other.environments is not first.environments


def test_each_image_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = small_study(tmp_path, "tuning=lp", CACHED)
    seen: list[int] = []
    gather = type(study.source.store).gather

    def counted(self: Any, indices: Tensor, feature: Tensor | None = None) -> Any:
        seen.append(len(indices))
        return gather(self, indices, feature)

    monkeypatch.setattr(type(study.source.store), "gather", counted)
    for step in (0, 1, 0):
        study.runs[0].data.batches(step, 2)
    own = [
        study.source.table.subset(env, part)
        for env in study.source.info.given
        for part in ("train", "val")
    ]
    pool = study.source.table.pool  # type: ignore[attr-defined]
    assert sum(seen) == len(np.unique(np.concatenate(own))) + 2 * len(
        pool
    )  # the pool is painted in two colors


# ---- a file


def test_a_file_is_used_again_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("tuning=lp", CACHED, f"tuning.cache_dir={tmp_path / 'features'}")
    first = small_study(tmp_path, *words)
    batch = first.runs[0].data.batches(0, 1)[0]
    (file,) = [path for path in (tmp_path / "features").iterdir() if path.is_dir()]
    assert file.name.startswith("features-")
    computed = CachedFeatures._computed
    asked: list[int] = []

    def counted(self: Any, keys: Tensor) -> Any:
        asked.append(len(keys))
        return computed(self, keys)

    monkeypatch.setattr(CachedFeatures, "_computed", counted)
    again = small_study(tmp_path, *words).runs[0].data.batches(0, 1)[0]
    assert torch.equal(again.x, batch.x) and torch.equal(again.y, batch.y)
    assert sum(asked) <= 1 + CHECKED_ROWS, "no more than what checks the file"
    small_study(tmp_path, *words, "seed=1").runs[0].data.batches(0, 1)
    arrays = [path for path in (tmp_path / "features").iterdir() if path.is_dir()]
    assert len(arrays) == 2, "other weights, another file"


@pytest.mark.parametrize("part", ["bits", "end", "labels", "other images"])
def test_a_damaged_file_is_named_and_made_again(
    part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = ("tuning=lp", CACHED, f"tuning.cache_dir={tmp_path / 'features'}")
    batch = small_study(tmp_path, *words).runs[0].data.batches(0, 1)[0]
    (folder,) = [path for path in (tmp_path / "features").iterdir() if path.is_dir()]
    whole = (folder / DATA).read_bytes()
    content = np.fromfile(folder / DATA, np.uint8)
    if part == "bits":
        content[::37] ^= 4
    elif part == "end":
        content = content[:-5]
    elif part == "labels":
        notes = (folder / COMPLETE).read_text()
        (folder / COMPLETE).write_text(notes.replace('"labels": [', '"labels": [1', 1))
    else:  # whole, but of something else
        shutil.rmtree(folder)
        shape = (len(content) // batch.x[0].nbytes, batch.x[0].nbytes)

        def produce(first: int, end: int) -> tuple[np.ndarray, Any]:
            return np.ones((end - first, shape[1]), np.uint8), {"labels": [0] * (end - first)}

        cached_array(folder, shape, produce, chunk=CHUNK_ROWS, workers=1, title=None)
    if part in ("bits", "end"):
        content.tofile(folder / DATA)
    again = small_study(tmp_path, *words).runs[0].data.batches(0, 1)[0]
    assert torch.equal(again.x, batch.x) and torch.equal(again.y, batch.y)
    assert str(folder) in caplog.text
    if part != "bits":  # of which only what was used is made again
        assert (folder / DATA).read_bytes() == whole


# ---- what is refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("algorithm=mixup",), "Mixup cannot train"),
        (("algorithm=mixstyle",), "MixStyle cannot train on"),
        (("algorithm=arm",), "ARM cannot train on"),
        (
            ("tuning.cache_gb=0.000001",),
            r"features of [\d,]+ images take.* more than the 1e-06 GB that they may",
        ),
        (("trainer.precision=bf16-mixed",), "trainer.precision=bf16-mixed would not give"),
    ],
    ids=str,
)
def test_what_does_not_go_with_it(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        small_study(tmp_path, "tuning=lp", CACHED, *words)


def test_augmentation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "training_noise", lambda self, rng, n: {"flip": rng.random(n)})
    with pytest.raises(
        ConfigError, match=r"set dataset.augment=none, or tuning.cache_features=false"
    ):
        small_study(tmp_path, "tuning=lp", CACHED)
