"""What a command says at its end."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.complaints import one_line
from tests.conftest import Command

pytestmark = pytest.mark.slow

SMALL = (
    "dataset.base=digits",
    "backbone.width=32",
    "trainer.steps=150",
    "trainer.eval_every=75",
    "trainer.device=cpu",
)


@pytest.mark.parametrize(("lr", "guesses"), [("1e-9", True), ("1e-2", False)])
def test_models_that_learned_nothing_are_said(
    command: Command, tmp_path: Path, lr: str, guesses: bool
) -> None:
    """In one line for all models of a command; the same command, which trains nothing, only shows
    its tables.
    """
    ended = command("train.py", *SMALL, f"hparams.lr={lr}", cwd=tmp_path)
    assert ended.code == 0, ended.err
    said = [line for line in ended.err.splitlines() if "guessing" in line]
    assert len(said) == guesses
    for line in said:
        one_line(line, r"[1-5] of 5 models.* %.*hparams\.lr and trainer\.steps")


def test_where_tensorboard_wrote(command: Command, tmp_path: Path) -> None:
    """Each command says it in one line, a sweep of its own folder."""
    words = (*SMALL, "trainer.steps=2", "protocol.folds=[0]", "logger=tensorboard")
    lines = command("train.py", *words, cwd=tmp_path).out.splitlines()
    (study,) = tmp_path.glob("outputs/sr_*")
    said = [line for line in lines if "tensorboard" in line]
    assert said == [f"TensorBoard: tensorboard --logdir outputs/{study.name}"]
    lines = command(
        "train.py", "-m", *words, "seed=1,2", "hydra/launcher=local", cwd=tmp_path
    ).out.splitlines()
    assert lines.count("TensorBoard: tensorboard --logdir multirun") == 1
    (closing,) = [line for line in lines if line.startswith("report: ")]
    _, _, script, *typed = shlex.split(closing)  # what a program says is typed as it stands
    assert "2 finished runs" in command(script, *typed, cwd=tmp_path).out


def test_a_folder_that_no_program_can_fetch(command: Command, tmp_path: Path) -> None:
    ended = command("train.py", "dataset=image_folder", "dataset.root=nowhere", cwd=tmp_path)
    assert ended.code == 1 and "fetch" not in ended.err
    one_line(*ended.complaints, r"dataset\.root=nowhere is no folder")
