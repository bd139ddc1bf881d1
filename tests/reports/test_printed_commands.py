"""Commands that reports print are run as they stand, with an algorithm that lies outside the
repository.
"""

from __future__ import annotations

import csv
import json
import os
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
SELECTION = """
from dataclasses import dataclass
from typing import ClassVar

from dgbench.analysis.selection import TrainVal


@dataclass(frozen=True)
class Sure(TrainVal):
    margin: float = 0.0
    name: ClassVar[str] = "of_a_paper"
"""
SELECTION_YAML = "# Mine.\n_target_: own.Sure\nmargin: 0.0  # not used\n"
SHORT = (
    "dataset.base=digits", "backbone.width=8", "trainer.steps=20", "trainer.eval_every=10",
    "trainer.device=cpu", "hparams.lr=0.01",
)  # fmt: skip
ONE_WORKER = ("hydra/launcher=local", "hydra.launcher.workers=1")
FOLDER = "my runs, old"  # of runs: a name that a list of Hydra reads as two


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


def cells(file: Path) -> list[list[str]]:
    """Read a table of a report."""
    with file.open(newline="") as lines:
        return [*csv.reader(lines)]


def run(command: Any, words: list[str], folder: Path) -> Any:
    """Run a printed command; what stands before ``python`` is an environment variable."""
    start = words.index("python")
    environment = dict(word.split("=", 1) for word in words[:start])
    before = (
        f"import os, sys\nos.environ.update({environment})\nsys.path[:0] = "
        f"{[*environment.values()]}\n"
    )
    ended = command(*words[start + 1 :], cwd=folder, before=before if environment else "")
    assert ended.code == 0, ended.err
    return ended


@pytest.mark.thorough
def test_commands_of_reports_on_a_sweep(command: Any, own: Path) -> None:
    """Folds that lack, seeds that a lead takes, an algorithm that another dataset has; and what
    made a run.
    """
    typed = ("-m", "--config-dir", "conf", *ONE_WORKER, *SHORT, "algorithm=erm,mine", "seed=0,1")
    trained = command(
        "train.py", *typed, "protocol.folds=[0,1]", f"hydra.sweep.dir='{FOLDER}'", cwd=own
    )
    assert trained.code == 0, trained.err
    runs = f"runs=['{FOLDER}']"
    (report_line,) = printed(trained.out, "report")
    assert runs in report_line

    report = run(command, report_line, own)
    filling = [
        words for words in printed(report.out, "train") if "protocol.folds=[2,3,full]" in words
    ]
    assert len(filling) == 4  # two algorithms, two seeds
    assert all(words[2:4] == ["--config-dir", "conf"] for words in filling)
    assert not any(word.startswith("hydra") for words in filling for word in words)
    for words in filling:
        run(command, words, own)
    assert "protocol.folds" not in run(command, report_line, own).out

    report = command("report.py", "report=power", runs, cwd=own)
    (more,) = printed(report.out, "train")
    assert any(word.startswith("grid.seed=[2,3") for word in more)
    run(command, more, own)
    seeds = {path.name.split("-s")[1][0] for path in (own / FOLDER).glob("sr_cmnist-mine-*")}
    assert len(seeds) > 2

    (study,) = (own / FOLDER).glob("sr_cmnist-mine-*-s1-*")
    identity = next(study.glob("fold-*/identity.json"))
    session = json.loads(identity.read_text())["sessions"][-1]
    words = ["python", *session["command"], "--config-dir", "conf"]
    rerun = run(command, [*words, "paths.output_dir=again"], own)
    assert study.name in rerun.out


@pytest.mark.thorough
def test_commands_of_a_leaderboard_and_its_captions(command: Any, own: Path) -> None:
    """An algorithm that a dataset lacks, a table that is made again, and a selection of the user's
    own.
    """
    (own / "conf" / "selection").mkdir()
    (own / "conf" / "selection" / "sure.yaml").write_text(SELECTION_YAML)
    (own / "own.py").write_text(ALGORITHM + SELECTION)
    chosen = ("selection=sure", "selection.margin=0.5")
    mine = (
        "-m",
        "--config-dir",
        "conf",
        *ONE_WORKER,
        *SHORT,
        "algorithm=mine",
        "hparams.strength=0.5",
        *chosen,
    )
    trained = command("train.py", *mine, cwd=own)
    assert trained.code == 0, trained.err
    other = (
        *SHORT,
        "algorithm=irm",
        "hparams.irm_lambda=2",
        "dataset.ratio=5",
        "protocol.folds=[0]",
    )
    assert command("train.py", *other, "paths.output_dir=multirun", cwd=own).code == 0

    (report_line,) = printed(trained.out, "report")
    assert report_line[2:] == ["--config-dir", "conf", *chosen, "runs=[multirun]"]
    run(command, [*report_line, "report=leaderboard"], own)
    texts = [
        cell
        for file in own.glob("reports/leaderboard/*.csv")
        for row in cells(file)
        for cell in row
    ]
    absent = printed("\n".join(text for text in texts if text.startswith("not planned")), "train")
    of_mine, of_irm = sorted(absent, key=lambda words: "algorithm=irm" in words)
    assert {"algorithm=mine", "++hparams.strength=0.5", "dataset.ratio=5"} <= {*of_mine}
    assert {"algorithm=irm", "++hparams.irm_lambda=2"} <= {*of_irm}
    for words in absent:
        run(command, words, own)
    studies = [
        path
        for path in (own / "multirun").glob("sr_cmnist-*-s0-*")
        if len([*path.glob("fold-*/status")]) > 3
    ]
    assert len(studies) == 3  # whole ones: two algorithms on one dataset, one of them on the other

    (page,) = own.glob("reports/leaderboard/report.md")
    captions = re.findall("Made by `(.*)`", page.read_text())
    assert captions
    (again,) = printed(captions[0], "report")
    assert again[2:4] == ["--config-dir", "conf"]
    run(command, again, own)


@pytest.mark.thorough
def test_the_command_that_shift_ends_with(command: Any, tmp_path: Path) -> None:
    few = ("dataset.base=digits", "estimator=distances", "estimator.distances.permutations=0")
    ended = command("shift.py", *few, f"paths.output_dir='{FOLDER}'", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (report_line,) = printed(ended.out, "report")
    assert f"runs=['{FOLDER}']" in report_line
    run(command, report_line, tmp_path)


@pytest.mark.thorough
def test_what_a_selection_without_its_runs_names(command: Any, own: Path) -> None:
    """The command of a report in the note that the closing table stays empty."""
    typed = (
        *SHORT,
        "algorithm=erm",
        "protocol.folds=[0]",
        "selection=loo_val",
        f"paths.output_dir='{FOLDER}'",
    )
    ended = command("train.py", *typed, cwd=own)
    assert ended.code == 0, ended.err
    (report_line,) = printed(ended.err, "report")
    assert report_line[2:] == ["selection=loo_val", f"runs=['{FOLDER}']"]
    run(command, report_line, own)


@pytest.mark.thorough
def test_what_continues_names_the_path_of_modules(command: Any, own: Path) -> None:
    """Of a module that lies in a folder of ``PYTHONPATH``, apart from the configuration."""
    code = own / "code"
    code.mkdir()
    (own / "own.py").rename(code / "own.py")
    before = (
        f"import os, sys\nos.environ['PYTHONPATH'] = {str(code)!r}\nsys.path.insert(0, "
        f"{str(code)!r})\nimport signal\nfrom dgbench.training.modules.base import "
        "RunModule\nwhole = RunModule._note_divergence\ndef stop(self, *words):\n    "
        "os.kill(os.getpid(), signal.SIGTERM)\n    return whole(self, "
        "*words)\nRunModule._note_divergence = stop\n"
    )
    typed = (
        "--config-dir",
        "conf",
        *SHORT,
        "algorithm=mine",
        "hparams.strength=0.5",
        "protocol.folds=[0]",
    )
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


@pytest.mark.thorough
def test_predictions_that_a_finished_run_never_wrote(command: Any, own: Path) -> None:
    """They are written by another evaluation, which runs the user's code."""
    typed = (
        "--config-dir",
        "conf",
        *SHORT,
        "algorithm=mine",
        "protocol.folds=[0]",
        f"paths.output_dir='{FOLDER}'",
    )
    assert command("train.py", *typed, cwd=own).code == 0
    again = command("train.py", *typed, "trainer.predictions=last", cwd=own)
    (line,) = re.findall(r"write them with: (.*)", again.err + again.out)
    path, _, *words = shlex.split(line)
    environment, _, folder = path.partition("=")
    assert environment == "PYTHONPATH"
    (own / "program").write_text("from dgbench.cli.main import main\n\nmain()\n")
    before = f"import sys\nsys.path[:0] = {folder.split(os.pathsep)}\n"
    ended = command(own / "program", *words, cwd=own, before=before)
    assert ended.code == 0, ended.err
    assert len([*own.glob("outputs/*evaluated*/*/predictions.parquet")]) == 1
