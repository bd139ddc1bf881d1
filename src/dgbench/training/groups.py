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
from dgbench.training.study import Run, Study

# on a CPU, larger networks gain nothing from being stacked (benchmarks/stacked.py)
CPU_PARAMETERS = 1_000_000
# forward and backward keep about this many copies of a run's images and features
ACTIVATION_COPIES = 6
WEIGHT_COPIES = 5  # weights, gradients, Adam's two moments, and one more while an update is made


@dataclass(frozen=True)
class Group:
    """Runs that train in one go."""

    runs: tuple[Run, ...]  #: in the order of the stack
    stacked: bool = False  #: by the module for stacks; False trains one run on ordinary modules

    def only(self, runs: Sequence[Run]) -> Group:
        """Return the group of those of its runs that are among ``runs``."""
        return replace(self, runs=tuple(run for run in self.runs if run in runs))

    def halves(self) -> tuple[Group, Group]:
        """Split the group in two, for a device whose memory it does not fit."""
        cut = len(self.runs) // 2
        return replace(self, runs=self.runs[:cut]), replace(self, runs=self.runs[cut:])

    @property
    def key(self) -> str:
        """12 hexadecimal digits: which runs, in which order."""
        return digest([run.hash for run in self.runs])


def plan_groups(runs: Sequence[Run], execution: Mapping[str, Any]) -> list[Group]:
    """Divide all runs of a command into groups.

    Runs stack when they have the same algorithm, static hyperparameters, networks, number of
    training environments, images and schedule of evaluations.
    """
    mode = execution["mode"]
    if mode == "single":
        return [Group((run,)) for run in runs]
    alone: list[Group] = []
    stacks: dict[Any, list[Run]] = {}
    kinds = _Kinds(always=mode == "stacked")
    for run in runs:
        shape = None if run.study.why_not_stacked() else kinds.shape(run)
        if shape is None:
            alone.append(Group((run,)))
        else:
            stacks.setdefault(shape, []).append(run)
    parts = (
        part
        for stack in stacks.values()
        for part in _cut(kinds.ordered(stack), kinds.template(stack[0]), execution)
    )
    return [*alone, *parts]


@dataclass
class _Kinds:
    """Templates: runs of one study with equally many training environments have networks of the
    same shapes.
    """

    always: bool  #: stack whatever can be stacked, whether it gains or not
    _templates: dict[tuple[int, int], SingleRun] = field(default_factory=dict)
    _shapes: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)
    #: networks as fast alone: their modules may fill the memory
    _gainless: set[str] = field(default_factory=set)

    def template(self, run: Run) -> SingleRun:
        """Return a module of the shape of a run's; runs of one kind share it."""
        key = (id(run.study), len(run.fold.training))
        if key not in self._templates:
            self._templates[key] = run.study.module(run.fold)
        return self._templates[key]

    def shape(self, run: Run) -> tuple[Any, ...] | None:
        """Compute a key that is equal for runs that can be stacked; None where a stack gains
        nothing.
        """
        network = digest([run.spec.backbone, run.spec.network])
        if network in self._gainless:
            return None
        key = (id(run.study), len(run.fold.training))
        if key not in self._shapes:
            template = self.template(run)
            if not self.always and not _gains(run.study, template):
                self._gainless.add(network)
                return None
            self._shapes[key] = _shape(run, template, network)
        return self._shapes[key]

    def ordered(self, runs: Sequence[Run]) -> Group:
        """Order runs into a stack, those with equal optimizer settings side by side."""

        def settings(run: Run) -> str:
            template = self.template(run)
            return str(
                [
                    optimizer_key(template, group)
                    for group in template.algorithm.param_groups().values()
                ]
            )

        return Group(tuple(sorted(runs, key=settings)), stacked=True)


def _shape(run: Run, template: SingleRun, network: str) -> tuple[Any, ...]:
    algorithm, study = template.algorithm, run.study
    return (
        type(algorithm),
        network,
        tuple(
            sorted(
                (key, str(value))
                for key, value in algorithm.values.items()
                if key in algorithm.static
            )
        ),
        tuple(key for key in sorted(algorithm.off_at_zero) if algorithm.values[key] == 0),
        tuple(
            (name, tuple(p.shape), p.requires_grad)
            for name, p in template.networks.named_parameters()
        ),
        template.rule,
        id(study.environments),
        len(run.fold.training),
        study.batch_size,
        digest({**run.spec.training, "seed_moves": ""}),  # runs of a stack have any seeds
        study.settings.device,
    )


def _cut(group: Group, template: SingleRun, execution: Mapping[str, Any]) -> Iterator[Group]:
    fitting = runs_that_fit(group.runs[0], template, execution["memory_gb"])
    stack_size = min(execution["max_runs"] or len(group.runs), fitting)
    for first in range(0, len(group.runs), stack_size):
        part = group.runs[first : first + stack_size]
        if execution["mode"] == "auto" and len(group.runs) == 1:
            yield Group(part)
        else:
            yield Group(part, stacked=True)


def runs_that_fit(run: Run, template: SingleRun, memory_gb: float | None) -> int:
    """Count the runs of one shape whose weights, images and activations fit into memory; at least
    1.

    They may take ``memory_gb`` gigabytes; None is half of what the device has. ``template`` is a
    module of their shape.
    """
    study = run.study
    n_images = study.batch_size * study.settings.minibatches(len(run.fold.training))
    weights = sum(
        (WEIGHT_COPIES if p.requires_grad else 1) * p.numel()
        for p in template.networks.parameters()
    )
    channels, *sides = study.environments.store.image
    layers = template.activations((channels + template.algorithm.extra_channels, *sides))
    images = n_images * (
        2 * math.prod(study.environments.store.image) + ACTIVATION_COPIES * sum(layers)
    )
    allowed = memory_gb * 1e9 if memory_gb else _memory(study) / 2
    return max(1, int(allowed // (study.dtype.itemsize * (weights + images))))


def _memory(study: Study) -> float:
    """Return the bytes of the training device's memory, free or not, so that groups are the same at
    every start.
    """
    if on_cuda(study):
        return float(torch.cuda.mem_get_info()[1])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def on_cuda(study: Study) -> bool:
    """Return whether a study trains on a CUDA device."""
    return torch.cuda.is_available() and study.settings.device in ("auto", "gpu", "cuda")


def _gains(study: Study, template: SingleRun) -> bool:
    """Return whether stacks of such runs have been measured to be at least as fast as the runs one
    by one.
    """
    if on_cuda(study):
        return True
    running = list(_running(template))
    convolves = any(isinstance(layer, nn.Conv2d) for layer in running)
    sizes = {id(p): p.numel() for layer in running for p in layer.parameters()}
    return not convolves and sum(sizes.values()) <= CPU_PARAMETERS


def _running(template: SingleRun) -> Iterator[nn.Module]:
    """Yield the modules of the featurizer's uncached stages and of trained networks, so not ARM's
    untrained context.
    """
    featurizer: Any = template.networks["featurizer"]
    stages = [
        part for stage in featurizer.stages()[featurizer.first_stage :] for part in stage.modules
    ]
    trained = {
        name for group in template.algorithm.param_groups().values() for name in group.networks
    }
    heads = [
        network for name, network in template.networks.items() if name in trained - {"featurizer"}
    ]
    for part in [*stages, *heads]:
        yield from part.modules()
