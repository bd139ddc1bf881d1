"""MMLD, AdaClust, StableNet, FACT, JiGen and DNA against numbers that their authors' own functions
compute, in float64.

Three real optimizer steps with other images each: vectors (problem V, that of
``test_algorithms.py`` at step 0) or
images of 9 x 9 pixels and a small convolutional network. A check of networks is the sum and the sum
of squares of all their parameters after the last step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dgbench.algorithms.ada_clust import AdaClust
from dgbench.algorithms.ji_gen import orders
from dgbench.algorithms.stable_net import WeightLearning
from dgbench.batches import EnvBatch, TrainingImages
from dgbench.objectives.clustering import Clusters, kmeans, principal_components, relabeled
from dgbench.objectives.pixels import to_pixels
from dgbench.objectives.step import Prediction, Surveyed
from dgbench.training.modules.factory import Port, algorithm
from dgbench.training.optimizers import UpdateRule

E, B, M, K = 3, 4, 5, 3
N, SIDE = E * B, 9
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PIXELS = {"pixel_mean": MEAN, "pixel_std": STD}
TOLERANCE = 2e-9
ROWS = [(d, i) for d in range(E) for i in range(B)]
SGD = {"optimizer": "sgd", "weight_decay": 5e-4}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class Seen:
    """Fixed numbers in the place of drawn ones, and the outcomes of the objective."""

    def __init__(self, port: Port) -> None:
        self.logs: dict[str, list[float]] = {}
        port.module.collects = True
        self.port = port

    def run(self, batches: Sequence[EnvBatch], random: Sequence[Mapping[str, Tensor]]) -> Seen:
        """One real step each."""
        for batch, noise in zip(batches, random, strict=True):
            self.port.step(batch, noise)
        for _, name, value in self.port.module.take_values():
            self.logs.setdefault(name, []).append(float(value[0]))
        return self

    def check(self, *networks: str) -> tuple[float, float]:
        values = torch.cat(
            [
                p.detach().flatten()
                for name in networks
                for p in self.port.networks[name].parameters()
            ]
        )
        return sums(values)


def sums(values: Tensor) -> tuple[float, float]:
    return float(values.sum()), float(values.square().sum())


def near(found: Any, *expected: float) -> None:
    assert list(found) == pytest.approx(list(expected), rel=0, abs=TOLERANCE)


def labels() -> Tensor:
    return torch.tensor([(d + i * i) % 3 for d, i in ROWS])


def table(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def vectors(t: int, rows: int = N) -> EnvBatch:
    x = [
        [math.sin(0.7 * d + 1.3 * i + 0.5 * j + 0.1 * i * j + 0.4 * t) for j in range(M)]
        for d, i in ROWS
    ]
    sizes = (B,) * (rows // B)
    index = torch.arange(N * t, N * t + rows)
    return EnvBatch(table(x)[:rows], labels()[:rows], sizes, index)


def unit_images(t: int) -> Tensor:
    """(12, 3, 9, 9) in [0, 1]."""
    d, i = torch.tensor(ROWS, dtype=torch.float64).T[:, :, None, None, None]
    c, p, q = (torch.arange(n, dtype=torch.float64) for n in (3, SIDE, SIDE))
    c, p, q = c[:, None, None], p[:, None], q
    return 0.5 + 0.5 * torch.sin(
        0.7 * d + 1.3 * i + 0.9 * c + 0.31 * p + 0.17 * q + 0.05 * p * q + 0.4 * t
    )


def images(t: int, normalized: bool = True) -> EnvBatch:
    x = unit_images(t)
    if normalized:
        x = (x - table(MEAN)[:, None, None]) / table(STD)[:, None, None]
    return EnvBatch(x, labels(), (B,) * E)


class SmallCNN(nn.Module):
    """(n, 3, 9, 9) -> (n, 5)."""

    n_features = M

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Conv2d(4, M, 3, stride=2, padding=1),
        )

    def forward(self, x: Tensor, maps: bool = False) -> Any:
        one = self.first(x).tanh()
        two = self.second(one).tanh()
        z = two.mean((2, 3))
        return (z, [x, one, two]) if maps else z


def filled(network: nn.Module) -> nn.Module:
    """0.5 cos(0.3 + 0.7 t) row by row, t counting from 0 in every tensor."""
    network.double()
    for parameter in network.parameters():
        t = torch.arange(parameter.numel(), dtype=torch.float64).view(parameter.shape)
        parameter.data = 0.5 * torch.cos(0.3 + 0.7 * t)
    return network


def linear_problem(wide: bool = False) -> dict[str, nn.Module]:
    """A = I, W[k, j] = cos(k + 0.9 j), b = (.1, -.2, .3); ``wide``: [W, W/2]."""
    featurizer, classifier = nn.Linear(M, M, bias=False), nn.Linear(2 * M if wide else M, K)
    featurizer.weight.data = torch.eye(M)
    w = table([[math.cos(k + 0.9 * j) for j in range(M)] for k in range(K)])
    classifier.weight.data = torch.cat([w, w / 2], 1) if wide else w
    classifier.bias.data = table([0.1, -0.2, 0.3])
    return {"featurizer": featurizer.double(), "classifier": classifier.double()}


def image_problem(**heads: nn.Module) -> dict[str, nn.Module]:
    """The toy CNN with its linear classifier and other heads."""
    networks = {"featurizer": SmallCNN(), "classifier": nn.Linear(M, K), **heads}
    return {name: filled(each) for name, each in networks.items()}


def port(
    name: str, networks: Mapping[str, nn.Module], hparams: Mapping[str, Any], **more: Any
) -> Port:
    image = (3, SIDE, SIDE) if isinstance(networks["featurizer"], SmallCNN) else (M,)
    return algorithm(
        name, networks, K, E, {"lr": 0.01, "weight_decay": 0.0, "batch_size": B, **hparams},
        n_features=M, image=image, **more,
    )  # fmt: skip


# ---- StableNet


def stable_noise(t: int, inner: int = 20) -> dict[str, Tensor]:
    w = [[1.1 * math.sin(1 + 0.7 * e + 0.3 * t)] for e in range(inner)]
    b = [
        [[0.5 + 0.5 * math.sin(0.2 + 0.9 * j + 0.37 * e + 0.21 * t)] for j in range(M)]
        for e in range(inner)
    ]
    return {"w": table(w), "b": table(b)}


STABLE: dict[str, Any] = {
    "0.05": (
        {"lambdap": 0.05}, (2.3673533357, 2.2166571150, 2.0901042978),
        (0.3144146376, 27.9803133010),
        (11.7832856735, 11.5975530039), (1.7693866032, 11.8108413029),
        (0.0897742697, 0.0776527661, 0.0793693302),
    ),
    "70": (
        {"lambdap": 70.0}, (2.3695813368, 2.2830067127, 2.1305633824),
        (0.3144155728, 27.9804350921),
        (11.9998499532, 11.9996999215), (1.7698791359, 11.8100173398),
        (0.0833377503, 0.0833292801, 0.0833306932),
    ),
    "70-sum": (
        {"lambdap": 70.0, "sum": True}, (2.3695826735, 2.2830489493, 2.1305863464),
        (0.3144155742, 27.9804351646),
        (11.9999876140, 11.9999752281), (1.7698794020, 11.8100168974),
        (0.0833340915, 0.0833325696, 0.0833327122),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STABLE)
def test_stable_net(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hparams, losses, features, u, check, weights = STABLE[name]
    own = port("stable_net", linear_problem(), {**hparams, "warm_steps": 2})
    seen = Seen(own).run([vectors(t) for t in range(2)], [stable_noise(t) for t in range(2)])
    found: list[Tensor] = []
    learn = WeightLearning.learn

    def kept(*args: Any) -> Tensor:
        found.append(learn(*args))
        return found[-1]

    monkeypatch.setattr(WeightLearning, "learn", kept)
    seen.run([vectors(2)], [stable_noise(2)])
    near(seen.logs["loss"], *losses)
    near(found[0].softmax(0)[[0, 3, 7]], *weights)
    near(sums(own.state["features"]), *features)
    near(sums(own.state["weights"]), *u)
    near(seen.check("featurizer", "classifier"), *check)


def test_stable_net_with_a_short_minibatch() -> None:
    own = port("stable_net", linear_problem(), {"lambdap": 0.05, "warm_steps": 1})
    seen, memory = Seen(own), []
    for t in range(3):
        seen.run([vectors(t, 8 if t == 1 else N)], [stable_noise(t)])
        memory.append(float(own.state["weights"].sum()))
    near(seen.logs["loss"], 2.3673533357, 2.1489385833, 2.0913577674)
    near(memory, 11.4862212200, 11.5217562729, 11.5778424174)
    near(seen.check("featurizer", "classifier"), 1.7410336367, 11.8513535320)


# ---- FACT

MUTUAL = {"partner": "mutual", "quantize": True}
FACT: dict[str, Any] = {
    "default": (
        {}, (1.1303078135, 1.1288054887, 1.1258385326), (0.1490607907, 39.8414419250),
        (0.4094827783, 39.6774115981)
    ),
    "T=1": (
        {"temperature": 1.0, "fact_weight": 20.0}, (1.1368771627, 1.1494874142, 1.1462254033),
        (-1.2718813034, 39.6361602133), (-0.2839329240, 39.5864479518),
    ),
    "T=1-quantized": (
        {"temperature": 1.0, "fact_weight": 20.0, "quantize": True},
        (1.1370049296, 1.1487963303, 1.1437890778),
        (-1.2895546299, 39.6286021794), (-0.3345008837, 39.5837390991),
    ),
    "mutual": (
        MUTUAL, (1.1306254581, 1.1265219380, 1.1190545196), (0.4046086255, 40.0459247912),
        (0.5279315937, 39.7799290893),
    ),
    "mutual-sgd": (
        {**MUTUAL, **SGD, "lr": 0.1}, (1.1306254581, 1.1335294356, 1.1268347879),
        (0.3623094645, 39.3750722465),
        (0.5013464598, 39.4428522222),
    ),
}  # fmt: skip


def fact_noise(t: int) -> dict[str, Tensor]:
    return {
        "partner": torch.tensor([(5 * k + 3) % N for k in range(N)]),
        "lam": table([0.1 + 0.07 * k + 0.05 * t for k in range(N)]),
    }


def fact_port(hparams: Mapping[str, Any]) -> Port:
    """The third of the numbers' epochs in all steps, whose weight is exp(-5 (1 - 2/5)^2) of the
    full one.
    """
    weight = hparams.get("fact_weight", 2.0) * math.exp(-5 * (1 - 2 / 5) ** 2)
    return port(
        "fact", image_problem(), {**hparams, "fact_weight": weight, "ramp_epochs": 0}, **PIXELS
    )


@pytest.mark.parametrize("name", FACT)
def test_fact(name: str) -> None:
    hparams, losses, student, teacher = FACT[name]
    own = fact_port(hparams)
    seen = Seen(own).run([images(t) for t in range(3)], [fact_noise(t) for t in range(3)])
    near(seen.logs["loss"], *losses)
    near(seen.check("featurizer", "classifier"), *student)
    own.step(images(3), fact_noise(3))  # the teacher moves at the start of a step
    near(sums(torch.cat([value.flatten() for value in own.state.values()])), *teacher)


def views_of(own: Port, batch: EnvBatch, noise: Mapping[str, Tensor], name: str) -> Any:
    """What the named method of the algorithm makes of a step."""
    found = []
    algorithm = own.module.algorithm
    method = getattr(algorithm, name)

    def kept(s: Any) -> Any:
        found.append(method(s))
        return found[-1]

    setattr(algorithm, name, kept)
    own.step(batch, noise)
    return found[0]


def test_fact_mixes_amplitudes() -> None:
    own = fact_port({})
    _, mixed, _ = views_of(own, images(0), fact_noise(0), "views")
    u = to_pixels(mixed, own.module.algorithm.sizes)
    near(sums(u), 1414.5174488508, 1018.7196077849)
    near((u[0, 0, 0, 0], u[3, 1, 4, 5], u[7, 2, 8, 2]), 0.4899042483, 0.9956018864, 0.0681785332)


def test_fact_with_8_bits() -> None:
    own = fact_port(MUTUAL)
    _, mixed, _ = views_of(own, images(0), fact_noise(0), "views")
    levels = 255 * to_pixels(mixed, own.module.algorithm.sizes)
    assert levels[:N].sum().item() == pytest.approx(358112, abs=1e-6)
    assert levels[N:].sum().item() == pytest.approx(362856, abs=1e-6)


# ---- JiGen

JIGEN: dict[str, Any] = {
    "all": (
        {}, (1.1828167784, 1.1333098362, 1.1429996041), (3.4038256912, 3.2638281640, 3.2028790972),
        (0.5237643820, 37.2705597615), (0.1859595792, 2.0486287597), (0.7718579968, 22.7534186161),
    ),
    "ordered": (
        {"class_on": "ordered"}, (1.1293947746, 1.0977498009, 1.0546005640),
        (3.4038256912, 3.2744086202, 3.2189434245), (-3.5847101330, 37.3082049114),
        (0.1961614358, 2.1503090883),
        (0.7089303964, 22.7775543915),
    ),
    "no-gray": (
        {"tile_gray": 0.0}, (1.1582041614, 1.1085882687, 1.1328283716),
        (3.3812233937, 3.2633156372, 3.1918812989),
        (1.4178745785, 37.3725966098), (0.1510334589, 2.1305039112), (0.5048420844, 22.8458129926),
    ),
}  # fmt: skip


def jigsaw_noise(t: int) -> dict[str, Tensor]:
    first = torch.tensor([0, 1, 2, 30, 0, 5, 9, 0, 17, 22, 0, 13])
    gray = table([[0.0 if (k + 2 * c) % 5 == 0 else 0.9 for c in range(9)] for k in range(N)])
    order = torch.where(first == 0, 0, (first + 7 * t) % 31)
    return {"order": order, "coin": torch.full((N,), 0.95, dtype=torch.float64), "gray": gray}


def jigsaw_port(hparams: Mapping[str, Any]) -> Port:
    return port("ji_gen", image_problem(jigsaw=nn.Linear(M, 31)), hparams, **PIXELS)


@pytest.mark.parametrize("name", JIGEN)
def test_ji_gen(name: str) -> None:
    hparams, classes, puzzle, featurizer, classifier, jigsaw = JIGEN[name]
    seen = Seen(jigsaw_port(hparams)).run(
        [images(t) for t in range(3)], [jigsaw_noise(t) for t in range(3)]
    )
    near(seen.logs["class_loss"], *classes)
    near(seen.logs["jigsaw_loss"], *puzzle)
    for network, expected in (
        ("featurizer", featurizer),
        ("classifier", classifier),
        ("jigsaw", jigsaw),
    ):
        near(seen.check(network), *expected)


@pytest.mark.parametrize(
    ("gray", "squares", "values"),
    [
        (0.1, 1038.4581810668, (0.1437333834, 0.4474860087)),
        (0.0, 1058.7125016644, (0.0050600975, None)),
    ],
)
def test_ji_gen_shuffles_tiles(
    gray: float, squares: float, values: tuple[float, float | None]
) -> None:
    own = jigsaw_port({"tile_gray": gray})
    x, _ = views_of(own, images(0), jigsaw_noise(0), "view")
    u = to_pixels(x, own.module.algorithm.sizes)
    if values[1] is not None:
        near([u.sum(), u[3, 2, 4, 7]], 1423.3807864479, values[1])
    near([u.square().sum(), u[1, 0, 0, 0]], squares, values[0])


def test_published_orders() -> None:
    found = orders(30)
    assert len(set(found)) == 31 and found[0] == tuple(range(9))
    assert all(sorted(each) == list(range(9)) for each in found)
    distances = [
        sum(a != b for a, b in zip(p, q, strict=True))
        for i, p in enumerate(found[1:])
        for q in found[i + 2 :]
    ]
    assert min(distances) == 4


# ---- DNA

DNA = {
    0.1: (
        (0.2162585225, 0.2008542726, 0.1995851518), (0.2169540823, 0.2013727316, 0.2000574548),
        (0.0069555980, 0.0051845906, 0.0047230293), (4.9306424621, 4.7542888194),
        (0.0712748068, 8.7308507608),
        (0.4257114482, 0.6012376625, 0.5040510318),
    ),
    1.0: (
        (0.2099984843, 0.1952716997, 0.1947758914), (0.2169540823, 0.2010531884, 0.2003283577),
        (0.0069555980, 0.0057814887, 0.0055524663), (5.0074001610, 4.8584069974),
        (-0.0399723104, 8.9323967368),
        (0.3954515588, 0.6009312829, 0.5450752535),
    ),
}  # fmt: skip


def masks(t: int) -> dict[str, Tensor]:
    s, i, j = torch.meshgrid(
        *(torch.arange(n, dtype=torch.float64) for n in (5, N, 8)), indexing="ij"
    )
    return {"keep": torch.sin(1 + 0.9 * s + 1.7 * i + 0.6 * j + 0.4 * t) > 0}


@pytest.mark.parametrize("weight", DNA)
def test_dna(weight: float) -> None:
    losses, divergence, diversity, featurizer, head, logits = DNA[weight]
    networks = {
        **linear_problem(),
        "hidden": filled(nn.Linear(M, 8)),
        "classifier": filled(nn.Linear(8, K)),
    }
    own = port("dna", networks, {"bottleneck_dim": 8, "lambda_v": weight})
    seen = Seen(own).run([vectors(t) for t in range(3)], [masks(t) for t in range(3)])
    near(seen.logs["loss"], *losses)
    near(seen.logs["divergence"], *divergence)
    near(seen.logs["diversity"], *diversity)
    near(seen.check("featurizer"), *featurizer)
    near(seen.check("hidden", "classifier"), *head)
    near(own.predict(vectors(0).x)[0], *logits)


# ---- MMLD

MMLD_SGD = {**SGD, "lr": 0.01}
# hyperparameters, first step; CE, domain, entropy; featurizer, classifier, discriminator
MMLD: dict[str, Any] = {
    "shannon": (
        {}, 1001, (1.1660992353, 1.1533161318, 1.1498384194),
        (1.4579156759, 1.3942961305, 1.3227022955),
        (1.0111335449, 1.0254297297, 1.0372038343), (-0.0397972692, 37.2608743123),
        (0.3009757034, 2.2519097250),
        (-0.9937628637, 11.9319472240),
    ),
    "square": (
        {"entropy": "square"}, 1001, None, None, (-0.1974444829, -0.1901907818, -0.1844103573),
        (0.0245607583, 37.2671919057), (0.4332833118, 2.2746866083), (-0.9982216010, 11.9398548161),
    ),
    "first-round": (
        {}, 1, None, None, None, (0.0443043177, 37.2686951011), (0.4362689063, 2.2720106600),
        (-0.9983547438, 11.9431212189),
    ),
    "sgd": (
        MMLD_SGD, 1001, (1.1660992353, 1.1674835680, 1.1723231471), None, None,
        (0.4867376345, 37.2307636490),
        (0.0965578950, 2.2808245427), (-0.6744266641, 11.6493982060),
    ),
}  # fmt: skip


def mmld_port(hparams: Mapping[str, Any]) -> Port:
    heads = {"disc_1": nn.Linear(M, 6), "disc_2": nn.Linear(6, 6), "disc_3": nn.Linear(6, 3)}
    hparams = {"lr": 0.002, "disc_width": 6, "disc_drop_rate": 0.0, **hparams}
    return port(
        "mmld", image_problem(**heads), hparams, n_images=3 * N, rule=UpdateRule(steps=3000)
    )


def pictures(t: int) -> EnvBatch:
    batch = images(t, normalized=False)
    return EnvBatch(batch.x, batch.y, batch.sizes, torch.arange(N * t, N * t + N))


@pytest.mark.parametrize("name", MMLD)
def test_mmld(name: str) -> None:
    """Steps of round 10 of 30, or of the first, in which no survey is due."""
    hparams, start, risk, domain, entropy, featurizer, classifier, discriminator = MMLD[name]
    own = mmld_port(hparams)
    groups = torch.tensor([(d + 2 * i + t) % 3 for t in range(3) for d, i in ROWS])
    weights = 3 / (1 / table([20, 30, 10])).sum() / table([20, 30, 10])
    near(weights, 0.8181818182, 0.5454545455, 1.6363636364)
    own.module.memory.assign({"group": groups, "group_weight": weights})
    own.module.steps_done = start
    kept = {f"keep_{k}": torch.ones(N, 6, dtype=torch.bool) for k in (1, 2)}
    seen = Seen(own).run([pictures(t) for t in range(3)], [kept] * 3)
    near(seen.logs["reversal"], *[0.9311096086675776 if start > 1 else 0.0] * 3)
    for log, values in (("class_loss", risk), ("discriminator_loss", domain), ("entropy", entropy)):
        if values is not None:
            near(seen.logs[log], *values)
    near(seen.check("featurizer"), *featurizer)
    near(seen.check("classifier"), *classifier)
    near(seen.check("disc_1", "disc_2", "disc_3"), *discriminator)


def test_mmld_groups_by_style() -> None:
    own = mmld_port({})
    x = torch.cat([unit_images(t) for t in range(3)])
    algorithm = own.module.algorithm
    nets, hp, state = own.module.evaluated(0)
    with torch.no_grad():
        style = algorithm.survey(Prediction(nets, x, hp, state, {}))
    near(sums(style), 194.4518021815, 109.6473283655)
    near(style[0, [0, 4, 8, 13]], 0.2556586022, 0.5046845124, 0.5983172812, 0.4321444332)
    near(style[35, [0, 4, 8, 17]], 0.2533168883, 0.4938043391, 0.6020826665, 0.6688477843)
    rows = principal_components(style, 4)
    assert rows.var(0).tolist() == pytest.approx(
        [0.03867893, 0.01311580, 0.00187126, 0.00022953], abs=5e-9
    )
    found = kmeans(rows, 3, np.random.default_rng(0), tolerance=1e-4)
    assert found.inertia == pytest.approx(0.4742362509, abs=TOLERANCE)
    expected = [int(digit) for digit in "000100120112001100120112001201120120"]
    assert same_partition(found.labels.tolist(), expected)
    index, env = torch.arange(36), torch.tensor([d for d, _ in ROWS] * 3)
    new = algorithm.digest(
        Surveyed(style, labels().repeat(3), env, index, state, 0, np.random.default_rng(0))
    )
    assert same_partition(new["group"].tolist(), expected)
    counts = torch.bincount(new["group"])
    assert counts[0] == counts.max()
    near(new["group_weight"], *(3 / (1 / counts.double()).sum() / counts).tolist())


def same_partition(first: Sequence[int], second: Sequence[int]) -> bool:
    return len(set(zip(first, second, strict=True))) == len(set(first)) == len(set(second))


@pytest.mark.parametrize(
    ("before", "clusters", "after"),
    [("0001122210", "2210011102", "0021122210"), ("01201200", "12012001", "01201220")],
)
def test_clusters_keep_their_names(before: str, clusters: str, after: str) -> None:
    old, new = (torch.tensor([int(digit) for digit in word]) for word in (before, clusters))
    assert "".join(map(str, relabeled(new, old, 3).tolist())) == after


# ---- AdaClust

ADA: dict[str, Any] = {
    "fixed": (
        (0.4780223589, 0.4064150075, 0.7786664665), "002301233123032301233120012331233100",
        (-0.9957195133, 5.4266634447), (2.5584756730, 2.4481032285, 2.1897303144),
        (4.9655769724, 4.7244078878),
        (-4.9819848818, 8.8392172015), "312031203200", (0.4601816401, -1.2758623341, -1.4684323368),
        (1.5808125729, -0.8903451686, -2.1164264720),
    ),
    "reference": (
        (0.3725679814, 0.2418199814, 0.8959443040), "002201230123012301233121012301233111",
        (0.5704300409, 5.0632666558), (2.7270530921, 2.4949594864, 2.2438586397),
        (4.9419434221, 4.7237460014),
        (-4.8472549881, 8.7776742610), "332331233111", (0.0945325807, -1.4312112617, -1.2493973118),
        (1.0276175553, -1.0983831643, -1.8069211585),
    ),
}  # fmt: skip


def own_index(batch: EnvBatch) -> Tensor:
    assert batch.index is not None
    return batch.index


@pytest.mark.parametrize("variant", ADA)
def test_ada_clust(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clusters, Lloyd's algorithm from rows 0, 9, 18 and 27."""
    first, clusters, centroids, losses, featurizer, head, of_x3, logits, together = ADA[variant]
    monkeypatch.setattr(AdaClust, "n_clusters", 4)
    projected = []

    def from_fixed_starts(rows: Tensor, k: int, rng: np.random.Generator) -> Clusters:
        projected.append(rows)
        return kmeans(rows, k, rng, starts=rows[[0, 9, 18, 27]].numpy())

    monkeypatch.setattr("dgbench.algorithms.ada_clust.kmeans", from_fixed_starts)
    hparams = {"variant": variant, "pca_dim": 3, "offset": 1, "num_clusters": 1}
    own = port(
        "ada_clust", linear_problem(wide=True), hparams, n_images=3 * N, rule=UpdateRule(steps=3)
    )
    batches = [vectors(t) for t in range(4)]
    images = [TrainingImages(b.x, b.y, b.env, own_index(b)) for b in batches[:3]]
    own.module.training_images = lambda _: images
    seen = Seen(own).run(batches[:1], [{}])
    own.module.training_images = None  # no survey is due any more
    monkeypatch.setattr(AdaClust, "survey_due", lambda *_: False)
    seen.run(batches[1:3], [{}] * 2)
    near(own.state["mean"], 0.0155596726, -0.0550230843, -0.0386613396, 0.0155839159, 0.0401955762)
    near(projected[0][0].abs(), *first)
    assert "".join(map(str, own.state["cluster"].tolist())) == clusters
    near(sums(own.state["centroid"]), *centroids)
    near(seen.logs["loss"], *losses)
    near(seen.check("featurizer"), *featurizer)
    near(seen.check("classifier"), *head)
    near(own.predict(batches[3].x)[0], *logits)
    nets, hp, state = own.module.evaluated(0)
    found = AdaClust.clusters(
        Prediction(nets, batches[3].x, hp, state, {}), nets.featurizer(batches[3].x)
    )
    assert "".join(map(str, found.tolist())) == of_x3
    own.module.algorithm.values["test_centroids"] = "together"
    near(own.predict(batches[3].x)[0], *together)
