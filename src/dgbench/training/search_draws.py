"""What a configuration says of its search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dgbench.errors import ConfigError
from dgbench.protocols.search import Scheme, Settings
from dgbench.training.building import build


class Plain(Protocol):
    """Plain resolved values by top-level key."""

    def __getitem__(self, top: str, /) -> Any: ...


def scheme_of(config: Plain) -> Scheme | None:
    """How a configuration's search is trained; None where it trains one set of hyperparameters.

    Raises:
        ConfigError: a search that cannot be meant.
    """
    hparams = config["hparams"]
    if hparams.get("scheme") is None:
        return None
    for key in ("draw", "trial"):
        if hparams[key] != 0:
            raise ConfigError(
                f"hparams.{key}={hparams[key]} is set by the search; leave it out, or train it alone with "
                "hparams=default"
            )
    scheme: Scheme = build({"hparams.scheme": hparams["scheme"]}, "hparams.scheme")
    return scheme


def base_values(config: Plain, scheme: Scheme) -> Settings:
    """The keys that vary from trial to trial, as they are for trial 0.

    Raises:
        ConfigError: one of them is no integer.
    """
    base = {}
    for key in scheme.varies:
        value = _at(config, key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"hparams.scheme.varies: {key}={value} is no integer; name keys that are, e.g. [seed]")
        base[key] = value
    return base


def _at(config: Plain, key: str) -> Any:
    top, *parts = key.split(".")
    try:
        node = config[top]
    except KeyError:
        return None
    for part in parts:
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
