"""What a step costs, counted on the meta device, against the same step computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.training.cost import Meter, count
from dgbench.training.study import ReadyStudy
from tests.studies import SMALL, make_plan, small_study, train_study

#: updates of several networks, second derivatives, several passes, an update that starts late, a
#: survey
ALGORITHMS = ("erm", "sam", "mldg", "fish", "iga", "fishr", "mixup", "ada_clust")


def computed(study: ReadyStudy, step: int) -> Meter:
    """A step of the first fold on this CPU."""
    run = study.runs[0]
    module = study.module(run.fold)
    batch = run.data.batches(step, 1)[0]
    with Meter() as meter:
        for tensor in (
            value
            for value in module.state_dict(keep_vars=True).values()
            if isinstance(value, Tensor)
        ):
            meter.note(tensor)
        optimizers = dict(zip(module.trained_groups(), module.configure_optimizers(), strict=True))
        module._is_tried = True  # a trial takes the first step twice
        module._step(step, torch.tensor(step), batch, optimizers)
    return meter


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_counted_step_is_the_computed_one(algorithm: str, tmp_path: Path) -> None:
    study = small_study(tmp_path, f"algorithm={algorithm}", "trainer.steps=30")
    cost = count(study.planned)
    assert cost.step == computed(study, 1).flops > 0
    assert (cost.surveys > 0) == (algorithm == "ada_clust")


def test_counted_memory_is_what_a_step_takes(tmp_path: Path) -> None:
    words = (
        "backbone=mnist_cnn",
        "backbone.min_size=8",
        "backbone.width=16",
        "hparams.batch_size=32",
    )
    study = small_study(tmp_path, *words)
    assert count(study.planned).memory == pytest.approx(computed(study, 1).peak, rel=0.05)


def test_an_alternating_method_costs_the_mean_of_its_steps(tmp_path: Path) -> None:
    """DANN's discriminator steps alone at every second step; the featurizer is passed forward
    there, not backward.
    """
    words = ("algorithm=dann", "hparams.d_steps_per_g_step=1")
    two, one = (
        count(small_study(tmp_path, *words, f"trainer.steps={n}").planned).step for n in (2, 1)
    )
    four = count(small_study(tmp_path, *words, "trainer.steps=4").planned).step
    assert four == two != one


def test_every_layer_counts_forward_and_back(tmp_path: Path) -> None:
    """A perceptron by hand: three times its products, less those of the images' gradient."""
    study = small_study(tmp_path)
    module, data = study.module(study.folds[0]), study.runs[0].data
    products = [2 * p.numel() for p in module.networks.parameters() if p.dim() == 2]
    n = data.batch_size * len(data.training)
    cost = count(study.planned)
    assert cost.step == n * (3 * sum(products) - products[0])
    assert cost.image == sum(products)


@pytest.mark.parametrize("groups", [1, 4])
def test_gradients_of_a_grouped_convolution(groups: int) -> None:
    x = torch.empty(2, 4, 6, 6, device="meta", requires_grad=True)
    weight = torch.empty(8, 4 // groups, 3, 3, device="meta", requires_grad=True)
    with Meter() as meter:
        out = F.conv2d(x, weight, padding=1, groups=groups)
        forward = meter.flops
        out.sum().backward()
    assert forward == 2 * out.numel() * weight[0].numel()
    assert meter.flops == 3 * forward


def test_what_is_frozen_or_kept_is_not_computed_again(tmp_path: Path) -> None:
    """A probe passes forward alone; with kept features it passes once over the images of all
    environments.
    """
    words = (*SMALL, "backbone=mnist_cnn", "backbone.min_size=8", "backbone.width=16")
    lp, kept = ("tuning=lp",), ("tuning=lp", "tuning.cache_features=true")
    plans = [make_plan(tmp_path, *words, *more) for more in ((), lp, kept)]
    whole, probe, cached = map(count, plans)
    n = 8 * len(plans[0].folds[0].training)
    assert probe.step == pytest.approx(whole.image * n, rel=0.02) and probe.memory < whole.memory
    assert cached.kept == pytest.approx(whole.image, rel=0.02) and cached.step < 0.02 * probe.step
    costs = [
        cost.per_minibatch(plan) for cost, plan in zip((whole, probe, cached), plans, strict=True)
    ]
    assert costs[2] < 0.1 * costs[1] < 0.1 * costs[0]


def test_counted_disk_is_what_checkpoints_take(tmp_path: Path) -> None:
    study = small_study(
        tmp_path,
        "backbone.width=128",
        "trainer.steps=1",
        "trainer.eval_every=1",
        "protocol.folds=[0]",
    )
    train_study(study)
    files = sum(file.stat().st_size for file in tmp_path.rglob("*.ckpt"))
    assert count(study.planned).disk == pytest.approx(files, rel=0.05)
