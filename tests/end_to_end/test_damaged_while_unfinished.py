"""What an unfinished study left on disk is damaged; the same command then makes the rows of an
undisturbed one.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dgbench.callbacks.checkpointer import Checkpointer
from dgbench.records.status import read_status
from dgbench.training.checkpoints import group_file
from dgbench.training.study import ReadyStudy
from tests.cli.test_processes import FORK
from tests.damage import CHECKPOINTS, EVERYTHING, ROWS, damage
from tests.studies import groups_of, small_study, stopping_at, train_study

DAMAGES = int(os.environ.get("DAMAGES", "6"))  # of each mode
SECONDS = 60  # after which it hangs
STEP = 20  # of 24, before which training fails; the last checkpoint is of step 19
IRM = (
    "algorithm=irm", "hparams.irm_penalty_anneal_iters=4", "hparams.lr=0.01",
    "protocol.folds=[0,1,2]", "trainer.steps=24", "trainer.eval_every=8",
    "trainer.checkpoint_seconds=0", "trainer.predictions=best",
)  # fmt: skip
Rows = Callable[[Path], dict[str, bytes]]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are written between chunks of minibatches."""
    monkeypatch.setattr("dgbench.data.minibatches.CHUNK_STEPS", 3)


@pytest.fixture(scope="module", params=["single", "stacked"])
def studies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Path]:
    """Mode of execution, folder of an undisturbed study, and of one all of whose runs are half
    done.

    IRM in single precision amplifies rounding, so any change of who trains with whom would show.
    """
    mode, folder = request.param, tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dgbench.data.minibatches.CHUNK_STEPS", 3)
        assert all(train_study(study_in(folder / "whole", mode)).values())
        with stopping_at(STEP):
            assert not any(train_study(study_in(folder / "half", mode)).values())
    return mode, folder / "whole", folder / "half"


def study_in(folder: Path, mode: str) -> ReadyStudy:
    return small_study(folder, *IRM, f"execution={mode}")


@contextmanager
def no_waiting() -> Iterator[None]:
    """What hangs fails."""

    def stop(*_: object) -> None:
        pytest.fail("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ways", [ROWS, CHECKPOINTS, EVERYTHING], ids=["rows", "checkpoints", "anything"]
)
def test_damage_changes_no_row(ways: Any, studies: Any, rows_of: Rows, tmp_path: Path) -> None:
    mode, whole, half = studies
    chance = random.Random(f"{mode} {len(ways)}")
    for number in range(DAMAGES):
        folder = tmp_path / str(number)
        shutil.copytree(half, folder)
        done = damage(folder, chance, ways)
        with no_waiting():
            assert all(train_study(study_in(folder, mode)).values()), done
        assert rows_of(folder) == rows_of(whole) and predictions_of(folder) == predictions_of(
            whole
        ), done


def predictions_of(folder: Path) -> dict[str, bytes]:
    """Predictions of every run below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("predictions.parquet")
    }


def rows_file(study: ReadyStudy) -> Path:
    return study.runs[1].folder / "errors.jsonl"


def predictions(study: ReadyStudy) -> Path:
    return study.runs[1].folder / "predictions.parquet"


def checkpoint(study: ReadyStudy) -> Path:
    return next(group_file(group) for group in groups_of(study) if study.runs[1] in group.runs)


@pytest.mark.thorough
@pytest.mark.parametrize("file_of", [rows_file, predictions, checkpoint])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_named(
    file_of: Callable[[ReadyStudy], Path],
    make: Any,
    studies: Any,
    rows_of: Rows,
    tmp_path: Path,
    caplog: Any,
    capsys: Any,
) -> None:
    """A pipe is replaced; a folder stays, and its run alone has failed for it, which its line on
    the screen says.
    """
    mode, whole, half = studies
    shutil.copytree(half, tmp_path / "half")
    study = study_in(tmp_path / "half", mode)
    file = file_of(study)
    file.unlink()
    make(file)
    with no_waiting(), caplog.at_level(logging.WARNING, "dgbench"):
        complete = train_study(study)
    if make is os.mkfifo:
        assert len([record for record in caplog.records if str(file) in record.getMessage()]) == 1
        assert all(complete.values()) and rows_of(tmp_path / "half") == rows_of(whole)
        return
    assert str(file) in capsys.readouterr().err
    failed = read_status(study.runs[1].folder)
    assert (
        not complete[study.runs[1].hash] and failed.word == "FAILED" and str(file) in failed.reason
    )
    if file_of is checkpoint:
        return  # all runs of a stack share it
    file.rmdir()
    expected, made = rows_of(whole), rows_of(tmp_path / "half")
    others = [name for name in expected if study.runs[1].folder.name not in name]
    assert others and all(made[name] == expected[name] for name in others)


@pytest.mark.thorough
def test_rows_that_are_lost_are_named(
    studies: Any, rows_of: Rows, tmp_path: Path, caplog: Any
) -> None:
    """Of two runs, in one line where they train together; the whole folder of one is gone."""
    mode, whole, half = studies
    shutil.copytree(half, tmp_path / "half")
    study = study_in(tmp_path / "half", mode)
    rows_file(study).write_bytes(b"")
    if mode == "stacked":
        shutil.rmtree(study.runs[2].folder)
    with caplog.at_level(logging.WARNING, "dgbench"):
        assert all(train_study(study).values())
    assert rows_of(tmp_path / "half") == rows_of(whole)
    assert [str(rows_file(study)) in record.getMessage() for record in caplog.records] == [True]


def test_rows_that_are_changed_while_a_run_trains_fail_it(
    studies: Any, rows_of: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody removes the rows before the last evaluation; the same command then makes them."""
    mode, whole, half = studies
    shutil.copytree(half, tmp_path / "half")
    study = study_in(tmp_path / "half", mode)
    end = Checkpointer.on_train_end

    def without_rows(*arguments: Any) -> None:
        rows_file(study).unlink(missing_ok=True)
        end(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "on_train_end", without_rows)
        train_study(study)
    failed = read_status(study.runs[1].folder)
    assert failed.word == "FAILED" and "errors.jsonl" in failed.reason
    assert all(train_study(study_in(tmp_path / "half", mode)).values())
    assert rows_of(tmp_path / "half") == rows_of(whole)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [("trainer=ddp", "protocol.folds=[0]", "algorithm=erm")], ids=["two processes"]
)
def test_damage_to_a_run_of_two_processes(
    words: tuple[str, ...], train: Any, rows_of: Rows, tmp_path: Path
) -> None:
    """Killed at step 8 of 12 between its checkpoint and the next evaluation: rows, then the
    checkpoint are damaged.
    """
    kill = (
        "import os, signal\n"
        "from dgbench.callbacks.progress import StudyProgress as s\n"
        "def die(self, trainer, module, *_):\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if module.steps_done > 8 else None\n"
        "s.on_train_batch_end = die\n"
    )
    for name in ("whole", "rows", "checkpoint"):
        (tmp_path / name).mkdir()
    assert train(*words, cwd=tmp_path / "whole", before=FORK).code == 0
    for name, file_name in (("rows", "errors.jsonl"), ("checkpoint", "last.ckpt")):
        folder = tmp_path / name
        assert train(*words, cwd=folder, before=FORK + kill).code == -signal.SIGKILL
        (file,) = folder.rglob(file_name)
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
        ended = train(*words, cwd=folder, before=FORK)
        assert ended.code == 0 and f"{file.relative_to(folder)}" in ended.err, ended.err
        assert rows_of(folder) == rows_of(tmp_path / "whole")
