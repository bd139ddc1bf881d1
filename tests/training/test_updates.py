"""Schedule, clipping, accumulation and memory format: the same in single and stacked execution,
exact on resume.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from dgbench.batches import EnvBatch
from dgbench.errors import ConfigError
from dgbench.networks.timm_networks import VisionTransformer
from dgbench.objectives.contract import ParamGroup
from dgbench.training.modules import training_module
from dgbench.training.modules.single import averaged, micro_batches
from dgbench.training.optimizers import UpdateRule, clipped, learning_rate, take_steps
from dgbench.training.processes import make_trainer
from dgbench.training.study import ReadyStudy
from tests.studies import small_study, stopping_at, train_study
from tests.training.test_stacked import DOUBLE, both_ways, fit, modules_of, rows_of, run

# loss, reset, own gradients, several groups
ALGORITHMS = [
    "erm",
    "fishr",
    "and_mask",
    "sag_net",
    "eqrm",
    "dann",
]

pytestmark = pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")


# ---- learning rate


def test_cosine_goes_from_the_full_rate_to_zero() -> None:
    """(1 + cos(pi t / T)) / 2 with T = 4: 1, (2 + sqrt 2) / 4, 1/2, (2 - sqrt 2) / 4."""
    rule = UpdateRule(steps=4, schedule="cosine")
    expected = [1, (2 + math.sqrt(2)) / 4, 0.5, (2 - math.sqrt(2)) / 4]
    assert [rule.factor(t) for t in range(4)] == pytest.approx(expected, abs=1e-15)
    assert [UpdateRule(steps=4).factor(t) for t in range(4)] == [1.0] * 4


def test_a_warm_up_rises_linearly_and_the_cosine_begins_behind_it() -> None:
    """W = 3: 1/4, 2/4, 3/4, then a cosine over T - W = 4 steps."""
    rule = UpdateRule(steps=7, schedule="cosine", warmup_steps=3)
    assert [rule.factor(t) for t in range(4)] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    without = UpdateRule(4, "cosine")
    assert [rule.factor(t) for t in range(3, 7)] == pytest.approx(
        [without.factor(t) for t in range(4)]
    )
    assert [UpdateRule(7, warmup_steps=3).factor(t) for t in range(5)] == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1]
    )


def test_a_run_of_no_steps_has_a_rate() -> None:
    """What is logged before the first step asks for it."""
    assert UpdateRule(steps=0, schedule="cosine").factor(0) == 1.0


def test_layers_further_down_learn_slower() -> None:
    """BEiT: the k-th last of L parts has decay^k, a last norm and the classifier 1; as in timm's
    own groups.
    """
    import timm.optim

    torch.manual_seed(0)
    body = VisionTransformer((3, 32, 32), "test_vit2")
    networks = {"featurizer": body, "classifier": nn.Linear(body.n_features, 2)}
    module: Any = training_module(
        "dgbench.algorithms.erm.ERM", networks, 2, 1, values={"lr": 0.5}, image=(3, 32, 32),
        rule=UpdateRule(3, layer_decay=0.7),
    )  # fmt: skip
    (adam,) = module.configure_optimizers()
    batch = EnvBatch(torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 0, 1]), (4,))
    module.train_steps([batch], dict(zip(module.trained_groups(), [adam], strict=True)))
    ours = {id(p): group["lr"] for group in adam.param_groups for p in group["params"]}
    theirs = timm.optim.param_groups_layer_decay(body.body, weight_decay=0.1, layer_decay=0.7)
    assert len(ours) == len(list(module.networks.parameters()))
    for group in theirs:
        for p in group["params"]:
            assert ours[id(p)] == pytest.approx(0.5 * group["lr_scale"])
    assert {ours[id(p)] for p in module.networks["classifier"].parameters()} == {0.5}
    deepest = 0.5 * 0.7 ** (len(body.body.blocks) + 1)
    assert ours[id(body.body.patch_embed.proj.weight)] == pytest.approx(deepest)


def test_it_is_pytorchs_schedule() -> None:
    """The closed form against the recursion of CosineAnnealingLR."""
    adam = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, T_max=50)
    rule = UpdateRule(steps=50, schedule="cosine")
    for t in range(50):
        assert 0.3 * rule.factor(t) == pytest.approx(adam.param_groups[0]["lr"], rel=1e-9)
        adam.step()
        schedule.step()


@pytest.mark.parametrize(
    ("reset_at", "expected"), [(2, [1.0, 1.0, 8.0, 8.0]), (0, [8.0] * 4), (2.5, [1.0] * 4)], ids=str
)
def test_a_reset_changes_the_full_rate_and_not_the_schedule(
    reset_at: float, expected: list[float]
) -> None:
    values = {"lr": 1.0, "at": reset_at, "lr2": 8.0}
    algorithm: Any = SimpleNamespace(
        values=values, resets=lambda: ("at",), reset_lr="lr2", lr_factor=lambda name, step: 1.0
    )
    group = ParamGroup(("featurizer",))
    assert [learning_rate(algorithm, "model", group, UpdateRule(), t) for t in range(4)] == expected
    rule = UpdateRule(steps=4, schedule="cosine")
    factors = [rule.factor(t) for t in range(4)]
    found = [learning_rate(algorithm, "model", group, rule, t) for t in range(4)]
    assert found == [rate * factor for rate, factor in zip(expected, factors, strict=True)]


def test_every_group_follows_the_schedule(tmp_path: Path) -> None:
    """A discriminator, too: the rates that its Adam holds after the last of 5 steps of 5."""
    study = small_study(tmp_path, "algorithm=dann", "trainer.schedule=cosine", "trainer.steps=5")
    module = study.module(study.folds[0])
    fit(module, study.runs[0].data.batches(0, 5))
    rates = [optimizer.param_groups[0]["lr"] for optimizer in module.optimizers()]
    # step 4 trains the generator, step 3 the discriminator
    assert rates[0] == pytest.approx(
        module.algorithm.values["lr_g"] * (1 + math.cos(math.pi * 4 / 5)) / 2
    )
    assert rates[1] == pytest.approx(
        module.algorithm.values["lr_d"] * (1 + math.cos(math.pi * 3 / 5)) / 2
    )


@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_a_resumed_run_follows_the_schedule_exactly(mode: str, tmp_path: Path) -> None:
    """Stopped after the first of two intervals and resumed: the rows of the undisturbed run, bit
    for bit.
    """
    words = ("algorithm=eqrm", "hparams.eqrm_burnin_iters=9", "trainer.schedule=cosine",
             "trainer.gradient_clip=0.5", "trainer.checkpoint_seconds=0",
             "protocol.folds=[0]")  # fmt: skip
    whole, _ = run(tmp_path / "whole", mode, *words)
    with stopping_at(9):
        _, complete = run(tmp_path / "cut", mode, *words)
    assert not any(complete.values())
    resumed, complete = run(tmp_path / "cut", mode, *words)
    assert all(complete.values())
    assert _errors(resumed) == _errors(whole)


def _errors(study: ReadyStudy) -> list[tuple[Any, ...]]:
    return [
        (row["fold"], row["step"], row["env"], row["subset"], row["wrong"], row["loss"])
        for own in study.runs
        for row in rows_of(own)
    ]


# ---- clipping


def test_clipping_is_per_run() -> None:
    """Two runs; norms 5 (3, 4) and 0.5 (0.3, 0.4); limit 1: the first is divided by 5, the second
    left alone.
    """
    given = {
        "a": torch.tensor([[3.0], [0.3]]).double(),
        "b": torch.tensor([4.0, 0.4]).double(),
        "c": None,
    }
    found = clipped(given, 1.0)
    assert found["a"] is not None and found["b"] is not None
    torch.testing.assert_close(found["a"], torch.tensor([[0.6], [0.3]]).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(found["b"], torch.tensor([0.8, 0.4]).double(), atol=1e-6, rtol=0)
    assert found["c"] is None
    assert clipped(given, None) is given


def test_a_broken_run_does_not_touch_the_others() -> None:
    found = clipped(
        {"a": torch.tensor([[math.nan], [3.0]]), "b": torch.tensor([[1.0], [4.0]])}, 1.0
    )
    assert found["a"] is not None and found["b"] is not None
    assert found["a"][0].isnan() and found["b"][0].isnan()
    assert torch.cat([found["a"][1], found["b"][1]]).tolist() == pytest.approx([0.6, 0.8], abs=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_clipped_and_scheduled_stacks_equal_single_runs(
    algorithm: str, double: None, tmp_path: Path
) -> None:
    words = (f"algorithm={algorithm}", DOUBLE, "trainer.gradient_clip=0.05",
        "trainer.schedule=cosine",
             "trainer.steps=12")  # fmt: skip
    first = small_study(tmp_path, *words)
    runs = [first.runs[0], small_study(tmp_path, *words, "seed=1", source=first.source).runs[3]]
    modules = modules_of(runs)
    free = copy.deepcopy(modules[0])
    free.rule = UpdateRule(steps=12, schedule="cosine")
    assert both_ways(modules, [own.data for own in runs], 12) < 1e-9
    fit(free, runs[0].data.batches(0, 12))
    assert _distance(free, modules[0]) > 1e-6, "the limit was reached"


# ---- accumulation


def test_micro_batches_hold_equal_parts_of_every_environment() -> None:
    batch = EnvBatch(torch.arange(8.0)[:, None], torch.arange(8), (4, 4))
    found = micro_batches(batch, 2)
    assert [part.y.tolist() for part in found] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert [part.sizes for part in found] == [(2, 2), (2, 2)]
    assert micro_batches(batch, 1)[0] is batch


def test_states_are_averaged() -> None:
    found = averaged([{"q": torch.tensor([1.0, 3.0])}, {"q": torch.tensor([3.0, 5.0])}])
    assert found["q"].tolist() == [2.0, 4.0]


@pytest.mark.parametrize("algorithm", ["erm", "mtl", "and_mask", "vrex", "sag_net"])
def test_accumulation(algorithm: str, double: None, tmp_path: Path) -> None:
    """ERM takes the same updates; other methods work with smaller minibatches and differ, but
    train.
    """
    words = (f"algorithm={algorithm}", DOUBLE, "trainer.steps=6")
    whole, cut = (small_study(tmp_path, *words, *more) for more in ((), ("trainer.accumulate=4",)))
    modules = [study.module(study.folds[0]) for study in (whole, cut)]
    start = copy.deepcopy(modules[0])
    for study, module in zip((whole, cut), modules, strict=True):
        fit(module, study.runs[0].data.batches(0, 6))
    distances = [_distance(a, b) for a, b in ((modules[0], modules[1]), (start, modules[1]))]
    assert distances[1] > 1e-3
    assert (distances[0] < 1e-12) == (algorithm == "erm")


def _distance(a: nn.Module, b: nn.Module) -> float:
    return max(
        float((p - q).detach().abs().max())
        for p, q in zip(a.parameters(), b.parameters(), strict=True)
    )


def test_each_micro_batch_has_its_own_noise(tmp_path: Path) -> None:
    module = small_study(tmp_path, "algorithm=mtl").module
    algorithm = module(small_study(tmp_path).folds[0])
    one, again, other = (algorithm.random_at(0, (4, 4, 4), part)["summary"] for part in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


# ---- memory format, half precision


@pytest.mark.parametrize("algorithm", ["erm", "and_mask", "mldg"])
def test_memory_format_changes_nothing(algorithm: str, double: None, tmp_path: Path) -> None:
    """Adam's fused form ignores strides, so gradients must lie as their parameters do, whoever
    computed them.
    """
    words = (f"algorithm={algorithm}", DOUBLE, "backbone=mnist_cnn", "backbone.min_size=8")
    studies = [
        small_study(tmp_path, *words, *more) for more in ((), ("trainer.channels_last=true",))
    ]
    modules = [study.module(study.folds[0]) for study in studies]
    weight = dict(modules[1].named_parameters())["networks.featurizer.convs.1.weight"]
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    for study, module in zip(studies, modules, strict=True):
        fit(module, study.runs[0].data.batches(0, 3))
    assert _distance(*modules) < 1e-12


class Wrapped:
    """What Lightning's wrapper has that is used here."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups

    def step(self) -> None:
        self.optimizer.step()


def test_scaled_gradients_of_two_groups_make_the_same_step() -> None:
    """Gradients times 2^16, unscaled before clipping, give the step of the plain ones to both
    groups.
    """
    results = []
    for scale in (1.0, 65536.0):
        weights = [nn.Parameter(torch.tensor([1.0, -2.0])), nn.Parameter(torch.tensor([0.5]))]
        wrapped = [Wrapped(torch.optim.Adam([w], lr=0.1, fused=True)) for w in weights]
        for weight, gradient in zip(weights, ([3.0, 4.0], [12.0]), strict=True):
            weight.grad = torch.tensor(gradient) * scale
        scaler = (
            None if scale == 1 else torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1)
        )
        if scaler is not None:
            scaler.scale(torch.zeros(()))  # makes its scale
        take_steps(wrapped, 1.0, scaler)
        results.append(torch.cat([w.detach() for w in weights] + [w.grad for w in weights]))
    torch.testing.assert_close(*results)
    assert results[0][3:].norm() == pytest.approx(1.0, abs=1e-5)


def test_gradients_that_overflow_are_left_out_and_the_scale_sinks() -> None:
    weights = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    wrapped = [Wrapped(torch.optim.Adam([w], lr=0.1, fused=True)) for w in weights]
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.zeros(()))
    weights[0].grad, weights[1].grad = torch.tensor([math.inf]), torch.tensor([8.0])
    take_steps(wrapped, None, scaler)
    assert weights[0].item() == 1.0
    assert weights[1].item() == pytest.approx(0.9)
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("algorithm", ["erm", "and_mask", "fishr", "dann"])
def test_mixed_precision_trains(algorithm: str, tmp_path: Path) -> None:
    """Three steps in bfloat16 stay near those in single precision; weights stay float32."""
    study = small_study(tmp_path, f"algorithm={algorithm}", "trainer.precision=bf16-mixed",
        "trainer.steps=3",
                       "trainer.eval_every=3", "execution=single",
                       "protocol.folds=[0]")  # fmt: skip
    assert all(train_study(study).values())
    rows = rows_of(study.runs[0])
    assert {row["step"] for row in rows} == {3}
    assert rows[0]["hparams"]["trainer.precision"] == "bf16-mixed"


# ---- bad input


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.schedule=linear", r"trainer\.schedule=linear .*constant or cosine"),
        ("trainer.matmul=low", r"trainer\.matmul=low .*highest, high, medium"),
        ("trainer.gradient_clip=0", r"trainer\.gradient_clip=0.* norm > 0; .*null"),
        ("trainer.accumulate=0", r"trainer\.accumulate=0 .*1"),
        ("trainer.accumulate=3", r"hparams.batch_size=8.*cut.*hparams.batch_size.*multiple.*3"),
    ],
)
def test_bad_keys(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        small_study(tmp_path, override)


def test_half_precision_on_a_cpu_is_refused_and_not_replaced(tmp_path: Path) -> None:
    study = small_study(tmp_path, "trainer.precision=16-mixed")
    with pytest.raises(ConfigError, match=r"trainer\.precision=16-mixed.*fp16.*supported.*CPU"):
        make_trainer(study.settings, [], 1)


@pytest.mark.parametrize(
    "override", ["trainer.devices=2", "trainer.accumulate=2", "trainer.channels_last=true"]
)
def test_what_cannot_stack_says_so(override: str, tmp_path: Path) -> None:
    reason = small_study(tmp_path, override).why_not_stacked()
    assert reason is not None
    assert override.split("=")[0] in reason


@pytest.mark.parametrize("algorithm", ["stable_net", "sam", "disam"])
@pytest.mark.parametrize("override", ["trainer.devices=2", "trainer.accumulate=2"])
def test_what_needs_the_whole_minibatch_says_so(
    algorithm: str, override: str, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=rf"algorithm={algorithm}.*go.*{override}.*part.*minibatch"
    ):
        small_study(tmp_path, f"algorithm={algorithm}", override)
