"""Whole studies through real processes, on the digits that scikit-learn carries."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import broken_mnist
from tests.scripts import NO_TORCH

Rows = Callable[[Path], dict[str, bytes]]
ROOT = Path(__file__).resolve().parents[2]

# where a process can die: between rows and checkpoint, between best and last checkpoint, in the
# middle of each file
KILLS = {
    "before the first row": "from dgbench.callbacks import recorder as r\nr.append_rows = die",
    "between rows and checkpoint": "Checkpointer.write = die_at(2, Checkpointer.write)",
    "between best and last checkpoint": "Snapshot.save = die_at(2, Snapshot.save)",
    "inside the second row block": (
        "from dgbench.callbacks import recorder as r\n"
        "whole = r.append_rows\n"
        "def half(path, rows, n=[]):\n"
        "    n.append(1)\n"
        "    written = whole(path, rows)\n"
        "    if len(n) == 2:\n"
        "        os.truncate(path, path.stat().st_size - 100)\n"
        "        die()\n"
        "    return written\n"
        "r.append_rows = half"
    ),
    "inside the second last.ckpt": (
        "from dgbench.training import checkpoints as c\n"
        "whole = c.write_sealed\n"
        "def half(path, writer, n=[]):\n"
        "    n.append(1)\n"
        "    def cut(file):\n"
        "        writer(file)\n"
        "        if len(n) == 2:\n"
        "            file.flush()\n"
        "            os.truncate(f'{path}.partial', 1000)\n"
        "            die()\n"
        "    whole(path, cut)\n"
        "c.write_sealed = half"
    ),
    "in the third interval": (
        "StudyProgress.on_train_batch_end = die_at(3, StudyProgress.on_train_batch_end)"
    ),
    "before DONE": (
        "from dgbench.records import status as s\nwhole = s.write_status\ns.write_status = lambda "
        "folder, word, *why: die() if word == 'DONE' else whole(folder, word, *why)"
    ),
}
PRELUDE = """
import os, signal
import pytorch_lightning as pl
from dgbench.callbacks.checkpointer import Checkpointer
from dgbench.callbacks.progress import StudyProgress
from dgbench.training.checkpoints import Snapshot
how = signal.SIGKILL
def die(*_, **__):
    os.kill(os.getpid(), how)
def die_at(n, whole):
    calls = []
    def call(*arguments, **options):
        calls.append(1)
        return die() if len(calls) == n else whole(*arguments, **options)
    return call
"""


@pytest.fixture(scope="module")
def whole(train: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """An uninterrupted study of two folds and how its command ended."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, train("protocol.folds=[0,full]", "algorithm=vrex", cwd=folder)


def test_a_study_trains_every_fold_and_prints_its_measures(train: Any, tmp_path: Path) -> None:
    """4 given environments, so 5 folds.

    At each of 3 evaluations a held-out fold writes 4 val + 4 test rows, and fold full 4 val + 101
    test rows: 3 * (4 * 8 + 105) = 411.
    """
    ended = train(cwd=tmp_path)
    assert ended.code == 0, ended.err
    (study,) = (tmp_path / "outputs").glob("[!.]*")
    assert re.fullmatch(r"sr_cmnist-erm-mlp-8-s0-[0-9a-f]{12}", study.name)
    assert f"rows: {study.relative_to(tmp_path)}" in ended.out.splitlines()
    assert [line.split()[:2] for line in ended.out.splitlines()[2:6]] == [
        ["0", "0.80"], ["1", "0.85"], ["2", "0.90"], ["3", "0.10"],
    ]  # fmt: skip
    assert [line.split()[0] for line in ended.out.splitlines()[6:11]] == [
        "average",
        "worst",
        "gap",
        "worst+gap",
        "ideal",
    ]
    assert len([line for line in ended.err.splitlines() if line.endswith(" done")]) == 5

    runs = sorted(p for p in study.iterdir() if p.name.startswith("fold-"))
    assert [p.name.split("-")[1] for p in runs] == ["0", "1", "2", "3", "full"]
    counts = []
    for run in runs:
        rows = [json.loads(line) for line in (run / "errors.jsonl").read_text().splitlines()]
        counts.append(Counter((row["step"], row["subset"]) for row in rows))
        assert (run / "status").read_text() == f"DONE {len(rows)} rows\n"
        assert {row["base"] for row in rows} == {"digits"}
        assert {row["run"] for row in rows} == {run.name.split("-")[2]}
        assert {p.name for p in run.iterdir()} == {
            "checkpoints",
            "lock",
            "config.yaml",
            "errors.jsonl",
            "identity.json",
            "log.txt",
            "model.json",
            "progress.json",
            "status",
        }
        assert {p.name for p in (run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert counts[0] == {(step, subset): 4 for step in (4, 8, 12) for subset in ("val", "test")}
    assert counts[4] == {
        (step, subset): n for step in (4, 8, 12) for subset, n in (("val", 4), ("test", 101))
    }
    assert sum(sum(count.values()) for count in counts) == 411


def test_the_same_command_again_trains_nothing(
    train: Any, whole: tuple[Path, Any], rows_of: Rows
) -> None:
    folder, first = whole
    before = rows_of(folder)
    again = train("protocol.folds=[0,full]", "algorithm=vrex", cwd=folder, before=NO_TORCH)
    assert again.code == 0, again.err
    assert again.out == first.out
    assert again.err == "nothing to do: all 2 runs are done\n"
    assert rows_of(folder) == before
    assert len(list((folder / "outputs").glob("[!.]*"))) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("moment", KILLS)
def test_a_killed_study_continues_to_the_same_rows(
    train: Any, whole: tuple[Path, Any], rows_of: Rows, tmp_path: Path, moment: str
) -> None:
    words = ("protocol.folds=[0,full]", "algorithm=vrex")
    killed = train(*words, cwd=tmp_path, before=PRELUDE + KILLS[moment])
    assert killed.code == -signal.SIGKILL, killed.err
    assert rows_of(tmp_path) != rows_of(whole[0])
    resumed = train(*words, cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    assert rows_of(tmp_path) == rows_of(whole[0])
    assert resumed.out.splitlines()[:-1] == whole[1].out.splitlines()[:-1]


def test_a_resumed_fold_does_not_begin_again(train: Any, tmp_path: Path) -> None:
    """Killed while it trains steps 8 to 11; the second process trains those 4 of fold 0's 12."""
    train("protocol.folds=[0]", cwd=tmp_path, before=PRELUDE + KILLS["in the third interval"])
    count = """
from dgbench.training.modules import SingleRun
step = SingleRun._step
def counted(self, number, *rest):
    print("trained", number)
    return step(self, number, *rest)
SingleRun._step = counted
"""
    resumed = train("protocol.folds=[0]", cwd=tmp_path, before=count)
    assert [line for line in resumed.out.splitlines() if line.startswith("trained")] == [
        f"trained {n}" for n in (8, 9, 10, 11)
    ]


@pytest.mark.thorough
def test_kill_9_from_outside(train: Any, rows_of: Rows, tmp_path: Path) -> None:
    """A process of its own, killed as soon as its first rows are on disk; then the same command to
    its end.
    """
    longer = ["trainer.steps=400", "trainer.eval_every=100", "protocol.folds=[0]"]
    words = [
        sys.executable,
        str(ROOT / "train.py"),
        "dataset.base=digits",
        "execution=single",
        "backbone.width=8",
        "trainer.device=cpu",
    ]
    words += ["trainer.checkpoint_seconds=0", *longer]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    kept, cut = tmp_path / "kept", tmp_path / "cut"
    kept.mkdir()
    cut.mkdir()
    with subprocess.Popen(
        words, cwd=cut, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while not any(rows_of(cut).values()) and process.poll() is None:
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    for folder in (cut, kept):
        done = train(*longer, cwd=folder)
        assert done.code == 0, done.err
    assert len(list(cut.glob("outputs/[!.]*"))) == 1
    assert rows_of(cut) == rows_of(kept)


def test_ctrl_c_ends_with_one_line_and_can_be_resumed(
    train: Any, whole: tuple[Path, Any], rows_of: Rows, tmp_path: Path
) -> None:
    words = ("protocol.folds=[0,full]", "algorithm=vrex")
    press = PRELUDE + "how = signal.SIGINT\n" + KILLS["in the third interval"]
    stopped = train(*words, cwd=tmp_path, before=press)
    assert stopped.code == 130
    assert stopped.complaints == ["dgbench: interrupted; the same command continues"]
    assert "Traceback" not in stopped.err
    (status,) = (path.read_text() for path in tmp_path.rglob("status"))
    assert re.fullmatch(r"INTERRUPTED stopped by Ctrl-C at step \d+\n", status)
    assert train(*words, cwd=tmp_path).code == 0
    assert rows_of(tmp_path) == rows_of(whole[0])


def test_a_diverging_fold_fails_alone(train: Any, tmp_path: Path) -> None:
    """The loss of fold 1 becomes infinite at step 5; folds 0 and full are trained to their end."""
    poison = """
import torch
from dgbench.algorithms.erm import ERM
good = ERM.objective
def bad(self, s):
    out = good(self, s)
    if self.sizes.n_envs == 3 and int(s.step) == 5 and bad.fold == 1:
        return type(out)(out.loss * float("inf"))
    return out
bad.fold = -1
ERM.objective = bad
from dgbench.callbacks.progress import StudyProgress
begin = StudyProgress.begin
def counted(self, *arguments):
    bad.fold += 1
    begin(self, *arguments)
StudyProgress.begin = counted
"""
    ended = train("protocol.folds=[0,1,full]", cwd=tmp_path, before=poison)
    assert ended.code == 1
    statuses = {p.parent.name.split("-")[1]: p.read_text() for p in tmp_path.rglob("status")}
    assert statuses["0"].split()[0] == statuses["full"].split()[0] == "DONE"
    assert statuses["1"].startswith("FAILED loss became inf")
    assert len(ended.complaints) == 1
    assert "fold 1" in ended.complaints[0]
    assert "Traceback" not in ended.err
    assert re.search(r"^  average +-$", ended.out, re.M)

    again = train("protocol.folds=[0,1,full]", cwd=tmp_path)
    assert again.code == 0, again.err
    assert again.err.count("was done before") == 2


@pytest.mark.parametrize(("steps", "mode"), [(1, "single"), (12, "single"), (12, "stacked")])
def test_a_learning_rate_that_breaks_the_weights_fails_every_fold(
    train: Any, tmp_path: Path, steps: int, mode: str
) -> None:
    """With a single step the loss itself is finite: the evaluation after it notices."""
    words = (
        "protocol.folds=[0,full]",
        "hparams.lr=1e30",
        f"trainer.steps={steps}",
        f"execution={mode}",
    )
    ended = train(*words, cwd=tmp_path)
    assert ended.code == 1
    statuses = [p.read_text() for p in tmp_path.rglob("status")]
    assert len(statuses) == 2
    assert all(
        re.fullmatch(r"FAILED loss became (nan|inf) at step 1; .*\n", status) for status in statuses
    )
    assert len(ended.complaints) == 1


def test_a_sweep_makes_one_study_per_combination(train: Any, tmp_path: Path) -> None:
    ended = train("-m", "algorithm=erm,vrex", "seed=0,1", "protocol.folds=[full]", cwd=tmp_path)
    assert ended.code == 0, ended.err
    studies = sorted(
        p.name.rsplit("-", 1)[0] for p in (tmp_path / "multirun").glob("[!.]*") if p.is_dir()
    )
    assert studies == [f"sr_cmnist-{a}-mlp-8-s{s}" for a in ("erm", "vrex") for s in (0, 1)]
    assert len(list(tmp_path.rglob("errors.jsonl"))) == 4


@pytest.mark.parametrize(
    "sweep", ["seed=0,x", "dataset.ratio=3,0", "backbone.width=8,-1", "hparams.irm_lambda=1,x"]
)
def test_a_wrong_value_of_any_job_is_refused_before_the_first_trains(
    train: Any, tmp_path: Path, sweep: str
) -> None:
    ended = train("-m", "algorithm=irm", "protocol.folds=[full]", sweep, cwd=tmp_path)
    assert (ended.code, len(ended.complaints)) == (1, 1), ended.err
    assert not list(tmp_path.iterdir())


def test_a_failing_job_is_reported_at_once_and_stops_no_other(train: Any, tmp_path: Path) -> None:
    broken_mnist(tmp_path / "data")
    sweep = ("paths.data_dir=data", "protocol.folds=[full]", "dataset.base=mnist,digits")
    ended = train("-m", *sweep, cwd=tmp_path)
    assert ended.code == 1
    assert len(ended.complaints) == 1
    lines = ended.err.splitlines()
    assert lines.index(ended.complaints[0]) < next(
        i for i, line in enumerate(lines) if line.endswith(" done")
    )
    assert len(list(tmp_path.rglob("errors.jsonl"))) == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("press", "code"), [("how = signal.SIGKILL\n", -9), ("how = signal.SIGINT\n", 130)]
)
def test_a_stack_that_is_stopped_continues_to_the_same_rows(
    train: Any, rows_of: Rows, tmp_path: Path, press: str, code: int
) -> None:
    """All folds train together; the process ends in the third interval of 4 steps."""
    words = ("execution=stacked", "algorithm=vrex", "protocol.folds=[0,1,full]")
    kept, cut = tmp_path / "kept", tmp_path / "cut"
    kept.mkdir()
    cut.mkdir()
    assert train(*words, cwd=kept).code == 0
    stopped = train(*words, cwd=cut, before=PRELUDE + press + KILLS["in the third interval"])
    assert stopped.code == code, stopped.err
    assert "Traceback" not in stopped.err
    assert rows_of(cut) != rows_of(kept)
    resumed = train(*words, cwd=cut)
    assert resumed.code == 0, resumed.err
    assert rows_of(cut) == rows_of(kept)


def test_help_is_light() -> None:
    """``--help`` in a fresh interpreter: none of the heavy packages is imported."""
    code = (
        "import sys\n"
        "from dgbench.cli.train import train\n"
        "sys.argv = ['train.py', '--help']\n"
        "try:\n    train()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'pytorch_lightning', 'pandas', 'sklearn', 'wandb', 'timm'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "python train.py [GROUP=NAME ...]" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "[]"
