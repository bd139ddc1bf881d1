"""Error and loss over steps, from rows whose values are known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dgbench.analysis.selection import Last
from dgbench.records.metrics import write_metrics
from dgbench.reports.reading.collect import collect
from dgbench.reports.slices.curves import (
    CurvesReport,
    logged_values,
    mean_curves,
    run_labels,
    step_curves,
)


@pytest.fixture
def study(make: SimpleNamespace, tmp_path: Path) -> Path:
    """Error e in a fold's held-out environment, 0.1 elsewhere; e = 0.5 at step 100 and 0.3 at 200,
    + 0.1 in seed 1.
    """
    for seed in (0, 1):
        for fold, env in (("0", "0.90"), ("3", "0.10")):
            who = make.identity("erm", fold, seed)

            def error(name: str, step: int, env: str = env, seed: int = seed) -> float:
                return (0.5 if step == 100 else 0.3) + 0.1 * seed if name == env else 0.1

            make.write_run(tmp_path, who, error, status="RUNNING" if seed else "DONE")
    make.write_run(tmp_path, make.identity("erm", "full"), lambda env, step: 0.25)
    return tmp_path


def test_every_role_is_of_its_own_rows(study: Path) -> None:
    """val: the three training environments (the held-out one is no validation data); test: the
    held-out one alone.
    """
    curves = step_curves(collect([study]))
    fold = curves[(curves["fold"] == "3") & (curves["seed"] == 1)].set_index(["role", "step"])[
        "error"
    ]
    assert fold.to_dict() == pytest.approx(
        {("test", 100): 0.6, ("test", 200): 0.4, ("val", 100): 0.1, ("val", 200): 0.1}
    )
    full = curves[curves["fold"] == "full"].set_index(["role", "step"])
    assert sorted(full.index) == [
        ("everywhere", 100),
        ("everywhere", 200),
        ("val", 100),
        ("val", 200),
    ]
    assert full["error"].tolist() == pytest.approx([0.25] * 4)
    assert full["loss"].tolist() == pytest.approx([0.5] * 4)


def test_means_over_folds_then_seeds(study: Path) -> None:
    """Held out at step 200: 0.3 in seed 0 and 0.4 in seed 1, so 0.35 and a deviation of 0.1 /
    sqrt(2), of 4 runs.
    """
    means = mean_curves(step_curves(collect([study]))).set_index(["role", "step"])
    line = means.loc[("test", 200)]
    assert (line["error"], line["error.std"], line["runs"]) == pytest.approx(
        (0.35, 0.1 / 2**0.5, 4)
    )


@pytest.mark.thorough
def test_the_report_draws_both_and_keeps_unfinished_runs(study: Path) -> None:
    document = CurvesReport()(collect([study]), Last())
    [section] = document.sections
    assert [figure.name.split("_")[0] for figure in section.figures] == ["error", "loss"]
    assert all(figure.png.startswith(b"\x89PNG") for figure in section.figures)
    assert len(section.tables[0]) == 6
    assert document.lead[0] == "5 runs, unfinished ones included."


def test_what_training_logged_is_drawn_where_it_is_there(study: Path) -> None:
    """One figure for loss, the first one, and one for a penalty; other names and values that are no
    numbers are not.
    """
    folders = sorted(study.rglob("errors.jsonl"))
    for at, rows in enumerate(folders[:3]):
        first = {"train/loss": 0.7 + at, "lr/model": 0.1, "error/held_out": 0.5}
        write_metrics(
            rows.parent / "metrics.csv",
            {50: first, 100: {"train/loss": float("nan"), "train/penalty": 2.0}},
        )
    folders[3].with_name("metrics.csv").mkdir()
    collection = collect([study])
    found = logged_values(collection.runs, run_labels(collection))
    assert sorted(found["value"]) == pytest.approx([0.7, 1.7, 2.0, 2.0, 2.0, 2.7])
    assert set(found["name"]) == {"loss", "penalty"} and set(found["algorithm"]) == {"erm"}
    [section] = CurvesReport()(collection, Last()).sections
    names = [figure.name for figure in section.figures]
    assert (
        len(names) == 4
        and names[2].startswith("train_loss")
        and names[3].startswith("train_penalty")
    )
