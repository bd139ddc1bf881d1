"""The text of docs/reference/algorithms.md: from the classes' docstrings and ``conf/algorithm``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf

from dgbench.cli.algorithm_table import family_tables
from dgbench.configuration import CONF
from dgbench.protocols.ranges import entry_of
from dgbench.reports.labels import CODES, algorithm_names

_HEAD = """# Algorithms

<!-- Written by `make docs` from conf/algorithm/, the docstrings, algorithm_families.yaml, algorithm_notes.md and
algorithm_costs.json; edit those. -->

Each is a pure objective in `src/dgbench/algorithms/`, checked in double precision against reference numbers where those
exist (`tests/golden`). R_e is the mean cross entropy on the minibatch of environment e, N the images of a step, z
features, l logits. `lr`, `weight_decay` and `batch_size` are shared (see
[Configuration](configuration.md)); `hparams.draw=K hparams.trial=T` replaces defaults by draw K of the search space
`hparams.space`, and `hparams.KEY=VALUE` beats both. Small and large are kinds of images (`dataset.image_kind`).
`averaging=swad`, `averaging=eoa` and `tuning=lp_ft` go around any of them, `sharpness=sam` around most.

**Cost** is the time of a training step over ERM's, measured by `make bench-algorithms` (CPU, `mnist_cnn`, 3 x 64 images
of 28 x 28); the *floor* is what its passes through the network take at least. *Memory* is what an algorithm keeps from
step to step besides weights and optimizer; *stacks* says whether runs train together (`execution=stacked`).

"""

NOTES = CONF.parent / "docs" / "data" / "algorithm_notes.md"


def algorithms_page() -> str:
    """Tables by family, then one section per YAML file of ``conf/algorithm``."""
    files = sorted((CONF / "algorithm").glob("*.yaml"))
    sections = "\n".join(_section(file) for file in files)
    return "\n".join([_HEAD + family_tables(), sections, NOTES.read_text(encoding="utf-8"), _names()])


def _names() -> str:
    lines = [
        "## Names elsewhere\n",
        "| here | in papers | DomainBed | OoD-Bench | NICO++ code |",
        "|---|---|---|---|---|",
    ]
    for ours, names in algorithm_names().items():
        theirs = [f"`{names[code]}`" if code in names else "" for code in CODES]
        lines.append(f"| {' | '.join([f'[`{ours}`](#{ours})', names['title'], *theirs])} |")
    return "\n".join(lines) + "\n"


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
