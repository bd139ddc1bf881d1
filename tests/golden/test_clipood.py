"""CLIPood's margin against the formula of its authors' code (thuml/CLIPood, 538dd3b, engine.py), in
float64 on the toy problem.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.golden import toy as problem
from tests.golden.toy import Toy

SCALE = 100.0


class UnitLength(nn.Module):
    """A linear layer whose outputs are divided by their length, as CLIP's image encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = problem.featurizer()

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.linear(x.flatten(1)), dim=1)


def texts() -> Tensor:
    """(K, m) class vectors of length one."""
    weight = problem.classifier().weight.detach()
    return weight / weight.norm(dim=1, keepdim=True)


def authors_loss(images: nn.Linear, x: Tensor, y: Tensor, margin: float) -> Tensor:
    """Cross entropy of T (cos(f, t_k) - margin cos(t_y, t_k)), entry by entry."""
    features = images(x.flatten(1))
    features = features / features.norm(dim=1, keepdim=True)
    cosines = features @ texts().T
    between_classes = texts() @ texts().T
    return F.cross_entropy(SCALE * (cosines - margin * between_classes[y]), y)


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.3, 2.0])
@pytest.mark.parametrize("bias", [None, -10.0])
def test_losses_gradients_and_weights(margin: float, bias: float | None) -> None:
    """A bias is that of SigLIP, the same for all classes."""
    shift = None if bias is None else torch.full((problem.K,), bias)
    networks = {
        "featurizer": UnitLength(),
        "classifier": problem.linear(SCALE * texts(), shift),
    }
    start: Any = copy.deepcopy(networks["featurizer"])
    images = start.linear
    values = {"margin": margin, "weight_decay": 0.1}
    toy = Toy("clipood", values, networks, image=(1, 1, problem.M))
    adamw = torch.optim.AdamW(images.parameters(), lr=0.01, weight_decay=0.1)
    head = copy.deepcopy(networks["classifier"].state_dict())
    for call in (1, 2, 3):
        minibatches = problem.batch(call)
        toy.step()
        adamw.zero_grad()
        loss = authors_loss(images, minibatches.x, minibatches.y, margin)
        loss.backward()
        adamw.step()
        assert toy.loss == pytest.approx(loss.item(), rel=1e-12, abs=1e-12)
        trained = toy.networks["featurizer"].linear.weight
        torch.testing.assert_close(trained.grad, images.weight.grad, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(trained, images.weight, rtol=1e-12, atol=1e-12)
    for name, value in toy.networks["classifier"].state_dict().items():
        assert torch.equal(value, head[name]), "class vectors stay what they were"
