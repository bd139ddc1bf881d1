"""The state of a sweep from statuses, beats and locks."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dgbench.errors import ConfigError, RecordError
from dgbench.records.commands import expect_jobs, forget_jobs, unended_jobs
from dgbench.records.locks import RunLocks, is_locked
from dgbench.reports.slices.status import StatusReport, run_states, status_text
from tests.rows import ROW, WHOLE

NOW = 1_000_000.0
STUDY = "pacs-erm-resnet18-s0-0123456789ab"


def make(root: Path, name: str, status: str, study: str = STUDY, **beat: Any) -> Path:
    folder = root / study / name
    folder.mkdir(parents=True)
    if status in ("DONE", "RUNNING"):
        (folder / "errors.jsonl").write_text(WHOLE)
    if status:
        (folder / "status").write_text(status + "\n")
        os.utime(folder / "status", (NOW - 5, NOW - 5))
    if beat:
        whole = {
            "step": 40,
            "steps": 100,
            "steps_per_s": 2.0,
            "time": NOW - 5,
            "host": "elsewhere",
            "pid": 7,
        }
        (folder / "progress.json").write_text(json.dumps({**whole, **beat}))
    return folder


def states(root: Path, locked: bool = True) -> dict[str, tuple[str, str]]:
    found, _ = run_states([root], NOW, 600.0, lambda folder: locked)
    return {state.folder.name: (state.state, state.reason) for state in found}


def dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        return process.pid


def test_what_every_mark_means(tmp_path: Path) -> None:
    make(tmp_path, "done", "DONE")
    make(tmp_path, "failed", "FAILED loss became nan at step 3")
    make(tmp_path, "running", "RUNNING", step=40)
    make(tmp_path, "begins", "RUNNING")
    make(tmp_path, "stopped", "INTERRUPTED", step=40)
    make(tmp_path, "early", "INTERRUPTED")
    (make(tmp_path, "configured", "") / "config.yaml").write_text("{}")
    (tmp_path / STUDY / "planned.json").write_text(
        json.dumps({"members": ["done", "never", "../other/far"]})
    )
    marked = states(tmp_path)
    assert {name: state for name, (state, _) in marked.items()} == {
        "done": "done", "failed": "failed", "running": "running", "begins": "running",
        "stopped": "interrupted", "early": "interrupted", "configured": "waiting",
        "never": "waiting", "far": "waiting",
    }  # fmt: skip
    assert (
        marked["failed"][1] == "loss became nan at step 3"
        and "step 40 of 100" in marked["stopped"][1]
    )
    assert {name for name, (_, why) in marked.items() if not why} == {
        "done",
        "running",
        "begins",
        "never",
        "far",
    }


def test_what_is_stuck(tmp_path: Path) -> None:
    """An old beat without a lock, a lock without a beat for more than 600 s, a process of this host
    that is gone.
    """
    make(tmp_path, "late", "RUNNING", time=NOW - 120)
    make(tmp_path, "silent", "RUNNING", time=NOW - 700)
    make(tmp_path, "gone", "RUNNING", host=socket.gethostname(), pid=(pid := dead_process()))
    make(tmp_path, "alive", "RUNNING", host=socket.gethostname(), pid=os.getpid(), time=NOW - 500)
    locked, free = states(tmp_path), states(tmp_path, locked=False)
    assert {name: state for name, (state, _) in locked.items()} == {
        "late": "running", "silent": "stuck", "gone": "stuck", "alive": "running",
    }  # fmt: skip
    assert {state for state, _ in free.values()} == {"stuck"}
    for words, after in ((locked["silent"][1], "11 min 40 s"), (free["late"][1], "2 min 00 s")):
        assert after in words and "step 40 of 100" in words
    assert str(pid) in locked["gone"][1] and locked["gone"] == free["gone"]


def test_a_clock_that_is_ahead_is_not_believed(tmp_path: Path) -> None:
    """Two hours: the lock tells whether it runs. Four seconds: clocks differ by as much."""
    make(tmp_path, "ahead", "RUNNING", time=NOW + 7200)
    make(tmp_path, "almost", "RUNNING", time=NOW + 4)
    os.utime(make(tmp_path, "marked", "RUNNING") / "status", (NOW, NOW + 60))
    locked, free = states(tmp_path), states(tmp_path, locked=False)
    assert locked == dict.fromkeys(("ahead", "almost", "marked"), ("running", ""))
    assert [free[name][0] for name in ("ahead", "almost", "marked")] == [
        "stuck",
        "running",
        "stuck",
    ]
    _, problems = run_states([tmp_path], NOW, 600.0, lambda folder: True)
    assert [(p.kind, Path(p.where).name) for p in problems] == [
        ("clock ahead", "ahead"),
        ("clock ahead", "marked"),
    ]
    assert "2 h 00 min" in problems[0].reason and "1 min 00 s" in problems[1].reason


@pytest.mark.parametrize(
    "plan",
    ["{", "[]", '{"runs": "abc"}', '{"runs": [1]}', '{"runs": ["a\\u0000b"]}', "[" * 50000, None],
)
def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path, plan: str | None, capsys: Any) -> None:
    make(tmp_path, "run", "DONE")
    file = tmp_path / STUDY / "planned.json"
    file.write_text(plan) if plan is not None else os.mkfifo(file)
    found, problems = run_states([tmp_path], NOW, 600.0, is_locked)
    assert [state.folder.name for state in found] == ["run"]
    assert [(problem.kind, problem.where) for problem in problems] == [
        ("unreadable plan", str(file))
    ]
    assert StatusReport(roots=str(tmp_path), is_locked=is_locked).show() == 2
    assert "All done." not in capsys.readouterr().out


def test_a_folder_that_cannot_be_searched_is_not_all_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    make(tmp_path, "run", "DONE")
    make(tmp_path, "hidden", "FAILED no space left", study="locked")
    assert StatusReport(roots=[str(tmp_path)], is_locked=is_locked).show() == 3
    scandir = os.scandir

    def denied(path: str) -> Any:
        if str(path) == str(tmp_path / "locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    capsys.readouterr()
    assert StatusReport(roots=[str(tmp_path)], is_locked=is_locked).show() == 2
    out = capsys.readouterr().out
    assert (
        "All done" not in out
        and f"unreadable folder {tmp_path / 'locked'}: Permission denied" in out
    )
    with pytest.raises(RecordError, match=r"no runs under .*unreadable folder"):
        StatusReport(roots=[str(tmp_path / "locked")], is_locked=is_locked).show()


def test_folders_given_as_text_are_one_folder(tmp_path: Path) -> None:
    make(tmp_path, "run", "DONE")
    assert StatusReport(roots=str(tmp_path), is_locked=is_locked).show() == 0
    with pytest.raises(RecordError, match="no runs under /nowhere;"):
        StatusReport(roots="/nowhere", is_locked=is_locked).show()


@pytest.mark.parametrize("rows", [None, "", "{}\n", replace(ROW, step=50).to_json() + "\n"])
def test_done_without_rows_waits_and_is_named(tmp_path: Path, rows: str | None) -> None:
    folder = make(tmp_path, "run", "DONE")
    (folder / "errors.jsonl").unlink()
    if rows is not None:
        (folder / "errors.jsonl").write_text(rows)
    found, problems = run_states([tmp_path], NOW, 600.0, lambda folder: False)
    assert [state.state for state in found] == ["waiting"] and found[0].reason.startswith(
        "DONE, but "
    )
    assert [(problem.kind, problem.where, problem.reason) for problem in problems] == [
        ("lost rows", str(folder), found[0].reason)
    ]
    assert StatusReport(roots=[str(tmp_path)], is_locked=lambda folder: False).show() == 2


def test_folders_that_hold_no_run_are_passed_over(tmp_path: Path) -> None:
    """Records of jobs, checkpoints of stacks, and folders of studies that were refused."""
    make(tmp_path, "run", "DONE")
    for name in (".stacks/0123", ".jobs", "empty", "sr_cmnist-erm-s0-0123456789ab/.hydra"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".stacks" / "0123" / "status").write_text("RUNNING\n")
    (tmp_path / ".jobs" / "k.json").write_text("[]")
    (tmp_path / "refused").mkdir()
    (tmp_path / "refused" / "train.log").write_text("")
    found, problems = run_states([tmp_path], NOW, 600.0, lambda folder: False)
    assert [state.folder.name for state in found] == ["run"] and problems == []


def test_a_real_lock_is_seen(tmp_path: Path) -> None:
    folder = make(tmp_path, "run", "RUNNING", time=NOW - 120)
    with RunLocks() as claims:
        assert claims.take(folder)
        assert run_states([tmp_path], NOW, 600.0, is_locked)[0][0].state == "running"
    assert run_states([tmp_path], NOW, 600.0, is_locked)[0][0].state == "stuck"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"step": 1}', '{"step": "x", "steps": 1, "steps_per_s": 1}']
)
def test_a_torn_heartbeat_is_none(tmp_path: Path, text: str) -> None:
    folder = make(tmp_path, "run", "RUNNING")
    (folder / "progress.json").write_text(text)
    assert states(tmp_path) == {"run": ("running", "")}


def test_the_table(tmp_path: Path) -> None:
    """Two runs of one process at 2 steps/s each and 60 steps to go, one waiting with 100: 220 / 4 =
    55 s.
    """
    for name in ("a", "b"):
        make(tmp_path, name, "RUNNING", pid=9)
    make(tmp_path, "c", "DONE")
    make(tmp_path, "d", "FAILED no space left", study="pacs-vrex-resnet18-s1-0123456789ab")
    (tmp_path / STUDY / "planned.json").write_text(json.dumps({"runs": ["e"]}))
    found, _ = run_states([tmp_path], NOW, 600.0, lambda folder: True)
    lines = [" ".join(line.split()) for line in status_text(found).splitlines()]
    assert not [line for line in lines if line == "waiting"], (
        "nothing is to be said of what was never begun"
    )
    assert lines[2] == "pacs-erm-resnet18 4 1 2 0 0 0 1 4 55 s"
    assert lines[3] == "pacs-vrex-resnet18 1 0 0 1 0 0 0 -"
    assert lines[4] == "all 5 1 2 1 0 0 1 4 55 s"
    (running,) = [line for line in lines if "together" in line]
    assert running.startswith("2 models together, e.g. ")
    assert running.endswith("/a: step 40 of 100, 2.0 steps/s, 30 s left, process 9 on elsewhere")
    assert lines[-1].endswith("/d: no space left")


def test_time_left_counts_what_an_interrupted_run_has_done(tmp_path: Path) -> None:
    """60 steps to go of the one that runs and 30 of the one that was interrupted, at 2 steps/s: 45
    s.
    """
    make(tmp_path, "a", "RUNNING", step=40)
    stopped = make(tmp_path, "b", "INTERRUPTED", step=70)
    found, _ = run_states([tmp_path], NOW, 600.0, lambda folder: True)
    lines = [" ".join(line.split()) for line in status_text(found).splitlines()]
    assert lines[2] == "pacs-erm-resnet18 2 0 1 0 0 1 0 2 45 s"
    assert [
        line
        for line in lines
        if line.startswith(f"{stopped}: ") and line.endswith("step 70 of 100")
    ]


def test_the_command_that_continues_is_printed(tmp_path: Path) -> None:
    """As it was typed last; quoted for a shell, and once however many runs it left."""
    for name in ("a", "b"):
        typed = [
            {"typed": ["python", "train.py"]},
            {"typed": ["python", "train.py", "-m", "grid.seed=[0, 1]"]},
        ]
        (make(tmp_path, name, "INTERRUPTED", step=70) / "identity.json").write_text(
            json.dumps({"sessions": typed})
        )
    (make(tmp_path, "c", "INTERRUPTED") / "identity.json").write_text(
        '{"sessions": [{"typed": ["\\n"]}]}'
    )
    lines = status_text(run_states([tmp_path], NOW, 600.0, lambda folder: False)[0]).splitlines()
    assert [line for line in lines if "Continue" in line] == [
        "  Continue with: python train.py -m 'grid.seed=[0, 1]'"
    ]


@pytest.mark.parametrize(
    ("marks", "code"),
    [
        (["DONE"], 0),
        (["DONE", "RUNNING"], 2),
        (["DONE", "INTERRUPTED"], 2),
        (["DONE", "FAILED x"], 3),
        (["RUNNING", "FAILED x"], 3),
    ],
)
def test_the_exit_code(tmp_path: Path, marks: list[str], code: int) -> None:
    for number, mark in enumerate(marks):
        folder = make(tmp_path, str(number), mark)
        os.utime(folder / "status")
    assert StatusReport(roots=[str(tmp_path)], is_locked=lambda folder: True).show() == code


def test_live_until_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = make(tmp_path, "run", "RUNNING")
    os.utime(folder / "status")
    monkeypatch.setattr(time, "sleep", lambda seconds: (folder / "status").write_text("DONE\n"))
    assert StatusReport(roots=[str(tmp_path)], is_locked=lambda folder: True, every=3).show() == 0
    assert re.findall(r"All done", capsys.readouterr().out) == ["All done"]


def test_jobs_that_have_not_begun(tmp_path: Path, capsys: Any) -> None:
    """Of four, one ended and one was split; none has a run folder."""
    many = tmp_path / "multirun"
    expect_jobs(
        [(many, key) for key in ("ended", "split", "open", "algorithm=x seed=0")],
        "python train.py -m seed=0,1",
    )
    for name in ("ended.json", "split.parts.json", "open.log"):
        (many / ".jobs" / name).write_text("[]")
    assert StatusReport(roots=[str(tmp_path)], is_locked=is_locked).show() == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 runs"
    assert lines[1].startswith("  2 jobs ")
    assert lines[-1] == "  Continue with: python train.py -m seed=0,1"

    folder = make(many, "run", "DONE")
    os.utime(folder / "status")
    assert StatusReport(roots=[str(many)], is_locked=is_locked).show() == 2, (
        "nothing is all done while a job waits"
    )
    # without the job that could not work
    expect_jobs([(many, "open")], "python train.py -m seed=0,1")
    expect_jobs([(many, "other")], "python train.py -m seed=2,3")
    assert set(unended_jobs(many)) == {"open", "other"}
    for command in ("python train.py -m seed=2,3", "python train.py -m seed=0,1"):
        forget_jobs([many, tmp_path], command)
    assert not (tmp_path / ".jobs").exists(), "nothing was expected there"
    assert StatusReport(roots=[str(tmp_path)], is_locked=is_locked).show() == 0


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "[" * 100_000])
def test_a_list_of_jobs_that_cannot_be_read_is_named(
    tmp_path: Path, text: str, capsys: Any
) -> None:
    make(tmp_path, "run", "DONE")
    (tmp_path / ".jobs").mkdir()
    (tmp_path / ".jobs" / "expected.json").write_text(text)
    assert StatusReport(roots=[str(tmp_path)], is_locked=is_locked).show() == 2
    assert "expected.json" in capsys.readouterr().out
    expect_jobs([(tmp_path, "job")], "python train.py -m")
    assert unended_jobs(tmp_path) == {"job": "python train.py -m"}


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no runs under"):
        StatusReport(roots=[str(tmp_path)], is_locked=is_locked).show()
    with pytest.raises(ConfigError, match=r"report\.every=0.*> 0"):
        StatusReport(roots=[str(tmp_path)], is_locked=is_locked, every=0)


@pytest.mark.thorough
def test_as_a_user_has_it(train: Any, command: Any, tmp_path: Path) -> None:
    """Killed in the middle: a stuck run and waiting ones, exit code 3; after the same command all
    done, 0.
    """
    die = "from dgbench.callbacks.recorder import Recorder as r\nimport os\n"
    die += "r.on_validation_epoch_end = lambda *_: os.kill(os.getpid(), 9)"
    assert train("protocol.folds=[0,1]", cwd=tmp_path, before=die).code == -9
    ended = command("report.py", "report=status", "runs=[outputs]", cwd=tmp_path)
    assert ended.code == 3, ended.err
    assert ended.out.splitlines()[2].split()[1:8] == ["2", "0", "0", "0", "1", "0", "1"]
    assert "step 0 of 12" in ended.out
    assert train("protocol.folds=[0,1]", cwd=tmp_path).code == 0
    ended = command("report.py", "report=status", "runs=[outputs]", cwd=tmp_path)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "  All done."), ended.err


def test_status_needs_no_torch() -> None:
    code = (
        "import sys\nfrom dgbench.cli.report import report\n"
        "sys.argv = ['report.py', 'report=status', 'runs=[absent]']\n"
        "try:\n    report()\nexcept SystemExit as stop:\n    assert stop.code == 1\n"
        "heavy = {'torch', 'pytorch_lightning', 'pandas', 'matplotlib', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "[]", ended.stderr
    assert "no runs under absent" in ended.stderr


def test_what_takes_long_is_counted(
    tmp_path: Path, at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "run", "DONE")
    run_states([tmp_path], NOW, 600.0, is_locked)
    assert "looking at runs: 1 of 1 runs" in capsys.readouterr().err
