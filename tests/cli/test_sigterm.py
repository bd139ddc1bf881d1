"""SIGTERM ends a command as Ctrl-C does, whatever it is doing:
one line, exit code 130, no warning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

KILL = """
import importlib, os, signal, time
owner = importlib.import_module("{module}")
for part in "{name}".split(".")[:-1]:
    owner = getattr(owner, part)

called = "{name}".rpartition(".")[2]
original, command = getattr(owner, called), os.getpid()

def kill(*arguments, **named):
    if os.getpid() == command:  # not a worker of a sweep, which is a fork of the command here
        time.sleep(1)  # for processes of a sweep to begin
        os.kill(command, signal.SIGTERM)
    return original(*arguments, **named)

setattr(owner, called, kill)
"""
TINY = ("dataset.base=digits", "backbone.width=8", "trainer.steps=12")
#: what it is doing -> what is typed, and what it calls meanwhile
DOING = {
    "planning": (("train.py", *TINY), "dgbench.plan.studies:planned_studies"),
    "loading": (("train.py", *TINY), "dgbench.training.study:built"),
    "beginning to train": (("train.py", *TINY), "dgbench.training.fit:Fit.train"),
    "training": (("train.py", *TINY), "dgbench.training.modules.base:RunModule.train_steps"),
    "an evaluation after training": (
        ("train.py", *TINY, "trainer.eval_every=4", "averaging=swad"),
        "pytorch_lightning:Trainer._validate_impl",
    ),
    "a sweep": (
        ("train.py", "-m", *TINY, "seed=0,1", "hydra/launcher=local"),
        "dgbench.sweeps.pool:wait",
    ),
    "shift": (("shift.py", "dataset.base=digits"), "dgbench.shift.job:make_estimates"),
    "reporting": (("report.py",), "dgbench.plan.building:build"),
    "evaluating": (
        ("dgbench", "evaluate", "model=x"),
        "dgbench.trained.sources:Evaluator.evaluate",
    ),
}
#: of these, what has begun runs whose status says what stopped them
STOPPED = ("training", "an evaluation after training", "beginning to train", "shift")


@pytest.mark.parametrize("doing", DOING)
def test_it_ends_like_ctrl_c(doing: str, command: Any, tmp_path: Path) -> None:
    (script, *words), calls = DOING[doing]
    module, _, name = calls.partition(":")
    if script == "dgbench":
        (tmp_path / script).write_text("from dgbench.cli.main import main\n\nmain()\n")
        script = str(tmp_path / script)
    ended = command(script, *words, cwd=tmp_path, before=KILL.format(module=module, name=name))
    assert ended.code == 130, ended.err
    (complaint,) = ended.complaints
    assert "interrupted" in complaint
    assert "Traceback" not in ended.err and "Warning" not in ended.err and "leaked" not in ended.err
    statuses = [file.read_text().strip() for file in tmp_path.rglob("status")]
    assert "RUNNING" not in statuses
    stopped = [status for status in statuses if status.startswith("INTERRUPTED")]
    assert all("stopped by SIGTERM" in status for status in stopped)
    assert stopped or doing not in STOPPED
