"""Keep the memory of a large report low."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_MMAP_THRESHOLD = -3  # of glibc's mallopt: from how many bytes on a block is mapped by itself
_LARGE = 2**20


def map_large_arrays() -> None:
    """Give every array of a megabyte or more back to the operating system once it is freed.

    The allocator of glibc raises its threshold with what is freed, up to 32 MB, and keeps freed
    blocks below it: of 20,000 runs that is a quarter of the peak. Does nothing elsewhere.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
