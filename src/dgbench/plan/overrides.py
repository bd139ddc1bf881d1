"""Overrides: as a user types them, as Hydra takes them, and the shortest ones that make a
configuration again.

Hydra reads a value without quotes only where it holds ASCII letters, digits and ``/ - \\ + . $ % *
@ ? |``. A text with other signs (``dataset.root=~/Müller's pictures``) is taken as it stands; what
starts as a list, a mapping, a quote or a function, and what holds a comma, which would sweep over
the parts, is left to Hydra.

One hyperparameter has one address, ``hparams.NAME``; former addresses are refused and the new one
is named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.mappings import bare_key, bare_keys, is_mapping, takes_new_keys

#: keys of ``conf/hparams`` that are no hyperparameters; every other key below ``hparams`` is one
#: that was chosen
SEARCH_KEYS = frozenset({"space", "draw", "trial", "rng", "scheme", "shared"})
#: old address of a key -> the one address it has now
MOVED = {
    "trainer.lr": "hparams.lr",
    "trainer.weight_decay": "hparams.weight_decay",
    "trainer.batch_size": "hparams.batch_size",
    "execution.max_members": "execution.max_runs",
    "sweep.members_per_job": "sweep.runs_per_job",
}
#: key, or key with its value, that an earlier version had -> what to use
LEFT = {
    "plan=probe": "write plan=true, whose times are those of runs that trained in these folders",
    "sweep.hours_per_job": (
        "sweep.runs_per_job=N packs short jobs of a queue, and values with commas, e.g. seed=0,1 "
        "or protocol.folds=[0],[1], make more and shorter ones"
    ),
    "report.shifts_estimator": "report.shifts={DATASET: diversity} names the kinds of shift",
}
#: groups of which a command may choose several
SEVERAL = {"adaptation", "callbacks", "estimator"}
#: groups whose choice rows name; a folder of pictures may be that of a dataset which is known by
#: another file
LABELS = {
    "adaptation",
    "algorithm",
    "averaging",
    "backbone",
    "head",
    "init",
    "protocol",
    "sharpness",
    "tuning",
}
#: keys that every report takes, whether or not its file has them
OF_EVERY_REPORT = ("report.wandb", "report.wandb_project")
MOVED_GROUPS = {"hparams.set.": "hparams.", "algorithm.hparams.": "hparams."}

_EASY = re.compile(r"[\w./+ -]*", re.ASCII)
_STRUCTURE = re.compile(r"""[\[\]{}()'",]""")
_FUNCTION = re.compile(r"\w+\(")
_HOME = re.compile(r"(?<=[=\[,])~(?=/)")


def readable(word: str) -> str:
    """Write a word as an override that Hydra can parse.

    It is returned unchanged if it is no override, or none can be made of it.

    A list counts as one where its entries hold no brackets and no quotes: ``[a/ä.png,b=c]``.
    """
    key, equals, value = word.partition("=")
    if not equals or _EASY.fullmatch(value) or _reads(word):
        return word
    if is_mapping(value):
        bare = f"{key}={bare_keys(value)}"
        return bare if _reads(bare) else word
    return next((f"{key}={text}" for text in _texts(value) if _reads(f"{key}={text}")), word)


def quoted(text: str) -> str:
    """Quote any text for Hydra's override grammar: in single quotes, with the backslashes that it
    needs.
    """
    escaped = re.sub(r"(?<!\\)(\\*)'", lambda match: match[1] * 2 + r"\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * trailing}'"


def override(key: str, text: str) -> str:
    """Write an override that sets a key to a text, such as a path, whatever signs it holds."""
    plain = f"{key}={text}"
    return plain if _value_of(plain) == text else f"{key}={quoted(text)}"


def list_override(key: str, texts: Sequence[str]) -> str:
    """Write an override that sets a key to a list of texts, such as paths with any signs."""
    plain = f"{key}=[{','.join(texts)}]"
    if _value_of(plain) == [*texts]:
        return plain
    return f"{key}=[{','.join(map(quoted, texts))}]"


def _value_of(word: str) -> Any:
    """Parse the value of an override; return None if it cannot be read, or means several."""
    try:
        parsed = _parser().parse_override(readable(word))
    except HydraException:
        return None
    return None if parsed.is_sweep_override() else parsed.value()


def _texts(value: str) -> Iterator[str]:
    if value.startswith("[") and value.endswith("]"):
        entries = value[1:-1].split(",")
        if not any(_STRUCTURE.search(entry) for entry in entries):
            readable_entries = []
            for entry in entries:
                readable_entries.append(entry if _reads(f"k={entry}") else quoted(entry))
            yield f"[{','.join(readable_entries)}]"
        return
    # ${oc.decode:${oc.env:STEPS}}
    nested = value.startswith("${") and value.count("${") == value.count("}")
    if nested or (value[0] not in "[{'\"$" and "," not in value and not _FUNCTION.match(value)):
        yield quoted(value)


def _reads(word: str) -> bool:
    try:
        _parser().parse_override(word)
    except HydraException:
        return False
    return True


@cache
def _parser() -> OverridesParser:
    return OverridesParser.create()


def options(group: str) -> list[str]:
    """List the choices of a group, by name; return [] if there is no such group."""
    if not group:
        return []
    return [path.stem for path in sorted((CONF / group).glob("*.yaml"))]


@cache
def groups(root: str) -> dict[str, str | None]:
    """Map each group that a command has to its default choice, or to None if it has none."""
    defaults = yaml.safe_load((CONF / f"{root}.yaml").read_text())["defaults"]
    choices = {}
    for entry in defaults:
        if not isinstance(entry, dict):
            continue
        for key, name in entry.items():
            if not str(key).startswith("override "):
                choices[str(key)] = name
    return choices


@cache
def _tops() -> frozenset[str]:
    """List everything that may stand before the first dot of a key."""
    tops = {"per_dataset", "per_algorithm"}
    for path in CONF.glob("*.yaml"):
        tops.update(yaml.safe_load(path.read_text()))
    for path in CONF.iterdir():
        if path.is_dir():
            tops.add(path.name)
    return frozenset(tops - {"defaults"})


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the plain values by dotted key; an empty mapping counts as one."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node


def open_keys(words: Sequence[str], command: str = "train") -> list[str]:
    """Write overrides as Hydra takes them, with the quotes and the ``++`` that it needs.

    Keys that no file has need ``++``.

    ``~/`` at the start of a value is the home folder: shells leave it as it is after ``KEY.NAME=``
    and in brackets.

    Args:
        words: as typed.
        command: only ``train`` has keys that stand in no file, hyperparameters and ``grid``.

    Raises:
        ConfigError: an address that a key had once.
    """
    opened = []
    for word in words:
        opened.append(word if word.startswith("-") else _open(word, command))
    return opened


def _open(word: str, command: str) -> str:
    key = word.lstrip("+~").partition("=")[0]
    _check_word(word, key)
    word = readable(_HOME.sub(lambda _: os.path.expanduser("~"), word))
    new_key = MOVED.get(key) or next(
        (new + key.removeprefix(old) for old, new in MOVED_GROUPS.items() if key.startswith(old)),
        None,
    )
    if key in ("hparams.set", "algorithm.hparams"):
        new_key = "hparams.NAME"
    if new_key:
        raise ConfigError(f"{key} is set by {new_key}; write {new_key}={word.partition('=')[2]}")
    if "=" not in word or word.startswith(("+", "~")):
        return word
    chosen = key.startswith("hparams.") and key.split(".")[1] not in SEARCH_KEYS
    of_train = chosen or key == "grid" or key.startswith("grid.")
    opens = (
        takes_new_keys(key, word.partition("=")[2])
        or (of_train and command == "train")
        or (key in OF_EVERY_REPORT and command == "report")
    )
    return f"++{word}" if opens else word


def _check_word(word: str, key: str) -> None:
    """Refuse a word that Hydra would take for something else, or answer with an obscure error."""
    value = word.partition("=")[2]
    choices = options(key)
    left = LEFT.get(key) or LEFT.get(word.lstrip("+"))
    if left:
        raise ConfigError(f"{word} is of an earlier version: {left}")
    if not key:
        raise ConfigError(f"{word} names no key; write KEY=VALUE")
    if value.startswith("="):
        raise ConfigError(f"{word} has two equal signs; write {word.replace('==', '=', 1)}")
    if choices and word.startswith("~"):
        raise ConfigError(
            f"{word} takes out a group that every command has; choose another with {key}=NAME"
        )
    if choices and word.startswith("+") and not is_mapping(value):
        raise ConfigError(
            f"{word} adds a group that is there already; write {key}={value} without +"
        )
    if choices and "=" in word and (not value or (value.startswith("[") and key not in SEVERAL)):
        names = "no choice" if not value else "several choices"
        one_job = f", or several in one job with grid.{key}={value}" if value else ""
        raise ConfigError(f"{word} names {names}; give one of {', '.join(choices)}{one_job}")
    top, _, inner = key.partition(".")
    if inner == "name" and top in LABELS and value in options(top):
        raise ConfigError(
            f"{word} only changes what rows call it; choose {top}={value}, or give a name of your "
            "own"
        )
    if word.startswith("~") and key in _tops():
        raise ConfigError(f"{word} takes out a key that every command has; set it with {key}=VALUE")
    if word.startswith("+") and top not in _tops() and "/" not in top and "@" not in top:
        raise ConfigError(
            f"{word} adds a key that nothing reads; docs/reference/configuration.md has those "
            "that are read"
        )


# one way to match: with a choice it would try them all
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*(?: [\w./-]+)*")
_WORDS = {"null", "true", "false", "on", "off", "yes", "no", "inf", "nan"}


def grammar(value: Any) -> str:
    """Write a value as Hydra's override grammar reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return quoted(value)
    if isinstance(value, Mapping):
        entries = [f"{bare_key(str(key))}:{grammar(item)}" for key, item in value.items()]
        return "{" + ",".join(entries) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(map(grammar, value)) + "]"
    return str(value)


def _plain(config: DictConfig) -> dict[str, Any]:
    content: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    return content
