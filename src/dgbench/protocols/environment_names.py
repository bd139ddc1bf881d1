"""Environment names as a user types them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.errors import ConfigError


def environments(key: str, typed: Any, given: Sequence[str]) -> list[str]:
    """The given environments that a list names; ``0.9`` also finds ``0.90``, which YAML cannot keep as typed.

    Args:
        key: the key that was typed, e.g. ``protocol.test``.
        typed: its value.
        given: names of the given environments.

    Raises:
        ConfigError: it is no list, or it holds a name that is not given or is there twice.
    """
    if isinstance(typed, (str, int, float)):
        typed = [typed]  # protocol.test=a has no brackets
    found = []
    for name in typed:
        match = [env for env in given if env == str(name)] or [env for env in given if _number(env) == _number(name)]
        if not match:
            raise ConfigError(f"{key} names {name}, which is no given environment; choose from {', '.join(given)}")
        if match[0] in found:
            raise ConfigError(f"{key} holds {match[0]} twice; name each environment once")
        found.append(match[0])
    return found


def _number(name: Any) -> float | str:
    try:
        return float(name)
    except (TypeError, ValueError):
        return str(name)
