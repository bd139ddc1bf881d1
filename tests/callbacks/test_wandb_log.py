"""W&B: an offline run is read back with W&B's own reader, and a broken W&B never stops training."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.callbacks.loggers import RunInfo, WandbLog, error_values, positions
from tests.complaints import one_line

WANDB = Path(sys.executable).with_name("wandb")


def inspect(file: Path, *words: str) -> str:
    command = [WANDB, "leet", "inspect", *words, "--json", file]
    ended = subprocess.run(command, capture_output=True, text=True)
    if "No such command" in ended.stderr:
        pytest.skip("this version of wandb has no reader of its own files")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def offline(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole study logged without network, in a process of its own."""
    folder = tmp_path_factory.mktemp("wandb")
    ended = train("logger=wandb", "logger.tags=[tiny]", cwd=folder, env={"WANDB_MODE": "offline"})
    assert ended.code == 0, ended.err
    assert "W&B is off" not in ended.err
    (line,) = [line for line in ended.out.splitlines() if line.startswith("W&B: ")]
    one_line(line, r"^W&B: 6 offline runs in outputs/\S+; send them: wandb sync --yes \$\(find outputs/\S+ ")
    return folder


def one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(f"outputs/*/{pattern}offline-run-*/*.wandb")
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fold", "environments"),
    [("0", ["0.10", "0.80", "0.85", "0.90"]), ("full", [f"{i / 100:.2f}" for i in range(101)])],
)
def test_a_run_is_logged_with_its_errors(offline: Path, fold: str, environments: list[str]) -> None:
    """3 evaluations, each a history line with every error; the last is the summary and equals the rows."""
    file = one(offline, f"fold-{fold}-*/wandb/")
    (study,) = (offline / "outputs").glob("sr_cmnist-*")
    records = [json.loads(line) for line in inspect(file).splitlines()]
    run = next(record["run"] for record in records if record["type"] == "run")
    assert run["run_group"] == study.name
    assert run["job_type"] == f"fold-{fold}"
    assert run["project"] == "dgbench"
    assert sorted(run["tags"]) == ["erm", "fold", "sr_cmnist", "tiny"]
    assert file.name == f"run-{file.parents[2].name.split('-')[2]}.wandb", "a resume continues its W&B run"

    history = [record["history"]["item"] for record in records if record["type"] == "history"]
    assert [item["step"] for item in history] == [4, 8, 12]
    assert {key for key in history[0] if key.startswith("error/test/")} == {f"error/test/{env}" for env in environments}
    assert {"error/val/0.80", "error/val/0.10"} <= history[0].keys()

    summary = json.loads(inspect(file, "--summary"))
    assert summary["exit_code"] == 0
    assert summary["config"]["trainer"]["steps"] == 12
    assert summary["config"]["algorithm"]["name"] == "erm"
    assert summary["config"]["seed"] == 0
    rows = [json.loads(line) for line in (file.parents[2] / "errors.jsonl").read_text().splitlines()]
    final = {f"error/{r['subset']}/{r['env']}": r["wrong"] / r["seen"] for r in rows if r["step"] == 12}
    means = {"error/training_val", "error/held_out"}
    logged = {key: v for key, v in summary["summary"].items() if key.startswith("error/") and key not in means}
    val = [r["wrong"] / r["seen"] for r in rows if r["step"] == 12 and r["subset"] == "val" and not r["env_held_out"]]
    assert summary["summary"]["error/training_val"] == pytest.approx(sum(val) / len(val))
    columns = {"algorithm_name": "erm", "dataset_name": "sr_cmnist", "fold": fold, "draw": 0, "trial": 0}
    assert {key: summary["config"][key] for key in columns} == columns
    assert summary["config"]["hyperparameters"]["lr"] == 0.001
    assert logged == {key: pytest.approx(value, abs=1e-12) for key, value in final.items()}


@pytest.mark.thorough
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
    records = [json.loads(line) for line in inspect(file).splitlines()]
    points = [r["history"]["item"] for r in records if r["type"] == "history"]
    line = {p["environment/position"]: p for p in points if "environment/position" in p}
    assert list(line) == sorted(line)
    assert max(p["environment/everywhere"] for p in line.values()) == pytest.approx(max(everywhere))
    given = {place: p["environment/held_out"] for place, p in line.items() if "environment/held_out" in p}
    assert sorted(given) == [0.1, 0.8, 0.85, 0.9]
    assert sorted(given.values()) == pytest.approx(sorted(held_out))
    (table,) = file.parent.glob("files/media/table/environments_*.table.json")
    content = json.loads(table.read_text())
    assert content["columns"] == ["environment", "position", "held out", "everywhere"]
    assert len(content["data"]) == 101
    run = next(r["run"] for r in records if r["type"] == "run")
    assert run["job_type"] == "study"
    assert run["run_group"] == run["display_name"] == file.parents[2].name


def test_reports_see_no_runs_in_wandbs_folders(offline: Path, command: Any) -> None:
    ended = command("report.py", "runs=[outputs]", "output=report", cwd=offline)
    assert ended.code == 0, ended.err
    assert "wandb" not in ended.out


@pytest.mark.thorough
def test_a_stack_that_was_killed_continues_in_the_same_runs(train: Any, tmp_path: Path) -> None:
    """One W&B run per run and one of the study, whichever command logged them; ids are the hashes of the folders."""
    words = ("logger=wandb", "execution=stacked", "protocol.folds=[0,1]")
    env = {"WANDB_MODE": "offline"}
    die = (
        "import os\nfrom dgbench.training.train_runs import _Trainer\n"
        "_Trainer._show = lambda *_, **__: os.kill(os.getpid(), 9)"
    )
    assert train(*words, cwd=tmp_path, env=env, before=die).code == -9
    assert not list(tmp_path.rglob("*.wandb"))
    first = train(*words, cwd=tmp_path, env=env)
    again = train(*words, cwd=tmp_path, env=env)
    assert (first.code, again.code) == (0, 0), first.err + again.err
    runs = {file.name.removeprefix("run-").removesuffix(".wandb") for file in tmp_path.rglob("*.wandb")}
    trained = {folder.name.split("-")[2] for folder in tmp_path.glob("outputs/*/fold-*")}
    assert len(trained) == 2
    assert trained < runs
    assert len(runs) == 3


def test_one_table_syncs_everything(offline: Path) -> None:
    """The folders that the closing line names hold every W&B run: 5 runs and the study."""
    found = sorted(offline.glob("outputs/*/wandb/offline-run-*")) + sorted(
        offline.glob("outputs/*/*/wandb/offline-run-*")
    )
    assert len(found) == 6
    asked = subprocess.run([WANDB, "sync", "--dry-run", "--yes", *found], capture_output=True, text=True)
    if "No such option" in asked.stderr:
        pytest.skip("this version of wandb syncs without asking")
    assert asked.returncode == 0, asked.stderr
    assert all(folder.name in asked.stdout + asked.stderr for folder in found)


def test_positions() -> None:
    assert positions(["0.90", "0.1"]) == {"0.90": 0.9, "0.1": 0.1}
    assert positions(["photo", "0.1"]) == {"photo": 0.0, "0.1": 1.0}


def test_the_dashboard_shows_keys_that_are_logged(offline: Path) -> None:
    """Every key of a panel is in the history or summary of some run; built offline."""
    if importlib.util.find_spec("wandb_workspaces") is None:
        pytest.skip("wandb-workspaces is not installed; pip install 'dgbench[wandb]'")
    command = [sys.executable, "-m", "dgbench.cli.wandb_workspace", "somebody", "dgbench", "--print"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    logged = {
        key
        for file in offline.rglob("*.wandb")
        for record in map(json.loads, inspect(file).splitlines())
        if record["type"] == "history"
        for key in record["history"]["item"]
    }
    summary = json.loads(inspect(one(offline, "wandb/"), "--summary"))["summary"]
    shown = set(re.findall(r'"(?:summary_metrics\.|summary:)?((?:error|environment|train)/\w+)"', text))
    lines = {"error/training_val", "error/held_out", "train/loss"}
    assert {"environment/held_out", "environment/everywhere", *lines} <= shown
    assert shown <= logged
    bars = set(re.findall(r'"summary_metrics\.(\w+)"', text))
    assert {"worst_gap", "average", "ideal"} <= bars <= summary.keys()


def test_the_dashboard_without_its_package() -> None:
    code = "import sys\nsys.modules['wandb_workspaces'] = None\nfrom dgbench.cli.wandb_workspace import main\n"
    words = [sys.executable, "-c", code + "sys.exit(main(['somebody', 'dgbench', '--print']))"]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    one_line(ended.stderr.rstrip("\n"), r"wandb-workspaces; pip install 'dgbench\[wandb\]'$")


BROKEN = {
    "absent": "import sys\nsys.modules['wandb'] = None",
    "init raises": "import wandb\ndef init(**_):\n    raise RuntimeError('no\\nserver')\nwandb.init = init",
    "log raises": (
        "import wandb\nclass Run:\n    def __getattr__(self, name):\n        raise ConnectionError('gone')\n"
        "wandb.init = lambda **_: Run()"
    ),
    "wrong mode": "import os\nos.environ['WANDB_MODE'] = 'nonsense'",
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_wandb_never_stops_training(train: Any, tmp_path: Path, rows_of: Any, kind: str) -> None:
    """One warning for the whole job, and the rows of a run without W&B."""
    plain, logged = tmp_path / "plain", tmp_path / "logged"
    plain.mkdir()
    logged.mkdir()
    assert train("protocol.folds=[0,1]", cwd=plain).code == 0
    ended = train("protocol.folds=[0,1]", "logger=wandb", cwd=logged, before=BROKEN[kind])
    assert ended.code == 0, ended.err
    assert ended.err.count("W&B is off for") == 1
    assert "Traceback" not in ended.err
    assert rows_of(logged) == rows_of(plain)


class FakeRun:
    """Records what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.summary = SimpleNamespace(update=lambda values: self.calls.append(("summary", values)))

    def define_metric(self, name: str, step_metric: str) -> None:
        if name == "*":
            self.calls.append(("define", (name, step_metric)))

    def log(self, values: dict[str, float]) -> None:
        self.calls.append(("log", values))

    def finish(self, exit_code: int) -> None:
        self.calls.append(("finish", exit_code))


def test_what_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean validation error of the training environments is (0.25 + 0.35) / 2; one environment is held out."""
    import wandb

    run, asked = FakeRun(), {}
    monkeypatch.setattr(wandb, "init", lambda **words: asked.update(words) or run)
    logger = WandbLog(group="table 1", mode="offline")
    logger.start(RunInfo(tmp_path, "abc", "study/fold-0", "fold-0", "folder", {"seed": 0}))
    rows: Any = [
        SimpleNamespace(subset="val", env="0.80", error=0.25, held_out=False),
        SimpleNamespace(subset="val", env="0.90", error=0.35, held_out=False),
        SimpleNamespace(subset="test", env="0.10", error=0.75, held_out=True),
        SimpleNamespace(subset="test", env="0.80", error=0.5, held_out=False),
    ]
    logger.log(40, error_values(rows))
    logger.summary({"average": 0.5})
    logger.finish(failed=True)
    logger.finish()
    expected = {"group": "table 1", "job_type": "fold-0", "id": "abc", "name": "study/fold-0", "config": {"seed": 0}}
    expected |= {"dir": str(tmp_path), "mode": "offline"}
    assert {key: asked[key] for key in expected} == expected
    assert run.calls == [
        ("define", ("*", "step")),
        (
            "log",
            {
                "step": 40,
                "error/val/0.80": 0.25,
                "error/val/0.90": 0.35,
                "error/test/0.10": 0.75,
                "error/test/0.80": 0.5,
                "error/training_val": pytest.approx(0.3),
                "error/held_out": 0.75,
            },
        ),
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
            logger.start(RunInfo(tmp_path, "abc", "n", "j", "g", {}))
            logger.log(1, {})
            logger.finish()
    assert len(tries) == 1
    (record,) = caplog.records
    one_line(record.getMessage(), "^W&B is off .*: OSError: no network$")
