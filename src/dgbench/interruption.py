"""A request to end the process, such as Ctrl-C, is kept until the process has ended.

The handler of a signal raises its exception wherever the process happens to be, and other packages
may lose it there: an error inside their ``finally`` takes its place, or they turn it into an error
of their own. A run would then count as failed, and the process would go on with the next. Whoever
catches every error of a run asks here first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

#: signals that ask a process to end -> what a status calls them
STOPS: dict[int, str] = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGUSR1: "SIGUSR1",
}

_requests: list[BaseException] = []
_asking: list[str] = []


def end_with(request: BaseException) -> NoReturn:
    """Raise an exception that ends the process, and keep it.

    Args:
        request: a ``KeyboardInterrupt``, or the ``SystemExit`` of a job that a cluster queues
            again.
    """
    _requests[:] = [request]
    raise request


def interrupt(number: int, frame: Any) -> NoReturn:
    """Handle SIGINT and SIGTERM, as the argument of ``signal.signal``.

    Raises:
        KeyboardInterrupt: always, with what a status calls the signal.
    """
    end_with(KeyboardInterrupt(name_of(number)))


def name_of(number: int) -> str:
    """Return what a status calls a signal, or who asked for it by :func:`stop_soon`."""
    if number == signal.SIGINT and _asking:
        return _asking[-1]
    return STOPS[signal.Signals(number)]


def stop_soon(by: str) -> None:
    """Ask this process to end as Ctrl-C does, at its next checkpoint.

    Args:
        by: who asks for it, for the status of a run.
    """
    _asking[:] = [by]
    os.kill(os.getpid(), signal.SIGINT)


def stopped_by(stop: KeyboardInterrupt, step: int | None = None) -> str:
    """Describe what ended a run, and at which step, in no words if that is not known.

    Args:
        stop: that ended it.
        step: of its last checkpoint; None for what has no steps.
    """
    name = "".join(map(str, stop.args[:1]))
    if not name:
        return ""
    return f"stopped by {name}" + ("" if step is None else f" at step {step}")


def raise_if_ending() -> None:
    """Raise the request again, if there was one."""
    for request in _requests:
        raise request


@contextmanager
def request_first() -> Iterator[None]:
    """Surround code whose every error is caught further out.

    A request is raised in place of its error.
    """
    try:
        yield
    except Exception:
        raise_if_ending()
        raise


def forget() -> None:
    """Forget earlier requests, when a process begins another command."""
    _requests.clear()
    _asking.clear()
