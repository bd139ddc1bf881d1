"""Keep a request to end the process, such as Ctrl-C, until the process has ended.

The handler of a signal raises its exception wherever the process happens to be, and other packages may lose it there:
an error inside their ``finally`` takes its place, or they turn it into an error of their own. A run would then count as
failed, and the process would go on with the next. Whoever catches every error of a run asks here first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_requests: list[BaseException] = []


def end_with(request: BaseException) -> NoReturn:
    """Raise an exception that ends the process, and keep it.

    Args:
        request: a ``KeyboardInterrupt``, or the ``SystemExit`` of a job that a cluster queues again.
    """
    _requests[:] = [request]
    raise request


def interrupt(number: int, frame: Any) -> NoReturn:
    """Handle SIGINT and SIGTERM, as the argument of ``signal.signal``.

    Raises:
        KeyboardInterrupt: always.
    """
    end_with(KeyboardInterrupt())


def raise_if_ending() -> None:
    """Raise the request again, if there was one."""
    for request in _requests:
        raise request


@contextmanager
def request_first() -> Iterator[None]:
    """Surround code whose every error is caught further out: a request is raised in place of its error."""
    try:
        yield
    except Exception:
        raise_if_ending()
        raise


def forget() -> None:
    """Forget requests of before, where a process begins another command."""
    _requests.clear()
