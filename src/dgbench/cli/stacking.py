"""Which members train together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from dgbench.algorithms.base import Algorithm
from dgbench.cli.identity import digest
from dgbench.cli.memory import members_that_train
from dgbench.cli.study import Member, Study
from dgbench.errors import ConfigError
from dgbench.training.replay import Recorder, cuda_graph
from dgbench.training.stacked import optimizer_key

CPU_PARAMETERS = 1_000_000  # on a CPU, larger members gain nothing from being stacked (benchmarks/stacked.py)


@dataclass
class Group:
    """Members that train in one go.

    Args:
        members: with the study of each.
        modules: their algorithms, in the same order, where the group is a stack.
        stacked: one mapped training run, or members one by one.
        record: how the step of a stack is recorded, if it is.
    """

    members: list[tuple[Study, Member]]
    modules: list[Algorithm] = field(default_factory=list)
    stacked: bool = False
    record: Recorder | None = None

    def only(self, positions: Sequence[int]) -> Group:
        """The group of the members at these positions."""
        modules = [self.modules[i] for i in positions] if self.modules else []
        return replace(self, members=[self.members[i] for i in positions], modules=modules)

    def halves(self) -> tuple[Group, Group]:
        """The group in two, each from its last checkpoints, for a device whose memory it does not fit."""
        cut = len(self.members) // 2
        first, second = (
            replace(self, members=part, modules=[_resumed(*pair) or pair[0].module(pair[1].fold) for pair in part])
            for part in (self.members[:cut], self.members[cut:])
        )
        return first, second


def plan_groups(members: Sequence[tuple[Study, Member]], execution: DictConfig) -> list[Group]:
    """Members that are to be trained, each with its study, in groups.

    Members stack when they have the same algorithm, static hyperparameters, networks, number of training environments,
    images, schedule of evaluations, and stand at the same step.

    Raises:
        ConfigError: ``execution.mode=stacked`` and a member cannot be stacked; the message says why.
    """
    if execution.mode not in ("auto", "single", "stacked"):
        raise ConfigError(f"execution.mode={execution.mode} is unknown; choose auto, single or stacked")
    if execution.max_members is not None and execution.max_members < 1:
        raise ConfigError(f"execution.max_members={execution.max_members} is not at least 1; give a number or null")
    if execution.compile not in ("auto", False):
        raise ConfigError(f"execution.compile={execution.compile} is unknown; choose auto or false")
    if execution.mode == "single":
        return [Group([pair]) for pair in members]
    groups: list[Group] = []
    buckets: dict[Any, Group] = {}
    gainless: set[str] = set()  # networks as fast alone: their members are not built here, which may fill the memory
    for study, member in members:
        reason = study.why_not_stacked()
        if reason and execution.mode == "stacked":
            raise ConfigError(f"{study.folder.name} cannot be stacked: {reason}; use execution=single")
        if reason:
            groups.append(Group([(study, member)]))
            continue
        network = _network(study)
        module = None if network in gainless else _resumed(study, member)
        if module is not None and execution.mode == "auto" and not _gains(study, module):
            gainless.add(network)
            module = None
        if module is None:  # or a broken checkpoint: alone, it says so and harms nobody
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


def _network(study: Study) -> str:
    """Equal for studies with the same featurizer: architecture, BatchNorm policy and what else its keys say."""
    return digest(OmegaConf.to_container(study.config.backbone, resolve=True))


def _shape(study: Study, member: Member, module: Algorithm) -> tuple[Any, ...]:
    settings = study.trainer
    return (
        type(module),
        _network(study),
        tuple(sorted((key, str(value)) for key, value in module.values.items() if key in module.static)),
        tuple(key for key in sorted(module.off_at_zero) if module.values[key] == 0),
        tuple((name, tuple(p.shape), p.requires_grad) for name, p in module.networks.named_parameters()),
        module.rule,
        id(study.environments),
        len(member.fold.training),
        int(module.steps_done),
        (settings.steps, settings.eval_every, settings.eval_test, settings.batch_size, settings.eval_batch_size),
        (tuple(settings.eval_subsets), settings.device, settings.precision, settings.matmul),
    )


def _ordered(group: Group) -> Group:
    """Members with equal optimizer settings side by side."""
    players = list(group.modules[0].players().values())
    order = sorted(
        range(len(group.members)), key=lambda i: str([optimizer_key(group.modules[i], player) for player in players])
    )
    return Group([group.members[i] for i in order], [group.modules[i] for i in order], stacked=True)


def _cut(group: Group, execution: DictConfig) -> list[Group]:
    most = min(execution.max_members or len(group.members), members_that_train(group, execution.memory_gb))
    if execution.mode == "auto" and len(group.members) == 1:
        return [Group(group.members)]
    record = cuda_graph if execution.compile and _on_cuda(group.members[0][0]) else None
    whole, n = replace(group, record=record), len(group.members)
    return [whole.only(range(i, min(i + most, n))) for i in range(0, n, most)]


def _on_cuda(study: Study) -> bool:
    return torch.cuda.is_available() and study.trainer.device in ("auto", "gpu", "cuda")


def _gains(study: Study, module: Algorithm) -> bool:
    """Whether a stack of such members was measured to be at least as fast as they are one by one."""
    if _on_cuda(study):
        return True
    running = list(_running(module))
    convolves = any(isinstance(layer, nn.Conv2d) for layer in running)
    own = {id(p): p.numel() for layer in running for p in layer.parameters()}
    return not convolves and sum(own.values()) <= CPU_PARAMETERS


def _running(module: Algorithm) -> Iterator[nn.Module]:
    """The modules that learn in a step; cached features stand for the others, and ARM's context runs by member."""
    featurizer: Any = module.networks["featurizer"]
    stages = [part for stage in featurizer.stages()[featurizer.first_stage :] for part in stage.modules]
    trained = {name for player in module.players().values() for name in player.networks}
    heads = [network for name, network in module.networks.items() if name in trained - {"featurizer"}]
    for part in [*stages, *heads]:
        yield from part.modules()
