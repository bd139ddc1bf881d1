"""Starting a sweep again: what is done is known before anything is imported or composed
job by job.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.commands import JobPlace
from dgbench.records.status import read_status, write_status
from tests.complaints import one_line
from tests.datasets import broken_mnist
from tests.rows import WHOLE
from tests.scripts import NO_TORCH

pytestmark = pytest.mark.slow

SWEEP = (
    "-m",
    "dataset.base=digits",
    "execution=single",
    "backbone.width=8",
    "trainer.steps=4",
    "trainer.eval_every=4",
    "trainer.device=cpu",
    "protocol.folds=[0,full]",
    "algorithm=erm,vrex",
    "seed=0,1",
)
#: a launcher as of another engine, whose workers start in another folder
AWAY = """
import os
from dgbench.sweeps.local import LocalLauncher
launch, LocalLauncher.in_this_folder = LocalLauncher.launch, False
def away(self, *jobs, **more):
    os.mkdir("away")
    os.chdir("away")
    try:
        return launch(self, *jobs, **more)
    finally:
        os.chdir("..")
LocalLauncher.launch = away
"""
NO_DOWNLOAD = (
    "from dgbench.data.datasets import base_images\nbase_images.any_answers = lambda *_: False\n"
)

FIRST = "composing the jobs of the sweep ..."


@pytest.fixture(scope="module")
def finished(command: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of four jobs that came to its end."""
    folder = tmp_path_factory.mktemp("finished")
    ended = command("train.py", *SWEEP, cwd=folder)
    assert ended.code == 0, ended.err
    return folder


def again(command: Any, finished: Path, folder: Path, *words: str, **options: Any) -> Any:
    """The same sweep over a copy of the finished one."""
    if not (folder / "multirun").exists():
        shutil.copytree(finished / "multirun", folder / "multirun")
    return command("train.py", *SWEEP, *words, cwd=folder, **options)


def run_folder(folder: Path, study: str, fold: str) -> Path:
    (found,) = folder.glob(f"multirun/{study}/fold-{fold}-*")
    return found


def test_nothing_to_do_without_torch(command: Any, finished: Path, tmp_path: Path) -> None:
    ended = again(command, finished, tmp_path, before=NO_TORCH)
    assert (ended.code, ended.err) == (
        0,
        f"{FIRST}\nnothing to do: all 4 jobs are done (retry=all)\n",
    )
    first, *table, last = ended.out.splitlines()
    assert first == "4 of 4 jobs done: 8 of their 8 models"
    assert table[0] == "Measures on sr_cmnist (digits), mean over seeds (selection: last step)"
    assert [line.split()[:2] for line in table[2:4]] == [["erm", "2"], ["vrex", "2"]]
    assert table[4].split()[:2] == ["blind", "guess"]
    assert last == "report: python report.py 'runs=[multirun]'"


def test_only_jobs_with_something_left_are_launched(
    command: Any, finished: Path, tmp_path: Path
) -> None:
    """One run's folder is gone, and a seed is new: one job of each algorithm for the seed, and that
    job.
    """
    again(command, finished, tmp_path, before=NO_TORCH)
    gone = run_folder(tmp_path, "*-vrex-*-s0-*", "full")
    shutil.rmtree(gone)
    ended = again(command, finished, tmp_path, "seed=0,1,2")
    assert ended.code == 0, ended.err
    replaced = "note: seed=0,1 counts for nothing: seed=0,1,2 after it replaces it"
    assert ended.err.splitlines()[:3] == [replaced, FIRST, "3 of 6 jobs were done before"]
    assert ended.out.count(" seed ") == 3
    assert read_status(gone).word == "DONE"
    assert len(list(tmp_path.rglob("errors.jsonl"))) == 12


def test_jobs_that_leave_nothing_are_no_success(command: Any, tmp_path: Path) -> None:
    """A launcher whose workers cannot be asked for what they did,
    as one of another engine may be.
    """
    idle = (
        "from dgbench.sweeps.local import LocalLauncher\nLocalLauncher.launch = lambda *_, **__: "
        "[]\n"
    )
    ended = command("train.py", *SWEEP, "hydra/launcher=local", cwd=tmp_path, before=idle)
    assert ended.code == 1
    assert ended.out.startswith("0 of 4 jobs done")
    assert f"4 of 4 jobs came to no end in {tmp_path / 'multirun'}" in ended.err.splitlines()[-1]


def test_workers_in_another_folder_write_to_the_folder_of_the_command(
    command: Any, tmp_path: Path
) -> None:
    words = [word for word in SWEEP if not word.startswith(("algorithm", "seed"))]
    ended = command("train.py", *words, "seed=0", "hydra/launcher=local", cwd=tmp_path, before=AWAY)
    assert ended.code == 0, ended.err
    assert len(list(tmp_path.glob("multirun/*/*/errors.jsonl"))) == 2 and not list(
        (tmp_path / "away").iterdir()
    )


def test_retry_and_failed_runs(command: Any, finished: Path, tmp_path: Path) -> None:
    again(command, finished, tmp_path, before=NO_TORCH)
    failed = run_folder(tmp_path, "*-erm-*-s1-*", "0")
    write_status(failed, "FAILED for a reason")
    spared = again(command, finished, tmp_path, "retry=none", before=NO_TORCH)
    assert spared.err == f"{FIRST}\nnothing to do: all 4 jobs are done (retry=none)\n"
    tried = again(command, finished, tmp_path, "retry=failed")
    assert tried.err.splitlines()[:2] == [FIRST, "3 of 4 jobs were done before"]
    assert read_status(failed).word == "DONE"
    over = again(command, finished, tmp_path, "retry=failed", before=NO_TORCH)
    assert over.err == f"{FIRST}\nnothing to do: all 4 jobs are done (retry=failed)\n"


def test_a_job_asked_for_twice_runs_once(command: Any, tmp_path: Path) -> None:
    words = [word for word in SWEEP if not word.startswith(("algorithm", "seed"))]
    ended = command("train.py", *words, "seed=0,0", cwd=tmp_path)
    assert ended.out.count(" seed 0 (selection: last step)") == 1


def test_images_that_may_change_are_looked_at_again(command: Any, tmp_path: Path) -> None:
    """Digits stood in for MNIST: once MNIST's files are there, the same command looks at them;
    these are broken.
    """
    words = [word for word in SWEEP if not word.startswith(("algorithm", "seed", "dataset.base"))]
    for again in (False, True):
        ended = command("train.py", *words, "paths.data_dir=data", cwd=tmp_path, before=NO_DOWNLOAD)
        assert ended.code == 0, ended.err
        assert ("nothing to do" in ended.err) is again
    broken_mnist(tmp_path / "data")
    ended = command("train.py", *words, "paths.data_dir=data", cwd=tmp_path, before=NO_DOWNLOAD)
    assert ended.code == 1
    assert "nothing to do" not in ended.err
    assert "data/MNIST/raw/" in ended.err


@pytest.mark.parametrize("launcher", ["basic", "local"])
def test_images_that_no_job_has_are_said_once_before_any_starts(
    command: Any, tmp_path: Path, launcher: str
) -> None:
    words = (
        "-m",
        "experiment=sr_cmnist_14",
        "algorithm=erm,irm",
        "seed=0,1",
        f"hydra/launcher={launcher}",
    )
    ended = command("train.py", *words, "paths.data_dir=data", cwd=tmp_path, before=NO_DOWNLOAD)
    assert ended.code == 1 and "starting" not in ended.err
    one_line(*ended.complaints, r"MNIST is not in data/MNIST/raw.*dgbench fetch sr_cmnist")
    assert not list(tmp_path.iterdir())


def test_a_job_that_hydra_refuses_stops_the_sweep_before_it_starts(
    command: Any, tmp_path: Path
) -> None:
    ended = command("train.py", *SWEEP, "+trainer.stepz=1,2", "trainer.stepy=3", cwd=tmp_path)
    assert ended.code == 1
    assert ended.complaints[0].startswith("dgbench: key trainer.stepy is unknown")
    assert not list(tmp_path.rglob("errors.jsonl"))


@pytest.mark.parametrize(
    ("stop", "said"), [("0", "no job.*range"), ("1e9", r"seed=range\(0,1e9\) .*more values")]
)
def test_a_sweep_of_no_job_or_of_a_billion_is_refused(
    command: Any, tmp_path: Path, stop: str, said: str
) -> None:
    ended = command("train.py", "-m", "dataset.base=digits", f"seed=range(0,{stop})", cwd=tmp_path)
    assert ended.code == 1
    one_line(*ended.complaints, said)
    assert not list(tmp_path.iterdir())


def test_what_is_left_of_a_job(tmp_path: Path) -> None:
    """Two runs of two studies, as in a grid."""
    job, own, other = tmp_path, tmp_path / "one" / "fold-0-a", tmp_path / "other" / "fold-1-b"
    for folder in (own, other):
        folder.mkdir(parents=True)
        write_status(folder, "DONE")
        (folder / "errors.jsonl").write_text(WHOLE)
    assert JobPlace(job, "k").is_left("all"), "it never came to its end"
    JobPlace(job, "k").record_end([own, other])
    assert [JobPlace(job, "k").is_left(retry) for retry in ("all", "failed", "none")] == [False] * 3
    assert JobPlace(job, "another").is_left("all")
    write_status(other, "FAILED x")
    assert [JobPlace(job, "k").is_left(retry) for retry in ("all", "failed", "none")] == [
        True,
        True,
        False,
    ]
    write_status(other, "RUNNING")
    assert [JobPlace(job, "k").is_left(retry) for retry in ("all", "failed", "none")] == [
        True,
        False,
        True,
    ]
    write_status(other, "INTERRUPTED")
    assert [JobPlace(job, "k").is_left(retry) for retry in ("all", "failed", "none")] == [
        True,
        False,
        True,
    ]
    write_status(other, "DONE")
    (other / "errors.jsonl").write_text("")
    assert [JobPlace(job, "k").is_left(retry) for retry in ("all", "failed", "none")] == [
        True,
        False,
        True,
    ], "no rows"
    (job / ".jobs" / "k.json").write_text('["fold')
    assert JobPlace(job, "k").is_left("all"), "half a record is none"
