"""What is not imported: Lightning takes seconds, and only training and evaluating need it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIGHTNING = {"pytorch_lightning", "lightning_fabric", "torchmetrics"}
RUN = (
    "import atexit, json, sys\n"
    "atexit.register(lambda: print(json.dumps(sorted(sys.modules))))\n"
    "from dgbench.cli.main import main\n"
    "main(sys.argv[1:])\n"
)
STUDY = ("dataset=sr_cmnist", "dataset.base=digits", "backbone=mlp", "head=zero")


def modules_of(folder: Path, *words: str) -> tuple[set[str], str]:
    """Run ``dgbench WORDS`` in a fresh interpreter; return what it imported and what it said."""
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *words], capture_output=True, text=True, cwd=folder
    )
    *lines, modules = ended.stdout.splitlines()
    return set(json.loads(modules)), "\n".join([*lines, ended.stderr])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("train", "plan=true", *STUDY, "averaging=swad", "logger=csv", "trainer.device=cuda"),
            "vrex",
        ),
        (("train", *STUDY, "trainer.accumulate=2", "execution=stacked"), "cannot be stacked"),
        (("train", *STUDY, "backbone=resnet18"), "at least 32 x 32"),
    ],
    ids=["plan", "refused algorithm", "refused network"],
)
def test_no_lightning_where_nothing_trains(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    imported, text = modules_of(tmp_path, *words, "algorithm=vrex")
    assert said in text
    assert "torch" in imported  # it was judged, not skipped
    assert not imported & LIGHTNING


def test_help_of_evaluate_imports_neither_torch_nor_lightning(tmp_path: Path) -> None:
    imported, text = modules_of(tmp_path, "evaluate", "--help")
    assert "Options:" in text
    assert not imported & {"torch", "timm", "pandas", *LIGHTNING}
