"""One line for whatever went wrong, that names the fix."""

from __future__ import annotations

import errno
import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.configuration import CONF
from dgbench.errors import DgbenchError
from dgbench.training.typed_words import quoted


def explain(error: BaseException, config_name: str) -> str:
    """One line that names the fix."""
    if isinstance(error, DgbenchError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(error, HydraException):  # some of Hydra's are both
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{what}; free some space and start the same command again"
        return f"{what}; name a folder you may write with paths.output_dir"
    if isinstance(error, ValueError) and "Config group override must be" in str(error):
        return "a group of conf/ is set to no name of a file; write e.g. dataset=sr_cmnist, see docs/configuration.md"
    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return f"{type(error).__name__}: {' '.join(str(error).split())}; HYDRA_FULL_ERROR=1 shows where"
    text = str(error)
    override = getattr(error, "override", None)
    if override:
        reason = text.splitlines()[0].removesuffix(
            " See https://hydra.cc/docs/1.2/advanced/override_grammar/basic for details"
        )
        return (
            f"{override} cannot be read: {reason}; write KEY=VALUE, and quote it for the shell, e.g. 'KEY=[1,2]'"
            f"{_as_text(str(override))}"
        )
    choice = re.search(r"Could not find '([^']+)/([^']+)'", text)
    if choice:
        group, name = choice.groups()
        options = [path.stem for path in sorted((CONF / group).glob("*.yaml"))]
        return (
            f"{group}={name} is unknown; {_meant(name, options)}choose from {', '.join(options) or 'no group ' + group}"
        )
    key = re.search(r"Could not override '([^']+)'", text)
    if key:
        return f"key {key[1]} is unknown; {_meant(key[1], list(_known_keys(config_name)))}see docs/configuration.md"
    ambiguous = re.search(r"Ambiguous value for argument '(.*)'\n", text)
    if ambiguous:
        name, _, value = ambiguous[1].partition("=")
        as_text, as_list = (shlex.quote(f"{name}={written}") for written in (quoted(value), f"[{value}]"))
        return f"{ambiguous[1]} holds a comma; write {as_text} for one text, {as_list} for a list, or add -m to sweep"
    missing = getattr(error, "full_key", None)
    where = f"{missing}: " if missing else ""
    return where + " ".join(text.split("\n    full_key")[0].split())


def _as_text(override: str) -> str:
    """How an override is typed whose value is one text, whatever signs it holds."""
    key, equals, value = override.partition("=")
    if not equals or not value or value[0] in "[{":
        return ""
    return f"; a text with such signs is written {shlex.quote(f'{key}={quoted(value)}')}"


def _meant(typed: str, known: list[str]) -> str:
    close = get_close_matches(typed, known, n=1)
    return f"did you mean {close[0]}? " if close else ""


def _known_keys(config_name: str) -> Iterator[str]:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield from _keys(OmegaConf.to_container(compose(config_name)), "")
    yield from (folder.name for folder in CONF.iterdir() if folder.is_dir())


def _keys(node: object, prefix: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")
