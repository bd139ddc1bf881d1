"""The classifiers of shift against values worked out elsewhere in double precision, alone and as a
stack.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dgbench.batches import EnvBatch
from dgbench.containers import Networks
from dgbench.network_specs import Sizes
from dgbench.objectives.step import Hyperparameters, Step
from dgbench.shift.classifiers import (
    BottleneckClassifier,
    JointClassifier,
    LabelClassifier,
    SideClassifier,
)
from dgbench.shift.fitting import Judge
from dgbench.training.modules import SingleRun
from dgbench.training.optimizers import UpdateRule

SIZES = Sizes(n_features=3, n_classes=2, n_envs=2, image=(3,))


def wave(n_rows: int, n_columns: int, phase: float) -> Tensor:
    i, j = np.mgrid[1 : n_rows + 1, 1 : n_columns + 1]
    return torch.from_numpy(0.5 * np.sin(1.7 * i * j + phase))


def bottleneck(optimizer: str, lr: float, weight_decay: float) -> SingleRun:
    values = {
        "bottleneck": 4,
        "optimizer": optimizer,
        "decay_steps": 0,
        "lr": lr,
        "weight_decay": weight_decay,
    }
    algorithm = BottleneckClassifier(SIZES, values)
    layers = {
        "reducer": nn.Linear(3, 4),
        "label_map": nn.Linear(2, 4),
        "classifier": nn.Linear(4, 2),
    }
    for (n_out, n_in, phase), layer in zip(
        ((4, 3, 0), (4, 2, 1), (2, 4, 2)), layers.values(), strict=True
    ):
        with torch.no_grad():
            layer.weight.copy_(wave(n_out, n_in, phase))
            layer.bias.zero_()
    networks = Networks({"featurizer": nn.Identity(), **layers}).double()
    with torch.no_grad():  # the copy above went through single precision
        for (n_out, n_in, phase), name in zip(
            ((4, 3, 0), (4, 2, 1), (2, 4, 2)), layers, strict=True
        ):
            networks[name].weight.copy_(wave(n_out, n_in, phase))
    return SingleRun(algorithm, networks, rule=UpdateRule(10), dtype=torch.float64)


def batch() -> EnvBatch:
    i, j = np.mgrid[1:9, 1:4]
    x = torch.from_numpy(np.sin(0.9 * i * j))
    return EnvBatch(x, torch.tensor([0, 1] * 4), (4, 4))


def test_features_and_logits_of_the_bottleneck() -> None:
    module = bottleneck("adam", 3e-4, 0.0)
    outputs = module.algorithm.outputs(module.networks, batch().x)  # type: ignore[attr-defined]
    assert outputs[0, :4].tolist() == pytest.approx(
        [0.06613253, -0.00904673, -0.61861396, 0.82551818], abs=1e-8
    )
    logits, target = module.algorithm.judged(outputs, batch().y, batch().env)  # type: ignore[attr-defined]
    assert logits[0].tolist() == pytest.approx([0.13566872, 0.00791227], abs=1e-8)
    assert target.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("optimizer", "lr", "weight_decay", "losses"),
    [
        ("adam", 3e-4, 0.0, [0.7063149872, 0.7061510968, 0.7059876898, 0.7058247732]),
        ("sgd", 0.05, 1e-4, [0.7063149872, 0.7055706103, 0.7041720622, 0.7022113851]),
    ],
)
def test_steps_of_both_recipes(
    optimizer: str, lr: float, weight_decay: float, losses: list[float]
) -> None:
    module = bottleneck(optimizer, lr, weight_decay)
    optimizers = {"model": module.configure_optimizers()[0]}
    found = torch.cat([module.train_steps([batch()], optimizers) for _ in range(4)])
    assert found.flatten().tolist() == pytest.approx(losses, abs=1e-9)


def test_learning_rate_of_the_code_falls_to_half() -> None:
    values = {
        "bottleneck": 4,
        "optimizer": "sgd",
        "decay_steps": 10,
        "lr": 0.05,
        "weight_decay": 1e-4,
    }
    algorithm = BottleneckClassifier(SIZES, values)
    assert [algorithm.lr_factor("model", step) for step in (0, 5, 10, 50)] == pytest.approx(
        [1, 0.75, 0.5, 0.5]
    )


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (JointClassifier, [0, 1, 0, 1, 2, 3, 2, 3]),
        (LabelClassifier, [0, 1, 0, 1, 0, 1, 0, 1]),
        (SideClassifier, [0, 0, 0, 0, 1, 1, 1, 1]),
    ],
)
def test_targets(kind: type[JointClassifier], target: list[int]) -> None:
    values = {"width": 5, "hidden": 1, "lr": 1e-3, "weight_decay": 0.0}
    algorithm = kind(SIZES, values)
    (spec,) = algorithm.networks_needed(SIZES, values).values()
    assert spec.n_out == max(target) + 1  # type: ignore[union-attr]
    logits = torch.zeros(8, spec.n_out, dtype=torch.float64)  # type: ignore[union-attr]
    assert algorithm.judged(logits, batch().y, batch().env)[1].tolist() == target
    networks = Networks(
        {"featurizer": nn.Identity(), "classifier": nn.Linear(3, spec.n_out).double()}
    )  # type: ignore[union-attr]
    step = Step(networks, batch(), Hyperparameters({}), {}, {}, torch.tensor(0))
    expected = nn.functional.cross_entropy(networks.logits(batch().x), torch.tensor(target))
    assert algorithm.objective(step).loss.item() == pytest.approx(expected.item(), abs=1e-12)


def test_how_far_training_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed at step 20 of 100; 20 steps in 10 s leave 60, which are 30 s."""
    judge = object.__new__(Judge)
    judge.schedule = SimpleNamespace(steps=100)  # type: ignore[assignment]
    judge._begun, judge._first = 5.0, 20
    assert judge._pace(40, 15.0) == "step 40 of 100, 30 s left"
