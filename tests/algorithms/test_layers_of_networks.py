"""Algorithms on featurizers with layers of their own chance or statistics: MixStyle on a ResNet,
dropout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from dgbench.algorithms.erm import ERM
from dgbench.algorithms.mixstyle import MixStyle
from dgbench.batches import EnvBatch
from dgbench.containers import Networks
from dgbench.network_specs import Sizes, StyleMix
from dgbench.networks.featurizer import mix_styles
from dgbench.networks.timm_networks import ResNet
from dgbench.objectives.step import Hyperparameters, Step, draw
from dgbench.training.modules import SingleRun

SIZES = (3, 3, 3)
IMAGE = (3, 32, 32)


def batch(seed: int = 0) -> EnvBatch:
    rng = torch.Generator().manual_seed(seed)
    x, y = (
        torch.randn(sum(SIZES), *IMAGE, generator=rng),
        torch.randint(4, (sum(SIZES),), generator=rng),
    )
    return EnvBatch(x.to(torch.get_default_dtype()), y, SIZES)


def networks(dropout: float = 0.0, norm: str = "frozen") -> Networks:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = ResNet(IMAGE, "test_resnet", norm=norm, dropout=dropout)
        return Networks({"featurizer": body, "classifier": nn.Linear(body.n_features, 4)})


def mixed_by_hand(nets: Networks, x: Tensor, noise: dict[str, Tensor], i: int) -> Tensor:
    """timm's own modules, one after the other, and the mixing step after residual stages 1, 2 and
    3.
    """
    body: Any = nets["featurizer"].body
    h = body.maxpool(body.act1(body.bn1(body.conv1(x))))
    for stage in (1, 2, 3):
        h = getattr(body, f"layer{stage}")(h)
        mix = StyleMix(*(noise[key][i, stage - 1] for key in ("active", "weight", "partner")))
        h = mix_styles(h, mix)
    return nets.classifier(body.layer4(h).mean((2, 3)))


@pytest.mark.parametrize("ms_type", ["random", "crossdomain"])
def test_mixstyle_on_a_resnet_by_hand(ms_type: str) -> None:
    """random: one pass over all rows. crossdomain, for the order p: passes over x_p0 x_p1, x_p1
    x_p2, x_p2 x_p0.
    """
    torch.set_default_dtype(torch.float64)
    try:
        nets = networks().double().train()
        hparams = {
            "ms_type": ms_type,
            "ms_p": 0.7,
            "ms_alpha": 0.1,
            "ms_layers": "123",
            "lr": 0.1,
            "weight_decay": 0.0,
        }
        sizes = Sizes(n_features=nets["featurizer"].n_features, n_classes=4, n_envs=3, image=IMAGE)  # type: ignore[arg-type]
        algorithm = MixStyle(sizes, hparams)
        data, drawn = batch(), draw(algorithm.random_inputs(SIZES), np.random.default_rng(3), 1)
        noise = {key: torch.as_tensor(value[0]) for key, value in drawn.items()}
        assert 0 < int(noise["active"].sum()) < noise["active"].numel()
        out = algorithm.objective(Step(nets, data, Hyperparameters(), {}, noise, torch.tensor(0)))
        if ms_type == "random":
            passes = [torch.arange(9)]
        else:
            rows = torch.arange(9).view(3, 3)
            p = noise["permutation"].tolist()
            passes = [torch.cat([rows[p[k]], rows[p[(k + 1) % 3]]]) for k in range(3)]
        losses = [
            F.cross_entropy(mixed_by_hand(nets, data.x[r], noise, i), data.y[r])
            for i, r in enumerate(passes)
        ]
        torch.testing.assert_close(out.loss, torch.stack(losses).mean())
        plain = torch.stack(
            [F.cross_entropy(nets.logits(data.x[r]), data.y[r]) for r in passes]
        ).mean()
        assert not torch.allclose(out.loss, plain)
        assert float(out.logs["mixed_stages"]) == 3
    finally:
        torch.set_default_dtype(torch.float32)


class _Steps(pl.LightningDataModule):
    """Steps first .. last - 1, as the datamodule hands them over."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.steps = range(first, last)

    def train_dataloader(self) -> DataLoader[list[EnvBatch]]:
        return DataLoader([[batch(k)] for k in self.steps], batch_size=None)  # type: ignore[arg-type]

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        return batch


def trained(stretches: list[tuple[int, int]], seed: int, chance: int) -> dict[str, Tensor]:
    """An algorithm with dropout after its steps, the global generator standing anywhere."""
    nets = networks(dropout=0.5)
    sizes = Sizes(n_features=nets["featurizer"].n_features, n_classes=4, n_envs=3, image=IMAGE)  # type: ignore[arg-type]
    algorithm = SingleRun(ERM(sizes, {"lr": 0.01, "weight_decay": 0.0}), nets, seed)
    torch.manual_seed(chance)
    for stretch in stretches:
        if algorithm.steps_done:
            algorithm.load_run_states([algorithm.run_state(0)])  # moments are kept
        trainer = pl.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(algorithm, _Steps(*stretch))
        torch.rand(chance)
    return {key: value.clone() for key, value in nets.state_dict().items()}


@pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning")
def test_dropout_depends_on_seed_and_step_alone() -> None:
    whole, cut, other = (
        trained([(0, 4)], seed=0, chance=1), trained([(0, 2), (2, 4)], seed=0, chance=7),
        trained([(0, 4)], 1, 1),
    )  # fmt: skip
    assert all(torch.equal(value, cut[key]) for key, value in whole.items())
    assert not all(torch.equal(value, other[key]) for key, value in whole.items())
