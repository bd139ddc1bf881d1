"""The smoothed AND mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dgbench.network_specs import Sizes
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.gradients import masked_outcome
from dgbench.objectives.step import Outcome, Step

TINY = 1e-17  # in the place of what is not a number


class SANDMask(Algorithm):
    """Follow the gradient as far as the environments agree on it
    (Shahtalebi et al., 2021; DomainBed).

    For every coordinate, with v the unbiased variance of g_e over environments,

        s = |mean_e sign(g_e)|
        M = max(tanh(k (s - tau) / v), 0),

    and the update follows M * mean_e g_e / (1e-10 + r), where r is the mean of M within that
    parameter tensor. What is not a number (v = 0 where s = tau; the variance of one environment)
    becomes 1e-17. With one environment M is 1 below tau = 1: plain risk. There is one forward pass
    per environment.

    DomainBed's default tau = 1 makes M zero everywhere: nothing is learned, there as here. Set tau
    < 1, as the random search's draws do; numbers of this method with its default set say nothing
    about it.
    """

    why_not_sharp = "it masks the gradients of the environments"
    why_not_low_rank = "it masks the gradients of single weights, and low-rank parts have others"

    @classmethod
    def caution(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> str:
        tau = hparams["tau"]
        if tau < 1:
            return ""
        return f"hparams.tau={tau} masks every gradient, so nothing is learned; set it below 1"

    def objective(self, s: Step) -> Outcome:
        return masked_outcome(s, lambda g: _masked(g, s.hp.tau, s.hp.k))


def _masked(gradients: Tensor, tau: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Average and mask (E, ...) gradients to (...); return them and the mean of the mask."""
    mean = gradients.mean(0)
    variance = (gradients - mean).square().sum(0) / (len(gradients) - 1)  # of one environment 0 / 0
    agreement = gradients.sign().mean(0).abs()
    mask = _number(torch.tanh(k * (agreement - tau) / _number(variance)).clamp_min(0))
    share = mask.mean()
    return mask * mean / (1e-10 + share), share


def _number(values: Tensor) -> Tensor:
    return torch.where(values.isnan(), TINY, values)
