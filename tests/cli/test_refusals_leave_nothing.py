"""A command that is refused before it starts has said so in one line, and its folder is as empty as
it was.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

CUDA = "trainer.device=cuda"
PACS = ("dataset=pacs", "dataset.root=nowhere")
SHIFT = ("shift.py", "dataset.base=digits", "backbone.width=8")
TRAIN = (
    "train.py",
    "dataset.base=digits",
    "execution=single",
    "backbone.width=8",
    "trainer.steps=12",
)
#: what is typed
REFUSED: dict[str, tuple[str, ...]] = {
    "device": (*TRAIN, CUDA),
    "devices": (*TRAIN, CUDA, "trainer.devices=2"),
    "precision": (*TRAIN, "trainer.precision=16-mixed"),
    "stack": (*TRAIN, "execution=stacked", "averaging=swad"),
    "image files": ("train.py", *PACS, "backbone=mlp"),
    "weights": (*TRAIN[:2], "backbone=resnet18", "init=file", "init.url=http://127.0.0.1:9/w"),
    "search": (*TRAIN, CUDA, "hparams=search", "hparams.scheme.draws=2"),
    "search of nothing": (*TRAIN, "hparams=search", "hparams.scheme.draws=0"),
    "grid": (*TRAIN, "grid.seed=[0,x]"),
    "two equal signs": (*TRAIN, "algorithm==erm"),
    "sweep": (*TRAIN, "-m", "seed=0,1", "hparams.lr=-1"),
    "sweep of one that works": (*TRAIN, "-m", "seed=0,a"),
    "sweep without a device": (*TRAIN, "-m", "seed=0,1", CUDA),
    "sweep of processes": (*TRAIN, "-m", "seed=0,1", "hparams.lr=-1", "hydra/launcher=local"),
    "sweep of processes without a device": (*TRAIN, "-m", "seed=0,1", CUDA, "hydra/launcher=local"),
    "sweep without images": ("train.py", "-m", *PACS, "backbone=mlp", "seed=0,1"),
    "queue": (*TRAIN, "-m", "seed=0,1", "hydra/launcher=slurm", "hparams.lr=-1"),
    "no queue": (*TRAIN, "-m", "seed=0,1", "hydra/launcher=slurm"),
    "report of nothing": ("report.py",),
    "report": ("report.py", "report=leaderboard", "report.spread=x"),
    "shift": (*SHIFT, "trials=0"),
    "shift without a device": (*SHIFT, CUDA),
    "shift of vectors": (*SHIFT[:2], "backbone=linear"),
    "shift sweep": (*SHIFT, "-m", "trials=1,-1"),
    "shift without its folder": (*SHIFT, "trials=1", "cache_dir=/proc/x"),
    "evaluate": ("dgbench", "evaluate", "model=nowhere"),
    "evaluate under a path": ("dgbench", "evaluate", "model=json:loads", "name=a/b", *TRAIN[1:2]),
    "evaluate under no name": ("dgbench", "evaluate", "model=json:loads", "name=", *TRAIN[1:2]),
    "evaluate without a device": (
        "dgbench",
        "evaluate",
        "model=json:loads",
        "name=x",
        *TRAIN[1:2],
        CUDA,
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", REFUSED)
def test_nothing_is_left(kind: str, command: Any, tmp_path: Path) -> None:
    script, *words = REFUSED[kind]
    here = tmp_path / "here"
    here.mkdir()
    if script == "dgbench":
        (tmp_path / script).write_text("from dgbench.cli.main import main\n\nmain()\n")
        script = str(tmp_path / script)
    # no GPU, no squeue
    bare = {
        "CUDA_VISIBLE_DEVICES": "",
        "PATH": str(Path(sys.executable).parent),
    }
    ended = command(script, *words, cwd=here, env=bare)
    assert (ended.code, len(ended.complaints), "Traceback" in ended.err) == (1, 1, False), ended.err
    assert not list(here.iterdir())
