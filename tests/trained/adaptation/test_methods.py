"""Each method against its formulas, written apart in a few lines and in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.data.description import Preprocessing
from dgbench.trained.adaptation import Adaptation
from dgbench.trained.adaptation.bn import BatchNormStatistics
from dgbench.trained.adaptation.norms import norm_layers
from dgbench.trained.adaptation.sar import SAR
from dgbench.trained.adaptation.t3a import T3A
from dgbench.trained.adaptation.tent import Tent
from dgbench.trained.foreign import Foreign
from dgbench.trained.matched import Matched
from tests.complaints import refused

IMAGE = (1, 2, 3)
D, H, K = 6, 5, 3  # pixels, hidden units, classes
EPS = 1e-5
IMAGES = Preprocessing(IMAGE, (0.0,), (1.0,))
SAR_KEYS: dict[str, Any] = {
    "lr": 0.5,
    "momentum": 0.9,
    "rho": 0.05,
    "margin": 0.8,
    "recovery": 0.0,
    "steps": 1,
    "skip": [],
}
ADAM: dict[str, Any] = {"lr": 0.1, "optimizer": "adam", "momentum": 0.8, "steps": 1}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


class Parts:
    """Tensors of the network below: linear, BatchNorm, ReLU, linear."""

    def __init__(self, scale: float = 3.0) -> None:
        self.w1 = torch.randn(H, D)
        self.b1 = torch.randn(H)
        self.gamma = 1 + 0.3 * torch.randn(H)
        self.beta = 0.3 * torch.randn(H)
        self.mean = 0.5 * torch.randn(H)
        self.variance = 1 + torch.rand(H)
        self.w2 = scale * torch.randn(K, H)
        self.b2 = torch.randn(K)

    def network(self, norm: Callable[[int], nn.Module] = nn.BatchNorm1d) -> Matched:
        layers = [nn.Flatten(), nn.Linear(D, H), norm(H), nn.ReLU(), nn.Linear(H, K)]
        body = nn.Sequential(*layers)
        values = {
            "1.weight": self.w1,
            "1.bias": self.b1,
            "2.weight": self.gamma,
            "2.bias": self.beta,
            "2.running_mean": self.mean,
            "2.running_var": self.variance,
            "4.weight": self.w2,
            "4.bias": self.b2,
        }
        body.load_state_dict(
            {key: values[key] for key in body.state_dict() if key in values}, False
        )
        classes = ["a", "b", "c"]
        return Matched(Foreign(body.eval(), classes, IMAGES), classes, IMAGES, at_once=True)

    def logits(
        self, x: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor
    ) -> Tensor:
        h = x.flatten(1) @ self.w1.T + self.b1
        h = gamma * (h - mean) / (variance + EPS).sqrt() + beta
        return h.relu() @ self.w2.T + self.b2

    def of_batch(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        """Logits with mean and biased variance of the batch, through which gradients flow."""
        h = x.flatten(1) @ self.w1.T + self.b1
        return self.logits(x, h.mean(0), h.var(0, correction=0), gamma, beta)


def stream(batches: int = 4, n: int = 7) -> list[Tensor]:
    return [torch.randn(n, *IMAGE) for _ in range(batches)]


def adapted(method: Adaptation, network: Matched, batches: list[Tensor]) -> list[Tensor]:
    method.check(network, IMAGE)
    adapt = method.start(deepcopy(network))
    with torch.no_grad():
        return [adapt(x) for x in batches]


def mean_entropy(logits: Tensor) -> Tensor:
    p = logits.exp() / logits.exp().sum(1, keepdim=True)
    return -(p * p.log()).sum(1).mean()


def entropies(logits: Tensor) -> Tensor:
    p = logits.exp() / logits.exp().sum(1, keepdim=True)
    return -(p * p.log()).sum(1)


# ---- BatchNorm -----------------------------------------------------------------------------------


def test_statistics_of_the_batch() -> None:
    parts = Parts()
    batches = stream()
    for x, logits in zip(
        batches, adapted(BatchNormStatistics(prior=0), parts.network(), batches), strict=True
    ):
        torch.testing.assert_close(logits, parts.of_batch(x, parts.gamma, parts.beta))


@pytest.mark.parametrize("prior", [1, 16, 256.0])
def test_statistics_mixed_with_those_of_training(prior: float) -> None:
    """In NumPy: N images of training, n of the test batch, whose variance is unbiased."""
    parts = Parts()
    for n in (2, 7):
        (x,) = stream(1, n)
        (logits,) = adapted(BatchNormStatistics(prior=prior), parts.network(), [x])
        h = x.flatten(1).numpy() @ parts.w1.numpy().T + parts.b1.numpy()
        share = prior / (prior + n)
        mean = share * parts.mean.numpy() + (1 - share) * h.mean(0)
        variance = share * parts.variance.numpy() + (1 - share) * h.var(0, ddof=1)
        h = parts.gamma.numpy() * (h - mean) / np.sqrt(variance + EPS) + parts.beta.numpy()
        expected = np.maximum(h, 0) @ parts.w2.numpy().T + parts.b2.numpy()
        np.testing.assert_allclose(logits.numpy(), expected, rtol=1e-12)


def test_an_endless_prior_is_no_adaptation() -> None:
    network = Parts().network()
    batches = stream()
    for x, logits in zip(
        batches, adapted(BatchNormStatistics(prior=math.inf), network, batches), strict=True
    ):
        assert torch.equal(logits, network(x))


def test_statistics_of_images_are_taken_over_pixels_too() -> None:
    body = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(24, K))
    network = Matched(Foreign(body.eval(), ["a", "b", "c"], IMAGES), ["a", "b", "c"], IMAGES)
    (x,) = stream(1, 5)
    (logits,) = adapted(BatchNormStatistics(prior=5), network, [x])
    h = body[0](x)
    mean = 0.5 * 0 + 0.5 * h.mean((0, 2, 3))
    variance = 0.5 * 1 + 0.5 * h.var((0, 2, 3))
    h = (h - mean[:, None, None]) / (variance[:, None, None] + EPS).sqrt()
    torch.testing.assert_close(logits, body[3](h.flatten(1)))


# ---- Tent ----------------------------------------------------------------------------------------


def test_tent_with_adam() -> None:
    """Adam, by hand: what is predicted is what a step starts from."""
    parts = Parts()
    batches = stream()
    found = adapted(Tent(**ADAM), parts.network(), batches)
    lr, beta1, beta2 = 0.1, 0.8, 0.999
    weights = [parts.gamma.clone(), parts.beta.clone()]
    m = [torch.zeros(H), torch.zeros(H)]
    v = [torch.zeros(H), torch.zeros(H)]
    for t, (x, logits) in enumerate(zip(batches, found, strict=True), start=1):
        gamma, beta = (w.requires_grad_() for w in weights)
        expected = parts.of_batch(x, gamma, beta)
        torch.testing.assert_close(logits, expected.detach())
        gradients = torch.autograd.grad(mean_entropy(expected), [gamma, beta])
        for i, g in enumerate(gradients):
            m[i] = beta1 * m[i] + (1 - beta1) * g
            v[i] = beta2 * v[i] + (1 - beta2) * g**2
            step = m[i] / (1 - beta1**t) / ((v[i] / (1 - beta2**t)).sqrt() + 1e-8)
            weights[i] = (weights[i] - lr * step).detach()
    assert not torch.allclose(weights[0], parts.gamma), "something was learned"


def test_tent_with_sgd_and_several_steps() -> None:
    parts = Parts()
    batches = stream()
    keys = {"lr": 0.3, "optimizer": "sgd", "momentum": 0.9, "steps": 3}
    found = adapted(Tent(**keys), parts.network(), batches)
    weights = [parts.gamma.clone(), parts.beta.clone()]
    velocity: list[Tensor] | None = None
    for x, logits in zip(batches, found, strict=True):
        for _ in range(3):
            gamma, beta = (w.detach().requires_grad_() for w in weights)
            expected = parts.of_batch(x, gamma, beta)
            gradients = torch.autograd.grad(mean_entropy(expected), [gamma, beta])
            if velocity is None:
                velocity = list(gradients)
            else:
                velocity = [0.9 * u + g for u, g in zip(velocity, gradients, strict=True)]
            weights = [w - 0.3 * u for w, u in zip((gamma, beta), velocity, strict=True)]
        torch.testing.assert_close(logits, expected.detach())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_tent_at_rate_0_is_batch_statistics(optimizer: str) -> None:
    network = Parts().network()
    batches = stream()
    keys = {**ADAM, "lr": 0.0, "optimizer": optimizer, "steps": 2}
    plain = adapted(BatchNormStatistics(prior=0), network, batches)
    for logits, expected in zip(adapted(Tent(**keys), network, batches), plain, strict=True):
        assert torch.equal(logits, expected)


@pytest.mark.parametrize("method", [Tent(**{**ADAM, "lr": 0.0}), SAR(**{**SAR_KEYS, "lr": 0.0})])
def test_rate_0_without_batchnorm_is_no_adaptation(method: Adaptation) -> None:
    network = Parts().network(nn.LayerNorm)
    batches = stream()
    for x, logits in zip(batches, adapted(method, network, batches), strict=True):
        assert torch.equal(logits, network(x))


def test_only_scales_and_shifts_learn_and_the_model_stays() -> None:
    network = Parts().network()
    before = deepcopy(network.state_dict())
    own = deepcopy(network)
    adapt = Tent(**ADAM).start(own)
    for x in stream():
        adapt(x)
    after = own.state_dict()
    moved = {key for key in after if not torch.equal(after[key], before[key])}
    assert moved == {"model.function.2.weight", "model.function.2.bias"}
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key])


# ---- SAR -----------------------------------------------------------------------------------------


def sar_by_hand(
    parts: Parts, batches: list[Tensor], recovery: float = 0.0, margin: float = 0.8
) -> tuple[list[Tensor], list[bool]]:
    """Logits, and whether weights were set back after each batch."""
    limit = margin * math.log(K)
    weights = [parts.gamma.clone(), parts.beta.clone()]
    velocity: list[Tensor] | None = None
    average: float | None = None
    predicted, resets = [], []
    for x in batches:
        gamma, beta = (w.detach().requires_grad_() for w in weights)
        logits = parts.of_batch(x, gamma, beta)
        predicted.append(logits.detach())
        e = entropies(logits)
        reliable = e < limit
        g = torch.autograd.grad(e[reliable].mean(), [gamma, beta])
        length = math.sqrt(sum(float((each**2).sum()) for each in g))
        up = [
            (w + 0.05 * each / (length + 1e-12)).detach()
            for w, each in zip(weights, g, strict=True)
        ]
        gamma, beta = (w.requires_grad_() for w in up)
        e = entropies(parts.of_batch(x, gamma, beta))[reliable]
        still = e[e < limit]
        g = torch.autograd.grad(still.mean(), [gamma, beta])
        if velocity is None:
            velocity = list(g)
        else:
            velocity = [0.9 * u + each for u, each in zip(velocity, g, strict=True)]
        weights = [w.detach() - 0.5 * u for w, u in zip(weights, velocity, strict=True)]
        value = float(still.detach().mean())
        if not math.isnan(value):
            average = value if average is None else 0.9 * average + 0.1 * value
        resets.append(average is not None and average < recovery)
        if resets[-1]:
            weights = [parts.gamma.clone(), parts.beta.clone()]
    return predicted, resets


def test_sar() -> None:
    parts = Parts()
    batches = stream(5)
    expected, _ = sar_by_hand(parts, batches)
    found = adapted(SAR(**SAR_KEYS), parts.network(), batches)
    for logits, right in zip(found, expected, strict=True):
        torch.testing.assert_close(logits, right)
    plain = adapted(BatchNormStatistics(prior=0), parts.network(), batches)
    assert not torch.allclose(found[-1], plain[-1]), "something was learned"


def test_sar_recovers_from_a_collapse() -> None:
    parts = Parts()
    batches = stream(6)
    for recovery in (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5):
        expected, resets = sar_by_hand(parts, batches, recovery)
        keys = {**SAR_KEYS, "recovery": recovery}
        for logits, right in zip(
            adapted(SAR(**keys), parts.network(), batches), expected, strict=True
        ):
            torch.testing.assert_close(logits, right)
        if any(resets) and not all(resets):
            return
    pytest.fail("no recovery among these was met by some batches alone")


def test_sar_without_a_reliable_image_learns_nothing() -> None:
    parts = Parts(scale=0.01)
    parts.b2.zero_()
    batches = stream()
    plain = adapted(BatchNormStatistics(prior=0), parts.network(), batches)
    found = adapted(SAR(**{**SAR_KEYS, "margin": 0.1}), parts.network(), batches)
    for logits, expected in zip(found, plain, strict=True):
        assert torch.equal(logits, expected)


def test_layers_that_stand_still() -> None:
    """Parts of names, not beginnings: ``blocks.1`` is not ``blocks.10``."""
    blocks = nn.Module()
    blocks.blocks = nn.ModuleList(nn.LayerNorm(2) for _ in range(12))
    blocks.norm = nn.LayerNorm(2)
    blocks.layer4 = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    blocks.bare = nn.BatchNorm1d(2, affine=False)
    blocks.stages = nn.ModuleList([nn.ModuleDict({"norm": nn.LayerNorm(2)})])
    network = nn.ModuleDict({"body": blocks})
    assert len(norm_layers(network)) == 15
    assert len(norm_layers(network, ["blocks.1"])) == 14
    skipped = ["layer4", "blocks.9", "blocks.10", "blocks.11", "norm"]
    assert len(norm_layers(network, skipped)) == 10, "a norm in a numbered stage learns"
    keys = {**SAR_KEYS, "skip": skipped}
    assert SAR(**keys).understood(network) == "10 of 15 normalization layers learn"


# ---- T3A -----------------------------------------------------------------------------------------


def t3a_by_hand(parts: Parts, batches: list[Tensor], keep: int | None) -> list[np.ndarray]:
    """In NumPy, class by class."""
    w, b = parts.w2.numpy(), parts.b2.numpy()

    def predicted(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = z @ w.T + b
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return logits.argmax(1), -(p * np.log(p)).sum(1)

    supports: list[list[tuple[float, np.ndarray]]] = [[] for _ in range(K)]
    found = []
    features = [w]
    for x in batches:
        h = x.flatten(1) @ parts.w1.T + parts.b1
        h = parts.gamma * (h - parts.mean) / (parts.variance + EPS).sqrt() + parts.beta
        features.append(h.relu().numpy())
    for i, z in enumerate(features):
        for label, uncertainty, feature in zip(*predicted(z), z, strict=True):
            supports[label].append((uncertainty, feature))
        if i == 0:
            continue
        logits = np.zeros((len(z), K))
        for k in range(K):
            supports[k] = sorted(supports[k], key=lambda support: support[0])[:keep]
            total = np.zeros(H)
            for _, s in supports[k]:
                total = total + s / max(np.linalg.norm(s), 1e-12)
            logits[:, k] = z @ (total / max(np.linalg.norm(total), 1e-12))
        found.append(logits)
    return found


@pytest.mark.parametrize("keep", [1, 2, 5, None])
def test_t3a(keep: int | None) -> None:
    parts = Parts(scale=1.0)
    batches = stream(5)
    expected = t3a_by_hand(parts, batches, keep)
    found = adapted(T3A(keep=keep), parts.network(), batches)
    for logits, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(logits.numpy(), right, rtol=1e-10, atol=1e-12)


def test_t3a_that_keeps_nothing_new_has_the_directions_of_the_classifier() -> None:
    """Rows far longer than any feature are the most certain supports of their classes."""
    parts = Parts()
    parts.w2 = 100 * torch.eye(H)[:K]
    parts.b2 = torch.zeros(K)
    batches = stream()
    for x, logits in zip(batches, adapted(T3A(keep=1), parts.network(), batches), strict=True):
        z = x.flatten(1) @ parts.w1.T + parts.b1
        z = (parts.gamma * (z - parts.mean) / (parts.variance + EPS).sqrt() + parts.beta).relu()
        torch.testing.assert_close(logits, z @ F.normalize(parts.w2, dim=1).T)


def test_t3a_of_some_classes_in_another_order() -> None:
    """A model of more classes than the dataset has, whose rows are chosen by name."""
    parts = Parts(scale=1.0)
    network = parts.network()
    chosen = Matched(network.model, ["c", "a"], IMAGES)
    batches = stream()
    parts.w2, parts.b2 = parts.w2[[2, 0]], parts.b2[[2, 0]]
    narrow = nn.Sequential(*network.model.function[:4], nn.Linear(H, 2))
    narrow[4].load_state_dict({"weight": parts.w2, "bias": parts.b2})
    alone = Matched(Foreign(narrow.eval(), ["c", "a"], IMAGES), ["c", "a"], IMAGES)
    for found, expected in zip(
        adapted(T3A(keep=3), chosen, batches), adapted(T3A(keep=3), alone, batches), strict=True
    ):
        torch.testing.assert_close(found, expected)


# ---- what cannot be adapted ----------------------------------------------------------------------


class Squared(nn.Module):
    """Logits that no linear layer puts out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1)) ** 2


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (BatchNormStatistics(prior=0), "adaptation=bn replaces .* has none; choose"),
        (Tent(**ADAM), "adaptation=tent trains scales .* has none; choose"),
        (SAR(**SAR_KEYS), "adaptation=sar trains scales .* has none; choose"),
        (T3A(keep=1), "adaptation=t3a needs a linear layer .* has none; choose"),
    ],
)
def test_networks_without_what_a_method_needs(method: Adaptation, said: str) -> None:
    network = Matched(Foreign(Squared().eval(), ["a", "b", "c"], IMAGES), ["a", "b", "c"], IMAGES)
    with refused(said):
        method.check(network, IMAGE)


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        (BatchNormStatistics, {"prior": -1}, r"adaptation.prior=-1 is not a number >= 0"),
        (Tent, {**ADAM, "lr": -0.1}, r"adaptation.lr=-0.1 is not a number >= 0"),
        (Tent, {**ADAM, "optimizer": "adm"}, r"adaptation.optimizer=adm is unknown; choose adam"),
        (Tent, {**ADAM, "momentum": 1}, r"adaptation.momentum=1 is not in \[0, 1\)"),
        (Tent, {**ADAM, "steps": 0}, r"adaptation.steps=0 is not an integer >= 1"),
        (Tent, {**ADAM, "rate": 1}, r"adaptation.rate is no key of adaptation"),
        (SAR, {**SAR_KEYS, "margin": 0}, r"adaptation.margin=0 is not in \(0, 1\]"),
        (SAR, {**SAR_KEYS, "skip": "layer4"}, r"adaptation.skip=layer4 is no list of names"),
        (T3A, {"keep": 0}, r"adaptation.keep=0 is not an integer >= 1"),
    ],
)
def test_values_that_cannot_be(kind: type[Adaptation], keys: dict[str, Any], said: str) -> None:
    with refused(said):
        kind(**keys)
