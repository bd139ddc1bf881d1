"""What algorithms keep in float32 under ``trainer.precision=bf16-mixed`` and ``16-mixed``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(x: Tensor) -> Tensor:
    """Half precision to float32; other tensors as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unmixed(device: torch.device) -> AbstractContextManager[object]:
    """No half precision inside: products are computed in the precision of their factors."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()
