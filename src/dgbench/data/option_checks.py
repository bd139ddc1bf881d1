"""Checks of single values of a dataset's options; every message is one line that names the key."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from dgbench.errors import ConfigError


def check_name(name: object) -> None:
    """Refuse a name that cannot be part of a folder's name."""
    if not isinstance(name, str) or not re.fullmatch(r"(?![._])[^/\\\x00-\x1f\x7f]+", name):
        raise ConfigError(
            f"dataset.name={name!r} cannot name a folder; use letters, digits, - and _, with a letter or digit first"
        )


def check_seeds(**seeds: object) -> None:
    """Refuse seeds that are no integers."""
    for key, value in seeds.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"dataset.{key}={value} is not an integer; 0 is the default")


def check_choice(key: str, value: object, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        *others, last = choices
        listed = f"{', '.join(others)} or {last}" if len(choices) == 2 else ", ".join(choices)
        raise ConfigError(f"dataset.{key}={value} is unknown; choose {listed}")


def check_side(value: object, usual: str, unknown_ok: bool = False) -> None:
    """Refuse an image size that is no positive number of pixels; ``unknown_ok`` allows None."""
    if value is None and unknown_ok:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"dataset.image_size={value} is not a positive number of pixels; {usual}")


def is_number(value: Any) -> bool:
    """Whether a value is an integer or a float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
