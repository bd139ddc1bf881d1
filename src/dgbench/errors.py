"""Exceptions whose message is one line that ends with the fix.

The command line prints the message alone and exits with 1; the traceback is shown only on demand.
"""

from __future__ import annotations

import errno
import re


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
    """Return whether a status mark's reason is a :class:`DivergedError`.

    The same command would diverge again.
    """
    return reason.startswith(_DIVERGED)


class DivergedError(DgbenchError):
    """The training loss of a run became NaN or infinite.

    Args:
        step: the step (0-based) whose loss was not finite.
        value: that loss.
    """

    def __init__(self, step: int, value: float) -> None:
        super().__init__(
            f"{_DIVERGED} {value} at step {step}; lower hparams.lr or the penalty weight of the "
            "algorithm"
        )
        self.step = step


class RunsFailedError(DgbenchError):
    """A study ended with at least one failed run; the others are complete."""


class JobsFailedError(DgbenchError):
    """A sweep ended with at least one failed job; the others are complete."""


class MeasureError(DgbenchError):
    """A measure that has no value for these errors, and why."""


#: what libraries say that raise no MemoryError: torch and its allocators, parsers, readers of
#: weights
_NO_MEMORY = re.compile(
    r"out\s?of\s?memory|can't allocate memory|cannot allocate memory|not enough memory"
    r"|bad_alloc|STATUS_ALLOC_FAILED"
    # what the loader of shared libraries says, while packages load
    r"|failed to map segment|cannot create shared object descriptor|static TLS"
    # what Python says if a library in C had no memory even for its error
    r"|error return without exception set",
    re.IGNORECASE,
)
LESS_MEMORY = (
    "train fewer runs at a time (execution.max_runs, or fewer jobs), lower hparams.batch_size or "
    "trainer.eval_batch_size, or choose smaller images, a smaller network or a larger machine"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error or one of its causes is that no memory was left."""
    return _lack_of_memory(error) is not None


def reason_of(error: BaseException, less_memory: str = LESS_MEMORY) -> str:
    """Describe an error in one line, for a status or a message.

    Args:
        error: what went wrong.
        less_memory: what to do if memory ran out.
    """
    lack = _lack_of_memory(error)
    if lack is not None:
        return f"out of memory{_asked_for(lack)}; {less_memory}"
    return str(error) if isinstance(error, DgbenchError) else one_line(error, None)


def _asked_for(lack: BaseException) -> str:
    """Describe how much memory was asked for, or return no text if the error does not tell."""
    asked = re.search(r"allocate (?:about )?([\d.]+) ?(\w+)", str(lack))
    if not asked:
        return ""
    size = f"{asked[1]} {asked[2]}"
    if asked[2] == "bytes":
        size = f"{int(asked[1]) / 1e6:,.0f} MB"
    return f" ({size} more were asked for)"


def one_line(error: BaseException, limit: int | None = 160) -> str:
    """Format an error as ``ValueError: what it says``, cut after ``limit`` characters.

    A limit of None cuts nothing.

    A control character, which libraries may repeat from a damaged file, is written as its code.
    """
    text = " ".join(f"{type(error).__name__}: {error}".split())[:limit]
    return "".join(map(_printable, text))


def _printable(letter: str) -> str:
    return letter if letter.isprintable() else ascii(letter)[1:-1]


def _lack_of_memory(error: BaseException | None) -> BaseException | None:
    """Find the lack of memory in an error or its causes, or return None."""
    while error is not None and not _is_lack_of_memory(error):
        error = error.__cause__
    return error


def _is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an error itself is a lack of memory.

    The text of a dgbench error does not count.
    """
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if isinstance(error, DgbenchError):
        return False
    return _NO_MEMORY.search(f"{type(error).__name__}: {error}") is not None
