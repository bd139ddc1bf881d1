"""Judge whether this machine can train with a device and a precision, without Lightning."""

from __future__ import annotations

import torch

from dgbench.errors import ConfigError
from dgbench.plan.settings import TrainerSettings

HALF = "16-mixed"  #: the one precision that a CPU has not


def why_not_here(settings: TrainerSettings) -> str:
    """Explain why this machine cannot train with device and precision, or return "" if it can.

    Another machine may.

    Raises:
        ConfigError: no machine can.
    """
    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    is_here = {
        "auto": True,
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "gpu": has_gpu,
    }
    if not is_here[settings.device]:
        return cannot_train(settings, "no such device is here")
    if settings.precision != HALF or (has_gpu and settings.device != "cpu"):
        return ""
    reason = cannot_train(settings, "fp16 is not supported on CPU")
    if settings.device == "cpu":
        raise ConfigError(reason)
    return reason


def cannot_train(settings: TrainerSettings, reason: str) -> str:
    """Explain in one line that a machine cannot train with device and precision."""
    return (
        f"trainer.device={settings.device} cannot train here with "
        f"trainer.precision={settings.precision} ({reason}); set trainer.device=auto and "
        "trainer.precision=32-true, or start it where it can"
    )
