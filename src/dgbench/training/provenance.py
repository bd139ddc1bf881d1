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
import sys
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from omegaconf import OmegaConf

from dgbench.configuration import typed_words
from dgbench.data.environments import Environments
from dgbench.records.code import code_version, commit
from dgbench.records.files import write_whole
from dgbench.records.rows import IDENTITY_FILE, RunIdentity
from dgbench.training.model_record import ModelRecord
from dgbench.training.study import Run
from dgbench.version import __version__

PACKAGES = (
    "torch", "torchvision", "pytorch-lightning", "hydra-core", "omegaconf", "numpy", "scipy", "scikit-learn", "timm",
    "pillow",
)  # fmt: skip
SAMPLED = 32  # images of each subset that the fingerprint looks at
_FINGERPRINTS: WeakKeyDictionary[Environments, str] = WeakKeyDictionary()


def write_config(run: Run) -> None:
    """Write the resolved configuration of a run, and its fold, to its folder."""
    fold = OmegaConf.to_yaml(OmegaConf.create({"fold": run.fold.key()}))
    write_whole(run.folder / "config.yaml", run.study.resolved_yaml + fold)


def write_model(run: Run, identity: RunIdentity) -> None:
    """Write what the run's model is besides its weights to its folder, so that it can be built anywhere.

    Args:
        run: that is trained.
        identity: what its rows say of it.
    """
    study, config = run.study, run.study.config
    averaging = config["averaging"].get("rule")
    ModelRecord(
        identity=asdict(identity),
        objective=run.study.config["algorithm"]["objective"],
        hparams=dict(run.spec.hparams),
        featurizer=study.featurizer_keys(),
        dtype=str(study.dtype).removeprefix("torch."),
        averaging=None if averaging is None else dict(averaging),
        training=run.fold.training,
        fold=run.fold.key(),
        classes=study.source.catalog.classes,
        preprocessing=study.source.catalog.preprocessing,
        dataset=config["dataset"],
        protocol=config["protocol"],
        trainer=config["trainer"],
        n_images=study.n_images,
    ).save(run.folder)


def write_identity(run: Run, *, resumed_from: int, together: int) -> None:
    """Write what a run is made of; sessions of earlier starts are kept.

    Args:
        run: that is started.
        resumed_from: step of the checkpoint that it continues from, 0 for its beginning.
        together: runs that train as one stack, 1 for one alone.
    """
    file, study = run.folder / IDENTITY_FILE, run.study
    session = {
        **_machine(list(study.planned.words)),
        "device": study.settings.device,
        "resumed_from": resumed_from,
        "together": together,
    }
    document = {
        "run": run.hash,
        "study": study.folder.name,
        "spec": run.spec.to_json(),
        "dataset": {**study.info.facts(), "fingerprint": fingerprint(study.source)},
        "sessions": [*_sessions(file), session],
    }
    write_whole(file, json.dumps(document, indent=1) + "\n")


def first_threads(run: Run) -> int | None:
    """Threads that a run began with; None for one that was never started."""
    sessions = _sessions(run.folder / IDENTITY_FILE)
    number = sessions[0].get("threads") if sessions and isinstance(sessions[0], dict) else None
    return number if isinstance(number, int) and number > 0 else None


def fingerprint(environments: Environments) -> str:
    """12 digits that change with the images dealt to environments, their labels, spurious features and splits.

    All positions are hashed, and the pixels and labels of the first images of each subset.
    """
    if environments not in _FINGERPRINTS:
        _FINGERPRINTS[environments] = _fingerprint(environments)
    return _FINGERPRINTS[environments]


def _fingerprint(environments: Environments) -> str:
    content = hashlib.sha256(json.dumps(environments.info.identity(), sort_keys=True, default=str).encode())
    for env in environments.info.given:
        for subset in ("train", "val"):
            positions = environments.table.subset(env, subset)
            content.update(f"{env}/{subset}/{len(positions)}".encode() + positions.astype("<i8").tobytes())
            if len(positions):
                x, y = environments.store.gather(torch.from_numpy(positions[:SAMPLED]))
                rounded = (x * 1000).round().to("cpu", torch.int32)  # the same on every device
                content.update(rounded.numpy().tobytes() + y.cpu().numpy().astype("<i8").tobytes())
    return content.hexdigest()[:12]


def _sessions(file: Path) -> list[Any]:
    try:
        return list(json.loads(file.read_text())["sessions"])
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut short by a full disk
        return []


def _machine(words: list[str]) -> dict[str, Any]:
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": [Path(sys.argv[0]).name, *words],
        "typed": typed_words("train"),  # of a whole sweep, where it is a job of one
        "threads": torch.get_num_threads(),
        **_fixed(),
    }


@functools.cache
def _fixed() -> dict[str, Any]:
    """What does not change while a process lives."""
    return {
        "dgbench": __version__,
        "code": code_version(),
        **commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


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
