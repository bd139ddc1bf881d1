"""The section of each estimator: its tables, figures and sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgbench.reports.document import Figure, Section
from dgbench.reports.figures.shift_matrix import shift_matrices
from dgbench.reports.figures.shift_plane import shift_plane
from dgbench.reports.labels import variant_text, words_of
from dgbench.reports.published import Published
from dgbench.reports.shift.distance_tables import (
    CONCEPT_TITLES,
    DISTANCE_TITLES,
    class_distance_table,
    concept_table,
    distance_table,
    frechet_table,
)
from dgbench.reports.shift.pair_values import DIAGNOSTIC, VALUE
from dgbench.reports.shift.shift_answers import concept_answer, distance_answer, frechet_answer, plane_answer
from dgbench.reports.shift.shift_columns import class_text, pair_text
from dgbench.reports.shift.shift_estimates import ShiftSetting
from dgbench.reports.shift.shift_tables import number_table, pair_tables, refusal_table, shift_table
from dgbench.reports.tables import Table

_Tables = list[Table | None]


@dataclass(frozen=True)
class _Parts:
    """What stands in a section besides what all of them have."""

    tables: _Tables
    answer: list[str]
    figures: Sequence[Figure | None] = ()


def _plane(setting: ShiftSetting, theirs: Published | None) -> _Parts:
    names = dict(zip(setting.axes or (), ("diversity", "correlation"), strict=False))
    tables = [shift_table(setting, theirs), *pair_tables(setting, names), number_table(setting, VALUE)]
    return _Parts(tables, plane_answer(setting), [shift_plane(setting, theirs), *shift_matrices(setting)])


def _distances(setting: ShiftSetting, theirs: Published | None) -> _Parts:
    tables = [distance_table(setting), class_distance_table(setting), *pair_tables(setting, DISTANCE_TITLES)]
    return _Parts(tables, distance_answer(setting))


def _concept(setting: ShiftSetting, theirs: Published | None) -> _Parts:
    return _Parts([concept_table(setting), *pair_tables(setting, CONCEPT_TITLES)], concept_answer(setting))


def _frechet(setting: ShiftSetting, theirs: Published | None) -> _Parts:
    return _Parts([frechet_table(setting)], frechet_answer(setting))


_BUILDERS: dict[str, Callable[[ShiftSetting, Published | None], _Parts]] = {
    "joint": _plane,
    "ood_bench": _plane,
    "distances": _distances,
    "concept": _concept,
    "frechet": _frechet,
}
ESTIMATORS = tuple(_BUILDERS)


def shift_section(setting: ShiftSetting, theirs: Published | None) -> Section:
    """Tables and figures of one setting.

    Args:
        setting: of one of :data:`ESTIMATORS`.
        theirs: the published table of shifts that stands beside diversity and correlation shift.
    """
    parts = _BUILDERS[str(setting.identity["estimator"])](setting, theirs)
    tables = [*parts.tables, refusal_table(setting), number_table(setting, DIAGNOSTIC)]
    return Section(
        setting.name,
        setting.title,
        [each for each in tables if each is not None],
        [each for each in parts.figures if each is not None],
        answer=parts.answer,
        facts=_facts(setting),
    )


def _facts(setting: ShiftSetting) -> list[tuple[str, str]]:
    who = setting.identity
    facts = [("estimator", str(who["estimator"])), ("network", f"{who['backbone']}, {who['init']} init")]
    facts += [("features", str(who["features"])), ("images", str(who["images"]))]
    facts.append(("settings", ", ".join(f"{key}={words_of(value)}" for key, value in sorted(who["settings"].items()))))
    for line in setting.lines:
        environments = ", ".join(map(str, line.identity["given"]))
        facts.append((line.title, f"{variant_text(line.identity)}; {pair_text(setting, line.title)}; environments "
                                  f"{environments}; classes {class_text(setting, line.title)}"))  # fmt: skip
    return [*facts, ("code", ", ".join(setting.codes))]
