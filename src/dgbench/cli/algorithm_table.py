"""The tables at the top of docs/algorithms.md: the algorithms by family, with what each of them is made of."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml
from hydra.utils import get_class
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.networks.build import build_networks
from dgbench.networks.small import MNISTCNN
from dgbench.objectives.contract import Algorithm
from dgbench.protocols.hparams import resolve
from dgbench.requests import Sizes
from dgbench.training.hyperparameters import SHARED

DOCS = CONF.parent / "docs"
COSTS = DOCS / "algorithm_costs.json"
FAMILIES = DOCS / "algorithm_families.yaml"
EXAMPLE = Sizes(n_features=0, n_classes=2, n_envs=3, image=(2, 28, 28), n_steps=5000, n_images=100)
_HEAD = "| method | what it does | own networks | memory | passes | cost | floor | stacks | environments |"


def families() -> list[dict[str, Any]]:
    """``family``, ``about`` and ``algorithms`` of each family, in order."""
    found: list[dict[str, Any]] = yaml.safe_load(FAMILIES.read_text(encoding="utf-8"))
    return found


def family_tables() -> str:
    """One table per family, in Markdown."""
    costs = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    parts = []
    for each in families():
        lines = [_row(name, costs.get(name)) for name in each["algorithms"]]
        rule = "|---|---|---|---|---|---|---|---|---|"
        parts.append("\n".join([f"**{each['family']}**: {each['about']}.\n", _HEAD, rule, *lines, ""]))
    return "\n".join(parts)


def _row(name: str, cost: Mapping[str, Any] | None) -> str:
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / f"{name}.yaml"))
    kind: type[Algorithm] = get_class(config["objective"])
    networks, memory = _made_of(kind, config)
    passes, times, floor = (cost["passes"], f"{cost['cost']:.2f}", f"{cost['floor']:.2f}") if cost else ("", "-", "-")
    cells = [
        f"[`{name}`](#{name})", purpose(kind), ", ".join(networks) or "-", ", ".join(memory) or "-", passes, times, floor,
        "yes" if kind.stackable else "no", f"{kind.min_envs} or more",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def purpose(kind: type[Algorithm]) -> str:
    """The first sentence of a docstring, without its source."""
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())
    return re.sub(r"\s*\([^()]*\d{4}[^()]*\)", "", text).rstrip(".")


def _made_of(kind: type[Algorithm], config: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Names of the networks besides featurizer and classifier, and of what is remembered from step to step."""
    shared: Any = OmegaConf.to_container(OmegaConf.load(CONF / "hparams" / "default.yaml"))
    read = list(config.get("shared", SHARED))
    hparams = resolve(shared["shared"], {"hparams": config["hparams"], "search": {}}, kind="small", read=read)
    networks, sizes = build_networks(
        lambda image: MNISTCNN(image), EXAMPLE, lambda sizes: kind.networks_needed(sizes, hparams),
        kind.extra_channels, seed=0,
    )  # fmt: skip
    own = [name for name in networks if name not in ("featurizer", "classifier")]
    state = kind(sizes, hparams).initial_state(networks)
    return own, list(dict.fromkeys(name.partition("/")[0] for name in state))
