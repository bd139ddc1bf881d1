"""Many members as one: the pure objective mapped over a stack of members, one optimizer step for all of them.

Every tensor of a member (parameters, buffers, hyperparameters, state, noise) gets a leading axis of length R. The sum
of the R losses has for gradient, member by member, the gradient of each loss, so members never see one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F

from dgbench.algorithms.base import NOISE_BLOCK, Algorithm, cut
from dgbench.algorithms.updates import adam_settings, clipped, learning_rate
from dgbench.training.replay import Recorder, Replay
from dgbench.types import BoundNetworks, EnvBatch, Phase, Player, ScoreBatch, Tensors


class StackedMembers(pl.LightningModule):
    """Trains R members of one shape together; member i equals the single run with the same seeds.

    Args:
        members: algorithms of one class with equal static hyperparameters and sizes, at the same step, in an order
            that keeps equal optimizer settings together (see :func:`optimizer_key`).
        record: records a step to replay it, see :mod:`dgbench.training.replay`; None computes every step afresh.
    """

    def __init__(self, members: Sequence[Algorithm], record: Recorder | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self._members = tuple(members)  # a tuple, so that Lightning does not register R modules
        self._record = record
        self._functions: dict[Any, Callable[..., Any]] = {}  # of a phase and minibatch sizes
        self.steps_done = int(members[0].steps_done)
        self.diverged: dict[int, tuple[int, float]] = {}  #: member -> step and value of its first loss not finite
        self._noise: tuple[int, tuple[int, ...], list[Tensors]] | None = None
        self._players = members[0].training_players()
        self._runs = [  # of each player: members with equal optimizer settings, and the names of their parameters
            [
                (_as_slice(list(run)), list(members[0].networks.params(*player.networks)))
                for _, run in groupby(range(len(members)), key=lambda i: optimizer_key(members[i], player))
            ]
            for player in self._players.values()
        ]

    @property
    def size(self) -> int:
        """R."""
        return len(self._members)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Stack the members on the device, then one Adam per player with a group for each run of equal settings.

        Frozen parameters that all members share are kept once.
        """
        first = self._members[0]
        self._functions.clear()  # they hold on to the tensors that are made now
        self.params = {
            name: self._stacked([m.networks.params()[name] for m in self._members]).requires_grad_()
            for name in first.networks.params()
        }
        frozen = [m.networks.constants() for m in self._members]
        shared = {name for name, own in frozen[0].items() if all(torch.equal(own, f[name]) for f in frozen)}
        self.constants = {
            name: self._stacked([own])[0] if name in shared else self._stacked([f[name] for f in frozen])
            for name, own in frozen[0].items()
        }
        self._constant_axes = {name: None if name in shared else 0 for name in frozen[0]}
        self.buffers_ = {
            name: self._stacked([m.networks.statistics()[name] for m in self._members])
            for name in first.networks.statistics()
        }
        self.hp = {name: self._stacked([m.hp.tensors()[name] for m in self._members]) for name in first.hp.tensors()}
        self.memory = {
            name: self._stacked([m.memory.tensors()[name] for m in self._members]) for name in first.memory.tensors()
        }
        self._leaves: list[list[dict[str, Tensor]]] = []
        optimizers: list[torch.optim.Optimizer] = []
        for player, runs in zip(self._players.values(), self._runs, strict=True):
            leaves = [{name: self.params[name].detach()[part] for name in names} for part, names in runs]
            groups = [
                {"params": list(own.values()), **adam_settings(self._members[part.start].values, player)}
                for own, (part, _) in zip(leaves, runs, strict=True)
            ]
            optimizers.append(torch.optim.Adam(groups, fused=self.device.type in ("cpu", "cuda")))
            self._leaves.append(leaves)
        return optimizers

    def _stacked(self, tensors: Sequence[Tensor]) -> Tensor:
        stack = torch.stack([tensor.detach() for tensor in tensors]).to(self.device)
        return stack.double() if stack.is_floating_point() and self.trainer.precision == "64-true" else stack

    def training_step(self, batches: Sequence[EnvBatch], batch_idx: int) -> None:
        """One optimizer step per entry of ``batches``; x is (R, N, C, H, W) and y (R, N)."""
        self._members[0].networks.train()  # a tuple hides it from Lightning's switching of modes
        found = self.optimizers()
        optimizers = dict(zip(self._players, found if isinstance(found, list) else [found], strict=True))
        first = self.steps_done
        steps = torch.arange(first, first + len(batches), device=self.device)
        losses = torch.stack([self._step(first + k, steps[k], batch, optimizers) for k, batch in enumerate(batches)])
        self.steps_done += len(batches)
        self._note_divergence(first, losses)

    def _step(self, step: int, step_tensor: Tensor, batch: EnvBatch, optimizers: Mapping[str, Any]) -> Tensor:
        noise = self._noise_at(step, batch.sizes)
        losses = batch.x.new_zeros(self.size)
        for phase in self._members[0].phases(step):
            players = [name for name in phase.players if name in self._players]
            if not players:  # nothing of theirs trains
                continue
            losses, gradients = self._function(phase, players, batch.sizes)(noise, batch.x, batch.y, step_tensor)
            self._update(step, optimizers, gradients)
        return losses.clone()  # a replay overwrites it

    def _function(self, phase: Phase, players: Sequence[str], sizes: tuple[int, ...]) -> Callable[..., Any]:
        """(noise, x, y, step) -> the losses (R,) of a phase and the gradients; moves statistics and state in place."""
        key = (phase.objective, phase.players, sizes)
        if key not in self._functions:
            mapped = self._mapped(phase, sizes)

            def run(noise: Tensors, x: Tensor, y: Tensor, step: Tensor) -> tuple[Tensor, Any]:
                losses, state, grads = mapped(
                    self.params, self.constants, self.buffers_, self.hp, self.memory, noise, x, y, step
                )
                gradients = self._gradients(players, losses, grads)
                for name, value in state.items():
                    self.memory[name].copy_(value.detach())
                return losses.detach(), gradients

            def changed() -> list[Tensor]:
                return [*self.buffers_.values(), *self.memory.values()]

            self._functions[key] = Replay(run, changed, self._record) if self._record else run
        return self._functions[key]

    def _gradients(self, players: Sequence[str], losses: Tensor, grads: Tensors) -> Mapping[str, Mapping[str, Any]]:
        """Of each player: gradients by parameter, (R, ...) or None, clipped per member over all of these players."""
        template = self._members[0]
        names = {name: list(template.networks.params(*self._players[name].networks)) for name in players}
        flat = list(dict.fromkeys(name for own in names.values() for name in own))
        found: Mapping[str, Tensor | None] = grads
        if not grads:
            wanted = torch.autograd.grad(losses.sum(), [self.params[name] for name in flat], allow_unused=True)
            found = dict(zip(flat, wanted, strict=True))
        found = clipped({name: found.get(name) for name in flat}, template.rule.gradient_clip)
        return {player: {name: found[name] for name in own} for player, own in names.items()}

    def _update(
        self, step: int, optimizers: Mapping[str, Any], gradients: Mapping[str, Mapping[str, Tensor | None]]
    ) -> None:
        order = list(self._players)
        for player, own in gradients.items():
            k, adam = order.index(player), optimizers[player].optimizer
            for group, (part, _), leaves in zip(adam.param_groups, self._runs[k], self._leaves[k], strict=True):
                for name, leaf in leaves.items():
                    gradient = own[name]
                    # fused Adam ignores strides
                    leaf.grad = None if gradient is None else gradient[part].detach().contiguous()
                member = self._members[part.start]
                if member.reset_at is not None and step == member.values[member.reset_at]:
                    for leaf in leaves.values():
                        adam.state.pop(leaf, None)
                group["lr"] = learning_rate(member, self._players[player], step)
            optimizers[player].step()

    def _mapped(self, phase: Phase, sizes: tuple[int, ...]) -> Any:
        template = self._members[0]

        def one_member(
            params: Tensors,
            constants: Tensors,
            buffers: Tensors,
            hp: Tensors,
            state: Tensors,
            noise: Tensors,
            x: Tensor,
            y: Tensor,
            step: Tensor,
        ) -> tuple[Tensor, Tensors, Tensors]:
            nets: Any = BoundNetworks(template.networks, {**params, **constants, **buffers})
            out = phase.objective(nets, EnvBatch(x, y, sizes), hp, state, noise, step)
            return out.loss, dict(out.state), dict(out.grads or {})

        axes = (0, self._constant_axes, 0, 0, 0, 0, 0, 0, None)
        return vmap(one_member, in_dims=axes, randomness="different")

    def _noise_at(self, step: int, sizes: tuple[int, ...]) -> Tensors:
        block, offset = divmod(step, NOISE_BLOCK)
        if self._noise is None or self._noise[:2] != (block, sizes):
            drawn = [member.noise_block(block, sizes) for member in self._members]
            self._noise = block, sizes, [{name: own[name].to(self.device) for name in own} for own in drawn]
        members = self._noise[2]  # a block of all members as one tensor may be large
        return {name: torch.stack([own[name][offset] for own in members]) for name in members[0]}

    def _note_divergence(self, first: int, losses: Tensor) -> None:
        """Remember at which step each member's loss stopped being finite; its tensors touch nobody else's."""
        finite = losses.isfinite()
        if finite.all():
            return
        for i in (~finite).any(0).nonzero().flatten().tolist():
            k = int((~finite[:, i]).nonzero()[0])
            self.diverged.setdefault(i, (first + k, float(losses[k, i])))

    def validation_step(self, batch: ScoreBatch, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        """Count what is wrong in one batch, for every member: (R,) ``wrong`` and summed ``loss``, and ``seen``."""
        template = self._members[0]
        template.networks.eval()
        drawn = [m.noise_for_scoring(len(batch.x), batch.name, batch.index) for m in self._members]
        noise = {name: torch.stack([d[name] for d in drawn]).to(self.device) for name in drawn[0]}

        parts = [
            self._predict(batch.x[rows], cut(noise, rows, axis=1))
            for rows in template.scored_together(len(batch.x), self.device)
        ]
        logits = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        wrong = (logits.argmax(2) != batch.y).sum(1)
        flat = F.cross_entropy(logits.flatten(0, 1), batch.y.repeat(self.size), reduction="none")
        return {"seen": torch.tensor(len(batch.y)), "wrong": wrong, "loss": flat.view(self.size, -1).double().sum(1)}

    def _predict(self, x: Tensor, noise: Tensors) -> Tensor:
        """(n, C, H, W) -> (R, n, K) logits, of as many members at a time as memory is meant for."""
        template = self._members[0]

        def one_member(
            params: Tensors, constants: Tensors, buffers: Tensors, hp: Tensors, state: Tensors, noise: Tensors
        ) -> Tensor:
            nets: Any = BoundNetworks(template.networks, {**params, **constants, **buffers})
            return template.predict(nets, x, hp, state, noise)

        axes = (0, self._constant_axes, 0, 0, 0, 0)
        at_once = max(1, template.images_at_once(self.device) // len(x))
        mapped = vmap(one_member, in_dims=axes, chunk_size=at_once, randomness="different")
        logits: Tensor = mapped(self.params, self.constants, self.buffers_, self.hp, self.memory, noise)
        return logits

    def optimizer_states(self, i: int, states: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the optimizers of member i alone would save, from what those of the stack save."""
        alone = []
        for runs, state in zip(self._runs, states, strict=True):
            at = next(g for g, (part, _) in enumerate(runs) if part.start <= i < part.stop)
            part, names = runs[at]
            group = state["param_groups"][at]
            own = {
                j: {
                    key: value if value.dim() == 0 else value[i - part.start].clone()
                    for key, value in state["state"][p].items()
                }
                for j, p in enumerate(group["params"])
                if p in state["state"]
            }
            alone.append({"state": own, "param_groups": [{**group, "params": list(range(len(names)))}]})
        return alone

    def merged_optimizer_states(self, members: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """The inverse of :meth:`optimizer_states` over all members."""
        merged = []
        for k, runs in enumerate(self._runs):
            state: dict[int, dict[str, Tensor]] = {}
            groups, offset = [], 0
            for part, names in runs:
                own = [member[k] for member in members[part]]
                for j in own[0]["state"]:
                    state[offset + j] = {
                        key: value if value.dim() == 0 else torch.stack([o["state"][j][key] for o in own])
                        for key, value in own[0]["state"][j].items()
                    }
                groups.append({**own[0]["param_groups"][0], "params": list(range(offset, offset + len(names)))})
                offset += len(names)
            merged.append({"state": state, "param_groups": groups})
        return merged

    def write_back(self, i: int) -> Algorithm:
        """Member i with the tensors it has now, as an ordinary algorithm."""
        member = self._members[i]
        with torch.no_grad():
            for name, parameter in member.networks.params().items():
                parameter.copy_(self.params[name][i])
            for name, buffer in member.networks.statistics().items():
                buffer.copy_(self.buffers_[name][i])
        member.memory.assign({name: value[i].clone().cpu() for name, value in self.memory.items()})
        member.steps_done.fill_(self.steps_done)
        return member


def optimizer_key(member: Algorithm, player: Player) -> tuple[Any, ...]:
    """What must be equal for members to share an optimizer group."""
    reset = tuple(None if key is None else member.values[key] for key in (member.reset_at, member.reset_lr))
    return (*sorted(adam_settings(member.values, player).items()), reset)


def _as_slice(run: list[int]) -> slice:
    return slice(run[0], run[-1] + 1)
