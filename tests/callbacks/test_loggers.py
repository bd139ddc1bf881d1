"""All loggers show the same under the same names, whether runs train alone, together or in two
goes, and never harm.
"""

from __future__ import annotations

import csv
import json
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pytorch_lightning.loggers import Logger

from dgbench.callbacks.loggers import (
    CsvLog,
    Guard,
    LightningLog,
    MetricsLogger,
    RunInfo,
    RunLog,
    TensorBoardLog,
    build_logger,
)
from dgbench.callbacks.metrics import RunMetrics
from dgbench.callbacks.progress import StudyProgress
from dgbench.callbacks.study_means import StudyMeans
from dgbench.callbacks.wandb_log import WandbLog
from dgbench.errors import ConfigError
from dgbench.records.metrics import Lines, read_metrics
from dgbench.training.modules import RunModule
from dgbench.training.study import ReadyRun, ReadyStudy
from tests.callbacks.test_wandb_log import inspect
from tests.complaints import one_line
from tests.studies import composed, small_study, stopping_at, train_study

DOUBLE = "trainer.precision=64-true"
FOLDS = "protocol.folds=[0,1]"


def metrics(run: ReadyRun) -> Lines:
    """What a run logged, without its speed."""
    lines = read_metrics(run.folder / "metrics.csv")
    return {
        step: {k: v for k, v in own.items() if not k.startswith("speed/")}
        for step, own in lines.items()
    }


def events(folder: Path) -> Lines:
    """TensorBoard's own reading of the event files in a folder."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder)).Reload()
    lines: Lines = {}
    for name in found.Tags()["scalars"]:
        steps = [event.step for event in found.Scalars(name)]
        assert steps == sorted(set(steps)), f"{name} has some step twice"
        for event in found.Scalars(name):
            lines.setdefault(event.step, {})[name] = event.value
    return dict(sorted(lines.items()))


def approximately(lines: Lines, rel: float) -> dict[int, Any]:
    return {step: pytest.approx(values, rel=rel, abs=1e-12) for step, values in lines.items()}


class Memory(Logger):
    """A Lightning logger of a user's own."""

    lines: ClassVar[list[tuple[int, dict[str, float]]]] = []
    ended: ClassVar[list[str]] = []
    fails: ClassVar[str] = ""

    def __init__(self, save_dir: str, label: str = "") -> None:
        super().__init__()
        self.folder, self.label = save_dir, label
        self.may("init")

    def may(self, what: str) -> None:
        if what == self.fails:
            raise ConnectionError(f"{what}\nfailed")

    @property
    def name(self) -> str:
        return "memory"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.may("log_hyperparams")
        assert params["trainer"]["steps"]

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.may("log_metrics")
        assert step is not None
        self.lines.append((step, dict(metrics)))

    def finalize(self, status: str) -> None:
        self.may("finalize")
        self.ended.append(status)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    Memory.lines.clear()
    Memory.ended.clear()
    Memory.fails = ""


ERRORS = {
    f"error/{kind}/{env}" for kind in ("val", "test") for env in ("0.10", "0.80", "0.85", "0.90")
}
ERRORS |= {"error/training_val", "error/held_out"}
TRAINING = {"train/loss", "train/penalty", "train/penalty_weight", "lr/model"}
TRAINING |= {"speed/steps_per_s", "speed/images_per_s"}


@pytest.mark.thorough
def test_all_loggers_show_the_same(train: Any, tmp_path: Path, rows_of: Any) -> None:
    """12 steps with lines at 5, 10 and 12 and evaluations at 4, 8 and 12;
    no logger changes a row.
    """
    words = ("protocol.folds=[0]", "algorithm=vrex", "trainer.log_every=5")
    found: dict[str, Lines] = {}
    rows = {}
    for name in ("none", "csv", *(["tensorboard"] if _has_tensorboard() else [])):
        study = small_study(tmp_path / name, *words, "trainer.steps=12", "trainer.eval_every=4")
        assert all(train_study(study, logger=build_logger(composed(f"logger={name}"))).values())
        rows[name], folder = rows_of(tmp_path / name), study.runs[0].folder
        found[name] = read_metrics(folder / "metrics.csv")
        if name == "tensorboard":
            assert events(folder / "tensorboard") == approximately(found[name], 1e-6)
    assert all(own == rows["none"] for own in rows.values())
    ended = train(*words, "logger=wandb", cwd=tmp_path, env={"WANDB_MODE": "offline"})
    assert ended.code == 0 and " is off" not in ended.err, ended.err
    (folder,) = tmp_path.glob("outputs/*/fold-0-*")
    found["wandb"] = read_metrics(folder / "metrics.csv")
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    records = [json.loads(line) for line in inspect(file).splitlines()]
    history = [record["history"]["item"] for record in records if record["type"] == "history"]
    names = ERRORS | TRAINING  # and the lowest validation error so far
    shown = {item["step"]: {k: v for k, v in item.items() if k in names} for item in history}
    assert shown == approximately(found["wandb"], 1e-12)
    assert found.pop("none") == {}
    for lines in found.values():
        assert {step: set(own) for step, own in lines.items()} == {
            4: ERRORS, 5: TRAINING, 8: ERRORS, 10: TRAINING, 12: ERRORS | TRAINING,
        }  # fmt: skip
        assert all(own["speed/steps_per_s"] > 0 for own in lines.values() if "train/loss" in own)


def _has_tensorboard() -> bool:
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        return False
    return True


PENALTY = {"loss", "penalty", "penalty_weight"}
LOGGED = {
    "irm": PENALTY,
    "iga": PENALTY,
    "mmd": PENALTY,
    "fishr": PENALTY,
    "group_dro": {"loss", "largest_env_weight"},
    "eqrm": {"loss", "quantile", "mean_risk"},
    "cdann hparams.grad_penalty=0.5": {"loss", "discriminator_loss", "gradient_penalty"},
    "mldg": {"loss", "meta_train_risk", "meta_test_risk"},
    "sag_net": {"loss", "style_loss", "adversarial_loss"},
    "and_mask": {"loss", "agreeing"},
    "erdg": {"loss", "own", "main", "discriminator", "others", "rival"},
}


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", LOGGED)
def test_what_algorithms_log(algorithm: str, tmp_path: Path) -> None:
    study = small_study(
        tmp_path, *f"algorithm={algorithm}".split(), "protocol.folds=[0]", "trainer.steps=3"
    )
    assert all(train_study(study, logger=CsvLog()).values())
    (line,) = metrics(study.runs[0]).values()
    assert {key.removeprefix("train/") for key in line if key.startswith("train/")} == LOGGED[
        algorithm
    ]


@pytest.mark.parametrize("algorithm", ["irm", "dann"])
def test_runs_of_a_stack_log_what_they_log_alone(algorithm: str, tmp_path: Path) -> None:
    """In double precision, means over 7 steps and over 4; tests/training/test_stacked.py compares
    every algorithm.
    """
    words = (f"algorithm={algorithm}", DOUBLE, FOLDS, "trainer.steps=11", "trainer.eval_every=11")
    studies: list[ReadyStudy] = []
    for mode in ("single", "stacked"):
        source = studies[0].source if studies else None
        study = small_study(
            tmp_path / mode, *words, "trainer.log_every=7", f"execution={mode}", source=source
        )
        assert all(train_study(study, logger=CsvLog()).values())
        studies.append(study)
    for alone, together in zip(studies[0].runs, studies[1].runs, strict=True):
        expected = metrics(alone)
        assert list(expected) == [7, 11] and "train/loss" in expected[7]
        assert metrics(together) == approximately(expected, 1e-8)


def test_values_are_means_over_the_steps_since_the_last_line(tmp_path: Path) -> None:
    """Lines of every step, against lines of every third;
    cosine: the rate of the line's last step.
    """
    words = (
        "algorithm=vrex",
        DOUBLE,
        "protocol.folds=[0]",
        "trainer.steps=8",
        "trainer.schedule=cosine",
    )
    every = {}
    for n in (1, 3):
        study = small_study(tmp_path / str(n), *words, f"trainer.log_every={n}", "hparams.lr=0.01")
        train_study(study, logger=CsvLog())
        every[n] = metrics(study.runs[0])
    assert (list(every[1]), list(every[3])) == (list(range(1, 9)), [3, 6, 8])
    for steps in ((1, 2, 3), (4, 5, 6), (7, 8)):
        for name in ("train/loss", "train/penalty"):
            mean = sum(every[1][step][name] for step in steps) / len(steps)
            assert every[3][steps[-1]][name] == pytest.approx(mean, rel=1e-12)
        assert every[3][steps[-1]]["lr/model"] == every[1][steps[-1]]["lr/model"]
    assert every[1][1]["lr/model"] == 0.01 and every[1][5]["lr/model"] == pytest.approx(0.005)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mode", "checkpoint_seconds"), [("single", 0), ("stacked", 0), ("single", 100000)]
)
def test_a_resumed_run_logs_what_an_undisturbed_one_does(
    mode: str, checkpoint_seconds: int, tmp_path: Path
) -> None:
    """Stopped at step 15 of 20, then on from a checkpoint between two lines, or from the beginning:
    no step twice.
    """
    words = (
        "algorithm=irm",
        "trainer.steps=20",
        "trainer.eval_every=5",
        "trainer.log_every=4",
        FOLDS,
    )
    words = (*words, f"execution={mode}", f"trainer.checkpoint_seconds={checkpoint_seconds}")
    whole = small_study(tmp_path / "whole", *words)
    train_study(whole, logger=CsvLog())
    study = small_study(tmp_path / "cut", *words, source=whole.source)
    memory = LightningLog(Memory, "memory")
    with stopping_at(15):
        assert not any(train_study(study, logger=memory).values())
    assert 12 in read_metrics(study.runs[0].folder / "metrics.csv")
    assert all(
        train_study(
            small_study(tmp_path / "cut", *words, source=whole.source), logger=memory
        ).values()
    )
    for undisturbed, resumed in zip(whole.runs, study.runs, strict=True):
        expected = metrics(undisturbed)
        assert metrics(resumed) == expected
        with open(resumed.folder / "metrics.csv", newline="") as file:
            steps = [int(row["step"]) for row in csv.DictReader(file)]
        assert steps == sorted({*range(4, 21, 4), *range(5, 21, 5)})
        assert set(expected[10]) > {"error/held_out", "error/training_val"}
    shown = Counter((step, frozenset(values)) for step, values in Memory.lines)
    assert set(shown.values()) == {2}, "each line of both runs once"
    assert Memory.ended[-1] == "success"


def test_event_files_of_a_resumed_run_hold_every_step_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    words = (
        "trainer.steps=20",
        "trainer.eval_every=10",
        "trainer.log_every=3",
        "protocol.folds=[0]",
        DOUBLE,
    )
    words = (*words, "trainer.checkpoint_seconds=100000")
    with stopping_at(15):
        study = small_study(tmp_path, *words)
        train_study(study, logger=TensorBoardLog())
    assert list(events(study.runs[0].folder / "tensorboard")) == [3, 6, 9, 10]
    assert all(train_study(small_study(tmp_path, *words), logger=TensorBoardLog()).values())
    folder = study.runs[0].folder
    assert events(folder / "tensorboard") == approximately(
        read_metrics(folder / "metrics.csv"), 1e-6
    )
    assert TensorBoardLog().knows(folder)


def test_runs_that_trained_without_a_logger_are_logged_from_their_rows(tmp_path: Path) -> None:
    words = ("trainer.steps=8", "trainer.eval_every=4", FOLDS)
    study = small_study(tmp_path, *words)
    train_study(study)
    assert not list(tmp_path.rglob("metrics.csv"))
    train_study(study, logger=CsvLog())
    for run in study.runs:
        lines = metrics(run)
        assert list(lines) == [4, 8] and all("error/held_out" in own for own in lines.values())


@pytest.mark.parametrize("words", [("averaging=swad",), ("trainer.accumulate=2",)], ids=str)
def test_other_ways_to_train_log_as_well(words: tuple[str, ...], tmp_path: Path) -> None:
    """Averaged weights are scored once, after the last step; micro-batches log their mean."""
    study = small_study(
        tmp_path, "algorithm=vrex", "trainer.steps=12", "trainer.eval_every=4",
        "trainer.log_every=6", *words, "protocol.folds=[0]",
    )  # fmt: skip
    assert all(train_study(study, logger=CsvLog()).values())
    lines = metrics(study.runs[0])
    assert [step for step, own in lines.items() if "train/penalty" in own][-1] == max(lines)
    if words == ("averaging=swad",):
        assert [step for step, own in lines.items() if "error/held_out" in own] == [max(lines)]


# ---- never in the way


@pytest.mark.parametrize("fails", ["init", "log_hyperparams", "log_metrics", "finalize"])
def test_a_logger_that_raises_stops_no_training(
    fails: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Memory.fails = fails
    study = small_study(
        tmp_path, "trainer.steps=8", "trainer.eval_every=4", FOLDS, "execution=single"
    )
    with caplog.at_level(logging.WARNING):
        assert all(train_study(study, logger=LightningLog(Memory, "my.Memory")).values())
    (record,) = caplog.records
    one_line(record.getMessage(), f"^my.Memory is off .*: ConnectionError: {fails} failed$")
    assert all(len(read_metrics(run.folder / "metrics.csv")) == 2 for run in study.runs)


def test_a_file_that_cannot_be_written_stops_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = small_study(tmp_path, "trainer.steps=8", "trainer.eval_every=4", FOLDS)
    for run in study.runs:
        (run.folder / "metrics.csv").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        assert all(train_study(study, logger=CsvLog()).values())
    (record,) = caplog.records
    assert record.getMessage().startswith("metrics.csv is off")


def test_without_a_logger_nothing_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(module: RunModule, *_: object) -> None:
        assert not module.collects

    monkeypatch.setattr(RunModule, "_note_values", noted)
    for mode in ("single", "stacked"):
        study = small_study(
            tmp_path / mode, "trainer.steps=2", "algorithm=vrex", FOLDS, f"execution={mode}"
        )
        assert all(train_study(study).values())


def test_tensorboard_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"^logger=tensorboard needs TensorBoard; pip install 'dgbench\[tensorb"
    ):
        TensorBoardLog()


# ---- a logger of the user's own


def test_a_logger_is_named_by_its_class(tmp_path: Path) -> None:
    """It gets its arguments, a folder inside the run's, every line and the end; runs of a stack one
    after the other.
    """
    logger = build_logger(composed(f"logger._target_={__name__}.Memory", "+logger.label=mine"))
    assert isinstance(logger, LightningLog)
    study = small_study(
        tmp_path, "trainer.steps=8", "trainer.eval_every=4", FOLDS, "execution=stacked"
    )
    assert all(train_study(study, logger=logger).values())
    expected = [
        line for run in study.runs for line in read_metrics(run.folder / "metrics.csv").items()
    ]
    assert Memory.lines == expected
    assert Memory.ended == ["success", "success"]
    run = RunInfo(tmp_path, tmp_path, "abc", "n", "j", "g", {"trainer": {"steps": 1}})
    made = logger.make(**logger.place(run))
    assert isinstance(made, Memory)
    assert (made.folder, made.label) == (str(tmp_path / "logger"), "mine")


def test_which_logger_a_command_names() -> None:
    assert build_logger(composed("logger=none")) is None
    assert isinstance(build_logger(composed("logger=csv")), CsvLog)
    assert isinstance(build_logger(composed("logger=wandb")), WandbLog)
    for kind in (CsvLog(), WandbLog(), LightningLog(Memory, "m")):
        assert isinstance(kind, MetricsLogger)


def test_a_line_holds_all_of_one_step(tmp_path: Path) -> None:
    own = RunMetrics(
        RunInfo(tmp_path, tmp_path, "abc", "n", "j", "g", {}), None, Guard("metrics.csv")
    )
    own.begin(0)
    own.log(5, {"train/loss": 1.0})
    own.log(5, {"error/held_out": 0.5})
    own.save()
    own.log(6, {"train/loss": 2.0, "train/new": 3.0})
    own.finish()
    assert read_metrics(tmp_path / "metrics.csv") == {
        5: {"train/loss": 1.0, "error/held_out": 0.5},
        6: {"train/loss": 2.0, "train/new": 3.0},
    }


# ---- runs that train together


class Following(MetricsLogger):
    """Notes what happens to the logs of all runs, in order."""

    label = "Following"

    def __init__(self, most_live: int) -> None:
        self.most_live = most_live
        self.calls: list[tuple[str, str, int]] = []  # what, id, step
        self.values: dict[tuple[str, int], dict[str, float]] = {}
        self.finished: set[str] = set()

    def knows(self, folder: Path) -> bool:
        return folder.name.split("-")[-1] in self.finished

    def open(self, run: RunInfo, anew: bool = False) -> RunLog:
        self.calls.append(("open", run.id, 0))
        return Followed(self, run.id)


class Followed(RunLog):
    """A log of it."""

    def __init__(self, logger: Following, id: str) -> None:
        self.logger = logger
        self.id = id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.logger.calls.append(("log", self.id, step))
        self.logger.values[self.id, step] = dict(values)

    def finish(self, failed: bool = False) -> None:
        self.logger.calls.append(("finish", self.id, 0))
        self.logger.finished.add(self.id)


STACK = (
    "trainer.steps=8",
    "trainer.eval_every=4",
    "trainer.log_every=4",
    FOLDS,
    "execution=stacked",
)


def test_every_run_of_a_stack_is_logged_while_it_trains(tmp_path: Path) -> None:
    """Both have logged step 4 before either has logged step 8, and each line once."""
    logger = Following(most_live=2)
    study = small_study(tmp_path, *STACK)
    assert all(train_study(study, logger=logger).values())
    first, second = (run.hash for run in study.runs)
    logged = [(id, step) for what, id, step in logger.calls if what == "log"]
    assert logged == [(first, 4), (second, 4), (first, 8), (second, 8)]
    assert [what for what, _, _ in logger.calls].count("finish") == 2


def test_more_runs_than_are_followed_are_means_of_their_study_first(tmp_path: Path) -> None:
    """Then every run, when all are done; the means are those of the lines of the runs."""
    logger = Following(most_live=1)
    study = small_study(tmp_path, *STACK)
    runs = {run.hash: run.info for run in study.runs}
    shares = StudyMeans(logger, dict.fromkeys(runs, study.logged_as()), with_runs=False)
    one, two = (shares.open(info) for info in runs.values())
    one.log(4, {"train/loss": 1.0, "error/training_val": 0.5})
    one.round_ends()
    assert not logger.values, "the other has not logged yet"
    two.log(4, {"train/loss": 2.0, "error/training_val": 0.25})
    two.round_ends()
    assert logger.values == {
        (study.spec.digest, 4): {"train/loss": 1.5, "error/training_val": 0.375}
    }
    one.log(8, {"train/loss": 3.0})
    one.finish()
    two.finish()  # it diverged, and has no line any more
    assert logger.values[study.spec.digest, 8] == {"train/loss": 3.0}
    assert logger.calls[-1] == ("finish", study.spec.digest, 0)


def test_a_stack_above_the_limit_says_so_and_logs_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(StudyProgress, "note", lambda _, text: notes.append(text))
    logger = Following(most_live=2)
    study = small_study(tmp_path, *STACK[:3], "protocol.folds=[0,1,2]", STACK[-1])
    assert all(train_study(study, logger=logger).values())
    digest = study.spec.digest
    assert any("3 runs train together, 2 are shown live by Following" in note for note in notes)
    assert logger.calls[:3] == [("open", digest, 0), ("log", digest, 4), ("log", digest, 8)]
    for run in study.runs:
        assert {step for id, step in logger.values if id == run.hash} == {4, 8}
    for step in (4, 8):
        losses = [logger.values[run.hash, step]["train/loss"] for run in study.runs]
        assert logger.values[digest, step]["train/loss"] == pytest.approx(sum(losses) / 3)


@pytest.mark.thorough
def test_event_files_of_a_stack_are_open_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    open_files: list[int] = []
    at_evaluation = RunMetrics.rows

    def noted(metrics: RunMetrics, *arguments: Any) -> None:
        open_files.append(len(list(tmp_path.rglob("tensorboard/events*"))))
        at_evaluation(metrics, *arguments)

    monkeypatch.setattr(RunMetrics, "rows", noted)
    study = small_study(tmp_path, *STACK)
    assert all(train_study(study, logger=TensorBoardLog()).values())
    assert open_files[-1] == 2, "both before the end of either"
    for run in study.runs:
        assert events(run.folder / "tensorboard") == approximately(
            read_metrics(run.folder / "metrics.csv"), 1e-6
        )
