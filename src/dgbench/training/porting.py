"""Comparing an algorithm with its reference: real optimizer steps on given minibatches and given random inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from dgbench.batches import Tensors
from dgbench.configuration import CONF
from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.objectives.random_inputs import RandomInputs
from dgbench.training.modules import SingleRun, training_module
from dgbench.training.modules.inputs import minibatches as as_minibatches


class Port:
    """An algorithm on given networks, stepped by hand; :func:`algorithm` makes one.

    Attributes:
        module: the :class:`~dgbench.training.modules.SingleRun` that takes the steps.
    """

    def __init__(self, module: SingleRun) -> None:
        self.module = module.train()
        self._optimizers = dict(zip(module.trained_groups(), module.configure_optimizers(), strict=True))

    @property
    def networks(self) -> Networks:
        """The networks with the weights they have now."""
        return self.module.networks

    @property
    def state(self) -> Tensors:
        """The algorithm's own memory."""
        return self.module.memory.tensors()

    def random_inputs(self, sizes: Sequence[int]) -> RandomInputs:
        """Names, shapes and meaning of the random inputs of a step on minibatches of these sizes."""
        return self.module.algorithm.random_inputs(tuple(sizes))

    def step(self, minibatches: Any, random: Mapping[str, Any] | None = None) -> Tensor:
        """One real optimizer step: every update of the algorithm, its optimizers included.

        Args:
            minibatches: an :class:`EnvBatch`, or (x, y) of each environment in a sequence or by name.
            random: the random inputs by name; None draws them from the seed.

        Returns:
            0-dimensional loss of the step's last update, before it.

        Raises:
            ConfigError: random inputs of other names or shapes than the declared ones, or too few minibatches.
            DivergedError: the loss is not finite.
        """
        (batch,) = as_minibatches(minibatches, self.module.algorithm.sizes.n_envs)
        batch = replace(batch, x=batch.x.to(self.networks.dtype))
        drawn = self.module.draws
        if random is not None:
            values = self._checked(random, batch.sizes)
            self.module.draws = _Given(values, drawn.seed)  # type: ignore[assignment]
        try:
            return self.module.train_steps([batch], self._optimizers)[0, 0]
        finally:
            self.module.draws = drawn

    def predict(self, x: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, K) logits in evaluation mode."""
        with torch.no_grad():
            logits: Tensor = self.module.eval()(x.to(self.networks.dtype))
        self.module.train()
        return logits

    def _checked(self, random: Mapping[str, Any], sizes: tuple[int, ...]) -> dict[str, Tensor]:
        declared = self.random_inputs(sizes)
        wanted = {name: each.shape for name, each in declared.items()}
        given = {name: torch.as_tensor(value) for name, value in random.items()}
        found = {name: tuple(value.shape) for name, value in given.items()}
        if found != wanted:
            raise ConfigError(f"random inputs {found} were given, this step needs {wanted}")
        return {k: v.to(self.networks.dtype) if v.is_floating_point() else v for k, v in given.items()}


class _Given:
    """Given numbers in the place of drawn ones."""

    def __init__(self, values: Tensors, seed: int) -> None:
        self.values, self.seed = values, seed

    def at(self, *_: Any) -> Tensors:
        return self.values


def algorithm(
    name: str | Path,
    networks: nn.Module | Mapping[str, nn.Module],
    n_classes: int,
    n_envs: int,
    hparams: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float64,
    **more: Any,
) -> Port:
    """An algorithm by its YAML name, to be compared with a reference step by step.

    Args:
        name: of a file in ``conf/algorithm``, or the path of such a file.
        networks: the featurizer, or several networks by name; they are trained in place.
        n_classes, n_envs: K and E.
        hparams: values that replace the file's defaults.
        dtype: of networks, hyperparameters, state and random inputs; torch's default type is left alone.
        **more: ``n_features``, ``image``, ``kind``, ``seed``, ``rule``, ... of :func:`training_module`.

    Raises:
        ConfigError: an unknown algorithm or hyperparameter.
    """
    file = Path(name) if Path(name).suffix else CONF / "algorithm" / f"{name}.yaml"
    if not file.exists():
        known = ", ".join(sorted(path.stem for path in (CONF / "algorithm").glob("*.yaml")))
        raise ConfigError(f"algorithm {name} is unknown; choose from {known}")
    content: Any = OmegaConf.to_container(OmegaConf.load(file))
    unknown = set(hparams or {}) - {*content["hparams"], "lr", "weight_decay", "batch_size"}
    if unknown:
        known = ", ".join(content["hparams"])
        raise ConfigError(f"{name} has no hyperparameter {', '.join(sorted(unknown))}; choose from {known}")
    return Port(
        training_module(
            content["objective"], networks, n_classes, n_envs, hparams=content["hparams"], values=hparams, dtype=dtype,
            **more,
        )
    )  # fmt: skip
