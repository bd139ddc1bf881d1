"""Commands under a limit of memory (``ulimit -v``): what ends inside a library is said in one line.

Libraries in C++ that get no memory abort the process, where nothing in Python can say why. So a
command whose memory is limited runs in a child process, and its parent, which has loaded nothing
large, says what the child could not.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

LIMITS = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
#: what ends a process that handles a lack of memory wrongly or not at all
_ENDS = (
    signal.SIGABRT,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
)
_LOADER = 127  #: status with which glibc's loader ends a process whose libraries get no memory
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_M_ARENA_MAX = -8  # of mallopt(3)
_LEAST = 2**28  #: bytes that NumPy and SciPy take, without which no command does anything


def memory_limit() -> str:
    """Describe the limit of this process's memory, as ``2,000 MB (ulimit -v)``.

    The text is empty if there is no limit.
    """
    limits = {name: resource.getrlimit(kind)[0] for name, kind in LIMITS.items()}
    finite = {name: limit for name, limit in limits.items() if limit != resource.RLIM_INFINITY}
    if not finite:
        return ""
    name = min(finite, key=finite.__getitem__)
    return f"{finite[name] / 1e6:,.0f} MB ({name})"


def _without_lack_of_memory(ignored: sys.UnraisableHookArgs) -> None:
    """Leave out what libraries fail to do at the end of a process: why it ends was said."""
    if not isinstance(ignored.exc_value, MemoryError):
        sys.__unraisablehook__(ignored)


def _take_less() -> None:
    """Keep libraries from reserving memory ahead, which counts against a limit as if it were used,
    and load the one that waits forever where there is none.

    Raises:
        OSError: there is too little memory even for that.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)  # instead of 64 MB for every thread
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # others reserve 1 GB at once
    mmap.mmap(-1, _LEAST).close()
    with suppress(ImportError):  # whoever needs it says so
        importlib.import_module("scipy.special")  # with OpenBLAS


def watch(say: Callable[[str], None], advice: str) -> None:
    """Continue in a child process if memory is limited.

    Its parent ends as it does, and says what killed it.

    Args:
        say: prints a line.
        advice: what the user can do besides raising the limit.
    """
    limit = memory_limit()
    if not limit:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        with suppress(OSError, AttributeError):
            # so that nothing stays behind a parent that was killed
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        sys.unraisablehook = _without_lack_of_memory
        try:
            _take_less()
        except OSError:
            say(f"out of memory: NumPy and SciPy do not fit into {limit}; {advice}")
            sys.exit(1)
        return
    for number in _PASSED_ON:
        signal.signal(number, lambda number, frame: os.kill(child, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if -code in _ENDS or code == _LOADER:
        end = "status 127" if code == _LOADER else signal.Signals(-code).name
        say(f"out of memory: a library gave up ({end}) under the limit of {limit}; {advice}")
        code = 1
    sys.stderr.flush()
    os._exit(code if code >= 0 else 128 - code)  # the child has done all that is done at an end
