"""The tables at the top of docs/reference/algorithms.md: algorithms by family, and what each of them is made of."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import yaml
from hydra.utils import get_class
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_networks
from dgbench.networks.small import MNISTCNN
from dgbench.objectives.contract import Algorithm
from dgbench.protocols.hparams import resolve
from dgbench.training.hyperparameters import SHARED

DATA = CONF.parent / "docs" / "data"
COSTS = DATA / "algorithm_costs.json"
FAMILIES = DATA / "algorithm_families.yaml"
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
    hparams = _defaults(config)
    networks, memory = _made_of(kind, hparams)
    measured = (cost["passes"], f"{cost['cost']:.2f}", f"{cost['floor']:.2f}") if cost else ("", "-", "-")
    cells = [
        f"[`{name}`](#{name})", purpose(kind), ", ".join(networks) or "-", ", ".join(memory) or "-", *measured,
        "yes" if kind.stackable else "no", f"{_fewest(kind, hparams)} or more",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every hyperparameter that an algorithm reads, for small images."""
    shared: Any = OmegaConf.to_container(OmegaConf.load(CONF / "hparams" / "default.yaml"))
    own = {"hparams": config["hparams"], "search": {}}
    return resolve(shared["shared"], own, kind="small", read=list(config.get("shared", SHARED)))


def _fewest(kind: type[Algorithm], hparams: Mapping[str, Any]) -> int:
    """The least number of training environments that the defaults work with."""
    for n in count(1):
        try:
            kind.check(replace(EXAMPLE, n_features=128, n_envs=n), hparams)
        except ConfigError:
            continue
        return n
    raise AssertionError("never reached")


def purpose(kind: type[Algorithm]) -> str:
    """The first sentence of a docstring, without its source."""
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())
    return re.sub(r"\s*\([^()]*\d{4}[^()]*\)", "", text).rstrip(".")


def _made_of(kind: type[Algorithm], hparams: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Names of the networks besides featurizer and classifier, and of what is remembered from step to step."""
    networks, sizes = build_networks(
        lambda image: MNISTCNN(image), EXAMPLE, lambda sizes: kind.networks_needed(sizes, hparams),
        kind.extra_channels, seed=0,
    )  # fmt: skip
    own = (re.sub(r"_\d+$", "s", name) for name in networks if name not in ("featurizer", "classifier"))
    state = kind(sizes, hparams).initial_state(networks)
    return list(dict.fromkeys(own)), list(dict.fromkeys(name.partition("/")[0] for name in state))
