"""The porting aid: real steps on given minibatches and random inputs,
compared with plain PyTorch.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dgbench.errors import ConfigError
from dgbench.training.modules.factory import algorithm


def networks() -> dict[str, nn.Module]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {"featurizer": nn.Linear(4, 3), "classifier": nn.Linear(3, 2)}


def minibatches(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(5, 4, generator=rng, dtype=torch.float64),
            torch.randint(2, (5,), generator=rng),
        )
        for _ in range(2)
    ]


def test_vrex_against_plain_pytorch() -> None:
    """Penalty weight 0.35 from step 2 on, Adam re-created there; default type untouched."""
    reference = copy.deepcopy(networks())
    model = nn.Sequential(reference["featurizer"], reference["classifier"]).double()
    port = algorithm(
        "vrex",
        networks(),
        2,
        2,
        {"vrex_lambda": 0.35, "vrex_penalty_anneal_iters": 2, "lr": 0.01},
        n_features=3,
    )
    for step in range(4):
        if step in (0, 2):
            adam = torch.optim.Adam(model.parameters(), lr=0.01)
        risks = torch.stack([F.cross_entropy(model(x), y) for x, y in minibatches(step)])
        loss = risks.mean() + (0.35 if step >= 2 else 1.0) * ((risks - risks.mean()) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        torch.testing.assert_close(
            port.step(minibatches(step)), loss.detach(), rtol=1e-12, atol=1e-12
        )
    torch.testing.assert_close(
        list(port.networks.parameters()), list(model.parameters()), rtol=1e-12, atol=1e-12
    )
    assert torch.get_default_dtype() == torch.float32


def test_given_random_inputs_are_used_and_checked() -> None:
    """Mixup with weight 1 is ERM of the first side; names and shapes must be the declared ones."""
    port = algorithm("mixup", networks(), 2, 2, n_features=3)
    declared = port.random_inputs((5, 5))
    assert {name: each.shape for name, each in declared.items()} == {
        "permutation": (2,),
        "weight": (2,),
    }
    assert all(each.description for each in declared.values())
    given = {"permutation": [0, 1], "weight": [1.0, 1.0]}
    risks = [F.cross_entropy(port.networks.logits(x), y) for x, y in minibatches(0)]
    torch.testing.assert_close(port.step(minibatches(0), given), torch.stack(risks).mean().detach())
    for wrong in ({"permutation": [0, 1]}, {**given, "weight": [1.0]}, {**given, "extra": [1.0]}):
        with pytest.raises(ConfigError, match=r"random inputs .* this step needs"):
            port.step(minibatches(0), wrong)
    port.step(minibatches(0))  # drawn from the seed


def test_what_is_unknown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"algorithm verx.*unknown"):
        algorithm("verx", networks(), 2, 2, n_features=3)
    with pytest.raises(ConfigError, match=r"vrex.*hyperparameter lam.*vrex_lambda"):
        algorithm("vrex", networks(), 2, 2, {"lam": 1}, n_features=3)
