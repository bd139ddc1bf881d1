"""Rows from scoring passes, worked by hand: two environments, three images."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.trainer.states import TrainerFn

from dgbench.callbacks.environment_errors import EnvironmentErrors, training_validation_error
from dgbench.errors import DivergedError
from dgbench.records import Row, RunIdentity, append_rows, read_rows
from dgbench.types import Score

WHO = RunIdentity(
    run="abc", dataset="toy", variant={}, base="none", evaluation="exact", data_seed=0, split_seed=0, given=["a", "b"],
    algorithm="erm", hparams={}, backbone="mlp", protocol="loo", fold="1", held_out=["b"], seed=0, code="0",
)  # fmt: skip
SCORES = [
    Score("a", "val", {"val/a": 1.0}),
    Score("a", "test", {"same": 0.75, "other": 0.25}),
    Score("b", "test", {"same": 0.5, "other": 0.5}),
    Score("c", "test", {"same": 0.0, "other": 1.0}),
]
Counts = tuple[float, float, float]  # seen, wrong, summed loss


class Module:
    """What the callback asks of a LightningModule."""

    def __init__(self, steps_done: int) -> None:
        self.steps_done = torch.tensor(steps_done)
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: float) -> None:
        self.logged[name] = value


def evaluate(callback: EnvironmentErrors, module: Module, passes: Mapping[str, Sequence[Counts]]) -> None:
    """One evaluation as Lightning runs it: the batches of one pass after those of the other."""
    told: Any = SimpleNamespace(sanity_checking=False, world_size=1, is_global_zero=True)
    any_module: Any = module
    callback.on_validation_epoch_start(told, any_module)
    for name, batches in passes.items():
        for number, (seen, wrong, loss) in enumerate(batches):
            counts = {"seen": torch.tensor(seen), "wrong": torch.tensor(wrong), "loss": torch.tensor(loss)}
            callback.on_validation_batch_end(told, any_module, counts, SimpleNamespace(name=name), number)
    callback.on_validation_epoch_end(told, any_module)


# three images in batches of two and one: with the color of the label 1 of 3 wrong, with the other color all 3
PASSES: dict[str, list[Counts]] = {
    "val/a": [(4, 1, 2.0)],
    "same": [(2, 0, 0.25), (1, 1, 0.5)],
    "other": [(2, 2, 2.0), (1, 1, 1.0)],
}


@pytest.fixture
def heard() -> list[tuple[int, list[Row]]]:
    return []


@pytest.fixture
def callback(tmp_path: Path, heard: list[Any]) -> EnvironmentErrors:
    return EnvironmentErrors(tmp_path / "errors.jsonl", WHO, SCORES, [lambda *told: heard.append(told)])


def test_errors_by_hand(callback: EnvironmentErrors, heard: list[tuple[int, list[Row]]]) -> None:
    """Same color: 1 wrong, loss 0.25 + 0.5 = 0.75. Other color: 3 wrong, loss 3.

    a, e = 0.25: wrong 0.75 * 1 + 0.25 * 3 = 1.5, error 1/2, loss (0.75 * 0.75 + 0.25 * 3) / 3 = 1.3125 / 3 = 0.4375.
    b, e = 0.5: wrong 0.5 + 1.5 = 2, error 2/3, loss (0.375 + 1.5) / 3 = 0.625. c, e = 1: wrong 3, error 1, loss 1.
    val of a: 1 of 4, error 1/4, loss 0.5. b is held out; c is not given, so nobody trained on it."""
    module = Module(40)
    evaluate(callback, module, PASSES)
    ((step, rows),) = heard
    assert step == 40
    assert [(r.env, r.subset, r.seen, r.wrong, r.loss, r.held_out) for r in rows] == [
        ("a", "val", 4, 1.0, 0.5, False),
        ("a", "test", 3, 1.5, 0.4375, False),
        ("b", "test", 3, 2.0, 0.625, True),
        ("c", "test", 3, 3.0, 1.0, True),
    ]
    assert [r.error for r in rows] == [0.25, 0.5, pytest.approx(2 / 3), 1.0]
    on_disk, problems = read_rows(callback.file)
    assert not problems
    assert [(r["step"], r["env"], r["wrong"], r["run"]) for r in on_disk] == [
        (40, "a", 1.0, "abc"), (40, "a", 1.5, "abc"), (40, "b", 2.0, "abc"), (40, "c", 3.0, "abc"),
    ]  # fmt: skip
    assert module.logged["val/error"] == 0.25


def test_an_evaluation_forgets_the_one_before(callback: EnvironmentErrors, heard: list[tuple[int, list[Row]]]) -> None:
    evaluate(callback, Module(40), PASSES)
    evaluate(callback, Module(80), PASSES)
    assert [(r.seen, r.wrong) for r in heard[0][1]] == [(r.seen, r.wrong) for r in heard[1][1]]
    assert [r["step"] for r in read_rows(callback.file)[0]] == [40] * 4 + [80] * 4


@pytest.mark.parametrize(("step", "wrong", "tests"), [(80, 1, True), (80, 2, False), (80, 0, True), (120, 2, True)])
def test_best_scores_test_at_the_best_validation_error_and_at_the_end(
    callback: EnvironmentErrors, step: int, wrong: int, tests: bool
) -> None:
    """Before the run was resumed, 1 of 4 was wrong at step 40; 120 is the last step."""
    evaluate(callback, Module(40), PASSES)
    resumed = EnvironmentErrors(callback.file, WHO, SCORES, eval_test="best")
    data = SimpleNamespace(steps=120, wanted=None)
    trainer: Any = SimpleNamespace(
        datamodule=data, is_global_zero=True, sanity_checking=False, world_size=1,
        state=SimpleNamespace(fn=TrainerFn.FITTING),
    )  # fmt: skip
    module: Any = Module(40)
    resumed.on_fit_start(trainer, module)
    module.steps_done = torch.tensor(step)
    resumed.on_validation_epoch_start(trainer, module)
    assert data.wanted("val/a")
    counts = {"seen": torch.tensor(4), "wrong": torch.tensor(wrong), "loss": torch.tensor(1.0)}
    resumed.on_validation_batch_end(trainer, module, counts, SimpleNamespace(name="val/a"), 0)
    assert data.wanted("same") == data.wanted("other") == tests
    if not tests:
        resumed.on_validation_epoch_end(trainer, module)
        assert [(r["step"], r["subset"]) for r in read_rows(callback.file)[0]][4:] == [(step, "val")]


def test_listeners_hear_rows_that_are_on_disk(tmp_path: Path) -> None:
    file, lines = tmp_path / "errors.jsonl", []
    callback = EnvironmentErrors(file, WHO, SCORES, [lambda step, rows: lines.append(file.read_text().count("\n"))])
    evaluate(callback, Module(1), PASSES)
    assert lines == [4]


def test_passes_over_different_images_cannot_be_mixed(callback: EnvironmentErrors) -> None:
    with pytest.raises(ValueError, match="different numbers of images"):
        evaluate(callback, Module(1), {**PASSES, "other": [(2, 2, 2.0)]})


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_fails_the_member_before_a_row_is_written(
    callback: EnvironmentErrors, loss: float
) -> None:
    with pytest.raises(DivergedError, match="at step 40") as caught:
        evaluate(callback, Module(40), {**PASSES, "same": [(3, 3, loss)]})
    assert caught.value.step == 40
    assert not callback.file.exists()


def test_rounding_never_makes_an_error_above_one(tmp_path: Path) -> None:
    """0.9 * 104 + 0.1 * 104 is 104.00000000000001 in floating point."""
    assert 0.9 * 104 + 0.1 * 104 > 104
    rows: list[Row] = []
    score = Score("a", "test", {"same": 0.9, "other": 0.1})
    callback = EnvironmentErrors(tmp_path / "rows", WHO, [score], [lambda step, new: rows.extend(new)])
    evaluate(callback, Module(1), {"same": [(104, 104, 1.0)], "other": [(104, 104, 1.0)]})
    assert rows[0].error == 1.0


def test_validation_error_is_the_unweighted_mean_over_training_environments() -> None:
    """1 of 4 and 3 of 6: (0.25 + 0.5) / 2 = 0.375, not 4 of 10. Held-out and test rows do not count."""

    def row(env: str, subset: str, held_out: bool, seen: int, wrong: float) -> Row:
        return Row(identity=WHO, step=1, env=env, subset=subset, held_out=held_out, seen=seen, wrong=wrong, loss=0.0)

    rows = [
        row("a", "val", False, 4, 1), row("d", "val", False, 6, 3), row("b", "val", True, 4, 4),
        row("a", "test", False, 4, 4), row("a", "train", False, 4, 0),
    ]  # fmt: skip
    assert training_validation_error(rows) == 0.375


@pytest.mark.parametrize(("reached", "kept"), [(0, []), (40, [40]), (60, [40]), (80, [40, 80])])
def test_a_resumed_member_drops_what_it_will_write_again(
    callback: EnvironmentErrors, reached: int, kept: list[int]
) -> None:
    append_rows(
        callback.file,
        [Row(identity=WHO, step=s, env="a", subset="val", held_out=False, seen=4, wrong=1, loss=0.5) for s in (40, 80)],
    )
    module: Any = Module(reached)
    callback.on_fit_start(SimpleNamespace(is_global_zero=True), module)  # type: ignore[arg-type]
    assert [r["step"] for r in read_rows(callback.file)[0]] == kept


def test_a_torn_row_is_named_on_resume(callback: EnvironmentErrors, caplog: pytest.LogCaptureFixture) -> None:
    evaluate(callback, Module(40), PASSES)
    callback.file.write_bytes(callback.file.read_bytes()[:-9])
    module: Any = Module(40)
    with caplog.at_level(logging.WARNING):
        callback.on_fit_start(SimpleNamespace(is_global_zero=True), module)  # type: ignore[arg-type]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{callback.file} line 4 dropped: not a whole JSON object")
    assert len(read_rows(callback.file)[0]) == 3
