"""Which keys a command has, given what was chosen, and which was meant by one that it has not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from dgbench.configuration import CONF

LISTED = 30  # more keys of a group are left to the docs
SEE = "see docs/reference/configuration.md"
#: keys of ``conf/hparams`` that are no hyperparameters; every other key below ``hparams`` is one that was chosen
SEARCH_KEYS = frozenset({"space", "draw", "trial", "rng", "scheme", "shared"})


def options(group: str) -> list[str]:
    """List the choices of a group, by name; none where there is no such group."""
    return [path.stem for path in sorted((CONF / group).glob("*.yaml"))] if group else []


@cache
def tops() -> frozenset[str]:
    """List everything that may stand before the first dot of a key."""
    roots = [yaml.safe_load(path.read_text()) for path in CONF.glob("*.yaml")]
    groups = [path.name for path in CONF.iterdir() if path.is_dir()]
    return frozenset({"per_dataset", *groups, *(key for root in roots for key in root)} - {"defaults"})


def unknown_key(key: str, root: str, words: Sequence[str]) -> str:
    """Explain in one line a key that a command does not have.

    Args:
        key: as typed, without value.
        root: name of the command's configuration.
        words: everything that was typed: what was chosen decides which keys there are.
    """
    config, chosen = _composed(root, words, key)
    keys = [*_keys(config, ""), *_hyperparameters(config)]
    group, _, sub = key.partition(".")
    if options(group) and group not in _groups(root):
        return f"{group} is no group of {root}.py; its groups are {', '.join(sorted(_groups(root)))}"
    if not sub or not options(group):
        return f"key {key} is unknown; {_meant(key, keys)}{SEE}"
    subkeys = list(_keys(config.get(group), ""))
    close = get_close_matches(sub, subkeys, n=1)
    owners = _owners(group, sub)
    if sub in subkeys:  # a file of the user's own, in another folder, chose for the group
        return f"the {group} that was chosen has no key {sub}; name one that has: {', '.join(owners) or SEE}"
    if close and not owners:
        return f"key {key} is unknown; did you mean {group}.{close[0]}? {SEE}"
    same = [] if owners else [other for other in keys if other.rpartition(".")[2] == key.rpartition(".")[2]]
    elsewhere = [f"{package_of(file)}.{sub}" for file in (CONF / group).glob("*.yaml") if sub in keys_of_file(file)]
    moved = [other for other in elsewhere if other != key]
    meant = f"did you mean {(moved or same)[0]}? " if moved or same else ""
    names = [name for name in subkeys if "." not in name and not name.startswith("_")]
    listed = f"its keys are {', '.join(names)}" if names else "it has no keys"
    if len(names) > LISTED:
        listed = f"for its keys {SEE}"
    belongs = f", and {sub} belongs to {', '.join(owners)}" if owners else ""
    return f"{group}={chosen.get(group) or 'null'} has no key {sub}; {meant}{listed}{belongs}"


def _meant(key: str, keys: Sequence[str]) -> str:
    """A key that ends like this one, or that looks like it."""
    last = key.rpartition(".")[2]
    ends = [other for other in keys if other.rpartition(".")[2] == last and other != key]
    shallow = sorted(ends, key=lambda other: other.count("."))[:2]
    close = shallow or get_close_matches(key, [other for other in keys if other != key], n=1)
    if not close:
        by_last = {other.rpartition(".")[2]: other for other in reversed(keys)}
        close = [by_last[name] for name in get_close_matches(last, list(by_last), n=1, cutoff=0.7)]
    return f"did you mean {' or '.join(close)}? " if close else ""


def _composed(root: str, words: Sequence[str], key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration of what was chosen, and the name of the choice in each group."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    choices, groups = {}, _groups(root)
    for word in words:
        group, _, names = word.lstrip("+").partition("=")
        if group not in groups:  # of another command
            continue
        if chosen := [name for name in names.split(",") if name in options(group)]:
            lacking = [
                name for name in chosen if key.partition(".")[2] not in keys_of_file(CONF / group / f"{name}.yaml")
            ]
            choices[group] = (lacking or chosen)[0]  # of a sweep over several, one that has no such key
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config: Any = compose(root, [f"{g}={name}" for g, name in choices.items()], return_hydra_config=True)
    composed = dict(config.hydra.runtime.choices)
    content: Any = OmegaConf.to_container(config, resolve=False)
    return {top: value for top, value in content.items() if top != "hydra"}, composed


def _groups(root: str) -> set[str]:
    """Groups that a command has."""
    defaults = yaml.safe_load((CONF / f"{root}.yaml").read_text())["defaults"]
    keys = {str(key) for entry in defaults if isinstance(entry, dict) for key in entry}
    return {key for key in keys if not key.startswith("override ")}


def _hyperparameters(config: Any) -> list[str]:
    """Addresses of all hyperparameters; they stand in no file under the address that sets them."""
    if "hparams" not in config:
        return []
    names = dict.fromkeys(config["hparams"]["shared"]["hparams"])
    for file in sorted((CONF / "algorithm").glob("*.yaml")):
        names |= dict.fromkeys(yaml.safe_load(file.read_text()).get("hparams") or {})
    return [f"hparams.{name}" for name in names]


def _owners(group: str, sub: str) -> list[str]:
    """Choices that bring a key of this group along, as ``backbone=mlp`` brings ``width``."""
    return [
        f"{file.parent.name}={file.stem}"
        for file in sorted(CONF.glob("*/*.yaml"))
        if package_of(file) == group and sub in keys_of_file(file)
    ]


def package_of(file: Path) -> str:
    """Say what stands before the first dot of a file's keys."""
    header = re.search(r"^# @package (\S+)", file.read_text(), re.M)
    return header[1] if header else file.parent.name


def keys_of_file(file: Path) -> set[str]:
    """List dotted keys of a file and of those in its folder that it builds on."""
    content = yaml.safe_load(file.read_text()) or {}
    names = set(_keys({key: value for key, value in content.items() if key != "defaults"}, ""))
    for base in content.get("defaults") or []:
        if isinstance(base, str) and base != "_self_":
            names |= keys_of_file(file.with_name(f"{base}.yaml"))
    return names


def _keys(node: Any, prefix: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")
