"""Compose the configuration of each study of a command.

Hydra takes some 100 ms to compose a configuration. Studies of a command differ in a few plain
values, so Hydra composes once for every choice of groups, and values are set in a copy of what it
composed. ``tests/plan/test_composing.py`` compares with Hydra's own composition over random sweeps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.records.spec import digest

MOST_CONTENTS = 4096  # that are remembered
#: how a command runs: it plans the same runs whatever stands there
HOW = frozenset(
    {"hydra", "paths", "logger", "selection", "execution", "plan", "retry", "wait", "sweep", "card"}
)


@dataclass(frozen=True, slots=True)
class Content:
    """The resolved value under a top-level key, and the same as JSON."""

    resolved: Any
    text: str

    @staticmethod
    def of(resolved: Any) -> Content:
        """Build the content of a resolved value, with its JSON."""
        try:
            text = json.dumps(resolved, sort_keys=True, default=str)
        except TypeError:  # {0: zero, nine: 9}: numbers and texts have no common order
            resolved = _with_text_keys(resolved)
            text = json.dumps(resolved, sort_keys=True, default=str)
        return Content(resolved, text)


@dataclass(frozen=True, slots=True)
class Composed:
    """A resolved configuration."""

    contents: Mapping[str, Content]  #: of each top-level key
    parent: str  #: folder that its studies go to

    @staticmethod
    def of_plain(config: Mapping[str, Any], parent: str) -> Composed:
        """Build from plain resolved values by top-level key."""
        return Composed({top: Content.of(resolved) for top, resolved in config.items()}, parent)

    @staticmethod
    def of_config(config: DictConfig, parent: str) -> Composed:
        """Resolve a configuration that Hydra composed."""
        return Composed.of_plain(
            {top: resolved(config, top) for top in map(str, config) if top != "hydra"}, parent
        )

    def __getitem__(self, top: str) -> Any:
        return self.contents[top].resolved

    def text(self, *tops: str) -> str:
        """Make one text that is equal for configurations with equal contents under these keys."""
        return "\n".join(self.contents[top].text for top in tops)

    def plain(self) -> dict[str, Any]:
        """Return the plain values by top-level key."""
        return {top: content.resolved for top, content in self.contents.items()}

    @property
    def key(self) -> str:
        """Digest that is equal for configurations that plan the same runs, as long as the files
        that they read stay.
        """
        return digest(
            {top: content.text for top, content in self.contents.items() if top not in HOW}
        )


@dataclass(frozen=True, slots=True)
class Override:
    """One override of a study."""

    typed: str  #: by the user
    top: str = ""  #: top-level key that it changes; empty if it chooses from a group
    key: str = ""  #: that it sets to a plain value; empty if it does more than that
    value: Any = None  #: plain


class Composer:
    """Composes configurations, each as Hydra would.

    Args:
        loader: tells groups from keys.
        load: composes from overrides.
        ready: overrides -> what was composed from them already, as a command's own configuration
            was.
    """

    def __init__(
        self,
        loader: ConfigLoader,
        load: Callable[[list[str]], DictConfig],
        ready: Mapping[tuple[str, ...], DictConfig] | None = None,
    ) -> None:
        self.load = load
        self._ready = ready or {}
        self._parser = OverridesParser.create()
        self._is_group = cache(lambda key: "/" in key or bool(loader.get_group_options(key)))
        self._overrides: dict[str, Override] = {}
        self._choices: dict[tuple[str, ...], _Template] = {}
        self._templates: dict[tuple[tuple[str, ...], ...], _Template] = {}

    def compose(self, words: Sequence[str]) -> Composed:
        """Compose the configuration of these overrides.

        Raises:
            HydraException: Hydra refuses it.
        """
        if tuple(words) in self._ready:
            config = self._ready[tuple(words)]
            return Composed.of_config(config, str(config.paths.output_dir))
        overrides = [self._overrides.get(word) or self._read(word) for word in words]
        # Hydra applies all of these in turn
        ordered = {override.top for override in overrides if not override.key}
        values = [
            override for override in overrides if override.key and override.top not in ordered
        ]
        choices = tuple(
            override.typed for override in overrides if not override.key or override.top in ordered
        )
        kind = choices, tuple(override.key for override in values)
        try:
            if kind not in self._templates:
                if choices not in self._choices:
                    self._choices[choices] = _Template(self.load(list(choices)))
                self._templates[kind] = self._choices[choices].of(
                    [override.key for override in values]
                )
            return self._templates[kind].with_values(values)
        except OmegaConfBaseException:  # Hydra says what is wrong in the words that were typed
            return _Template(self.load(list(words))).with_values([])

    def _read(self, word: str) -> Override:
        parsed = self._parser.parse_override(word)
        key = parsed.key_or_group
        sets = (
            parsed.type in (OverrideType.CHANGE, OverrideType.FORCE_ADD)
            and not parsed.is_sweep_override()
        )
        if self._is_group(key) or parsed.package is not None:
            override = Override(word)
        elif not sets or key.startswith("hydra.") or "[" in key or not _is_plain(parsed.value()):
            override = Override(word, key.partition(".")[0])
        else:
            override = Override(word, key.partition(".")[0], key, parsed.value())
        self._overrides[word] = override
        return override


class _Template:
    """A composition in which values of the same keys are set again and again."""

    nested = False  #: whether one of its keys lies under another

    def __init__(self, config: DictConfig) -> None:
        self.config = config
        raw: Any = OmegaConf.to_container(config, resolve=False)
        raw.pop("hydra", None)
        self.contents = {top: Content.of(content) for top, content in raw.items()}
        self.values: Sequence[Override] = ()
        self._contents: dict[str, Content] = {}
        self.interpolated = {
            top: content.text for top, content in self.contents.items() if "${" in content.text
        }
        self._resolve(set(self.interpolated))

    def of(self, keys: Sequence[str]) -> _Template:
        """Copy the template, before any values are set, for values of these keys in this order."""
        template = copy(self)
        template.config = deepcopy(self.config)
        template.contents = dict(self.contents)
        template.nested = any(
            f"{key}.".startswith(f"{parent}.") for key, parent in permutations(keys, 2)
        )
        return template

    def with_values(self, values: Sequence[Override]) -> Composed:
        """Resolve the composition with these values."""
        changed = values
        if (
            self.values and not self.nested
        ):  # where one key lies under another, the later replaces what the first set
            changed = [new for new, old in zip(values, self.values, strict=True) if new != old]
        self.values = ()  # an error leaves some of them set
        for override in changed:
            OmegaConf.update(
                self.config, override.key, override.value, force_add=override.typed.startswith("++")
            )
        self._resolve({override.top for override in changed})
        self.values = values
        folder = (
            self.config.hydra.sweep.dir if "hydra" in self.config else self.config.paths.output_dir
        )
        return Composed(dict(self.contents), str(folder))

    def _resolve(self, changed: set[str]) -> None:
        """Resolve the contents under these top-level keys, and under those that refer to them."""
        grown = True
        while grown:
            grown = False
            for top, text in self.interpolated.items():
                if top not in changed and _refers(text, changed):
                    changed.add(top)
                    grown = True
        for top in changed:
            self.contents[top] = self._shared(Content.of(resolved(self.config, top)))

    def _shared(self, content: Content) -> Content:
        """Return one object for equal contents: thousands of studies keep theirs."""
        if len(self._contents) >= MOST_CONTENTS:
            self._contents.clear()
        return self._contents.setdefault(content.text, content)


def resolved(config: DictConfig, top: str) -> Any:
    """Return the value under a top-level key, its interpolations resolved."""
    node = config[top]
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _with_text_keys(node: Any) -> Any:
    if isinstance(node, dict):
        return {str(key): _with_text_keys(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_text_keys(value) for value in node]
    return node


def _refers(text: str, tops: Iterable[str]) -> bool:
    """Return whether interpolations may name one of these keys, as any one may that is itself made
    from values.
    """
    for part in text.split("${")[1:]:
        name = part.partition("}")[0].rstrip()
        if not name or name.endswith(":") or any(top in name for top in tops):
            return True
    return False


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return "${" not in value and value != "???"
    return value is None or isinstance(value, (bool, int, float))
