"""Copies of the tensors of networks, in an algorithm's state too."""

from __future__ import annotations

from torch import Tensor

from dgbench.modules import AnyNetworks
from dgbench.tensors import Tensors


def copied(tensors: Tensors) -> dict[str, Tensor]:
    """Copies, which something may write to."""
    return {key: value.clone() for key, value in tensors.items()}


def kept(nets: AnyNetworks, name: str) -> dict[str, Tensor]:
    """Parameters that train and running statistics of a network as entries of a state, ``kept/network/tensor``."""
    return {_entry(key): value.detach().clone() for key, value in _tensors(nets, name).items()}


def with_kept(nets: AnyNetworks, name: str, state: Tensors) -> AnyNetworks:
    """The networks with what :func:`kept` put into the state in the place of the network's own tensors."""
    return nets.bind({key: state[_entry(key)] for key in _tensors(nets, name)})


def _tensors(nets: AnyNetworks, name: str) -> dict[str, Tensor]:
    statistics = {key: value for key, value in nets.statistics().items() if key.startswith(f"{name}.")}
    return {**nets.params(name), **{key: value for key, value in statistics.items() if value.is_floating_point()}}


def _entry(key: str) -> str:
    return "kept/" + key.replace(".", "/")  # names of buffers have no dots


def keep_statistics(nets: AnyNetworks, moved: Tensors) -> None:
    """Give the networks the running statistics that became of copies of theirs."""
    for key, value in nets.statistics().items():
        value.copy_(moved[key].detach())
