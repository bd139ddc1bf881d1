"""W&B: an offline run is read back with W&B's own reader, and a broken W&B never stops training."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.callbacks.wandb_log import WandbLog

WANDB = Path(sys.executable).with_name("wandb")


def inspect(file: Path, *words: str) -> str:
    command = [WANDB, "leet", "inspect", *words, "--json", file]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def offline(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole study logged without network, in a process of its own."""
    folder = tmp_path_factory.mktemp("wandb")
    ended = train("logger=wandb", "logger.tags=[tiny]", cwd=folder, env={"WANDB_MODE": "offline"})
    assert ended.code == 0, ended.err
    assert "W&B is off" not in ended.err
    return folder


def one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(f"outputs/*/{pattern}offline-run-*/*.wandb")
    return found


@pytest.mark.parametrize(
    ("fold", "environments"),
    [("0", ["0.10", "0.80", "0.85", "0.90"]), ("full", [f"{i / 100:.2f}" for i in range(101)])],
)
def test_a_member_is_a_run_with_its_errors(offline: Path, fold: str, environments: list[str]) -> None:
    """3 evaluations, each a history line with every error; the last is the summary and equals the rows."""
    file = one(offline, f"fold-{fold}-*/wandb/")
    (study,) = (offline / "outputs").iterdir()
    records = [json.loads(line) for line in inspect(file).splitlines()]
    run = next(record["run"] for record in records if record["type"] == "run")
    assert run["run_group"] == study.name
    assert run["job_type"] == f"fold-{fold}"
    assert run["project"] == "dgbench"
    assert run["tags"] == ["tiny"]
    assert file.name == f"run-{file.parents[2].name.split('-')[2]}.wandb", "a resume continues the run of the member"

    history = [record["history"]["item"] for record in records if record["type"] == "history"]
    assert [item["step"] for item in history] == [4, 8, 12]
    assert {key for key in history[0] if key.startswith("error/test/")} == {f"error/test/{env}" for env in environments}
    assert {"error/val/0.80", "error/val/0.10"} <= history[0].keys()

    summary = json.loads(inspect(file, "--summary"))
    assert summary["exit_code"] == 0
    assert summary["config"]["trainer"]["steps"] == 12
    assert summary["config"]["algorithm"]["name"] == "erm"
    assert summary["config"]["member"]["name"] == fold
    rows = [json.loads(line) for line in (file.parents[2] / "errors.jsonl").read_text().splitlines()]
    final = {f"error/{r['subset']}/{r['env']}": r["wrong"] / r["seen"] for r in rows if r["step"] == 12}
    logged = {key: value for key, value in summary["summary"].items() if key.startswith("error/")}
    assert logged == {key: pytest.approx(value, abs=1e-12) for key, value in final.items()}


def test_the_study_is_a_run_with_its_measures(offline: Path) -> None:
    """From the rows by hand: held-out errors h of folds 0 to 3, errors of fold full everywhere.

    average = mean h, worst = max h, gap = max h - min h, worst+gap = worst + gap / (4 - 2), ideal = max of full."""
    held_out, everywhere = [], []
    for file in offline.glob("outputs/*/fold-*/errors.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        last = [r for r in rows if r["step"] == 12 and r["subset"] == "test"]
        if rows[0]["fold"] == "full":
            everywhere += [r["wrong"] / r["seen"] for r in last]
        else:
            held_out += [r["wrong"] / r["seen"] for r in last if r["env_held_out"]]
    assert (len(held_out), len(everywhere)) == (4, 101)
    worst, gap = max(held_out), max(held_out) - min(held_out)
    expected = {"average": sum(held_out) / 4, "worst": worst, "gap": gap, "worst_gap": worst + gap / 2}
    expected["ideal"] = max(everywhere)
    file = one(offline, "wandb/")
    found = json.loads(inspect(file, "--summary"))
    assert {name: found["summary"][name] for name in expected} == {k: pytest.approx(v) for k, v in expected.items()}
    run = next(r["run"] for r in map(json.loads, inspect(file).splitlines()) if r["type"] == "run")
    assert run["job_type"] == "study"
    assert run["run_group"] == run["display_name"] == file.parents[2].name


def test_reports_see_no_runs_in_wandbs_folders(offline: Path, command: Any) -> None:
    ended = command("report.py", "runs=[outputs]", "output=report", cwd=offline)
    assert ended.code == 0, ended.err
    assert "wandb" not in ended.out


BROKEN = {
    "absent": "import sys\nsys.modules['wandb'] = None",
    "init raises": "import wandb\ndef init(**_):\n    raise RuntimeError('no\\nserver')\nwandb.init = init",
    "log raises": (
        "import wandb\nclass Run:\n    def __getattr__(self, name):\n        raise ConnectionError('gone')\n"
        "wandb.init = lambda **_: Run()"
    ),
    "wrong mode": "import os\nos.environ['WANDB_MODE'] = 'nonsense'",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_wandb_never_stops_training(train: Any, tmp_path: Path, rows_of: Any, kind: str) -> None:
    """One warning for the whole job, and the rows of a run without W&B."""
    plain, logged = tmp_path / "plain", tmp_path / "logged"
    plain.mkdir()
    logged.mkdir()
    assert train("protocol.folds=[0,1]", cwd=plain).code == 0
    ended = train("protocol.folds=[0,1]", "logger=wandb", cwd=logged, before=BROKEN[kind])
    assert ended.code == 0, ended.err
    assert ended.err.count("W&B is off for the rest of this job") == 1
    assert "Traceback" not in ended.err
    assert rows_of(logged) == rows_of(plain)


class FakeRun:
    """Records what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.summary = SimpleNamespace(update=lambda values: self.calls.append(("summary", values)))

    def define_metric(self, name: str, step_metric: str) -> None:
        self.calls.append(("define", (name, step_metric)))

    def log(self, values: dict[str, float]) -> None:
        self.calls.append(("log", values))

    def finish(self, exit_code: int) -> None:
        self.calls.append(("finish", exit_code))


def test_what_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows: 1 of 4 and 3 of 4 wrong, so errors 0.25 and 0.75."""
    import wandb

    run, asked = FakeRun(), {}
    monkeypatch.setattr(wandb, "init", lambda **words: asked.update(words) or run)
    logger = WandbLog(group="table 1", mode="offline")
    logger.start(tmp_path, "abc", "study/fold-0", "fold-0", "folder", {"seed": 0})
    rows: Any = [
        SimpleNamespace(subset="val", env="0.80", error=0.25),
        SimpleNamespace(subset="test", env="0.10", error=0.75),
    ]
    logger.rows(40, rows)
    logger.summary({"average": 0.5})
    logger.finish(failed=True)
    logger.finish()
    expected = {"group": "table 1", "job_type": "fold-0", "id": "abc", "name": "study/fold-0", "config": {"seed": 0}}
    expected |= {"dir": str(tmp_path), "mode": "offline"}
    assert {key: asked[key] for key in expected} == expected
    assert run.calls == [
        ("define", ("*", "step")),
        ("log", {"step": 40, "error/val/0.80": 0.25, "error/test/0.10": 0.75}),
        ("summary", {"average": 0.5}),
        ("finish", 1),
    ]


def test_after_a_failure_nothing_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    tries = []

    def init(**_: Any) -> None:
        tries.append(1)
        raise OSError("no network")

    monkeypatch.setattr(wandb, "init", init)
    logger = WandbLog()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            logger.start(tmp_path, "abc", "n", "j", "g", {})
            logger.rows(1, [])
            logger.finish()
    assert len(tries) == 1
    assert [r.getMessage() for r in caplog.records] == ["W&B is off for the rest of this job: OSError: no network"]
