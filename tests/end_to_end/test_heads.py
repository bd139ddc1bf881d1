"""Zero-shot classification as a run of 0 steps, and training that starts from it,
on a tiny CLIP.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

import dgbench
from dgbench.errors import ConfigError, DgbenchError
from tests.networks.test_published_formats import SHARED, SIDE, TEXT, WIDTH, clip, saved
from tests.networks.tiny_timm import PATCH

CLASSES = {"dog": 7, "house": 6}
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@pytest.fixture
def words(image_tree: Callable[..., Path], tmp_path: Path) -> list[str]:
    """A study on three tiny environments with CLIP's image encoder and a file of its weights."""
    torch.manual_seed(3)
    vision = {
        "image_size": SIDE,
        "layers": 4,
        "width": WIDTH,
        "head_width": WIDTH // 2,
        "patch_size": PATCH,
    }
    model = tmp_path / "tiny-zero.json"
    model.write_text(
        json.dumps(
            {"embed_dim": SHARED, "quick_gelu": True, "vision_cfg": vision, "text_cfg": TEXT}
        )
    )
    saved(clip().state_dict(), tmp_path / "clip.pt")
    root = image_tree(art=CLASSES, photo=CLASSES, sketch=CLASSES)
    return [
        "dataset=image_folder", f"dataset.root={root}", f"dataset.image_size={SIDE}",
        "backbone=timm", "backbone.arch=tiny_clip", f"backbone.projection={SHARED}", "init=file",
        f"init.path={tmp_path / 'clip.pt'}", f"init.mean={list(MEAN)}", f"init.std={list(STD)}",
        "trainer.device=cpu", "hparams.batch_size=2", f"head.model={model}", "head=zero_shot",
        f"paths.cache_dir={tmp_path / 'cache'}",
    ]  # fmt: skip


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "errors.jsonl").read_text().splitlines()]


def by_open_clip(root: Path, clip_file: Path) -> float:
    """Share of all images of an environment that OpenCLIP itself classifies wrongly."""
    net = clip()
    net.load_state_dict(torch.load(clip_file, weights_only=True))
    tokens = open_clip.SimpleTokenizer(context_length=77)(
        [f"a photo of a {name}." for name in CLASSES]
    )
    wrong = []
    for label, name in enumerate(CLASSES):
        for file in sorted((root / name).iterdir()):
            pixels = (
                np.asarray(
                    Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
                )
                / 255
            )
            x = torch.tensor((pixels - MEAN) / STD, dtype=torch.float32).permute(2, 0, 1)[None]
            with torch.no_grad():
                wrong.append(int(net.get_logits(x, tokens)[0].argmax()) != label)
    return sum(wrong) / len(wrong)


@pytest.mark.slow
def test_zero_shot_is_a_run_of_no_steps_that_the_leaderboard_names(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: Any
) -> None:
    ended = dgbench.train([*words, "trainer.steps=0"], tmp_path / "runs")
    assert not ended.failed and len(ended.folders) == 3
    root = Path(next(word for word in words if word.startswith("dataset.root=")).partition("=")[2])
    for folder in ended.folders:
        rows = rows_of(folder)
        assert {row["step"] for row in rows} == {0} and {row["head"] for row in rows} == {
            "zero_shot"
        }
        (env,) = {row["env"] for row in rows if row["env_held_out"]}
        # val and test: all images of the environment
        both = [row for row in rows if row["env"] == env]
        counted = sum(row["wrong"] for row in both) / sum(row["seen"] for row in both)
        assert counted == pytest.approx(by_open_clip(root / env, tmp_path / "clip.pt"))
    capsys.readouterr()
    assert not dgbench.train([*words, "trainer.steps=0"], tmp_path / "runs").failed
    assert "nothing to do: all 3 runs are done" in capsys.readouterr().err
    found = dgbench.load(ended.folders[0])
    assert found.step == 0
    report = command(
        "report.py",
        f"runs=[{tmp_path / 'runs'}]",
        "report=leaderboard",
        "selection=last",
        cwd=tmp_path,
    )
    assert "zero_shot head" in report.out, report.err


@pytest.mark.slow
def test_training_starts_from_the_text_encoder_and_other_heads_are_other_runs(
    words: list[str], tmp_path: Path
) -> None:
    one = ["protocol.folds=[0]", "trainer.steps=2", "trainer.eval_every=2"]
    zero = dgbench.train(
        [*words, "protocol.folds=[0]", "trainer.steps=0"], tmp_path / "runs"
    ).folders[0]
    tuned = dgbench.train([*words, *one, "hparams.lr=1e-6"], tmp_path / "runs").folders[0]
    plain = [word for word in words if not word.startswith("head")]
    random = dgbench.train([*plain, *one, "hparams.lr=1e-6"], tmp_path / "runs").folders[0]
    empty = dgbench.train([*plain, *one, "hparams.lr=0", "head=zero"], tmp_path / "runs").folders[0]
    runs = (zero, tuned, random)
    losses = {
        run: next(row["loss"] for row in rows_of(run) if row["subset"] == "test") for run in runs
    }
    assert (
        losses[tuned]
        == pytest.approx(losses[zero], rel=1e-2)
        != pytest.approx(losses[random], rel=1e-2)
    )
    assert [row["loss"] for row in rows_of(empty)] == pytest.approx(
        [float(np.log(2))] * len(rows_of(empty)), rel=1e-6
    )
    assert len({zero, tuned, random, empty}) == 4
    assert ["-zero_shot-" in run.parent.name for run in runs] == [True, True, False]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["backbone.unit_length=false"], "needs features of"),
        (["backbone.projection=null"], "set backbone.projection=24"),
        (["dataset.image_size=40"], "multiple of 16"),
        (["head.prompts=[hello]"], "the class stands"),
        (["backbone.arch=test_resnet", "backbone.projection=null"], "does not fit test_resnet"),
        (["tuning.layer_decay=2"], "tuning.layer_decay=2 is not in (0, 1]"),
        (
            ["trainer.steps=2", "trainer.warmup_steps=2"],
            "trainer.warmup_steps=2 is not below trainer.steps=2",
        ),
        (["trainer.steps=-1"], "trainer.steps=-1 is not an"),
    ],
)
def test_wrong_values_end_in_one_line(
    more: list[str], says: str, words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(DgbenchError) as refused:
        ended = dgbench.train([*words, "protocol.folds=[0]", *more], tmp_path / "runs")
        raise ConfigError(" ".join(ended.failed.values()))
    assert says in str(refused.value) and "\n" not in str(refused.value)
