"""Which members train together."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from dgbench.algorithms.base import Algorithm
from dgbench.callbacks.status import read_status
from dgbench.cli.study import Member, Study
from dgbench.errors import ConfigError
from dgbench.training.stacked import optimizer_key

ACTIVATION_COPIES = 6  # forward and backward keep about this many copies of a member's images and features
CPU_PARAMETERS = 1_000_000  # on a CPU, larger members gain nothing from being stacked (benchmarks/stacked.py)


@dataclass
class Group:
    """Members that train in one go.

    Args:
        members: with the study of each.
        modules: their algorithms, in the same order, where the group is a stack.
        stacked: one mapped training run, or members one by one.
    """

    members: list[tuple[Study, Member]]
    modules: list[Algorithm] = field(default_factory=list)
    stacked: bool = False

    def halves(self) -> tuple[Group, Group]:
        """The group in two, for a device whose memory it does not fit."""
        cut = len(self.members) // 2
        return (
            Group(self.members[:cut], self.modules[:cut], self.stacked),
            Group(self.members[cut:], self.modules[cut:], self.stacked),
        )


def plan_groups(studies: Sequence[Study], execution: DictConfig) -> list[Group]:
    """Every member that is not done, in groups.

    Members stack when they have the same algorithm, static hyperparameters, networks, number of training environments,
    images, schedule of evaluations, and stand at the same step.

    Raises:
        ConfigError: ``execution.mode=stacked`` and a member cannot be stacked; the message says why.
    """
    if execution.mode not in ("auto", "single", "stacked"):
        raise ConfigError(f"execution.mode={execution.mode} is unknown; choose auto, single or stacked")
    if execution.max_members is not None and execution.max_members < 1:
        raise ConfigError(f"execution.max_members={execution.max_members} is not at least 1; give a number or null")
    pending = [(s, m) for s in studies for m in s.members if read_status(m.folder) != "DONE"]
    if execution.mode == "single":
        return [Group([pair]) for pair in pending]
    groups: list[Group] = []
    buckets: dict[Any, Group] = {}
    for study, member in pending:
        reason = study.why_not_stacked()
        if reason and execution.mode == "stacked":
            raise ConfigError(f"{study.folder.name} cannot be stacked: {reason}; use execution=single")
        if reason:
            groups.append(Group([(study, member)]))
            continue
        module = _resumed(study, member)
        if module is None:  # a broken checkpoint: alone, it says so and harms nobody
            groups.append(Group([(study, member)]))
            continue
        bucket = buckets.setdefault(_shape(study, member, module), Group([], [], stacked=True))
        bucket.members.append((study, member))
        bucket.modules.append(module)
    for bucket in buckets.values():
        groups.extend(_cut(_ordered(bucket), execution))
    return groups


def _resumed(study: Study, member: Member) -> Algorithm | None:
    """A member's algorithm at its last checkpoint; None where that cannot be read."""
    module = study.module(member.fold)
    if not member.checkpoint.exists():
        return module
    try:
        module.load_state_dict(torch.load(member.checkpoint, map_location="cpu", weights_only=True)["state_dict"])
    except Exception:  # torch raises whatever its unpickler stumbles over
        return None
    return module


def _shape(study: Study, member: Member, module: Algorithm) -> tuple[Any, ...]:
    settings = study.trainer
    return (
        type(module),
        tuple(sorted((key, str(value)) for key, value in module.values.items() if key in module.static)),
        tuple(key for key in sorted(module.off_at_zero) if module.values[key] == 0),
        tuple((name, tuple(p.shape)) for name, p in module.networks.params().items()),
        id(study.environments),
        len(member.fold.training),
        int(module.steps_done),
        (settings.steps, settings.eval_every, settings.batch_size, settings.eval_batch_size),
        (tuple(settings.eval_subsets), settings.device, settings.precision),
    )


def _ordered(group: Group) -> Group:
    """Members with equal optimizer settings side by side."""
    players = list(group.modules[0].players().values())
    order = sorted(
        range(len(group.members)), key=lambda i: str([optimizer_key(group.modules[i], player) for player in players])
    )
    return Group([group.members[i] for i in order], [group.modules[i] for i in order], stacked=True)


def _cut(group: Group, execution: DictConfig) -> list[Group]:
    most = min(execution.max_members or len(group.members), _fitting(group, execution.memory_gb))
    whole = execution.mode == "stacked" or _pays(group)
    if not whole:
        return [Group([pair]) for pair in group.members]
    return [
        Group(group.members[i : i + most], group.modules[i : i + most], stacked=True)
        for i in range(0, len(group.members), most)
    ]


def _pays(group: Group) -> bool:
    """Whether a stack was measured to be at least as fast as its members one by one."""
    if len(group.members) == 1:
        return False
    module = group.modules[0]
    study = group.members[0][0]
    if torch.cuda.is_available() and study.trainer.device in ("auto", "gpu", "cuda"):
        return True
    convolves = any(isinstance(layer, nn.Conv2d) for layer in module.networks.modules())
    return not convolves and sum(p.numel() for p in module.networks.parameters()) <= CPU_PARAMETERS


def _fitting(group: Group, memory_gb: float | None) -> int:
    """How many members fit into memory: weights, gradients and Adam's moments; images and what the layers keep."""
    study, member = group.members[0]
    module = group.modules[0]
    n_images = study.trainer.batch_size * len(member.fold.training)
    weights = 5 * sum(p.numel() for p in module.networks.parameters())
    images = n_images * (2 * math.prod(study.environments.image) + ACTIVATION_COPIES * _activations(module))
    return max(1, int((memory_gb * 1e9 if memory_gb else _available() / 2) // (4 * (weights + images))))


def _activations(module: Algorithm) -> int:
    """Numbers that the layers of the featurizer put out for one image."""
    counted: list[int] = []
    featurizer = module.networks["featurizer"]
    leaves = [layer for layer in featurizer.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(lambda _, __, out: counted.append(out.numel())) for layer in leaves]
    channels, *sides = module.sizes.image
    with torch.no_grad():
        featurizer(torch.zeros(1, channels + module.extra_channels, *sides))
    for hook in hooks:
        hook.remove()
    return sum(counted)


def _available() -> float:
    """Bytes of the training device."""
    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info()[0])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
