"""The switches of single algorithms, against arithmetic by hand or plain loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.algorithms.arm import ARM
from dgbench.algorithms.erdg import ERDG
from dgbench.algorithms.mixstyle import MixStyle
from dgbench.algorithms.mixup import Mixup
from dgbench.algorithms.mldg import MLDG
from dgbench.algorithms.mtl import MTL
from dgbench.batches import EnvBatch, Tensors
from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.network_specs import Sizes, StyleMix
from dgbench.networks.build import build_head
from dgbench.networks.featurizer import mix_styles
from dgbench.objectives.contract import Algorithm, Update
from dgbench.objectives.step import Hyperparameters, Outcome, Step
from dgbench.training.modules import SingleRun

SIZES = Sizes(n_features=4, n_classes=3, n_envs=2, image=(1, 3, 3))


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_default_dtype(torch.float32)


def _algorithm(
    kind: type[Algorithm], featurizer: nn.Module | None = None, **hparams: Any
) -> SingleRun:
    hparams = {"lr": 1e-2, "weight_decay": 0.0, **hparams}
    body = featurizer or nn.Sequential(nn.Flatten(), nn.Linear((1 + kind.extra_channels) * 9, 4))
    heads = {name: build_head(spec) for name, spec in kind.networks_needed(SIZES, hparams).items()}
    return SingleRun(kind(SIZES, hparams), Networks({"featurizer": body, **heads}))


def _batch() -> EnvBatch:
    return EnvBatch(torch.randn(6, 1, 3, 3), torch.tensor([0, 1, 2, 0, 1, 1]), (3, 3))


def _run(run: SingleRun, batch: EnvBatch, noise: Tensors, update: Update | None = None) -> Outcome:
    objective = update.objective if update else run.algorithm.objective
    hp = Hyperparameters(run.hp.tensors())
    return objective(Step(run.networks, batch, hp, run.memory.tensors(), noise, torch.tensor(0)))


def test_mixup_shuffles_the_second_side() -> None:
    """Order 0, 1: pairs (0,1) and (1,0); keys reverse the second side of both."""
    algorithm, batch = _algorithm(Mixup, mixup_alpha=0.2, mixup_inner_permutation=True), _batch()
    w = torch.tensor([0.3, 0.8])
    noise = {
        "permutation": torch.tensor([0, 1]),
        "weight": w,
        "keys": torch.tensor([[0.9, 0.5, 0.1]] * 2),
    }
    terms = []
    for weight, first, second in ((0.3, [0, 1, 2], [5, 4, 3]), (0.8, [3, 4, 5], [2, 1, 0])):
        logits = algorithm.networks.logits(weight * batch.x[first] + (1 - weight) * batch.x[second])
        own, other = (F.cross_entropy(logits, batch.y[rows]) for rows in (first, second))
        terms.append(weight * own + (1 - weight) * other)
    torch.testing.assert_close(_run(algorithm, batch, noise).loss, torch.stack(terms).mean())


def test_mldg_needs_an_environment_to_learn_from() -> None:
    shared = {"mldg_beta": 1.0, "n_meta_test": 2}
    with pytest.raises(ConfigError, match=r"n_meta_test=2 of 2 .*mldg_episodes=pairs"):
        _algorithm(MLDG, mldg_episodes="split", **shared)
    _algorithm(MLDG, mldg_episodes="pairs", **shared)


def test_mtl_fixed_uses_the_moving_average() -> None:
    """From zero the first average is mtl_ema times the mean of the environment's features."""
    algorithm, batch = _algorithm(MTL, mtl_ema=0.9, variant="fixed"), _batch()
    out = _run(algorithm, batch, {})
    means = [0.9 * algorithm.networks.featurizer(x).mean(0) for x in batch.split(batch.x)]
    risks = []
    for mean, x, y in zip(means, batch.split(batch.x), batch.split(batch.y), strict=True):
        z = algorithm.networks.featurizer(x)
        risks.append(
            F.cross_entropy(algorithm.networks.classifier(torch.cat([z, mean.expand_as(z)], 1)), y)
        )
    torch.testing.assert_close(out.loss, risks[0] + risks[1])
    torch.testing.assert_close(out.state["means"], torch.stack(means).detach())
    assert not algorithm.algorithm.prediction_inputs(6)


@pytest.mark.parametrize(("variant", "trained"), [("reference", False), ("fixed", True)])
def test_arm_context(variant: str, trained: bool) -> None:
    algorithm, batch = _algorithm(ARM, batch_size=3, variant=variant), _batch()
    networks = algorithm.networks
    assert ("context" in algorithm.algorithm.param_groups()["model"].networks) == trained
    average = networks.context(batch.x, (3, 3)).repeat_interleave(3, 0)
    logits = networks.logits(torch.cat([batch.x, average], 1))
    torch.testing.assert_close(_run(algorithm, batch, {}).loss, F.cross_entropy(logits, batch.y))
    torch.testing.assert_close(algorithm(batch.x), logits)  # two groups of batch_size
    context = networks.context(batch.x[:5], (5,)).expand(5, -1, -1, -1)  # 5 is no multiple of 3
    torch.testing.assert_close(
        algorithm(batch.x[:5]), networks.logits(torch.cat([batch.x[:5], context], 1))
    )


def test_erdg_legacy_clearing_steps_idle_networks_on_zero() -> None:
    rates = {"lr_d": 0.01, "lr_c": 0.01, "lr_cp": 0.01, "lbd_d": 0.5, "lbd_c": 0.05, "lbd_cp": 0.01}
    algorithm, batch = _algorithm(ERDG, erdg_clearing="zero", **rates), _batch()
    modern = _algorithm(ERDG, erdg_clearing="remove", **rates)
    everyone = {"model", "discriminator", "experts", "rivals"}
    assert [set(update.groups) for update in algorithm.algorithm.updates(0)] == [
        {"experts"},
        everyone,
    ]
    assert [set(update.groups) for update in algorithm.algorithm.updates(1)] == [everyone, everyone]
    assert [set(update.groups) for update in modern.algorithm.updates(1)] == [
        {"experts"},
        everyone - {"experts"},
    ]
    for update, idle in zip(
        algorithm.algorithm.updates(1),
        (("featurizer", "rival_0"), ("expert_0", "expert_1")),
        strict=True,
    ):
        algorithm.networks.zero_grad()
        _run(algorithm, batch, {}, update).loss.backward()
        for parameter in algorithm.networks.params(*idle).values():
            assert parameter.grad is not None
            assert not parameter.grad.any()


def test_mix_styles_by_hand() -> None:
    """Two images of one channel: means 2 and 10, unbiased variances 2 and 8; weight 1/4 of the own
    style.
    """
    x = torch.tensor([[1.0, 3.0], [8.0, 12.0]]).view(2, 1, 1, 2)
    mix = StyleMix(torch.tensor(True), torch.tensor([0.25, 1.0]), torch.tensor([1, 0]))
    own, other = (2 + 1e-6) ** 0.5, (8 + 1e-6) ** 0.5
    std, mean = 0.25 * own + 0.75 * other, 0.25 * 2 + 0.75 * 10
    expected = torch.tensor([[mean - std / own, mean + std / own], [8.0, 12.0]]).view(2, 1, 1, 2)
    torch.testing.assert_close(mix_styles(x, mix), expected)
    assert torch.equal(mix_styles(x, StyleMix(torch.tensor(False), mix.weight, mix.partner)), x)


class _Styled(nn.Module):
    """A featurizer with one stage, number 2."""

    style_stages = (2,)

    def __init__(self) -> None:
        super().__init__()
        self.stage, self.end = nn.Conv2d(1, 4, 1), nn.Linear(4, 4)

    def forward(self, x: Tensor, styles: dict[int, StyleMix] | None = None) -> Tensor:
        x = self.stage(x)
        if styles and 2 in styles:
            x = mix_styles(x, styles[2])
        features: Tensor = self.end(x.square().mean((2, 3)))
        return features


def test_mixstyle_pairs_and_mixes() -> None:
    """Order 0, 1: passes over rows [0 1 2 | 3 4 5] and [3 4 5 | 0 1 2]; partners come from the
    other half.
    """
    algorithm, batch = (
        _algorithm(
            MixStyle, _Styled(), ms_type="crossdomain", ms_p=1.0, ms_alpha=0.1, ms_layers="2"
        ),
        _batch(),
    )
    noise = algorithm.random_at(0, batch.sizes)
    assert noise["partner"].shape == (2, 1, 6)
    assert (noise["partner"][..., :3] >= 3).all()
    assert (noise["partner"][..., 3:] < 3).all()
    assert noise["active"].all()
    noise = {**noise, "permutation": torch.tensor([0, 1])}
    risks = []
    for i, rows in enumerate(([0, 1, 2, 3, 4, 5], [3, 4, 5, 0, 1, 2])):
        mix = StyleMix(noise["active"][i, 0], noise["weight"][i, 0], noise["partner"][i, 0])
        z = algorithm.networks.featurizer(batch.x[rows], styles={2: mix})
        risks.append(F.cross_entropy(algorithm.networks.classifier(z), batch.y[rows]))
    out = _run(algorithm, batch, noise)
    torch.testing.assert_close(out.loss, torch.stack(risks).mean())
    assert float(out.logs["mixed_stages"]) == 1


@pytest.mark.parametrize("kind", ["crossdomain", "random"])
def test_mixstyle_without_stages_is_the_mean_risk(kind: str) -> None:
    algorithm, batch = (
        _algorithm(MixStyle, ms_type=kind, ms_p=1.0, ms_alpha=0.1, ms_layers="123"),
        _batch(),
    )
    out = _run(algorithm, batch, algorithm.random_at(0, batch.sizes))
    torch.testing.assert_close(
        out.loss, F.cross_entropy(algorithm.networks.logits(batch.x), batch.y)
    )
    assert float(out.logs["mixed_stages"]) == 0
