"""Training on vectors of features: every algorithm trains, single and stacked alike, or says what
it needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dgbench.configuration import CONF
from dgbench.containers import example_of
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError
from tests.complaints import refused
from tests.studies import make_study, train_study
from tests.training.test_stacked import DOUBLE, both_ways, modules_of, rows_of
from tests.vectors import columns, save

ALGORITHMS = [path.stem for path in sorted((CONF / "algorithm").glob("*.yaml"))]
#: what cannot train on vectors, and why; everything else in conf/algorithm does
PICTURES = {
    "arm": "context network.*pictures",
    "ddg": "translator makes.*go through.*whole featurizer",
    "fact": "mixes.*Fourier spectra.*pictures",
    "ji_gen": "shuffles tiles.*pictures",
    "mixstyle": "mixes.*styles.*maps",
    "mmld": "clusters pictures.*style.*channels",
}
MORE = {"mldg": ("hparams.n_meta_test=1",), "miro": ("backbone.normalize=none",)}
# a featurizer without parameters, alone in its group or not
EMPTY = (
    "erm",
    "dann",
    "sag_net",
    "transfer",
)
#: MIRO's copy is the network at first, so that the penalty's gradient is rounding, which Adam
#: divides by its size
TOLERANCE = {"miro": 1e-5}

pytestmark = pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    file = save(tmp_path_factory.mktemp("vectors") / "x.npz")
    return (
        "dataset=features",
        f"dataset.path={file}",
        "trainer.device=cpu",
        "hparams.batch_size=4",
    )


@pytest.fixture(scope="module")
def alike(
    words: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Environments, tuple[str, ...]]:
    """Features of one scale, so that a network without normalization rounds as others do."""
    folder = tmp_path_factory.mktemp("alike")
    file = save(folder / "x.npz", features=columns()["features"] / [1, 1000, 0.01, 1])
    own = (*words, f"dataset.path={file}", DOUBLE)
    return make_study(folder, *own).source, own


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "backbone"),
    [*((name, "feature_mlp") for name in ALGORITHMS), *((name, "linear") for name in EMPTY)],
)
def test_every_algorithm(
    name: str,
    backbone: str,
    alike: tuple[Environments, tuple[str, ...]],
    double: None,
    tmp_path: Path,
) -> None:
    """Two steps of two runs, in double precision: alone and stacked the same, and something has
    moved.
    """
    source, words = alike
    words = (*words, f"algorithm={name}", f"backbone={backbone}", *MORE.get(name, ()))
    if name in PICTURES:
        reason = f"^algorithm={name} cannot train on vectors of features: .*{PICTURES[name]}"
        with pytest.raises(ConfigError, match=reason):
            make_study(tmp_path, *words, source=source)
        return
    narrow = ("backbone.width=6",) if backbone == "feature_mlp" else ()
    study = make_study(tmp_path, *words, *narrow, source=source)
    assert study.why_not_stacked() is None
    modules, before = modules_of(study.runs[:2]), study.module(study.folds[0])
    assert both_ways(modules, [own.data for own in study.runs[:2]], 2) < TOLERANCE.get(name, 1e-9)
    moved = (
        not torch.equal(a, b)
        for a, b in zip(modules[0].parameters(), before.parameters(), strict=True)
    )
    assert any(moved) or name == "sand_mask"  # its default masks every gradient, and says so


@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_it_learns_features_on_very_different_scales(
    words: tuple[str, ...], mode: str, tmp_path: Path
) -> None:
    """Four standard deviations are between the classes, so Bayes' error is 2.3 %; the noise is
    1,000 times as large.
    """
    more = ("trainer.steps=60", "trainer.eval_every=60", "hparams.lr=0.01", f"execution={mode}")
    study = make_study(tmp_path, *words, *more)
    train_study(study)
    tested = [row for each in study.runs for row in rows_of(each) if row["subset"] == "test"]
    assert {row["env"] for row in tested} == {"a", "b", "c"}
    assert sum(row["wrong"] for row in tested) / sum(row["seen"] for row in tested) < 0.15


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("backbone=resnet18",), (
            "backbone=resnet18-bn_train takes pictures, and dataset=features holds vectors; "
            "choose backbone=feature_mlp, linear or mlp"
        )),
        (("backbone=mnist_cnn",),
            "backbone=mnist_cnn-64 takes pictures, and dataset=features holds vectors"),
        (("tuning=lp",), "tuning=lp.*freeze.*backbone.*normalization would.*0"),
        (("tuning=freeze", "tuning.freeze_stages=1"), "tuning=freeze1.*freeze.*backbone"),
        (("hparams.batch_size=17",), r"hparams\.batch_size=17.*larger.*smallest training"),
        (("dataset=sr_cmnist", "dataset.base=digits", "backbone=linear"),
         "backbone=linear-batch takes vectors, and dataset=sr_cmnist holds pictures"),
        (("dataset=sr_cmnist", "dataset.base=digits", "backbone=feature_mlp"),
            "takes vectors, and dataset=sr_cmnist"),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    words: tuple[str, ...], more: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    own = [
        word for word in words if not word.startswith("dataset") or "dataset=sr_cmnist" not in more
    ]
    with refused(said):
        make_study(tmp_path, *own, *more)


def test_a_copy_that_cannot_be_frozen(words: tuple[str, ...], tmp_path: Path) -> None:
    """MIRO's copy of the initial network would see features that are not normalized."""
    study = make_study(tmp_path, *words, "algorithm=miro")
    with pytest.raises(ConfigError, match=r"keeps.*frozen copy.*backbone\.normalize=none$"):
        study.module(study.folds[0])


def test_a_perceptron_for_pictures_takes_vectors_too(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    study = make_study(tmp_path, *words, "backbone=mlp", "backbone.width=8")
    assert study.module(study.folds[0])(torch.zeros(3, 4)).shape == (3, 2)


@pytest.mark.parametrize("backbone", ["linear", "feature_mlp"])
def test_frozen_features_are_cached(words: tuple[str, ...], backbone: str, tmp_path: Path) -> None:
    """As of pictures, and of a network without parameters."""
    more = (f"backbone={backbone}", "backbone.normalize=none", "tuning=lp")
    plain, cached = (
        make_study(tmp_path, *words, *more, *extra)
        for extra in ((), ("tuning.cache_features=true",))
    )
    assert plain.runs[0].folder == cached.runs[0].folder
    module, x = cached.module(cached.folds[0]), cached.runs[0].data.batches(0, 1)[0].x
    own: Any = plain.module(plain.folds[0]).networks["featurizer"]
    torch.testing.assert_close(x, own(plain.runs[0].data.batches(0, 1)[0].x))
    assert module(x).shape == (len(x), 2)


def test_an_example_of_a_module() -> None:
    """A parameter, else a buffer of floats, else an empty tensor."""
    layer, norm = torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(2, affine=False).double()
    assert example_of(layer) is layer.weight
    assert example_of(norm) is norm.running_mean
    assert len(example_of(torch.nn.Identity())) == 0
