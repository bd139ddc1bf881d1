"""A survey: one dataset in several configurations (ratio x scale x ...), each a comparison of its own.

Only tables with one line per configuration, and figures that name theirs, are made of a survey: errors of different
configurations are never averaged into one number, except where a title says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import ConfigError
from dgbench.reports.code_versions import ADVICE
from dgbench.reports.comparisons import Comparison

#: what the configurations of one survey may differ in
FREE_KEYS = ("variant", "given")


@dataclass(frozen=True)
class Configuration:
    """One line of a survey's tables."""

    values: dict[str, str]  #: axis -> value, as a table prints it
    comparison: Comparison

    @property
    def count(self) -> int:
        """Number N of given environments."""
        return len(self.comparison.identity["given"])

    def label(self, without: str | None = None) -> str:
        """``ratio=3, scale=1``; empty when nothing is left."""
        return ", ".join(f"{axis}={value}" for axis, value in self.values.items() if axis != without)


@dataclass(frozen=True)
class Survey:
    """Configurations of one dataset with the same base images, errors, network, tuning, protocol and seeds."""

    identity: dict[str, Any]  #: what all configurations share
    axes: tuple[str, ...]  #: what they differ in, the size axis first
    configurations: list[Configuration]  #: sorted by their values
    size_axis: str | None  #: the axis with which N grows in proportion, e.g. ``scale``
    refused: str = ""  #: why they must not share a table

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for configuration in self.configurations for seed in configuration.comparison.seeds})

    @property
    def algorithms(self) -> list[str]:
        return sorted({name for configuration in self.configurations for name in configuration.comparison.algorithms})

    def by_size(self) -> dict[str, list[Configuration]]:
        """The other axes' label -> its configurations from the smallest to the largest N; 2 sizes or more."""
        if self.size_axis is None:
            return {}
        groups: dict[str, list[Configuration]] = defaultdict(list)
        for configuration in self.configurations:
            groups[configuration.label(without=self.size_axis)].append(configuration)
        ordered = {label: sorted(members, key=lambda c: c.count) for label, members in groups.items()}
        return {label: members for label, members in ordered.items() if len(members) > 1}

    def at_size(self) -> dict[str, list[Configuration]]:
        """``scale=1`` -> its configurations; one group without a name when there is no size axis."""
        groups: dict[str, list[Configuration]] = defaultdict(list)
        for configuration in self.configurations:
            size = f"{self.size_axis}={configuration.values[self.size_axis]}" if self.size_axis else ""
            groups[size].append(configuration)
        return dict(groups)


def surveys(comparisons: Sequence[Comparison], size_axis: str | None = None) -> list[Survey]:
    """Every dataset that occurs in 2 or more configurations.

    Args:
        comparisons: what :func:`dgbench.reports.comparisons.compare` returned.
        size_axis: the key that scales N; None finds it.

    Raises:
        ConfigError: ``size_axis`` is given and no survey has it.
    """
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        shared = {key: value for key, value in comparison.identity.items() if key not in FREE_KEYS}
        groups[json.dumps(shared, sort_keys=True, default=str)].append(comparison)
    found = [_survey(group, size_axis) for group in groups.values() if len(group) > 1]
    if size_axis is not None and not any(survey.size_axis == size_axis for survey in found):
        axes = sorted({axis for survey in found for axis in survey.axes})
        raise ConfigError(
            f"report.size_axis={size_axis} tells no configurations apart; "
            f"choose from {', '.join(axes) or 'none'}, or null"
        )
    return found


def matrices(
    comparison: Comparison, measures: Sequence[str]
) -> tuple[list[str], list[int], dict[str, NDArray[np.float64]]]:
    """The algorithms that have every one of these measures for every seed, the seeds, and measure -> (A, S) values."""
    values = {measure: comparison.values(measure) for measure in measures}
    seeds = comparison.seeds
    names = [a for a in comparison.algorithms if all(set(seeds) <= v.get(a, {}).keys() for v in values.values())]
    tables = {m: np.array([[v[a][seed] for seed in seeds] for a in names], dtype=float) for m, v in values.items()}
    return names, seeds, tables


def _survey(group: Sequence[Comparison], size_axis: str | None) -> Survey:
    forms = [_form(comparison) for comparison in group]
    if len({json.dumps(form, sort_keys=True) for form in forms}) < len(forms):
        forms = [
            {**form, "given": ", ".join(map(str, c.identity["given"]))} for form, c in zip(forms, group, strict=True)
        ]
    names = sorted({name for form in forms for name in form})
    axes = [name for name in names if len({form.get(name, "-") for form in forms}) > 1]
    lines = [
        Configuration({axis: form.get(axis, "-") for axis in axes}, c) for form, c in zip(forms, group, strict=True)
    ]
    size = size_axis if size_axis in axes else _find_size_axis(lines, axes)
    axes.sort(key=lambda axis: (axis != size, axis))
    lines = [Configuration({axis: line.values[axis] for axis in axes}, line.comparison) for line in lines]
    lines.sort(key=lambda line: [_sortable(line.values[axis]) for axis in axes])
    shared = {key: value for key, value in group[0].identity.items() if key not in FREE_KEYS}
    codes = {code: c for c in group for code in c.codes}
    refused = ""
    if len(codes) > 1:
        listed = ", ".join(f"{code} ({_text(_form(c))})" for code, c in sorted(codes.items()))
        refused = (
            f"configurations of {len(codes)} code versions would share a table: {listed}; "
            f"give each version its own with {ADVICE}"
        )
    return Survey(shared, tuple(axes), lines, size, refused)


def _find_size_axis(lines: Sequence[Configuration], axes: Sequence[str]) -> str | None:
    """The axis whose value is proportional to N while the others stay: ``scale``, but not ``ratio``."""
    for axis in axes:
        groups: dict[str, dict[float, int]] = defaultdict(dict)
        for line in lines:
            value = _sortable(line.values[axis])
            if value[0] or value[1] <= 0:
                break
            groups[line.label(without=axis)][value[1]] = line.count
        else:
            several = [sizes for sizes in groups.values() if len(sizes) > 1]
            if several and all(len({count / value for value, count in s.items()}) == 1 for s in several):
                return axis
    return None


def _form(comparison: Comparison) -> dict[str, str]:
    return {name: str(value) for name, value in comparison.identity["variant"].items()}


def _text(form: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in form.items())


def _sortable(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then everything else by the alphabet."""
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value
