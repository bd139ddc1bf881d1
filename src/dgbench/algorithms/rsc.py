"""Representation self-challenging."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.base import Algorithm
from dgbench.types import EnvBatch, Networks, Outcome, Tensors


class RSC(Algorithm):
    """Train without the features that the right answer leans on most (Huang et al., 2020; DomainBed).

    Per row, with g the gradient of the true class's logit with respect to the features z, keep the features whose g
    lies below its quantile 1 - rsc_f_drop_factor. Rows whose true-class probability falls, by that, less than the
    quantile 1 - rsc_b_drop_factor over the step keep all features. L = CE(h(z * mask), Y), the mask a constant.
    """

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        z = nets.featurizer(batch.x)
        logits, pull = torch.func.vjp(nets.classifier, z.detach())  # type: ignore[misc]
        true_class = torch.arange(logits.shape[1], device=z.device) == batch.y[:, None]
        (slopes,) = pull(true_class.to(logits.dtype))
        keep = slopes < _quantile(slopes, 1 - hp["rsc_f_drop_factor"])
        muted = nets.classifier(z.detach() * keep)
        drop = ((logits.softmax(1) - muted.softmax(1)) * true_class).sum(1)
        unmoved = drop < _quantile(drop, 1 - hp["rsc_b_drop_factor"])
        mask = (keep | unmoved[:, None]).to(z.dtype)
        return Outcome(F.cross_entropy(nets.classifier(z * mask), batch.y))


def _quantile(values: Tensor, q: Tensor) -> Tensor:
    """Quantile over the last axis, kept, by linear interpolation; unlike torch.quantile, q may be mapped by vmap."""
    ordered = values.detach().sort(-1).values
    place = (q * (values.shape[-1] - 1)).clamp(0, values.shape[-1] - 1)
    below = place.floor()
    low, high = (ordered.index_select(-1, i.long()[None]) for i in (below, place.ceil()))
    return low + (place - below) * (high - low)
