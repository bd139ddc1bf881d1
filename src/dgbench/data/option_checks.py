"""Checks of single values of a dataset's options; every message is one line that names the key."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.errors import ConfigError

MOST_PIXELS = 8192  # of a side: 200 MB an image
MOST_WORKERS = 1024


def shown(value: object) -> str:
    """A value as it is typed: ``null``, ``true``, ``[a,b]``."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(shown, value)) + "]"
    return str(value)


def check_name(name: object) -> None:
    """Refuse a name that cannot be part of a folder's name."""
    if not isinstance(name, str) or not re.fullmatch(r"(?![._])[^/\\\x00-\x1f\x7f]+", name):
        raise ConfigError(
            f"dataset.name={name!r} cannot name a folder; use letters, digits, - and _, with a letter or digit first"
        )


def check_path(key: str, value: object, fix: str) -> Path:
    """A path with ``~`` expanded; refuses one that is empty or no text.

    Args:
        key: below ``dataset``.
        value: as typed.
        fix: what to give, after "give" or "name".
    """
    if not isinstance(value, str):
        raise ConfigError(f"dataset.{key}={shown(value)} is no path; {fix}")
    if not value.strip():
        raise ConfigError(f"dataset.{key} is empty; {fix}")
    return Path(value).expanduser()


def check_list(key: str, values: object, fix: str) -> list[str]:
    """A list of different names as text; refuses anything else.

    Args:
        key: below ``dataset``.
        values: names or numbers.
        fix: what to give instead of something that is no list.
    """
    if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence):
        raise ConfigError(f"dataset.{key}={shown(values)} is no list of names; {fix}")
    for value in values:
        if not isinstance(value, str) and not is_number(value):
            raise ConfigError(f"dataset.{key} holds {shown(value)}, which is no name; {fix}")
        if list(values).count(value) > 1:
            raise ConfigError(f"dataset.{key} names {value} twice; name each once")
    return list(map(str, values))


def check_seeds(**seeds: object) -> None:
    """Refuse seeds that are no integers >= 0."""
    for key, value in seeds.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigError(f"dataset.{key}={shown(value)} is not an integer >= 0; 0 is the default")


def check_choice(key: str, value: object, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices."""
    if not isinstance(value, str) or value not in choices:
        *others, last = choices
        listed = f"{', '.join(others)} or {last}" if len(choices) == 2 else ", ".join(choices)
        raise ConfigError(f"dataset.{key}={shown(value)} is unknown; choose {listed}")


def check_side(value: object, usual: str, unknown_ok: bool = False) -> None:
    """Refuse an image size that is no number of pixels from 1 to ``MOST_PIXELS``; ``unknown_ok`` allows None."""
    if value is None and unknown_ok:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_PIXELS:
        raise ConfigError(
            f"dataset.image_size={shown(value)} is not a positive number of pixels up to {MOST_PIXELS}; {usual}"
        )


def check_workers(value: object) -> None:
    """Refuse a number of threads that is no integer from 1 to ``MOST_WORKERS``; None is one per core."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_WORKERS):
        raise ConfigError(
            f"dataset.workers={shown(value)} is not an integer from 1 to {MOST_WORKERS}; null takes one per core"
        )


def check_share(key: str, value: object, fix: str) -> None:
    """Refuse a share that is no number strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:  # type: ignore[operator]
        raise ConfigError(f"dataset.{key}={shown(value)} is not in (0, 1); {fix}")


def check_numbers(key: str, values: object) -> None:
    """Refuse anything but a list of finite numbers."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(map(is_finite, values)):
        raise ConfigError(f"dataset.{key}={shown(values)} is no list of finite numbers; correct it")


def is_number(value: Any) -> bool:
    """Whether a value is an integer or a float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether a value is a number, and neither infinite nor nan."""
    return is_number(value) and math.isfinite(value)
