"""What values a hyperparameter may have: the entries of ``conf/algorithm`` and of ``conf/hparams``, and their ranges.

An entry is a default, ``tau: 1.0``, or a default with its range and meaning:
``tau: {default: 1.0, range: number >= 0 and <= 1, help: "..."}``. A range is one of

- ``number``, ``integer``, each with bounds or none: ``integer >= 1``, ``number > 0 and < 1``; numbers are finite;
- options: ``separate | together``, ``true | false``.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dgbench.errors import ConfigError

_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
}  # fmt: skip
_NUMERIC = re.compile(r"(number|integer)(?: ([<>]=?) (\S+)(?: and ([<>]=?) (\S+))?)?")
_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True)
class Entry:
    """One hyperparameter as its file declares it."""

    default: Any  #: a value, or ``{small: ..., large: ...}``, which may have ``datasets: {NAME: ...}`` too
    range: str = ""  #: in the words of this module; empty where the file gives none
    help: str = ""  #: what it means

    def defaults(self) -> list[Any]:
        """Every value that :attr:`default` holds."""
        if not isinstance(self.default, Mapping):
            return [self.default]
        named = self.default.get("datasets") or {}
        return [*(value for key, value in self.default.items() if key != "datasets"), *named.values()]


def entry_of(declared: Any, name: str = "a hyperparameter") -> Entry:
    """The entry of a file for ``name``, in either form.

    Raises:
        ConfigError: a long entry with other keys.
    """
    if not (isinstance(declared, Mapping) and "default" in declared):
        return Entry(declared)
    unknown = set(declared) - {"default", "range", "help"}
    if unknown:
        raise ConfigError(
            f"{name} has default, range and help, not {', '.join(sorted(map(str, unknown)))}; to give another default "
            f"write {name}: {{default: ...}}"
        )
    return Entry(declared["default"], str(declared.get("range") or ""), str(declared.get("help") or ""))


def checked(name: str, value: Any, entry: Entry) -> Any:
    """The value, where it lies in its range; without a range it must be of the default's kind, a number or not.

    500.0 is an integer and ``12`` the option that is written so; text and truth values are no numbers.

    Raises:
        ConfigError: one line with name, value, range and meaning; or the range cannot be read.
    """
    allowed = entry.range or ("" if isinstance(entry.default, (str, bool)) else "number")
    meaning = f" ({entry.help})" if entry.help else ""
    if options := _options(allowed):
        written = str(value).lower() if isinstance(value, bool) else str(value)
        if written not in options:
            raise ConfigError(f"hparams.{name}={value} is unknown; choose one of {', '.join(options)}{meaning}")
        return options[written]
    if allowed and not _holds(allowed, value):
        article = "an" if allowed.startswith("i") else "a"
        raise ConfigError(f"hparams.{name}={value} is not {article} {allowed}; give one{meaning}")
    return int(value) if allowed.startswith("integer") else value


def _holds(allowed: str, value: Any) -> bool:
    whole, bounds = _numeric(allowed)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return False
    return not (whole and value % 1) and all(_BOUNDS[sign](value, bound) for sign, bound in bounds)


def _options(allowed: str) -> dict[str, Any]:
    """Option as written -> its value; none where the range is numeric."""
    words = [word.strip() for word in allowed.split("|")]
    return {word: _SWITCHES.get(word, word) for word in words} if len(words) > 1 else {}


@lru_cache(maxsize=256)
def _numeric(allowed: str) -> tuple[bool, list[tuple[str, float]]]:
    """Whether only whole numbers are meant, and the bounds."""
    found = _NUMERIC.fullmatch(allowed)
    if not found:
        raise ConfigError(
            f"range {allowed!r} cannot be read; write it as 'number >= 0 and < 1', 'integer >= 1' or 'one | other'"
        )
    kind, *parts = found.groups()
    try:
        bounds = [(sign, float(bound)) for sign, bound in zip(parts[::2], parts[1::2], strict=True) if sign]
    except ValueError as error:
        raise ConfigError(f"range {allowed!r} has a bound that is no number; correct it") from error
    return kind == "integer", bounds
