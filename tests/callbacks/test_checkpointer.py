"""When checkpoints are written, and what stays when a write breaks off."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.trainer.states import TrainerFn

from dgbench.callbacks import checkpointer as checkpointer_file
from dgbench.callbacks.checkpointer import Checkpointer
from dgbench.interruption import STOPS
from dgbench.plan.settings import TrainerSettings
from dgbench.records.files import write_whole_with

EVERY, STEPS = 10, 40


class Group:
    """A trainer and a module of two runs in one: each has one weight, whose value is the step."""

    def __init__(self, folder: Path, seconds: float, best: int = 2) -> None:
        self.last, self.bests = (
            folder / "last.ckpt",
            [folder / f"best{i}.ckpt" for i in range(best)],
        )
        self.recorder: Any = SimpleNamespace(improved=[])
        files = [self.bests[i] if i < best else None for i in range(2)]
        settings = TrainerSettings(checkpoint_seconds=seconds, steps=STEPS, eval_every=EVERY)
        self.callback = Checkpointer(self.save, files, self.recorder, settings)
        self.state, self.steps_done, self.saved = (
            SimpleNamespace(fn=TrainerFn.FITTING),
            0,
            list[int](),
        )
        self.weight = torch.tensor(0.0)
        self.should_stop = False

    def weights(self, i: int) -> dict[str, torch.Tensor]:
        # copies that later steps do not touch, as the module's are
        return {"w": self.weight.clone()}

    def save(self, trainer: Any, module: Any) -> None:
        self.saved.append(self.steps_done)
        write_whole_with(self.last, lambda file: torch.save({"step": self.steps_done}, file))

    def untyped(self) -> Any:
        return self

    def start(self) -> None:
        self.callback.on_train_start(self.untyped(), self.untyped())

    def train_to(self, step: int) -> None:
        """The end of a batch, with no evaluation."""
        self.steps_done, me = step, self.untyped()
        self.weight.fill_(step)
        self.callback.on_train_batch_end(me, me, None, None, 0)

    def evaluate(self, step: int, *improved: int) -> None:
        self.train_to(step)
        self.recorder.improved, me = list(improved), self.untyped()
        self.callback.on_validation_start(me, me)
        self.callback.on_validation_batch_end(me, me, None, None, 0)
        self.callback.on_validation_end(me, me)
        self.callback.on_train_epoch_end(me, me)

    def end(self) -> None:
        self.callback.on_train_end(self.untyped(), self.untyped())
        self.callback.teardown(self.untyped(), self.untyped(), "fit")


def step_of(path: Path) -> int:
    return int(torch.load(path, weights_only=True)["step"])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that tests set."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(checkpointer_file, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_best_and_last(tmp_path: Path) -> None:
    """Run 0 is at its best at steps 10 and 20, run 1 at 10 and 40; the last state is that of step
    40.
    """
    group = Group(tmp_path, seconds=0)
    for step, improved in ((10, [0, 1]), (20, [0]), (30, []), (40, [1])):
        group.evaluate(step, *improved)
    assert [step_of(path) for path in group.bests] == [20, 40]
    best = torch.load(group.bests[0], weights_only=True)
    assert float(best["state_dict"]["w"]) == 20.0
    assert step_of(group.last) == 40
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best0.ckpt",
        "best1.ckpt",
        "last.ckpt",
    ]


def test_writes_come_by_time_and_at_the_end(tmp_path: Path, clock: SimpleNamespace) -> None:
    """Every 30 s, also between two evaluations; the best weights of 20 are kept until something is
    written.
    """
    group = Group(tmp_path, seconds=30)
    group.start()
    group.evaluate(10, 0)
    clock.now += 29
    group.train_to(15)
    assert group.saved == [] and not list(tmp_path.iterdir())
    clock.now += 1
    group.train_to(16)
    assert group.saved == [16] and group.callback.saved == 16
    assert step_of(group.bests[0]) == 10
    group.evaluate(20, 0)
    group.evaluate(30)
    assert group.saved == [16]
    group.end()
    assert group.saved == [16, 30]
    assert step_of(group.bests[0]) == 20


def test_no_write_between_the_last_step_of_an_interval_and_its_evaluation(tmp_path: Path) -> None:
    """A run resumed from there would leave the evaluation out."""
    group = Group(tmp_path, seconds=0)
    group.start()
    for step in (9, 10, 11, 39, 40):
        group.train_to(step)
    assert group.saved == [9, 11, 39]


def test_the_best_weights_are_those_of_their_step(tmp_path: Path) -> None:
    """Training changes weights in place before the best is written."""
    group = Group(tmp_path, seconds=1e9)
    group.evaluate(10, 0)
    group.train_to(13)
    group.end()
    assert float(torch.load(group.bests[0], weights_only=True)["state_dict"]["w"]) == 10.0


def test_the_best_of_a_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    """It is computed once more beside others, so it has no file to write."""
    group = Group(tmp_path, seconds=0, best=1)
    group.evaluate(10, 0, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best0.ckpt", "last.ckpt"]


def test_an_evaluation_after_training_writes_the_best(tmp_path: Path) -> None:
    group = Group(tmp_path, seconds=1e9)
    group.end()
    group.state.fn = TrainerFn.VALIDATING
    group.recorder.improved = [1]
    group.callback.on_validation_end(group.untyped(), group.untyped())
    assert group.bests[1].exists() and not group.bests[0].exists()


def test_a_write_that_breaks_off_leaves_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full in the middle of the second last.ckpt: the first stays, the best was written
    before it.
    """
    group = Group(tmp_path, seconds=0)
    group.evaluate(10, 0)
    whole = torch.save

    def half(content: Any, file: Any) -> None:
        if "state_dict" not in content:
            file.write(b"PK")
            raise OSError("no space left")
        whole(content, file)

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="no space"):
        group.evaluate(20, 0)
    assert (step_of(group.last), step_of(group.bests[0])) == (10, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best0.ckpt", "last.ckpt"]


@pytest.fixture
def interruptible() -> Any:
    """Python's own handlers, whatever this process has inherited."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOPS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_polite_signal_ends_training_with_a_checkpoint(tmp_path: Path, number: int) -> None:
    """After the minibatches that are being computed; the handler is then as it was."""
    before = signal.getsignal(number)
    group = Group(tmp_path, seconds=1e9)
    group.start()
    signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt, match=STOPS[signal.Signals(number)]):
        group.train_to(13)
    assert group.saved == [13]
    group.callback.teardown(group.untyped(), group.untyped(), "fit")
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_and_then_sigterm_of_a_launcher_are_one_stop(tmp_path: Path) -> None:
    group = Group(tmp_path, seconds=1e9)
    group.start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
        signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt, match="Ctrl-C"):
        group.train_to(13)
    assert group.saved == [13]


def test_a_signal_that_somebody_handles_is_left_to_them(tmp_path: Path) -> None:
    """A launcher of a cluster may ask for requeueing by it."""
    taken: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: taken.append(number))
    group = Group(tmp_path, seconds=1e9)
    group.start()
    signal.raise_signal(signal.SIGUSR1)
    group.train_to(13)
    group.end()
    signal.signal(signal.SIGUSR1, before)
    assert taken == [signal.SIGUSR1]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_during_the_last_evaluation_is_not_forgotten(tmp_path: Path) -> None:
    group = Group(tmp_path, seconds=1e9)
    group.start()
    group.evaluate(STEPS)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        group.callback.on_train_end(group.untyped(), group.untyped())
    assert group.saved == [STEPS]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_before_an_evaluation_waits_for_it(tmp_path: Path) -> None:
    """A checkpoint before it would leave it out; none at all would lose the steps."""
    group = Group(tmp_path, seconds=1e9)
    group.start()
    group.train_to(9)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        group.evaluate(10, 0)
    assert group.saved == [10]
    assert step_of(group.bests[0]) == 10


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    group = Group(tmp_path, seconds=1e9)
    group.start()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
