"""What an algorithm may ask of training beside its objective; each on one run and on a stack, step
by step by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from dgbench.batches import EnvBatch, TrainingImages
from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.network_specs import FeaturizerSpec, LinearSpec, NetworkSpec, PerChannelSpec, Sizes
from dgbench.networks.build import assembled, build_networks
from dgbench.networks.small import MNISTCNN, MLPFeaturizer, WideResNet
from dgbench.networks.timm_networks import ResNet, VisionTransformer
from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.step import Outcome, Prediction, Step, Surveyed
from dgbench.plan.hyperparameters import resolve
from dgbench.training.modules import RunModule, SingleRun, StackedRuns
from dgbench.training.optimizers import UpdateRule

M, K, IMAGES = 4, 3, 10
SIZES = Sizes(n_features=M, n_classes=K, n_envs=2, image=(1, 2, 2), n_steps=10, n_images=IMAGES)
VALUES = {"lr": 0.1, "weight_decay": 0.0, "batch_size": 5, "weight": 0.25, "first": 1, "second": 3}


pytestmark = pytest.mark.usefixtures("double")


class Body(nn.Module):
    """A linear map and BatchNorm; its map is what comes out of the former."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, M, bias=False), nn.BatchNorm1d(M)

    def forward(self, x: Tensor, maps: bool = False) -> Any:
        h = self.linear(x.flatten(1))
        return (self.norm(h), [h]) if maps else self.norm(h)


def batch(step: int = 0) -> EnvBatch:
    rng = torch.Generator().manual_seed(step)
    index = (torch.arange(10) + step) % IMAGES
    return EnvBatch(torch.randn(10, 1, 2, 2, generator=rng), torch.arange(10) % K, (5, 5), index)


def run_of(
    kind: type[Algorithm], seed: int = 0, rule: UpdateRule | None = None, **values: Any
) -> SingleRun:
    hparams = {**VALUES, **values}
    torch.manual_seed(seed)
    networks = assembled(
        {"featurizer": Body()}, kind.networks_needed(SIZES, hparams), (1, 2, 2), Body
    )
    return SingleRun(kind(SIZES, hparams), networks, seed, rule)


def train(module: RunModule, steps: int, images: Sequence[TrainingImages] = ()) -> list[Tensor]:
    module.train()
    module.training_images = lambda _: images
    optimizers = dict(zip(module.trained_groups(), module.configure_optimizers(), strict=True))
    losses = []
    for step in range(steps):
        one = batch(step)
        if isinstance(module, StackedRuns):
            assert one.index is not None
            x, y, index = (torch.stack([each] * module.size) for each in (one.x, one.y, one.index))
            one = EnvBatch(x, y, one.sizes, index)
        losses.append(module.train_steps([one], optimizers)[0])
    return losses


def alone_and_stacked(
    kind: type[Algorithm],
    steps: int,
    images: Sequence[TrainingImages] = (),
    rule: UpdateRule | None = None,
) -> SingleRun:
    """Two runs with other hyperparameters, alone and stacked, end alike; gives the first."""
    different: list[dict[str, Any]] = [{}, {"seed": 1, "weight": 0.5, "lr": 0.05}]
    alone = [run_of(kind, rule=rule, **own) for own in different]
    for run in alone:
        train(run, steps, images)
    stack = StackedRuns([run_of(kind, rule=rule, **own) for own in different])
    train(stack, steps, images)
    for i, run in enumerate(alone):
        found, expected = stack.weights(i), run.weights()
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9, msg=name)
    return alone[0]


class Plain(Algorithm):
    """ERM."""

    def objective(self, s: Step) -> Outcome:
        return Outcome(s.risk(s.logits()))


# ---- state from networks, updates without groups


class Counts(Plain):
    """State that starts as the classifier's weights and is moved by an update that trains
    nothing.
    """

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {"start": networks["classifier"].weight.detach().clone(), "seen": torch.zeros(())}

    def updates(self, step: int) -> Sequence[Update]:
        return (Update(self.objective, ("model",)), Update(self.count, ()))

    def count(self, s: Step) -> Outcome:
        """Not finite, which is not judged."""
        assert not torch.is_grad_enabled() or s.networks.params()
        return Outcome(
            s.x.sum() / 0,
            state={"seen": s.state["seen"] + s.networks.params()["classifier.weight"].sum()},
        )


def test_update_without_groups_is_evaluated_for_its_state() -> None:
    run = alone_and_stacked(Counts, 3)
    assert not run.diverged
    assert torch.equal(run.memory.tensors()["start"], run_of(Counts).networks["classifier"].weight)
    plain = run_of(Plain)
    total = torch.zeros(())
    optimizers = dict(zip(plain.trained_groups(), plain.configure_optimizers(), strict=True))
    for step in range(3):
        plain.train().train_steps([batch(step)], optimizers)
        total += plain.networks["classifier"].weight.detach().sum()
    torch.testing.assert_close(run.memory.tensors()["seen"], total)


# ---- pull


class Pulled(Plain):
    """Two updates, then a quarter of the way."""

    def param_groups(self) -> dict[str, ParamGroup]:
        return {"model": ParamGroup(("featurizer", "classifier"), pull="weight")}

    def updates(self, step: int) -> Sequence[Update]:
        return (Update(self.objective, ("model",)),) * 2


def test_pull_takes_parameters_and_statistics_back() -> None:
    run, free = alone_and_stacked(Pulled, 1), run_of(Plain)
    start = {key: value.clone() for key, value in free.networks.state_dict().items()}
    optimizers = dict(zip(free.trained_groups(), free.configure_optimizers(), strict=True))
    free.train().train_steps([batch()], optimizers)
    free.train_steps([batch()], optimizers)
    for name, value in free.networks.state_dict().items():
        expected = start[name] + 0.25 * (value - start[name])
        if not value.is_floating_point():
            expected = expected.trunc().long()
        torch.testing.assert_close(run.networks.state_dict()[name], expected)


# ---- resets, factors of learning rates, SGD


class Twice(Plain):
    """Optimizers are re-created at two steps."""

    reset_adam_at = ("first", "second")


def test_optimizers_are_created_anew_at_each_of_several_steps() -> None:
    run = alone_and_stacked(Twice, 5)
    (adam,) = run._optimizers.values()
    assert {float(state["step"]) for state in adam.state.values()} == {2.0}  # steps 3 and 4


class Heads(Plain):
    """The classifier by itself, at a multiple of its learning rate that falls."""

    optimizer = "sgd"

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "body": ParamGroup(("featurizer",), optimizer=self.optimizer),
            "head": ParamGroup(
                ("classifier",), optimizer=self.optimizer, nesterov=self.optimizer == "sgd"
            ),
        }

    def updates(self, step: int) -> Sequence[Update]:
        return (Update(self.objective, ("body", "head")),)

    def lr_factor(self, group: str, step: int) -> float:
        return (10.0 if group == "head" else 1.0) * (0.5 if step >= 2 else 1.0)


def test_sgd_and_factors_of_learning_rates() -> None:
    run, plain = alone_and_stacked(Heads, 4), run_of(Heads)
    body, head = (list(plain.networks[name].parameters()) for name in ("featurizer", "classifier"))
    sgd = (
        torch.optim.SGD(body, lr=0.1, momentum=0.9),
        torch.optim.SGD(head, lr=1.0, momentum=0.9, nesterov=True),
    )
    plain.train()
    for step in range(4):
        for each, full in zip(sgd, (0.1, 1.0), strict=True):
            each.param_groups[0]["lr"] = full * (0.5 if step >= 2 else 1.0)
            each.zero_grad()
        one = batch(step)
        nn.functional.cross_entropy(plain.networks.logits(one.x), one.y).backward()
        for each in sgd:
            each.step()
    for name, value in plain.networks.state_dict().items():
        torch.testing.assert_close(run.networks.state_dict()[name], value)
    assert run.learning_rates(0, 3) == {"body": 0.05, "head": 0.5}


def test_state_of_sgd_is_saved_and_put_back() -> None:
    run = run_of(Heads)
    train(run, 2)
    state, again = run.run_state(0), run_of(Heads)
    again.load_run_states([state])
    optimizers = dict(zip(again.trained_groups(), again.configure_optimizers(), strict=True))
    again.load_optimizers()
    again.train().train_steps([batch(2)], optimizers)
    straight = run_of(Heads)
    train(straight, 3)
    assert all(
        torch.equal(value, straight.weights()[name]) for name, value in again.weights().items()
    )


# ---- further networks


class Near(Plain):
    """Features stay near those of the initial weights, by a learned scale for each channel of the
    map.
    """

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "start": FeaturizerSpec(frozen=True),
            "other": FeaturizerSpec(),
            "scales": PerChannelSpec(0.5),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {"model": ParamGroup(("featurizer", "classifier", "other", "scales", "start"))}

    def objective(self, s: Step) -> Outcome:
        nets: Any = s.networks
        z, maps = nets.featurizer(s.x, maps=True)
        _, before = nets.start(s.x, maps=True)
        distance = sum(
            (scale * (now - old)).square().mean()
            for scale, now, old in zip(nets.scales(), maps, before, strict=True)
        )
        return Outcome(s.risk(nets.classifier(z - nets.other(s.x))) + distance)


def test_further_featurizers_and_numbers_for_each_channel() -> None:
    run, fresh = alone_and_stacked(Near, 3), run_of(Near)
    frozen, start = run.networks["start"].state_dict(), fresh.networks["featurizer"].state_dict()
    assert all(torch.equal(frozen[name], value) for name, value in start.items())
    assert not any(name.startswith("start.") for name in run.networks.params())
    assert not torch.equal(
        fresh.networks["other"].linear.weight, fresh.networks["featurizer"].linear.weight
    )
    for name in ("featurizer.linear.weight", "other.linear.weight", "scales.values.0"):
        assert not torch.equal(run.networks.state_dict()[name], fresh.networks.state_dict()[name])


def test_a_featurizer_without_maps_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"featurizer, Linear.*take maps=True"):
        assembled({"featurizer": nn.Linear(2, M)}, {"scales": PerChannelSpec(1.0)}, (1, 2, 2), Body)


BACKBONES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[tuple[int, ...]]]] = {
    "mlp": (lambda: MLPFeaturizer((1, 4, 4), 7), (1, 4, 4), [(7,)] * 3),
    "mnist_cnn": (
        lambda: MNISTCNN((1, 14, 14), 8), (1, 14, 14),
        [(8, 14, 14), (8, 14, 14), (16, 7, 7), (16, 7, 7), (16, 7, 7)],
    ),
    "wide_resnet": (
        lambda: WideResNet((3, 32, 32)), (3, 32, 32),
        [(16, 32, 32), (32, 32, 32), (64, 16, 16), (128, 8, 8)]
    ),
    "resnet18": (
        lambda: ResNet((3, 32, 32), "resnet18", dropout=0.1), (3, 32, 32),
        [(64, 8, 8), (64, 8, 8), (128, 4, 4), (256, 2, 2), (512, 1, 1)],
    ),
    "vit": (
        lambda: VisionTransformer((3, 32, 32), "vit_tiny_patch16_224"), (3, 32, 32),
        [(192, 2, 2), *[(5, 192)] * 4]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BACKBONES)
def test_maps_of_every_backbone(name: str) -> None:
    """Features are the same with maps, and so is what a vmap sees of them."""
    make, image, shapes = BACKBONES[name]
    body: Any = make().eval()
    x = torch.randn(2, *image)
    z, maps = body(x, maps=True)
    torch.testing.assert_close(z, body(x))
    assert [tuple(each.shape[1:]) for each in maps] == shapes
    scales = assembled({"featurizer": body}, {"scales": PerChannelSpec(0.5)}, image, Body)[
        "scales"
    ]()
    assert all((scale * each).shape == each.shape for scale, each in zip(scales, maps, strict=True))


def test_a_second_featurizer_has_the_factory_s_weights() -> None:
    def make(image: tuple[int, ...]) -> nn.Module:
        return MLPFeaturizer((image[0], image[1], image[2]), 5)

    sizes = Sizes(0, K, 2, (1, 2, 2))
    networks, _ = build_networks(make, sizes, lambda _: {"other": FeaturizerSpec()}, 0, seed=3)
    again, _ = build_networks(make, sizes, lambda _: {"other": FeaturizerSpec()}, 0, seed=3)
    assert torch.equal(networks["other"].layers[1].weight, again["other"].layers[1].weight)
    assert not torch.equal(
        networks["other"].layers[1].weight, networks["featurizer"].layers[1].weight
    )


# ---- surveys


class Remembers(Plain):
    """The mean image feature at the last survey, for each training image; risks weighed by it."""

    asked: ClassVar[list[int]] = []

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {"level": torch.zeros(self.sizes.n_images), "draw": torch.zeros(())}

    def survey_due(self, step: int) -> bool:
        return step in (0, 2)

    def survey(self, s: Prediction) -> Tensor:
        assert not torch.is_grad_enabled()
        return s.networks.featurizer(s.x)

    def digest(self, seen: Surveyed) -> dict[str, Tensor]:
        assert len(seen.env) == len(seen.y) == IMAGES
        level = torch.zeros_like(seen.state["level"])
        level[seen.index] = seen.rows.mean(1) + seen.step
        return {"level": level, "draw": torch.tensor(seen.rng.random())}

    def objective(self, s: Step) -> Outcome:
        each = nn.functional.cross_entropy(s.logits(), s.y, reduction="none")
        return Outcome((each * (1 + s.state["level"][s.index])).mean())


def images() -> list[TrainingImages]:
    one = batch(99)
    assert one.index is not None
    parts = [slice(0, 4), slice(4, 10)]
    return [TrainingImages(one.x[p], one.y[p], one.env[p], torch.arange(10)[p]) for p in parts]


def test_survey_sees_all_images_in_evaluation_mode() -> None:
    run = alone_and_stacked(Remembers, 4, images())
    two = run_of(Remembers)
    train(two, 2, images())
    with torch.no_grad():
        expected = two.networks.eval().featurizer(batch(99).x).mean(1) + 2
    torch.testing.assert_close(run.memory.tensors()["level"], expected)
    statistics = two.networks["featurizer"].norm.num_batches_tracked
    assert int(statistics) == 2, "a survey moves no running statistics"
    other = run_of(Remembers, seed=1)
    train(other, 4, images())
    assert other.memory.tensors()["draw"] != run.memory.tensors()["draw"]


def test_survey_without_images_and_images_without_numbers_are_refused() -> None:
    run = run_of(Remembers)
    optimizers = dict(zip(run.trained_groups(), run.configure_optimizers(), strict=True))
    with pytest.raises(ConfigError, match=r"looks.*training images"):
        run.train_steps([batch()], optimizers)
    one = batch(1)
    run.steps_done = 1
    with pytest.raises(ConfigError, match="give EnvBatch an index"):
        run.train_steps([EnvBatch(one.x, one.y, one.sizes)], optimizers)


# ---- the head first


def test_head_first_then_all_with_new_optimizers() -> None:
    rule = UpdateRule(head_steps=2, head_lr=0.3)
    run, plain = alone_and_stacked(Plain, 4, rule=rule), run_of(Plain)
    networks, one = plain.networks.train(), plain.networks["classifier"]
    first = torch.optim.Adam(one.parameters(), lr=0.3)
    then = torch.optim.Adam(networks.parameters(), lr=0.1)
    for step, adam in enumerate((first, first, then, then)):
        networks.zero_grad()
        nn.functional.cross_entropy(networks.logits(batch(step).x), batch(step).y).backward()
        adam.step()
    for name, value in networks.state_dict().items():
        torch.testing.assert_close(run.networks.state_dict()[name], value)


def test_head_first_leaves_out_what_trains_only_featurizers() -> None:
    class Body_(Plain):
        def param_groups(self) -> dict[str, ParamGroup]:
            return {"body": ParamGroup(("featurizer",))}

        def updates(self, step: int) -> Sequence[Update]:
            return (Update(self.objective, ("body",)),)

    run, fresh = run_of(Body_, rule=UpdateRule(head_steps=2)), run_of(Body_)
    train(run, 2)
    assert torch.equal(
        run.networks["featurizer"].linear.weight, fresh.networks["featurizer"].linear.weight
    )


# ---- values by dataset


def test_defaults_and_draws_by_dataset() -> None:
    shared = {"hparams": {}, "search": {"domainbed": {}}}
    own = {
        "hparams": {"w": {"small": 1, "large": 2, "datasets": {"pacs": 3}}},
        "search": {
            "domainbed": {"w": {"large": {"choice": [4]}, "datasets": {"pacs": {"choice": [5]}}}}
        },
    }

    def value(kind: str, dataset: str, number: int = 0) -> int:
        found: int = resolve(shared, own, kind=kind, dataset=dataset, number=number)["w"]
        return found

    assert [value("small", ""), value("large", "vlcs"), value("large", "pacs")] == [1, 2, 3]
    assert [value("small", "", 1), value("large", "vlcs", 1), value("large", "pacs", 1)] == [
        1,
        4,
        5,
    ]
