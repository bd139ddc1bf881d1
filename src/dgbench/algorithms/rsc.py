"""Representation self-challenging."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome, Step


class RSC(Algorithm):
    """Train without the features that the right answer leans on most
    (Huang et al., 2020; DomainBed).

    Per row, with g the gradient of the true class's logit with respect to the features z, keep the
    features whose g lies below its quantile 1 - rsc_f_drop_factor. Rows whose true-class
    probability falls, by that, less than the quantile 1 - rsc_b_drop_factor over the step keep all
    features. The objective is

        L = CE(h(z * mask), Y), with the mask as a constant.
    """

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        logits, backward = torch.func.vjp(s.networks.classifier, z.detach())  # type: ignore[misc]
        true_class = torch.arange(logits.shape[1], device=z.device) == s.y[:, None]
        (slopes,) = backward(true_class.to(logits.dtype))
        keep = slopes < _quantile(slopes, 1 - s.hp.rsc_f_drop_factor)
        muted = s.networks.classifier(z.detach() * keep)
        drop = ((logits.softmax(1) - muted.softmax(1)) * true_class).sum(1)
        robust_rows = drop < _quantile(drop, 1 - s.hp.rsc_b_drop_factor)
        mask = (keep | robust_rows[:, None]).to(z.dtype)
        return Outcome(s.risk(s.networks.classifier(z * mask)))


def _quantile(values: Tensor, q: Tensor) -> Tensor:
    """Compute a quantile over the last axis, which is kept, interpolating linearly.

    Unlike in torch.quantile, ``vmap`` can map ``q``.
    """
    ordered = values.detach().sort(-1).values
    last = values.shape[-1] - 1
    position = (q * last).clamp(0, last)
    below = position.floor()
    low = ordered.index_select(-1, below.long()[None])
    high = ordered.index_select(-1, position.ceil().long()[None])
    return low + (position - below) * (high - low)
