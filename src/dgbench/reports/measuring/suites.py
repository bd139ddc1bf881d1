"""A suite: one dataset in several settings (ratio x scale x ...), each with studies of its own.

Only tables with one line per setting, and figures that name theirs, are made of a suite: errors of different settings
are never averaged into one number, except where a title says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dgbench.errors import ConfigError
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.evaluation import Evaluation, Setting
from dgbench.reports.labels import setting_titles, slug
from dgbench.reports.over_seeds import (
    algorithms_of,
    seeds_of,
)
from dgbench.reports.reading.collect import ADVICE


@dataclass(frozen=True)
class SuiteLine:
    """One setting of a suite: a line of its tables."""

    values: dict[str, str]  #: axis -> value, as a table prints it
    evaluation: Evaluation  #: of this setting alone

    @property
    def setting(self) -> Setting:
        """The setting."""
        return self.evaluation.settings[0]

    @property
    def studies(self) -> pd.DataFrame:
        """Its studies, see :class:`~dgbench.reports.evaluation.Evaluation`."""
        return self.evaluation.studies

    @property
    def count(self) -> int:
        """Number N of given environments."""
        return len(self.setting.given)

    def label(self, without: str | None = None) -> str:
        """``ratio=3, scale=1``; empty when nothing is left."""
        return ", ".join(f"{axis}={value}" for axis, value in self.values.items() if axis != without)


@dataclass(frozen=True)
class Suite:
    """Settings of one dataset with the same base images, errors, network, tuning, protocol and seeds."""

    title: str
    identity: dict[str, Any]  #: what all settings share
    axes: tuple[str, ...]  #: what they differ in, the size axis first
    lines: list[SuiteLine]  #: sorted by their values
    size_axis: str | None  #: the axis with which N grows in proportion, e.g. ``scale``
    refused: str = ""  #: why they must not share a table

    @property
    def name(self) -> str:
        """For files and anchors."""
        return slug(self.title)

    @property
    def studies(self) -> pd.DataFrame:
        """The studies of all its settings."""
        return pd.concat([line.studies for line in self.lines], ignore_index=True)

    @property
    def seeds(self) -> list[int]:
        """All seeds that occur."""
        return seeds_of(self.studies)

    @property
    def algorithms(self) -> list[str]:
        """All algorithms that occur."""
        return algorithms_of(self.studies)

    def by_size(self) -> dict[str, list[SuiteLine]]:
        """The other axes' label -> its settings from the smallest to the largest N; 2 sizes or more."""
        if self.size_axis is None:
            return {}
        groups: dict[str, list[SuiteLine]] = defaultdict(list)
        for line in self.lines:
            groups[line.label(without=self.size_axis)].append(line)
        ordered = {label: sorted(own, key=lambda line: line.count) for label, own in groups.items()}
        return {label: own for label, own in ordered.items() if len(own) > 1}

    def at_size(self) -> dict[str, list[SuiteLine]]:
        """``scale=1`` -> its settings; one group without a name when there is no size axis."""
        groups: dict[str, list[SuiteLine]] = defaultdict(list)
        for line in self.lines:
            groups[f"{self.size_axis}={line.values[self.size_axis]}" if self.size_axis else ""].append(line)
        return dict(groups)

    def side_by_side(self, setting: Setting) -> bool:
        """Whether a picture of the suite shows this setting beside others of its size."""
        shown = [[line.setting.title for line in lines] for lines in self.at_size().values()]
        return not self.refused and any(setting.title in titles for titles in shown if len(titles) > 1)


def suites(evaluation: Evaluation, size_axis: str | None = None) -> list[Suite]:
    """Every dataset that occurs in 2 or more settings.

    Args:
        evaluation: of all settings.
        size_axis: the key that scales N; None finds it.

    Raises:
        ConfigError: ``size_axis`` is given and no suite has it.
    """
    groups: dict[str, list[Setting]] = defaultdict(list)
    form = keys(Role.FORM)  # what the settings of one suite may differ in
    for setting in evaluation.settings:
        groups[identity_key(setting.identity, [key for key in setting.identity if key not in form])].append(setting)
    several = [own for own in groups.values() if len(own) > 1]
    shared_by = [{key: v for key, v in own[0].identity.items() if key not in form} for own in several]
    titles = setting_titles(shared_by)
    found = [
        _suite(title, identity, [evaluation.of(setting.title) for setting in own], size_axis)
        for title, identity, own in zip(titles, shared_by, several, strict=True)
    ]
    if size_axis is not None and not any(suite.size_axis == size_axis for suite in found):
        axes = sorted({axis for suite in found for axis in suite.axes})
        raise ConfigError(
            f"report.size_axis={size_axis} tells no settings apart; choose from {', '.join(axes) or 'none'}, or null"
        )
    return found


def _suite(title: str, identity: dict[str, Any], own: Sequence[Evaluation], size_axis: str | None) -> Suite:
    settings = [evaluation.settings[0] for evaluation in own]
    forms = [_form(setting) for setting in settings]
    if len({json.dumps(form, sort_keys=True) for form in forms}) < len(forms):
        forms = [{**form, "given": ", ".join(s.given)} for form, s in zip(forms, settings, strict=True)]
    names = sorted({name for form in forms for name in form})
    axes = [name for name in names if len({form.get(name, "-") for form in forms}) > 1]
    lines = [
        SuiteLine({axis: form.get(axis, "-") for axis in axes}, each) for form, each in zip(forms, own, strict=True)
    ]
    size = size_axis if size_axis in axes else _find_size_axis(lines, axes)
    axes.sort(key=lambda axis: (axis != size, axis))
    lines = [SuiteLine({axis: line.values[axis] for axis in axes}, line.evaluation) for line in lines]
    lines.sort(key=lambda line: [_sortable(line.values[axis]) for axis in axes])
    codes = {code: setting for setting in settings for code in setting.codes}
    refused = ""
    if len(codes) > 1:
        listed = ", ".join(f"{code} ({_text(_form(setting))})" for code, setting in sorted(codes.items()))
        refused = (
            f"settings of {len(codes)} code versions would share a table: {listed}; "
            f"give each version its own with {ADVICE}"
        )
    return Suite(title, identity, tuple(axes), lines, size, refused)


def _find_size_axis(lines: Sequence[SuiteLine], axes: Sequence[str]) -> str | None:
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


def _form(setting: Setting) -> dict[str, str]:
    """What tells the form of a dataset, besides its environments."""
    identity = setting.identity
    others = {key: identity[key] for key in keys(Role.FORM) if key not in ("variant", "given")}
    return {name: str(value) for name, value in {**identity["variant"], **others}.items()}


def _text(form: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in form.items())


def _sortable(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then everything else by the alphabet."""
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value
