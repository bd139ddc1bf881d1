"""``dgbench.score``: by hand, as WILDS counts groups, and whatever holds the predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import beta

import dgbench
from dgbench.errors import ConfigError, RecordError
from dgbench.records.predictions import PREDICTION_FILE

TRUE = [0, 0, 1, 1, 0, 1, 0, 0]
PREDICTED = [0, 1, 1, 1, 1, 0, 0, 0]
WHERE = ["a", "a", "b", "b", "c", "c", "d", "d"]


def test_by_hand() -> None:
    """Errors 1/2, 0, 1 and 0: average 3/8, worst 1, gap 1, worst + gap / (4 - 2) = 3/2."""
    scored = dgbench.score(TRUE, PREDICTED, WHERE)
    assert scored.loc["environment", "error"].to_dict() == {"a": 0.5, "b": 0.0, "c": 1.0, "d": 0.0}
    measures = scored.loc["measure"]
    assert measures["error"].drop("ideal").to_dict() == {
        "overall": 3 / 8, "average": 3 / 8, "worst": 1.0, "gap": 1.0, "worst_gap": 1.5,
    }  # fmt: skip
    assert measures.loc["worst", "where"] == "c"
    assert np.isnan(measures.loc["ideal", "error"]) and "given" in measures.loc["ideal", "reason"]
    assert "not of other seeds" in scored.attrs["notes"][0]


def test_one_model_trained_on_some() -> None:
    """c and d are held out; the ideal is the largest error anywhere;
    worst+gap is of other models.
    """
    scored = dgbench.score(TRUE, PREDICTED, WHERE, given=["a", "b"])
    measures = scored.loc["measure"]
    assert measures["error"][["average", "worst", "gap", "ideal"]].tolist() == [0.5, 1.0, 1.0, 1.0]
    assert (
        np.isnan(measures.loc["worst_gap", "error"])
        and "leave-one-out" in measures.loc["worst_gap", "reason"]
    )
    assert scored.loc["environment", "role"].tolist() == ["trained on"] * 2 + ["held out"] * 2
    untested = dgbench.score(TRUE, PREDICTED, WHERE, given=["e"]).loc["measure"]
    assert (
        "not tested: e" in dgbench.score(TRUE, PREDICTED, WHERE, given=["a", "e"]).attrs["notes"][1]
    )
    assert "not tested in e" in untested.loc["ideal", "reason"]


@pytest.mark.parametrize("n", [1, 7, 200])
def test_the_interval_is_exact(n: int) -> None:
    """Clopper & Pearson 1934: quantiles of beta distributions."""
    for wrong in {0, 1, n // 3, n}:
        scored = dgbench.score([0] * n, [1] * wrong + [0] * (n - wrong), ["a"] * n).loc[
            ("environment", "a")
        ]
        low = beta.ppf(0.025, wrong, n - wrong + 1) if wrong else 0
        high = beta.isf(0.025, wrong + 1, n - wrong) if wrong < n else 1
        assert scored[["low", "high"]].tolist() == pytest.approx([low, high], abs=1e-11)


def test_worst_group_as_wilds() -> None:
    """WILDS: accuracy of each group that occurs, the least of them; groups are combinations of
    metadata.
    """
    rng = np.random.default_rng(0)
    true, predicted, place = (rng.integers(0, 2, 300) for _ in range(3))
    where = rng.choice(["x", "y", "z"], 300)
    group = 2 * true + place
    accuracies = [(true == predicted)[group == g].mean() for g in np.unique(group)]
    scored = dgbench.score(true, predicted, where, groups={"y": true, "place": place})
    assert len(scored.loc["group"]) == 4
    assert 1 - scored.loc[("measure", "worst_group"), "error"] == pytest.approx(min(accuracies))
    assert scored.loc[("measure", "worst_group"), "where"] == "y={}, place={}".format(
        *divmod(np.argmin(accuracies), 2)
    )
    one = dgbench.score(true, predicted, where, groups=group)
    assert (
        one.loc[("measure", "worst_group"), "error"]
        == scored.loc[("measure", "worst_group"), "error"]
    )


def test_the_interval_of_the_worst_group_allows_for_its_choice() -> None:
    """24 groups of 60 images that all have 20% errors: 95% of the worst one alone would miss that
    in two of five.
    """
    rng, groups, images = np.random.default_rng(3), 24, 60
    group = np.repeat(np.arange(groups), images)
    holds, alone_holds = [], []
    for _ in range(60):
        predicted = (rng.random(groups * images) < 0.2).astype(int)
        scored = dgbench.score(
            np.zeros(groups * images, dtype=int), predicted, group // 6, groups=group
        )
        worst = scored.loc[("measure", "worst_group")]
        alone = scored.loc[("group", worst["where"])]
        holds.append(worst["low"] <= 0.2 <= worst["high"])
        alone_holds.append(alone["low"] <= 0.2 <= alone["high"])
        assert worst["wrong"] == alone["wrong"]
    assert np.mean(holds) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 60) and np.mean(alone_holds) < 0.8
    wrong = int(worst["wrong"])
    ends = [
        beta.ppf(0.025 / groups, wrong, images - wrong + 1),
        beta.isf(0.025 / groups, wrong + 1, images - wrong),
    ]
    assert worst[["low", "high"]].tolist() == pytest.approx(ends, rel=1e-9)
    assert "1 - 0.05/24" in scored.attrs["notes"][1]


@pytest.mark.parametrize(
    "kind",
    [np.array, torch.tensor, pd.Series, tuple,
        lambda v: torch.tensor(v, dtype=torch.float32, requires_grad=True),
     lambda v: pd.Series(v, dtype="category"), lambda v: [f"class {each}" for each in v]],
)  # fmt: skip
def test_whatever_holds_them(kind: Any) -> None:
    expected = dgbench.score(TRUE, PREDICTED, WHERE)
    pd.testing.assert_frame_equal(
        dgbench.score(kind(TRUE), kind(PREDICTED), np.array(WHERE)), expected
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((TRUE, PREDICTED[:-1], WHERE), "y_pred holds 7"),
        ((TRUE, np.eye(2)[PREDICTED], WHERE), r"y_pred is of shape \(8, 2\).*argmax"),
        ((TRUE, np.array(PREDICTED) + 0.3, WHERE), "no class"),
        ((TRUE, [None, *PREDICTED[1:]], WHERE), "1 of 8 images"),
        ((TRUE, [float("nan"), *PREDICTED[1:]], WHERE), "1 of 8 images"),
        ((TRUE, list(map(str, PREDICTED)), WHERE), "names of classes"),
        ((TRUE, PREDICTED), "environments=null"),
        (([], [], []), r"shape \(0,\)"),
    ],
)
def test_what_is_no_prediction_is_refused_in_one_line(
    arguments: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refusal:
        dgbench.score(*arguments)
    assert "\n" not in str(refusal.value)


def test_the_environments_are_a_table_of_results() -> None:
    """Of import=table: worst+gap of the study is that of the predictions."""
    scored = dgbench.score(TRUE, PREDICTED, WHERE)
    table = (
        scored.loc["environment"]
        .rename_axis("environment")
        .reset_index()
        .assign(algorithm="mine", seed=0)
    )
    [study] = dgbench.measures(table).to_dict("records")
    assert (study["average"], study["worst_gap"]) == (3 / 8, 1.5)


def test_a_million_images() -> None:
    rng = np.random.default_rng(0)
    true, where = rng.integers(0, 10, 10**6), rng.integers(0, 5, 10**6)
    scored = dgbench.score(true, np.where(rng.random(10**6) < 0.25, -1, true), where)
    assert (
        scored.loc[("measure", "overall"), "high"] - scored.loc[("measure", "overall"), "low"]
        < 0.002
    )


def test_a_file_of_predictions(tmp_path: Path) -> None:
    """Its test images, and the environments of its run."""
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dgbench.records.predictions import schema

    about = {"classes": ["x", "y"], "training": ["a", "b"], "held_out": ["c", "d"]}
    columns = schema(about, ["place"])
    lines = [
        {"image": str(at), "eval_set": "s", "env": env, "subset": subset, "label": label,
            "predicted": predicted,
         "top": [0], "probability": [1.0], "attribute.place": env.upper()}
        for subset in ("val", "test")
        for at, (env, label, predicted) in enumerate(zip(WHERE, TRUE, PREDICTED, strict=True))
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(lines, schema=columns), tmp_path / PREDICTION_FILE)
    scored = dgbench.score(tmp_path / PREDICTION_FILE, groups="attribute.place")
    pd.testing.assert_frame_equal(
        scored,
        dgbench.score(
            TRUE, PREDICTED, WHERE, given=["a", "b"], groups={"attribute.place": [*"AABBCCDD"]}
        ),
    )
    with pytest.raises(ConfigError, match="leave these out"):
        dgbench.score(tmp_path / PREDICTION_FILE, PREDICTED)
    with pytest.raises(ConfigError, match="no column"):
        dgbench.score(tmp_path / PREDICTION_FILE, groups="sex")
    with pytest.raises(RecordError):
        dgbench.score(tmp_path / "nothing.parquet")
