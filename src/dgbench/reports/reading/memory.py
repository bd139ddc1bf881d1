"""Give memory back to the operating system between the phases of a large report."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def return_free_memory() -> None:
    """Return to the operating system what was freed; do nothing where the C library cannot.

    The allocator of glibc keeps freed memory below the last block that is in use: a tenth of the
    peak of a report of 20,000 runs.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
