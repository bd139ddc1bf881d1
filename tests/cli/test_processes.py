"""Several processes train one run: the rows of one process, and none is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dgbench.records.rows import read_rows
from tests.conftest import Command

TWO = ("trainer=ddp", "trainer.precision=64-true", "protocol.folds=[0]")

# The further process as a fork of a warm one, which saves its imports; the tests of signals start
# the real thing.
FORK = """
import json, os, sys, traceback
import dgbench.training.worker as further, dgbench.training.processes as processes

class Forked:
    def __init__(self, folder, task):
        read, write = os.pipe()
        self.pid, self.returncode = os.fork(), None
        if self.pid == 0:
            os.close(write)
            sys.stdin = os.fdopen(read)
            code = 0
            try:
                further.main()
            except BaseException as error:
                (folder / "process-1.txt").write_text(traceback.format_exc())
                code = 1
            os._exit(code)
        os.close(read)
        self.stdin = os.fdopen(write, "w")
        print(json.dumps({**task, "folder": str(folder)}), file=self.stdin, flush=True)

    def wait(self, seconds=None):
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self):
        if self.returncode is None:
            os.kill(self.pid, 9)

processes._start = Forked
"""


def _rows(folder: Path) -> list[dict[str, object]]:
    (file,) = folder.rglob("errors.jsonl")
    return read_rows(file)[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [("algorithm=erm",), ("algorithm=erm", "tuning=lp", "averaging=swad")], ids=" ".join
)
def test_two_processes_give_the_rows_of_one(
    words: tuple[str, ...], train: Command, tmp_path: Path
) -> None:
    """ERM in double precision, 12 steps, three evaluations in three batches a pass; also averaged
    ones at the end.
    """
    rows = []
    for name, more in (("two", ()), ("one", ("trainer.devices=1",))):
        ended = train(
            *TWO,
            *words,
            *more,
            "trainer.eval_batch_size=100",
            cwd=_made(tmp_path / name),
            before=FORK,
        )
        assert (ended.code, ended.complaints) == (0, []), ended.err
        rows.append(_rows(tmp_path / name))
    assert len(rows[0]) == len(rows[1]) >= 8
    for two, one in zip(*rows, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], abs=1e-9)
        assert two["wrong"] == pytest.approx(one["wrong"], abs=1e-9)
        assert [two[key] for key in ("step", "env", "subset", "seen")] == [
            one[key] for key in ("step", "env", "subset", "seen")
        ]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.thorough
def test_other_methods_train_on_parts_and_resume_exactly(train: Command, tmp_path: Path) -> None:
    """Parameter groups, states and noise of SagNet in two processes; killed at the first evaluation
    and resumed.
    """
    words = (*TWO, "algorithm=sag_net", "trainer.schedule=cosine")
    die = FORK + (
        "import os, dgbench.callbacks.checkpointer as c\n"
        "write = c.Checkpointer.write\n"
        "def last(self, trainer, module):\n"
        "    write(self, trainer, module)\n"
        "    if module.steps_done == 4 and trainer.global_rank == 0:\n"
        "        os._exit(9)\n"
        "c.Checkpointer.write = last\n"
    )
    whole = train(*words, cwd=_made(tmp_path / "whole"), before=FORK)
    assert whole.code == 0, whole.err
    assert train(*words, cwd=_made(tmp_path / "cut"), before=die).code == 9
    assert len({row["step"] for row in _rows(tmp_path / "cut")}) == 1
    assert train(*words, cwd=tmp_path / "cut", before=FORK).code == 0
    keys = ("step", "env", "subset", "wrong", "loss")
    assert [[row[k] for k in keys] for row in _rows(tmp_path / "cut")] == [
        [row[k] for k in keys] for row in _rows(tmp_path / "whole")
    ]


def test_a_process_that_breaks_is_named(train: Command, tmp_path: Path) -> None:
    """The second process breaks in its first step: the fold fails with what it said."""
    lie = FORK + (
        "from dgbench.training.modules import SingleRun\n"
        "step = SingleRun.training_step\n"
        "def broken(self, batch, index):\n"
        "    if self.global_rank == 1:\n"
        "        raise OSError('no such file')\n"
        "    return step(self, batch, index)\n"
        "SingleRun.training_step = broken\n"
    )
    ended = train(*TWO, cwd=tmp_path, before=lie)
    assert ended.code == 1
    (status,) = tmp_path.rglob("status")
    assert status.read_text().startswith("FAILED process 1 of 2: ")
    assert "no such file" in status.read_text()
    assert "process-1.txt" in status.read_text()


def _others(folder: Path) -> list[str]:
    """Processes of a run under ``folder`` that still run."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            said = (place / "cmdline").read_bytes()
            if b"dgbench.training.worker" in said and os.readlink(place / "cwd") == str(folder):
                found.append(place.name)
        except OSError:
            continue
    return found


# Sends this process a signal once it has written its first rows.
SIGNAL = """
import os, pathlib, threading, time

def send():
    while not any(file.stat().st_size for file in pathlib.Path().rglob("errors.jsonl")):
        time.sleep(0.05)
    pathlib.Path("sent").touch()
    os.kill(os.getpid(), NUMBER)

threading.Thread(target=send, daemon=True).start()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_no_process_is_left_behind(number: signal.Signals, train: Command, tmp_path: Path) -> None:
    """Ctrl-C, the cluster's warning, and death."""
    long = ("trainer.steps=100000", "trainer.eval_every=100")
    ended = train(*TWO, *long, cwd=tmp_path, before=SIGNAL.replace("NUMBER", str(int(number))))
    assert (tmp_path / "sent").exists()
    assert ended.code == (-9 if number == signal.SIGKILL else 130)
    assert _soon(lambda: not _others(tmp_path), 20)


def _soon(happened: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if happened():
            return True
        time.sleep(0.2)
    return happened()
