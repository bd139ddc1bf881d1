"""What cannot be adapted, or typed, gets one line, and nothing is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dgbench
from dgbench.cli.models import _with_own_folder, split
from tests.complaints import refused
from tests.trained.adaptation.test_evaluating import small_network
from tests.trained.conftest import Trained
from tests.vectors import save


def bright(x: Tensor) -> Tensor:
    light = x.mean((1, 2, 3))
    return torch.stack([light, -light], 1)


def no_norms() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2))


@pytest.fixture
def words(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [
        "dataset=pacs",
        f"dataset.root={pictures}",
        "dataset.image_size=32",
        "dataset.published=null",
        f"dataset.cache_dir={tmp_path_factory.getbasetemp() / 'adapted_cache'}",
        "trainer.device=cpu",
        "protocol.folds=[0]",
    ]


@pytest.mark.parametrize(
    ("model", "keys", "options", "said"),
    [
        (small_network(), ["adaptation=bn", "adaptation.batch_size=1"], {}, "batch_size=1 gives"),
        (small_network(), ["adaptation=tent", "adaptation.batch_size=1"], {}, "give 2 or more"),
        (no_norms(), ["adaptation=bn"], {}, "adaptation=bn replaces .* this network has none"),
        (no_norms(), ["adaptation=tent"], {}, "adaptation=tent trains .* this network has none"),
        (no_norms(), ["adaptation=sar"], {}, "adaptation=sar trains .* this network has none"),
        (bright, ["adaptation=bn"], {}, "adaptation=bn changes a network, .* without parameters"),
        (bright, ["adaptation=t3a"], {}, "adaptation=t3a changes a network"),
        (small_network(), ["adaptation=bn"], {"features": 5}, "features=5 keeps .* leave one"),
        (small_network(), ["adaptation=bn"], {"predictions": "best"}, "predictions=best is unk"),
        (small_network(), ["adaptation=tnt"], {}, "adaptation=tnt is unknown; did you mean tent"),
        (small_network(), ["adaptation=[]"], {}, r"adaptation=\[\]"),
        (small_network(), ["adaptation.lr=1"], {}, "adaptation=none has no key lr"),
        (small_network(), ["adaptation=tent", "adaptation.lr=[]"], {}, "names no value"),
        (small_network(), ["adaptation=tent", "adaptation.lr=x"], {}, "adaptation.lr=x is not a"),
        (small_network(), ["adaptation=tent", "adaptation.stream_seed=-1"], {}, "stream_seed=-1"),
        (small_network(), ["adaptation=tent", "adaptation.name=a/b"], {}, "cannot name a folder"),
        (small_network(), ["adaptation=tent", "adaptation.name=bn"], {}, "only changes what rows"),
        (small_network(), [], {"seed_moves": "stream"}, "adaptation=none does not have"),
        (small_network(), ["adaptation=bn"], {"seed_moves": "stream"}, "needs the seeds of the"),
        (small_network(), ["adaptation=bn"], {"seed_moves": "order"}, "seed_moves=order is unkn"),
        (
            small_network(),
            ["adaptation=bn", "adaptation._target_=builtins.dict"],
            {},
            "adaptation._target_=builtins.dict is no method of adaptation",
        ),
    ],
)
def test_one_line_and_nothing_is_evaluated(
    model: Any,
    keys: list[str],
    options: dict[str, Any],
    said: str,
    words: list[str],
    tmp_path: Path,
) -> None:
    with refused(said):
        dgbench.evaluate(model, [*words, *keys], name="net", output=tmp_path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_predictions_that_are_grouped_already(trained: Trained, tmp_path: Path) -> None:
    with refused("predicts .* images together already"):
        dgbench.evaluate(trained("algorithm=arm"), ["adaptation=t3a"], output=tmp_path)


@pytest.mark.thorough
def test_vectors(tmp_path: Path) -> None:
    save(tmp_path / "vectors.npz")
    words = ["dataset=features", f"dataset.path={tmp_path / 'vectors.npz'}", "trainer.device=cpu"]
    short = [
        "trainer.steps=2",
        "trainer.eval_every=2",
        "protocol.folds=[0]",
        "hparams.batch_size=4",
    ]
    (run,) = dgbench.train([*words, *short], tmp_path / "runs").folders
    with refused("adaptation=t3a needs images, and .* holds vectors; leave it out"):
        dgbench.evaluate(run, ["adaptation=t3a"], output=tmp_path / "none")


@pytest.mark.thorough
def test_runs_whose_seed_is_not_the_streams(trained: Trained, tmp_path: Path) -> None:
    run = trained("algorithm=erm", "seed=3")
    keys = ["adaptation=t3a", "adaptation.stream_seed=[0,1]"]
    with refused("this run has seed 3; name runs of seed 0"):
        dgbench.evaluate(run, keys, seed_moves="stream", output=tmp_path)
    with refused("mlp|this network has none"):
        dgbench.evaluate(run, ["adaptation=bn"], output=tmp_path)


def test_keys_of_the_command() -> None:
    options, overrides = split(["model=x", "adaptation=[bn,tent]", "seed_moves=stream"])
    assert options == {"model": "x", "seed_moves": "stream"}
    assert overrides == ["adaptation=[bn,tent]"]


@pytest.mark.parametrize("typed", [["--config-dir"], ["--config-dir", "nosuch"], ["-cd=nosuch"]])
def test_a_folder_of_configuration_that_is_not_there(typed: list[str]) -> None:
    with refused("names no folder; give the folder that holds adaptation/NAME.yaml"):
        _with_own_folder(["model=x", *typed])
