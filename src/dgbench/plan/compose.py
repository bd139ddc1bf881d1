"""Which studies the jobs of a sweep are, without composing every job.

Hydra takes some 20 ms to compose a job, half an hour for 100,000. Jobs of a sweep differ in a few plain values, so one
composition per choice of groups is enough: the values are set in its resolved copy, and only the top-level keys that
they touch are written out again. Whatever is more than a plain value that nothing else refers to is left to Hydra.
``tests/sweeps/test_composing.py`` compares both ways over random sweeps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from omegaconf import DictConfig, OmegaConf

from dgbench.records.spec import digest

KEPT = 4096  # contents of a top-level key that are remembered

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_REFERENCE = re.compile(r"\$\{\s*(?:oc\.select:)?([^${}:,\s]*)\s*(?=(.?))")  # the default after a comma is text
# How a job is run: it plans the same runs whatever stands there.
HOW = frozenset({"hydra", "paths", "logger", "selection", "execution", "plan", "retry", "wait", "sweep"})
FREE = {"oc.env"}  # resolvers that look at nothing in the configuration


KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Word:
    """One override of a job.

    Args:
        typed: as the user gave it.
        path: the key that it sets, in parts; None where only Hydra can say what it does.
        value: what it sets it to.
    """

    typed: str
    path: KeyPath | None = None
    value: Any = None


class Composed:
    """The resolved configuration of one job.

    Args:
        contents: resolved content and text of each top-level key.
        parent: folder that the job's studies go to.
    """

    __slots__ = ("contents", "parent")

    def __init__(self, contents: dict[str, _Content], parent: str) -> None:
        self.contents, self.parent = contents, parent

    @staticmethod
    def of_plain(config: Mapping[str, Any], parent: str) -> Composed:
        """Plain resolved values by top-level key."""
        return Composed({top: _Content.of(content) for top, content in config.items()}, parent)

    @staticmethod
    def of_config(config: DictConfig, parent: str) -> Composed:
        """What Hydra composed."""
        return Composed.of_plain({str(top): _resolved(config, str(top)) for top in config if top != "hydra"}, parent)

    def __getitem__(self, top: str) -> Any:
        return self.contents[top].resolved

    def text(self, *tops: str) -> str:
        """One text for jobs whose contents under these keys are equal."""
        return "\n".join(self.contents[top].text for top in tops)

    def plain(self) -> dict[str, Any]:
        """Plain values by top-level key."""
        return {top: content.resolved for top, content in self.contents.items()}

    @property
    def key(self) -> str:
        """Equal for jobs that plan the same runs, as long as the files that they read stay the same."""
        return digest({top: content.text for top, content in self.contents.items() if top not in HOW})


@dataclass(frozen=True, slots=True)
class _Content:
    """A top-level key: its resolved content, and that written out."""

    resolved: Any
    text: str

    @staticmethod
    def of(content: Any) -> _Content:
        return _Content(content, json.dumps(content, sort_keys=True, default=str))


class _Base:
    """One composition by Hydra, of which jobs with other plain values are variants.

    Args:
        config: what Hydra composed.
        paths: keys that vary, as far as plain values do.
    """

    def __init__(self, config: DictConfig, paths: Iterable[KeyPath]) -> None:
        self.contents = Composed.of_config(config, "").contents
        raw: Any = OmegaConf.to_container(config, resolve=False)
        named: dict[str, Any] = {}
        self.parent = str(config.paths.output_dir)
        if "hydra" in config:  # a job of a sweep
            named = {"dir": raw.pop("hydra")["sweep"]["dir"]}
            self.parent = str(config.hydra.sweep.dir)
        referred = _referred({**raw, "hydra": {"sweep": named}})
        self.entangled = {path for path in paths if not self._is_plain(path, referred)}
        self._variants: dict[tuple[str, ...], _Content] = {}

    def _is_plain(self, path: KeyPath, referred: set[KeyPath] | None) -> bool:
        """Whether setting the key changes this key alone."""
        if referred is None or any(path[: len(other)] == other[: len(path)] for other in referred):
            return False
        node: Any = {top: content.resolved for top, content in self.contents.items()}
        for part in path:
            if not isinstance(node, dict) or part not in node:
                return False
            node = node[part]
        return not isinstance(node, dict)

    def variant(self, words: Iterable[Word]) -> Composed:
        """The configuration with plain values set."""
        touched: dict[str, list[Word]] = {}
        for word in words:
            assert word.path
            touched.setdefault(word.path[0], []).append(word)
        contents = dict(self.contents)
        for top, own in touched.items():
            typed = tuple(word.typed for word in own)
            if typed not in self._variants:
                if len(self._variants) >= KEPT:
                    self._variants.clear()
                self._variants[typed] = self._written(top, own)
            contents[top] = self._variants[typed]
        return Composed(contents, self.parent)

    def _written(self, top: str, words: Sequence[Word]) -> _Content:
        tree = {top: deepcopy(self.contents[top].resolved)}
        for word in words:
            assert word.path
            node: Any = tree
            for part in word.path[:-1]:
                node = node[part]
            node[word.path[-1]] = word.value
        return _Content.of(tree[top])


class Composer:
    """Composes the jobs of a sweep, each as if Hydra had.

    Args:
        loader: Hydra's; knows which words choose a group.
        load: the configuration of a job from its overrides.
    """

    def __init__(self, loader: ConfigLoader, load: Callable[[list[str]], DictConfig]) -> None:
        self.loader, self.load = loader, load
        self._parser = OverridesParser.create()
        self._words: dict[str, Word] = {}
        self._groups: dict[str, bool] = {}
        self._bases: dict[tuple[Any, ...], _Base] = {}

    def compose(self, overrides: Sequence[str]) -> Composed:
        """The configuration of a job.

        Raises:
            HydraException: Hydra refuses it.
        """
        words = [self._words.get(typed) or self._read(typed) for typed in overrides]
        base = self._base(words, overrides, frozenset())
        if base.entangled:
            base = self._base(words, overrides, frozenset(base.entangled))
        return base.variant(word for word in words if word.path and word.path not in base.entangled)

    def _base(self, words: Sequence[Word], overrides: Sequence[str], entangled: frozenset[KeyPath]) -> _Base:
        """The composition that all jobs share whose words differ in plain values of the same keys only."""
        kind = tuple(
            [word.path if word.path is not None and word.path not in entangled else word.typed for word in words]
        )
        found = self._bases.get(kind)
        if found is None:
            paths = [word.path for word in words if word.path is not None]
            found = self._bases[kind] = _Base(self.load(list(overrides)), paths)
            found.entangled |= entangled
        return found

    def _read(self, typed: str) -> Word:
        key, _, value = typed.partition("=")
        if _INTEGER.fullmatch(value) and re.fullmatch(r"[\w.]+", key):  # spares the parser for long ranges
            word = Word(typed, self._path(key), int(value))
        else:
            word = self._parsed(typed)
        self._words[typed] = word
        return word

    def _parsed(self, typed: str) -> Word:
        override = self._parser.parse_override(typed)
        key, value = override.key_or_group, override.value()
        sets = override.type in (OverrideType.CHANGE, OverrideType.FORCE_ADD) and override.package is None
        if not sets or override.is_sweep_override() or not _is_plain_value(value):
            return Word(typed)
        return Word(typed, self._path(key), value)

    def _path(self, key: str) -> KeyPath | None:
        """The parts of a key that sets a value; None for a choice and for what is Hydra's own."""
        if key not in self._groups:
            self._groups[key] = "/" in key or bool(self.loader.get_group_options(key))
        if self._groups[key] or key.startswith("hydra.") or "[" in key:
            return None
        return tuple(key.split("."))


def _resolved(config: DictConfig, top: str) -> Any:
    """What stands under a top-level key, without interpolations."""
    node = config[top]
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _is_plain_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_plain_value(each) for each in value)
    if isinstance(value, str):
        return "${" not in value and value != "???"
    return value is None or isinstance(value, (bool, int, float))


def _referred(tree: Any) -> set[KeyPath] | None:
    """Every key that an interpolation somewhere in a configuration names; None where that cannot be told."""
    found: set[KeyPath] = set()
    for place, leaf in _leaves(tree, ()):
        for match in _REFERENCE.finditer(leaf):
            name, end = match.groups()
            if end == ":" and name in FREE:
                continue
            if end == "$":  # ${a.${b}.c} names something below a, and b
                name = name.rstrip(".")
            elif end not in ("}", ","):
                return None
            if not name.strip(".") or "[" in name:
                return None
            depth = len(name) - len(name.lstrip("."))
            found.add((place[:-depth] if depth else ()) + tuple(name.lstrip(".").split(".")))
    return found


def _leaves(node: Any, place: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*place, str(key)))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _leaves(value, (*place, str(number)))
    elif isinstance(node, str) and "${" in node:
        yield place, node
