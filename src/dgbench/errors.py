"""Exceptions whose message is one line that ends with the fix.

The command line prints the message alone and exits with 1; the traceback is shown only when asked for.
"""

from __future__ import annotations


class DgbenchError(Exception):
    """Base of every error that a user can correct."""


class ConfigError(DgbenchError):
    """A key, a choice or a value of the configuration that cannot work."""


class DataError(DgbenchError):
    """Images or labels that are missing, cut short or corrupt."""


class WeightsError(DgbenchError):
    """Initial weights that cannot be had, cannot be read, or do not fit the network."""


class RecordError(DgbenchError):
    """Result rows, status marks or checkpoints that cannot be read or written."""


_DIVERGED = "loss became"


def is_divergence(reason: str) -> bool:
    """Whether a status mark's reason is that of :class:`DivergedError`: the same command would end there again."""
    return reason.startswith(_DIVERGED)


class DivergedError(DgbenchError):
    """The training loss of a run became NaN or infinite.

    Args:
        step: the step (0-based) whose loss was not finite.
        value: that loss.
    """

    def __init__(self, step: int, value: float) -> None:
        super().__init__(f"{_DIVERGED} {value} at step {step}; lower hparams.lr or the penalty weight of the algorithm")
        self.step = step


class RunsFailedError(DgbenchError):
    """A study ended with at least one failed run; the others are complete."""


class JobsFailedError(DgbenchError):
    """A sweep ended with at least one failed job; the others are complete."""


class MeasureError(DgbenchError):
    """A measure that has no value for these errors, and why."""
