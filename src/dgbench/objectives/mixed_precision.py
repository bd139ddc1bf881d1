"""What algorithms keep in float32 under ``trainer.precision=bf16-mixed`` and ``16-mixed``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Concatenate, ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")


def full_precision(x: Tensor) -> Tensor:
    """Half precision to float32; other tensors as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unmixed(device: torch.device) -> AbstractContextManager[object]:
    """No half precision inside: products are computed in the precision of their factors."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


def in_full_precision(function: Callable[Concatenate[Tensor, P], Tensor]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """A function of features, computed in float32 where they come in half precision."""

    @wraps(function)
    def wrapped(z: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        with unmixed(z.device):
            return function(full_precision(z), *args, **kwargs)

    return wrapped
