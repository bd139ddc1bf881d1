"""Algorithm 2 of Ye et al. 2022: a fixed set on a grid, closed forms of two Gaussians, and its
known traps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dgbench.errors import DataError
from dgbench.shift.density import (
    DensitiesAtPoints,
    DensityShift,
    densities_at,
    from_densities,
    standardized,
)
from tests.shift.fixed_sets import grid, two_sides

Options = dict[str, Any]
MIXTURE = {"density": "mixture"}


def shift_by_density(
    z_p: np.ndarray,
    y_p: np.ndarray,
    z_q: np.ndarray,
    y_q: np.ndarray,
    options: Options | None = None,
    **where: Any,
) -> DensityShift:
    """With the thresholds of the released code, unless ``options`` have others; ``where`` points
    come from.
    """
    others = {"eps_div": 1e-12, "eps_cor": 5e-4, **(options or {})}
    thresholds = others.pop("eps_div"), others.pop("eps_cor")
    return from_densities(densities_at(z_p, y_p, z_q, y_q, **others, **where), *thresholds)


def on_grid(options: Options) -> DensityShift:
    p, q, y = two_sides()
    z_p, z_q = standardized(p, q)
    return shift_by_density(z_p, y, z_q, y, options, grid=grid())


def both(shift: DensityShift) -> tuple[float, float, float, float]:
    return shift.div, shift.cor, shift.div_plus, shift.cor_plus


@pytest.mark.parametrize(
    ("eps_div", "eps_cor", "in_s", "in_t", "values", "by_class"),
    [
        (
            1e-12,
            5e-4,
            3438,
            1263,
            (0.182185267, 0.478460467, 0.182185191, 0.435528094),
            (0.472390, 0.484531),
        ),
        (
            1e-3,
            1e-3,
            5235,
            1165,
            (0.350452918, 0.475304169, 0.344924529, 0.432731169),
            (0.468281, 0.482327),
        ),
        (
            1e-2,
            1e-2,
            5645,
            755,
            (0.383245745, 0.453468503, 0.360425942, 0.412363983),
            (0.447639, 0.459298),
        ),
    ],
)
def test_values_on_a_grid(
    eps_div: float,
    eps_cor: float,
    in_s: int,
    in_t: int,
    values: tuple[float, ...],
    by_class: tuple[float, float],
) -> None:
    found = on_grid({"eps_div": eps_div, "eps_cor": eps_cor})
    assert (found.in_s * 6400, found.in_t * 6400) == pytest.approx((in_s, in_t), abs=1e-6)
    assert both(found) == pytest.approx(values, rel=1e-6)
    assert found.by_class == pytest.approx(by_class, abs=1e-6)
    assert found.classes_used.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("eps_div", "eps_cor", "div", "cor", "cor_plus"),
    [
        (1e-12, 5e-4, 0.154726420, 0.474151162, 0.431932993),
        (1e-3, 1e-3, 0.337078000, 0.471827879, 0.429747531),
    ],
)
def test_sides_as_mixtures_of_their_classes(
    eps_div: float, eps_cor: float, div: float, cor: float, cor_plus: float
) -> None:
    found = on_grid({**MIXTURE, "eps_div": eps_div, "eps_cor": eps_cor})
    assert (found.div, found.cor, found.cor_plus) == pytest.approx((div, cor, cor_plus), rel=1e-6)


def test_with_both_sets_everywhere_mixtures_give_total_variation_and_joint_hellinger() -> None:
    found = on_grid({**MIXTURE, "eps_div": np.inf, "eps_cor": 0})
    assert (found.in_s, found.in_t) == (1, 1)
    assert (found.div, found.div_plus, found.cor_plus) == pytest.approx(
        (0.743904457, 0.490043593, 0.435328451), rel=1e-6
    )
    assert found.div_plus + found.cor_plus == pytest.approx(0.925372043, rel=1e-6)


@pytest.mark.parametrize(
    ("class_weights", "cor"), [("uniform", 0.611374590), ("counts", 0.512864569)]
)
@pytest.mark.parametrize("renamed", [(0, 1), (7, 3)])
def test_weights_of_the_classes(class_weights: str, cor: float, renamed: tuple[int, int]) -> None:
    p, q, y = two_sides()
    z_p, z_q = standardized(p, q)
    kept = np.ones(40, dtype=bool)
    kept[np.flatnonzero(y == 1)[-12:]] = False
    labels = np.where(y == 0, *renamed)[kept]
    options = {"eps_div": 1e-3, "eps_cor": 1e-3, "class_weights": class_weights}
    found = shift_by_density(z_p[kept], labels, z_q[kept], labels, options, grid=grid())
    assert found.cor == pytest.approx(cor, rel=1e-6)
    assert found.div == pytest.approx(0.294832693, rel=1e-6)
    assert found.by_class[found.classes_used.tolist().index(renamed[0])] == pytest.approx(
        0.381518, abs=1e-6
    )
    if class_weights == "counts":
        assert found.cor_plus == pytest.approx(0.447379386, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "div", "cor"),
    [
        ({}, 0.1822, 0.4785),
        ({"proposal": "mixture"}, 0.1822, 0.4785),
        (MIXTURE, 0.1547, 0.4742),
        ({**MIXTURE, "proposal": "mixture"}, 0.1547, 0.4742),
    ],
)
def test_draws_agree_with_the_grid(options: Options, div: float, cor: float) -> None:
    p, q, y = two_sides()
    z_p, z_q = standardized(p, q)
    found = [
        shift_by_density(z_p, y, z_q, y, options, rng=np.random.default_rng(seed))
        for seed in range(3)
    ]
    assert [each.div for each in found] == pytest.approx([div] * 3, abs=0.02)
    assert [each.cor for each in found] == pytest.approx([cor] * 3, abs=0.02)
    assert found[0].div != found[1].div
    assert all(each.ess <= 10_000 + 1e-6 for each in found)
    if options.get("proposal") == "mixture":
        assert found[0].ess == pytest.approx(10_000)


@pytest.mark.parametrize("class_weights", ["uniform", "counts"])
def test_draws_from_a_mixture_have_the_weights_of_its_classes(class_weights: str) -> None:
    p, q, y = two_sides()
    z_p, z_q = standardized(p, q)
    kept = np.ones(40, dtype=bool)
    kept[np.flatnonzero(y == 1)[-12:]] = False
    data = z_p[kept], y[kept], z_q[kept], y[kept]
    options = {**MIXTURE, "proposal": "mixture", "class_weights": class_weights}
    true = shift_by_density(*data, options, grid=grid())
    found = shift_by_density(*data, options, rng=np.random.default_rng(0))
    assert (found.div, found.cor) == pytest.approx((true.div, true.cor), abs=0.02)


def of_two_normals(mean: float) -> DensitiesAtPoints:
    """N(0, 1) and N(mean, 1) of one class, at a million points."""
    low, high = -10.0, mean + 10
    z = np.linspace(low, high, 1_000_001)
    log_p, log_q = norm.logpdf(z), norm.logpdf(z, mean)
    uniform = np.full(len(z), -np.log(high - low))
    none = np.array([], dtype=int)
    return DensitiesAtPoints(
        log_p, log_q, uniform, log_p[None], log_q[None], np.ones(1), np.zeros(1, int), none
    )


@pytest.mark.parametrize(
    ("mean", "eps_div", "div"),
    [
        (4, 1e-12, 4.678422519e-4),
        (6, 1e-12, 0.095236080),
        (8, 1e-12, 0.755159530),
        (1, 1e-3, 0.006660780),
        (4, 1e-3, 0.704831592),
        (6, 1e-3, 0.994174331),
        (8, 1e-3, 0.999936658),
    ],
)
def test_diversity_of_two_normals(mean: float, eps_div: float, div: float) -> None:
    assert from_densities(of_two_normals(mean), eps_div, 5e-4).div == pytest.approx(div, rel=1e-4)


@pytest.mark.parametrize(
    ("mean", "tv", "h2"),
    [
        (0.5, 0.197412651, 0.030766766),
        (1, 0.382924923, 0.117503097),
        (2, 0.682689492, 0.393469340),
        (3, 0.866385597, 0.675347533),
    ],
)
def test_total_variation_and_hellinger_of_two_normals(mean: float, tv: float, h2: float) -> None:
    found = from_densities(of_two_normals(mean), np.inf, 0)
    assert (found.div, found.div_plus) == pytest.approx((tv, h2), rel=1e-5)
    assert (found.cor, found.cor_plus) == pytest.approx(
        (0, 0), abs=1e-12
    )  # of one class there is none


def opposing(m: int, seed: int = 0) -> DensityShift:
    """Both sides N(0, I_m), 1500 points each; the label is the sign of one coordinate, and the
    reverse in q.
    """
    rng = np.random.default_rng(seed)
    z_p, z_q = rng.normal(size=(2, 1500, m))
    y_p, y_q = (z_p[:, 0] > 0).astype(int), (z_q[:, 0] < 0).astype(int)
    z_p, z_q = standardized(z_p, z_q)
    return shift_by_density(z_p, y_p, z_q, y_q, {"n_points": 3000}, rng=rng)


@pytest.mark.parametrize(("m", "cor"), [(1, 0.909), (2, 0.870), (4, 0.699), (8, 0.000)])
def test_thresholds_on_densities_see_no_correlation_shift_in_eight_dimensions(
    m: int, cor: float
) -> None:
    """The truth is 1 in all four: the density of N(0, I_8) is nowhere much above 5e-4."""
    found = opposing(m)
    assert found.cor == pytest.approx(cor, abs=0.03)
    assert (found.in_t < 0.01) == (m == 8)


def with_novel_shares(a: float, b: float, options: Options) -> DensityShift:
    """One coordinate is -3 for a share a of p and 3 for a share b of q, else 0; one tells the
    class; deviation 0.3.
    """
    rng, y = np.random.default_rng(0), np.arange(1000) % 2
    sides = []
    for share, novel in ((a, -3), (b, 3)):
        z = 0.3 * rng.normal(size=(1000, 8))
        z[:, 0] += novel * (rng.random(1000) < share)
        z[:, 1] += 2 * y - 1
        sides.append(z)
    z_p, z_q = standardized(*sides)
    return shift_by_density(z_p, y, z_q, y, options, rng=rng)


@pytest.mark.parametrize(("a", "b", "div"), [(0, 0, 0), (0.2, 0.5, 0.03), (1, 1, 1)])
def test_diversity_of_a_share_of_the_images_is_hardly_seen(a: float, b: float, div: float) -> None:
    """The truth is (a + b) / 2, 0.35 in the second case:
    near 0 both densities count as positive.
    """
    assert with_novel_shares(a, b, {"n_points": 3000}).div == pytest.approx(div, abs=0.03)


def test_points_of_the_pooled_density_may_give_more_than_one() -> None:
    """Two tight clusters in eight dimensions, truth 1: weights of drawn points are bounded under
    the mixture only.
    """
    y, found = np.arange(1000) % 2, {}
    for proposal in ("pooled", "mixture"):
        found[proposal] = []
        for seed in range(5):
            rng = np.random.default_rng(seed)
            p, q = 0.05 * rng.normal(size=(2, 1000, 8))
            z_p, z_q = standardized(p, q + 3 * np.eye(8)[0])
            options = {"n_points": 3000, "proposal": proposal}
            found[proposal].append(shift_by_density(z_p, y, z_q, y, options, rng=rng).div)
    assert found["mixture"] == pytest.approx([1] * 5, abs=1e-9)
    assert max(found["pooled"]) > 1.01 and found["pooled"] == pytest.approx([1] * 5, abs=0.2)


def random_sides(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), 20)
    z_p, z_q = (
        rng.normal(size=(60, 2)) * rng.uniform(0.05, 2, 2) + rng.normal(size=(3, 2))[y] * 2
        for _ in range(2)
    )
    z_p, z_q = standardized(z_p, z_q)
    return z_p, y, z_q, y


@pytest.mark.parametrize("seed", range(8))
def test_mixtures_are_shares_for_any_draws(seed: int) -> None:
    options = {"density": "mixture", "proposal": "mixture", "n_points": 300, "eps_cor": 1e-5}
    found = shift_by_density(*random_sides(seed), options, rng=np.random.default_rng(seed))
    assert all(0 <= value <= 1 for value in both(found))
    assert found.div_plus <= found.div and found.cor_plus <= found.cor


@pytest.mark.parametrize("options", [{}, MIXTURE])
def test_no_value_knows_which_side_is_p(options: Options) -> None:
    z_p, y_p, z_q, y_q = random_sides(3)
    first = shift_by_density(z_p, y_p, z_q, y_q, options, grid=grid())
    second = shift_by_density(z_q, y_q, z_p, y_p, options, grid=grid())
    assert both(first) == pytest.approx(both(second), rel=1e-12)


def test_equal_sides_have_no_shift() -> None:
    z, y, _, _ = random_sides(0)
    assert both(shift_by_density(z, y, z, y, {}, grid=grid())) == pytest.approx(
        (0, 0, 0, 0), abs=1e-15
    )


def test_shuffled_labels_leave_diversity_alone() -> None:
    z_p, y_p, z_q, y_q = random_sides(1)
    rng = np.random.default_rng(0)
    own = shift_by_density(z_p, y_p, z_q, y_q, {}, grid=grid())
    shuffled = shift_by_density(
        z_p, rng.permutation(y_p), z_q, rng.permutation(y_q), {}, grid=grid()
    )
    assert shuffled.div == own.div


def test_classes_without_a_density_are_left_out_and_named() -> None:
    z_p, y_p, z_q, y_q = random_sides(2)
    few = np.array([9, 9])
    in_line = np.outer(np.arange(5), [1.0, 1.0])
    z_p, y_p = np.concatenate([z_p, z_p[:2], in_line]), np.concatenate([y_p, few, np.full(5, 8)])
    z_q, y_q = np.concatenate([z_q, z_q[:2], z_q[:5]]), np.concatenate([y_q, few, np.full(5, 8)])
    found = shift_by_density(z_p, y_p, z_q, y_q, {}, grid=grid())
    assert found.classes_used.tolist() == [0, 1, 2]
    assert found.classes_failed.tolist() == [8, 9]
    assert found.cor == pytest.approx(
        found.by_class.mean()
    )  # equal numbers of the classes that are left


def test_without_any_class_there_is_diversity_only() -> None:
    z_p, _, z_q, _ = random_sides(2)
    own_each = np.arange(60)
    found = shift_by_density(z_p, own_each, z_q, own_each, {}, grid=grid())
    assert np.isnan([found.cor, found.cor_plus]).all() and found.div > 0
    with pytest.raises(DataError, match=r"more images.*density=separate"):
        shift_by_density(z_p, own_each, z_q, own_each, MIXTURE, grid=grid())


def test_a_side_without_a_density_is_refused() -> None:
    z_p, y_p, z_q, y_q = random_sides(2)
    with pytest.raises(DataError, match=r"features.*q.*density: 60 points.*plane.*more images"):
        shift_by_density(z_p, y_p, z_q * [1, 0], y_q, {}, grid=grid())


def test_where_correlation_is_not_taken_ratios_may_overflow() -> None:
    one = (
        np.array([-4000.0]),
        np.array([0.0]),
        np.array([0.0]),
        np.array([[-1000.0]]),
        np.array([[0.0]]),
    )
    found = from_densities(
        DensitiesAtPoints(*one, np.ones(1), np.zeros(1, int), np.array([], int)), 1e-12, 5e-4
    )
    assert both(found) == (0.5, 0, 0.5, 0)


def test_effective_sample_size() -> None:
    """Weights 1, 1, 2 and 0: 4^2 / 6."""
    half = np.log([0.25, 0.25, 0.5, 1e-300])
    uniform, one, none = np.log(np.full(4, 0.25)), np.zeros(1, int), np.array([], int)
    densities = DensitiesAtPoints(
        half, half, uniform, half[None], half[None], np.ones(1), one, none
    )
    assert from_densities(densities, 1e-12, 5e-4).ess == pytest.approx(16 / 6)


def test_thresholds_can_be_applied_to_densities_that_are_known() -> None:
    sides = random_sides(4)
    known = densities_at(*sides, np.random.default_rng(5))
    options = {"eps_div": 1e-3, "eps_cor": 1e-2}
    assert both(from_densities(known, 1e-3, 1e-2)) == both(
        shift_by_density(*sides, options, rng=np.random.default_rng(5))
    )
    assert known.log_proposal.shape == known.log_p.shape == (10_000,)
    assert known.log_p_class.shape == (3, 10_000)


def test_points_come_from_a_generator_or_a_grid() -> None:
    with pytest.raises(ValueError, match="generator"):
        densities_at(*random_sides(0))
