"""``predictions.parquet`` holds what the rows count: one run, a stack, groups, averaged weights,
resumed runs.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dgbench.callbacks import predictions, recorder
from dgbench.callbacks.recorder import lowest_validation_error
from dgbench.errors import ConfigError
from dgbench.plan.settings import TrainerSettings
from dgbench.records.predictions import PREDICTION_FILE, about_predictions, read_predictions
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.training.study import ReadyRun, ReadyStudy
from tests.studies import make_study, small_study, stopping_at, train_study

STEPS = ("trainer.steps=8", "trainer.eval_every=4", "trainer.checkpoint_seconds=0")
ERRORS = Mapping[tuple[str, str], tuple[int, float]]  # environment, subset -> images, of them wrong


def counted_errors(run: ReadyRun, step: int) -> ERRORS:
    """What the rows of one step say."""
    rows, _ = read_rows(run.folder / ROW_FILE)
    return {
        (row["env"], row["subset"]): (row["seen"], row["wrong"])
        for row in rows
        if row["step"] == step
    }


def predicted_errors(file: Path) -> ERRORS:
    """The same from the predictions: eval sets mixed as the file says."""
    seen: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    lines = read_predictions(file).to_pylist()
    known = {tuple(line[key] for key in ("eval_set", "subset", "image")) for line in lines}
    assert len(known) == len(lines), "an image of an eval set stands there once"
    for line in lines:
        name = line["eval_set"] if line["subset"] is None else (line["env"], line["subset"])
        seen[name] += 1
        wrong[name] += line["label"] != line["predicted"]
    found = {}
    for recipe in about_predictions(file)["recipes"]:
        mixture, place = recipe["mixture"], (recipe["env"], recipe["subset"])
        parts = mixture if len(mixture) > 1 else {place: 1.0}
        (n,) = {seen[name] for name in parts}
        found[place] = (n, sum(weight * wrong[name] for name, weight in parts.items()))
    return found


def check(study: ReadyStudy, steps: int = 8) -> list[Path]:
    """Every run's file agrees with its rows of the last step; the files."""
    assert all(train_study(study).values())
    for run in study.runs:
        file = run.folder / PREDICTION_FILE
        assert about_predictions(file)["step"] == steps
        assert predicted_errors(file) == counted_errors(run, steps)
        assert not list(run.folder.glob("*.partial"))
    return [run.folder / PREDICTION_FILE for run in study.runs]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["single", "stacked"])
@pytest.mark.parametrize("algorithm", ["erm", "arm"])
def test_painted_digits(tmp_path: Path, mode: str, algorithm: str) -> None:
    """Exact errors mix passes that belong to no one environment; groups (ARM) are scored in an
    order of their own.
    """
    folds = "[0,full]" if algorithm == "erm" else "[0]"
    words = (
        f"execution={mode}",
        f"algorithm={algorithm}",
        "trainer.predictions=last",
        f"protocol.folds={folds}",
    )
    files = check(small_study(tmp_path, *STEPS, *words))
    table = read_predictions(files[0])
    passes = {line["eval_set"] for line in table.to_pylist() if line["env"] is None}
    assert passes == ({"test+0", "test+1"} if algorithm == "erm" else set())
    about = about_predictions(files[0])
    assert (about["held_out"], about["training"]) == (["0.80"], ["0.85", "0.90", "0.10"])
    assert (about["classes"], about["algorithm"], about["root"]) == (["0", "1"], algorithm, None)


def image_study(folder: Path, root: Path, *words: str) -> ReadyStudy:
    dataset = () if "dataset=manifest" in words else ("dataset=image_folder",)
    return make_study(
        folder, *dataset, f"dataset.root={root}", "dataset.image_size=16", "backbone=mnist_cnn",
        f"paths.cache_dir={folder / 'cache'}", "trainer.device=cpu", "hparams.batch_size=4",
        "trainer.predictions=last", *STEPS, *words,
    )  # fmt: skip


@pytest.fixture
def tree(image_tree: Callable[..., Path]) -> Path:
    """12 classes, more than the most probable ones that are kept; 3 images of each."""
    return image_tree(**{env: {f"class_{k:02}": 3 for k in range(12)} for env in "abc"})


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [("execution=single",), ("execution=stacked",), ("algorithm=arm",)], ids="-".join
)
def test_files_are_named_by_their_paths(tree: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Each fold lists its held-out environment's images under ``test``, as a tree names them."""
    study = image_study(tmp_path, tree, *words)
    for run, file in zip(study.runs, check(study), strict=True):
        (held_out,) = run.fold.held_out
        lines = read_predictions(file).to_pylist()
        assert {line["env"] for line in lines if line["subset"] == "test"} == {held_out}
        classes = about_predictions(file)["classes"]
        for line in lines:
            env, label, _ = line["image"].split("/")
            assert (tree / line["image"]).is_file()
            assert (env, label) == (line["env"], classes[line["label"]])
            assert len(set(line["top"])) == len(line["top"]) == len(line["probability"]) == 10
            assert line["top"][0] == line["predicted"]
            assert line["probability"] == sorted(line["probability"], reverse=True)
            assert 0 < sum(line["probability"]) < 1, "two classes of twelve are left out"
        assert Path(about_predictions(file)["root"]) == tree


@pytest.mark.parametrize(
    "words",
    [
        (
            "corruptions=hendrycks",
            "dataset.corruptions=[fog]",
            "dataset.given=1-1-0",
            "dataset.image_size=32",
        ),
        ("protocol=flexible", "protocol.dominant=1", "protocol.minor=1", "protocol.test=1"),
        ("tuning=lp", "tuning.cache_features=true", "dataset.augment=none"),
    ],
    ids=lambda words: words[0],
)
def test_views_of_a_dataset_name_its_images(
    tree: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Corrupted copies, some classes of each environment, cached features: the names are those of
    the files.
    """
    for file in check(image_study(tmp_path, tree, *words, "protocol.folds=[0]")):
        for line in read_predictions(file).to_pylist():
            env, label, _ = line["image"].split("/")
            assert (env, about_predictions(file)["classes"][line["label"]]) == (
                line["env"].partition("+")[0],
                label,
            )


def test_a_list_of_images_names_attributes(tree: Path, tmp_path: Path) -> None:
    """Every image of the file has the value that the list gives it."""
    paths = sorted(str(path.relative_to(tree)) for path in tree.rglob("*.png"))
    rows = [
        f"{path},{path.split('/')[0]},{path.split('/')[1]},light {i % 2}"
        for i, path in enumerate(paths)
    ]
    (tmp_path / "list.csv").write_text("\n".join(["path,environment,class,light", *rows]))
    study = image_study(
        tmp_path, tree, "dataset=manifest", f"dataset.manifest={tmp_path / 'list.csv'}"
    )
    lines = read_predictions(check(study)[0]).to_pylist()
    assert {line["image"]: line["attribute.light"] for line in lines}.items() <= {
        path: f"light {i % 2}" for i, path in enumerate(paths)
    }.items()


def test_an_eval_set_that_is_two_subsets_stands_there_twice(tree: Path, tmp_path: Path) -> None:
    """A target oracle is tested on the val images of the environment that it trained on."""
    files = check(
        image_study(tmp_path, tree, "protocol=target_oracle", "protocol.k=1", "protocol.folds=[0]")
    )
    lines = [line for line in read_predictions(files[0]).to_pylist() if line["eval_set"] == "val/a"]
    assert Counter(line["subset"] for line in lines) == {"val": 7, "test": 7}


def test_averaged_weights_are_evaluated_after_training(tmp_path: Path) -> None:
    swad = ("averaging=swad", "averaging.rule.n_converge=2")
    check(small_study(tmp_path, *STEPS, *swad, "trainer.predictions=last", "protocol.folds=[0]"))
    study = small_study(tmp_path, *STEPS, *swad, "trainer.predictions=best", "protocol.folds=[1]")
    assert about_predictions(check(study)[0])["evaluation"] == "best"


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_the_best_evaluation_is_that_of_the_lowest_validation_error(
    tmp_path: Path, mode: str
) -> None:
    """The first of the lowest, and every run of a stack has its own; test is scored there, whatever
    eval_test says.
    """
    steps = (
        "trainer.steps=30",
        "trainer.eval_every=3",
        "hparams.lr=0.03",
        "trainer.eval_test=best",
    )
    study = small_study(
        tmp_path,
        *steps,
        f"execution={mode}",
        "trainer.predictions=best",
        "protocol.folds=[0,1,2,3]",
    )
    assert all(train_study(study).values())
    chosen = set()
    for run in study.runs:
        file = run.folder / PREDICTION_FILE
        rows, _ = read_rows(run.folder / ROW_FILE)
        errors: dict[int, list[float]] = {}
        for row in rows:
            if row["subset"] == "val" and not row["env_held_out"]:
                errors.setdefault(row["step"], []).append(row["wrong"] / row["seen"])
        means = {step: sum(own) / len(own) for step, own in errors.items()}
        step = min(means, key=lambda step: (means[step], step))
        assert means[step] == lowest_validation_error(run.folder / ROW_FILE)
        assert about_predictions(file)["step"] == step
        assert predicted_errors(file) == counted_errors(run, step)
        chosen.add(step)
    assert len(chosen) > 1, "the runs differ in their best step"


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["last", "best"])
@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_a_resumed_run_writes_the_same_file(tmp_path: Path, mode: str, which: str) -> None:
    words = ("trainer.steps=12", "trainer.eval_every=3", "trainer.checkpoint_seconds=0",
        f"execution={mode}",
             f"trainer.predictions={which}", "protocol.folds=[0,1]")  # fmt: skip
    whole, cut = small_study(tmp_path / "whole", *words), small_study(tmp_path / "cut", *words)
    train_study(whole)
    with stopping_at(8):
        train_study(cut)
    for run in cut.runs:  # as a process leaves behind that is killed while it writes
        (run.folder / f"{PREDICTION_FILE}.partial").write_bytes(b"cut short")
    left = [run.folder / PREDICTION_FILE for run in cut.runs]
    assert [file.exists() for file in left] == [which == "best"] * 2
    train_study(cut)
    for one, other in zip(whole.runs, cut.runs, strict=True):
        assert (one.folder / PREDICTION_FILE).read_bytes() == (
            other.folder / PREDICTION_FILE
        ).read_bytes()
        assert not list(other.folder.glob("*.partial"))


def test_an_evaluation_that_breaks_off_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here in its second batch, after lines were written to the disk."""
    monkeypatch.setattr(predictions, "LINES_AT_ONCE", 1)
    study = small_study(tmp_path, *STEPS, "trainer.predictions=last", "protocol.folds=[0]",
        "execution=single",
                        "trainer.eval_batch_size=100")  # fmt: skip
    add, calls = predictions.PredictionLines.add, []

    def failing(self: Any, eval_set: str, columns: Any) -> None:
        calls.append(0)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        add(self, eval_set, columns)

    monkeypatch.setattr(predictions.PredictionLines, "add", failing)
    assert not any(train_study(study).values())
    (run,) = study.runs
    assert not list(run.folder.glob("predictions*"))
    monkeypatch.setattr(predictions.PredictionLines, "add", add)
    check(study)


def test_small_pieces_are_joined(tmp_path: Path) -> None:
    """Batches of 50 images make one group of lines on the disk."""
    import pyarrow.parquet as pq

    study = small_study(
        tmp_path,
        *STEPS,
        "trainer.predictions=last",
        "protocol.folds=[0]",
        "trainer.eval_batch_size=50",
    )
    (file,) = check(study)
    about = pq.ParquetFile(file).metadata
    assert about.num_row_groups == math.ceil(about.num_rows / predictions.LINES_AT_ONCE) == 1


def test_a_finished_run_without_predictions_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not trained again: its rows are there."""
    words = ("trainer.steps=4", "trainer.eval_every=4", "protocol.folds=[0,1]")
    train_study(small_study(tmp_path, *words))
    assert "predictions" not in capsys.readouterr().err
    train_study(study := small_study(tmp_path, *words, "trainer.predictions=last"))
    said = [
        line for line in capsys.readouterr().err.splitlines() if "trainer.predictions=last" in line
    ]
    assert len(said) == 1 and "2 runs, e.g. " in said[0] and "delete the folder" in said[0]
    assert not (study.runs[0].folder / PREDICTION_FILE).exists()


def test_best_was_before_predictions_were_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second half is no better than the first."""
    words = ("trainer.steps=12", "trainer.eval_every=4", "trainer.checkpoint_seconds=0",
        "execution=single",
             "protocol.folds=[0]")  # fmt: skip
    study = small_study(tmp_path, *words)
    with stopping_at(8):
        train_study(study)
    monkeypatch.setattr(recorder, "lowest_validation_error", lambda file: 0.0)
    train_study(again := small_study(tmp_path, *words, "trainer.predictions=best"))
    assert "before predictions were" in caplog.text
    assert not (again.runs[0].folder / PREDICTION_FILE).exists()


def test_the_order_of_equal_logits_is_that_of_the_classes() -> None:
    from dgbench.batches import EvalBatch
    from dgbench.data.description import Preprocessing
    from dgbench.data.environments import Catalog

    images: Any = SimpleNamespace(
        catalog=Catalog(np.zeros(8, np.int64), ("a", "b"), Preprocessing((1,), (), ()))
    )
    batch = EvalBatch(torch.zeros(1, 1), torch.tensor([2]), "a", 0, torch.tensor([7]))
    (columns,) = predictions.columns_of(batch, torch.tensor([[[1.0, 2.0, 2.0, 0.0]]]), images)
    assert columns["top"][1].tolist() == [[1, 2, 0, 3]]
    weights = [math.e, math.e, 1.0, math.exp(-1.0)]
    assert columns["probability"][1][0].tolist() == pytest.approx(
        [w / sum(weights) for w in weights]
    )
    assert columns["image"].to_pylist() == ["7"]


def test_wrong_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.predictions=best needs.*process.*none"):
        TrainerSettings(predictions="best", devices=2)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError,
        match=r"trainer\.predictions=last needs pyarrow, .*; pip install 'dgbench\[parq",
    ):
        TrainerSettings(predictions="last")
    assert TrainerSettings().predictions == "none"
