"""Contrastive adversarial domain bottleneck."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.step import Outcome, Step, penalized

BASE_TEMPERATURE = 0.07


class CAD(Algorithm):
    """Make images of other environments as near as those of the same one
    (Ruan et al., 2022; DomainBed).

    The objective is L = CE(l, Y) + lmbda * P, where P is the contrastive bound of
    :func:`domain_bottleneck` on what the features tell about the environment. One environment:
    plain pooled risk, with ``is_flipped``.

    ``is_flipped`` on maximizes the likelihood of the other environments' rows; off minimizes that
    of the same, among which DomainBed counts the row itself with similarity 0 (never drawn).
    ``is_normalized`` gives features unit length for P (never drawn).

    DomainBed's third switch, a projection before P, ends in an error there and is left out.
    """

    choices: ClassVar[Choices] = {"is_normalized": (True, False), "is_flipped": (True, False)}
    conditional: ClassVar[bool] = False

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        risk = s.risk(s.networks.classifier(z))
        u = F.normalize(z) if self.values["is_normalized"] else z
        penalty = domain_bottleneck(
            u,
            s.y,
            s.env,
            s.hp.temperature,
            conditional=self.conditional,
            flipped=self.values["is_flipped"],
        )
        return penalized(risk, s.hp.lmbda, penalty)


def domain_bottleneck(
    z: Tensor, y: Tensor, env: Tensor, temperature: Tensor, *, conditional: bool, flipped: bool
) -> Tensor:
    """Compute the penalty of CAD or CondCAD, a scalar.

    Let a_ij = z_i . z_j / T for i != j and a_ii = 0, less its row's maximum (a constant); Y_i the
    other rows of row i's class; D_i the rows of its environment, i among them, and D'_i all others.
    The penalty is -(T / 0.07) times the mean of

    - log sum_{D'_i} exp a_ij - log sum_{j != i} exp a_ij, over rows whose Y_i is not empty;
    - ``conditional``: log sum_{Y_i and D'_i} exp a_ij - log sum_{Y_i} exp a_ij, over rows that have
      the first set;
    - not ``flipped``: the negative of either, with D_i in the place of D'_i.

    Rows with an empty sum are left out. It is 0 if no row counts, as with one environment if
    ``flipped``.

    Args:
        z: (N, m) features.
        y, env: (N,) labels and environments.
        temperature: T, 0-dimensional.
    """
    diagonal = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = torch.where(diagonal, 0.0, z @ z.T / temperature)
    similarity = similarity - similarity.detach().amax(1, keepdim=True)
    same_class = (y[:, None] == y) & ~diagonal
    same_env = env[:, None] == env
    above = ~same_env if flipped else same_env
    below = ~diagonal
    if conditional:
        above = same_class & above
        below = same_class
    log_numerator, has_numerator = _log_sums(similarity, above)
    log_denominator, has_denominator = _log_sums(similarity, below)
    valid = (has_numerator & has_denominator & same_class.any(1)).to(z.dtype)
    terms = log_numerator - log_denominator if flipped else log_denominator - log_numerator
    mean: Tensor = (valid * terms).sum() / valid.sum().clamp_min(1)
    return -(temperature / BASE_TEMPERATURE) * mean


def _log_sums(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the log of the sum of exp over each row's masked entries, and whether it has any.

    The former is 0 for a row without masked entries.
    """
    filled = mask.any(1)
    safe_mask = mask | ~filled[:, None]  # a row without entries would make the gradient NaN
    sums = torch.where(safe_mask, values, -torch.inf).logsumexp(1)
    return torch.where(filled, sums, 0.0), filled
