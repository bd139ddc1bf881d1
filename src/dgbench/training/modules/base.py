"""Take the steps that training one run and training many at once have in common.

Divergence is noted and states are saved here too.
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
    OptimizerPart,
    UpdateRule,
    learning_rate,
    optimizer_settings,
    parameters_of,
    resets_optimizers,
    take_steps,
    unwrapped,
)


class RunModule(PredictingModule):
    """Trains R runs of one algorithm.

    A parameter group whose networks are all frozen has no optimizer, and an update in which no
    group steps is not computed: with a frozen featurizer SagNet trains its two heads and leaves out
    its third update.
    """

    def __init__(self, algorithm: Algorithm, rule: UpdateRule) -> None:
        super().__init__(algorithm)
        self.rule = rule  #: how gradients become updates
        self.steps_done = 0  #: optimizer steps done
        #: run -> (step, value) of its first loss that was not finite
        self.diverged: dict[int, tuple[int, float]] = {}
        #: called after each optimizer step with the number of steps done and its minibatch; not
        #: part of a state
        self.after_step: list[Callable[[int, EnvBatch], None]] = []
        #: note losses and logs of objectives for :meth:`take_values`; set before the first step
        self.collects = False
        self._values: list[tuple[int, str, Tensor]] = []  # (R,) each, not read from the device yet
        self._groups: dict[str, ParamGroup] = {}
        # names of parameters by group: while only heads learn, and afterwards
        self._learns: dict[bool, dict[str, list[str]]] = {}
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        self._parted: dict[str, list[OptimizerPart]] = {}  # each group, by optimizer settings
        self._to_load: Sequence[Mapping[str, Any]] = ()
        self._is_tried = False  # the objective, at the first step
        # the objective last called: masks of gradients may be zero everywhere
        self._gives_gradients = False

    def trained_groups(self) -> dict[str, ParamGroup]:
        """Return the parameter groups that have something to train, by name."""
        networks = self.runs[0].networks
        groups = self.algorithm.param_groups()
        return {name: group for name, group in groups.items() if networks.params(*group.networks)}

    # ---- optimizers ------------------------------------------------------------------------------

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Build one optimizer per parameter group that trains.

        They are in the order of :meth:`trained_groups`.
        """
        self._groups = self.trained_groups()
        for name, group in self._groups.items():
            self._parted[name] = self._parts(name, group)
            settings = []
            for part in self._parted[name]:
                options = optimizer_settings(part.algorithm.values, group)
                settings.append({"params": part.parameters, **options})
            # the same arithmetic in one pass over memory
            fused: Any = {"fused": self.device.type in ("cpu", "cuda")}
            self._optimizers[name] = OPTIMIZERS[group.optimizer](settings, **fused)
        return list(self._optimizers.values())

    @abstractmethod
    def _parts(self, name: str, group: ParamGroup) -> list[OptimizerPart]:
        """Split the parameters of a group by optimizer settings."""

    @property
    def _scaler(self) -> Any:
        """The gradient scaler of half precision, or None elsewhere.

        It keeps small gradients from vanishing.
        """
        return None

    # ---- training --------------------------------------------------------------------------------

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
        rows = []
        for k, batch in enumerate(batches):
            rows.append(self._step(first + k, counters[k], batch, optimizers))
        losses = self._over_processes(torch.stack(rows))
        self.steps_done += len(batches)
        self._note_divergence(first, losses)
        return losses

    def _step(
        self, step: int, counter: Tensor, batch: EnvBatch, optimizers: Mapping[str, Any]
    ) -> Tensor:
        """Take one optimizer step; return the (R,) losses of its last update."""
        due = [i for i, run in enumerate(self.runs) if run.algorithm.survey_due(step)]
        if due:
            survey(self, due, step)
        pulls = [self._pull(group) for group in self._groups.values() if group.pull]
        losses = batch.x.new_zeros(self.size)
        trial = None if self._is_tried else Trial(self._draws_globally(), self.device)
        for update in self.algorithm.updates(step):
            learning = self._learning(step)
            stepping = {name: optimizers[name] for name in update.groups if name in learning}
            if stepping:
                losses = self._update(update, stepping, step, counter, batch, trial)
            elif not update.groups:
                with torch.no_grad():
                    _, logs = self._differentiate(update, (), step, counter, batch)
                    self._note_values(step, logs)
        if trial:
            trial.judge(type(self.algorithm).__name__, scaled=self._scaler is not None)
            self._is_tried = True
        for pull in pulls:
            pull()
        for hook in self.after_step:
            hook(step + 1, batch)
        return losses

    def _update(
        self,
        update: Update,
        stepping: Mapping[str, Any],
        step: int,
        counter: Tensor,
        batch: EnvBatch,
        trial: Trial | None,
    ) -> Tensor:
        """Make one update of a step.

        Args:
            update: whose gradient is followed.
            stepping: its optimizers that step, by group.
            step: number of the step.
            counter: the same as a tensor.
            batch: its minibatches.
            trial: judges the objective at the first step; None later.

        Returns:
            (R,) losses.
        """
        sharpened = self._sharpened(update, step)
        groups = tuple(stepping)
        differentiate = partial(self._differentiate, sharpened, groups, step, counter, batch)
        comparison = None if batch.x.is_meta else trial
        if comparison:
            comparison.note_outcome(self._outcome(differentiate, stepping))
        losses, logs = differentiate()
        if comparison:
            comparison.note_again(self._seen(losses, stepping))
        if update.objective == self.algorithm.objective:
            logs = {"loss": losses, **logs}
        self._note_values(step, logs)
        if trial and not self._gives_gradients:
            trial.note_gradients(self._gradients(stepping))
        self._take_step(step, stepping)
        return losses

    def _sharpened(self, update: Update, step: int) -> Update:
        """Make an update of a featurizer sharpness-aware, if the rule asks for it.

        Any other update is returned as it is. If the featurizer is frozen, only the weights of what
        stands behind it are raised. Equal updates give equal results, by which a stack looks up its
        functions.
        """
        if self.rule.sharpness is None:
            return update
        algorithm = self.algorithm
        groups = algorithm.param_groups()
        bodies = algorithm.featurizers(algorithm.sizes, algorithm.values)
        if all(set(groups[name].networks).isdisjoint(bodies) for name in update.groups):
            return update
        learning = self._learning(step)
        names: list[str] = []
        for group in update.groups:
            names += learning.get(group, [])
        sharpened = Sharpened(self.rule.sharpness, update.objective, tuple(names))
        return replace(update, objective=sharpened)

    def _draws_globally(self) -> bool:
        """Return whether layers of the networks draw from the global generator, as dropout does."""
        return draws_globally(self.runs[0].networks)

    def _outcome(
        self, differentiate: Callable[[], tuple[Tensor, Tensors]], stepping: Mapping[str, Any]
    ) -> Seen:
        """Differentiate an update, and put back all that it changed but gradients.

        It is as if it had not been.
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
        """Copy what an update came to.

        That is its losses, a sample of each gradient, and what became of statistics and memory.
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
        parameters = self._with_gradients(stepping)
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    def _with_gradients(self, stepping: Mapping[str, Any]) -> list[Tensor]:
        """List the parameters of optimizers that hold a gradient."""
        parameters: list[Tensor] = []
        for optimizer in stepping.values():
            parameters += parameters_of(unwrapped(optimizer))
        return [parameter for parameter in parameters if parameter.grad is not None]

    def _note_values(self, step: int, values: Tensors) -> None:
        if self.collects:
            self._values += [(step, name, value) for name, value in values.items()]

    def _learning(self, step: int) -> dict[str, list[str]]:
        """List the parameters that learn at this step, by the parameter groups that have any."""
        head_only = step < self.rule.head_steps
        if head_only not in self._learns:
            algorithm = self.algorithm
            still = algorithm.featurizers(algorithm.sizes, algorithm.values) if head_only else ()
            named = {}
            for name, group in self._groups.items():
                networks = [network for network in group.networks if network not in still]
                parameters = self.runs[0].networks.params(*networks) if networks else {}
                if parameters:
                    named[name] = list(parameters)
            self._learns[head_only] = named
        return self._learns[head_only]

    def _pull(self, group: ParamGroup) -> Callable[[], None]:
        """Return a function that pulls a group's networks back toward what they are now."""
        tensors = self._moving(group.networks)
        start = [tensor.detach().clone() for tensor in tensors]

        def pull() -> None:
            with torch.no_grad():
                for tensor, before in zip(tensors, start, strict=True):
                    factor = self._value(str(group.pull), tensor)
                    tensor.copy_(before + factor * (tensor - before))

        return pull

    @abstractmethod
    def live_parameters(self) -> Tensors:
        """Return the parameters that train, (R, ...) each in a stack.

        Optimizers change these tensors in place.
        """

    @abstractmethod
    def _moving(self, names: Sequence[str]) -> list[Tensor]:
        """List the live tensors of the named networks that training changes in place.

        These are trainable parameters and buffers.
        """

    @abstractmethod
    def _value(self, name: str, like: Tensor) -> Tensor:
        """Return a hyperparameter in a shape that multiplies ``like``, one of :meth:`_moving`."""

    @abstractmethod
    def _differentiate(
        self, update: Update, groups: tuple[str, ...], step: int, counter: Tensor, batch: EnvBatch
    ) -> tuple[Tensor, Tensors]:
        """Put the gradients into the groups' parameters and store the new state.

        Without groups only the state is stored.

        Returns:
            (R,) losses, and what the objective logs by name, if that is collected.
        """

    def _take_step(self, step: int, stepping: Mapping[str, Any]) -> None:
        """Step the optimizers on the gradients that their parameters hold."""
        for name, optimizer in stepping.items():
            inner = unwrapped(optimizer)
            group = self._groups[name]
            for settings, part in zip(inner.param_groups, self._parted[name], strict=True):
                algorithm = part.algorithm
                if resets_optimizers(algorithm, self.rule, step):
                    for parameter in settings["params"]:
                        inner.state.pop(parameter, None)
                rate = learning_rate(algorithm, name, group, self.rule, step)
                settings["lr"] = part.scale * rate
        take_steps(list(stepping.values()), self._clip_limit, self._scaler)

    @property
    def _clip_limit(self) -> float | None:
        """Norm to which gradients are still to be clipped, or None if they are not."""
        return self.rule.gradient_clip

    def take_values(self) -> list[tuple[int, str, NDArray[Any]]]:
        """Return (step, name, (R,) values) of the steps since the last call, if they are collected.

        ``loss`` is that of the algorithm's ``objective``; the other names are those of
        ``Outcome.logs``. Of a run that several processes train, they are those of this process's
        part of the minibatch. All are read at once, which waits for the device a single time.
        """
        noted = self._values
        self._values = []
        if not noted:
            return []
        double = any(values.dtype == torch.float64 for _, _, values in noted)
        dtype = torch.float64 if double else torch.float32
        rows = torch.stack([values.reshape(-1).to(dtype) for _, _, values in noted])
        table: NDArray[np.float64] = rows.cpu().numpy().astype(np.float64)
        return [(step, name, row) for (step, name, _), row in zip(noted, table, strict=True)]

    def learning_rates(self, i: int, step: int) -> dict[str, float]:
        """Compute the learning rate of every parameter group of run ``i`` at a step."""
        algorithm = self.runs[i].algorithm
        rates = {}
        for name, group in self._groups.items():
            rates[name] = learning_rate(algorithm, name, group, self.rule, step)
        return rates

    def _over_processes(self, losses: Tensor) -> Tensor:
        """Average the losses over the processes that share a minibatch; there is only one here."""
        return losses

    def _note_divergence(self, first: int, losses: Tensor) -> None:
        """Note the first of the (steps, R) losses of each run that is not finite."""
        finite = losses.isfinite()
        if not finite.all():
            for i in (~finite).any(0).nonzero().flatten().tolist():
                k = int((~finite[:, i]).nonzero()[0])
                self.diverged.setdefault(i, (first + k, float(losses[k, i])))
        if len(self.diverged) == self.size:
            raise DivergedError(*self.diverged[0])

    # ---- states of runs --------------------------------------------------------------------------

    @abstractmethod
    def weights(self, i: int) -> dict[str, Tensor]:
        """Copy the ``state_dict`` of run ``i`` alone to the CPU.

        Later steps do not touch the copies.
        """

    def run_state(self, i: int) -> dict[str, Any]:
        """Collect all that is needed to continue run ``i``, alone or in any stack, in CPU copies.

        Returns:
            ``state_dict`` and ``optimizers``, the states of the run's own optimizers in the order
            of :meth:`trained_groups`; ``scaler`` if half precision has one.
        """
        states = [optimizer.state_dict() for optimizer in self._optimizers.values()]
        state = {
            "state_dict": self.weights(i),
            "optimizers": cpu_copies(self.optimizer_states(i, states)),
        }
        if self._scaler is not None:
            state["scaler"] = dict(self._scaler.state_dict())
        return state

    @abstractmethod
    def optimizer_states(self, i: int, states: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Extract what the optimizers of run ``i`` alone would save.

        Args:
            i: number of the run.
            states: what those of this module save.
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
        """Load the optimizers' part of :meth:`load_run_states`, once they exist."""
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
    xs = [pair[0] for pair in pairs]
    ys = [pair[1] for pair in pairs]
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
