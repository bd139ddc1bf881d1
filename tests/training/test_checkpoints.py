"""Checkpoints of runs that train together: what continues from where, to which rows, and what is
refused.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dgbench.records.rows import read_rows
from dgbench.records.status import is_done, read_status, write_status
from dgbench.training import checkpoints, train_runs
from dgbench.training.checkpoints import (
    POINTER,
    STACKS,
    Snapshot,
    group_file,
    last_step,
    own_file,
    resumable,
)
from dgbench.training.modules import StackedRuns
from dgbench.training.study import ReadyRun, ReadyStudy
from tests.damage import ROWS, Way, disagreeing_line, repeat_line
from tests.studies import groups_of, small_study, stopping_at, train_study
from tests.training.test_stacked import DOUBLE

EVERY, STEPS, CHUNK = 8, 24, 3
FOLDS = "protocol.folds=[0,1,2,3]"  # one stack of four


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are written between chunks of minibatches; here after 3, 6, 8, 11, ... steps."""
    monkeypatch.setattr("dgbench.data.minibatches.CHUNK_STEPS", CHUNK)


def irm(folder: Path, *overrides: str) -> ReadyStudy:
    """Its penalty amplifies rounding, so that float32 rows are equal only if everything is."""
    return small_study(
        folder, "algorithm=irm", "hparams.irm_penalty_anneal_iters=4", "execution=stacked", FOLDS,
        "hparams.lr=0.01", f"trainer.steps={STEPS}", f"trainer.eval_every={EVERY}",
        "trainer.checkpoint_seconds=0", *overrides,
    )  # fmt: skip


def content(run: ReadyRun) -> bytes:
    return (run.folder / "errors.jsonl").read_bytes()


def rows(study: ReadyStudy) -> list[bytes]:
    return [content(run) for run in study.runs]


def errors(study: ReadyStudy) -> list[list[tuple[Any, ...]]]:
    found = [read_rows(run.folder / "errors.jsonl")[0] for run in study.runs]
    return [[(r["step"], r["env"], r["subset"], r["wrong"]) for r in own] for own in found]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ReadyStudy]:
    """A study that was trained without interruption; each is trained once."""
    known: dict[tuple[str, ...], ReadyStudy] = {}

    def trained(*overrides: str) -> ReadyStudy:
        if overrides not in known:
            known[overrides] = irm(tmp_path_factory.mktemp("undisturbed"), *overrides)
            assert all(train_study(known[overrides]).values())
        return known[overrides]

    return trained


def stopped(folder: Path, step: int, *overrides: str) -> ReadyStudy:
    """A study that an error ended before a step."""
    study = irm(folder, *overrides)
    with stopping_at(step):
        assert not any(train_study(study).values())
    return irm(folder, *overrides)


def saved_before(step: int) -> int:
    """The last step with a checkpoint, where training fails on the minibatches of ``step``."""
    intervals = [first + done for first in range(0, STEPS, EVERY) for done in (0, 3, 6)]
    return max(k for k in intervals if k <= step)


@pytest.mark.thorough
@pytest.mark.parametrize("step", sorted(random.Random(0).sample(range(4, STEPS), 5)))
def test_a_stopped_stack_resumes_as_it_was(step: int, undisturbed: Any, tmp_path: Path) -> None:
    """At any step, in float32: the same four runs together again, to rows that are equal bit for
    bit.
    """
    study = stopped(tmp_path, step)
    (group,) = groups_of(study)
    assert [last_step(run) for run in study.runs] == [saved_before(step)] * 4
    (part,) = resumable(group, study.runs)
    assert part[0] == group and part[1] is not None and part[1].step == saved_before(step)
    assert all(train_study(study).values())
    assert rows(study) == rows(undisturbed())
    for run in study.runs:
        assert "4 runs together, from" in (run.folder / "log.txt").read_text()
        sessions = json.loads((run.folder / "identity.json").read_text())["sessions"]
        assert [(s["resumed_from"], s["together"]) for s in sessions] == [
            (0, 4),
            (saved_before(step), 4),
        ]


def test_what_a_finished_stack_leaves(undisturbed: Any) -> None:
    """Each run has a checkpoint of its own; nothing that belonged to the stack is left."""
    study = undisturbed()
    assert not (study.folder / STACKS).exists()
    for run in study.runs:
        assert not (run.folder / POINTER).exists()
        assert sorted(p.name for p in (run.folder / "checkpoints").iterdir()) == [
            "best.ckpt",
            "last.ckpt",
        ]
        last = torch.load(own_file(run), weights_only=True)
        assert sorted(last) == ["diverged", "format", "runs", "step"]
        assert (list(last["runs"]), last["step"], last["diverged"]) == ([run.hash], STEPS, {})


def test_a_stack_while_it_trains(tmp_path: Path) -> None:
    """One file for all runs, named in the folder of each."""
    study = stopped(tmp_path, 13)
    (group,) = groups_of(study)
    snapshot = Snapshot.load(group_file(group))
    assert group_file(group).parent == study.folder / STACKS
    assert snapshot is not None and list(snapshot.runs) == [run.hash for run in study.runs]
    for run in study.runs:
        pointer = json.loads((run.folder / POINTER).read_text())["checkpoint"]
        assert (run.folder / pointer).resolve() == group_file(group).resolve()
        assert not own_file(run).exists()


# ---- broken and foreign files


@pytest.mark.parametrize("keep", [0, 0.5, 0.999], ids=["empty", "half", "almost whole"])
def test_a_broken_stack_file_is_named_and_left_out(
    keep: float, undisturbed: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = stopped(tmp_path, 13)
    file = group_file(groups_of(study)[0])
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keep * len(whole))])
    with caplog.at_level(logging.WARNING, "dgbench"):
        assert all(train_study(study).values())
    said = [record.getMessage() for record in caplog.records if str(file) in record.getMessage()]
    assert len(said) == 1 and "cut short" in said[0] and "training starts without" in said[0]
    assert rows(study) == rows(undisturbed())


def test_a_flipped_bit_is_never_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Anywhere in the file of a stack: it is named, in one line, and counts as none."""
    file, chance = group_file(groups_of(stopped(tmp_path, 13))[0]), random.Random(5)
    whole = file.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        caplog.clear()
        assert Snapshot.load(file) is None
        assert [str(file) in record.getMessage() for record in caplog.records] == [True]
    file.write_bytes(whole)
    assert Snapshot.load(file) is not None


def test_a_checkpoint_of_an_earlier_version_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says nothing of rows and has no seal."""
    torch.save({"format": 1, "step": 3, "runs": {}, "diverged": {}}, tmp_path / "last.ckpt")
    assert Snapshot.load(tmp_path / "last.ckpt") is None
    assert [str(tmp_path / "last.ckpt") in record.getMessage() for record in caplog.records] == [
        True
    ]


def test_a_broken_checkpoint_of_a_run_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = ("execution=single", "protocol.folds=[0]")
    whole = irm(tmp_path / "whole", *words)
    train_study(whole)
    study = stopped(tmp_path / "cut", 13, *words)
    assert last_step(study.runs[0]) == 11
    own_file(study.runs[0]).write_bytes(b"")
    with caplog.at_level(logging.WARNING, "dgbench"):
        assert all(train_study(study).values())
    assert any(str(own_file(study.runs[0])) in record.getMessage() for record in caplog.records)
    assert rows(study) == rows(whole)


@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_the_checkpoint_of_another_run_is_refused(mode: str, tmp_path: Path) -> None:
    """last.ckpt of seed 1 in the folder of seed 0: FAILED with the reason; without it, trained from
    the beginning.
    """
    words = (f"execution={mode}", "protocol.folds=[0]")
    other, study = stopped(tmp_path, 13, *words, "seed=1"), irm(tmp_path, *words)
    (one,), (theirs,) = study.runs, other.runs
    own_file(one).parent.mkdir(parents=True)
    shutil.copy(group_file(groups_of(other)[0]), own_file(one))
    assert train_study(study) == {one.hash: False}
    status = read_status(one.folder)
    assert status.word == "FAILED"
    assert f"the checkpoint of {theirs.hash}, not of {one.hash}; delete it" in status.reason
    assert not (one.folder / "errors.jsonl").exists()
    own_file(one).unlink()
    assert train_study(study) == {one.hash: True}


def test_a_pointer_to_the_checkpoint_of_other_runs_is_refused(
    undisturbed: Any, tmp_path: Path
) -> None:
    """All runs of the stack fail rather than train in another company; corrected, the stack resumes
    as it was.
    """
    other, study = stopped(tmp_path, 13, "seed=1"), stopped(tmp_path, 13)
    wrong = study.runs[2]
    kept = (wrong.folder / POINTER).read_text()
    theirs = group_file(groups_of(other)[0])
    (wrong.folder / POINTER).write_text(
        json.dumps({"checkpoint": f"../../{theirs.relative_to(tmp_path)}"})
    )
    assert not any(train_study(study).values())
    assert f"not of {wrong.hash}" in read_status(wrong.folder).reason
    (wrong.folder / POINTER).write_text(kept)
    assert last_step(wrong) == 11
    assert all(train_study(study).values())
    assert rows(study) == rows(undisturbed())


def test_a_pointer_to_nowhere_starts_its_run_over(tmp_path: Path, undisturbed: Any) -> None:
    """In double precision, where it does not matter who trains with whom."""
    study = stopped(tmp_path, 13, DOUBLE)
    (study.runs[1].folder / POINTER).write_text('{"checkpoint": "absent.ckpt"}')
    group_file(groups_of(study)[0]).unlink()
    assert [last_step(run) for run in study.runs] == [0] * 4
    assert all(train_study(study).values())
    assert errors(study) == errors(undisturbed(DOUBLE))


# ---- runs of one stack that are not equally far


def kill_after(n: int, patch: pytest.MonkeyPatch) -> None:
    """End the process, as far as a test can, when the n-th run of a stack has got its DONE."""
    finish, done = train_runs.finish, []

    def counted(folder: Path, *how: Any) -> Any:
        if len(done) == n:
            raise SystemExit("killed")
        done.append(folder)
        return finish(folder, *how)

    patch.setattr(train_runs, "finish", counted)


@pytest.mark.parametrize("n", [1, 3])
def test_killed_between_two_done_marks(n: int, undisturbed: Any, tmp_path: Path) -> None:
    """The rest gets its DONE without another step; rows of the finished runs are not touched."""
    study = irm(tmp_path)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        kill_after(n, patch)
        train_study(study)
    words = [read_status(run.folder).word for run in study.runs]
    assert words == ["DONE"] * n + ["RUNNING"] * (4 - n)
    before = [(run.folder / "errors.jsonl").stat().st_mtime_ns for run in study.runs[:n]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedRuns, "training_step", lambda *_: pytest.fail("trained again"))
        assert all(train_study(study).values())
    assert rows(study) == rows(undisturbed())
    assert [(run.folder / "errors.jsonl").stat().st_mtime_ns for run in study.runs[:n]] == before
    assert not (study.folder / STACKS).exists()


def test_finished_runs_inside_a_stack_keep_their_files(undisturbed: Any, tmp_path: Path) -> None:
    """Two runs of four are done, the stack's checkpoint is earlier: they are computed once more,
    and write nothing.
    """
    study, whole = stopped(tmp_path, 13), undisturbed()
    for run, done in list(zip(study.runs, whole.runs, strict=True))[:2]:
        shutil.copy(done.folder / "errors.jsonl", run.folder)
        shutil.copytree(done.folder / "checkpoints", run.folder / "checkpoints", dirs_exist_ok=True)
        (run.folder / POINTER).unlink()
        write_status(run.folder, "DONE")
    kept = {
        p: (p.read_bytes(), p.stat().st_mtime_ns)
        for run in study.runs[:2]
        for p in run.folder.rglob("*.*")
    }
    sizes: list[int] = []
    step = StackedRuns.training_step

    def counted(self: StackedRuns, batch: Any, batch_idx: int) -> None:
        sizes.append(self.size)
        step(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedRuns, "training_step", counted)
        assert all(train_study(study).values())
    assert set(sizes) == {4}, "the others round as they would have without the interruption"
    assert rows(study) == rows(whole)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in kept} == kept


@pytest.mark.thorough
@pytest.mark.parametrize("way", ROWS["fold-*/errors.jsonl"])
def test_a_finished_run_that_lacks_rows_is_trained_again(
    way: Way, undisturbed: Any, tmp_path: Path
) -> None:
    """No checkpoint has them: its stack is computed from the beginning, and the others keep their
    files.
    """
    shutil.copytree(undisturbed().folder.parent, tmp_path, dirs_exist_ok=True)
    study = irm(tmp_path)
    lost = study.runs[2]
    assert way(lost.folder / "errors.jsonl", random.Random(3))
    kept = [content(run) for run in study.runs if run is not lost]
    assert all(train_study(study).values())
    assert [content(run) for run in study.runs if run is not lost] == kept
    if way in (repeat_line, disagreeing_line):  # nothing is lacking; reports name what is twice
        assert is_done(lost.folder)
    else:
        assert rows(study) == rows(undisturbed())
    assert not (study.folder / STACKS).exists()


def test_an_unfinished_run_begins_anew_with_one_that_lacks_rows(
    undisturbed: Any, tmp_path: Path
) -> None:
    """Stopped at step 13; one of four says that it is DONE, with the rows of step 8 alone."""
    study = stopped(tmp_path, 13)
    write_status(study.runs[1].folder, "DONE")
    assert all(train_study(study).values())
    assert rows(study) == rows(undisturbed())
    assert not (study.folder / STACKS).exists()


# ---- another composition


def test_memory_that_ends_in_the_middle_halves_the_stack(undisturbed: Any, tmp_path: Path) -> None:
    """From the last checkpoint; in double precision the same errors.

    Rows say how many trained together.
    """
    tried: list[tuple[int, int]] = []
    step = StackedRuns.training_step

    def crowded(self: StackedRuns, batch: Any, batch_idx: int) -> None:
        tried.append((self.size, self.steps_done))
        if self.size > 2 and self.steps_done >= 11:
            raise torch.OutOfMemoryError("too many")
        step(self, batch, batch_idx)

    study = irm(tmp_path, DOUBLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedRuns, "training_step", crowded)
        assert all(train_study(study).values())
    assert [(size, at) for size, at in tried if size == 2][:1] == [(2, 11)]
    assert errors(study) == errors(undisturbed(DOUBLE))
    for run in study.runs:
        found = read_rows(run.folder / "errors.jsonl")[0]
        assert {(row["step"], row["together"]) for row in found} == {(8, 4), (16, 2), (24, 2)}
    assert not (study.folder / STACKS).exists()


def test_halves_that_are_stopped_resume_as_halves(undisturbed: Any, tmp_path: Path) -> None:
    """Two of four continued from step 11 and were stopped; the file of the four is older than
    theirs.
    """
    study = stopped(tmp_path, 13, DOUBLE)
    halves = irm(tmp_path, DOUBLE, "execution.max_runs=2")
    with stopping_at(20):
        assert not any(train_study(halves).values())
    assert [last_step(run) for run in study.runs] == [19] * 4
    parts = resumable(groups_of(study)[0], study.runs)
    assert [([run.hash for run in group.runs], snapshot and snapshot.step) for group,
        snapshot in parts] == [
        ([run.hash for run in study.runs[:2]], 19), ([run.hash for run in study.runs[2:]], 19),
    ]  # fmt: skip
    assert all(train_study(study).values())
    assert errors(study) == errors(undisturbed(DOUBLE))
    assert not (study.folder / STACKS).exists()


@pytest.mark.thorough
@pytest.mark.parametrize("modes", [("stacked", "single"), ("single", "stacked")], ids=" to ".join)
def test_one_mode_continues_what_the_other_began(
    modes: tuple[str, str], undisturbed: Any, tmp_path: Path
) -> None:
    """The layout of a run's state is the same; in double precision so are the errors.

    Begun alone, it stays alone.
    """
    first, second = modes
    stopped(tmp_path, 13, DOUBLE, f"execution={first}")
    study = irm(tmp_path, DOUBLE, f"execution={second}")
    assert [last_step(run) for run in study.runs] == [11] * 4
    assert all(train_study(study).values())
    assert errors(study) == errors(undisturbed(DOUBLE))
    for run in study.runs:
        found = read_rows(run.folder / "errors.jsonl")[0]
        before = 4 if first == "stacked" else 1
        assert {(row["step"], row["together"]) for row in found} == {(8, before), (16, 1), (24, 1)}
        assert own_file(run).exists() and not (run.folder / POINTER).exists()
    assert not (study.folder / STACKS).exists()


def test_a_write_that_breaks_off_leaves_the_checkpoint_before(
    tmp_path: Path, undisturbed: Any
) -> None:
    """The disk is full while the stack is saved at step 11:
    all runs FAIL, and resume from step 8.
    """
    study, save = irm(tmp_path), checkpoints.torch.save

    def half(written: Any, file: Any) -> None:
        if written.get("step") == 11:
            file.write(b"PK")
            raise OSError(28, "No space left on device")
        save(written, file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints.torch, "save", half)
        assert not any(train_study(study).values())
    assert {read_status(run.folder).word for run in study.runs} == {"FAILED"}
    assert "No space left" in read_status(study.runs[0].folder).reason
    assert [last_step(run) for run in study.runs] == [8] * 4
    assert all(train_study(study).values())
    assert rows(study) == rows(undisturbed())


def test_a_folder_that_another_process_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was empty for a moment: between being made and being written to."""
    write, tries = checkpoints.write_sealed, []

    def removed_first(path: Path, writer: Any) -> None:
        tries.append(path)
        if len(tries) == 1:
            path.parent.rmdir()
        write(path, writer)

    monkeypatch.setattr(checkpoints, "write_sealed", removed_first)
    Snapshot(3, {"a": {}}).save(tmp_path / STACKS / "x.ckpt")
    assert len(tries) == 2 and Snapshot.load(tmp_path / STACKS / "x.ckpt") == Snapshot(3, {"a": {}})
