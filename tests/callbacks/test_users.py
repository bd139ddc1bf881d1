"""Lightning callbacks that a user names:
what they see, what they change, and that nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytorch_lightning as pl

from dgbench.callbacks.loggers import CsvLog
from dgbench.errors import ConfigError
from dgbench.records.metrics import METRICS_FILE, read_metrics
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.records.status import PROGRESS_FILE, is_done, lacking_rows, read_status
from dgbench.training.study import ReadyStudy
from tests.complaints import refused
from tests.studies import small_study, stopping_at, train_study

HERE = "tests.callbacks.test_users"
FOLDS = "protocol.folds=[0,1]"
MODES = ("single", "stacked")
STOPS = (
    f"+callbacks.stop._target_={HERE}.StopsAt",
    "trainer.steps=40",
    "trainer.eval_every=10",
    FOLDS,
)


class Watches(pl.Callback):
    """Notes what Lightning counts and what it was told, batch by batch and evaluation by
    evaluation.
    """

    seen: ClassVar[list[tuple[Any, ...]]] = []
    metrics: ClassVar[dict[str, float]] = {}

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.seen.append((trainer.global_step, trainer.current_epoch, len(batch)))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.metrics.update(
            {name: float(value) for name, value in trainer.callback_metrics.items()}
        )


class StopsAt(pl.Callback):
    """Ends training in its own evaluation:
    after ``evaluations`` of them, which its state counts.
    """

    def __init__(self, evaluations: int = 2, state: Any = None) -> None:
        self.evaluations, self.count, self.more = evaluations, 0, state

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.count += 1
        trainer.should_stop = trainer.should_stop or self.count >= self.evaluations

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, **({"more": Path()} if self.more else {})}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]


class StopsInBetween(pl.Callback):
    """Ends training between two evaluations."""

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        trainer.should_stop = trainer.global_step >= 13


def rows_of(study: ReadyStudy) -> list[bytes]:
    return [(run.folder / ROW_FILE).read_bytes() for run in study.runs]


def steps_of(study: ReadyStudy) -> list[int]:
    return sorted({row["step"] for row in read_rows(study.runs[0].folder / ROW_FILE)[0]})


@pytest.fixture(autouse=True)
def _forget() -> None:
    Watches.seen.clear()
    Watches.metrics.clear()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ["vrex", "dann", "sag_net"])
def test_a_watching_callback_counts_steps_and_changes_no_row(
    algorithm: str, mode: str, tmp_path: Path
) -> None:
    """DANN and SagNet have several optimizers; 45 steps are several chunks, evaluations after 20,
    40 and 45.
    """
    words = (
        f"algorithm={algorithm}",
        f"execution={mode}",
        "trainer.steps=45",
        "trainer.eval_every=20",
        FOLDS,
    )
    plain = small_study(tmp_path / "plain", *words)
    train_study(plain)
    watched = small_study(
        tmp_path / "watched", *words, f"+callbacks.mine._target_={HERE}.Watches",
        "+callbacks.mine.passive=true", "callbacks=learning_rate_monitor",
    )  # fmt: skip
    train_study(watched, logger=CsvLog())
    assert [run.hash for run in watched.runs] == [run.hash for run in plain.runs]
    assert rows_of(watched) == rows_of(plain)
    fits = len(watched.runs) if mode == "single" else len(Watches.seen) // 45
    assert Watches.seen == [(step + 1, step // 20, 1) for step in range(45)] * fits
    lines = read_metrics(watched.runs[-1].folder / METRICS_FILE)
    assert any(name.startswith("lr-Adam") for values in lines.values() for name in values)
    last = {
        k: v
        for k, v in lines[45].items()
        if k.startswith(("error/", "train/", "lr/")) and mode == "single"
    }
    assert {"train/loss", "error/training_val"} <= Watches.metrics.keys()
    assert last.keys() <= Watches.metrics.keys()
    assert all(
        Watches.metrics[k] == pytest.approx(v) for k, v in last.items() if k.startswith("error/")
    )


def test_early_stopping_follows_a_value_by_the_name_that_loggers_use(tmp_path: Path) -> None:
    """A learning rate of 0 never improves: it stops after the first evaluation and the patience of
    2 more.
    """
    words = ("callbacks=early_stopping", "callbacks.early_stopping.patience=2", "hparams.lr=1e-30",
             "trainer.steps=100", "trainer.eval_every=10", FOLDS)  # fmt: skip
    study = small_study(tmp_path, *words)
    assert all(train_study(study).values())
    assert {read_status(run.folder).word for run in study.runs} == {"DONE"}
    assert steps_of(study) == [10, 20, 30]
    killed = small_study(
        tmp_path / "killed", *words, "trainer.checkpoint_seconds=0", source=study.source
    )
    with stopping_at(25):
        train_study(killed)
    assert all(train_study(killed).values())
    assert rows_of(killed) == rows_of(study)  # checkpoints hold what it thinks of their evaluation
    first = study.runs[0].folder
    row = read_rows(first / ROW_FILE)[0][0]
    assert (
        row["hparams"]["callbacks.early_stopping.monitor"] == "error/training_val"
        and row["together"] == 1
    )
    others = [
        small_study(tmp_path, *words[2:]),
        small_study(tmp_path, *words, "callbacks.early_stopping.patience=3"),
    ]
    assert len({study.folder, *(other.folder for other in others)}) == 3
    lines = (first / ROW_FILE).read_bytes().splitlines(keepends=True)
    (first / ROW_FILE).write_bytes(
        b"".join(line for line in lines if json.loads(line)["step"] < 30)
    )
    (
        first / PROGRESS_FILE
    ).unlink()  # with the last rows; that it came to step 30 is where it says that it is done
    assert "step 20 of 30" in lacking_rows(first) and not is_done(first)


@pytest.mark.thorough
@pytest.mark.parametrize("at", [5, 15, "stopped"])
@pytest.mark.parametrize(
    "more",
    [(), ("trainer.eval_test=best", "trainer.predictions=last")],
    ids=["", "test at the end"],
)
def test_a_run_that_was_killed_stops_where_an_undisturbed_one_does(
    at: int | str, more: tuple[str, ...], tmp_path: Path
) -> None:
    """The count of evaluations is in the checkpoint, and so is that training was ended."""
    words = (*STOPS, "trainer.checkpoint_seconds=0", *more)
    undisturbed = small_study(tmp_path / "undisturbed", *words)
    assert all(train_study(undisturbed).values())
    killed = small_study(tmp_path / "killed", *words, source=undisturbed.source)
    with pytest.MonkeyPatch.context() as patch:
        if at == "stopped":  # after its last checkpoint

            def fails(*_: Any) -> None:
                raise RuntimeError("stopped")

            patch.setattr("dgbench.training.train_runs.finish", fails)
            train_study(killed)
        else:
            with stopping_at(int(at)):
                train_study(killed)
    assert all(train_study(killed).values())
    assert steps_of(killed) == steps_of(undisturbed) == [10, 20]
    assert rows_of(killed) == rows_of(undisturbed)
    subsets = [
        row["subset"] for row in read_rows(killed.runs[0].folder / ROW_FILE)[0] if row["step"] == 20
    ]
    assert "test" in subsets
    assert (killed.runs[0].folder / "predictions.parquet").exists() == bool(more)


def test_training_may_end_between_two_evaluations(tmp_path: Path) -> None:
    """It is evaluated where it ends."""
    study = small_study(tmp_path, f"+callbacks.stop._target_={HERE}.StopsInBetween", *STOPS[1:])
    assert all(train_study(study).values())
    assert steps_of(study) == [10, 13]


def test_a_stack_has_no_callback_that_may_change_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"callbacks\.stop .*execution=single"):
        train_study(small_study(tmp_path, *STOPS, "execution=stacked"))


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("+callbacks.mine._target_=no.Such",), r"callbacks\.mine\._target_=no\.Such"),
        ((f"+callbacks.mine._target_={HERE}.rows_of",), r"callbacks\.mine\._target_="),
        (("+callbacks.mine._target_=pathlib.Path",), r"callbacks\.mine\._target_=pathlib\.Path"),
        (
            (f"+callbacks.mine._target_={HERE}.StopsAt", "+callbacks.mine.evaluation=1"),
            "evaluation",
        ),
        (("+callbacks.mine.patience=1",), r"callbacks\.mine\._target_="),
        (("+callbacks.mine=3",), r"callbacks\.mine\._target_="),
    ],
    ids=str,
)
def test_what_is_no_callback_is_refused_in_one_line(
    words: tuple[str, ...], key: str, tmp_path: Path
) -> None:
    with refused(key):
        small_study(tmp_path, *words)
    assert not list(tmp_path.iterdir())


def test_a_state_that_no_checkpoint_holds_is_refused(tmp_path: Path) -> None:
    study = small_study(tmp_path, *STOPS, "+callbacks.stop.state=1")
    with pytest.raises(ConfigError, match=r"callbacks\.stop: .*state_dict"):
        train_study(study)


def test_one_of_a_file_of_ones_own(train: Callable[..., Any], tmp_path: Path) -> None:
    """Named in a YAML file of one's own, from a folder on PYTHONPATH."""
    (tmp_path / "conf" / "callbacks").mkdir(parents=True)
    (tmp_path / "my_callbacks.py").write_text(
        "import json, pathlib\nimport pytorch_lightning as pl\n\n\nclass "
        "Counts(pl.Callback):\n    def __init__(self, file):\n        self.file = "
        "pathlib.Path(file)\n\n    def on_train_end(self, trainer, module):\n        "
        "self.file.write_text(json.dumps([trainer.global_step, "
        "sorted(trainer.callback_metrics)]))\n"
    )
    (tmp_path / "conf" / "callbacks" / "counts.yaml").write_text(
        f"counts:\n  _target_: my_callbacks.Counts\n  file: {tmp_path / 'said.json'}\n  passive: "
        "true\n"
    )
    done = train(
        "callbacks=[counts,learning_rate_monitor]", "trainer.steps=6", FOLDS, "--config-dir",
        str(tmp_path / "conf"), cwd=tmp_path,
        before=f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
    )  # fmt: skip
    assert done.code == 0, done.err
    steps, names = json.loads((tmp_path / "said.json").read_text())
    assert steps == 6 and {"train/loss", "error/training_val"} <= set(names)


class StopsAtOnce(pl.Callback):
    """Ends training after its first steps, long before the first evaluation."""

    def __init__(self, steps: int = 3) -> None:
        self.steps = steps

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        trainer.should_stop = trainer.global_step >= self.steps


class Exits(pl.Callback):
    """Ends the process from within a training."""

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        raise SystemExit(3)


def test_training_that_stops_before_its_first_evaluation_is_scored_there(tmp_path: Path) -> None:
    words = (f"+callbacks.stop._target_={HERE}.StopsAtOnce", *STOPS[1:])
    study = small_study(tmp_path, *words)
    train_study(study)
    assert steps_of(study) == [3]
    assert all(is_done(run.folder, run.evaluations) for run in study.runs)
    before = rows_of(study)
    train_study(small_study(tmp_path, *words))
    assert rows_of(study) == before


def test_an_exit_of_a_callback_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    study = small_study(tmp_path, f"+callbacks.stop._target_={HERE}.Exits", *STOPS[1:])
    train_study(study)
    status = read_status(study.runs[0].folder)
    assert status.word == "FAILED"
    assert "SystemExit(3)" in status.reason and "test_users.py, line" in status.reason
