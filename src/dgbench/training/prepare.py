"""What a process does once before it trains."""

from __future__ import annotations

import ctypes
import logging
import warnings

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt(3)
MB = 2**20


def prepare_process() -> None:
    """Quiet libraries, and memory that stays ours."""
    _quiet_lightning()
    _keep_freed_memory()


def _quiet_lightning() -> None:
    """Lightning speaks up only to warn, and not of what is meant: no loader workers, no logger."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*`srun` command is available.*")  # runs are jobs of their own
    warnings.filterwarnings("ignore", message=".*across ranks is zero.*")  # processes take turns at batches
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")  # what is logged is the same in every process
    warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")  # frozen parts
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")  # Lightning 2.6 with torch >= 2.15


def _keep_freed_memory() -> None:
    """A step on a CPU gets the pages of the step before, instead of new ones that the kernel has to clear.

    By default glibc gives all but 64 MB back to the kernel after each step, which took half of the time of ARM's steps
    on 8 x 8 images. Greater limits cost more memory, since freed blocks of other sizes lie between. Other C libraries
    keep their ways.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_TRIM_THRESHOLD, 512 * MB)
        mallopt(M_MMAP_THRESHOLD, 64 * MB)
