"""One step of any algorithm on ordinary modules: gradients of its phases, then the players' optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from dgbench.algorithms.contract import Objective
from dgbench.algorithms.layers import seeded_dropout
from dgbench.algorithms.shares import averaged, mean_over_processes, moving_statistics, shares
from dgbench.algorithms.updates import UpdateRule, adam_settings, learning_rate, take_steps
from dgbench.errors import DivergedError
from dgbench.seeding import derive
from dgbench.types import Buffers, EnvBatch, Networks, Outcome, Phase, Player, Tensors


class Trainable(Objective, pl.LightningModule):
    """What turns an objective into updates; :class:`~dgbench.algorithms.base.Algorithm` gives it its networks.

    A player whose networks are all frozen has no optimizer and takes no step, and a phase in which no player steps is
    not computed: with a frozen featurizer SagNet trains its two heads and leaves out its third update.

    Attributes:
        after_step: called after each optimizer step with the number of steps done; not part of a checkpoint.
    """

    steps_done: Tensor
    noise_seed: int
    networks: Networks
    values: dict[str, Any]
    hp: Buffers
    memory: Buffers
    rule: UpdateRule
    after_step: list[Callable[[int], None]]

    def noise_at(self, step: int, sizes: tuple[int, ...], share: int = 0) -> Tensors:
        """The random numbers of one share of one step."""
        raise NotImplementedError

    def training_players(self) -> dict[str, Player]:
        """The players that have something to train."""
        return {name: player for name, player in self.players().items() if self.networks.params(*player.networks)}

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """One Adam per player that trains, in the order of :meth:`players`."""
        return [
            torch.optim.Adam(
                list(self.networks.params(*player.networks).values()),
                **adam_settings(self.values, player),
                fused=self.device.type in ("cpu", "cuda"),  # the same arithmetic in one pass over memory
            )
            for player in self.training_players().values()
        ]

    def training_step(self, batches: Sequence[EnvBatch], batch_idx: int) -> None:
        """One optimizer step per entry of ``batches``.

        Raises:
            DivergedError: a loss was NaN or infinite.
        """
        first = int(self.steps_done)
        found = self.optimizers()
        optimizers = dict(zip(self.training_players(), found if isinstance(found, list) else [found], strict=True))
        steps = torch.arange(first, first + len(batches), device=self.device)
        losses = torch.stack([self._step(first + k, steps[k], b, optimizers) for k, b in enumerate(batches)])
        if self.trainer.world_size > 1:
            mean_over_processes([losses])
        finite = losses.isfinite()
        if not finite.all():
            k = int((~finite).nonzero()[0])
            raise DivergedError(first + k, float(losses[k]))
        self.steps_done += len(batches)
        self.log("train/loss", losses.mean())

    def _step(self, step: int, step_tensor: Tensor, batch: EnvBatch, optimizers: Mapping[str, Any]) -> Tensor:
        loss = batch.x.new_zeros(())
        parts = shares(batch, self.rule.accumulate)
        chance = derive(self.noise_seed, "layers", step, self.trainer.global_rank)
        with seeded_dropout(self.networks, self.device, chance):
            for phase in self.phases(step):
                stepping = {name: optimizers[name] for name in phase.players if name in optimizers}
                if stepping:
                    loss = self._gradients(phase, step, step_tensor, parts, stepping)
                    self._update(step, stepping)
        for hook in self.after_step:
            hook(step + 1)
        return loss

    def _gradients(
        self, phase: Phase, step: int, step_tensor: Tensor, parts: Sequence[EnvBatch], stepping: Mapping[str, Any]
    ) -> Tensor:
        """Leave the mean gradient over shares in the parameters, the mean state in the memory; return the mean loss."""
        inputs = [p for optimizer in stepping.values() for group in optimizer.param_groups for p in group["params"]]
        for parameter in inputs:
            parameter.grad = None
        first = self.trainer.global_rank * len(parts)
        losses, states = [], []
        for i, part in enumerate(parts):
            noise = self.noise_at(step, part.sizes, first + i)
            out = phase.objective(self.networks, part, self.hp.tensors(), self.memory.tensors(), noise, step_tensor)
            if out.grads is None:
                self.manual_backward(out.loss if len(parts) == 1 else out.loss / len(parts), inputs=inputs)
            else:
                self._add_gradients(phase, out, len(parts))
            losses.append(out.loss.detach())
            states.append({name: value.detach() for name, value in out.state.items()})
        state = averaged(states)
        if self.trainer.world_size > 1:
            gradients = [p.grad for p in inputs if p.grad is not None]
            mean_over_processes([*gradients, *state.values(), *moving_statistics(self.networks)])
        self.memory.assign(state)
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean()

    def _add_gradients(self, phase: Phase, out: Outcome, n: int) -> None:
        """Gradients that the objective computed itself, to where the backward pass of a loss would have put them."""
        assert out.grads is not None
        scaler = self._scaler()
        players = self.players()
        for name, parameter in self.networks.params(*(w for p in phase.players for w in players[p].networks)).items():
            gradient = out.grads.get(name)
            if gradient is not None:
                gradient = gradient if n == 1 else gradient / n
                gradient = gradient if scaler is None else scaler.scale(gradient)
                own = torch.empty_like(parameter).copy_(gradient)  # fused Adam ignores strides
                parameter.grad = own if parameter.grad is None else parameter.grad.add_(own)

    def _update(self, step: int, stepping: Mapping[str, Any]) -> None:
        players = self.players()
        for name, optimizer in stepping.items():
            if self.reset_at is not None and step == self.values[self.reset_at]:
                optimizer.optimizer.state.clear()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(self, players[name], step)
        take_steps(list(stepping.values()), self.rule.gradient_clip, self._scaler())

    def _scaler(self) -> Any:
        """The gradient scaler of half precision, which keeps small gradients from vanishing; None elsewhere."""
        return getattr(self.trainer.precision_plugin, "scaler", None)
