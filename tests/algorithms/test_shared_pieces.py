"""Pairings, gradients, distances and quantiles against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.algorithms.cad import domain_bottleneck
from dgbench.algorithms.eqrm import kernel_quantile
from dgbench.algorithms.rsc import _quantile
from dgbench.batches import EnvBatch
from dgbench.containers import BoundNetworks, Networks
from dgbench.objectives.distances import (
    BANDWIDTHS,
    environment_variances,
    kernel_distance,
    mean_kernels,
    mean_mmd,
    mean_moment_distance,
    moment_distance,
)
from dgbench.objectives.gradients import (
    MODEL,
    environment_gradients,
    risk_and_gradient,
    scale_gradient,
)
from dgbench.objectives.pairing import cyclic_pairs, pair_rows, shuffle_second
from dgbench.objectives.step import Permutation

SIZES = (3, 2, 4)


def _batch(sizes: tuple[int, ...] = SIZES, m: int = 5) -> EnvBatch:
    rng = np.random.default_rng(0)
    n = sum(sizes)
    return EnvBatch(
        torch.as_tensor(rng.normal(size=(n, m))), torch.as_tensor(rng.integers(3, size=n)), sizes
    )


def _networks(norm: bool = False) -> Networks:
    body = nn.Sequential(nn.Linear(5, 4), *([nn.BatchNorm1d(4)] if norm else []))
    return Networks({"featurizer": body, "classifier": nn.Linear(4, 3)}).double()


def test_environment_of_each_row() -> None:
    assert _batch().env.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]


def test_cyclic_pairs_of_unequal_minibatches() -> None:
    """Order 1, 0, 2 of environments with rows 0-2, 3-4, 5-8: pairs (1,0), (0,2), (2,1), cut to 2,
    3, 2 rows.
    """
    pairs = cyclic_pairs(_batch(), torch.tensor([1, 0, 2]))
    assert pairs.first.tolist() == [[3, 4, 4, 4], [0, 1, 2, 2], [5, 6, 7, 8]]
    assert pairs.second.tolist() == [[0, 1, 2, 2], [5, 6, 7, 8], [3, 4, 4, 4]]
    third = 1 / 3
    expected = torch.tensor([[0.5, 0.5, 0, 0], [third, third, third, 0], [0.5, 0.5, 0, 0]])
    torch.testing.assert_close(pairs.weight, expected.double())


def test_shuffled_side_keeps_its_rows() -> None:
    batch = _batch()
    pairs = pair_rows(batch, torch.tensor([0, 2]), torch.tensor([1, 0]))
    keys = torch.tensor([[0.9, 0.1, 0.0, 0.0], [0.5, 0.9, 0.2, 0.0]])
    shuffled = shuffle_second(pairs, keys)
    assert shuffled.second[0, :2].tolist() == [4, 3]
    assert shuffled.second[1, :3].tolist() == [2, 0, 1]
    assert torch.equal(shuffled.first, pairs.first)


def test_drawn_permutations() -> None:
    drawn = Permutation((2, 4)).draw(np.random.default_rng(0), 50)
    assert (np.sort(drawn, -1) == np.arange(4)).all()
    assert len(np.unique(drawn.reshape(-1, 4), axis=0)) > 15


def test_scaled_gradient() -> None:
    z = torch.tensor([1.25, -3.5], requires_grad=True)
    scaled = scale_gradient(z, -0.5)
    assert torch.equal(scaled, z)
    scaled.sum().backward()
    assert z.grad is not None
    assert z.grad.tolist() == [-0.5, -0.5]


def test_running_statistics_are_kept_or_thrown_away() -> None:
    nets, batch = _networks(norm=True), _batch()
    reference = _networks(norm=True)
    reference.load_state_dict(nets.state_dict())
    risk = F.cross_entropy(reference.logits(batch.x), batch.y)
    expected = torch.autograd.grad(risk, list(reference.params().values()))

    def measured(bound: BoundNetworks) -> Tensor:
        return F.cross_entropy(bound.logits(batch.x), batch.y)

    before = nets.featurizer[1].running_mean.clone()  # type: ignore[index]
    for keep in (False, True):
        value, gradient = risk_and_gradient(
            nets, nets.params(*MODEL), measured, keep_statistics=keep
        )
        torch.testing.assert_close(value, risk)
        torch.testing.assert_close(list(gradient.values()), list(expected))
        assert torch.equal(nets.featurizer[1].running_mean, before) != keep  # type: ignore[index]
    torch.testing.assert_close(nets.statistics(), reference.statistics())


@pytest.mark.parametrize("together", [False, True])
def test_environment_gradients(together: bool) -> None:
    nets, batch = _networks(), _batch()
    risks, gradients = environment_gradients(nets, nets.params(*MODEL), batch, together)
    for e, (x, y) in enumerate(zip(batch.split(batch.x), batch.split(batch.y), strict=True)):
        risk = F.cross_entropy(nets.logits(x), y)
        torch.testing.assert_close(risks[e], risk)
        expected = torch.autograd.grad(risk, list(nets.params().values()))
        torch.testing.assert_close([g[e] for g in gradients.values()], list(expected))


def test_gradient_of_the_mean_kernel() -> None:
    """Against the plain sum of exponentials, alone and mapped over runs; two equal rows have no
    slope.
    """
    z = torch.rand(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mul_(8)
    z[0, 1] = z[0, 0]
    weights = torch.tensor([[0.5, 0.5, 0, 0, 0], [0, 0, 0.2, 0.3, 0.5]], dtype=torch.float64)

    def plain(u: Tensor) -> Tensor:
        squares = (u[:, None] - u[None]).square().sum(2)
        return weights @ torch.stack([(-g * squares).exp() for g in BANDWIDTHS]).sum(0) @ weights.T

    def means(u: Tensor) -> Tensor:
        return mean_kernels(u, weights)

    def scalar(kernel: Tensor) -> Tensor:  # its gradient is not symmetric
        return (
            (kernel * torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64)).square().sum()
        )

    torch.testing.assert_close(means(z[0]), plain(z[0]))
    one = z.clone().requires_grad_()
    expected = torch.stack([torch.autograd.grad(scalar(plain(u)), u)[0] for u in one.unbind()])
    torch.testing.assert_close(
        torch.stack([torch.autograd.grad(scalar(means(u)), u)[0] for u in one]), expected
    )
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(lambda u: scalar(means(u))))(z), expected
    )
    together = torch.func.vmap(lambda u: scalar(means(u)))(one).sum()
    (gradient,) = torch.autograd.grad(together, one, create_graph=True)
    torch.testing.assert_close(gradient, expected)
    with pytest.raises(RuntimeError, match="differentiat"):
        torch.autograd.grad(gradient.sum(), one)


def test_mean_kernel_with_weights_of_each_run() -> None:
    """Other bandwidths, and weights that differ between the runs of a stack."""
    rng = torch.Generator().manual_seed(0)
    z, weights = (
        torch.rand(2, n, m, dtype=torch.float64, generator=rng) for n, m in ((5, 3), (2, 5))
    )

    def plain(u: Tensor, w: Tensor) -> Tensor:
        squares = (u[:, None] - u[None]).square().sum(2)
        kernel = w @ torch.stack([(-g * squares).exp() for g in (0.5, 2.0)]).sum(0) @ w.T
        return kernel[0, 0] + kernel[1, 1] - 2 * kernel[0, 1]

    def distance(u: Tensor, w: Tensor) -> Tensor:
        return kernel_distance(u, w, (0.5, 2.0))

    for axes, given in (((0, 0), weights), ((0, None), weights[0])):
        expected = [
            torch.func.grad_and_value(plain)(u, given[r] if axes[1] == 0 else given)
            for r, u in enumerate(z)
        ]
        slopes, values = torch.func.vmap(torch.func.grad_and_value(distance), in_dims=axes)(
            z, given
        )
        torch.testing.assert_close(slopes, torch.stack([slope for slope, _ in expected]))
        torch.testing.assert_close(values, torch.stack([value for _, value in expected]))


def test_moment_distance_of_two_groups() -> None:
    """Against torch's covariances; a group of one row is finite."""
    z = _batch().x
    member = torch.tensor([[1, 0, 0, 1, 1, 0, 1, 0, 0]], dtype=torch.float64)
    a, b = z[member[0] == 1], z[member[0] == 0]
    expected = (a.mean(0) - b.mean(0)).pow(2).mean() + (torch.cov(a.T) - torch.cov(b.T)).pow(
        2
    ).mean()
    torch.testing.assert_close(moment_distance(z, torch.cat([member, 1 - member])), expected)
    alone = torch.eye(9, dtype=torch.float64)[:1]
    assert moment_distance(z, torch.cat([alone, 1 - alone])).isfinite()


def test_variances_within_environments() -> None:
    batch = _batch()
    torch.testing.assert_close(
        environment_variances(batch.x, batch),
        torch.stack([part.var(0) for part in batch.split(batch.x)]),
    )


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("flipped", [False, True])
def test_domain_bottleneck_row_by_row(conditional: bool, flipped: bool) -> None:
    """Against plain sums; a label of its own, and a class in one environment only,
    leave rows out.
    """
    batch = _batch()
    y, env = torch.tensor([0, 0, 1, 1, 0, 2, 3, 3, 0]), batch.env
    z, temperature = batch.x.clone().requires_grad_(), torch.tensor(0.5, dtype=torch.float64)
    terms = []
    for i in range(9):
        others = [j for j in range(9) if j != i]
        a = {j: z[i] @ z[j] / temperature for j in others} | {
            i: torch.zeros((), dtype=torch.float64)
        }
        of_class = [j for j in others if y[j] == y[i]]
        near = [j for j in range(9) if (env[j] == env[i]) != flipped]
        if conditional:
            near = [j for j in near if j in of_class]
        if of_class and near:
            above, below = (
                sum(a[j].exp() for j in rows)
                for rows in (near, of_class if conditional else others)
            )
            terms.append((above / below).log() * (1 if flipped else -1))
    expected = -temperature / 0.07 * torch.stack(terms).mean()
    found = domain_bottleneck(z, y, env, temperature, conditional=conditional, flipped=flipped)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, z), torch.autograd.grad(expected, z))


def test_domain_bottleneck_of_one_environment_is_zero() -> None:
    z = _batch().x.requires_grad_()
    y, env = torch.zeros(9, dtype=torch.long), torch.zeros(9, dtype=torch.long)
    for conditional in (False, True):
        found = domain_bottleneck(
            z, y, env, torch.tensor(0.1), conditional=conditional, flipped=True
        )
        assert found == 0
        assert not torch.autograd.grad(found, z)[0].any()


def test_mmd_is_the_mean_over_pairs() -> None:
    batch = _batch()
    parts = batch.split(batch.x)

    def kernel(a: Tensor, b: Tensor) -> float:
        squares = ((a[:, None] - b[None]) ** 2).sum(-1)
        return sum(float((-g * squares).exp().mean()) for g in BANDWIDTHS)

    pairs = [(parts[i], parts[j]) for i in range(3) for j in range(i + 1, 3)]
    expected = sum(kernel(a, a) + kernel(b, b) - 2 * kernel(a, b) for a, b in pairs) / 3
    assert float(mean_mmd(batch.x, batch)) == pytest.approx(expected, rel=1e-9)
    assert float(mean_mmd(batch.x, EnvBatch(batch.x, batch.y, (9,)))) == 0


def test_moment_distance_is_the_mean_over_pairs() -> None:
    batch = _batch()
    parts = batch.split(batch.x)
    pairs = [(parts[i], parts[j]) for i in range(3) for j in range(i + 1, 3)]
    expected = sum(
        float(
            (a.mean(0) - b.mean(0)).pow(2).mean() + (torch.cov(a.T) - torch.cov(b.T)).pow(2).mean()
        )
        for a, b in pairs
    )
    assert float(mean_moment_distance(batch.x, batch)) == pytest.approx(expected / 3, rel=1e-9)
    assert float(mean_moment_distance(batch.x, EnvBatch(batch.x, batch.y, (9,)))) == 0


@pytest.mark.parametrize("q", [0.0, 1 / 3, 0.5, 2 / 3, 1.0])
def test_quantile_is_numpys(q: float) -> None:
    values = _batch().x
    expected = np.percentile(values.numpy(), 100 * q, axis=1, keepdims=True)
    torch.testing.assert_close(
        _quantile(values, torch.tensor(q, dtype=torch.float64)), torch.as_tensor(expected)
    )


def test_kernel_quantile_follows_the_literal_bisection() -> None:
    """The reference bisects the risk itself;
    the library bisects the weight between its two ends.
    """

    def normal(t: float) -> float:
        return 0.5 * (1 + math.erf(t / math.sqrt(2)))

    rng = np.random.default_rng(0)
    for alpha in (0.5, 0.75, 0.99):
        risks = np.sort(rng.uniform(0.1, 3, size=4))
        width = 1.06 * risks.std(ddof=1) * 4**-0.2
        z = float(torch.special.ndtri(torch.tensor(alpha, dtype=torch.float64)))
        lo, hi = risks[0] + width * z, risks[-1] + width * z
        k = (lo + hi) / 2
        for _ in range(32):
            if np.mean([normal((k - s) / width) for s in risks]) > alpha:
                hi = k
            else:
                lo = k
            if k == (k := (lo + hi) / 2):
                break
        found = kernel_quantile(
            torch.as_tensor(risks[[2, 0, 3, 1]]), torch.tensor(alpha, dtype=torch.float64)
        )
        assert float(found) == pytest.approx(k, abs=1e-9)


def test_kernel_quantile_of_equal_risks_has_a_finite_gradient() -> None:
    risks = torch.full((3,), 1.5, dtype=torch.float64, requires_grad=True)
    kernel_quantile(risks, torch.tensor(0.75, dtype=torch.float64)).backward()
    assert risks.grad is not None
    assert risks.grad.isfinite().all()
