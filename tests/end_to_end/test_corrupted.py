"""train.py on corrupted environments, as a user runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import rows_in

CLASSES = {"cat": 12, "dog": 8}


@pytest.fixture
def train(command: Any, image_tree: Callable[..., Path], tmp_path: Path) -> Callable[..., Any]:
    """``train(...)``: PACS-corrupted, or another, on 3 x 20 tiny images under two corruptions, 4
    steps.
    """
    root = image_tree(art=CLASSES, photo=CLASSES, sketch=CLASSES)

    def run(*words: object, dataset: str = "pacs_corrupted") -> Any:
        return command(
            "train.py", f"dataset={dataset}", f"dataset.root={root}", "dataset.image_size=32",
            "dataset.published=null", "backbone=mlp", "backbone.width=8", "trainer.steps=4",
            "trainer.eval_every=2", "hparams.batch_size=3",
            "trainer.device=cpu", f"paths.cache_dir={tmp_path}/cache", *words, cwd=tmp_path,
        )  # fmt: skip

    return run


@pytest.mark.thorough
def test_the_full_fold_is_judged_everywhere(train: Any, command: Any, tmp_path: Path) -> None:
    """3 domains x (clean, 2 corruptions) = 9 environments; 20 images a domain: 4 in the pool, 13
    train, 3 val.

    Runs trained alone and together err alike.
    """
    words = (
        "dataset.corruptions=[contrast,shot_noise]",
        "dataset.given=1-1-1",
        "dataset.severity=5",
    )
    for mode in ("single", "stacked"):
        ended = train(*words, f"execution={mode}", f"paths.output_dir={tmp_path}/{mode}")
        assert ended.code == 0, ended.err
        assert ("corrupting" in ended.err) == (mode == "single"), (
            "the second run finds what the first made"
        )
    keys = ("fold", "step", "env", "subset", "seen", "wrong")
    single, stacked = (
        sorted(tuple(row[key] for key in keys) for row in rows_in(tmp_path / mode))
        for mode in ("single", "stacked")
    )
    assert single == stacked
    last = [row for row in rows_in(tmp_path / "single") if row["step"] == 4]
    full = [row for row in last if row["fold"] == "full"]
    assert {row["variant"]["severity"] for row in last} == {5}
    assert {row["variant"]["environments"] for row in last} == {"1-1-1"}
    assert Counter(row["subset"] for row in full) == {"val": 3, "test": 9}
    assert {(row["env"].partition("+")[0],
            row["seen"]) for row in full if row["subset"] == "test"} == {
        ("art", 4), ("photo", 4), ("sketch", 4),
    }  # fmt: skip
    for fold in "012":
        tested = [row["env"] for row in last if row["fold"] == fold and row["subset"] == "test"]
        assert tested == full[0]["given"]
    assert "ideal" in ended.out
    report = command("report.py", f"runs=[{tmp_path}/single]", cwd=tmp_path)
    assert report.code == 0, report.err
    assert "pacs_corrupted" in report.out


def test_listed_environments_of_any_dataset(train: Any, tmp_path: Path) -> None:
    ended = train(
        "corruptions=hendrycks",
        "dataset.given=[photo,sketch+fog]",
        "protocol.folds=[0]",
        dataset="image_folder",
    )
    assert ended.code == 0, ended.err
    assert {row["env"] for row in rows_in(tmp_path)} == {"photo", "sketch+fog"}


def test_bad_words_end_in_one_line(train: Any) -> None:
    ended = train("dataset.given=1-1")
    assert ended.code == 1
    assert ended.err.splitlines()[-1].endswith("or a list of names")
