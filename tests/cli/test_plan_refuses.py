"""A plan refuses what training refuses before its first step, in the same line; neither leaves a
file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch

import dgbench
from dgbench.errors import DgbenchError
from tests.complaints import one_line

SMALL = [
    "dataset.base=digits",
    "trainer.steps=4",
    "trainer.eval_every=2",
    "trainer.device=cpu",
    "protocol.folds=[0]",
]
MLP = [*SMALL, "backbone.width=8"]
VECTORS = ["dataset=features", "dataset.path=vectors.npz", "hparams.batch_size=4"]
#: pictures; their key is for the test to fill in
TREE = [
    "dataset=image_folder",
    "dataset.root=TREE",
    "dataset.image_size=32",
    "hparams.batch_size=2",
]
R18 = [*TREE, "backbone=timm", "backbone.arch=resnet18", "init=random"]
FILE = [*TREE, "backbone=resnet18", "init=file"]

#: what is typed -> what the line must say
WRONG: list[tuple[list[str], list[str], str]] = [
    (R18, ["backbone.arch=nope"], r"backbone\.arch=nope"),
    (R18, ["backbone.arch=null"], r"backbone\.arch is not set"),
    (R18, ["dataset.image_size=16"], r"32 x 32.*16 x 16"),
    (R18, ["tuning=freeze", "tuning.freeze_stages=99"], r"tuning\.freeze_stages=99.*4-stage"),
    (R18, ["head=zero_shot"], r"head=zero_shot.*init=random"),
    (R18, ["head=zero_shot", "head.model=ViT-B-32"], r"head=zero_shot.*init=random"),
    (R18, ["hparams.resnet_dropout=1"], r"dropout"),
    (TREE, ["backbone=linear", "init=random"], r"backbone=linear.*vectors"),
    (FILE, ["init.path=/etc/passwd"], r"/etc/passwd cannot be read"),
    (FILE, ["init.path=other.pt"], r"other\.pt does not fit resnet18"),
    (FILE, ["init.path=r18.pt", "backbone=resnet50"], r"r18\.pt does not fit resnet50"),
    (R18, ["head=zero_shot", "backbone.unit_length=false"], r"backbone\.unit_length=true"),
    (SMALL, ["backbone=mnist_cnn"], r"mnist_cnn.*14 x 14.*8 x 8"),
    (SMALL, ["backbone=wide_resnet"], r"wide_resnet.*32 x 32"),
    (MLP, ["backbone.width=0"], r"backbone\.width=0"),
    (MLP, ["+backbone.nope=1"], r"backbone.*nope"),
    (MLP, ["backbone._target_=no.such.Net"], r"backbone\._target_=no\.such\.Net"),
    (MLP, ["backbone._target_=pathlib.Path"], r"backbone\._target_=pathlib\.Path.*torch Module"),
    (MLP, ["backbone._target_=torch.nn.Linear"], r"backbone"),
    (MLP, ["tuning=freeze", "tuning.freeze_stages=2"], r"tuning\.freeze_stages=2.*2-stage"),
    (MLP, ["tuning=lp_ft", "tuning.head_steps=99"], r"tuning\.head_steps=99"),
    (
        MLP,
        ["tuning=lp", "tuning.cache_features=true", "algorithm=mixstyle"],
        r"cache_features=false",
    ),
    (MLP, ["algorithm=clipood", "tuning=lp"], r"tuning=lp.*clipood.*tuning=ft"),
    (
        MLP,
        ["algorithm=clipood", "tuning=lp_ft", "tuning.head_steps=2"],
        r"tuning=lp_ft.*clipood.*tuning=ft",
    ),
    (MLP, ["algorithm=clipood", "head=zero"], r"head=zero.*clipood.*head=zero_shot"),
    (MLP, ["algorithm=clipood", "hparams.margin=-1"], r"hparams\.margin=-1.*number >= 0"),
    (MLP, ["algorithm=sam", "trainer.accumulate=2"], r"algorithm=sam.*trainer\.accumulate=2"),
    (MLP, ["algorithm.objective=no.Such"], r"algorithm\.objective=no\.Such"),
    (
        MLP,
        ["averaging=swad", "averaging.rule.n_converge=2", "+averaging.rule.nope=1"],
        r"averaging.*nope",
    ),
    (MLP, ["averaging=eoa", "averaging.rule._target_=pathlib.Path"], r"averaging\.rule"),
    (MLP, ["sharpness=sam", "algorithm=sam"], r"sharpness=sam.*algorithm=sam"),
    (MLP, ["selection._target_=no.Such"], r"selection.*no\.Such"),
    (MLP, ["head=zero", "algorithm=adrmx"], r"head=zero.*Sequential"),
    (MLP, ["+selection.nope=1"], r"selection.*nope"),
    (MLP, ["logger._target_=no.such.Log"], r"logger\._target_=no\.such\.Log"),
    (MLP, ["+callbacks.x._target_=pathlib.Path"], r"callbacks\.x\._target_=pathlib\.Path"),
    (
        MLP,
        ["+callbacks.x._target_=pytorch_lightning.callbacks.EarlyStopping"],
        r"callbacks\.x.*monitor",
    ),
    (MLP, ["trainer.precision=16-mixed"], r"trainer\.precision=16-mixed"),
    (
        MLP,
        ["execution=stacked", "averaging=swad", "averaging.rule.n_converge=2"],
        r"averaging=swad.*execution=single",
    ),
    (VECTORS, ["backbone=mnist_cnn"], r"backbone=mnist_cnn.*pictures"),
    (VECTORS, ["algorithm=mixstyle"], r"algorithm=mixstyle.*vectors"),
    (VECTORS, ["dataset.path=test_rows.npz"], r"environment \w has no training images"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of weights, and of vectors."""
    folder = tmp_path_factory.mktemp("files")
    torch.save({"x": torch.ones(3)}, folder / "other.pt")
    torch.save(timm.create_model("resnet18", num_classes=0).state_dict(), folder / "r18.pt")
    features = np.random.default_rng(0).normal(size=(90, 5)).astype(np.float32)
    columns = {
        "features": features,
        "environment": np.repeat(list("abc"), 30),
        "label": np.tile([0, 1], 45),
    }
    np.savez(folder / "vectors.npz", **columns)
    np.savez(folder / "test_rows.npz", **columns, subset=np.repeat("test", 90))
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("base", "words", "said"), WRONG, ids=[" ".join(words) for _, words, _ in WRONG]
)
def test_a_plan_refuses_what_training_refuses(
    base: list[str], words: list[str], said: str, files: Path, shared_tree: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(files)
    lines = []
    for plan in ("true", "false"):
        typed = [word.replace("TREE", str(shared_tree)) for word in [*base, *words]]
        with pytest.raises(DgbenchError) as refused:
            dgbench.train(
                [*typed, f"plan={plan}", f"paths.cache_dir={tmp_path}/cache"],
                output=tmp_path / "out",
            )
        lines.append(str(refused.value))
    one_line(lines[0], said)
    assert lines[0] == lines[1]
    assert not (tmp_path / "out").exists()


def test_a_device_of_another_machine_is_a_caution_of_the_plan(command: Any, tmp_path: Path) -> None:
    """What starts on it is refused before anything is written."""
    device = "trainer.device=mps" if sys.platform != "darwin" else "trainer.device=cuda"
    for script in ("train.py", "shift.py"):
        words = [script, "dataset.base=digits", "backbone.width=8", device]
        plan = command(*words, "plan=true", cwd=tmp_path)
        assert (plan.code, plan.complaints) == (0, []) and plan.out.count(device) == 1, plan.err
        ended = command(*words, cwd=tmp_path)
        assert ended.code == 1 and len(ended.complaints) == 1, ended.err
        one_line(ended.complaints[0], device)
    assert not list(tmp_path.iterdir())


def test_the_plan_of_small_networks_loads_no_torch(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    code = (
        "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__'); print('torch' "
        "in sys.modules)"
    )
    for words in (["backbone.width=8"], ["backbone=mnist_cnn", "dataset.base=mnist"]):
        command = [
            sys.executable,
            "-c",
            code,
            str(root / "train.py"),
            "dataset.base=digits",
            *words,
            "plan=true",
        ]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0 and ended.stdout.splitlines()[-1] == "False", ended.stderr
