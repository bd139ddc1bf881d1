"""Rows of trained runs: classes, and the errors of the most frequent class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dgbench.records.rows import ROW_FILE, read_rows
from tests.studies import small_study, train_study


def test_rows_say_what_the_most_frequent_class_gets_wrong(tmp_path: Path) -> None:
    """Counted again from labels, in every fold and subset; the same at every step."""
    study = small_study(tmp_path, "dataset=sr_cmnist", "trainer.steps=4", "trainer.eval_every=2")
    assert all(train_study(study).values())
    labels, table = study.environments.catalog.labels, study.environments.table
    for run in study.runs:
        trained = np.concatenate([table.subset(env, "train") for env in run.fold.training])
        label = np.bincount(labels[trained]).argmax()
        rows, problems = read_rows(run.folder / ROW_FILE)
        assert not problems
        assert {row["step"] for row in rows} == {2, 4}
        for row in rows:
            scored = labels[table.subset(row["env"], row["subset"])]
            assert row["seen"] == len(scored)
            assert row["majority_wrong"] == (scored != label).sum()
            assert row["n_classes"] == 2
