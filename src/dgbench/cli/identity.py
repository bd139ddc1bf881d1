"""Which runs are the same run: a hash of the resolved configuration less the keys of the machine."""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
from collections.abc import Mapping
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
        "sweep",
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
        "tuning.cache_dir",
        "tuning.cache_features",
        "tuning.cache_gb",
    }
)


def science(config: DictConfig) -> dict[str, Any]:
    """The resolved configuration without machine keys."""
    top = [str(key) for key in config if key not in MACHINE_KEYS]
    return {key: without_machine_keys(key, resolved(config, key)) for key in top}


def resolved(config: DictConfig, key: str) -> Any:
    """What stands under a top-level key, without interpolations."""
    node = config[key]
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def without_machine_keys(top: str, content: Any) -> Any:
    """What stands under the top-level key ``top``, less the machine keys in it."""
    leaves = {key.partition(".")[2] for key in MACHINE_KEYS if key.startswith(f"{top}.")}
    if not leaves or not isinstance(content, dict):
        return content
    return {key: value for key, value in content.items() if key not in leaves}


def text(content: Any) -> str:
    """One text for equal contents."""
    return json.dumps(content, sort_keys=True, default=str)


def digest(content: Any) -> str:
    """12 hexadecimal digits that change when any value of ``content`` changes."""
    return digest_of_text(text(content))


def digest_of_text(content: str) -> str:
    """:func:`digest` of what :func:`text` made."""
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def study_folder(*, _root_: DictConfig) -> str:
    """Name of a study's folder; Hydra resolves it as ``${study_folder:}``."""
    content = science(_root_)
    return folder_name(content, digest(content))


def folder_name(content: Mapping[str, Any], hashed: str) -> str:
    """Name of the folder of a study with this :func:`science`, whose digest is ``hashed``."""
    usual = {"init": "random", "tuning": "ft"}  # named where it is another
    names = {group: content[group]["name"] for group in ("dataset", "algorithm", "backbone", "init", "tuning")}
    parts = [name for group, name in names.items() if name != usual.get(group)]
    parts += [f"s{content['seed']}", hashed]
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
