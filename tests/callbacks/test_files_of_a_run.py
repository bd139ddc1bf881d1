"""Status marks, checkpoints and progress lines."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.trainer.states import TrainerFn

from dgbench.callbacks import progress as progress_module
from dgbench.callbacks.checkpoint import Checkpoints
from dgbench.callbacks.progress import StudyProgress
from dgbench.callbacks.status import read_status, write_status

# ---- status -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "read"),
    [("DONE", "DONE"), ("FAILED loss\n became  nan\n", "FAILED loss became nan"), ("RUNNING\n", "RUNNING")],
)
def test_a_mark_is_one_line(tmp_path: Path, mark: str, read: str) -> None:
    write_status(tmp_path, "RUNNING")
    write_status(tmp_path, mark)
    assert (tmp_path / "status").read_text() == read + "\n"
    assert read_status(tmp_path) == read
    assert [p.name for p in tmp_path.iterdir()] == ["status"]


def test_no_mark(tmp_path: Path) -> None:
    assert read_status(tmp_path) == ""
    assert read_status(tmp_path / "nowhere") == ""


def test_a_mark_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies between writing the new mark and naming it."""
    write_status(tmp_path, "RUNNING")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        write_status(tmp_path, "DONE")
    assert read_status(tmp_path) == "RUNNING"


# ---- checkpoints ------------------------------------------------------------------------------------------------


class Run:
    """A trainer and a module in one: one weight, whose value is the step."""

    def __init__(self, callback: Checkpoints) -> None:
        self.callback, self.callback_metrics, self.saved = callback, {}, 0
        self.state = SimpleNamespace(fn=TrainerFn.FITTING)
        self.steps_done = torch.tensor(0)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"w": self.steps_done.double()}

    def save_checkpoint(self, path: Path) -> None:
        self.saved += 1
        torch.save({"step": int(self.steps_done), "callback": self.callback.state_dict()}, path)

    def evaluate(self, step: int, error: float) -> None:
        self.steps_done, me = torch.tensor(step), self.untyped()
        self.callback_metrics["val/error"] = torch.tensor(error, dtype=torch.float64)
        self.callback.on_validation_end(me, me)
        self.callback.on_train_epoch_end(me, me)

    def untyped(self) -> Any:
        return self


def load(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def test_best_and_last(tmp_path: Path) -> None:
    """Errors 0.5, 0.3, 0.3, 0.4 at steps 10 to 40: best is the first 0.3, at step 20; last is step 40."""
    run = Run(Checkpoints(tmp_path / "checkpoints", seconds=0))
    for step, error in ((10, 0.5), (20, 0.3), (30, 0.3), (40, 0.4)):
        run.evaluate(step, error)
    best = load(tmp_path / "checkpoints" / "best.ckpt")
    assert (best["step"], float(best["state_dict"]["w"])) == (20, 20.0)
    assert load(run.callback.last)["step"] == 40
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]


def test_the_best_is_kept_over_a_resume(tmp_path: Path) -> None:
    """0.3 was seen before the interruption: 0.35 afterwards is not the best, 0.2 is."""
    first = Run(Checkpoints(tmp_path, seconds=0))
    first.evaluate(10, 0.3)
    resumed = Run(Checkpoints(tmp_path, seconds=0))
    resumed.callback.load_state_dict(load(first.callback.last)["callback"])
    resumed.evaluate(20, 0.35)
    assert load(tmp_path / "best.ckpt")["step"] == 10
    resumed.evaluate(30, 0.2)
    assert load(tmp_path / "best.ckpt")["step"] == 30


def test_writes_are_rare_but_the_end_is_always_written(tmp_path: Path) -> None:
    run = Run(Checkpoints(tmp_path, seconds=1e9))
    for step, error in ((10, 0.5), (20, 0.2), (30, 0.4)):
        run.evaluate(step, error)
    assert not list(tmp_path.iterdir())
    run.callback.on_train_end(run.untyped(), run.untyped())
    assert run.saved == 1
    assert (load(tmp_path / "best.ckpt")["step"], load(run.callback.last)["step"]) == (20, 30)


def test_the_best_weights_are_those_of_their_step(tmp_path: Path) -> None:
    """Training changes weights in place before the best is written."""
    run = Run(Checkpoints(tmp_path, seconds=1e9))
    weight = torch.tensor(1.0)
    run.state_dict = lambda: {"w": weight}  # type: ignore[method-assign]
    run.evaluate(10, 0.5)
    weight.mul_(7)
    run.callback.on_train_end(run.untyped(), run.untyped())
    assert float(load(tmp_path / "best.ckpt")["state_dict"]["w"]) == 1.0


def test_a_write_that_breaks_off_leaves_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full in the middle of the second last.ckpt: the first stays."""
    run = Run(Checkpoints(tmp_path, seconds=0))
    run.evaluate(10, 0.5)

    def half(path: Path) -> None:
        path.write_bytes(b"PK")
        raise OSError("no space left")

    monkeypatch.setattr(run, "save_checkpoint", half)
    with pytest.raises(OSError, match="no space"):
        run.evaluate(20, 0.1)
    assert load(run.callback.last)["step"] == 10
    assert load(tmp_path / "best.ckpt")["step"] == 20


# ---- progress ---------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that tests set; no real time is read."""
    told = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: told.now))
    return told


def test_lines_without_a_terminal(clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    """Two folds of 100 steps. After 16 s 32 steps are trained: 2 steps/s; 2 * 100 - 32 = 168 are left: 84 s."""
    progress = StudyProgress(folds=2, steps=100, label="vrex")
    progress.fold("hold out 0.80")
    module = SimpleNamespace(steps_done=torch.tensor(0))
    progress.on_train_start(None, module)
    clock.now = 1.0
    progress.on_train_batch_end(None, module, None, [None] * 16, 0)
    assert capsys.readouterr().err == ""
    clock.now, module.steps_done = 16.0, torch.tensor(32)
    progress.on_train_batch_end(None, module, None, [None] * 16, 1)
    assert capsys.readouterr().err == "vrex: fold 1/2 (hold out 0.80), step 32 of 100, 2 steps/s, 84 s left\n"
    progress.fold_done("done")
    progress.fold("all given environments")
    progress.fold_done("was done before")
    progress.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "vrex: fold 1/2 (hold out 0.80) done",
        "vrex: fold 2/2 (all given environments) was done before",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_ends_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skipped fold, one resumed at step 60 of 100, one that failed at step 16: all three count as whole when over."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    progress = StudyProgress(folds=3, steps=100, label="vrex")
    module = SimpleNamespace(steps_done=torch.tensor(60))
    done = []
    for title, start, trained in (("a", None, 0), ("b", 60, 40), ("c", 0, 16)):
        progress.fold(title)
        if start is not None:
            module.steps_done = torch.tensor(start)
            progress.on_train_start(None, module)
            progress.on_train_batch_end(None, module, None, [None] * trained, 0)
        done.append(progress._bar.n)
        progress.fold_done("over")
    assert done == [0, 200, 216]
    assert progress._bar.n == 300
    progress.close()
    assert "fold 3/3 (c)" in screen.getvalue()
    assert "100%" in screen.getvalue()
