"""Train any algorithm on ordinary modules: any backbone, device or precision.

A minibatch may be evaluated in several *micro-batches* (gradient accumulation, distributed runs).
Each holds an equal part of the rows of every environment. The objective is evaluated on each of
them, with random inputs of its own, and losses, gradients and new states are averaged over them.
For an objective that is a mean over rows (ERM) that is the objective of the whole minibatch; any
other method becomes one that works with smaller minibatches, and BatchNorm sees the rows of a
micro-batch. Each process of a distributed run holds an equal part of the minibatch and may cut it
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.batches import EnvBatch, Tensors
from dgbench.containers import AnyNetworks, Buffers, Networks
from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.gradients import detached
from dgbench.objectives.step import Hyperparameters, Outcome, Prediction, Step
from dgbench.seeding import derive
from dgbench.training.modules.base import RunModule, cpu_copies
from dgbench.training.modules.predicting import (
    InputDraws,
    activations,
    half_for_networks,
    stacked_by_name,
)
from dgbench.training.modules.trial import draws_globally, no_gradient
from dgbench.training.optimizers import OptimizerPart, UpdateRule, layer_scales


class SteppedRun(RunModule):
    """Trains one run, stepped by hand.

    :class:`~dgbench.training.modules.lightning.SingleRun` does so in a trainer.

    Args:
        algorithm: what is trained.
        networks: those that the algorithm's ``networks_needed`` asked for, plus ``featurizer``.
        seed: base seed of the random inputs.
        rule: how gradients become updates.
        dtype: floating-point type of networks, hyperparameters, state and random inputs; None is
            the networks' own.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        networks: Networks,
        seed: int = 0,
        rule: UpdateRule | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algorithm, rule or UpdateRule())
        dtype = dtype or networks.dtype
        self.networks = networks.to(dtype)
        hp = {}
        for key, value in algorithm.values.items():
            if key not in algorithm.static:
                hp[key] = torch.tensor(value, dtype=dtype)
        self.hp = Buffers(hp)
        state = dict(algorithm.initial_state(networks))
        for name, tensor in state.items():
            if tensor.is_floating_point():
                state[name] = tensor.to(dtype)
        self.memory = Buffers(state)
        self.draws = InputDraws(algorithm, seed)
        self._activations: dict[tuple[int, ...], list[int]] = {}

    @property
    def runs(self) -> Sequence[SteppedRun]:
        """Itself alone."""
        return (self,)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images to (n, K) logits."""
        return self.predict_logits(x, "forward", 0)[0]

    def random_at(self, step: int, sizes: tuple[int, ...], part: int = 0) -> Tensors:
        """Draw the random inputs of one micro-batch of one step."""
        like = torch.empty((), dtype=self.networks.dtype, device=self.device)
        return self.draws.at(step, sizes, like, part)

    def activations(self, image: tuple[int, ...]) -> list[int]:
        """Count the numbers that each layer of the featurizer puts out for one image."""
        if image not in self._activations:
            self._activations[image] = activations(self.networks["featurizer"], image)
        return self._activations[image]

    # ---- training --------------------------------------------------------------------------------

    def _step(
        self, step: int, counter: Tensor, batch: EnvBatch, optimizers: Mapping[str, Any]
    ) -> Tensor:
        dropout_seed = derive(self.draws.seed, "layers", step, self._place[0])
        with seeded_dropout(self.networks, self.device, dropout_seed):
            return super()._step(step, counter, batch, optimizers)

    @property
    def _place(self) -> tuple[int, int]:
        """Number of this process and how many train the run together."""
        return 0, 1

    def _parts(self, name: str, group: ParamGroup) -> list[OptimizerPart]:
        algorithm = self.algorithm
        scales = {}
        if self.rule.layer_decay is not None:
            names = algorithm.featurizers(algorithm.sizes, algorithm.values)
            bodies = [self.networks[name] for name in names]
            scales = layer_scales(bodies, self.rule.layer_decay)
        by_scale: dict[float, list[Tensor]] = {}
        for parameter in self.networks.params(*group.networks).values():
            by_scale.setdefault(scales.get(id(parameter), 1.0), []).append(parameter)
        return [
            OptimizerPart(algorithm, parameters, scale) for scale, parameters in by_scale.items()
        ]

    def _stepping(self, groups: Sequence[str], step: int) -> dict[str, Tensor]:
        """Return the parameters of these groups that learn at this step."""
        params = self.networks.params()
        learning = self._learning(step)
        stepping: dict[str, Tensor] = {}
        for group in groups:
            stepping.update((name, params[name]) for name in learning[group])
        return stepping

    def live_parameters(self) -> Tensors:
        return self.networks.params()

    def objective_state(self) -> Tensors:
        state = {}
        for name, value in self.networks.statistics().items():
            state[f"networks.{name}"] = value.clone()
        for name, value in self.memory.tensors().items():
            state[f"memory.{name}"] = value.clone()
        return state

    def set_objective_state(self, state: Tensors) -> None:
        for name, value in self.networks.statistics().items():
            value.copy_(state[f"networks.{name}"])
        self.memory.assign({name: state[f"memory.{name}"] for name in self.memory.tensors()})

    def _moving(self, names: Sequence[str]) -> list[Tensor]:
        tensors = list(self.networks.params(*names).values())
        for name in names:
            tensors += self.networks[name].buffers()
        return tensors

    def _value(self, name: str, like: Tensor) -> Tensor:
        return self.hp.tensors()[name]

    def evaluated(self, i: int) -> tuple[AnyNetworks, Hyperparameters, Tensors]:
        return self.networks.eval(), Hyperparameters(self.hp.tensors()), self.memory.tensors()

    def remember(self, i: int, state: Tensors) -> None:
        self.memory.assign(state)

    def _differentiate(
        self, update: Update, groups: tuple[str, ...], step: int, counter: Tensor, batch: EnvBatch
    ) -> tuple[Tensor, Tensors]:
        """Set mean gradients and mean state over micro-batches.

        Returns:
            The means of the loss, (1,), and of what is logged.
        """
        parameters = self._stepping(groups, step)
        for parameter in parameters.values():
            parameter.grad = None
        parts = micro_batches(batch, self.rule.accumulate)
        rank, world_size = self._place
        losses = []
        states = []
        logs = []
        with half_for_networks(self.networks, self.device) as networks:
            for i, part in enumerate(parts):
                random = self.random_at(step, part.sizes, rank * len(parts) + i)
                hp = Hyperparameters(self.hp.tensors())
                s = Step(networks, part, hp, self.memory.tensors(), random, counter)
                out = update.objective(s)
                if groups:
                    self._add_gradients(parameters, out, len(parts))
                losses.append(out.loss.detach())
                states.append(detached(out.state))
                logs.append(detached(out.logs) if self.collects else {})
        state = averaged(states)
        if world_size > 1:
            gradients = [p.grad for p in parameters.values() if p.grad is not None]
            mean_over_processes([*gradients, *state.values(), *moving_statistics(self.networks)])
        self.memory.assign(state)
        loss = losses[0][None] if len(losses) == 1 else torch.stack(losses).mean(0, keepdim=True)
        return loss, averaged(logs)

    def _add_gradients(self, parameters: Tensors, out: Outcome, n: int) -> None:
        """Add 1/n of the gradients of an outcome to the parameters'.

        They are scaled as half precision asks for.
        """
        scaler = self._scaler
        self._gives_gradients = out.grads is not None

        def scaled(value: Tensor) -> Tensor:
            if n > 1:
                value = value / n
            return value if scaler is None else scaler.scale(value)

        if out.grads is None:
            if not out.loss.requires_grad:
                raise no_gradient(type(self.algorithm).__name__)
            loss: Any = scaled(out.loss)
            loss.backward(inputs=list(parameters.values()))
            return
        for name, parameter in parameters.items():
            gradient = out.grads.get(name)
            if gradient is None:
                continue
            # fused Adam ignores strides
            copied = torch.empty_like(parameter).copy_(scaled(gradient))
            parameter.grad = copied if parameter.grad is None else parameter.grad.add_(copied)

    @torch.no_grad()
    def move_statistics(self, tensors: Tensors, step: int, batch: EnvBatch) -> None:
        """Move running statistics as a forward pass in training mode would, with other weights.

        Args:
            tensors: parameters and buffers by their names in this module, in the place of the live
                ones; statistics among them are moved in place.
            step: on which random inputs depend.
            batch: of this process; its micro-batches pass one after the other.
        """
        if not moving_statistics(self.networks):
            return
        statistics = self.networks.statistics()
        weights = {name.removeprefix("networks."): value for name, value in tensors.items()}
        bound = dict(weights)
        for name, value in statistics.items():
            if name not in weights:  # a counter, which must not move
                bound[name] = value.clone()
        hp = Hyperparameters(self.hp.tensors())
        like = batch.x.new_empty((), dtype=self.networks.dtype)
        with half_for_networks(self.networks.bind(bound), self.device) as networks:
            for part in micro_batches(batch, self.rule.accumulate):
                random = self.draws.for_prediction(len(part.x), like, "statistics", step)
                images = Prediction(networks, part.x, hp, self.memory.tensors(), random)
                self.algorithm.predict(images)
        if self._place[1] > 1:
            mean_over_processes([value for name, value in weights.items() if name in statistics])

    def _over_processes(self, losses: Tensor) -> Tensor:
        if self._place[1] > 1:
            mean_over_processes([losses])
        return losses

    # ---- evaluation ------------------------------------------------------------------------------

    def predicted(
        self,
        function: Callable[[Prediction], Tensor],
        x: Tensor,
        random: Tensors,
        per_image: Tensors,
    ) -> Tensor:
        numbers = {name: values[0] for name, values in random.items()}
        known = {name: values[0] for name, values in per_image.items()}
        hp = Hyperparameters(self.hp.tensors())
        with half_for_networks(self.networks, self.device) as networks:
            s = Prediction(networks, x, hp, self.memory.tensors(), numbers, **known)
            return function(s)[None]

    # ---- state -----------------------------------------------------------------------------------

    def weights(self, i: int = 0) -> dict[str, Tensor]:
        copies: dict[str, Tensor] = cpu_copies(self.state_dict())
        return copies

    def optimizer_states(self, i: int, states: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(states)

    def merged_optimizer_states(
        self, runs: Sequence[Sequence[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        return list(runs[0])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}steps_done"] = torch.tensor(self.steps_done)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self.steps_done = int(state_dict.pop(f"{prefix}steps_done"))
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[no-untyped-call]


def micro_batches(batch: EnvBatch, n: int) -> Sequence[EnvBatch]:
    """Cut a minibatch into ``n`` with equal parts of the rows of every environment, in order."""
    if n == 1:
        return [batch]
    sizes = tuple(size // n for size in batch.sizes)

    def cut(values: Tensor) -> list[Tensor]:
        by_environment = [part.chunk(n) for part in batch.split(values)]
        return [torch.cat(parts) for parts in zip(*by_environment, strict=True)]

    indices = [None] * n if batch.index is None else cut(batch.index)
    return [
        EnvBatch(x, y, sizes, index, batch.drawn)
        for x, y, index in zip(cut(batch.x), cut(batch.y), indices, strict=True)
    ]


def mean_over_processes(tensors: Iterable[Tensor]) -> None:
    """Average tensors in place over the processes of a distributed run, in one message per type."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype, []).append(tensor)
    for group in by_type.values():
        message = torch.cat([tensor.reshape(-1) for tensor in group])
        torch.distributed.all_reduce(message)
        message /= torch.distributed.get_world_size()
        means = torch.split(message, [tensor.numel() for tensor in group])
        for tensor, mean in zip(group, means, strict=True):
            tensor.copy_(mean.view_as(tensor))


def averaged(states: Sequence[Tensors]) -> Tensors:
    """Average over micro-batches what an objective gave for each: a new state, or logs."""
    if len(states) == 1:
        return states[0]
    return {name: values.mean(0) for name, values in stacked_by_name(states).items()}


def moving_statistics(networks: nn.Module) -> list[Tensor]:
    """List the running statistics that a step may have changed.

    An example are those of a BatchNorm that is not frozen.
    """
    statistics: list[Tensor] = []
    for module in networks.modules():
        if module.training:
            buffers = module.buffers(recurse=False)
            statistics += [buffer for buffer in buffers if buffer.is_floating_point()]
    return statistics


@contextmanager
def seeded_dropout(networks: nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """Let dropout draw from ``seed`` alone.

    Dropout knows torch's global generator only, which is restored afterwards.
    """
    if not draws_globally(networks):
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
