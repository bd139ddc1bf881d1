"""W&B: an offline run is read back with W&B's own reader, and a broken W&B never stops training."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.callbacks.loggers import RunInfo, error_values
from dgbench.callbacks.wandb_log import StudyResults, WandbLog, log_study, positions
from dgbench.records.wandb_runs import Mark, comparison, is_off, read_mark
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
    one_line(
        line,
        r"^W&B: 6 offline runs in outputs/\S+; send them: wandb sync --yes \$\(find outputs/\S+ ",
    )
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
    """3 evaluations, each a history line with every error; the last is the summary and equals the
    rows.
    """
    file = one(offline, f"fold-{fold}-*/wandb/")
    (study,) = (offline / "outputs").glob("sr_cmnist-*")
    records = [json.loads(line) for line in inspect(file).splitlines()]
    run = next(record["run"] for record in records if record["type"] == "run")
    assert run["run_group"] == study.name
    assert run["job_type"] == f"fold-{fold}"
    assert run["project"] == "dgbench"
    assert sorted(run["tags"]) == ["erm", "fold", "sr_cmnist", "tiny"]
    assert file.name == f"run-{file.parents[2].name.split('-')[2]}.wandb", (
        "a resume continues its W&B run"
    )

    history = [record["history"]["item"] for record in records if record["type"] == "history"]
    assert [item["step"] for item in history] == [4, 8, 12]
    assert {key for key in history[0] if key.startswith("error/test/")} == {
        f"error/test/{env}" for env in environments
    }
    assert {"error/val/0.80", "error/val/0.10"} <= history[0].keys()

    summary = json.loads(inspect(file, "--summary"))
    assert summary["exit_code"] == 0
    assert summary["config"]["trainer"]["steps"] == 12
    assert summary["config"]["algorithm"]["name"] == "erm"
    assert summary["config"]["seed"] == 0
    rows = [
        json.loads(line) for line in (file.parents[2] / "errors.jsonl").read_text().splitlines()
    ]
    final = {
        f"error/{r['subset']}/{r['env']}": r["wrong"] / r["seen"] for r in rows if r["step"] == 12
    }
    means = {"error/training_val", "error/training_val_min", "error/held_out"}
    logged = {
        key: v
        for key, v in summary["summary"].items()
        if key.startswith("error/") and key not in means
    }
    val = [
        r["wrong"] / r["seen"]
        for r in rows
        if r["step"] == 12 and r["subset"] == "val" and not r["env_held_out"]
    ]
    assert summary["summary"]["error/training_val"] == pytest.approx(sum(val) / len(val))
    columns = {
        "algorithm_name": "erm",
        "dataset_name": "sr_cmnist",
        "fold": fold,
        "draw": 0,
        "trial": 0,
    }
    assert {key: summary["config"][key] for key in columns} == columns
    assert summary["config"]["hyperparameters"]["lr"] == 0.001
    assert logged == {key: pytest.approx(value, abs=1e-12) for key, value in final.items()}


@pytest.mark.thorough
def test_the_study_is_a_run_with_its_measures(offline: Path) -> None:
    """From the rows by hand: held-out errors h of folds 0 to 3, errors of fold full everywhere.

    average = mean h, worst = max h, gap = max h - min h, worst+gap = worst + gap / (4 - 2), ideal =
    max of full.
    """
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
    expected = {
        "average": sum(held_out) / 4,
        "worst": worst,
        "gap": gap,
        "worst_gap": worst + gap / 2,
    }
    expected["ideal"] = max(everywhere)
    file = one(offline, "wandb/")
    found = json.loads(inspect(file, "--summary"))
    assert {name: found["summary"][name] for name in expected} == {
        k: pytest.approx(v) for k, v in expected.items()
    }
    records = [json.loads(line) for line in inspect(file).splitlines()]
    points = [r["history"]["item"] for r in records if r["type"] == "history"]
    line = {p["environment/position"]: p for p in points if "environment/position" in p}
    assert list(line) == sorted(line)
    assert max(p["environment/everywhere"] for p in line.values()) == pytest.approx(max(everywhere))
    given = {
        place: p["environment/held_out"] for place, p in line.items() if "environment/held_out" in p
    }
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
    """One W&B run per run and one of the study, whichever command logged them; ids are the hashes
    of the folders.
    """
    words = ("logger=wandb", "execution=stacked", "protocol.folds=[0,1]")
    env = {"WANDB_MODE": "offline"}
    die = (
        "import os\nfrom dgbench.training.modules import RunModule\nsteps = "
        "RunModule.train_steps\ndef train_steps(self, *words):\n    if self.steps_done >= "
        "8:\n        os.kill(os.getpid(), 9)\n    return steps(self, "
        "*words)\nRunModule.train_steps = train_steps"
    )
    assert train(*words, cwd=tmp_path, env=env, before=die).code == -9
    marks = [json.loads(file.read_text()) for file in tmp_path.rglob("fold-*/wandb.json")]
    assert [mark["done"] for mark in marks] == [False, False], "both are live, and neither is done"
    first = train(*words, cwd=tmp_path, env=env)
    again = train(*words, cwd=tmp_path, env=env)
    assert (first.code, again.code) == (0, 0), first.err + again.err
    runs = {
        file.name.removeprefix("run-").removesuffix(".wandb") for file in tmp_path.rglob("*.wandb")
    }
    trained = {folder.name.split("-")[2] for folder in tmp_path.glob("outputs/*/fold-*")}
    assert len(trained) == 2
    assert trained < runs
    assert len(runs) == 3
    for folder in tmp_path.glob("outputs/*/fold-*"):
        files = folder.glob("wandb/offline-run-*/*.wandb")
        lines = [json.loads(line) for file in files for line in inspect(file).splitlines()]
        steps = [line["history"]["item"]["step"] for line in lines if line["type"] == "history"]
        assert 12 in steps
        assert len(steps) == len(set(steps)), "no line twice"


def test_one_table_syncs_everything(offline: Path) -> None:
    """The folders that the closing line names hold every W&B run: 5 runs and the study."""
    found = sorted(offline.glob("outputs/*/wandb/offline-run-*")) + sorted(
        offline.glob("outputs/*/*/wandb/offline-run-*")
    )
    assert len(found) == 6
    asked = subprocess.run(
        [WANDB, "sync", "--dry-run", "--yes", *found], capture_output=True, text=True
    )
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
    command = [
        sys.executable,
        "-m",
        "dgbench.cli.wandb_workspace",
        "somebody",
        "dgbench",
        "--print",
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    logged = {
        key
        for file in offline.rglob("*.wandb")
        for record in map(json.loads, inspect(file).splitlines())
        if record["type"] == "history"
        for key in record["history"]["item"]
    }
    summary = json.loads(inspect(one(offline, "wandb/"), "--summary"))["summary"]
    shown = set(
        re.findall(r'"(?:summary_metrics\.|summary:)?((?:error|environment|train)/\w+)"', text)
    )
    lines = {"error/training_val", "error/held_out", "train/loss"}
    assert {"environment/held_out", "environment/everywhere", *lines} <= shown
    assert shown <= logged
    bars = set(re.findall(r'"summary_metrics\.(\w+)"', text))
    assert {"worst_gap", "average", "ideal"} <= bars <= summary.keys()


def test_the_dashboard_without_its_package() -> None:
    code = (
        "import sys\nsys.modules['wandb_workspaces'] = None\nfrom dgbench.cli.wandb_workspace "
        "import main\n"
    )
    words = [sys.executable, "-c", code + "sys.exit(main(['somebody', 'dgbench', '--print']))"]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    one_line(ended.stderr.rstrip("\n"), r"wandb-workspaces; pip install 'dgbench\[wandb\]'$")


BROKEN = {
    "absent": "import sys\nsys.modules['wandb'] = None",
    "init raises": (
        "import wandb\ndef init(**_):\n    raise RuntimeError('no\\nserver')\nwandb.init = init"
    ),
    "log raises": (
        "import wandb\nclass Run:\n    def __getattr__(self, name):\n        raise "
        "ConnectionError('gone')\nwandb.init = lambda **_: Run()"
    ),
    "wrong mode": "import os\nos.environ['WANDB_MODE'] = 'nonsense'",
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_wandb_never_stops_training(
    train: Any, tmp_path: Path, rows_of: Any, kind: str
) -> None:
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

    offline = False

    def __init__(self, id: str = "abc") -> None:
        self.id = id
        self.calls: list[tuple[str, Any]] = []
        self.summary = SimpleNamespace(update=lambda values: self.calls.append(("summary", values)))

    def define_metric(self, name: str, step_metric: str) -> None:
        if name == "*":
            self.calls.append(("define", (name, step_metric)))

    def log(self, values: dict[str, float]) -> None:
        if "environments" not in values:
            self.calls.append(("log", values))

    def finish(self, exit_code: int) -> None:
        self.calls.append(("finish", exit_code))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[FakeRun, dict[str, Any]]]:
    """Every W&B run that is opened, with the arguments of ``wandb.init``; no variable of W&B is
    set.
    """
    import wandb

    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    runs: list[tuple[FakeRun, dict[str, Any]]] = []

    def init(**words: Any) -> FakeRun:
        runs.append((FakeRun(words["id"]), words))
        return runs[-1][0]

    monkeypatch.setattr(wandb, "init", init)
    return runs


def about(folder: Path, id: str = "abc", job_type: str = "fold-0") -> RunInfo:
    folder.mkdir(parents=True, exist_ok=True)
    name = "study" if job_type == "study" else f"study/{job_type}"
    return RunInfo(folder, folder.parent, id, name, job_type, "study", {"seed": 0}, ["fold"])


Opened = list[tuple[FakeRun, dict[str, Any]]]


def test_what_is_sent(tmp_path: Path, opened: Opened) -> None:
    """The mean validation error of the training environments is (0.25 + 0.35) / 2; one environment
    is held out.
    """
    logger = WandbLog(group="table 1", mode="offline")
    run = logger.open(about(tmp_path))
    rows: Any = [
        SimpleNamespace(subset="val", env="0.80", error=0.25, held_out=False),
        SimpleNamespace(subset="val", env="0.90", error=0.35, held_out=False),
        SimpleNamespace(subset="test", env="0.10", error=0.75, held_out=True),
        SimpleNamespace(subset="test", env="0.80", error=0.5, held_out=False),
    ]
    run.log(40, error_values(rows))
    run.finish(failed=True)
    run.finish()
    ((fake, asked),) = opened
    expected = {
        "group": "table 1",
        "job_type": "fold-0",
        "id": "abc",
        "name": "study/fold-0",
        "config": {"seed": 0},
    }
    expected |= {
        "dir": str(tmp_path),
        "mode": "offline",
        "project": "dgbench",
        "reinit": "create_new",
    }
    assert {key: asked[key] for key in expected} == expected
    assert fake.calls == [
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
                "error/training_val_min": pytest.approx(0.3),
                "error/held_out": 0.75,
            },
        ),
        ("finish", 1),
    ]


def test_the_lowest_validation_error_of_two_commands(tmp_path: Path, opened: Opened) -> None:
    """0.3, then in a second command 0.5 and 0.2: the minimum so far is 0.3 and 0.2."""
    run = WandbLog().open(about(tmp_path))
    run.skip(10, {"error/training_val": 0.3})
    run.log(20, {"error/training_val": 0.5})
    run.log(30, {"error/training_val": 0.2})
    lowest = [
        values["error/training_val_min"] for what, values in opened[0][0].calls if what == "log"
    ]
    assert lowest == [0.3, 0.2]


def test_a_mark_says_what_is_done(tmp_path: Path, opened: Opened) -> None:
    """Open, then done; one that was interrupted is continued, one that is done is known, another is
    written over.
    """
    logger = WandbLog()
    assert not logger.knows(tmp_path)
    (tmp_path / "wandb").mkdir()
    assert not logger.knows(tmp_path), "a failed attempt leaves this folder as well"
    run = logger.open(about(tmp_path))
    assert not run.continues
    assert read_mark(tmp_path) == Mark("abc")
    run.finish(failed=True)
    assert not logger.knows(tmp_path)
    run = WandbLog().open(about(tmp_path))
    assert run.continues
    run.finish()
    assert logger.knows(tmp_path)
    assert read_mark(tmp_path) == Mark("abc", done=True)
    logger.open(about(tmp_path), anew=True)
    assert [asked["resume"] for _, asked in opened] == [None, "allow", None]


def test_many_runs_are_open_at_a_time(tmp_path: Path, opened: Opened) -> None:
    logger = WandbLog()
    runs = [logger.open(about(tmp_path / id, id)) for id in ("one", "two")]
    for step in (1, 2):
        for run in runs:
            run.log(step, {"train/loss": step})
    for fake, _ in opened:
        assert [values["step"] for what, values in fake.calls if what == "log"] == [1, 2]


def test_a_study_is_sent_again_only_if_it_changed(tmp_path: Path, opened: Opened) -> None:
    study = about(tmp_path, job_type="study")
    results = StudyResults({"a": 0.5}, {"a": 0.4}, {"average": 0.5})
    for _ in range(2):
        log_study(WandbLog(), study, results, failed=False)
    assert len(opened) == 1
    assert ("summary", {"average": 0.5}) in opened[0][0].calls
    log_study(
        WandbLog(), study, StudyResults({"a": 0.6}, {"a": 0.4}, {"average": 0.6}), failed=False
    )
    assert len(opened) == 2


VARIABLES = {
    "WANDB_PROJECT": "mine",
    "WANDB_TAGS": "first, second",
    "WANDB_RUN_GROUP": "all",
    "WANDB_NAME": "try",
}


@pytest.mark.parametrize("keys_are_set", [False, True])
def test_variables_count_where_the_key_is_null(
    keys_are_set: bool, tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    given: dict[str, Any] = (
        {"project": "p", "tags": ["t"], "group": "g", "name": "n"} if keys_are_set else {}
    )
    WandbLog(**given).open(about(tmp_path))
    asked = opened[0][1]
    found = (asked["project"], asked["tags"], asked["group"], asked["name"])
    if keys_are_set:
        assert found == ("p", ["t", "fold"], "g", "n/fold-0")
    else:
        assert found == ("mine", ["first", "second", "fold"], "all", "try/fold-0")


def test_only_the_study_has_the_agents_run(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first study of the command: its folds, and other studies, keep their ids, in the group of
    the sweep.
    """
    parameters = tmp_path / "sweep.yaml"
    parameters.write_text("wandb_version: 1\nhparams.lr:\n  value: 0.01\n")
    monkeypatch.setenv("WANDB_SWEEP_ID", "sw33p")
    monkeypatch.setenv("WANDB_RUN_ID", "agents")
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(parameters))
    logger = WandbLog()
    assert logger.follows_studies
    for id, job_type in (("f0", "fold-0"), ("s0", "study"), ("s1", "study")):
        logger.open(about(tmp_path / id, id, job_type))
    fold, study, other = (asked for _, asked in opened)
    assert [asked["id"] for asked in (fold, study, other)] == ["f0", "agents", "s1"]
    assert {asked["group"] for asked in (fold, study, other)} == {"sw33p"}
    assert [asked["settings"].sweep_id for asked in (fold, study, other)] == [None, "sw33p", None]
    assert study["config"]["hparams.lr"] == 0.01
    assert os.environ["WANDB_RUN_ID"] == "agents", "hidden from W&B for a moment only"


def test_after_a_failure_nothing_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    tries = []

    def init(**words: Any) -> None:
        tries.append(words["settings"])
        raise OSError("no network")

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.delenv("WANDB_INIT_TIMEOUT", raising=False)
    logger = WandbLog()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            run = logger.open(about(tmp_path))
            run.log(1, {})
            run.finish()
    assert len(tries) == 1
    assert tries[0].init_timeout == 20
    (record,) = caplog.records
    one_line(
        record.getMessage(), "^W&B is off .*: OSError: no network; .* the same command sends later"
    )
    assert read_mark(tmp_path) is None


def test_one_warning_for_all_jobs_of_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs may be processes of their own; the next command, which writes multirun.yaml anew, tries
    again.
    """
    import wandb

    tries = []

    def init(**words: Any) -> None:
        tries.append(words)
        raise OSError("no network")

    monkeypatch.setattr(wandb, "init", init)
    (tmp_path / "multirun.yaml").touch()
    with caplog.at_level(logging.WARNING):
        for id in ("one", "two", "three"):
            WandbLog().open(about(tmp_path / id, id)).finish()
    assert len(tries) == len(caplog.records) == 1
    assert is_off(tmp_path)
    later = time.time() + 10
    os.utime(tmp_path / "multirun.yaml", (later, later))
    assert not is_off(tmp_path)


def test_what_failed_at_its_end_is_sent_again(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(run: FakeRun, exit_code: int) -> None:
        raise TimeoutError("finish timed out")

    monkeypatch.setattr(FakeRun, "finish", gone)
    logger = WandbLog()
    runs = [logger.open(about(tmp_path / id, id)) for id in ("one", "two")]
    for run in runs:
        run.finish()
    assert read_mark(tmp_path / "one") is None
    assert read_mark(tmp_path / "two") is None


def test_runs_are_compared_by_all_that_their_results_share() -> None:
    """Seed and fold are averaged over; dataset, network, selection and hyperparameters are not."""
    from dgbench.records.run_identity import DEFAULTS

    identity: dict[str, Any] = {**DEFAULTS, **IDENTITY}
    name = comparison(identity, "last")
    assert name.startswith("erm | sr_cmnist digits ratio=3 | mlp-8 random ft | loo | last #")
    for changed in ({"seed": 1}, {"fold": "1", "held_out": ["b"]}, {"run": "2"}):
        assert comparison({**identity, **changed}, "last") == name
    for changed in (
        {"dataset": "cmnist"},
        {"variant": {"ratio": 5}},
        {"backbone": "mlp-16"},
        {"init": "file"},
        {"hparams": {"lr": 0.1}},
        {"averaging": "swad"},
        {"split_seed": 1},
        {"code": "2"},
    ):
        assert comparison({**identity, **changed}, "last") != name
    assert comparison(identity, "train_val") != name


IDENTITY: dict[str, Any] = {
    "run": "1", "dataset": "sr_cmnist", "variant": {"ratio": 3}, "base": "digits",
    "evaluation": "exact", "data_seed": 0, "split_seed": 0, "given": ["a", "b"], "algorithm": "erm",
    "hparams": {"lr": 0.01}, "backbone": "mlp-8", "init": "random", "head": "random",
    "tuning": "ft", "seed_moves": "all", "protocol": "loo", "fold": "0", "held_out": ["a"],
    "folds": None, "seed": 0, "averaging": "none", "user_code": {}, "code": "1",
}  # fmt: skip
