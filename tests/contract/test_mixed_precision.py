"""Mixed precision is that of networks, for every algorithm; a new YAML file is tested without an
edit.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import OmegaConf
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dgbench.batches import EnvBatch, TrainingImages
from dgbench.networks.small import MNISTCNN
from dgbench.training.modules import SingleRun

FOLDER = Path(__file__).parents[2] / "conf" / "algorithm"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SIZES, IMAGE, K = (8, 8, 8), (2, 14, 14), 2
N = sum(SIZES)
WARM, LATE = 5, 10_000  # steps trained before, in float32; a step behind every annealing
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*val_dataloader", "ignore:.*does not have many workers",
    "ignore:.*number of training batches", "ignore:.*LeafSpec",
    "ignore:.*Trying to infer the `batch_size`",
)  # fmt: skip


@cache
def _digits() -> tuple[NDArray[Any], NDArray[Any]]:
    found = load_digits()
    return np.pad(found.images / 16, ((0, 0), (3, 3), (3, 3))), found.target


def _batch(seed: int) -> EnvBatch:
    """Digits below five and others; three in four are labeled so, as are their colors in most
    environments.
    """
    rng = np.random.default_rng(seed)
    images, numbers = _digits()
    rows = rng.choice(len(images), N, replace=False)
    y = (numbers[rows] >= 5) ^ (rng.random(N) < 0.25)
    channel = y ^ (rng.random(N) < np.repeat([0.1, 0.2, 0.9], SIZES))
    x = np.zeros((N, *IMAGE), np.float32)
    x[np.arange(N), channel.astype(int)] = images[rows]
    return EnvBatch(torch.as_tensor(x), torch.as_tensor(y).long(), SIZES, torch.arange(N))


def _trained(name: str, norm: type[nn.Module] | None = None) -> SingleRun:
    """A small network with the features that GroupNorm and pooling make: close to one another."""
    config: Any = OmegaConf.load(FOLDER / f"{name}.yaml")
    rates = {
        key: 1e-3
        for key in ("lr", "lr_g", "lr_d", "lr_c", "lr_cp")
        if key == "lr" or key in config.hparams
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = MNISTCNN((3 if name == "arm" else 2, *IMAGE[1:]), width=8)
        if norm:
            body.norms = nn.ModuleList(norm(layer.num_channels) for layer in body.norms)
    run: SingleRun = instantiate(
        config, networks=body, n_classes=K, n_envs=len(SIZES), image=IMAGE,
        hparams={"batch_size": SIZES[0], **rates}, n_images=N, n_trained_on=N,
    )  # fmt: skip
    images = _batch(99)
    run.training_images = lambda _: [
        TrainingImages(images.x, images.y, images.env, torch.arange(N))
    ]
    optimizers = dict(zip(run.trained_groups(), run.configure_optimizers(), strict=True))
    run.train_steps([_batch(100 + k) for k in range(WARM)], optimizers)
    return run


def _single(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value
    return (
        type(value)(_single(each) for each in value) if isinstance(value, (tuple, list)) else value
    )


def _rounded(forward: Any) -> Any:
    """A network that computes in bfloat16 and puts out float32."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            return _single(forward(*args, **kwargs))

    return call


def _gradients(
    trained: SingleRun, step: int, precision: Any, round_networks: bool = False
) -> list[Tensor]:
    """The gradient of each update of one step in a trainer, whose optimizers stand still."""
    run, found = copy.deepcopy(trained), []
    run.steps_done = step

    def note(step: int, stepping: Any) -> None:
        each = run._stepping(tuple(stepping), step).values()
        found.append(
            torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in each])
        )

    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, precision=precision,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_take_step", note)
        for network in run.networks.values() if round_networks else ():
            patch.setattr(network, "forward", _rounded(network.forward))
        trainer.fit(run, train_dataloaders=DataLoader([[_batch(5)]], batch_size=None))  # type: ignore[arg-type]
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_networks_alone_are_rounded_under_mixed_precision(name: str) -> None:
    """Penalties are small differences: MMD of bfloat16 features trained like ERM, DNA's divergence
    became NaN.
    """
    torch.set_num_threads(1)
    trained = _trained(name)
    for step in (WARM, LATE):
        found, expected = (
            _gradients(trained, step, "bf16-mixed"),
            _gradients(trained, step, "32-true", True),
        )
        single = _gradients(trained, step, "32-true")
        for mixed, networks_alone, exact in zip(found, expected, single, strict=True):
            torch.testing.assert_close(mixed, networks_alone)
            assert not exact.any() or not torch.equal(mixed, exact)


def test_running_statistics_move_under_mixed_precision() -> None:
    """Those of BatchNorm, whose networks are called as functions of their tensors then."""
    trained = _trained("erm", nn.BatchNorm2d)
    before = {name: value.clone() for name, value in trained.networks.statistics().items()}
    moved = []
    for mixed in (True, False):
        run = copy.deepcopy(trained)
        optimizers = dict(zip(run.trained_groups(), run.configure_optimizers(), strict=True))
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            run.train_steps([_batch(7), _batch(8)], optimizers)
        moved.append(run.networks.statistics())
    for name, value in before.items():
        assert not torch.equal(moved[0][name], value)
        torch.testing.assert_close(moved[0][name], moved[1][name], rtol=0.02, atol=0.02)


def test_predictions_are_float32_of_networks_in_bfloat16() -> None:
    run = _trained("erm").eval()
    x = _batch(6).x
    exact = run(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = run(x)
    assert found.dtype == torch.float32
    assert not torch.equal(found, exact)
    torch.testing.assert_close(found, exact, rtol=0.05, atol=0.05)
