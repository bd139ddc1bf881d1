"""Which runs are the same run: a hash of the resolved configuration less the keys of the machine."""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench import __version__

# Keys that say where and how a run is computed, or which of its folds, but change no result.
MACHINE_KEYS = frozenset(
    {
        "hydra",
        "paths",
        "logger",
        "selection",
        "execution",
        "grid",
        "per_dataset",  # what presets look up for a dataset; it counts where it lands
        "plan",
        "retry",
        "algorithm.search",
        "dataset.cache_dir",
        "hparams.scheme",
        "dataset.data_dir",
        "dataset.device_share",
        "dataset.fetch",
        "dataset.manifest",
        "dataset.published",
        "dataset.root",
        "dataset.store",
        "dataset.workers",
        "init.cache_dir",
        "init.path",  # what the file holds is known by its sha256, which is part of every member's hash
        "init.published",
        "init.sha256",
        "init.timeout",
        "init.url",
        "protocol.folds",
        "trainer.channels_last",
        "trainer.device",
        "trainer.checkpoint_seconds",
        "tuning.cache_features",
    }
)


def science(config: DictConfig) -> dict[str, Any]:
    """The resolved configuration without machine keys."""
    top = {key: node for key, node in config.items_ex(resolve=False) if key not in MACHINE_KEYS}
    resolved: dict[str, Any] = {}
    for key in top:
        node = config[key]
        resolved[str(key)] = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    for dotted in MACHINE_KEYS:
        head, _, leaf = dotted.partition(".")
        if leaf and isinstance(resolved.get(head), dict):
            resolved[head].pop(leaf, None)
    return resolved


def digest(content: Any) -> str:
    """12 hexadecimal digits that change when any value of ``content`` changes."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def study_folder(*, _root_: DictConfig) -> str:
    """Name of a study's folder; Hydra resolves it as ``${study_folder:}``."""
    parts = [
        _root_.dataset.name,
        _root_.algorithm.name,
        _root_.backbone.name,
        *([] if _root_.init.name == "random" else [_root_.init.name]),
        *([] if _root_.tuning.name == "ft" else [_root_.tuning.name]),
        f"s{_root_.seed}",
        digest(science(_root_)),
    ]
    return "-".join(str(part) for part in parts)


@functools.cache
def code_version() -> str:
    """Version of dgbench, with the commit and a mark for local changes where git knows them."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():  # never the commit of a repository that merely surrounds an installed package
        return __version__
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        described = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return __version__
    return f"{__version__}+{described.stdout.strip()}" if described.returncode == 0 else __version__
