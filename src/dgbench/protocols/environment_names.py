"""Environment names as a user types them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.errors import ConfigError


def typed_name(name: Any) -> str:
    """A name as text; a number with a fraction has two decimals, or four where two do not tell it: 0.1 is ``0.10``."""
    if not isinstance(name, float):
        return str(name)
    short = f"{name:.2f}"
    return short if abs(float(short) - name) < 5e-5 else f"{name:.4f}"


def check_validation(typed: Any, given: Sequence[str]) -> None:
    """Refuse ``selection.environments`` that are no given ones; None and an empty list are left to the selection.

    Args:
        typed: its value.
        given: names of the given environments.

    Raises:
        ConfigError: a name that is not given.
    """
    for name in typed if isinstance(typed, Sequence) and not isinstance(typed, str) else []:
        if typed_name(name) not in given:
            raise ConfigError(
                f"selection.environments names {name}, which is no given environment; choose from {', '.join(given)}"
            )


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
    if isinstance(typed, Mapping):
        raise ConfigError(f"{key}={dict(typed)} is no list of names; choose from {', '.join(given)}")
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
