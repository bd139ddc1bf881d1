"""The text of docs/algorithms.md: from the classes' docstrings, ``conf/algorithm`` and measured costs."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.protocols.ranges import entry_of

COSTS = CONF.parent / "docs" / "algorithm_costs.json"
_HEAD = """# Algorithms

<!-- Written by `make docs` from conf/algorithm/, the docstrings and algorithm_costs.json; edit those. -->

Each is a pure objective in `src/dgbench/algorithms/`, checked in double precision against published reference numbers
where those exist (`tests/golden`). R_e is the mean cross entropy on the minibatch of environment e, N the images of a
step, z features, l logits. `lr`, `weight_decay` and `batch_size` are shared (see
[configuration.md](configuration.md)); `hparams.draw=K hparams.trial=T` replaces defaults by draw K of the search space
`hparams.space`, and `hparams.KEY=VALUE` beats both. Small and large are kinds of images
(`dataset.image_kind`).

**Cost** is the time of a training step over ERM's, measured by `make bench-algorithms` (CPU, `mnist_cnn`, 3 x 64 images
of 28 x 28); the *floor* is what its passes through the network take at least.

| algorithm | cost | floor | passes |
|---|---|---|---|
"""


def algorithms_page() -> str:
    """One section per YAML file of ``conf/algorithm``."""
    costs = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    files = sorted((CONF / "algorithm").glob("*.yaml"))
    rows = [_cost_row(file.stem, costs.get(file.stem)) for file in files]
    return _HEAD + "\n".join(rows) + "\n\n" + "\n".join(_section(file) for file in files)


def _cost_row(name: str, cost: dict[str, Any] | None) -> str:
    link = f"[`{name}`](#{name})"
    return (
        f"| {link} | {cost['cost']:.2f} | {cost['floor']:.2f} | {cost['passes']} |" if cost else f"| {link} | - | - | |"
    )


def _section(file: Path) -> str:
    config: Any = OmegaConf.to_container(OmegaConf.load(file))
    text = inspect.cleandoc(get_class(config["objective"]).__doc__ or "")
    search = config.get("search") or {}
    spaces = list(search)
    lines = [f"## {file.stem}\n", text + "\n"]
    if config["hparams"]:
        lines.append("| hyperparameter | default | range | meaning |" + "".join(f" {space} |" for space in spaces))
        lines.append("|---|---|---|---|" + "---|" * len(spaces))
        for key, declared in config["hparams"].items():
            entry = entry_of(declared)
            drawn = "".join(f" {_distribution((search[space] or {}).get(key))} |" for space in spaces)
            allowed, meaning = entry.range.replace("|", "or"), entry.help.replace("|", ";")
            lines.append(f"| `{key}` | {_default(entry.default)} | {allowed} | {meaning} |{drawn}")
        lines.append("")
    return "\n".join(lines)


def _default(value: Any) -> str:
    return ", ".join(f"{kind}: {v}" for kind, v in _cases(value)) if isinstance(value, dict) else str(value)


def _cases(entry: dict[str, Any]) -> list[tuple[str, Any]]:
    """What differs between small and large images and between datasets, by name."""
    return [*((kind, each) for kind, each in entry.items() if kind != "datasets"), *entry.get("datasets", {}).items()]


def _distribution(entry: Any) -> str:
    if entry is None:
        return ""
    kinds = _cases(entry) if set(entry) <= {"small", "large", "datasets"} else [("", entry)]
    return "; ".join(f"{kind}{': ' if kind else ''}{_call(drawn)}" for kind, drawn in kinds)


def _call(drawn: Any) -> str:
    ((name, arguments),) = drawn.items()
    return f"{name}({', '.join(str(a) for a in arguments)})"
