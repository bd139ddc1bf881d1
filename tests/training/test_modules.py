"""The modules that train: single against stacked with BatchNorm, states of runs, exact
hyperparameters, divergence.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dgbench.algorithms.erm import ERM
from dgbench.batches import EnvBatch, EvalBatch, TrainingImages
from dgbench.configuration import CONF
from dgbench.errors import ConfigError, DivergedError
from dgbench.network_specs import Sizes
from dgbench.objectives.step import Bernoulli, RandomInputs
from dgbench.training.modules import RunModule, SingleRun, StackedRuns, training_module
from dgbench.training.modules.base import minibatches
from dgbench.training.modules.predicting import InputDraws

NAMES = [path.stem for path in sorted((CONF / "algorithm").glob("*.yaml"))]
SIZES, IMAGE, K = (6, 6, 6), (1, 3, 3), 3
N = sum(SIZES)
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*val_dataloader", "ignore:.*does not have many workers",
    "ignore:.*number of training batches", "ignore:.*LeafSpec",
    "ignore:.*Trying to infer the `batch_size`",
)  # fmt: skip


class Featurizer(nn.Sequential):
    """With a BatchNorm that is not frozen; a bias before it would have gradient 0, of which Adam
    makes noise.
    """

    n_features = 5

    def __init__(self, channels: int) -> None:
        first = nn.Linear(9 * channels, 6, bias=False)
        super().__init__(nn.Flatten(), first, nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 5))

    def forward(self, x: Tensor, maps: bool = False) -> Any:
        z = super().forward(x)
        return (z, [x, x.tanh(), z]) if maps else z


def make(name: str, seed: int = 0, **hparams: Any) -> SingleRun:
    config = OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = Featurizer(2 if name == "arm" else 1)
    rates = {
        key: 0.01
        for key in ("lr", "lr_g", "lr_d", "lr_c", "lr_cp")
        if key == "lr" or key in config.hparams
    }
    own = {
        "batch_size": 6,
        **rates,
        **{key: 2 for key in config.hparams if "anneal" in key},
        **hparams,
    }
    made: SingleRun = instantiate(
        config, networks=body, n_classes=K, n_envs=len(SIZES), image=IMAGE, seed=seed, hparams=own,
        dtype=torch.float64, n_images=N, n_trained_on=N,
    )  # fmt: skip
    images = batch(99)
    made.training_images = lambda _: [
        TrainingImages(images.x, images.y, images.env, torch.arange(N))
    ]
    return made


def batch(seed: int) -> EnvBatch:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(N, *IMAGE)), rng.integers(K, size=N)
    return EnvBatch(torch.as_tensor(x), torch.as_tensor(y), SIZES, torch.arange(N))


def fit(module: RunModule, steps: list[EnvBatch]) -> pl.Trainer:
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, train_dataloaders=DataLoader([steps], batch_size=None))  # type: ignore[arg-type]
    return trainer


def together(steps: list[list[EnvBatch]]) -> list[EnvBatch]:
    return [
        EnvBatch(
            torch.stack([b.x for b in row]),
            torch.stack([b.y for b in row]),
            SIZES,
            torch.arange(N).expand(len(row), -1),
        )
        for row in zip(*steps, strict=True)
    ]


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[key] - b[key]).abs().max()) for key in a if a[key].numel())


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_stacked_equals_single_with_batchnorm(name: str) -> None:
    """Two seeds, five steps, float64, through a real trainer: every tensor of each run."""
    runs = [make(name, seed) for seed in (0, 1)]
    alone = copy.deepcopy(runs)
    steps = [[batch(10 * i + k) for k in range(5)] for i in range(2)]
    stack = StackedRuns(runs)
    stack.training_images = runs[0].training_images
    before = runs[0].weights()
    fit(stack, together(steps))
    for i, run in enumerate(alone):
        fit(run, steps[i])
        assert distance(run.weights(), stack.weights(i)) < 1e-9
    assert distance(before, stack.weights(0)) > 1e-3


@pytest.mark.parametrize("name", ["erm", "irm", "dann", "fishr", "mtl"])
def test_a_run_continues_alone_or_in_a_stack(name: str) -> None:
    """Three steps together, then two more alone and in a stack: the states of five steps alone."""
    runs = [make(name, seed) for seed in (0, 1)]
    alone = copy.deepcopy(runs)
    steps = [[batch(10 * i + k) for k in range(5)] for i in range(2)]
    stack = StackedRuns(runs)
    fit(stack, together([own[:3] for own in steps]))
    states = [stack.run_state(i) for i in range(2)]
    kept = copy.deepcopy(states)
    again, single = StackedRuns([make(name, 0), make(name, 1)]), make(name, 1)
    again.load_run_states(states)
    single.load_run_states(states[1:])
    assert again.steps_done == single.steps_done == 3
    fit(again, together([own[3:] for own in steps]))
    fit(single, steps[1][3:])
    for run, own in zip(alone, steps, strict=True):
        fit(run, own)
    assert distance(alone[0].weights(), again.weights(0)) < 1e-9
    assert distance(alone[1].weights(), again.weights(1)) < 1e-9
    assert distance(alone[1].weights(), single.weights()) < 1e-9
    assert all(
        distance(a["state_dict"], b["state_dict"]) == 0 for a, b in zip(states, kept, strict=True)
    )
    ends = [alone[1].run_state(0), again.run_state(1)]
    for one, other in zip(ends[0]["optimizers"], ends[1]["optimizers"], strict=True):
        torch.testing.assert_close(one["state"], other["state"], rtol=1e-9, atol=1e-9)


def test_hyperparameters_are_exact() -> None:
    """0.35 is no float32; torch's default type stays what it is."""
    run = make("and_mask", tau=0.35)
    assert float(run.hp.tensors()["tau"]) == 0.35
    assert run.hp.tensors()["tau"].dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_a_single_run_and_a_stack_of_diverged_runs_fail() -> None:
    """A run whose weights are NaN is noted; when all are, training ends."""
    runs = [make("erm", seed) for seed in (0, 1)]
    with torch.no_grad():
        next(runs[0].networks.parameters()).fill_(float("nan"))
    stack = StackedRuns(copy.deepcopy(runs))
    fit(stack, together([[batch(0)], [batch(1)]]))
    assert list(stack.diverged) == [0] and stack.diverged[0][0] == 0
    with pytest.raises(DivergedError, match="step 0"):
        fit(copy.deepcopy(runs[0]), [batch(0)])
    with torch.no_grad():
        next(runs[1].networks.parameters()).fill_(float("nan"))
    with pytest.raises(DivergedError, match="step 0"):
        fit(StackedRuns(runs), together([[batch(0)], [batch(1)]]))


def test_evaluation_counts_for_every_run() -> None:
    runs = [make("erm", seed) for seed in (0, 1)]
    stack = StackedRuns(runs)
    fit(stack, together([[batch(0)], [batch(1)]]))
    images = EvalBatch(batch(5).x, batch(5).y, "a", 0)
    counts = stack.validation_step(images, 0)
    alone = [stack.write_back(i).eval().validation_step(images, 0) for i in range(2)]
    assert counts["wrong"].shape == counts["loss"].shape == (2,) and int(counts["seen"]) == 18
    torch.testing.assert_close(counts["loss"], torch.cat([each["loss"] for each in alone]))
    assert counts["wrong"].tolist() == [int(each["wrong"]) for each in alone]


# ---- outside dgbench


def loaders(n: int) -> list[DataLoader[Any]]:
    rng = np.random.default_rng(0)
    sets = []
    for _ in range(n):
        y = torch.as_tensor(rng.integers(K, size=24))
        x = torch.as_tensor(rng.normal(size=(24, *IMAGE)), dtype=torch.float32) + 3.0 * y.view(
            -1, 1, 1, 1
        )
        sets.append(DataLoader(TensorDataset(x, y), batch_size=6))
    return sets


@pytest.mark.parametrize("form", ["list", "mapping"])
def test_it_trains_in_a_users_own_trainer(form: str) -> None:
    config = OmegaConf.load(CONF / "algorithm" / "vrex.yaml")
    body = Featurizer(1)
    module = instantiate(config, networks=body, n_classes=K, n_envs=3, hparams={"lr": 0.01})
    assert module.networks["featurizer"] is body and module.algorithm.values["vrex_lambda"] == 10.0
    train: Any = loaders(3) if form == "list" else dict(zip("abc", loaders(3), strict=True))
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=10, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, train, loaders(1))
    assert module.steps_done == 40
    assert float(trainer.callback_metrics["val/error"]) < 0.4


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"minibatches of 2 environment.* made for 3"):
        pairs = [(torch.zeros(2, *IMAGE), torch.zeros(2).long())] * 2
        minibatches(pairs, 3)
    with pytest.raises(ConfigError, match="n_features"):
        training_module("dgbench.algorithms.erm.ERM", nn.Linear(2, 2), 2, 2)
    with pytest.raises(ConfigError, match=r"objective=pathlib.Path.*dgbench Algorithm"):
        training_module("pathlib.Path", Featurizer(1), 2, 2)
    with pytest.raises(ConfigError, match=r"ARM needs.*shape.*image.*image=\[C, H, W\]"):
        arm = {"variant": "reference", "batch_size": 6}
        training_module("dgbench.algorithms.arm.ARM", Featurizer(2), 2, 2, hparams=arm)


def test_large_random_inputs_come_in_shorter_blocks() -> None:
    """A step's numbers are the same wherever training begins; few steps of them are kept."""

    class Noisy(ERM):
        def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
            return {"keep": Bernoulli((2**19 + 1,), "many")}

    algorithm = Noisy(Sizes(1, 2, 1, (1, 1, 1)), {"lr": 0.1, "weight_decay": 0.0})
    one, other = InputDraws(algorithm, 3), InputDraws(algorithm, 3)
    steps = [one.at(step, (4,), torch.empty(()))["keep"] for step in range(6)]
    assert torch.equal(other.at(5, (4,), torch.empty(()))["keep"], steps[5])
    assert not torch.equal(steps[0], steps[1]) and not torch.equal(steps[0], steps[4])
    assert steps[0].untyped_storage().nbytes() < 5 * 2**19
