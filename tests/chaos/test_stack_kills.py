"""A stack is killed at random moments and between two writes, and ends with rows of an undisturbed
one, bit for bit.

IRM in single precision amplifies rounding, so any change of who trains with whom would show.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.status import read_status

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("CHAOS_KILLS", "30"))
SECONDS = 900  # after which it hangs
STUDY = (
    "dataset.base=digits",
    "backbone.width=32",
    "algorithm=irm",
    "trainer.eval_every=100",
    "trainer.device=cpu",
    "trainer.checkpoint_seconds=0",
)
#: dies at the n-th time that a file is renamed into its place, before or after it
AIMED = """
import os, signal
_replace, _count, _pid = os.replace, [0], os.getpid()
def replace(source, target, *rest, **options):
    _count[0] += 1
    if _count[0] == {n} and {before}:
        os.kill(_pid, signal.SIGKILL)
    _replace(source, target, *rest, **options)
    if _count[0] == {n}:
        os.kill(_pid, signal.SIGKILL)
os.replace = replace
"""
#: dies some time after training began
TIMED = """
import os, signal, threading
import pytorch_lightning as pl
_fit, _pid = pl.Trainer.fit, os.getpid()
def fit(self, *arguments, **options):
    threading.Timer({seconds}, os.kill, (_pid, signal.SIGKILL)).start()
    return _fit(self, *arguments, **options)
pl.Trainer.fit = fit
"""
#: dies some time after the command began
BEGUN = """
import os, signal, threading
threading.Timer({seconds}, os.kill, (os.getpid(), signal.SIGKILL)).start()
"""


def shot(chance: random.Random) -> str:
    """Code that kills the process that runs it, also from one that this one started."""
    if chance.random() < 0.5:
        return AIMED.format(n=chance.randint(5, 60), before=chance.random() < 0.5)
    return TIMED.format(seconds=chance.uniform(0.0, 1.5))


@pytest.mark.parametrize(
    "words",
    [
        ("trainer.steps=600",),
        ("execution=single", "trainer.steps=300"),
        ("grid.seed=[0,1]", "trainer.steps=300"),
    ],
    ids=lambda words: words[0],
)
def test_kills_change_no_row(
    words: tuple[str, ...],
    command: Any,
    rows_of: Callable[[Path], dict[str, bytes]],
    tmp_path: Path,
) -> None:
    """The default mode (a stack of four and one alone), one by one, and two studies in one stack of
    eight.
    """
    alone, chance = tmp_path / "alone", random.Random(11)
    alone.mkdir()
    assert command("train.py", *STUDY, *words, cwd=alone).code == 0
    expected = rows_of(alone)
    deadline, killed, rounds = time.monotonic() + SECONDS, 0, 0
    while killed < KILLS or rounds == 0:
        rounds += 1
        shaken = tmp_path / f"shaken{rounds}"
        shaken.mkdir()
        code = 1
        while code:
            assert time.monotonic() < deadline, killed
            ended = command(
                "train.py",
                *STUDY,
                *words,
                cwd=shaken,
                before=shot(chance) if killed < KILLS else "",
            )
            code = ended.code
            assert code in (0, -signal.SIGKILL), ended.err
            killed += code != 0
        assert rows_of(shaken) == expected, f"after {killed} kills"
        assert {read_status(path.parent).word for path in shaken.rglob("errors.jsonl")} == {"DONE"}
        assert not list(shaken.rglob(".stacks")), (
            "checkpoints of stacks are removed once their runs have their own"
        )
    print(f"{killed} kills in {rounds} rounds")


@pytest.fixture(scope="module", params=["auto", "single"])
def undisturbed(
    request: pytest.FixtureRequest, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[tuple[str, ...], Path]:
    """A study that is evaluated once, at its end; and the folder in which it was trained."""
    words = (*STUDY, "trainer.steps=1500", "trainer.eval_every=1500", "protocol.folds=[0,1]")
    words = tuple(
        word
        for word in words
        if word not in ("trainer.eval_every=100", "trainer.checkpoint_seconds=0")
    )
    words = (*words, "trainer.checkpoint_seconds=0.1", f"execution={request.param}")
    folder = tmp_path_factory.mktemp("undisturbed")
    assert command("train.py", *words, cwd=folder).code == 0
    return words, folder


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stop_before_the_first_evaluation_loses_little(
    how: signal.Signals,
    undisturbed: tuple[tuple[str, ...], Path],
    command: Any,
    rows_of: Callable[[Path], dict[str, bytes]],
    tmp_path: Path,
) -> None:
    """The first checkpoint comes by time: the second start says from which step it resumes, to the
    same rows.
    """
    (words, alone), cut = undisturbed, tmp_path / "cut"
    cut.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *words],
        cwd=cut, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and not [p for p in cut.rglob("*.ckpt") if p.stat().st_size]:
        time.sleep(0.01)
    process.send_signal(how)
    said = process.communicate()[1]
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    if how == signal.SIGINT:
        assert "same command resumes it" in said
    again = command("train.py", *words, cwd=cut)
    assert again.code == 0 and "resumes from step" in again.err
    assert rows_of(cut) == rows_of(alone)
