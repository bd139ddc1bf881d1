"""DDG: its translators, its two stages in one run, and runs side by side."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dgbench.batches import EnvBatch
from dgbench.errors import ConfigError
from dgbench.network_specs import ImageDiscriminatorSpec, TranslatorSpec
from dgbench.networks import translators
from dgbench.networks.build import build_head
from dgbench.objectives.pairing import halves, partners
from dgbench.objectives.translation import late_weight
from dgbench.training.modules import SingleRun, StackedRuns
from dgbench.training.modules.factory import algorithm
from dgbench.training.optimizers import UpdateRule

K, M = 3, 5
IMAGES = {"large": (3, 32, 32), "digits": (1, 28, 28), "mlp": (2, 6, 7)}
T0, STEPS = 2, 4


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Double precision, and translators of a sixteenth of the published width."""
    monkeypatch.setattr(translators, "WIDTH", 16)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Featurizer(nn.Module):
    """A convolution; its only map is what it gives."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, M, 3, 2, 1)

    def forward(self, x: Tensor, maps: bool = False) -> Any:
        h = self.conv(x).tanh()
        z = h.mean((2, 3))
        return (z, [h]) if maps else z


def made(kind: str, seed: int = 0, **hparams: Any) -> SingleRun:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        networks = {"featurizer": Featurizer(IMAGES[kind][0])}
    values = {"translator_steps": T0, "lr": 1e-3, "lr_g": 1e-5, **hparams}
    port = algorithm(
        "ddg",
        networks,
        K,
        2,
        values,
        n_features=M,
        image=IMAGES[kind],
        seed=seed,
        rule=UpdateRule(steps=STEPS),
    )
    with torch.no_grad():
        for parameter in (
            port.networks.parameters()
        ):  # a bias before a normalization has only its decay for a gradient
            if parameter.dim() == 1 and not parameter.abs().any():
                parameter.copy_(0.1 * torch.arange(1, len(parameter) + 1).cos())
    port.module.collects = True
    return port.module


def batch(kind: str, seed: int, sizes: tuple[int, ...] = (5, 4)) -> EnvBatch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(sum(sizes), *IMAGES[kind], generator=generator, dtype=torch.float64)
    return EnvBatch(x, torch.randint(K, (sum(sizes),), generator=generator), sizes)


def train(module: SingleRun | StackedRuns, batches: list[EnvBatch]) -> None:
    module.train()
    module.train_steps(
        batches, dict(zip(module.trained_groups(), module.configure_optimizers(), strict=True))
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "hparams"),
    [
        ("large", {}),
        ("large", {"parts": "map", "swap_label": "semantic", "recon_x_cyc_w": 0.1}),
        ("digits", {"recon_x_cyc_w": 0.1}),
        ("mlp", {}),
    ],
)
def test_stacked_equals_single(double: None, kind: str, hparams: dict[str, Any]) -> None:
    """Two runs, unequal environments, two steps of each stage:
    weights, statistics, state and logs.
    """
    runs = [made(kind, seed, margin=0.1 + 0.1 * seed, **hparams) for seed in (0, 1)]
    alone = copy.deepcopy(runs)
    batches = [[batch(kind, 10 * i + k) for k in range(STEPS)] for i in range(2)]
    stack = StackedRuns(runs)
    stack.collects = True
    train(stack, [
        EnvBatch(torch.stack([b.x for b in row]), torch.stack([b.y for b in row]), row[0].sizes)
        for row in zip(*batches, strict=True)
    ])  # fmt: skip
    logs = stack.take_values()
    for i, (run, own) in enumerate(zip(alone, batches, strict=True)):
        start = run.weights()
        train(run, own)
        found, expected = stack.weights(i), run.weights()
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        for (step, name, value), (*place, values) in zip(run.take_values(), logs, strict=True):
            assert place == [step, name]
            assert values[i] == pytest.approx(value[0], rel=1e-9, abs=1e-9)
        changed = {
            key.split(".")[1]
            for key in expected
            if "." in key and not torch.equal(expected[key], start[key])
        }
        assert {"featurizer", "classifier", "translator", "image_discriminator"} <= changed
        assert "initial_featurizer" not in changed


@pytest.mark.thorough
@pytest.mark.parametrize("kind", IMAGES)
def test_the_second_stage_keeps_the_translator_of_its_start(double: None, kind: str) -> None:
    run = made(kind)
    optimizers = dict(zip(run.trained_groups(), run.configure_optimizers(), strict=True))
    weights = []
    for k in range(T0 + 2):
        weights.append({key: value.clone() for key, value in run.train().state_dict().items()})
        run.train_steps([batch(kind, k)], optimizers)
    first, last = weights[0], run.state_dict()
    for name in ("featurizer", "classifier"):
        assert all(
            torch.equal(weights[T0][key], first[key])
            for key in first
            if key.startswith(f"networks.{name}.")
        )
        assert any(
            not torch.equal(last[key], first[key])
            for key in first
            if key.startswith(f"networks.{name}.")
        )
    kept = {key: value for key, value in run.memory.tensors().items() if key.startswith("kept/")}
    assert kept
    for key, value in kept.items():
        name = "networks." + key.removeprefix("kept/").replace("/", ".")
        assert torch.equal(value, weights[T0][name])
    assert all(
        torch.equal(last[key], weights[T0][key]) for key in last if "image_discriminator" in key
    )


@pytest.mark.parametrize("sizes", [(1,), (1, 2), (4, 4)])
def test_few_rows_and_environments(double: None, sizes: tuple[int, ...]) -> None:
    for step in (0, T0):
        run = made("mlp")
        run.algorithm.sizes = run.algorithm.sizes.__class__(
            **{**vars(run.algorithm.sizes), "n_envs": len(sizes)}
        )
        run.steps_done = step
        train(run, [batch("mlp", 0, sizes)])
        assert all(value.isfinite().all() for value in run.state_dict().values())


def test_partners_are_others_of_the_same_kind() -> None:
    kind = torch.tensor([0, 1, 0, 2, 0])
    same = kind[:, None] == kind
    drawn = torch.stack([partners(same, u.expand(5)) for u in torch.linspace(0, 1, 11)])
    assert drawn[:, [1, 3]].tolist() == [[1, 3]] * 11, "an only row is its own partner"
    assert [set(column.tolist()) for column in drawn[:, [0, 2, 4]].T] == [{2, 4}, {0, 4}, {0, 2}]


def test_halves_of_unequal_environments() -> None:
    x = torch.arange(9.0)[:, None]
    y = torch.tensor([0, 0, 1, 0, 0, 2, 1, 1, 0])
    a, b = halves(EnvBatch(x, y, (5, 1, 3)), torch.zeros(2, 4))
    assert a.x.flatten().tolist() == [0, 1, 5, 6] and b.x.flatten().tolist() == [2, 3, 5, 7]
    assert a.y.tolist() == [0, 0, 2, 1] and b.y.tolist() == [1, 0, 2, 1]
    assert a.positive.flatten().tolist() == [1, 0, 5, 6], "an environment's own rows only"


def test_weight_of_the_cycle() -> None:
    def weights(first: float) -> list[float]:
        numbers = [torch.tensor(value) for value in (2.5, first, 0.5, 1.2)]
        return [float(late_weight(torch.tensor(k), *numbers)) for k in range(1, 7)]

    assert weights(0.0) == pytest.approx([0, 0, 0, 1.0, 1.2, 1.2]), (
        "0 in the update after an update with 0"
    )
    assert weights(0.1) == pytest.approx([0.1, 0.1, 0.6, 1.1, 1.2, 1.2])


@pytest.mark.parametrize(
    ("image", "translator", "discriminator"),
    [((3, 224, 224), 17_424_515, 1_025_571), ((1, 28, 28), 463_169 + 64 * (512 - 128), 18_658)],
)
def test_published_networks(image: tuple[int, ...], translator: int, discriminator: int) -> None:
    found = [
        build_head(spec) for spec in (TranslatorSpec(image, 512), ImageDiscriminatorSpec(image))
    ]
    assert [sum(p.numel() for p in each.parameters()) for each in found] == [
        translator,
        discriminator,
    ]


@pytest.mark.parametrize("steps", [STEPS, 2.5])
def test_stages_that_do_not_fit_are_refused(steps: float) -> None:
    with pytest.raises(ConfigError, match=f"translator_steps={steps} .*{STEPS}"):
        made("mlp", translator_steps=steps)
    assert made("mlp", translator_steps=0.5).algorithm.values["translator_steps"] == STEPS // 2
