"""Rows from eval sets, worked by hand: two environments, three images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.trainer.states import TrainerFn

from dgbench.batches import ErrorRecipe
from dgbench.callbacks.recorder import Recorder, RunRecord, training_validation_error
from dgbench.errors import DivergedError
from dgbench.records.files import Checksum
from dgbench.records.rows import Row, append_rows, read_rows
from dgbench.records.run_identity import RunIdentity

WHO = RunIdentity(
    run="abc", dataset="toy", variant={}, base="none", evaluation="exact", data_seed=0,
    split_seed=0, given=["a", "b"], algorithm="erm", hparams={}, backbone="mlp", protocol="loo",
    fold="1", held_out=["b"], seed=0, code="0",
)  # fmt: skip
RECIPES = [
    ErrorRecipe("a", "val", {"val/a": 1.0}),
    ErrorRecipe("a", "test", {"same": 0.75, "other": 0.25}),
    ErrorRecipe("b", "test", {"same": 0.5, "other": 0.5}),
    ErrorRecipe("c", "test", {"same": 0.0, "other": 1.0}),
]
Counts = tuple[float, float, float]  # seen, wrong, summed loss


class Module:
    """What the callback asks of a LightningModule."""

    def __init__(self, steps_done: int) -> None:
        self.steps_done = steps_done
        self.diverged: dict[int, tuple[int, float]] = {}
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: float, logger: bool = True) -> None:
        self.logged[name] = value

    def log_dict(self, values: Mapping[str, float], logger: bool = True) -> None:
        self.logged |= values


def evaluate(
    callback: Recorder, module: Module, eval_sets: Mapping[str, Sequence[Any]], trainer: Any = None
) -> None:
    """One evaluation as Lightning runs it: the batches of one eval set after those of the other."""
    told: Any = trainer or SimpleNamespace(
        sanity_checking=False,
        world_size=1,
        is_global_zero=True,
        state=SimpleNamespace(fn=TrainerFn.FITTING),
    )
    any_module: Any = module
    callback.on_validation_epoch_start(told, any_module)
    for name, batches in eval_sets.items():
        for number, (seen, wrong, loss) in enumerate(batches):
            counts = {
                "seen": torch.tensor(seen),
                "wrong": torch.tensor(wrong),
                "loss": torch.tensor(loss),
            }
            callback.on_validation_batch_end(
                told, any_module, counts, SimpleNamespace(name=name), number
            )
    callback.on_validation_epoch_end(told, any_module)


# three images in batches of two and one: with the color of the label 1 of 3 wrong, with the other
# color all 3
EVAL_SETS: dict[str, list[Counts]] = {
    "val/a": [(4, 1, 2.0)],
    "same": [(2, 0, 0.25), (1, 1, 0.5)],
    "other": [(2, 2, 2.0), (1, 1, 1.0)],
}


@pytest.fixture
def heard() -> list[tuple[int, list[Row]]]:
    return []


@pytest.fixture
def callback(tmp_path: Path, heard: list[Any]) -> Recorder:
    return Recorder(
        [RunRecord(tmp_path / "errors.jsonl", WHO, RECIPES, [lambda *told: heard.append(told)])]
    )


def file_of(callback: Recorder, i: int = 0) -> Path:
    file = callback.runs[i].file
    assert file is not None
    return file


def test_errors_by_hand(callback: Recorder, heard: list[tuple[int, list[Row]]]) -> None:
    """Same color: 1 wrong, loss 0.25 + 0.5 = 0.75. Other color: 3 wrong, loss 3.

    a, e = 0.25: wrong 0.75 * 1 + 0.25 * 3 = 1.5, error 1/2, loss (0.75 * 0.75 + 0.25 * 3) / 3 =
    1.3125 / 3 = 0.4375. b, e = 0.5: wrong 0.5 + 1.5 = 2, error 2/3, loss (0.375 + 1.5) / 3 = 0.625.
    c, e = 1: wrong 3, error 1, loss 1. val of a: 1 of 4, error 1/4, loss 0.5. b is held out; c is
    not given, so no run trained on it.
    """
    module = Module(40)
    evaluate(callback, module, EVAL_SETS)
    ((step, rows),) = heard
    assert step == 40
    assert [(r.env, r.subset, r.seen, r.wrong, r.loss, r.held_out) for r in rows] == [
        ("a", "val", 4, 1.0, 0.5, False),
        ("a", "test", 3, 1.5, 0.4375, False),
        ("b", "test", 3, 2.0, 0.625, True),
        ("c", "test", 3, 3.0, 1.0, True),
    ]
    assert [r.error for r in rows] == [0.25, 0.5, pytest.approx(2 / 3), 1.0]
    on_disk, problems = read_rows(file_of(callback))
    assert not problems
    assert [(r["step"], r["env"], r["wrong"], r["run"]) for r in on_disk] == [
        (40, "a", 1.0, "abc"), (40, "a", 1.5, "abc"), (40, "b", 2.0, "abc"), (40, "c", 3.0, "abc"),
    ]  # fmt: skip
    assert callback.improved == [0], "an error of 0.25 on val is the lowest so far"
    assert module.logged["val/loss"] == 0.5
    assert module.logged["error/test/b"] == pytest.approx(2 / 3), (
        "under the names of the loggers, for callbacks"
    )


def test_an_evaluation_forgets_the_one_before(
    callback: Recorder, heard: list[tuple[int, list[Row]]]
) -> None:
    evaluate(callback, Module(40), EVAL_SETS)
    evaluate(callback, Module(80), EVAL_SETS)
    assert [(r.seen, r.wrong) for r in heard[0][1]] == [(r.seen, r.wrong) for r in heard[1][1]]
    assert [r["step"] for r in read_rows(file_of(callback))[0]] == [40] * 4 + [80] * 4


@pytest.mark.parametrize(
    ("step", "wrong", "tests"), [(80, 1, True), (80, 2, False), (80, 0, True), (120, 2, True)]
)
def test_best_scores_test_at_the_best_validation_error_and_at_the_end(
    callback: Recorder, step: int, wrong: int, tests: bool
) -> None:
    """Before the run was resumed, 1 of 4 was wrong at step 40; 120 is the last step."""
    evaluate(callback, Module(40), EVAL_SETS)
    resumed = Recorder([RunRecord(callback.runs[0].file, WHO, RECIPES)], eval_test="best")
    resumed.written = callback.written
    data = SimpleNamespace(steps=120, wanted=None)
    trainer: Any = SimpleNamespace(
        datamodule=data, is_global_zero=True, sanity_checking=False, world_size=1,
        state=SimpleNamespace(fn=TrainerFn.FITTING),
    )  # fmt: skip
    module: Any = Module(40)
    resumed.on_fit_start(trainer, module)
    module.steps_done = step
    resumed.on_validation_epoch_start(trainer, module)
    assert data.wanted("val/a")
    counts = {"seen": torch.tensor(4), "wrong": torch.tensor(wrong), "loss": torch.tensor(1.0)}
    resumed.on_validation_batch_end(trainer, module, counts, SimpleNamespace(name="val/a"), 0)
    assert data.wanted("same") == data.wanted("other") == tests
    if not tests:
        resumed.on_validation_epoch_end(trainer, module)
        assert [(r["step"], r["subset"]) for r in read_rows(file_of(callback))[0]][4:] == [
            (step, "val")
        ]


def test_listeners_hear_rows_that_are_on_disk(tmp_path: Path) -> None:
    file, lines = tmp_path / "errors.jsonl", []
    record = RunRecord(
        file, WHO, RECIPES, [lambda step, rows: lines.append(file.read_text().count("\n"))]
    )
    evaluate(Recorder([record]), Module(1), EVAL_SETS)
    assert lines == [4]


def test_eval_sets_of_different_images_cannot_be_mixed(callback: Recorder) -> None:
    with pytest.raises(ValueError, match=r"different numbers.*images"):
        evaluate(callback, Module(1), {**EVAL_SETS, "other": [(2, 2, 2.0)]})


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_fails_the_run_before_a_row_is_written(
    callback: Recorder, loss: float
) -> None:
    with pytest.raises(DivergedError, match="at step 40") as caught:
        evaluate(callback, Module(40), {**EVAL_SETS, "same": [(3, 3, loss)]})
    assert caught.value.step == 40
    assert not file_of(callback).exists()


def test_rounding_never_makes_an_error_above_one(tmp_path: Path) -> None:
    """0.9 * 104 + 0.1 * 104 is 104.00000000000001 in floating point."""
    assert 0.9 * 104 + 0.1 * 104 > 104
    rows: list[Row] = []
    recipe = ErrorRecipe("a", "test", {"same": 0.9, "other": 0.1})
    record = RunRecord(tmp_path / "rows", WHO, [recipe], [lambda step, new: rows.extend(new)])
    evaluate(Recorder([record]), Module(1), {"same": [(104, 104, 1.0)], "other": [(104, 104, 1.0)]})
    assert rows[0].error == 1.0


def test_validation_error_is_the_unweighted_mean_over_training_environments() -> None:
    """1 of 4 and 3 of 6: (0.25 + 0.5) / 2 = 0.375, not 4 of 10.

    Held-out and test rows do not count.
    """

    def row(env: str, subset: str, held_out: bool, seen: int, wrong: float) -> Row:
        return Row(
            identity=WHO,
            step=1,
            env=env,
            subset=subset,
            held_out=held_out,
            seen=seen,
            wrong=wrong,
            loss=0.0,
        )

    rows = [
        row("a", "val", False, 4, 1), row("d", "val", False, 6, 3), row("b", "val", True, 4, 4),
        row("a", "test", False, 4, 4), row("a", "train", False, 4, 0),
    ]  # fmt: skip
    assert training_validation_error(rows) == 0.375


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_resumed_run_drops_what_it_will_write_again(callback: Recorder, kept: int) -> None:
    """Whatever stands after the rows that its checkpoint counts, torn lines too."""
    rows = [
        Row(identity=WHO, step=s, env="a", subset="val", held_out=False, seen=4, wrong=1, loss=0.5)
        for s in (4, 8)
    ]
    callback.written = [Checksum() + append_rows(None, rows[:kept])]
    append_rows(file_of(callback), rows)
    file_of(callback).write_bytes(file_of(callback).read_bytes() + b'{"torn')
    callback.on_fit_start(SimpleNamespace(is_global_zero=True), SimpleNamespace())  # type: ignore[arg-type]
    assert file_of(callback).exists() == bool(kept)
    assert not kept or file_of(callback).read_bytes() == append_rows(None, rows[:kept])


def test_what_was_written_is_what_the_file_holds(callback: Recorder) -> None:
    """Over evaluations, and where one after training takes the place of the last before it."""
    evaluate(callback, Module(40), EVAL_SETS)
    evaluate(callback, Module(80), EVAL_SETS)
    assert callback.written == [Checksum() + file_of(callback).read_bytes()]
    whole = file_of(callback).read_bytes()
    after_training: Any = SimpleNamespace(
        sanity_checking=False,
        world_size=1,
        is_global_zero=True,
        state=SimpleNamespace(fn=TrainerFn.VALIDATING),
    )
    evaluate(callback, Module(80), EVAL_SETS, after_training)
    assert file_of(callback).read_bytes() == whole
    assert callback.written == [Checksum() + whole]


# ---- runs that train together

STACK: dict[str, list[Any]] = {"val/a": [(4, (1, 3), (2.0, 4.0))],
    "same": [(3, (1, 2), (0.75, 1.5))],
                               "other": [(3, (3, 0), (3.0, 0.3))]}  # fmt: skip


def two(tmp_path: Path, second: str | None = "b", **more: Any) -> Recorder:
    files = [tmp_path / "a", tmp_path / second if second else None]
    return Recorder(
        [RunRecord(file, replace(WHO, run=f"r{i}"), RECIPES) for i, file in enumerate(files)],
        **more,
    )


def test_runs_together_have_their_own_counts_and_rows(tmp_path: Path) -> None:
    """Counts are (2,), images are counted once. b, e = 0.5: (1 + 3) / 2 = 2 and (2 + 0) / 2 = 1 of
    3 are wrong.
    """
    callback, module = two(tmp_path), Module(40)
    evaluate(callback, module, STACK)
    rows = [read_rows(file_of(callback, i))[0] for i in range(2)]
    for i, wrong in enumerate(([1, 1.5, 2, 3], [3, 1.5, 1, 0])):
        assert [(r["env"], r["seen"], r["wrong"]) for r in rows[i]] == [
            ("a", 4, wrong[0]), ("a", 3, wrong[1]), ("b", 3, wrong[2]), ("c", 3, wrong[3])
        ]  # fmt: skip
        assert {(r["run"], r["together"]) for r in rows[i]} == {(f"r{i}", 2)}
    assert callback.improved == [0, 1]
    assert "val/loss" not in module.logged, "what averages weights follows one run"


def test_a_run_that_diverges_leaves_no_row_and_the_others_theirs(tmp_path: Path) -> None:
    callback, module = two(tmp_path), Module(40)
    broken = {**STACK, "same": [(3, (1, 2), (0.75, float("nan")))]}
    evaluate(callback, module, broken)
    assert list(module.diverged) == [1] and module.diverged[1][0] == 40
    assert len(read_rows(file_of(callback))[0]) == 4
    assert not (tmp_path / "b").exists()
    module.steps_done = 80
    evaluate(callback, module, STACK)
    assert not (tmp_path / "b").exists(), "once diverged, it writes nothing more"


def test_a_finished_run_is_counted_and_writes_nothing(tmp_path: Path) -> None:
    """It is computed once more beside others; its rows are complete."""
    callback = two(tmp_path, second=None)
    evaluate(callback, Module(40), STACK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    assert {row["together"] for row in read_rows(tmp_path / "a")[0]} == {2}


def test_best_leaves_test_out_of_the_rows_of_a_run_that_is_not_at_its_best(tmp_path: Path) -> None:
    """The first run improves from 1 to 0 wrong, so test is scored; the second worsens from 3 to 4:
    val alone.
    """
    callback, module = two(tmp_path, eval_test="best"), Module(40)
    trainer: Any = SimpleNamespace(
        datamodule=SimpleNamespace(steps=120, wanted=None), is_global_zero=True,
        sanity_checking=False, world_size=1, state=SimpleNamespace(fn=TrainerFn.FITTING),
    )  # fmt: skip
    for step, wrong in ((40, (1, 3)), (80, (0, 4))):
        module.steps_done = step
        evaluate(callback, module, {**STACK, "val/a": [(4, wrong, (2.0, 4.0))]}, trainer)
    kept = [
        [(r["step"], r["subset"]) for r in read_rows(file_of(callback, i))[0]] for i in range(2)
    ]
    assert kept[0] == [(40, "val"), *[(40, "test")] * 3, (80, "val"), *[(80, "test")] * 3]
    assert kept[1] == [(40, "val"), *[(40, "test")] * 3, (80, "val")]
    assert callback.improved == [0]
