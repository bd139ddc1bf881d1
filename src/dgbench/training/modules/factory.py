"""Make the module of an algorithm from ``conf/algorithm/NAME.yaml``.

It is for any ``pl.Trainer``, or to be stepped by hand. :class:`Port` takes real optimizer steps on
given minibatches and random inputs, to compare an algorithm with its reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from omegaconf import OmegaConf
from pydantic import InstanceOf, WrapValidator
from torch import Tensor, nn

from dgbench.batches import Tensors
from dgbench.configuration import CONF
from dgbench.containers import Networks, example_of
from dgbench.errors import ConfigError
from dgbench.network_specs import Sizes
from dgbench.networks.build import assembled
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import RandomInputs
from dgbench.plan.hyperparameters import resolve
from dgbench.seeding import derive
from dgbench.training.algorithm_class import algorithm_class
from dgbench.training.modules.base import minibatches as as_minibatches
from dgbench.training.modules.lightning import SingleRun
from dgbench.training.optimizers import UpdateRule
from dgbench.validation import Place, Plain, Refusal, Several, Whole0, Whole1, as_it_is, checked

#: the featurizer, or several networks by name; not copied
Given = Annotated[
    Annotated[
        nn.Module | Mapping[str, nn.Module],
        Refusal("is no network, nor networks by name", "give one"),
    ],
    WrapValidator(as_it_is),
]


@checked
def training_module(
    objective: Annotated[
        str | type[Algorithm], Refusal("is no algorithm", "give its class, or where to import it")
    ],
    networks: Given,
    n_classes: Whole1,
    n_envs: Whole1,
    *,
    hparams: Plain | None = None,
    values: Plain | None = None,
    name: str = "",
    search: Any = None,
    shared: Several[str] = ("lr", "weight_decay", "batch_size"),
    kind: Literal["small", "large"] = "small",
    n_features: Whole1 | None = None,
    image: Several[Whole1] = (),
    n_images: Whole0 = 0,
    n_trained_on: Whole0 = 0,
    pixel_mean: Several[float] = (),
    pixel_std: Several[float] = (),
    seed: Whole0 = 0,
    rule: InstanceOf[UpdateRule] | None = None,
    dtype: torch.dtype | None = None,
) -> SingleRun:
    """Build the LightningModule that trains an algorithm on given networks, in any ``pl.Trainer``.

    Args:
        objective: the algorithm's class, or where to import it from.
        networks: the featurizer, or several networks by name, ``featurizer`` among them; they are
            trained in place. Networks that the algorithm needs and that are missing here are built
            from ``seed``.
        n_classes: K.
        n_envs: training environments E; every training batch has a minibatch of each.
        hparams: as in ``conf/algorithm``: defaults, with their ranges or without; those that all
            algorithms share have the defaults of ``conf/hparams``.
        values: those that replace a default.
        name, search: of the YAML file; not used.
        shared: those of the shared hyperparameters that the algorithm reads.
        kind: ``small`` or ``large`` images, for defaults written ``{small: ..., large: ...}``.
        n_features: m; None is the featurizer's attribute ``n_features``.
        image: C, H, W, for algorithms that build networks on images.
        n_images: every training image has a number below it; for algorithms that remember something
            of each image.
        n_trained_on: training images, of all environments together; for algorithms whose epochs
            count.
        pixel_mean, pixel_std: x * std + mean lies in [0, 1], channel by channel; empty if x itself
            does.
        seed: base seed of the networks built here and of random inputs.
        rule: how gradients become updates.
        dtype: floating-point type of everything; None is that of the given networks.

    Raises:
        ConfigError: an unknown class or hyperparameter, a value outside its range, or a size that
            is needed and is not known.
    """
    algorithm = algorithm_class(objective) if isinstance(objective, str) else objective
    if isinstance(networks, (Mapping, nn.ModuleDict)):
        named = dict(networks.items())
    else:
        named = {"featurizer": networks}
    if n_features is None:
        n_features = getattr(named.get("featurizer"), "n_features", None)
    if n_features is None:
        raise ConfigError(
            "networks: the featurizer is missing or has no attribute n_features; give n_features="
        )
    declared: Any = hparams or {}
    if OmegaConf.is_config(hparams):
        declared = OmegaConf.to_container(hparams, resolve=True)
    resolved_values = resolve(
        _shared(),
        {"hparams": declared, "search": {}},
        kind=kind,
        space="domainbed",
        number=0,
        trial=0,
        rng="per_name",
        read=list(shared),
        chosen=values,
    )
    rule = rule or UpdateRule()
    sizes = Sizes(
        n_features=n_features,
        n_classes=n_classes,
        n_envs=n_envs,
        image=tuple(image),
        n_steps=rule.steps,
        n_images=n_images,
        n_trained_on=n_trained_on,
        pixel_mean=tuple(pixel_mean),
        pixel_std=tuple(pixel_std),
    )
    instance = algorithm(sizes, resolved_values)
    return SingleRun(instance, completed(named, instance, seed), seed, rule, dtype)


def completed(networks: Mapping[str, nn.Module], algorithm: Algorithm, seed: int) -> Networks:
    """Add the networks that an algorithm needs beside these, freshly initialized from ``seed``.

    To ``Networks`` none are added.

    Raises:
        ConfigError: a network on images is needed, and their shape is not known.
    """
    try:
        needed = algorithm.networks_needed(algorithm.sizes, algorithm.values)
    except IndexError:
        raise ConfigError(
            f"{type(algorithm).__name__} needs the shape of an image; give image=[C, H, W]"
        ) from None
    if isinstance(networks, Networks):
        return networks
    body = networks["featurizer"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init"))
        built = assembled(networks, needed, algorithm.sizes.image, lambda: deepcopy(body))
    return built.to(example_of(body))


@cache
def _shared() -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(CONF / "hparams" / "default.yaml"))
    shared: dict[str, Any] = content["shared"]
    return shared


class Port:
    """An algorithm on given networks, stepped by hand; :func:`algorithm` makes one."""

    def __init__(self, module: SingleRun) -> None:
        self.module = module.train()  #: takes the steps
        groups = module.trained_groups()
        self._optimizers = dict(zip(groups, module.configure_optimizers(), strict=True))

    @property
    def networks(self) -> Networks:
        """The networks with the weights they have now."""
        return self.module.networks

    @property
    def state(self) -> Tensors:
        """The algorithm's own memory."""
        return self.module.memory.tensors()

    def random_inputs(self, sizes: Sequence[int]) -> RandomInputs:
        """Describe the random inputs of a step on minibatches of these sizes, by name."""
        return self.module.algorithm.random_inputs(tuple(sizes))

    def step(self, minibatches: Any, random: Mapping[str, Any] | None = None) -> Tensor:
        """Take one real optimizer step: every update of the algorithm, its optimizers included.

        Args:
            minibatches: an :class:`EnvBatch`, or (x, y) of each environment in a sequence or by
                name.
            random: the random inputs by name; None draws them from the seed.

        Returns:
            0-dimensional loss of the step's last update, before it.

        Raises:
            ConfigError: random inputs of other names or shapes than the declared ones, or too few
                minibatches.
            DivergedError: the loss is not finite.
        """
        (batch,) = as_minibatches(minibatches, self.module.algorithm.sizes.n_envs)
        batch = replace(batch, x=batch.x.to(self.networks.dtype))
        own_draws = self.module.draws
        if random is not None:
            values = self._checked(random, batch.sizes)
            self.module.draws = _Given(values, own_draws.seed)  # type: ignore[assignment]
        try:
            return self.module.train_steps([batch], self._optimizers)[0, 0]
        finally:
            self.module.draws = own_draws

    def predict(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images to (n, K) logits in evaluation mode."""
        with torch.no_grad():
            logits: Tensor = self.module.eval()(x.to(self.networks.dtype))
        self.module.train()
        return logits

    def _checked(self, random: Mapping[str, Any], sizes: tuple[int, ...]) -> dict[str, Tensor]:
        declared = self.random_inputs(sizes)
        needed = {name: spec.shape for name, spec in declared.items()}
        tensors = {name: torch.as_tensor(value) for name, value in random.items()}
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        if shapes != needed:
            raise ConfigError(f"random inputs {shapes} were given, this step needs {needed}")
        for name, value in tensors.items():
            if value.is_floating_point():
                tensors[name] = value.to(self.networks.dtype)
        return tensors


class _Given:
    """Given numbers in the place of drawn ones."""

    def __init__(self, values: Tensors, seed: int) -> None:
        self.values = values
        self.seed = seed

    def at(self, *_: Any) -> Tensors:
        return self.values


@checked
def algorithm(
    name: Place,
    networks: Given,
    n_classes: Whole1,
    n_envs: Whole1,
    hparams: Plain | None = None,
    dtype: torch.dtype = torch.float64,
    **more: Any,
) -> Port:
    """Build an algorithm by its YAML name, to compare it with a reference step by step.

    Args:
        name: of a file in ``conf/algorithm``, or the path of such a file.
        networks: the featurizer, or several networks by name; they are trained in place.
        n_classes, n_envs: K and E.
        hparams: values that replace the file's defaults.
        dtype: of networks, hyperparameters, state and random inputs; torch's default type is left
            alone.
        **more: ``n_features``, ``image``, ``kind``, ``seed``, ``rule``, ... of
            :func:`training_module`.

    Raises:
        ConfigError: an unknown algorithm or hyperparameter.
    """
    file = Path(name) if Path(name).suffix else CONF / "algorithm" / f"{name}.yaml"
    if not file.exists():
        choices = ", ".join(sorted(path.stem for path in (CONF / "algorithm").glob("*.yaml")))
        raise ConfigError(f"algorithm {name} is unknown; choose from {choices}")
    content: Any = OmegaConf.to_container(OmegaConf.load(file))
    unknown = set(hparams or {}) - {*content["hparams"], "lr", "weight_decay", "batch_size"}
    if unknown:
        choices = ", ".join(content["hparams"])
        raise ConfigError(
            f"{name} has no hyperparameter {', '.join(sorted(unknown))}; choose from {choices}"
        )
    module = training_module(
        content["objective"],
        networks,
        n_classes,
        n_envs,
        hparams=content["hparams"],
        values=hparams,
        dtype=dtype,
        **more,
    )
    return Port(module)
