"""Take the steps that training one run and training many at once have in common; note divergence,
save states.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgbench.batches import EnvBatch, Tensors
from dgbench.errors import ConfigError, DivergedError
from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.sharpness import Sharpened
from dgbench.training.modules.predicting import PredictingModule, survey
from dgbench.training.modules.trial import Seen, Trial, drawing_again, draws_globally, sampled
from dgbench.training.optimizers import (
    OPTIMIZERS,
    Part,
    UpdateRule,
    learning_rate,
    optimizer_settings,
    resets_optimizers,
    take_steps,
    unwrapped,
)


class RunModule(PredictingModule):
    """Trains R runs of one algorithm.

    A parameter group whose networks are all frozen has no optimizer, and an update in which no
    group steps is not
    computed: with a frozen featurizer SagNet trains its two heads and leaves out its third update.
    """

    def __init__(self, algorithm: Algorithm, rule: UpdateRule) -> None:
        super().__init__(algorithm)
        self.rule = rule  #: how gradients become updates
        self.steps_done = 0  #: optimizer steps done
        self.diverged: dict[
            int, tuple[int, float]
        ] = {}  #: run -> (step, value) of its first loss that was not finite
        #: called after each optimizer step with the number of steps done and its minibatch; not
        #: part of a state
        self.after_step: list[Callable[[int, EnvBatch], None]] = []
        #: note losses and logs of objectives for :meth:`take_values`; set before the first step
        self.collects = False
        self._values: list[tuple[int, str, Tensor]] = []  # (R,) each, not read from the device yet
        self._groups: dict[str, ParamGroup] = {}
        self._learns: dict[
            bool, dict[str, list[str]]
        ] = {}  # while only heads learn, and afterwards
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        self._parted: dict[str, list[Part]] = {}  # each group, by optimizer settings
        self._to_load: Sequence[Mapping[str, Any]] = ()
        self._is_tried = False  # the objective, at the first step
        # the objective last called: masks of gradients may be zero everywhere
        self._gives_gradients = False

    def trained_groups(self) -> dict[str, ParamGroup]:
        """Return the parameter groups that have something to train, by name."""
        networks = self.runs[0].networks
        return {
            n: group
            for n, group in self.algorithm.param_groups().items()
            if networks.params(*group.networks)
        }

    # ---- optimizers
    # ---------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Build one optimizer per parameter group that trains, in the order of
        :meth:`trained_groups`.
        """
        self._groups = self.trained_groups()
        for name, group in self._groups.items():
            parts = self._parted[name] = self._parts(name, group)
            settings = [
                {"params": p.parameters, **optimizer_settings(p.algorithm.values, group)}
                for p in parts
            ]
            # the same arithmetic in one pass over memory
            fused: Any = {"fused": self.device.type in ("cpu", "cuda")}
            self._optimizers[name] = OPTIMIZERS[group.optimizer](settings, **fused)
        return list(self._optimizers.values())

    @abstractmethod
    def _parts(self, name: str, group: ParamGroup) -> list[Part]:
        """Split the parameters of a group by optimizer settings."""

    @property
    def _scaler(self) -> Any:
        """The gradient scaler of half precision, which keeps small gradients from vanishing; None
        elsewhere.
        """
        return None

    # ---- training
    # -----------------------------------------------------------------------------------------------

    def train_steps(self, batches: Sequence[EnvBatch], optimizers: Mapping[str, Any]) -> Tensor:
        """Take one optimizer step per entry of ``batches``.

        Args:
            batches: x is (N, C, H, W) for a single run, (R, N, C, H, W) for a stack.
            optimizers: those of :meth:`configure_optimizers` by group, with or without Lightning's
                wrapper.

        Returns:
            (steps, R) losses, of each step's last update.

        Raises:
            DivergedError: a loss of every run was NaN or infinite.
        """
        first = self.steps_done
        counters = torch.arange(first, first + len(batches), device=self.device)
        rows = [
            self._step(first + k, counters[k], batch, optimizers) for k, batch in enumerate(batches)
        ]
        losses = self._over_processes(torch.stack(rows))
        self.steps_done += len(batches)
        self._note_divergence(first, losses)
        return losses

    def _step(
        self, step: int, counter: Tensor, batch: EnvBatch, optimizers: Mapping[str, Any]
    ) -> Tensor:
        due = [i for i, run in enumerate(self.runs) if run.algorithm.survey_due(step)]
        if due:
            survey(self, due, step)
        pulls = [self._pull(group) for group in self._groups.values() if group.pull]
        losses = batch.x.new_zeros(self.size)
        trial = None if self._is_tried else Trial(self._draws_globally(), self.device)
        for update in self.algorithm.updates(step):
            stepping = {
                name: optimizers[name] for name in update.groups if name in self._learning(step)
            }
            if stepping:
                differentiate = partial(
                    self._differentiate,
                    self._sharpened(update, step),
                    tuple(stepping),
                    step,
                    counter,
                    batch,
                )
                if trial and not batch.x.is_meta:
                    trial.note_outcome(self._outcome(differentiate, stepping))
                losses, logs = differentiate()
                if trial and not batch.x.is_meta:
                    trial.note_again(self._seen(losses, stepping))
                loss = {"loss": losses} if update.objective == self.algorithm.objective else {}
                self._note_values(step, {**loss, **logs})
                if trial and not self._gives_gradients:
                    trial.note_gradients(self._gradients(stepping))
                self._take_step(step, stepping)
            elif not update.groups:
                with torch.no_grad():
                    self._note_values(
                        step, self._differentiate(update, (), step, counter, batch)[1]
                    )
        if trial:
            trial.judge(type(self.algorithm).__name__, scaled=self._scaler is not None)
            self._is_tried = True
        for pull in pulls:
            pull()
        for hook in self.after_step:
            hook(step + 1, batch)
        return losses

    def _sharpened(self, update: Update, step: int) -> Update:
        """Make an update of a featurizer sharpness-aware, if the rule asks for it; return any other
        as it is.

        Where the featurizer is frozen, only the weights of what stands behind it are raised. Equal
        updates give equal results, by which a stack looks up its functions.
        """
        if self.rule.sharpness is None:
            return update
        algorithm, groups, learning = (
            self.algorithm,
            self.algorithm.param_groups(),
            self._learning(step),
        )
        bodies = algorithm.featurizers(algorithm.sizes, algorithm.values)
        if all(set(groups[name].networks).isdisjoint(bodies) for name in update.groups):
            return update
        names = tuple(
            name for group in update.groups if group in learning for name in learning[group]
        )
        return replace(update, objective=Sharpened(self.rule.sharpness, update.objective, names))

    def _draws_globally(self) -> bool:
        """Return whether layers of the networks draw from the global generator, as dropout does."""
        return draws_globally(self.runs[0].networks)

    def _outcome(
        self, differentiate: Callable[[], tuple[Tensor, Tensors]], stepping: Mapping[str, Any]
    ) -> Seen:
        """Differentiate an update, and put back all that it changed but gradients, as if it had not
        been.
        """
        before = self.objective_state()
        with drawing_again(self.device):
            losses, _ = differentiate()
        seen = self._seen(losses, stepping)
        self.set_objective_state(before)
        for parameter in self._with_gradients(stepping):
            parameter.grad = None  # its memory is wanted again at once
        return seen

    def _seen(self, losses: Tensor, stepping: Mapping[str, Any]) -> Seen:
        """Copy what an update came to: losses, a sample of each gradient, what became of statistics
        and memory.
        """
        return {
            "loss": [losses.detach().clone()],
            "gradients": list(map(sampled, self._gradients(stepping))),
            "state": list(self.objective_state().values()),
        }

    @abstractmethod
    def objective_state(self) -> Tensors:
        """Copy what objectives change: running statistics and the algorithm's memory."""

    @abstractmethod
    def set_objective_state(self, state: Tensors) -> None:
        """Put back what :meth:`objective_state` gave."""

    def _gradients(self, stepping: Mapping[str, Any]) -> list[Tensor]:
        """List the gradients that the parameters of optimizers hold."""
        return [
            parameter.grad
            for parameter in self._with_gradients(stepping)
            if parameter.grad is not None
        ]

    def _with_gradients(self, stepping: Mapping[str, Any]) -> list[Tensor]:
        """List the parameters of optimizers that hold a gradient."""
        return [
            parameter
            for optimizer in stepping.values()
            for settings in unwrapped(optimizer).param_groups
            for parameter in settings["params"]
            if parameter.grad is not None
        ]

    def _note_values(self, step: int, values: Tensors) -> None:
        if self.collects:
            self._values += [(step, name, value) for name, value in values.items()]

    def _learning(self, step: int) -> dict[str, list[str]]:
        """List the names of the parameters that learn at this step, for each parameter group that
        has any.
        """
        head_only = step < self.rule.head_steps
        if head_only not in self._learns:
            networks = self.runs[0].networks
            algorithm = self.algorithm
            bodies = algorithm.featurizers(algorithm.sizes, algorithm.values)
            named = {
                name: list(networks.params(*learning))
                for name, group in self._groups.items()
                if (
                    learning := [
                        network
                        for network in group.networks
                        if not (head_only and network in bodies)
                    ]
                )
            }
            self._learns[head_only] = {name: names for name, names in named.items() if names}
        return self._learns[head_only]

    def _pull(self, group: ParamGroup) -> Callable[[], None]:
        """Return a function that pulls a group's networks back toward what they are now."""
        tensors = self._moving(group.networks)
        start = [tensor.detach().clone() for tensor in tensors]

        def pull() -> None:
            with torch.no_grad():
                for tensor, before in zip(tensors, start, strict=True):
                    tensor.copy_(before + self._value(str(group.pull), tensor) * (tensor - before))

        return pull

    @abstractmethod
    def live_parameters(self) -> Tensors:
        """Return the parameters that train, (R, ...) each in a stack: the tensors that optimizers
        change in place.
        """

    @abstractmethod
    def _moving(self, names: Sequence[str]) -> list[Tensor]:
        """List the live tensors of the named networks that training changes in place: trainable
        parameters, buffers.
        """

    @abstractmethod
    def _value(self, name: str, like: Tensor) -> Tensor:
        """Return a hyperparameter in a shape that multiplies ``like``, a tensor of :meth:`_moving`."""

    @abstractmethod
    def _differentiate(
        self, update: Update, groups: tuple[str, ...], step: int, counter: Tensor, batch: EnvBatch
    ) -> tuple[Tensor, Tensors]:
        """Put the gradients into the groups' parameters and store the new state; without groups the
        state alone.

        Returns:
            (R,) losses, and what the objective logs by name, if that is collected.
        """

    def _take_step(self, step: int, stepping: Mapping[str, Any]) -> None:
        """Step the optimizers on the gradients that their parameters hold."""
        for name, optimizer in stepping.items():
            inner = unwrapped(optimizer)
            for settings, part in zip(inner.param_groups, self._parted[name], strict=True):
                algorithm = part.algorithm
                if resets_optimizers(algorithm, self.rule, step):
                    for parameter in settings["params"]:
                        inner.state.pop(parameter, None)
                settings["lr"] = part.scale * learning_rate(
                    algorithm, name, self._groups[name], self.rule, step
                )
        take_steps(list(stepping.values()), self._clip_limit, self._scaler)

    @property
    def _clip_limit(self) -> float | None:
        """Norm to which gradients are still to be clipped; None where they are not."""
        return self.rule.gradient_clip

    def take_values(self) -> list[tuple[int, str, NDArray[Any]]]:
        """Return (step, name, (R,) values) of the steps since the last call, if they are collected.

        ``loss`` is that of the algorithm's ``objective``; the other names are those of
        ``Outcome.logs``. Of a run that several processes train, they are those of this process's
        part of the minibatch. All are read at once, which waits for the device a single time.
        """
        noted, self._values = self._values, []
        if not noted:
            return []
        double = any(values.dtype == torch.float64 for _, _, values in noted)
        dtype = torch.float64 if double else torch.float32
        table: NDArray[Any] = (
            torch.stack([values.reshape(-1).to(dtype) for _, _, values in noted]).cpu().numpy()
        )
        return [
            (step, name, row.astype(np.float64))
            for (step, name, _), row in zip(noted, table, strict=True)
        ]

    def learning_rates(self, i: int, step: int) -> dict[str, float]:
        """Compute the learning rate of every parameter group of run ``i`` at a step."""
        algorithm = self.runs[i].algorithm
        return {
            name: learning_rate(algorithm, name, self._groups[name], self.rule, step)
            for name in self._groups
        }

    def _over_processes(self, losses: Tensor) -> Tensor:
        """Average the losses over the processes that share a minibatch; there is only one here."""
        return losses

    def _note_divergence(self, first: int, losses: Tensor) -> None:
        finite = losses.isfinite()
        if not finite.all():
            for i in (~finite).any(0).nonzero().flatten().tolist():
                k = int((~finite[:, i]).nonzero()[0])
                self.diverged.setdefault(i, (first + k, float(losses[k, i])))
        if len(self.diverged) == self.size:
            raise DivergedError(*self.diverged[0])

    # ---- states of runs
    # -----------------------------------------------------------------------------------------

    @abstractmethod
    def weights(self, i: int) -> dict[str, Tensor]:
        """Copy the ``state_dict`` of run ``i`` alone to the CPU; later steps do not touch the
        copies.
        """

    def run_state(self, i: int) -> dict[str, Any]:
        """Collect everything that is needed to continue run ``i``, alone or in any stack, in CPU
        copies.

        Returns:
            ``state_dict`` and ``optimizers``, the states of the run's own optimizers in the order
            of :meth:`trained_groups`; ``scaler`` where half precision has one.
        """
        states = [optimizer.state_dict() for optimizer in self._optimizers.values()]
        state = {
            "state_dict": self.weights(i),
            "optimizers": cpu_copies(self.optimizer_states(i, states)),
        }
        return (
            state if self._scaler is None else {**state, "scaler": dict(self._scaler.state_dict())}
        )

    @abstractmethod
    def optimizer_states(self, i: int, states: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Extract what the optimizers of run ``i`` alone would save from what those of this module
        save.
        """

    @abstractmethod
    def merged_optimizer_states(
        self, runs: Sequence[Sequence[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Merge the optimizer states of all runs: the inverse of :meth:`optimizer_states`."""

    def load_run_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Continue from the :meth:`run_state` of each of the R runs; called before ``trainer.fit``.

        Weights, memory and ``steps_done`` are loaded at once, the optimizers' states when the fit
        starts.
        """
        for run, state in zip(self.runs, states, strict=True):
            run.load_state_dict(state["state_dict"])
        self.steps_done = self.runs[0].steps_done
        self._to_load = states

    def load_optimizers(self) -> None:
        """Load the optimizers' part of :meth:`load_run_states` into the optimizers, which exist
        now.
        """
        if not self._to_load:
            return
        merged = self.merged_optimizer_states([state["optimizers"] for state in self._to_load])
        for optimizer, state in zip(self._optimizers.values(), merged, strict=True):
            optimizer.load_state_dict(state)
        if self._scaler is not None and "scaler" in self._to_load[0]:
            self._scaler.load_state_dict(self._to_load[0]["scaler"])
        self._to_load = ()


def minibatches(batch: Any, n_envs: int) -> Sequence[EnvBatch]:
    """Convert a training batch to one minibatch per optimizer step.

    Args:
        batch: what a loader gives: a sequence of :class:`EnvBatch`, one for each of several steps;
            or one step as an :class:`EnvBatch`, a sequence with (x, y) of each environment, a
            mapping of their names to (x, y), or a single (x, y).
        n_envs: environments that the algorithm was made for.

    Raises:
        ConfigError: minibatches of another number of environments.
    """
    if isinstance(batch, Sequence) and batch and isinstance(batch[0], EnvBatch):
        return batch
    if isinstance(batch, EnvBatch):
        return [batch]
    pairs = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    if len(pairs) == 2 and isinstance(pairs[0], Tensor):
        pairs = [pairs]
    if len(pairs) != n_envs:
        raise ConfigError(
            f"a step has minibatches of {len(pairs)} environment(s), the algorithm was made for "
            f"{n_envs}"
        )
    xs, ys = ([pair[i] for pair in pairs] for i in (0, 1))
    return [EnvBatch(torch.cat(xs), torch.cat(ys), tuple(len(y) for y in ys))]


def cpu_copies(value: Any) -> Any:
    """Copy nested mappings and sequences, with every tensor copied to the CPU."""
    if isinstance(value, Tensor):
        return value.detach().clone().cpu()
    if isinstance(value, Mapping):
        return {key: cpu_copies(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(cpu_copies(item) for item in value)
    return value
