"""Keys of the files of ``conf/``: which file brings which keys along."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dgbench.configuration import CONF


def owners_of(group: str, sub: str) -> list[str]:
    """List the choices that have a key of this group, as ``backbone=mlp`` has ``width``."""
    return [
        f"{file.parent.name}={file.stem}"
        for file in sorted(CONF.glob("*/*.yaml"))
        if package_of(file) == group and sub in keys_of_file(file)
    ]


@cache
def content_of_file(file: Path) -> dict[str, Any]:
    """Read a file of ``conf/``.

    A wrong key looks into most of them, which takes a second without libyaml.
    """
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_text(), Loader=loader) or {}


@cache
def package_of(file: Path) -> str:
    """Read the Hydra package of a file, which precedes the first dot of its keys.

    By default it is the folder's name.
    """
    header = re.search(r"^# @package (\S+)", file.read_text(), re.M)
    return header[1] if header else file.parent.name


@cache
def keys_of_file(file: Path) -> frozenset[str]:
    """List the dotted keys of a file and of the files in its folder that its defaults name."""
    content = content_of_file(file)
    names = frozenset(
        nested_keys({key: value for key, value in content.items() if key != "defaults"}, "")
    )
    for base in content.get("defaults") or []:
        if isinstance(base, str) and base != "_self_":
            names |= keys_of_file(file.with_name(f"{base}.yaml"))
    return names


def nested_keys(node: Any, prefix: str) -> Iterator[str]:
    """Iterate over the dotted keys of a mapping, also those of mappings."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from nested_keys(value, f"{prefix}{key}.")
