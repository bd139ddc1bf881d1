"""train.py with given initial weights and with MixStyle on a ResNet, as a user runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from tests.complaints import one_line
from tests.conftest import rows_in

CLASSES = {"cat": 7, "dog": 6}
# an address where nothing listens, and no file of this machine's own cache
NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_CACHE": "nowhere", "HF_HOME": "nowhere"}


@pytest.fixture
def resnet(command: Any, image_tree: Callable[..., Path]) -> Callable[..., Any]:
    """``resnet(cwd=...)``: a ResNet with few channels on three tiny environments, 3 steps, one
    fold.
    """
    root = image_tree(art=CLASSES, photo=CLASSES, sketch=CLASSES)

    def run(*words: object, **options: Any) -> Any:
        return command(
            "train.py", "dataset=image_folder", f"dataset.root={root}", "dataset.image_size=32",
            "backbone=resnet18", "backbone.arch=test_resnet", "trainer.steps=3",
            "trainer.eval_every=3", "hparams.batch_size=4", "trainer.device=cpu",
            "trainer.checkpoint_seconds=0", "protocol.folds=[0]", *words, **options,
        )  # fmt: skip

    return run


@pytest.mark.slow
def test_two_files_of_weights_make_two_runs_and_two_boards(
    resnet: Any, command: Any, tmp_path: Path
) -> None:
    names = []
    for version in (1, 2):
        net = timm.create_model("test_resnet", pretrained=False, num_classes=10)
        state = {f"module.encoder_q.{name}": value for name, value in net.state_dict().items()}
        torch.save(
            {"epoch": 200, "arch": "resnet50", "state_dict": state}, tmp_path / f"{version}.pth.tar"
        )
        ended = resnet("init=moco", f"init.path={version}.pth.tar", cwd=tmp_path)
        assert ended.code == 0, ended.err
        names = sorted({row["init"] for row in rows_in(tmp_path)})
        assert len(names) == version
    assert all(name.startswith("moco:") and len(name) == 17 for name in names)
    again = resnet("init=moco", "init.path=2.pth.tar", cwd=tmp_path)
    assert "nothing to do" in again.err + again.out
    assert len(list(tmp_path.glob("outputs/*-test_resnet-bn_frozen-moco-s0-*/fold-0-*"))) == 2
    assert {row["n_trainable"] for row in rows_in(tmp_path)} == {
        row["n_parameters"] for row in rows_in(tmp_path)
    }
    report = command(
        "report.py", "runs=[outputs]", "report=leaderboard", "selection=train_val", cwd=tmp_path
    )
    assert report.code == 0, report.err
    for name in names:
        assert f"{name} init" in report.out


@pytest.mark.slow
def test_mixstyle_trains_on_a_resnet(resnet: Any, tmp_path: Path) -> None:
    """Its rows differ from those of its pairing alone (ms_p=0)."""
    losses = {}
    for p in (0, 1):
        folder = tmp_path / str(p)
        folder.mkdir()
        ended = resnet("algorithm=mixstyle", f"hparams.ms_p={p}", cwd=folder)
        assert ended.code == 0, ended.err
        losses[p] = [row["loss"] for row in rows_in(folder)]
    assert len(losses[0]) == len(losses[1]) > 0
    assert losses[0] != losses[1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("init=file", "init.path=gone.pth"), r"init\.path=gone\.pth.*file.*\.pth"),
        (("init=file", "init.path=other.pth"), "other.pth does not fit test_resnet: lacks "),
        (("init=file", "init.path=text.pth"), r"text\.pth cannot be read \("),
        (("init=file",), "init=file names no file"),
        (("init=moco",), r"init=moco.*weights.*test_resnet.*resnet50, vit_base_patch16_224\)"),
        (
            ("init=supervised", "backbone.arch=resnet18"),
            r"resnet18\.tv_in1k/.*\.safetensors.*downloaded \(",
        ),
        (
            ("init=file", "init.url=http://127.0.0.1:9/x.pth"),
            "http://127.0.0.1:9/x.pth cannot be downloaded",
        ),
        (("backbone.norm=no",), r"backbone\.norm=no.*unknown.*train, frozen.*fixed"),
        (("dataset.image_size=16",), r"takes images.*least 32 x 32.*16 x 16.*dataset\.image_size"),
    ],
)
def test_bad_weights_are_one_line_before_anything_is_trained(
    words: tuple[str, ...], says: str, resnet: Any, tmp_path: Path
) -> None:
    if "other" in str(words):
        torch.save({"layer.weight": torch.zeros(3)}, tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("hello")
    before = f"import os\nos.environ.update({NO_HUB!r})\n"
    ended = resnet(*words, cwd=tmp_path, before=before)
    assert ended.code == 1
    assert len(ended.complaints) == 1
    one_line(ended.complaints[0], says)
    assert not list(tmp_path.rglob("errors.jsonl"))
