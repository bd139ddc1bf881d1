"""Mappings in overrides: quoted keys, which Hydra cannot read, and keys that no file has."""

from __future__ import annotations

import re

#: mappings from names of the user's choice to plain values
NAMED_VALUES = (
    "head.class_names",
    "hydra.launcher.additional_parameters",
    "hydra.launcher.ray.init",
    "hydra.launcher.ray.remote",
    "hydra.sweeper.params",
    "import.columns.hparams",
)
#: mappings from names of the user's choice to mappings
NAMED_MAPPINGS = ("callbacks", "dataset.augmentations")

_QUOTED = re.compile(
    r"""(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote))[^\\])*)(?P=quote)(?P<colon>\s*:)?"""
)
_SPECIAL = re.compile(r"[\\()\[\]{}:=, \t]")


def is_mapping(value: str) -> bool:
    """Return whether the value of an override is written as a mapping."""
    return value.startswith("{")


def takes_new_keys(key: str, value: str) -> bool:
    """Return whether an override adds names to a mapping whose names are the user's to choose.

    Args:
        key: of the override; ``head.class_names.0`` sets one name of ``head.class_names``.
        value: as typed.
    """
    parent = key.rpartition(".")[0]
    if parent in NAMED_VALUES:
        return True
    if not is_mapping(value):
        return False
    return key in NAMED_VALUES or key in NAMED_MAPPINGS or parent in NAMED_MAPPINGS


def bare_keys(value: str) -> str:
    """Write ``{"0": zero}`` as ``{0: zero}``: keys as Hydra reads them, other signs escaped."""
    return _QUOTED.sub(_bare_key, value) if is_mapping(value) else value


def bare_key(text: str) -> str:
    """Write a key of a mapping without quotes."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], text)


def _bare_key(match: re.Match[str]) -> str:
    return bare_key(match["text"]) + match["colon"] if match["colon"] else match[0]
