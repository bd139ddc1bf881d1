"""The shortest words that make a configuration again: files of groups, and keys that differ from what they say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.training.typed_words import quoted

Compose = Callable[[Sequence[str]], DictConfig]

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*(?: [\w./-]+)*")  # one way to match: with a choice it would try them all
_WORDS = {"null", "true", "false", "on", "off", "yes", "no", "inf", "nan"}


def shortest_words(
    wanted: Mapping[str, Any], compose: Compose, conf: Path, relevant: Callable[[str], bool], root: str = "train"
) -> list[str]:
    """Overrides that compose to ``wanted``, as far as its relevant keys go.

    Args:
        wanted: a resolved configuration.
        compose: composes ``root`` with overrides.
        conf: the folder of its groups.
        relevant: whether a dotted key matters.
        root: name of the command's configuration.
    """
    groups: list[str] = []
    have = _plain(compose([]))
    for group in reversed(_groups(conf / f"{root}.yaml")):  # a choice brings along what stands above it
        asked = wanted.get(group)
        if not isinstance(asked, Mapping) or not _differences(wanted, have, relevant, f"{group}."):
            continue
        best, fewest = "", len(_differences(wanted, have, relevant, f"{group}."))
        for word in _options(conf / group, asked):
            option = _plain(compose([*groups, word]))
            count = len(_differences(wanted, option, relevant, f"{group}."))
            if count < fewest and not option["hparams"]["scheme"]:  # a search would train more than this
                best, fewest, have = word, count, option
        groups += [best] if best else []
    keys = _differences(wanted, have, relevant)
    for key in reversed(keys.copy()):  # what another word brings along, as a width does a network's name
        fewer = [other for other in keys if other is not key]
        with suppress(OmegaConfBaseException):  # an interpolation that needed the key
            if not _differences(wanted, _plain(compose([*groups, *fewer])), relevant):
                keys = fewer
    return groups + keys


def grammar(value: Any) -> str:
    """A value as Hydra's override grammar reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{grammar(str(key))}:{grammar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(map(grammar, value)) + "]"
    return str(value)


def _groups(file: Path) -> list[str]:
    """Groups of the defaults list, in order, whose choice is a file."""
    defaults = yaml.safe_load(file.read_text())["defaults"]
    return [next(iter(entry)) for entry in defaults if isinstance(entry, dict) and None not in entry.values()]


def _options(folder: Path, wanted: Mapping[str, Any]) -> Iterator[str]:
    """A word for each file whose class and name are those that are wanted."""
    for file in sorted(folder.glob("*.yaml")):
        content = yaml.safe_load(file.read_text()) or {}
        fixed = {key: content[key] for key in ("_target_", "name") if "$" not in str(content.get(key, "$"))}
        if all(wanted.get(key) == value for key, value in fixed.items()):
            yield f"{folder.name}={file.stem}"


def _differences(
    wanted: Mapping[str, Any], have: Mapping[str, Any], relevant: Callable[[str], bool], prefix: str = ""
) -> list[str]:
    target, now = (dict(_leaves(tree)) for tree in (wanted, have))
    words = []
    for key, value in target.items():
        if (
            key.startswith(prefix)
            and relevant(key)
            and (key not in now or now[key] != value or _kinds(now[key], value))
        ):
            words.append(f"{'' if _known(key, now) else '+'}{key}={grammar(value)}")
    for key in now:
        parents = any(other.startswith(f"{key}.") for other in target)
        if key.startswith(prefix) and relevant(key) and key not in target and not parents:
            words.append(f"~{key}")
    return words


def _kinds(one: Any, other: Any) -> bool:
    """1 and 1.0 and true are equal in Python and not in a hash."""
    return repr(one) != repr(other)


def _known(key: str, now: Mapping[str, Any]) -> bool:
    """Whether Hydra takes the key without ``+``: it is there, or it is opened by the command itself."""
    return key in now or any(other.startswith(f"{key}.") for other in now) or key.startswith(("hparams.", "grid."))


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node


def _plain(config: DictConfig) -> dict[str, Any]:
    content: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    return content
