"""Which runs train together. Planned over all runs of a command, finished ones included.

A group is a function of what was asked for and of the device, not of how far anything is: what is
left of an interrupted command is trained by the same groups.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from dgbench.records.spec import digest
from dgbench.training.modules import SingleRun
from dgbench.training.modules.stacked import optimizer_key
from dgbench.training.study import ReadyRun, ReadyStudy

# on a CPU, larger networks gain nothing from being stacked (benchmarks/stacked.py)
CPU_PARAMETERS = 1_000_000
# forward and backward keep about this many copies of a run's images and features
ACTIVATION_COPIES = 6
WEIGHT_COPIES = 5  # weights, gradients, Adam's two moments, and one more while an update is made


@dataclass(frozen=True)
class RunGroup:
    """Runs that train in one go."""

    runs: tuple[ReadyRun, ...]  #: in the order of the stack
    stacked: bool = False  #: by the module for stacks; False trains one run on ordinary modules

    def only(self, runs: Sequence[ReadyRun]) -> RunGroup:
        """Return the group of those of its runs that are among ``runs``."""
        return replace(self, runs=tuple(run for run in self.runs if run in runs))

    def halves(self) -> tuple[RunGroup, RunGroup]:
        """Split the group in two, for a device whose memory it does not fit."""
        cut = len(self.runs) // 2
        return replace(self, runs=self.runs[:cut]), replace(self, runs=self.runs[cut:])

    @property
    def key(self) -> str:
        """12 hexadecimal digits: which runs, in which order."""
        return digest([run.hash for run in self.runs])


def plan_groups(runs: Sequence[ReadyRun], execution: Mapping[str, Any]) -> list[RunGroup]:
    """Divide all runs of a command into groups.

    Runs stack when they have the same algorithm, static hyperparameters, networks, number of
    training environments, images and schedule of evaluations.
    """
    mode = execution["mode"]
    if mode == "single":
        return [RunGroup((run,)) for run in runs]
    alone: list[RunGroup] = []
    stacks: dict[Any, list[ReadyRun]] = {}
    templates = _Templates(always=mode == "stacked")
    for run in runs:
        shape = None if run.study.why_not_stacked() else templates.shape(run)
        if shape is None:
            alone.append(RunGroup((run,)))
        else:
            stacks.setdefault(shape, []).append(run)
    groups = alone
    for stack in stacks.values():
        groups += _cut(templates.ordered(stack), templates.template(stack[0]), execution)
    return groups


@dataclass
class _Templates:
    """Modules that stand for all runs of one kind.

    Runs of one study with equally many training environments have networks of the same shapes.
    """

    always: bool  #: stack whatever can be stacked, whether it gains or not
    _templates: dict[tuple[int, int], SingleRun] = field(default_factory=dict)
    _shapes: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)
    #: networks that train as fast alone, whose modules may fill the memory
    _as_fast_alone: set[str] = field(default_factory=set)

    def template(self, run: ReadyRun) -> SingleRun:
        """Return a module of the shape of a run's; runs of one kind share it."""
        key = (id(run.study), len(run.fold.training))
        if key not in self._templates:
            self._templates[key] = run.study.module(run.fold)
        return self._templates[key]

    def shape(self, run: ReadyRun) -> tuple[Any, ...] | None:
        """Compute a key that is equal for runs that stack; return None if a stack gains nothing."""
        network = digest([run.spec.backbone, run.spec.network])
        if network in self._as_fast_alone:
            return None
        key = (id(run.study), len(run.fold.training))
        if key not in self._shapes:
            template = self.template(run)
            if not self.always and not _gains(run.study, template):
                self._as_fast_alone.add(network)
                return None
            self._shapes[key] = _shape(run, template, network)
        return self._shapes[key]

    def ordered(self, runs: Sequence[ReadyRun]) -> RunGroup:
        """Order runs into a stack, those with equal optimizer settings side by side."""

        def settings(run: ReadyRun) -> str:
            template = self.template(run)
            groups = template.algorithm.param_groups().values()
            return str([optimizer_key(template, group) for group in groups])

        return RunGroup(tuple(sorted(runs, key=settings)), stacked=True)


def _shape(run: ReadyRun, template: SingleRun, network: str) -> tuple[Any, ...]:
    """Collect all that must be equal for runs to be stacked."""
    algorithm = template.algorithm
    study = run.study
    values = algorithm.values
    static = sorted((key, str(values[key])) for key in values if key in algorithm.static)
    off = tuple(key for key in sorted(algorithm.off_at_zero) if values[key] == 0)
    named = template.networks.named_parameters()
    parameters = tuple((name, tuple(p.shape), p.requires_grad) for name, p in named)
    return (
        type(algorithm),
        network,
        tuple(static),
        off,
        parameters,
        template.rule,
        id(study.environments),
        len(run.fold.training),
        study.batch_size,
        digest({**run.spec.training, "seed_moves": ""}),  # runs of a stack have any seeds
        study.settings.device,
    )


def _cut(group: RunGroup, template: SingleRun, execution: Mapping[str, Any]) -> Iterator[RunGroup]:
    """Cut a stack into stacks that fit into memory."""
    fitting = runs_that_fit(group.runs[0], template, execution["memory_gb"])
    stack_size = min(execution["max_runs"] or len(group.runs), fitting)
    for first in range(0, len(group.runs), stack_size):
        part = group.runs[first : first + stack_size]
        if execution["mode"] == "auto" and len(group.runs) == 1:
            yield RunGroup(part)
        else:
            yield RunGroup(part, stacked=True)


def runs_that_fit(run: ReadyRun, template: SingleRun, memory_gb: float | None) -> int:
    """Count the runs of one shape that fit into memory, at least 1.

    Weights, images and activations count.

    Args:
        run: one of these runs.
        template: a module of their shape.
        memory_gb: gigabytes that they may take; None is half of what the device has.
    """
    study = run.study
    n_images = study.batch_size * study.settings.minibatches(len(run.fold.training))
    weights = 0
    for parameter in template.networks.parameters():
        copies = WEIGHT_COPIES if parameter.requires_grad else 1
        weights += copies * parameter.numel()
    image = study.environments.store.image
    channels, *sides = image
    layers = template.activations((channels + template.algorithm.extra_channels, *sides))
    images = n_images * (2 * math.prod(image) + ACTIVATION_COPIES * sum(layers))
    allowed = memory_gb * 1e9 if memory_gb else _memory(study) / 2
    return max(1, int(allowed // (study.dtype.itemsize * (weights + images))))


def _memory(study: ReadyStudy) -> float:
    """Return the bytes of the training device's memory, free or not.

    So groups are the same at every start.
    """
    if on_cuda(study):
        return float(torch.cuda.mem_get_info()[1])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def on_cuda(study: ReadyStudy) -> bool:
    """Return whether a study trains on a CUDA device."""
    return torch.cuda.is_available() and study.settings.device in ("auto", "gpu", "cuda")


def _gains(study: ReadyStudy, template: SingleRun) -> bool:
    """Return whether stacks of such runs were measured to be at least as fast as one run by one."""
    if on_cuda(study):
        return True
    running = list(_running(template))
    convolves = any(isinstance(layer, nn.Conv2d) for layer in running)
    sizes: dict[int, int] = {}  # a parameter of several modules counts once
    for layer in running:
        sizes.update((id(parameter), parameter.numel()) for parameter in layer.parameters())
    return not convolves and sum(sizes.values()) <= CPU_PARAMETERS


def _running(template: SingleRun) -> Iterator[nn.Module]:
    """Yield the modules that compute in a step.

    These are the featurizer's uncached stages and the trained networks, so not ARM's untrained
    context.
    """
    featurizer: Any = template.networks["featurizer"]
    for stage in featurizer.stages()[featurizer.first_stage :]:
        for part in stage.modules:
            yield from part.modules()
    trained: set[str] = set()
    for group in template.algorithm.param_groups().values():
        trained.update(group.networks)
    for name, network in template.networks.items():
        if name in trained and name != "featurizer":
            yield from network.modules()
