"""``report=shift``: how far the environments of datasets are apart, from the rows of ``python
shift.py``.

Every setting is a section with the tables and figures of its estimator, and a sentence or two that
its estimates allow; sentences are made of estimates, never of rendered text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dgbench.analysis import spearman
from dgbench.analysis.selection import Selection
from dgbench.analysis.shift_verdicts import DOMINANT, is_above
from dgbench.errors import MeasureError
from dgbench.phases import tracked
from dgbench.plan.settings import FileName, Name
from dgbench.records.shift_rows import HALVES
from dgbench.reports.document import Document, Figure, Report, Section, leads, problem_table
from dgbench.reports.labels import variant_text, words_of
from dgbench.reports.published import Published, published
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.shift_settings import DIAGNOSTIC, VALUE, ShiftSetting, shift_settings
from dgbench.reports.reading.shifts import read_shifts
from dgbench.reports.tables import Table
from dgbench.reports.words import glossary
from dgbench.shift.cells import class_text, pair_text
from dgbench.shift.concept_tables import CONCEPT_TITLES, concept_table
from dgbench.shift.figures import shift_matrices, shift_plane
from dgbench.shift.tables import (
    DISTANCE_TITLES,
    PRETRAINING,
    distance_table,
    frechet_table,
    network_table,
    number_table,
    pair_tables,
    published_shifts,
    refusal_table,
    shift_table,
)
from dgbench.shift.verdicts import Verdict, verdicts
from dgbench.validation import Folders


class ShiftReport(Report):
    """Builds the tables and figures of estimated shift.

    ``conf/report/shift.yaml`` explains the keys.
    """

    name: FileName = "shift"
    roots: Folders = "multirun"
    published: Name | None = "ye2022_table8"
    unread = ("import", "same_code", "selection")

    def __call__(
        self,
        collection: Collection | None,
        selection: Selection | None,
        split_by: str | None = None,
    ) -> Document:
        source = published_shifts(self.published)
        shifts = read_shifts(self.roots)
        settings, setting_problems = shift_settings(shifts.rows, split_by)
        problems = [*shifts.problems, *setting_problems]
        sections = []
        for setting in tracked(settings, "statistics", len(settings), "settings"):
            estimator = str(setting.identity["estimator"])
            if estimator in _BUILDERS:
                sections.append(_section(setting, source))
            else:
                names = ", ".join(_BUILDERS)
                problems.append(
                    Problem("unknown estimator", setting.title, f"{estimator}; known are {names}")
                )
        datasets = {row.identity.dataset for row in shifts.rows}
        counts = (_count(len(shifts.rows), "estimate"), _count(len(datasets), "dataset"))
        return Document(
            title="How far the environments of datasets are apart",
            selection="",
            sections=sections,
            problems=problem_table(problems),
            lead=leads(
                f"{' of '.join(counts)} in {_count(len(shifts.folders), 'folder')}", problems
            ),
            words=glossary("shift", terms=["M_cov", "M_cpt"]),
        )


#: what stands in a section besides what all of them have: tables, answer, figures
_Parts = tuple[Sequence[Table | None], list[str], Sequence[Figure | None]]


def _plane(setting: ShiftSetting, source: Published | None) -> _Parts:
    names = dict(zip(setting.axes or (), ("diversity", "correlation"), strict=False))
    tables = [shift_table(setting, source), network_table(setting), *pair_tables(setting, names)]
    tables.append(number_table(setting, VALUE))
    judged = verdicts(setting)
    answer = [_headline(judged), *(verdict.sentence for verdict in judged.values())]
    return tables, answer, [shift_plane(setting, source), *shift_matrices(setting)]


def _headline(judged: Mapping[str, Verdict]) -> str:
    """Name the shift that dominates each dataset, and count those where this is undecided."""
    parts = []
    count = 0
    for kind in DOMINANT:
        titles = [title for title, verdict in judged.items() if verdict.kind == kind]
        count += len(titles)
        if titles:
            parts.append(f"{kind} shift dominates {', '.join(titles)}")
    if count == len(judged):
        return f"Decided: {'; '.join(parts)}."
    n_undecided = len(judged) - count
    undecided = (
        next(iter(judged)) if len(judged) == 1 else f"{n_undecided} of {len(judged)} datasets"
    )
    return f"Undecided: which shift dominates {undecided}{'; ' if parts else ''}{'; '.join(parts)}."


def _section(setting: ShiftSetting, source: Published | None) -> Section:
    """Build the tables and figures of one setting, whose estimator is one of :data:`_BUILDERS`."""
    tables, answer, figures = _BUILDERS[str(setting.identity["estimator"])](setting, source)
    tables = [*tables, refusal_table(setting), number_table(setting, DIAGNOSTIC)]
    return Section(
        setting.name,
        setting.title,
        [table for table in tables if table is not None],
        [figure for figure in figures if figure is not None],
        answer=answer,
        facts=_facts(setting),
    )


def _facts(setting: ShiftSetting) -> list[tuple[str, str]]:
    identity = setting.identity
    facts = [
        ("estimator", str(identity["estimator"])),
        ("network", f"{identity['backbone']}, {identity['init']} init"),
        ("features", str(identity["features"])),
        ("images", str(identity["images"])),
        (
            "settings",
            ", ".join(
                f"{key}={words_of(value)}" for key, value in sorted(identity["settings"].items())
            ),
        ),
    ]
    for line in setting.lines:
        environments = f"environments {', '.join(map(str, line.identity['given']))}"
        classes = f"classes {class_text(line)}"
        facts.append(
            (
                line.title,
                "; ".join([variant_text(line.identity), pair_text(line), environments, classes]),
            )
        )
    return [*facts, ("code", ", ".join(setting.codes))]


def _distances(setting: ShiftSetting, source: Published | None) -> _Parts:
    """Build the tables of distances, and say which datasets the earth mover's distance tells from
    no shift.
    """
    titles: dict[bool, list[str]] = {True: [], False: []}
    for line in setting.lines:
        estimate = line.value("emd")
        null = line.value("emd", HALVES)
        if estimate and null and estimate.ends and null.ends:
            titles[is_above(estimate, null)].append(line.title)
    tables = [distance_table(setting), *pair_tables(setting, DISTANCE_TITLES)]
    sentences = []
    if titles[True]:
        sentences.append(
            f"EMD tells from no shift: {', '.join(titles[True])} (95% intervals apart)."
        )
    if titles[False]:
        sentences.append(f"EMD does not tell from no shift: {', '.join(titles[False])}.")
    return (
        tables,
        sentences or ["EMD has no null or no interval here: estimate with null=true and trials=5."],
        [],
    )


def _concept(setting: ShiftSetting, source: Published | None) -> _Parts:
    """Build the tables.

    A note names where classifiers of both sides disagree more than those of halves of one side.
    """
    sentences = []
    for line in setting.lines:
        low = line.value("min")
        noise = line.value("noise")
        if low is None or noise is None:
            continue
        if not low.ends or not noise.ends:
            words = "which has no interval, so concept shift cannot be told from estimation error"
        elif is_above(low, noise):
            words = "so there is concept shift besides estimation error"
        else:
            words = "so concept shift cannot be told from estimation error"
        sentences.append(
            f"{line.title}: M_cpt min is {low}, without shift {noise} (95% intervals), {words}."
        )
    return [concept_table(setting), *pair_tables(setting, CONCEPT_TITLES)], sentences, []


def _frechet(setting: ShiftSetting, source: Published | None) -> _Parts:
    """Name the environments nearest to and farthest from the pretraining images.

    Their order is compared with a paper's.
    """
    printed = published(PRETRAINING)
    sentences = []
    for line in setting.lines:
        distances = {}
        for pair, env in line.pairs["q"].items():
            estimate = line.value("d2_inf", pair=str(pair)) or line.value("d2", pair=str(pair))
            if estimate:
                distances[str(env)] = estimate.value
        if not distances:
            continue
        order = sorted(distances, key=lambda env: distances[env])
        text = (
            f"{line.title}: nearest to the pretraining images is {order[0]} "
            f"({distances[order[0]]:.1f})"
        )
        text += f", farthest {order[-1]} ({distances[order[-1]]:.1f})" if len(order) > 1 else ""
        rows = {env: f"{line.identity['dataset']}/{env}".replace(" ", "_") for env in distances}
        gaps = {
            env: printed.values[row]["gap"].mean
            for env, row in rows.items()
            if row in printed.values
        }
        if len(gaps) > 2:
            paper, *_, place = printed.source.split(", ")
            try:
                rho = spearman({env: distances[env] for env in gaps}, gaps)
                text += (
                    f"; rank correlation with the gap printed in {paper}, {place}: {rho:.2f} "
                    f"(n={len(gaps)})"
                )
            except MeasureError:  # all distances are equal
                pass
        sentences.append(f"{text}.")
    return [frechet_table(setting)], sentences, []


_BUILDERS: dict[str, Callable[[ShiftSetting, Published | None], _Parts]] = {
    "joint": _plane,
    "ood_bench": _plane,
    "distances": _distances,
    "concept": _concept,
    "frechet": _frechet,
}


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
