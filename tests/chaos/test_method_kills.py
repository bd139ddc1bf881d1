"""Algorithms and what wraps them are killed at random moments, in one process and in workers of a
sweep: the same rows.

Every second time something is damaged besides, between two starts. ``CHAOS_KILLS=100`` are 100 over
all methods, and about 100 of workers; ``CHAOS_SEED`` chooses the moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.status import read_status
from tests.chaos.test_chaos import processes
from tests.chaos.test_stack_kills import ROOT, SECONDS, shot
from tests.cli.test_processes import FORK
from tests.damage import CHECKPOINTS, ROWS, Way, damage, disagreeing_line, repeat_line

pytestmark = pytest.mark.chaos

KILLS = int(os.environ.get("CHAOS_KILLS", "50"))
SEED = int(os.environ.get("CHAOS_SEED", "0"))
COMMON = {"trainer.device": "cpu", "trainer.eval_every": "20", "trainer.checkpoint_seconds": "0"}
DIGITS = {
    "dataset.base": "digits",
    "backbone.width": "8",
    "protocol.folds": "[0,full]",
    "trainer.steps": "100",
}
METHODS: dict[str, dict[str, str]] = {
    "sam": {"algorithm": "erm", "sharpness": "sam"},
    "group_dro": {"algorithm": "group_dro", "execution": "stacked"},
    "fishr": {"algorithm": "fishr", "hparams.penalty_anneal_iters": "60",
        "trainer.predictions": "best"},
    "irm, probed, then tuned": {"algorithm": "irm", "tuning": "lp_ft", "tuning.head_steps": "50"},
    "mtl": {"algorithm": "mtl", "trainer.eval_test": "best"},
    "transfer": {"algorithm": "transfer", "execution": "stacked"},
    "mixup": {"algorithm": "mixup", "trainer.precision": "bf16-mixed"},
    "fish": {"algorithm": "fish"},
    "arm": {"algorithm": "arm", "trainer.predictions": "last", "trainer.steps": "40",
        "trainer.eval_every": "10"},
    "swad": {"algorithm": "vrex", "averaging": "swad", "averaging.rule.n_converge": "2",
        "trainer.eval_every": "10"},
    "moving average": {"algorithm": "coral", "averaging": "eoa", "averaging.rule.start": "30"},
    "callback": {
        "algorithm": "rsc", "callbacks": "early_stopping", "callbacks.early_stopping.patience": "2",
        "hparams.lr": "1e-30", "trainer.eval_test": "best", "logger": "csv",
    },
    "augmented images": {
        "algorithm": "mixstyle", "backbone": "resnet18", "init": "random", "trainer.steps": "12",
        "trainer.eval_every": "4", "hparams.batch_size": "2", "protocol.folds": "[0]",
    },
    "two processes": {"algorithm": "vrex", "trainer": "ddp", "protocol.folds": "[0]"},
}  # fmt: skip
#: lines that a finished run has beyond its own are for readers to see, and stay
LOSSES = {
    **CHECKPOINTS,
    **{
        name: [way for way in ROWS[name] if way not in (repeat_line, disagreeing_line)]
        for name in ROWS
    },
}
Rows = Callable[[Path], dict[str, bytes]]


def words(keys: dict[str, str]) -> list[str]:
    """Overrides, the groups first: a key of a group stays beside the choice of the group."""
    return [f"{key}={value}" for key, value in keys.items()]


def outputs(folder: Path, rows_of: Rows) -> dict[str, bytes]:
    """Rows, and predictions where there are any."""
    files = folder.rglob("predictions.parquet")
    return {
        **rows_of(folder),
        **{str(file.relative_to(folder)): file.read_bytes() for file in files},
    }


def differing(shaken: Path, alone: Path, rows_of: Rows) -> list[str]:
    """Files of rows and predictions that one of two folders lacks, or that are not the same."""
    now, expected = outputs(shaken, rows_of), outputs(alone, rows_of)
    return sorted(
        file for file in now.keys() | expected.keys() if now.get(file) != expected.get(file)
    )


@pytest.mark.parametrize("method", METHODS)
def test_kills_change_no_row(
    method: str,
    command: Any,
    rows_of: Rows,
    image_tree: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Damaged is what a user deletes or a disk loses: the run begins anew, to the same rows."""
    keys = {**DIGITS, **COMMON, **METHODS[method]}
    if "images" in method:
        classes = {"cat": 9, "dog": 9}
        root = image_tree(art_painting=classes, cartoon=classes, photo=classes, sketch=classes)
        place = {
            "dataset": "pacs",
            "dataset.root": str(root),
            "dataset.image_size": "32",
            "dataset.published": "null",
        }
        keys = {**place, **COMMON, **METHODS[method]}
    kill_often(method, keys, -(-KILLS // len(METHODS)), shot, command, rows_of, tmp_path, capsys)


def kill_often(
    method: str,
    keys: dict[str, str],
    share: int,
    shoot: Callable[[random.Random], str],
    command: Any,
    rows_of: Rows,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    losses: Mapping[str, Sequence[Way]] = LOSSES,
) -> None:
    """Kill a command ``share`` times in all, and compare what it ends with to what an undisturbed
    one does.

    Args:
        method: name of the case, which chooses the moments.
        keys: overrides.
        share: number of kills.
        shoot: makes code that kills the process that runs it.
        command, rows_of, tmp_path, capsys: fixtures.
        losses: what is damaged between two starts, every second time.
    """
    asked, chance = words(keys), random.Random(f"{method} {SEED}")
    fork = FORK if keys.get("trainer") == "ddp" else ""
    alone, deadline = tmp_path / "alone", time.monotonic() + SECONDS
    alone.mkdir()
    ended = command("train.py", *asked, cwd=alone, before=fork)
    assert ended.code == 0, ended.err
    killed, damages, rounds = 0, 0, 0
    failures: list[str] = []
    while killed < share:
        rounds += 1
        shaken, done, code = tmp_path / f"shaken{rounds}", [], 1
        shaken.mkdir()
        while code:
            assert time.monotonic() < deadline, killed
            ended = command(
                "train.py",
                *asked,
                cwd=shaken,
                before=fork + (shoot(chance) if killed < share else ""),
            )
            code = ended.code
            assert code in (0, -signal.SIGKILL), ended.err
            killed += code != 0
            if (
                code
                and chance.random() < 0.5
                and list(shaken.rglob("errors.jsonl"))
                and list(shaken.rglob("*.ckpt"))
            ):
                done.append(damage(shaken, chance, losses))
        damages += len(done)
        failures += [
            f"round {rounds}, {done}: {file} differs" for file in differing(shaken, alone, rows_of)
        ]
        said = {read_status(path.parent).word for path in shaken.rglob("errors.jsonl")}
        failures += [f"round {rounds}, {done}: {said}"] if not said <= {"DONE", "STOPPED"} else []
    with capsys.disabled():
        print(
            f"\n{method}, seed {SEED}: {killed} kills, {damages} damages, {rounds} rounds, "
            f"{len(failures)} failures"
        )
    assert not failures, "\n".join(failures)


def test_kills_of_workers_change_no_row(
    command: Any, rows_of: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep of ten algorithms, averaged, in two workers, one of which is killed every now and
    then.
    """
    alone, shaken, chance = tmp_path / "alone", tmp_path / "shaken", random.Random(SEED)
    alone.mkdir()
    shaken.mkdir()
    seeds = "seed=0,1" if KILLS > 10 else "seed=0"
    algorithms = "algorithm=group_dro,fishr,irm,mtl,transfer,mixup,fish,arm,vrex,rsc"
    averaged = {"trainer.steps": "40", "averaging": "eoa", "averaging.rule.start": "10"}
    asked = ["-m", *words({**DIGITS, **COMMON, **averaged}), algorithms, seeds]
    sweep_words = [
        sys.executable,
        str(ROOT / "train.py"),
        *asked,
        "hydra/launcher=local",
        "hydra.launcher.workers=2",
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed, starts, deadline = 0, 0, time.monotonic() + 2 * SECONDS
    while killed < KILLS:
        starts += 1
        with (
            (shaken / "err").open("a") as err,
            subprocess.Popen(
                sweep_words, cwd=shaken, env=env, stderr=err, start_new_session=True
            ) as sweep,
        ):
            while sweep.poll() is None and killed < KILLS:
                assert time.monotonic() < deadline, killed
                time.sleep(chance.uniform(0.1, 1.0))
                if workers := processes(sweep.pid)["worker"]:
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    killed += 1
            sweep.wait(max(1.0, deadline - time.monotonic()))
        if sweep.returncode == 0:
            break  # it was over before the last of them
    last = subprocess.run(
        sweep_words, cwd=shaken, env=env, stderr=subprocess.PIPE, text=True, timeout=SECONDS
    )
    assert last.returncode == 0, last.stderr
    assert command("train.py", *asked, cwd=alone).code == 0
    other = differing(shaken, alone, rows_of)
    with capsys.disabled():
        print(
            f"\nworkers, seed {SEED}: {killed} kills, {starts} starts, {len(other)} of "
            f"{len(outputs(alone, rows_of))}"
        )
    assert not other
