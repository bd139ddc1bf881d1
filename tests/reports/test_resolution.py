"""What the seeds of a table resolve stands under it, in one sentence, from its own rows."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from dgbench import measures, results
from dgbench.analysis import detectable
from dgbench.plan.measures import choose
from dgbench.reports import seeds, selected
from dgbench.reports.over_seeds import by_seed
from dgbench.reports.resolution import resolution, smallest_found


def matrix(values: list[list[float]]) -> pd.DataFrame:
    return pd.DataFrame(
        values, index=[f"a{at}" for at in range(len(values))], columns=range(len(values[0]))
    )


def test_two_algorithms() -> None:
    """Differences 1, 2, 3 points: deviation 1, raised by sqrt(2 / (2 ln 2)); 5.653 standard errors
    of 3 seeds.
    """
    [sentence] = resolution(matrix([[0.20, 0.20, 0.20], [0.21, 0.22, 0.23]]), "worst+gap")
    expected = detectable(1.0, 3) / math.sqrt(math.log(2))
    assert f"3 seeds find differences of {expected:.1f} points of worst+gap (" in sentence
    assert sentence.count("[") == 1 and "named beforehand" not in sentence


def test_more_algorithms_resolve_less() -> None:
    values = np.random.default_rng(0).normal(size=(6, 4)) / 100
    [sentence] = resolution(matrix(values.tolist()), "average accuracy")
    among, between = (
        float(part.split()[-1])
        for part in sentence.split(" points")[:1] + sentence.split(" between")[:1]
    )
    assert among > between
    assert "among 6 algorithms" in sentence


def test_nothing_is_said_of_one_seed_or_one_algorithm() -> None:
    assert resolution(matrix([[0.1], [0.2]]), "worst") == []
    assert resolution(matrix([[0.1, 0.2, 0.3]]), "worst") == []
    assert resolution(matrix([[0.1, math.nan], [math.nan, 0.2]]), "worst") == []


def test_differences_that_never_vary_tell_nothing() -> None:
    [sentence] = resolution(matrix([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]]), "worst")
    assert "not known" in sentence


def test_each_measure_has_its_resolution_as_a_column() -> None:
    frame = results("results/hwang2024_table1_scale1")
    chosen = frame[(frame["variant.ratio"] == 3) & frame["label"].isin(["erm", "irm", "vrex"])]
    table = selected(chosen).set_index("measure")
    values = measures(chosen)
    for measure in choose().of_runs:
        matrix = values.pivot_table(index="label", columns="seed", values=measure.name)
        smallest = smallest_found(matrix)
        assert smallest is not None
        kinds = ["resolution", "resolution.low", "resolution.high"]
        assert list(table.loc[measure.title, kinds]) == pytest.approx(
            [smallest.estimate, smallest.low, smallest.high]
        )
        assert (
            f"{100 * smallest.estimate:.1f} points"
            in resolution(by_seed(seeds(chosen), measure.name), measure.title)[0]
        )


def test_one_seed_resolves_nothing() -> None:
    frame = results("results/hwang2024_table1_scale1")
    table = selected(frame[(frame["variant.ratio"] == 3) & (frame["seed"] == 0)])
    assert table["resolution"].isna().all() and table["resolution.reason"].notna().all()
