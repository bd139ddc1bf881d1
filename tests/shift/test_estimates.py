"""Whole estimates on pairs whose shift is known, and what is refused."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dgbench.errors import ConfigError, DataError
from dgbench.records.shift_rows import HALF, HALVES, LABELS, NO_NULL, TRIAL, ShiftRow
from dgbench.shift.job import estimate_shift
from tests.complaints import one_line

Side = tuple[np.ndarray, np.ndarray]


def colored(e: float, n: int, rng: np.random.Generator) -> Side:
    """Color and noise-free class in noise; labels flipped with 0.25, the color differs from the
    label with e.
    """
    clean = rng.integers(0, 2, n)
    y = np.where(rng.random(n) < 0.25, 1 - clean, clean)
    color = np.where(rng.random(n) < e, 1 - y, y)
    x = 0.1 * rng.standard_normal((n, 10))
    x[:, 0] += 2 * color - 1
    x[:, 1] += 2 * clean - 1
    return x, y


def novel(share: float, sign: int, n: int, rng: np.random.Generator) -> Side:
    """Labels in x2; a share of the images lies at 3 sign in x1."""
    y = np.arange(n) % 2
    x1 = np.where(rng.random(n) < share, 3.0 * sign, 0.0)
    return np.stack([x1, 2.0 * y - 1], 1) + 0.3 * rng.standard_normal((n, 2)), y


def means(rows: Sequence[ShiftRow], null: str = NO_NULL, kind: str = TRIAL) -> dict[str, float]:
    own = [row.values for row in rows if (row.null, row.kind) == (null, kind)]
    assert own and all(own), [row.refused for row in rows]
    return {name: statistics.fmean(values[name] for values in own) for name in own[0]}


@pytest.mark.thorough
@pytest.mark.parametrize(("e", "exact", "plus"), [(0.9, 0.6547, 0.3165), (0.5, 0.3204, 0.0845)])
def test_correlation_shift_of_colored_classes(e: float, exact: float, plus: float) -> None:
    rng = np.random.default_rng(3)
    rows = estimate_shift(
        *colored(0.1, 6000, rng), *colored(e, 6000, rng), trials=1, halves=0, device="cpu"
    )
    found = means(rows)
    assert found["cor"] == pytest.approx(exact, abs=0.03)
    assert found["cor_plugin"] == pytest.approx(exact, abs=0.05)
    assert found["cor_plus"] == pytest.approx(plus, abs=0.05)
    assert abs(found["div"]) < 0.005
    for null in (HALVES, LABELS):  # neither kind, and no correlation
        assert abs(means(rows, null)["cor"]) < 0.03
        assert means(rows, null)["cor_plugin"] < 0.06


@pytest.mark.thorough
@pytest.mark.parametrize(("a", "b", "exact"), [(0.2, 0.5, 0.35), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)])
def test_diversity_shift_of_novel_images(a: float, b: float, exact: float) -> None:
    rng = np.random.default_rng(4)
    rows = estimate_shift(
        *novel(a, -1, 3000, rng), *novel(b, 1, 3000, rng), trials=1, halves=0, device="cpu"
    )
    assert means(rows)["div"] == pytest.approx(exact, abs=0.05)
    assert means(rows, LABELS)["div"] == pytest.approx(exact, abs=0.05)  # labels have no part in it
    assert abs(means(rows, HALVES)["div"]) < 0.02
    if exact == 1:  # they overlap nowhere, and then it is not defined
        assert "cor" not in means(rows)
        assert any(
            "no correlation shift" in flag
            for row in rows
            for flag in row.flags
            if row.null == NO_NULL
        )


@pytest.mark.thorough
def test_opposite_labels_in_eight_dimensions() -> None:
    """Where densities in R^8 are too low for the thresholds of OoD-Bench, posteriors still tell."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3000, 8))
    y = (x[:, 0] > 0).astype(np.int64)
    z = rng.standard_normal((3000, 8))
    found = means(
        estimate_shift(
            x, y, z, (z[:, 0] <= 0).astype(np.int64), trials=1, halves=0, null=False, device="cpu"
        )
    )
    assert found["cor"] > 0.85


@pytest.mark.thorough
def test_many_classes_with_rolled_labels() -> None:
    rng = np.random.default_rng(6)
    centers = rng.standard_normal((7, 32))

    def side() -> Side:
        y = np.arange(2000) % 7
        return centers[y] + 0.5 * rng.standard_normal((2000, 32)), y

    (x_p, y_p), (x_q, y_q) = side(), side()
    rolled = np.where(y_q < 3, (y_q + 1) % 3, y_q)
    found = means(
        estimate_shift(x_p, y_p, x_q, rolled, trials=1, halves=0, null=False, device="cpu")
    )
    assert found["cor"] == pytest.approx(3 / 7, abs=0.04)
    same = means(estimate_shift(x_p, y_p, x_q, y_q, trials=1, halves=0, null=False, device="cpu"))
    assert abs(same["cor"]) < 0.03


@pytest.mark.thorough
def test_swapping_the_sides_changes_draws_only() -> None:
    rng = np.random.default_rng(7)
    p, q = colored(0.1, 3000, rng), colored(0.5, 3000, rng)
    there, back = (
        means(estimate_shift(*a, *b, trials=2, halves=0, null=False, device="cpu"))
        for a, b in ((p, q), (q, p))
    )
    assert there["cor"] == pytest.approx(back["cor"], abs=0.04)


@pytest.mark.slow
def test_halves_use_half_of_the_images_and_the_same_seed_gives_the_same() -> None:
    rng = np.random.default_rng(8)
    sides = [*colored(0.1, 600, rng), *colored(0.9, 600, rng)]
    rows = estimate_shift(*sides, trials=1, halves=2, device="cpu")
    sizes = {(row.kind, row.null): row.n[0] for row in rows}
    whole = sizes[TRIAL, NO_NULL]
    assert 500 < whole <= 600
    assert whole / 2 - 15 < sizes[HALF, NO_NULL] <= whole / 2 + 15
    again = estimate_shift(*sides, trials=1, halves=2, device="cpu")
    assert [row.values for row in again] == [row.values for row in rows]


@pytest.mark.slow
def test_recipes_of_ood_bench_see_the_color() -> None:
    rng = np.random.default_rng(9)
    sides = [*colored(0.1, 3000, rng), *colored(0.9, 3000, rng)]
    keys: dict[str, Any] = {
        "points": 2000,
        "bottleneck": 2,
        "density": "mixture",
        "proposal": "mixture",
    }
    for recipe in ("code", "paper"):
        rows = estimate_shift(
            *sides, "ood_bench", keys={**keys, "recipe": recipe}, trials=1, halves=0, device="cpu"
        )
        found = means(rows)
        assert found["cor"] > 0.3
        assert means(rows, HALVES).get("cor", 0.0) < 0.15
        (diagnosed,) = [row.diagnostics for row in rows if row.null == NO_NULL]
        assert diagnosed["cor_shuffled"] < found["cor"] / 2


def test_calibration_takes_thresholds_from_the_nulls() -> None:
    rng = np.random.default_rng(10)
    sides = [*colored(0.1, 1000, rng), *colored(0.9, 1000, rng)]
    keys = {"points": 1000, "bottleneck": 2, "thresholds": "calibrated"}
    rows = estimate_shift(*sides, "ood_bench", keys=keys, trials=2, halves=0, device="cpu")
    assert len({row.diagnostics["eps_cor"] for row in rows}) == 1
    assert rows[0].diagnostics["eps_cor"] != 5e-4
    with pytest.raises(ConfigError, match="set null=true"):
        estimate_shift(*sides, "ood_bench", keys=keys, trials=1, halves=0, null=False, device="cpu")


def test_distances_grow_with_the_shift() -> None:
    rng = np.random.default_rng(11)
    y = np.arange(400) % 2
    x = rng.standard_normal((400, 4)) + y[:, None]
    rows = estimate_shift(
        x, y, x[::-1] + 1.0, y[::-1].copy(), "distances", trials=1, halves=0, device="cpu"
    )
    found, null = means(rows), means(rows, HALVES)
    assert found["mmd2_p"] == pytest.approx(1 / 201)
    for name in ("emd", "mmd2", "ni", "ni_pooled"):
        assert found[name] > null[name]
    assert found["ni:0"] > 1


@pytest.mark.slow
def test_concept_shift_is_where_the_labels_turn() -> None:
    rng = np.random.default_rng(12)
    x, z = rng.standard_normal((1000, 3)), rng.standard_normal((1000, 3))
    y, same, turned = (own.astype(np.int64) for own in (x[:, 0] > 0, z[:, 0] > 0, z[:, 1] > 0))
    apart = means(
        estimate_shift(x, y, z, turned, "concept", trials=1, halves=0, null=False, device="cpu")
    )
    alike = means(
        estimate_shift(x, y, z, same, "concept", trials=1, halves=0, null=False, device="cpu")
    )
    assert apart["min"] > 0.4
    assert apart["tv"] < 0.1
    assert alike["max"] < 0.1
    assert apart["noise"] < 0.2


@pytest.mark.parametrize(
    ("n", "labels_q", "features", "reason"),
    [
        (30, [0, 1], None, "class.*20 images.*p.*q"),
        (200, [2, 3], None, "class.*20 images.*p.*q"),
        (200, [0, 2], None, "one class only, 0, has 20 images"),
        (200, [0, 1], 0.0, "image.*same features"),
    ],
)
def test_refusals_are_rows(
    n: int, labels_q: list[int], features: float | None, reason: str
) -> None:
    rng = np.random.default_rng(13)
    y = np.arange(n) % 2
    x = rng.standard_normal((n, 3)) if features is None else np.full((n, 3), features)
    rows = estimate_shift(
        x, y, x, np.array(labels_q)[y], trials=1, halves=0, null=False, device="cpu"
    )
    (row,) = rows
    one_line(row.refused, reason)
    assert rows[0].values == {}


@pytest.mark.thorough
def test_a_class_on_one_side_is_dropped_and_named() -> None:
    rng = np.random.default_rng(14)
    y_p, y_q = np.arange(300) % 3, np.where(np.arange(300) % 3 == 2, 3, np.arange(300) % 3)
    x = rng.standard_normal((300, 3)) + y_p[:, None]
    (row,) = estimate_shift(x, y_p, x, y_q, trials=1, halves=0, null=False, device="cpu")
    assert row.classes == ["0", "1"]
    assert row.dropped == {"2": [100, 0], "3": [0, 100]}


def test_arrays_that_do_not_fit() -> None:
    x, y = np.zeros((5, 2)), np.zeros(5, dtype=np.int64)
    with pytest.raises(DataError, match="do not fit"):
        estimate_shift(x, y, np.zeros((5, 3)), y)
    with pytest.raises(ConfigError, match=r"estimator=jont.*unknown"):
        estimate_shift(x, y, x, y, "jont")
    with pytest.raises(ConfigError, match=r"estimator.joint.lr=-1.*>= 0"):
        estimate_shift(x, y, x, y, keys={"lr": -1})
