"""The Fourier-based framework FACT."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import Networks
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup
from dgbench.objectives.gradients import MODEL, copied
from dgbench.objectives.pixels import amplitude_mix, from_pixels, quantized, to_pixels
from dgbench.objectives.step import (
    Outcome,
    Permutation,
    RandomInputs,
    Step,
    Uniform,
    dropped,
    epoch_of,
)


class FACT(Algorithm):
    """Mix the Fourier amplitudes of images and agree with a mean teacher
    (Xu et al., 2021; the authors' code).

    X' has the phases of X and, with a permutation p of the rows and l_i ~ ``eta`` U(0, 1), the
    amplitudes

        (1 - l_i) |F_i| + l_i |F_p(i)|,

    mixed in pixels from 0 to 1 and clipped. With logits a, b of X, X' and a*, b* of the teacher,
    all at temperature T,

        L = CE(a) / 2 + CE(b) / 2 + w (KL(a* || b) + KL(b* || a))
        w = fact_weight exp(-5 (1 - min(e, R) / R)^2) in epoch e, R = ramp_epochs.

    There is no factor T^2. (The paper prints weight 1 for each CE and the student first in KL.)

    The teacher's parameters move at the start of step t by mu = min(1 - 1/(t + 1), ``momentum``);
    its BatchNorm uses the minibatch, and does not move the student's statistics. Predictions are
    the student's.

    ``partner=minibatch``: each row once with its own phases. ``mutual``: the partner is mixed back
    with the same weight, 2N images and 2N mixed ones, the authors' minibatch [o, s, o', s']; they
    draw s from all training images. ``quantize``: images pass 8 bits, as theirs do.
    ``optimizer=sgd`` (Nesterov, 0.9) and ``drop_lr_at`` 0.8 are their settings. The views can be
    looked at with ``benchmarks/views.py``.
    """

    static = frozenset({"epochs", "ramp_epochs", "drop_lr_at"})
    choices: ClassVar[Choices] = {
        "partner": ("minibatch", "mutual"),
        "quantize": (True, False),
        "optimizer": ("adam", "sgd"),
    }
    why_not_cacheable = "it mixes the spectra of images, anew at every step"
    why_not_vectors = "it mixes the Fourier spectra of pictures"

    def param_groups(self) -> dict[str, ParamGroup]:
        return {"model": ParamGroup(MODEL, optimizer=self.values["optimizer"], nesterov=True)}

    def lr_factor(self, group: str, step: int) -> float:
        return dropped(step, self.values["drop_lr_at"], self.sizes.n_steps)

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {
            _slot(name): torch.zeros_like(value) for name, value in networks.params(*MODEL).items()
        }

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        n = sum(sizes)
        return {
            "lam": Uniform((n,), "weight of the partner's amplitudes, in parts of eta"),
            "partner": Permutation((n,), "the row whose amplitudes are mixed in"),
        }

    def objective(self, s: Step) -> Outcome:
        x, mixed, y = self.views(s)
        images = torch.cat([x, mixed])
        teacher = self._teacher(s)
        logits, mixed_logits = s.networks.logits(images).chunk(2)
        # the teacher moves nothing but copies of the running statistics
        teacher_networks = s.networks.bind({**copied(s.networks.statistics()), **teacher})
        target, mixed_target = teacher_networks.logits(images).detach().chunk(2)
        temperature = s.hp.temperature
        consistency = _divergence(target / temperature, mixed_logits / temperature)
        consistency = consistency + _divergence(mixed_target / temperature, logits / temperature)
        risk = F.cross_entropy(logits, y)
        mixed_risk = F.cross_entropy(mixed_logits, y)
        weight = s.hp.fact_weight * self._ramp(s)
        logs = {
            "penalty": consistency.detach(),
            "penalty_weight": weight,
            "mixed_risk": mixed_risk.detach(),
        }
        state = {_slot(name): value for name, value in teacher.items()}
        return Outcome((risk + mixed_risk) / 2 + weight * consistency, logs, state)

    def views(self, s: Step) -> tuple[Tensor, Tensor, Tensor]:
        """Make the images of a step, the same with mixed amplitudes, and the labels of both."""
        u = to_pixels(s.x, self.sizes)
        y = s.y
        partner = s.random["partner"]
        weight = s.hp.eta * s.random["lam"]
        if self.values["partner"] == "mutual":
            u = torch.cat([u, u[partner]])
            y = torch.cat([y, y[partner]])
            weight = weight.repeat(2)
            n = len(s.y)
            partner = torch.arange(2 * n, device=y.device).roll(n)
        if self.values["quantize"]:
            u = quantized(u)
        mixed = amplitude_mix(u, partner, weight)
        if self.values["quantize"]:
            mixed = quantized(mixed)
        return from_pixels(u, self.sizes), from_pixels(mixed, self.sizes), y

    def _ramp(self, s: Step) -> Tensor:
        """Compute w / ``fact_weight`` of this step's epoch."""
        length = self.values["ramp_epochs"]
        if not length:
            return torch.ones_like(s.hp.fact_weight)
        epoch = epoch_of(s.step, self.values["epochs"], self.sizes.n_steps)
        remainder = 1 - epoch.clamp(max=length).to(s.hp.fact_weight.dtype) / length
        ramp: Tensor = (-5 * remainder.square()).exp()
        return ramp

    def _teacher(self, s: Step) -> dict[str, Tensor]:
        """Compute the teacher's parameters of this step."""
        momentum = torch.minimum(1 - 1 / (s.step + 1).to(s.hp.momentum.dtype), s.hp.momentum)
        return {
            name: torch.lerp(value.detach(), s.state[_slot(name)], momentum.to(value.dtype))
            for name, value in s.networks.params(*MODEL).items()
        }


def _slot(name: str) -> str:
    """Name the state's entry for the teacher's copy of a parameter.

    Names of buffers have no dots.
    """
    return f"teacher/{name.replace('.', '/')}"


def _divergence(target: Tensor, logits: Tensor) -> Tensor:
    """Compute KL(softmax(target) || softmax(logits)), mean over rows."""
    log_p = target.log_softmax(1)
    log_q = logits.log_softmax(1)
    return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
