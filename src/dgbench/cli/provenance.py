"""``identity.json`` in every run folder: of what code, packages, machine and data a run is made.

What decides the results stands at the top; every start of the run, first or resumed, adds a session.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from hydra.core.hydra_config import HydraConfig

from dgbench import __version__
from dgbench.cli.identity import code_version, digest, science
from dgbench.cli.study import Member, Study
from dgbench.data.environments import Environments
from dgbench.records import IDENTITY_FILE, write_whole

PACKAGES = (
    "torch", "torchvision", "pytorch-lightning", "hydra-core", "omegaconf", "numpy", "scipy", "scikit-learn", "timm",
    "pillow",
)  # fmt: skip
SAMPLED = 32  # images of each subset that the fingerprint looks at
_FINGERPRINTS: WeakKeyDictionary[Environments, str] = WeakKeyDictionary()


def write_identity(study: Study, member: Member, *, resumed: bool, together: int) -> None:
    """Write what a run is made of; sessions of earlier starts are kept.

    Args:
        study: of the member.
        member: that begins or goes on.
        resumed: whether it goes on from a checkpoint.
        together: members that train as one stack, 1 for one alone.
    """
    file = member.folder / IDENTITY_FILE
    known = study.environments.identity()
    session = {**_machine(), "device": study.trainer.device, "resumed": resumed, "stack": together}
    document = {
        "run": member.identity.run,
        "study": study.folder.name,
        "science": digest(science(study.config)),
        "beside": study.beside(),
        "fold": member.fold.key(),
        "seeds": {
            "seed": study.seed,
            "data_seed": known["data_seed"],
            "split_seed": known["split_seed"],
            "draw": member.identity.draw,
            "trial": member.identity.trial,
            "space": member.identity.space,
        },
        "dataset": {**known, "fingerprint": fingerprint(study.source)},
        "sessions": [*_sessions(file), session],
    }
    write_whole(file, json.dumps(document, indent=1) + "\n")


def fingerprint(environments: Environments) -> str:
    """12 digits that change with the images dealt to environments, their labels, spurious features and splits.

    All positions are hashed, and the pixels and labels of the first images of each subset.
    """
    if environments not in _FINGERPRINTS:
        _FINGERPRINTS[environments] = _fingerprint(environments)
    return _FINGERPRINTS[environments]


def _fingerprint(environments: Environments) -> str:
    content = hashlib.sha256(json.dumps(environments.identity(), sort_keys=True, default=str).encode())
    for env in environments.given:
        for subset in ("train", "val"):
            positions = environments.subset(env, subset)
            content.update(f"{env}/{subset}/{len(positions)}".encode() + positions.astype("<i8").tobytes())
            if len(positions):
                x, y = environments.gather(torch.from_numpy(positions[:SAMPLED]))
                rounded = (x * 1000).round().to("cpu", torch.int32)  # the same on every device
                content.update(rounded.numpy().tobytes() + y.cpu().numpy().astype("<i8").tobytes())
    return content.hexdigest()[:12]


def _sessions(file: Path) -> list[Any]:
    try:
        return list(json.loads(file.read_text())["sessions"])
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut short by a full disk
        return []


def _machine() -> dict[str, Any]:
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": [Path(sys.argv[0]).name, *_typed()],
        "threads": torch.get_num_threads(),
        **_fixed(),
    }


def _typed() -> list[str]:
    return [str(word) for word in HydraConfig.get().overrides.task] if HydraConfig.initialized() else []


@functools.cache
def _fixed() -> dict[str, Any]:
    """What does not change while a process lives."""
    return {
        "dgbench": __version__,
        "code": code_version(),
        **_git(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _git() -> dict[str, Any]:
    """Commit, and whether files differ from it; None where dgbench is installed without its repository."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return {"commit": None, "dirty": None}
    try:
        words = ["git", "-C", str(root)]
        commit = subprocess.run([*words, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    return {"commit": commit.stdout.strip(), "dirty": code_version().endswith("-dirty")}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
