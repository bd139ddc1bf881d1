"""The pieces of StableNet, FACT, JiGen, MMLD and AdaClust, against autograd, plain loops or
arithmetic by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dgbench.algorithms.ada_clust import AdaClust
from dgbench.algorithms.fact import FACT
from dgbench.algorithms.ji_gen import assemble, cut, framed, orders, square
from dgbench.algorithms.mmld import MMLD
from dgbench.algorithms.stable_net import dependence_slope, random_functions
from dgbench.batches import EnvBatch
from dgbench.network_specs import Sizes
from dgbench.objectives import clustering
from dgbench.objectives.pixels import amplitude_mix, from_pixels, quantized, to_pixels
from dgbench.objectives.step import dropped, epoch_of
from dgbench.training.modules.factory import algorithm
from dgbench.training.optimizers import UpdateRule

IMAGE = (3, 10, 11)
SIZES = Sizes(5, 3, 2, IMAGE, pixel_mean=(0.485, 0.456, 0.406), pixel_std=(0.229, 0.224, 0.225))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dependence(slices: Tensor, weight: Tensor) -> Tensor:
    """Summed squares of the covariances between different features, weights (R,) of the rows of
    (slices, R, m).
    """
    mean = weight @ slices  # (slices, m)
    covariance = (slices * weight[:, None]).mT @ slices - mean[:, :, None] * mean[:, None]
    return covariance.square().sum() - covariance.diagonal(dim1=1, dim2=2).square().sum()


@pytest.mark.parametrize(("rows", "features"), [(9, 4), (4, 9), (6, 6)])
def test_slope_of_the_dependence(rows: int, features: int) -> None:
    w, b = random(3, seed=1) - 0.5, 6 * random(features, 3, seed=2)
    for together in (False, True):
        slices = random_functions(random(rows, features), w, b, together)
        assert slices.shape == (3 if together else 6, rows, features)
        weight = random(rows, seed=3).softmax(0).requires_grad_()
        (expected,) = torch.autograd.grad(dependence(slices, weight), weight)
        torch.testing.assert_close(
            dependence_slope(slices, weight.detach()), expected, rtol=1e-11, atol=1e-13
        )


def test_amplitude_mix_against_the_whole_transform() -> None:
    u, partner, weight = (
        random(4, *IMAGE),
        torch.tensor([2, 3, 1, 0]),
        torch.tensor([0.0, 0.3, 1.0, 0.7]).double(),
    )
    spectrum = torch.fft.fft2(u)
    amplitude, share = spectrum.abs(), weight[:, None, None, None]
    mixed = (1 - share) * amplitude + share * amplitude[partner]
    expected = torch.fft.ifft2(mixed * torch.exp(1j * spectrum.angle())).real.clamp(0, 1)
    found = amplitude_mix(u, partner, weight)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found[0], u[0])
    black = amplitude_mix(torch.zeros(2, 1, 4, 4), torch.tensor([1, 0]), torch.tensor([0.5, 0.5]))
    assert torch.equal(black, torch.zeros(2, 1, 4, 4))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_pixels_there_and_back_keep_their_8_bits(kind: torch.dtype) -> None:
    levels = torch.arange(256).repeat(3).view(1, 3, 16, 16)
    u = levels.to(kind) / 255
    again = to_pixels(from_pixels(u, SIZES), SIZES)
    torch.testing.assert_close(again, u)
    assert torch.equal((255 * quantized(again)).round().long(), levels)
    plain = Sizes(5, 3, 2, IMAGE)
    assert to_pixels(u, plain) is u and from_pixels(u, plain) is u


def test_tiles() -> None:
    x = random(2, *IMAGE)
    rows, columns = square(*IMAGE[1:])
    assert (rows, columns) == (slice(0, 9), slice(1, 10)) and square(224, 28) == (
        slice(1, 223),
        slice(0, 27),
    )
    inner = x[..., rows, columns]
    tiles = cut(inner)
    torch.testing.assert_close(tiles[:, 5], inner[:, :, 3:6, 6:9])
    assert torch.equal(assemble(tiles), inner)
    assert torch.equal(framed(inner, x), x)
    shown = framed(torch.zeros_like(inner), x)
    assert not shown[..., rows, columns].any() and torch.equal(shown[..., 9, :], x[..., 9, :])


def test_orders_of_another_number_are_far_apart() -> None:
    found = orders(12)
    assert found == orders(20)[:13] and len(set(found)) == 13 and found[0] == tuple(range(9))
    assert (
        min(
            sum(a != b for a, b in zip(p, q, strict=True))
            for p in found[1:]
            for q in found[1:]
            if p != q
        )
        >= 7
    )


def test_epochs_and_drops() -> None:
    assert [epoch_of(t, 3, 10) for t in (0, 3, 4, 9)] == [0, 0, 1, 2]
    assert [dropped(t, 0.8, 10) for t in (7, 8)] == [1.0, 0.1] and dropped(10, 1.0, 10) == 1.0


# ---- clusters


def blobs(n: int = 40, k: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    truth = torch.arange(n) % k
    centers = 10 * random(k, 3, seed=seed)
    return centers[truth] + 0.1 * random(n, 3, seed=seed + 1), truth


def test_kmeans_finds_clear_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, truth = blobs()
    found = clustering.kmeans(rows, 5, np.random.default_rng(0))
    assert len(set(zip(found.labels.tolist(), truth.tolist(), strict=True))) == 5
    own = sum(float((rows[truth == k] - rows[truth == k].mean(0)).square().sum()) for k in range(5))
    assert found.inertia == pytest.approx(own, rel=1e-9)
    again = clustering.kmeans(rows, 5, np.random.default_rng(0))
    assert torch.equal(again.labels, found.labels) and again.inertia == found.inertia
    means, counts = clustering.means_of(rows, truth, 5)
    monkeypatch.setattr(clustering, "MOST_MEMBERSHIPS", 7)  # rows in many parts
    for whole, parts in zip((means, counts), clustering.means_of(rows, truth, 5), strict=True):
        torch.testing.assert_close(parts, whole)


def test_kmeans_of_few_rows() -> None:
    same = clustering.kmeans(torch.ones(2, 3), 4, np.random.default_rng(0))
    assert same.inertia == 0 and same.centers.shape == (4, 3)
    two = clustering.kmeans(torch.tensor([[0.0], [1.0]]), 3, np.random.default_rng(0))
    assert sorted(two.centers[two.labels].flatten().tolist()) == [0.0, 1.0]


def test_principal_components() -> None:
    rows = random(30, 6)
    found = clustering.principal_components(rows, 4)
    expected = np.linalg.svd((rows - rows.mean(0)).numpy(), full_matrices=False)
    np.testing.assert_allclose(found.abs(), np.abs(expected[0] * expected[1])[:, :4], atol=1e-12)
    assert clustering.principal_components(rows, 256).shape == (30, 6)


# ---- schedules of the algorithms


def made(name: str, steps: int = 100, images: int = 30, **hparams: Any) -> Any:
    """An algorithm on so many training images in minibatches of 3."""
    return algorithm(
        name, nn.Sequential(nn.Flatten(), nn.Linear(330, 12)), 3, 2, {"batch_size": 3, **hparams},
        n_features=12, image=IMAGE, n_images=60, n_trained_on=images, rule=UpdateRule(steps=steps),
    ).module.algorithm  # fmt: skip


def due(algorithm: Any) -> list[int]:
    return [t for t in range(algorithm.sizes.n_steps) if algorithm.survey_due(t)]


def test_surveys_of_mmld_are_evenly_spread() -> None:
    assert due(made("mmld", rounds=3)) == [0, 34, 67]
    assert due(made("mmld", steps=2, rounds=30)) == [0, 1]
    algorithm: MMLD = made("mmld", rounds=3, drop_lr_at=0.8, head_factor=5.0)
    assert [algorithm.lr_factor(group, t) for group in ("body", "heads") for t in (79, 80)] == [
        1,
        0.1,
        5,
        0.5,
    ]


def test_mmld_divides_by_the_weights_of_the_minibatch() -> None:
    port = algorithm(
        "mmld", nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), 3, 1, {"disc_width": 5},
        n_features=4, image=(3, 2, 2), n_images=4, rule=UpdateRule(steps=300),
    )  # fmt: skip
    own, seen = port.module, []
    own.collects, own.steps_done = True, 101
    group, weight = torch.tensor([0, 0, 2, 1]), torch.tensor([0.5, 1.5, 1.0], dtype=torch.float64)
    own.memory.assign({"group": group, "group_weight": weight})
    own.networks["disc_3"].register_forward_hook(lambda *call: seen.append(call[2].detach()))
    port.step(EnvBatch(random(4, 3, 2, 2), torch.tensor([0, 1, 2, 0]), (4,), torch.arange(4)))
    logged = {name: float(value[0]) for _, name, value in own.take_values()}
    expected = nn.functional.cross_entropy(seen[0], group, weight)
    assert logged["discriminator_loss"] == pytest.approx(float(expected), rel=1e-12)


def test_surveys_of_ada_clust_double() -> None:
    assert due(made("ada_clust")) == [0, 10, 20, 40, 80]
    assert due(made("ada_clust", clust_epoch=3)) == [0, 30, 60, 90]
    assert due(made("ada_clust", images=60, steps=41)) == [0, 20, 40]
    assert AdaClust.group_size({"test_centroids": "together", "batch_size": 3}) == 3
    assert [
        len(made("ada_clust", offset=k).initial_state(None)["basis"]) for k in (0, 8, 11, 12, 512)
    ] == [
        12,
        4,
        1,
        6,
        6,
    ]


def test_weight_of_fact_rises_in_the_first_epochs() -> None:
    fact: FACT = made("fact")
    port = algorithm("fact", nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), 3, 1, n_features=4,
        image=(3, 2, 2),
                             rule=UpdateRule(steps=100))  # fmt: skip
    port.module.collects = True
    x, y = random(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    for t in (0, 2, 4, 10, 50):
        port.module.steps_done = t
        port.step([(x, y)])
    logged = [
        float(value[0]) for _, name, value in port.module.take_values() if name == "penalty_weight"
    ]
    assert logged == pytest.approx([2 * np.exp(-5 * (1 - e / 5) ** 2) for e in (0, 1, 2, 5, 5)])
    assert fact.lr_factor("model", 99) == 1


def test_quarter_cosine_of_stable_net() -> None:
    algorithm = made("stable_net", decay_lr="quarter_cosine", epochs=10)
    assert algorithm.lr_factor("model", 0) == 1
    assert algorithm.lr_factor("model", 50) == pytest.approx((0.01 + np.cos(np.pi / 4)) / 1.01)
