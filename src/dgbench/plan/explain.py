"""One line for whatever went wrong, that names the fix."""

from __future__ import annotations

import errno
import re
import shlex
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from dgbench.errors import DgbenchError
from dgbench.plan.keys import options, unknown_key
from dgbench.plan.overrides import quoted


def explain(error: BaseException, config_name: str, words: Sequence[str] = ()) -> str:
    """Explain an error in one line that names the fix.

    Args:
        error: what went wrong.
        config_name: the command's configuration, ``train`` or ``report``.
        words: the overrides that were typed; what they choose decides which keys there are.
    """
    if isinstance(error, DgbenchError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(error, HydraException):  # some of Hydra's are both
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{what}; free some space and start the same command again"
        return f"{what}; name a folder you may write with paths.output_dir"
    if isinstance(error, ValueError) and "Config group override must be" in str(error):
        return (
            "a group of conf/ is set to no name of a file; write e.g. dataset=sr_cmnist, "
            "see docs/reference/configuration.md"
        )
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
    for pattern, say in _KNOWN:
        if match := re.search(pattern, text):
            return say(*match.groups(), config_name, words)
    missing = getattr(error, "full_key", None)
    where = f"{missing}: " if missing else ""
    return where + " ".join(text.split("\n    full_key")[0].split())


def _as_text(override: str) -> str:
    """How an override is typed whose value is one text, whatever signs it holds."""
    key, equals, value = override.partition("=")
    if not equals or not value or value[0] in "[{":
        return ""
    return f"; a text with such signs is written {shlex.quote(f'{key}={quoted(value)}')}"


def _choice(group: str, name: str, *_: object) -> str:
    while not options(group) and "/" in group:  # the name has a slash itself
        group, head = group.rsplit("/", 1)
        name = f"{head}/{name}"
    close = get_close_matches(name, options(group), n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{group}={name} is unknown; {meant}choose from {', '.join(options(group)) or 'no group ' + group}"


def _several(word: str, *_: object) -> str:
    key, values = word.split("=", 1)
    as_list, as_text = (shlex.quote(f"{key}={written}") for written in (f"[{values}]", quoted(values)))
    return (
        f"{word} names several values; add -m to sweep over them, write {shlex.quote(f'grid.{key}=[{values}]')} to "
        f"train all in one job, {as_list} for a list, or {as_text} for one text"
    )


def _there(key: str, *_: object) -> str:
    return f"+{key} adds a key that is there already; write {key}=VALUE without +"


def _gone(key: str, config_name: str, words: Sequence[str]) -> str:
    return f"~{key} takes out a key that is not there: {unknown_key(key, config_name, words)}"


#: what Hydra says -> our line
_KNOWN: tuple[tuple[str, Callable[..., str]], ...] = (
    (r"Could not find '([^']+)/([^']*)'", _choice),
    (r"Could not load '([^']+)/([^']*)'", _choice),
    (r"Could not override '([^']+)'", unknown_key),
    (r"Ambiguous value for argument '(.*)'\n", _several),
    (r"An item is already at '([^']+)'", _there),
    (r"Could not delete from config\. '([^']+)' does not exist", _gone),
)
