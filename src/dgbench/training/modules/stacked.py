"""Many runs as one: the pure objective mapped over a stack of runs, one optimizer step for all of
them.

Every tensor of a run (parameters, buffers, hyperparameters, state, random inputs) gets a leading
axis of length R. Each run's gradient is taken inside the map, so runs never see one another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp, vmap

from dgbench.batches import EnvBatch, Tensors
from dgbench.containers import AnyNetworks, BoundNetworks
from dgbench.errors import DgbenchError
from dgbench.objectives.contract import ParamGroup, Update
from dgbench.objectives.step import Hyperparameters, Prediction, Step
from dgbench.plan.code import raised_at
from dgbench.training.modules.lightning import LightningRuns, SingleRun
from dgbench.training.optimizers import Part, clipped, optimizer_settings


class StackedRuns(LightningRuns):
    """Trains R runs of one shape together; run i equals the single run with the same seeds.

    Args:
        runs: algorithms of one class with equal static hyperparameters and sizes, at the same step,
            in an order that keeps equal optimizer settings together (see :func:`optimizer_key`).
    """

    def __init__(self, runs: Sequence[SingleRun]) -> None:
        super().__init__(runs[0].algorithm, runs[0].rule)
        self._runs = tuple(runs)  # a tuple, so that Lightning does not register R modules
        self._functions: dict[Any, Callable[..., Any]] = {}  # of an update and minibatch sizes
        self._leaves: dict[
            str, list[tuple[slice, dict[str, Tensor]]]
        ] = {}  # of each group: runs, their parameters
        self._random: Tensors = {}
        self.steps_done = runs[0].steps_done
        # of each group: runs with equal optimizer settings, and the names of their parameters
        self._layout = {
            name: self._equal_settings(group) for name, group in self.trained_groups().items()
        }

    def _equal_settings(self, group: ParamGroup) -> list[tuple[slice, list[str]]]:
        names = list(self._runs[0].networks.params(*group.networks))
        keys = [optimizer_key(run, group) for run in self._runs]
        blocks = [list(part) for _, part in groupby(range(self.size), key=keys.__getitem__)]
        return [(slice(part[0], part[-1] + 1), names) for part in blocks]

    @property
    def runs(self) -> Sequence[SingleRun]:
        """The runs as they were before they were stacked; :meth:`write_back` brings one up to date."""
        return self._runs

    # ---- stacking
    # -----------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Stack the runs on the device, then build one optimizer per group with a part per set of
        equal settings.

        Frozen parameters that all runs share are kept once.
        """
        self._functions.clear()  # they hold on to the tensors that are made now
        networks = [run.networks for run in self._runs]
        self.params = {
            k: v.requires_grad_() for k, v in self._stacked([n.params() for n in networks]).items()
        }
        frozen = [n.constants() for n in networks]
        shared = {
            name
            for name, constants in frozen[0].items()
            if all(torch.equal(constants, f[name]) for f in frozen)
        }
        self.constants = {
            name: value[0].clone() if name in shared else value
            for name, value in self._stacked(frozen).items()
        }
        self._constant_axes = {name: None if name in shared else 0 for name in frozen[0]}
        self.buffers_ = self._stacked([n.statistics() for n in networks])
        self.hp = self._stacked([run.hp.tensors() for run in self._runs])
        self.memory = self._stacked([run.memory.tensors() for run in self._runs])
        return super().configure_optimizers()

    def _stacked(self, tensors: Sequence[Tensors]) -> dict[str, Tensor]:
        return {
            name: torch.stack([run[name].detach() for run in tensors]).to(self.device)
            for name in tensors[0]
        }

    def _parts(self, name: str, group: ParamGroup) -> list[Part]:
        self._leaves[name] = [
            (part, {key: self.params[key].detach()[part] for key in names})
            for part, names in self._layout[name]
        ]
        return [
            Part(self._runs[part.start].algorithm, list(leaves.values()))
            for part, leaves in self._leaves[name]
        ]

    # ---- training
    # -----------------------------------------------------------------------------------------------

    def train_steps(self, batches: Sequence[EnvBatch], optimizers: Mapping[str, Any]) -> Tensor:
        self._runs[0].networks.train()  # Lightning, which switches modes, does not see it
        return super().train_steps(batches, optimizers)

    def _step(
        self, step: int, counter: Tensor, batch: EnvBatch, optimizers: Mapping[str, Any]
    ) -> Tensor:
        self._random = self._random_at(step, batch.sizes)
        return super()._step(step, counter, batch, optimizers)

    def _random_at(self, step: int, sizes: tuple[int, ...]) -> Tensors:
        """Draw (R, ...) random inputs.

        Each run keeps its own block of steps, since a stack of blocks may be large.
        """
        like = torch.empty((), dtype=self._runs[0].networks.dtype, device=self.device)
        drawn = [run.draws.at(step, sizes, like) for run in self._runs]
        return {name: torch.stack([numbers[name] for numbers in drawn]) for name in drawn[0]}

    def _differentiate(
        self, update: Update, groups: tuple[str, ...], step: int, counter: Tensor, batch: EnvBatch
    ) -> tuple[Tensor, Tensors]:
        key = (update.objective, groups, batch.sizes, step < self.rule.head_steps)
        if key not in self._functions:
            names = [parameter for name in groups for parameter in self._learning(step)[name]]
            self._functions[key] = self._function(update, names, batch.sizes)
        numbers = {"index": batch.index, "drawn": batch.drawn}
        index = {name: values for name, values in numbers.items() if values is not None}
        with branches_refused():
            losses, gradients, logs = self._functions[key](
                self._random, batch.x, batch.y, index, counter
            )
        for name in groups:
            for part, leaves in self._leaves[name]:
                for parameter, leaf in leaves.items():
                    gradient = gradients.get(parameter)
                    # fused Adam ignores strides
                    leaf.grad = None if gradient is None else gradient[part].detach().contiguous()
        # what moves in place may be logged
        return losses, {name: value.clone() for name, value in logs.items()}

    def _function(
        self, update: Update, names: Sequence[str], sizes: tuple[int, ...]
    ) -> Callable[..., Any]:
        """Build (random, x, y, index, step) -> (R,) losses, gradients, logs, which moves statistics
        and state in place.

        Args:
            names: of the parameters to differentiate by; without any the loss is not
                differentiated.
        """
        networks = self._runs[0].networks

        def one_run(
            trained: Tensors, params: Tensors, constants: Tensors, buffers: Tensors, hp: Tensors, state: Tensors,
            random: Tensors, x: Tensor, y: Tensor, index: Tensors, step: Tensor,
        ) -> tuple[Tensor, Tensors, Tensors, Tensors, Tensors]:  # fmt: skip
            def loss_of(
                variables: Tensors,
            ) -> tuple[Tensor, tuple[Tensors, Tensors, Tensors, Tensors]]:
                # written to, so born in here
                moving = {name: value.clone() for name, value in buffers.items()}
                nets = BoundNetworks(networks, {**params, **constants, **moving, **variables})
                batch = EnvBatch(x, y, sizes, index.get("index"), index.get("drawn"))
                out = update.objective(Step(nets, batch, Hyperparameters(hp), state, random, step))
                logs = dict(out.logs) if self.collects else {}
                return out.loss, (dict(out.state), dict(out.grads or {}), moving, logs)

            if not trained:
                loss, (new, grads, moved, logs) = loss_of({})
                return loss, new, grads, moved, logs
            loss, pull, (new, grads, moved, logs) = vjp(loss_of, dict(trained), has_aux=True)  # type: ignore[misc]
            self._gives_gradients = bool(grads)
            if not grads:
                (grads,) = pull(torch.ones_like(loss), retain_graph=False, create_graph=False)
            return loss, new, grads, moved, logs

        axes = (0, 0, self._constant_axes, 0, 0, 0, 0, 0, 0, 0, None)
        mapped = vmap(one_run, in_dims=axes, randomness="different")

        def run(
            random: Tensors, x: Tensor, y: Tensor, index: Tensors, step: Tensor
        ) -> tuple[Tensor, Mapping[str, Tensor | None], Tensors]:
            params = {name: value.detach() for name, value in self.params.items()}
            trained = {name: params.pop(name) for name in names}
            losses, state, grads, moved, logs = mapped(
                trained,
                params,
                self.constants,
                self.buffers_,
                self.hp,
                self.memory,
                random,
                x,
                y,
                index,
                step,
            )
            for stored, new in ((self.buffers_, moved), (self.memory, state)):
                for name, value in new.items():
                    stored[name].copy_(value.detach())
            gradients = clipped({name: grads.get(name) for name in names}, self.rule.gradient_clip)
            return losses, gradients, {name: value.detach() for name, value in logs.items()}

        return run

    def live_parameters(self) -> Tensors:
        return {name: value.detach() for name, value in self.params.items()}

    def objective_state(self) -> Tensors:
        statistics = {f"networks.{name}": value.clone() for name, value in self.buffers_.items()}
        return {
            **statistics,
            **{f"memory.{name}": value.clone() for name, value in self.memory.items()},
        }

    def set_objective_state(self, state: Tensors) -> None:
        for prefix, tensors in (("networks", self.buffers_), ("memory", self.memory)):
            for name, value in tensors.items():
                value.copy_(state[f"{prefix}.{name}"])

    def _moving(self, names: Sequence[str]) -> list[Tensor]:
        networks = self._runs[0].networks
        buffers = [key for key in self.buffers_ if key.partition(".")[0] in names]
        # the memory that optimizers write to
        params = [self.params[key].detach() for key in networks.params(*names)]
        return [*params, *(self.buffers_[key] for key in buffers)]

    def _value(self, name: str, like: Tensor) -> Tensor:
        return self.hp[name].view(-1, *[1] * (like.dim() - 1))

    def evaluated(self, i: int) -> tuple[AnyNetworks, Hyperparameters, Tensors]:
        networks = self._runs[0].networks.eval()
        weights = {
            name: value[i]
            for stacked in (self.params, self.buffers_)
            for name, value in stacked.items()
        }
        constants = {
            name: value if self._constant_axes[name] is None else value[i]
            for name, value in self.constants.items()
        }
        hp, state = (
            {name: value[i] for name, value in stacked.items()}
            for stacked in (self.hp, self.memory)
        )
        return BoundNetworks(networks, {**weights, **constants}), Hyperparameters(hp), state

    def remember(self, i: int, state: Tensors) -> None:
        for name, value in state.items():
            self.memory[name][i].copy_(value.detach())

    @property
    def _clip_limit(self) -> float | None:
        return None  # clipped run by run already

    # ---- evaluation
    # ---------------------------------------------------------------------------------------------

    def predicted(
        self,
        function: Callable[[Prediction], Tensor],
        x: Tensor,
        random: Tensors,
        per_image: Tensors,
    ) -> Tensor:
        """Evaluate the function for as many runs at a time as the memory limit on layer outputs
        allows.
        """
        networks = self._runs[0].networks.eval()

        def one_run(
            params: Tensors, constants: Tensors, buffers: Tensors, hp: Tensors, state: Tensors, random: Tensors,
            per_image: Tensors,
        ) -> Tensor:  # fmt: skip
            nets = BoundNetworks(networks, {**params, **constants, **buffers})
            return function(Prediction(nets, x, Hyperparameters(hp), state, random, **per_image))

        axes = (0, self._constant_axes, 0, 0, 0, 0, 0)
        runs_at_once = max(1, self.images_at_once(x) // len(x))
        mapped = vmap(one_run, in_dims=axes, chunk_size=runs_at_once, randomness="different")
        with branches_refused():
            values: Tensor = mapped(
                self.params, self.constants, self.buffers_, self.hp, self.memory, random, per_image
            )
        return values

    # ---- states of runs
    # -----------------------------------------------------------------------------------------

    def write_back(self, i: int) -> SingleRun:
        """Return run ``i`` with its present tensors copied back from the stack."""
        run = self._runs[i]
        if self._optimizers:  # stacked already
            with torch.no_grad():
                for name, parameter in run.networks.params().items():
                    parameter.copy_(self.params[name][i])
                for name, buffer in run.networks.statistics().items():
                    buffer.copy_(self.buffers_[name][i])
            run.memory.assign({name: value[i].clone().cpu() for name, value in self.memory.items()})
        run.steps_done = self.steps_done
        return run

    def weights(self, i: int) -> dict[str, Tensor]:
        return self.write_back(i).weights()

    def optimizer_states(self, i: int, states: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        run_states = []
        for parts, state in zip(self._layout.values(), states, strict=True):
            index = next(k for k, (part, _) in enumerate(parts) if part.start <= i < part.stop)
            part, names = parts[index]
            settings = state["param_groups"][index]
            moments = {
                j: {
                    k: v if v.dim() == 0 else v[i - part.start].clone()
                    for k, v in state["state"][p].items()
                }
                for j, p in enumerate(settings["params"])
                if p in state["state"]
            }
            run_states.append(
                {
                    "state": moments,
                    "param_groups": [{**settings, "params": list(range(len(names)))}],
                }
            )
        return run_states

    def merged_optimizer_states(
        self, runs: Sequence[Sequence[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        merged = []
        for k, parts in enumerate(self._layout.values()):
            state: dict[int, dict[str, Tensor]] = {}
            groups, offset = [], 0
            for part, names in parts:
                run_states = [run[k] for run in runs[part]]
                for j in run_states[0]["state"]:
                    state[offset + j] = {
                        key: value
                        if value.dim() == 0
                        else torch.stack([run["state"][j][key] for run in run_states])
                        for key, value in run_states[0]["state"][j].items()
                    }
                groups.append(
                    {
                        **run_states[0]["param_groups"][0],
                        "params": list(range(offset, offset + len(names))),
                    }
                )
                offset += len(names)
            merged.append({"state": state, "param_groups": groups})
        return merged


@contextmanager
def branches_refused() -> Iterator[None]:
    """Explain, with the line of code, the error that ``vmap`` raises where an algorithm branches on
    data.

    Raises:
        DgbenchError: it takes from a tensor what differs between runs, where one value must do for
            all.
    """
    try:
        yield
    except RuntimeError as error:
        if not re.search(
            "vmap(?:(?!vmap).)*(data-dependent control flow|dynamic shape)", str(error)
        ):
            raise
        raise DgbenchError(
            f"{raised_at(error) or 'the algorithm'} takes a branch, a number or a shape from "
            "data, which cannot differ between runs that train together; use e.g. torch.where, or "
            "set execution=single, which trains each alone"
        ) from error


def optimizer_key(run: SingleRun, group: ParamGroup) -> tuple[Any, ...]:
    """Return what must be equal for runs to share a part of an optimizer: its settings and its
    resets.
    """
    algorithm = run.algorithm
    named = (*algorithm.resets(), *([algorithm.reset_lr] if algorithm.reset_lr else []))
    return (
        *sorted(optimizer_settings(algorithm.values, group).items()),
        tuple(algorithm.values[key] for key in named),
    )
