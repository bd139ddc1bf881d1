"""A benchmark: one dataset in several settings (ratio x scale x ...), each with studies of its own.

Errors of different settings are never averaged into one number, except where a title says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dgbench.errors import ConfigError, MeasureError
from dgbench.plan.measures import IDEAL, MeasureChoice
from dgbench.records.run_identity import Role, identity_key, keys
from dgbench.reports.evaluation import Evaluation, Setting
from dgbench.reports.labels import setting_titles, slug, sortable
from dgbench.reports.over_seeds import Ranking, algorithms_of, complete, seeds_of
from dgbench.reports.reading.collect import ADVICE
from dgbench.reports.tables import Column, Table, table

_FORM = keys(Role.FORM)  # what the settings of one benchmark may differ in


@dataclass(frozen=True)
class BenchmarkLine:
    """One setting of a benchmark: a line of its tables."""

    values: dict[str, str]  #: axis -> value, as a table prints it
    evaluation: Evaluation  #: of this setting alone

    @property
    def setting(self) -> Setting:
        return self.evaluation.settings[0]

    @property
    def studies(self) -> pd.DataFrame:
        """Its studies, see :class:`~dgbench.reports.evaluation.Evaluation`."""
        return self.evaluation.studies

    @property
    def count(self) -> int:
        """Number N of given environments."""
        return len(self.setting.given)

    @cached_property
    def seeds(self) -> list[int]:
        return seeds_of(self.studies)

    def label(self, without: str | None = None) -> str:
        """Format the values as ``ratio=3, scale=1``, less the axis ``without``; empty when nothing
        is left.
        """
        return ", ".join(
            f"{axis}={value}" for axis, value in self.values.items() if axis != without
        )


@dataclass(frozen=True)
class Benchmark:
    """Settings of one dataset with the same base images, errors, network, tuning, protocol and
    seeds.
    """

    title: str
    identity: dict[str, Any]  #: what all settings share
    axes: tuple[str, ...]  #: what they differ in, the size axis first
    lines: list[BenchmarkLine]  #: sorted by their values
    size_axis: str | None  #: the axis with which N grows in proportion, e.g. ``scale``
    refused: str = ""  #: why they must not share a table

    @property
    def name(self) -> str:
        """Short form of the title, for files and anchors."""
        return slug(self.title)

    @cached_property
    def studies(self) -> pd.DataFrame:
        """The studies of all its settings."""
        return pd.concat([line.studies for line in self.lines], ignore_index=True)

    @cached_property
    def selections(self) -> pd.DataFrame:
        """Whom every measure selects in all its settings."""
        parts = [line.evaluation.selections for line in self.lines]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def rankings(self) -> tuple[dict[str, Ranking], str]:
        """Ranks of algorithms over the settings by each measure, or why there are none.

        Each setting is a block, of means over seeds.
        """
        names = [measure.name for measure in self.measures.ranked]
        matrices = [complete(line.studies, names) for line in self.lines]
        usable = [by_measure for by_measure in matrices if len(by_measure[IDEAL]) > 2]
        indices = [set(by_measure[IDEAL].index) for by_measure in usable]
        common = sorted(set.intersection(*indices)) if indices else []
        if len(common) < 3 or len(usable) < 2:
            return {}, (
                f"{len(common)} algorithms are complete in {len(usable)} settings; "
                "ranks need 3 or more algorithms in 2 or more"
            )
        ranked = {}
        for measure in names:
            means = [
                by_measure[measure].loc[common].to_numpy().mean(axis=1) for by_measure in usable
            ]
            try:
                ranked[measure] = Ranking.of(common, np.array(means))
            except MeasureError as problem:
                return {}, str(problem)
        return ranked, ""

    @property
    def measures(self) -> MeasureChoice:
        """The measures of its tables."""
        return self.lines[0].evaluation.measures

    @property
    def seeds(self) -> list[int]:
        """All seeds that occur."""
        return seeds_of(self.studies)

    @property
    def algorithms(self) -> list[str]:
        """All algorithms that occur."""
        return algorithms_of(self.studies)

    def by_size(self) -> dict[str, list[BenchmarkLine]]:
        """Group settings by the label of the other axes, from the smallest to the largest N; 2
        sizes or more each.
        """
        if self.size_axis is None:
            return {}
        groups: dict[str, list[BenchmarkLine]] = defaultdict(list)
        for line in self.lines:
            groups[line.label(without=self.size_axis)].append(line)
        by_count = {
            label: sorted(lines, key=lambda line: line.count) for label, lines in groups.items()
        }
        return {label: lines for label, lines in by_count.items() if len(lines) > 1}

    def at_size(self) -> dict[str, list[BenchmarkLine]]:
        """Group settings by size: ``scale=1`` -> its settings; one group without a name when there
        is no size axis.
        """
        groups: dict[str, list[BenchmarkLine]] = defaultdict(list)
        for line in self.lines:
            size = f"{self.size_axis}={line.values[self.size_axis]}" if self.size_axis else ""
            groups[size].append(line)
        return dict(groups)

    def side_by_side(self, setting: Setting) -> bool:
        """Return whether a figure of the benchmark shows this setting beside others of its size."""
        if self.refused:
            return False
        for lines in self.at_size().values():
            if len(lines) > 1 and setting.title in [line.setting.title for line in lines]:
                return True
        return False


def benchmarks(evaluation: Evaluation, size_axis: str | None = None) -> list[Benchmark]:
    """Build a benchmark of every dataset that occurs in 2 or more settings.

    Args:
        evaluation: of all settings.
        size_axis: the key that scales N; None finds it.

    Raises:
        ConfigError: ``size_axis`` is given and no benchmark has it.
    """
    groups: dict[str, list[Setting]] = defaultdict(list)
    for setting in evaluation.settings:
        groups[identity_key(setting.identity, list(_shared(setting)))].append(setting)
    large_groups = [settings for settings in groups.values() if len(settings) > 1]
    shared = [_shared(settings[0]) for settings in large_groups]
    all_benchmarks = []
    titles = setting_titles(shared)
    for title, identity, settings in zip(titles, shared, large_groups, strict=True):
        evaluations = [evaluation.of(setting.title) for setting in settings]
        all_benchmarks.append(_benchmark(title, identity, evaluations, size_axis))
    having = [benchmark for benchmark in all_benchmarks if benchmark.size_axis == size_axis]
    if size_axis is not None and not having:
        axes = sorted(set().union(*(benchmark.axes for benchmark in all_benchmarks)))
        raise ConfigError(
            f"report.size_axis={size_axis} tells no settings apart; choose from "
            f"{', '.join(axes) or 'none'}, or null"
        )
    return all_benchmarks


def benchmark_of_one(evaluation: Evaluation) -> Benchmark:
    """Build a benchmark of one line from a setting that shares its dataset with no other."""
    (setting,) = evaluation.settings
    return _benchmark(setting.title, _shared(setting), [evaluation], None)


def _shared(setting: Setting) -> dict[str, Any]:
    """Return the part of a setting's identity that all settings of its benchmark share."""
    return {key: value for key, value in setting.identity.items() if key not in _FORM}


def _benchmark(
    title: str, identity: dict[str, Any], evaluations: Sequence[Evaluation], size_axis: str | None
) -> Benchmark:
    settings = [evaluation.settings[0] for evaluation in evaluations]
    plain = [_form(setting) for setting in settings]
    forms = plain
    if len({json.dumps(form, sort_keys=True) for form in forms}) < len(forms):
        forms = [
            {**form, "given": ", ".join(s.given)} for form, s in zip(forms, settings, strict=True)
        ]
    axes = []
    for name in sorted(set().union(*forms)):
        values = {form.get(name, "-") for form in forms}
        if len(values) > 1:
            axes.append(name)
    for measure in evaluations[0].measures.compared:
        if measure.title in axes:
            raise ConfigError(
                f"measure {measure.name} has the title {measure.title!r}, which tells settings of "
                f"{title} apart; give it another"
            )
    counts = [len(setting.given) for setting in settings]
    forms = [_restricted(form, axes) for form in forms]
    size = size_axis if size_axis in axes else _find_size_axis(forms, counts)
    axes.sort(key=lambda axis: (axis != size, axis))
    lines = [
        BenchmarkLine(_restricted(form, axes), evaluation)
        for form, evaluation in zip(forms, evaluations, strict=True)
    ]
    lines.sort(key=lambda line: [sortable(line.values[axis]) for axis in axes])
    codes = {}
    for setting, form in zip(settings, plain, strict=True):
        words = ", ".join(f"{name}={value}" for name, value in form.items())
        codes.update(dict.fromkeys(setting.codes, words))
    refused = ""
    if len(codes) > 1:
        listed = ", ".join(f"{code} ({words})" for code, words in sorted(codes.items()))
        refused = (
            f"settings of {len(codes)} code versions would share a table: {listed}; "
            f"give each version its own with {ADVICE}"
        )
    return Benchmark(title, identity, tuple(axes), lines, size, refused)


def _restricted(form: Mapping[str, str], axes: Sequence[str]) -> dict[str, str]:
    """Return the values of a setting on these axes, ``-`` where it has none."""
    return {axis: form.get(axis, "-") for axis in axes}


def _find_size_axis(forms: Sequence[Mapping[str, str]], counts: Sequence[int]) -> str | None:
    """Find the axis with values proportional to N (``counts``) while the others stay: ``scale``,
    but not ``ratio``.
    """
    for axis in forms[0]:
        groups: dict[tuple[str, ...], dict[float, int]] = defaultdict(dict)
        for form, count in zip(forms, counts, strict=True):
            is_text, value, _ = sortable(form[axis])
            if is_text or value <= 0:
                break
            groups[tuple(form[other] for other in forms[0] if other != axis)][value] = count
        else:
            series = [sizes for sizes in groups.values() if len(sizes) > 1]
            if series and all(map(_is_proportional, series)):
                return axis
    return None


def _is_proportional(sizes: Mapping[float, int]) -> bool:
    """Return whether counts are the same multiple of the values that they belong to."""
    return len({count / value for value, count in sizes.items()}) == 1


def _form(setting: Setting) -> dict[str, str]:
    """Collect the names and values that tell the form of a dataset, besides its environments."""
    identity = setting.identity
    fields = {key: identity[key] for key in _FORM if key not in ("variant", "given")}
    return {name: str(value) for name, value in {**identity["variant"], **fields}.items()}


def settings_table(
    benchmark: Benchmark,
    lines: Sequence[Mapping[str, Any]],
    name: str,
    title: str,
    columns: Sequence[Column],
    notes: Sequence[str],
    detail: bool = False,
) -> Table:
    """Build a table whose lines begin with the values that name a setting."""
    axes = [Column(axis, key=True) for axis in benchmark.axes]
    keys = [*axes, Column("N", unit="count", help="given environments", key=True)]
    return table(lines, name, title, [*keys, *columns], notes, detail)
