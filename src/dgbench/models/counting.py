"""Counting what a model gets wrong in every eval set, as training does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.data.environments import Environments
from dgbench.data.minibatches import EnvironmentData
from dgbench.tensors import ErrorRecipe, EvalBatch

Logits = Callable[[Tensor, str, int], Tensor]
Counts = dict[str, dict[str, float]]


@torch.no_grad()
def counted(
    logits: Logits,
    environments: Environments,
    recipes: Sequence[ErrorRecipe],
    *,
    batch_size: int,
    group_size: int = 0,
    precision: str = "32-true",
    tell: Callable[[str], None] = lambda text: None,
    listen: Callable[[EvalBatch, Tensor], None] | None = None,
) -> Counts:
    """``seen``, ``wrong`` and summed ``loss`` of every eval set that some recipe mixes, each evaluated once.

    Args:
        logits: (x, name of the eval set, number of the batch) -> (n, K), x on the device of the environments.
        environments: the images.
        recipes: errors that are asked for.
        batch_size: images in a batch at most.
        group_size: images whose predictions depend on one another.
        precision: Lightning's; ``bf16-mixed`` and ``16-mixed`` predict as they trained.
        tell: called with the eval set that comes next.
        listen: is given every batch and its logits.
    """
    data = EnvironmentData(
        environments, [], recipes, steps=1, eval_every=1, batch_size=1, eval_batch_size=batch_size, seed=0,
        group_size=group_size,
    )  # fmt: skip
    found: Counts = {}
    loaders = data.val_dataloader()
    for number, loader in enumerate(loaders, start=1):
        tell(f"eval set {number} of {len(loaders)}: {loader.name}")
        sums = {"seen": 0.0, "wrong": 0.0, "loss": 0.0}
        for batch in loader:
            with _autocast(precision, batch.x.device.type):
                predicted = logits(batch.x, batch.name, batch.index)
            each = F.cross_entropy(predicted, batch.y, reduction="none")
            if listen:
                listen(batch, predicted)
            sums["seen"] += len(batch.y)
            sums["wrong"] += float((predicted.argmax(1) != batch.y).sum())
            sums["loss"] += float(each.double().sum())
        found[loader.name] = sums
    return found


def _autocast(precision: str, device: str) -> AbstractContextManager[object]:
    types = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    return torch.autocast(device, types[precision]) if precision in types else nullcontext()
