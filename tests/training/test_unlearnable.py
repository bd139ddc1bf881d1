"""A class that no training environment has is said beside the table,
with its share of the error.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dgbench
from dgbench.analysis.selection import Last
from dgbench.cli.closing import study_table
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import plain_document, write
from dgbench.reports.unlearnable import notes_of_setting
from dgbench.training.study import ReadyStudy
from tests.studies import make_study, train_study


def table_of(file: Path, classes_of_c: int) -> str:
    """Write environments a and b of two classes, and c of as many as asked; return the words that
    read the table.
    """
    env = np.repeat(["a", "b", "c"], 60)
    label = np.concatenate([np.arange(60) % 2, np.arange(60) % 2, np.arange(60) % classes_of_c])
    names = np.array(["fox", "hare", "owl"])[label]
    pd.DataFrame({"environment": env, "label": names, "f0": label * 1.0, "f1": 1.0}).to_csv(file)
    return f"dataset=features dataset.path={file} dataset.columns=[f0,f1] dataset.classes=union"


def study_of(folder: Path, classes_of_c: int) -> ReadyStudy:
    return make_study(
        folder, *table_of(folder / "x.csv", classes_of_c).split(), "hparams.batch_size=8",
        "trainer.steps=100", "trainer.eval_every=100", "trainer.device=cpu",
    )  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3])
def test_its_share_of_the_error_stands_below_the_table(tmp_path: Path, classes: int) -> None:
    study = study_of(tmp_path, classes)
    train_study(study)
    rows = [row for run in study.runs for row in read_rows(run.folder / ROW_FILE)[0]]
    found = {row["fold"]: row["unlearnable"] for row in rows}
    (c,) = [run for run in study.runs if run.fold.held_out == ("c",)]
    table = study.environments.table
    labels = study.environments.catalog.labels[table.subset("c", "train")]
    share = float(np.mean(labels == 2))  # no other environment has owls
    text = study_table(rows, Last())
    if classes == 2:
        assert found == {"0": {}, "1": {}, "2": {}}
        assert "no training environment" not in text
        return
    assert found == {"0": {}, "1": {}, c.fold.name: {"c: owl": pytest.approx(share, abs=1e-6)}}
    error = next(
        row["wrong"] / row["seen"] for row in rows if row["fold"] == "2" and row["subset"] == "test"
    )
    assert error >= share
    assert (
        f"fold 2: no training environment has owl, {100 * share:.1f}% of the images of c: at "
        f"most {100 * share:.1f} of its {100 * error:.1f} points of error"
    ) in " ".join(text.split())


def test_reports_and_evaluations_say_it_too(tmp_path: Path) -> None:
    """Text and page of report=measures, and the rows of ``dgbench evaluate``, on this table and on
    another one.
    """
    study = study_of(tmp_path, 3)
    train_study(study)
    (c,) = [run for run in study.runs if run.fold.held_out == ("c",)]
    own = dict(read_rows(c.folder / ROW_FILE)[0][0]["unlearnable"])
    document = MeasuresReport()(collect([tmp_path]), Last())
    tested = next(row for row in read_rows(c.folder / ROW_FILE)[0] if row["subset"] == "test")
    error = tested["wrong"] / tested["seen"]
    share = own["c: owl"]
    line = (
        f"no training environment has owl, {100 * share:.1f}% of the images of c: at most "
        f"{100 * share:.1f} of its {100 * error:.1f} points of error"
    )
    assert " ".join(plain_document(document).split()).count(line) == 1
    paths = write(document, tmp_path / "page")
    (page,) = [path for path in paths if path.suffix == ".html"]
    assert " ".join(page.read_text().split()).count(line) == 2, "below the measures and the errors"

    again = dgbench.evaluate(c.folder, output=tmp_path / "evaluated")
    assert [read_rows(folder / ROW_FILE)[0][0]["unlearnable"] for folder in again.folders] == [own]
    words = table_of(tmp_path / "other.csv", 3).split()
    elsewhere = dgbench.evaluate(
        c.folder, [*words, "dataset.name=other", "dataset.split_seed=3"], output=tmp_path / "o"
    )
    for folder in elsewhere.folders:
        (row, *_) = read_rows(folder / ROW_FILE)[0]
        assert set(row["unlearnable"]) == ({"c: owl"} if row["held_out"] == ["c"] else set())


def test_models_that_differ_are_counted() -> None:
    errors = pd.DataFrame({"env": ["c", "c"], "error": [0.5, 0.4]})
    lacking = {"held_out": ["c"], "unlearnable": {"c: owl": 0.25, "d: owl": 0.5}}
    assert notes_of_setting([lacking, lacking], errors) == [
        (
            "no training environment has owl, 25.0% of the images of c: at most 25.0 points of "
            "the errors there, which are 40.0 to 50.0"
        )
    ]
    (some,) = notes_of_setting([lacking, {"held_out": ["c"]}], errors)
    assert some.startswith(
        "no training environment of 1 of 2 models has owl, 25.0% of the images of c: "
    )
    assert notes_of_setting([{"held_out": ["c"]}], errors) == []
