"""The state of a sweep from marks, heartbeats and claims."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dgbench.callbacks.claims import Claims, is_claimed
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.run_states import duration, run_states
from dgbench.reports.status_report import StatusReport, status_text

NOW = 1_000_000.0
STUDY = "pacs-erm-resnet18-s0-0123456789ab"


def make(root: Path, name: str, status: str, study: str = STUDY, **beat: Any) -> Path:
    folder = root / study / name
    folder.mkdir(parents=True)
    if status:
        (folder / "status").write_text(status + "\n")
        os.utime(folder / "status", (NOW - 5, NOW - 5))
    if beat:
        whole = {"step": 40, "steps": 100, "steps_per_s": 2.0, "time": NOW - 5, "host": "elsewhere", "pid": 7}
        (folder / "progress.json").write_text(json.dumps({**whole, **beat}))
    return folder


def states(root: Path, claimed: bool = True) -> dict[str, tuple[str, str]]:
    found, _ = run_states([root], NOW, 600.0, lambda folder: claimed)
    return {state.folder.name: (state.state, state.why) for state in found}


def dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        return process.pid


def test_what_every_mark_means(tmp_path: Path) -> None:
    make(tmp_path, "done", "DONE")
    make(tmp_path, "failed", "FAILED loss became nan at step 3")
    make(tmp_path, "running", "RUNNING", step=40)
    make(tmp_path, "begins", "RUNNING")
    (make(tmp_path, "configured", "") / "config.yaml").write_text("{}")
    (tmp_path / STUDY / "planned.json").write_text(json.dumps({"members": ["done", "never", "../other/far"]}))
    assert states(tmp_path) == {
        "done": ("done", ""),
        "failed": ("failed", "loss became nan at step 3"),
        "running": ("running", ""),
        "begins": ("running", ""),
        "configured": ("waiting", "configured, never started"),
        "never": ("waiting", ""),
        "far": ("waiting", ""),
    }


def test_what_is_stuck(tmp_path: Path) -> None:
    """An old beat without a claim, a claim without a beat for more than 600 s, a process of this host that is gone."""
    make(tmp_path, "late", "RUNNING", time=NOW - 120)
    make(tmp_path, "silent", "RUNNING", time=NOW - 700)
    make(tmp_path, "gone", "RUNNING", host=socket.gethostname(), pid=(pid := dead_process()))
    make(tmp_path, "alive", "RUNNING", host=socket.gethostname(), pid=os.getpid(), time=NOW - 500)
    claimed, free = states(tmp_path), states(tmp_path, claimed=False)
    gone = ("stuck", f"its process {pid} is gone at step 40 of 100; the same command goes on")
    assert claimed == {
        "late": ("running", ""),
        "silent": ("stuck", "no sign of life for 11 min 40 s at step 40 of 100, process 7 on elsewhere"),
        "gone": gone,
        "alive": ("running", ""),
    }
    why = "nobody holds its claim at step 40 of 100, {} after its last sign of life; the same command goes on"
    assert free == {
        "late": ("stuck", why.format("2 min 00 s")),
        "silent": ("stuck", why.format("11 min 40 s")),
        "gone": gone,
        "alive": ("stuck", why.format("8 min 20 s")),
    }


def test_a_real_claim_is_seen(tmp_path: Path) -> None:
    folder = make(tmp_path, "run", "RUNNING", time=NOW - 120)
    with Claims() as claims:
        assert claims.take(folder)
        assert run_states([tmp_path], NOW, 600.0, is_claimed)[0][0].state == "running"
    assert run_states([tmp_path], NOW, 600.0, is_claimed)[0][0].state == "stuck"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"step": 1}', '{"step": "x", "steps": 1, "steps_per_s": 1}'])
def test_a_torn_heartbeat_is_none(tmp_path: Path, text: str) -> None:
    folder = make(tmp_path, "run", "RUNNING")
    (folder / "progress.json").write_text(text)
    assert states(tmp_path) == {"run": ("running", "")}


def test_the_table(tmp_path: Path) -> None:
    """Two runs of one process at 2 steps/s each and 60 steps to go, one waiting with 100: 220 / 4 = 55 s."""
    for name in ("a", "b"):
        make(tmp_path, name, "RUNNING", pid=9)
    make(tmp_path, "c", "DONE")
    make(tmp_path, "d", "FAILED no space left", study="pacs-vrex-resnet18-s1-0123456789ab")
    (tmp_path / STUDY / "planned.json").write_text(json.dumps({"members": ["e"]}))
    found, _ = run_states([tmp_path], NOW, 600.0, lambda folder: True)
    lines = [" ".join(line.split()) for line in status_text(found).splitlines()]
    assert lines[2] == "pacs-erm-resnet18 4 1 2 0 0 1 4 55 s"
    assert lines[3] == "pacs-vrex-resnet18 1 0 0 1 0 0 -"
    assert lines[4] == "all 5 1 2 1 0 1 4 55 s"
    (running,) = [line for line in lines if "together" in line]
    assert running.startswith("2 models together, e.g. ")
    assert running.endswith("/a: step 40 of 100, 2.0 steps/s, 30 s left, process 9 on elsewhere")
    assert lines[-1].endswith("/d: no space left")


@pytest.mark.parametrize(
    ("marks", "code"),
    [(["DONE"], 0), (["DONE", "RUNNING"], 2), (["DONE", "FAILED x"], 3), (["RUNNING", "FAILED x"], 3)],
)
def test_the_exit_code(tmp_path: Path, marks: list[str], code: int) -> None:
    for number, mark in enumerate(marks):
        folder = make(tmp_path, str(number), mark)
        os.utime(folder / "status")
    assert StatusReport([str(tmp_path)], lambda folder: True).show() == code


def test_live_until_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    folder = make(tmp_path, "run", "RUNNING")
    os.utime(folder / "status")
    monkeypatch.setattr(time, "sleep", lambda seconds: (folder / "status").write_text("DONE\n"))
    assert StatusReport([str(tmp_path)], lambda folder: True, every=3).show() == 0
    assert re.findall(r"All done", capsys.readouterr().out) == ["All done"]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no runs under"):
        StatusReport([str(tmp_path)], is_claimed).show()
    with pytest.raises(ConfigError, match=r"report\.every=0 is not a number > 0"):
        StatusReport([str(tmp_path)], is_claimed, every=0)


def test_durations() -> None:
    assert [duration(s) for s in (9.6, 125, 3 * 3600 + 605, 100_000)] == [
        "10 s",
        "2 min 05 s",
        "3 h 10 min",
        "1 d 03 h",
    ]


def test_as_a_user_has_it(train: Any, command: Any, tmp_path: Path) -> None:
    """Killed in the middle: a stuck run and waiting ones, exit code 3; after the same command all done, 0."""
    die = "from dgbench.callbacks.environment_errors import EnvironmentErrors as e\nimport os\n"
    die += "e.on_validation_epoch_end = lambda *_: os.kill(os.getpid(), 9)"
    assert train("protocol.folds=[0,1]", cwd=tmp_path, before=die).code == -9
    ended = command("report.py", "report=status", "runs=[outputs]", cwd=tmp_path)
    assert ended.code == 3, ended.err
    assert ended.out.splitlines()[2].split()[1:7] == ["2", "0", "0", "0", "1", "1"]
    assert "is gone at step 0 of 12; the same command goes on" in ended.out
    assert train("protocol.folds=[0,1]", cwd=tmp_path).code == 0
    ended = command("report.py", "report=status", "runs=[outputs]", cwd=tmp_path)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "  All done."), ended.err


def test_status_needs_no_torch() -> None:
    code = (
        "import sys\nfrom dgbench.cli.report import report\n"
        "sys.argv = ['report.py', 'report=status', 'runs=[absent]']\n"
        "try:\n    report()\nexcept SystemExit as stop:\n    assert stop.code == 1\n"
        "print(sorted({'torch', 'pytorch_lightning', 'pandas', 'matplotlib', 'sklearn'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "[]", ended.stderr
    assert "no runs under absent" in ended.stderr
