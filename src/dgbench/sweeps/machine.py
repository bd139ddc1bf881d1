"""What this machine, or this process's share of it, has to train on; found out without importing torch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # "QUOTA PERIOD" or "max PERIOD", where a container limits its cores


def cores() -> int:
    """CPU cores that this process may use at a time: its affinity mask, and the limit of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CGROUP_LIMIT.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroup, or "max"
        return allowed


def gpus() -> list[str]:
    """Names of the visible CUDA devices as ``CUDA_VISIBLE_DEVICES`` takes them; none without NVIDIA's driver."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.split() if listed.returncode == 0 else []
