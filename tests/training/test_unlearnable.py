"""A class that no training environment has is said beside the table, with its share of the error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dgbench.analysis.selection import Last
from dgbench.cli.closing import study_table
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.training.study import Study
from tests.studies import make_study, train_study


def study_of(folder: Path, classes_of_c: int) -> Study:
    """Environments a and b of two classes, c of as many as asked; 0.9 of each image tells its class."""
    env = np.repeat(["a", "b", "c"], 60)
    label = np.concatenate([np.arange(60) % 2, np.arange(60) % 2, np.arange(60) % classes_of_c])
    names = np.array(["fox", "hare", "owl"])[label]
    pd.DataFrame({"environment": env, "label": names, "f0": label * 1.0, "f1": 1.0}).to_csv(folder / "x.csv")
    return make_study(
        folder, "dataset=features", f"dataset.path={folder}/x.csv", "dataset.columns='f?'", "dataset.classes=union",
        "hparams.batch_size=8", "trainer.steps=100", "trainer.eval_every=100", "trainer.device=cpu",
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
    error = next(row["wrong"] / row["seen"] for row in rows if row["fold"] == "2" and row["subset"] == "test")
    assert error >= share
    assert (
        f"fold 2: no training environment has owl, {100 * share:.1f}% of the images of c: at most {100 * share:.1f} of "
        f"its {100 * error:.1f} points of error" in " ".join(text.split())
    )
