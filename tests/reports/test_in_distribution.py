"""Lines in distribution: never among held-out errors, which a report sets against them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, spearmanr

from dgbench.analysis.selection import Last, TrainVal
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.evaluation import evaluate
from dgbench.reports.importers.table import read_table
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.render.formats import markdown_table
from dgbench.reports.slices.distribution import DistributionReport
from dgbench.reports.slices.distribution_figure import _NUMBER_SIZE, _apart
from dgbench.reports.tables import is_negative

OTHERS = Path(os.environ.get("DGBENCH_DATA_DIR", "absent")) / "results_of_others"
ALGORITHMS = ("erm", "irm", "vrex", "coral", "mmd", "rsc")


def outside(env: str, algorithm: int, seed: int) -> float:
    return 0.50 + 0.03 * algorithm + 0.01 * seed - 0.1 * (env == "sketch")


def frame_of(inside: str = "flag") -> pd.DataFrame:
    """Six algorithms, two seeds, two environments, and accuracy 0.80 + 0.02 a in distribution."""
    lines = []
    for place, algorithm in enumerate(ALGORITHMS):
        for seed in (0, 1):
            about = {"algorithm": algorithm, "seed": seed}
            level = 0.80 + 0.02 * place
            for env in ("photo", "sketch"):
                error = outside(env, place, seed)
                lines.append({**about, "environment": env, "accuracy": error})
                if inside == "flag":
                    lines[-1]["in_distribution"] = False
                    other = {**lines[-1], "accuracy": level, "in_distribution": True}
                    lines.append(other)
                elif inside == "column":
                    lines[-1]["validation"] = level
            if inside == "environment":
                lines.append({**about, "environment": "imagenet", "accuracy": level})
    return pd.DataFrame(lines)


def averages(collection: Collection) -> dict[str, float]:
    studies = evaluate(select_runs(collection, Last())).studies
    means = studies.groupby("algorithm")["average"].mean()
    return {str(name): float(value) for name, value in means.items()}


def said(collection: Collection) -> str:
    return " ".join(problem.reason for problem in collection.problems)


@pytest.mark.parametrize(
    ("inside", "keys"),
    [("flag", {}), ("environment", {"in_distribution": "imagenet"}), ("column", {})],
)
def test_no_average_holds_them(inside: str, keys: dict[str, Any]) -> None:
    collection = read_table(frame_of(inside), **keys)
    alone = frame_of("none")
    assert averages(collection) == pytest.approx(averages(read_table(alone)))
    rows = collection.rows
    val = rows[rows["subset"] == "val"]
    assert not val["env_held_out"].any()
    assert val.groupby("run").size().eq(1).all() and val["run"].nunique() == 24
    assert sorted(set(val["accuracy"].round(6))) == [0.80, 0.82, 0.84, 0.86, 0.88, 0.90]


def test_a_role_says_it_too() -> None:
    frame = frame_of("flag")
    roles = frame.pop("in_distribution").map({True: "in distribution", False: "held out"})
    collection = read_table(frame.assign(role=roles))
    assert averages(collection) == pytest.approx(averages(read_table(frame_of("flag"))))


def test_a_wide_table_names_its_column() -> None:
    frame = pd.DataFrame(
        {"algorithm": ["a", "b"], "id_test": [0.9, 0.8], "photo": [0.5, 0.6], "art": [0.3, 0.4]}
    )
    collection = read_table(frame, in_distribution=["id_test"])
    assert averages(collection) == pytest.approx({"a": 0.6, "b": 0.5})


def test_what_sounds_like_it_is_asked_about() -> None:
    frame = frame_of("environment").replace({"environment": {"imagenet": "id_test"}})
    with pytest.raises(RecordError, match=r"id_test may be in distribution.*in_distribution=\["):
        read_table(frame)
    assert averages(read_table(frame, in_distribution=[]))["erm"] != pytest.approx(0.55)


def test_wrong_words_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"imagenett, which is no environment.*photo"):
        read_table(frame_of("environment"), in_distribution="imagenett")
    frame = frame_of("flag").astype({"in_distribution": object})
    frame.loc[3, "in_distribution"] = "maybe"
    with pytest.raises(RecordError, match=r"in_distribution is maybe.*line 4"):
        read_table(frame)
    with pytest.raises(RecordError, match="every line is in distribution"):
        read_table(frame_of("flag").assign(in_distribution=True))


def test_models_that_are_tested_nowhere_else_are_named() -> None:
    frame = frame_of("environment")
    lone = {"algorithm": "new", "seed": 0, "environment": "imagenet", "accuracy": 0.9}
    collection = read_table(pd.concat([frame, pd.DataFrame([lone])]), in_distribution="imagenet")
    assert "no errors elsewhere" in said(collection) and "new" in said(collection)


def test_draws_are_chosen_by_it() -> None:
    """Of two draws the better one in distribution counts, here the worse one outside."""
    frame = frame_of("column").assign(draw=0)
    better = frame.assign(
        draw=1, validation=frame["validation"] + 0.01, accuracy=frame["accuracy"] - 0.1
    )
    collection = read_table(pd.concat([frame, better]))
    studies = evaluate(select_runs(collection, TrainVal())).studies
    expected = averages(read_table(frame_of("none")))
    means = studies.groupby("algorithm")["average"].mean()
    for name, value in means.items():
        assert value == pytest.approx(expected[str(name)] + 0.1)


def test_the_report_sets_them_against_errors_elsewhere() -> None:
    report = DistributionReport(name="distribution")
    document = report(read_table(frame_of("flag")), Last())
    (section,) = document.sections
    lines, selecting, robustness = (table.frame for table in section.tables)
    assert lines["environment"].tolist() == ["average", "photo", "sketch"]
    inside = np.array([0.80 + 0.02 * place for place in range(6)])
    means = np.array([0.455 + 0.03 * place for place in range(6)])
    assert lines["drop"][0] == pytest.approx((inside - means).mean())
    slope = np.polyfit(norm.ppf(inside), norm.ppf(means), 1)[0]
    assert lines["slope"][0] == pytest.approx(slope)
    assert lines["rank correlation"][0] == pytest.approx(spearmanr(inside, means).statistic)
    first = selecting.iloc[0]
    assert (first["chosen"], first["best"], first["cost"]) == ("rsc", "rsc", 0)
    assert robustness["robustness"].sum() == pytest.approx(0, abs=0.01)
    assert next(figure.name for figure in section.figures).startswith("distribution_")
    assert all(figure.png for figure in section.figures)


def test_a_negative_intercept_is_not_marked_as_a_correlation_is() -> None:
    document = DistributionReport()(read_table(frame_of("flag")), Last())
    table = document.sections[0].tables[0]
    place = [column.name for column in table.columns].index("intercept")
    values = [line[place] for line in table.cells]
    assert all(isinstance(cell.value, float) and cell.value < 0 for cell in values)
    assert not any(is_negative(cell, table.columns[place].unit) for cell in values)
    assert "<u>" not in markdown_table(table)


@pytest.mark.parametrize("spread", [0.0, 3.0, 8.0, 100.0])
def test_numbers_of_outliers_cover_neither_points_nor_each_other(spread: float) -> None:
    points = np.random.default_rng(0).normal(0, spread, size=(6, 2))
    numbers = points + np.array(_apart(points))
    for place, number in enumerate(numbers):
        others = [*points, *np.delete(numbers, place, axis=0)]
        assert (np.abs(np.array(others) - number) >= _NUMBER_SIZE).any(axis=1).all()


def test_selecting_by_it_costs_what_the_best_is_better() -> None:
    """rsc is the best in distribution, and 20 points worse elsewhere than it was."""
    frame = frame_of("flag")
    is_rsc = (frame["algorithm"] == "rsc") & ~frame["in_distribution"]
    frame.loc[is_rsc, "accuracy"] -= 0.2
    (section,) = DistributionReport(name="distribution")(read_table(frame), Last()).sections
    first = section.tables[1].frame.iloc[0]
    assert (first["chosen"], first["best"]) == ("rsc", "mmd")
    assert first["cost"] == pytest.approx(0.17)
    assert section.tables[0].frame["outliers"][0] == "rsc"


def test_baselines_fit_the_line() -> None:
    frame = frame_of("flag")
    is_rsc = (frame["algorithm"] == "rsc") & ~frame["in_distribution"]
    frame.loc[is_rsc, "accuracy"] -= 0.2
    baselines = [name for name in ALGORITHMS if name != "rsc"]
    report = DistributionReport(name="distribution", baselines=baselines)
    (section,) = report(read_table(frame), Last()).sections
    robustness = section.tables[2].frame.set_index("algorithm")["robustness"]
    assert robustness["rsc"] < -0.15 and robustness[baselines].abs().max() < 0.02
    with pytest.raises(ConfigError, match=r"report\.baselines: nobody"):
        DistributionReport(name="distribution", baselines=["nobody"])(read_table(frame), Last())


def test_rows_without_any_are_refused_in_a_line() -> None:
    with pytest.raises(RecordError, match="no run has accuracies both in and out"):
        DistributionReport(name="distribution")(read_table(frame_of("none")), Last())


@pytest.mark.skipif(not OTHERS.exists(), reason="needs the tables of others")
def test_tableshift_is_not_averaged_over_both() -> None:
    path = OTHERS / "tableshift_best_id_accuracy.csv"
    plain = pd.read_csv(path)
    shifted = plain[~plain["in_distribution"] & plain["test_accuracy"].notna()]
    counts = shifted.groupby("estimator")["task"].nunique()
    expected = shifted.groupby("estimator")["test_accuracy"].mean()[counts == 15]
    averages_of = averages(read_table(path, {"environment": "task"}))
    assert len(expected) == 9
    assert {name: 1 - averages_of[name] for name in expected.index} == pytest.approx(
        dict(expected), abs=1e-12
    )
    assert 1 - averages_of["CatBoost"] == pytest.approx(0.777, abs=5e-4)
