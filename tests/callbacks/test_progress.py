"""Progress: lines without a terminal, a bar on one and in a notebook."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.callbacks import progress


class Bar:
    """Stands for the bar of a notebook, which only a kernel can show."""

    made: list[dict[str, Any]] = []  # noqa: RUF012  # one for all bars of a test

    def __init__(self, **settings: Any) -> None:
        self.made.append(settings)
        self.lines: list[str] = []

    def write(self, text: str, file: Any) -> None:
        self.lines.append(text)


def test_a_notebook_gets_a_bar_of_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """tqdm finds the bar's place in a notebook by ``{bar}`` alone, without a width."""
    monkeypatch.setattr(progress, "tqdm", Bar)
    monkeypatch.setattr(progress, "_IN_NOTEBOOK", True)
    monkeypatch.setattr(Bar, "made", [])
    shown = progress.StudyProgress(runs=2, steps=100, label="vrex")
    assert [(settings["disable"], "{bar}" in settings["bar_format"]) for settings in Bar.made] == [
        (False, True)
    ]
    shown.note("left to another process")
    assert shown._bar.lines == ["vrex: left to another process"]  # type: ignore[attr-defined]


def test_outside_a_notebook_tqdm_is_the_plain_one() -> None:
    assert not progress._IN_NOTEBOOK


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that tests set; no real time is read."""
    told = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: told.now))
    return told


def test_lines_without_a_terminal(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs of 100 steps.

    After 16 s 32 steps are trained: 2 steps/s; 2 * 100 - 32 = 168 are left: 84 s.
    """
    shown = progress.StudyProgress(runs=2, steps=100, label="vrex")
    shown.begin("fold 0")
    module = SimpleNamespace(steps_done=0)
    shown.on_train_start(None, module)
    clock.now = 1.0  # the first line comes after 3 s
    shown.on_train_batch_end(None, module, None, [None] * 16, 0)
    assert capsys.readouterr().err == ""
    clock.now, module.steps_done = 16.0, 32
    shown.on_train_batch_end(None, module, None, [None] * 16, 1)
    assert capsys.readouterr().err == "vrex 0/2: fold 0, step 32 of 100, 2 steps/s, 84 s left\n"
    shown.end("fold 0", "done")
    shown.end("fold full", "was done before")
    shown.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "vrex 1/2: fold 0 done",
        "vrex 2/2: fold full was done before",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_ends_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skipped run, one resumed at step 60 of 100, one that failed at step 16: all three count as
    whole when over.
    """
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    shown = progress.StudyProgress(runs=3, steps=100, label="vrex")
    module = SimpleNamespace(steps_done=60)
    done = []
    for title, start, trained in (("a", None, 0), ("b", 60, 40), ("c", 0, 16)):
        shown.begin(title)
        if start is not None:
            module.steps_done = start
            shown.on_train_start(None, module)
            shown.on_train_batch_end(None, module, None, [None] * trained, 0)
        done.append(shown._bar.n)
        shown.end(title, "over")
    assert done == [0, 200, 216]
    assert shown._bar.n == 300
    shown.close()
    assert "vrex 2/3: c" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_scoring_is_named_and_counted_in(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 steps at 2 a second, two evaluations of 40 s each: 50 s + 40 s are left after the first
    one.
    """
    shown = progress.StudyProgress(runs=1, steps=100, label="erm")
    shown.begin("fold 0")
    eval_set = SimpleNamespace(indices=range(8_000))
    data = SimpleNamespace(
        eval_every=50,
        batch_size=10,
        training=["a"],
        eval_set_names=lambda: ["test/a"],
        environments=SimpleNamespace(eval_sets=lambda names: {"test/a": eval_set}),
    )
    trainer = SimpleNamespace(datamodule=data, val_dataloaders=[SimpleNamespace(scored=eval_set)])
    module = SimpleNamespace(steps_done=0)
    shown.on_train_start(trainer, module)
    clock.now, module.steps_done = 25.0, 50
    shown.on_train_batch_end(trainer, module, None, [None] * 50, 0)
    said = capsys.readouterr().err  # nobody knows yet how long scoring takes
    assert said.endswith("2 steps/s, 25 s of training left and 2 evaluations, none timed yet\n")
    shown.on_validation_start(trainer, module)
    for seconds, images in ((1.0, 200), (20.0, 3_800)):
        clock.now = 25.0 + seconds
        shown.on_validation_batch_end(trainer, module, None, SimpleNamespace(y=range(images)), 0)
    assert capsys.readouterr().err == (
        "erm 0/1: fold 0, step 50 of 100, scoring 4,000 of 8,000 images, 20 s left for that\n"
    )
    clock.now = 65.0
    shown.on_validation_end(trainer, module)
    clock.now, module.steps_done = 90.0, 100
    shown.on_train_batch_end(trainer, module, None, [None] * 50, 0)
    assert "2 steps/s, 40 s left" in capsys.readouterr().err, "the last evaluation is to come"
