"""Commands that reports print are run as they stand, with an algorithm that lies outside the repository."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

ALGORITHM = """
from dgbench.algorithms.erm import ERM
from dgbench.objectives.step import Outcome


class Mine(ERM):
    def objective(self, s):
        return Outcome(self.values["strength"] * s.environment_risks().mean())
"""
YAML = (
    "_target_: dgbench.training.modules.training_module\nname: mine\nobjective: own.Mine\n"
    "hparams: {strength: 0.1}\nsearch: {}\n"
)
SHORT = (
    "dataset.base=digits", "backbone.width=8", "trainer.steps=40", "trainer.eval_every=20", "trainer.device=cpu",
    "hparams.lr=0.01",
)  # fmt: skip
ONE_WORKER = ("hydra/launcher=local", "hydra.launcher.workers=1")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with an algorithm, and none of dgbench."""
    (tmp_path / "conf" / "algorithm").mkdir(parents=True)
    (tmp_path / "conf" / "algorithm" / "mine.yaml").write_text(YAML)
    (tmp_path / "own.py").write_text(ALGORITHM)
    return tmp_path


def printed(text: str, name: str) -> list[list[str]]:
    """List the words of every command that a text ends a line with, each once."""
    lines = re.findall(rf"(?:PYTHONPATH=\S+ )?python {name}\.py.*", text)
    return [shlex.split(line) for line in dict.fromkeys(lines)]


def run(command: Any, words: list[str], folder: Path) -> Any:
    """Run a printed command; what stands before ``python`` is an environment variable."""
    start = words.index("python")
    environment = dict(word.split("=", 1) for word in words[:start])
    before = f"import os, sys\nos.environ.update({environment})\nsys.path[:0] = {[*environment.values()]}\n"
    ended = command(*words[start + 1 :], cwd=folder, before=before if environment else "")
    assert ended.code == 0, ended.err
    return ended


@pytest.mark.thorough
def test_commands_of_reports_on_a_sweep(command: Any, own: Path) -> None:
    """Folds that lack, seeds that a lead takes, an algorithm that another dataset has; and what made a run."""
    typed = ("-m", "--config-dir", "conf", *ONE_WORKER, *SHORT, "algorithm=erm,mine", "seed=0,1")
    trained = command("train.py", *typed, "protocol.folds=[0,1]", cwd=own)
    assert trained.code == 0, trained.err
    other = (*SHORT, "--config-dir", "conf", "algorithm=irm", "hparams.irm_lambda=2", "dataset.ratio=5")
    assert command("train.py", *other, "protocol.folds=[0,1,2,3]", cwd=own).code == 0

    report = command("report.py", "report=measures", cwd=own)
    filling = [words for words in printed(report.out, "train") if "protocol.folds=[2,3,full]" in words]
    assert len(filling) == 4  # two algorithms, two seeds
    assert all(words[2:4] == ["--config-dir", "conf"] for words in filling)
    assert not any(word.startswith("hydra") for words in filling for word in words)
    for words in filling:
        run(command, words, own)
    assert "protocol.folds" not in command("report.py", "report=measures", "runs=[multirun]", cwd=own).out

    report = command("report.py", "report=power", "runs=[multirun]", cwd=own)
    (more,) = printed(report.out, "train")
    assert any(word.startswith("grid.seed=[2,3") for word in more)
    run(command, more, own)
    seeds = {path.name.split("-s")[1][0] for path in (own / "multirun").glob("sr_cmnist-mine-*")}
    assert len(seeds) > 2

    report = command("report.py", "report=leaderboard", cwd=own)
    absent = [words for words in printed(report.out, "train") if "algorithm=mine" in words or "algorithm=irm" in words]
    for words in absent:
        run(command, words, own)

    (study,) = (own / "multirun").glob("sr_cmnist-mine-*-s1-*")
    identity = next(study.glob("fold-*/identity.json"))
    session = json.loads(identity.read_text())["sessions"][-1]
    words = ["python", *session["command"], "--config-dir", "conf"]
    rerun = run(command, [*words, "paths.output_dir=again"], own)
    assert study.name in rerun.out

    (report_line,) = printed(trained.out, "report")
    run(command, report_line, own)


@pytest.mark.thorough
def test_what_continues_names_the_path_of_modules(command: Any, own: Path) -> None:
    """Of a module that lies in a folder of ``PYTHONPATH``, apart from the configuration."""
    code = own / "code"
    code.mkdir()
    (own / "own.py").rename(code / "own.py")
    before = (
        f"import os, sys\nos.environ['PYTHONPATH'] = {str(code)!r}\nsys.path.insert(0, {str(code)!r})\n"
        "import signal\nfrom dgbench.training.modules.base import RunModule\n"
        "whole = RunModule._note_divergence\n"
        "def stop(self, *words):\n    os.kill(os.getpid(), signal.SIGTERM)\n    return whole(self, *words)\n"
        "RunModule._note_divergence = stop\n"
    )
    typed = ("--config-dir", "conf", *SHORT, "algorithm=mine", "hparams.strength=0.5", "protocol.folds=[0]")
    stopped = command("train.py", *typed, cwd=own, before=before)
    assert stopped.code == 130, stopped.err
    (identity,) = own.glob("outputs/*/*/identity.json")
    assert json.loads(identity.read_text())["sessions"][-1]["python_path"] == str(code)
    report = command("report.py", "report=status", cwd=own)
    assert "stopped by SIGTERM at step" in report.out
    (words,) = printed(report.out, "train")
    assert words[0] == f"PYTHONPATH={code}"
    run(command, words, own)
    assert (identity.parent / "status").read_text().startswith("DONE")
