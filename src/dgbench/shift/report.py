"""What the estimates of one setting show, in a sentence or two; made of frames, never of rendered text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgbench.errors import MeasureError
from dgbench.records.shift_rows import HALVES
from dgbench.reports.document import Document, Figure, Section, leads, problem_table
from dgbench.reports.frames import Table
from dgbench.reports.published import Published, published
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.shift_estimates import (
    DIAGNOSTIC,
    VALUE,
    ShiftSetting,
    estimate_of,
    is_above,
    shift_settings,
    value_line,
    verdicts,
)
from dgbench.reports.reading.shift_files import read_shifts
from dgbench.reports.settings.labels import variant_text, words_of
from dgbench.selection.methods import Selection
from dgbench.shift.distance_tables import (
    CONCEPT_TITLES,
    DISTANCE_TITLES,
    class_distance_table,
    concept_table,
    distance_table,
    frechet_table,
)
from dgbench.shift.figures import shift_matrices, shift_plane
from dgbench.shift.tables import (
    PRETRAINING,
    class_text,
    number_table,
    pair_tables,
    pair_text,
    pairs_of,
    published_shifts,
    refusal_table,
    shift_table,
    short_source,
)
from dgbench.statistics import spearman


def plane_answer(setting: ShiftSetting) -> list[str]:
    """The verdict of every dataset."""
    return [verdict.sentence for verdict in verdicts(setting).values()]


def distance_answer(setting: ShiftSetting) -> list[str]:
    """Which datasets the earth mover's distance tells from no shift."""
    return _told(setting, "emd", "EMD")


def concept_answer(setting: ShiftSetting) -> list[str]:
    """Where classifiers of two sides disagree more than those of two halves of one distribution."""
    sentences = []
    for line in setting.lines:
        low, noise = (estimate_of(setting, line.title, name) for name in ("min", "noise"))
        if low is None or noise is None:
            continue
        if not low.ends or not noise.ends:
            said = "which has no interval, so concept shift cannot be told from estimation error"
        elif is_above(low, noise):
            said = "so there is concept shift besides estimation error"
        else:
            said = "so concept shift cannot be told from estimation error"
        sentences.append(f"{line.title}: M_cpt min is {low}, without shift {noise} (95% intervals), {said}.")
    return sentences


def frechet_answer(setting: ShiftSetting) -> list[str]:
    """The environments nearest to and farthest from the pretraining images, and their order in a paper's table."""
    theirs, sentences = published(PRETRAINING), []
    for line in setting.lines:
        own = setting.pairs[setting.pairs["dataset"] == line.title].set_index("pair")["q"]
        found = {str(own[pair]): value for pair in pairs_of(setting, line.title)
                 if (value := _distance(setting, line.title, pair)) is not None}  # fmt: skip
        if not found:
            continue
        order = sorted(found, key=lambda env: found[env])
        text = f"{line.title}: nearest to the pretraining images is {order[0]} ({found[order[0]]:.1f})"
        text += f", farthest {order[-1]} ({found[order[-1]]:.1f})" if len(order) > 1 else ""
        dataset = line.identity["dataset"]
        gaps = {env: theirs.values[row]["gap"].mean for env in found
                if (row := f"{dataset}/{env}".replace(" ", "_")) in theirs.values}  # fmt: skip
        if len(gaps) > 2:
            try:
                rho = spearman({env: found[env] for env in gaps}, gaps)
                text += f"; rank correlation with the gap printed in {short_source(theirs)}: {rho:.2f} (n={len(gaps)})"
            except MeasureError:  # all distances are equal
                pass
        sentences.append(f"{text}.")
    return sentences


def _distance(setting: ShiftSetting, dataset: str, pair: str) -> float | None:
    line = value_line(setting, dataset, "d2_inf", pair=pair) or value_line(setting, dataset, "d2", pair=pair)
    return float(line["value"]) if line else None


def _told(setting: ShiftSetting, name: str, title: str) -> list[str]:
    told: dict[bool, list[str]] = {True: [], False: []}
    for line in setting.lines:
        own, null = estimate_of(setting, line.title, name), estimate_of(setting, line.title, name, HALVES)
        if own and null and own.ends and null.ends:
            told[is_above(own, null)].append(line.title)
    sentences = []
    if told[True]:
        sentences.append(f"{title} tells from no shift: {', '.join(told[True])} (95% intervals apart).")
    if told[False]:
        sentences.append(f"{title} does not tell from no shift: {', '.join(told[False])}.")
    return sentences or [f"{title} has no null or no interval here: estimate with null=true and trials=5."]


# The section of each estimator: its tables, figures and sentences.

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


# ``report=shift``: how far the environments of datasets are apart, from the rows of ``python shift.py``.

WORDS = {
    "diversity shift": "share of images with features that occur on one side alone (Ye et al. 2022, Definition 1).",
    "correlation shift": "change of the label's distribution given features of both sides (Ye et al. 2022).",
    "no shift": "the same estimate between two halves of both sides together, where every shift is 0.",
    "half-sampling": "whole estimates on halves of the images; their standard deviation is the standard error.",
    "M_cov": "covariate shift: largest difference between two sides of the disagreement of two functions.",
    "M_cpt": "concept shift: disagreement of the labeling functions of two sides (Zhang et al. 2023).",
    "EMD": "earth mover's distance: least mean distance over which features must be moved.",
    "MMD²": "squared maximum mean discrepancy, with a Gaussian kernel.",
    "NI": "non-i.i.d. index: difference of the means of features over their deviations.",
}


@dataclass(frozen=True)
class ShiftReport:
    """Builds the tables and figures of estimated shift.

    Args:
        name: names the output folder.
        roots: folders searched.
        published: table of shifts that stands beside ours; None for none.
    """

    name: str = "shift"
    roots: Sequence[str] = ()
    published: str | None = "ye2022_table8"
    reads_itself = True

    def __call__(
        self, collection: Collection | None, selection: Selection | None, split_by: str | None = None
    ) -> Document:
        theirs = published_shifts(self.published)
        found = read_shifts(self.roots)
        settings, odd = shift_settings(found.rows, split_by)
        problems = [*found.problems, *odd]
        sections = [section for setting in settings for section in _sections(setting, theirs, problems)]
        datasets = {row.identity.dataset for row in found.rows}
        counted = (_count(len(found.rows), "estimate"), _count(len(datasets), "dataset"))
        return Document(
            title="How far the environments of datasets are apart",
            selection="",
            sections=sections,
            problems=problem_table(problems),
            lead=leads(f"{' of '.join(counted)} in {_count(len(found.folders), 'folder')}", problems),
            words=WORDS,
        )


def _sections(setting: ShiftSetting, theirs: Published | None, problems: list[Problem]) -> list[Section]:
    estimator = setting.identity["estimator"]
    if estimator in ESTIMATORS:
        return [shift_section(setting, theirs)]
    problems.append(Problem("unknown estimator", setting.title, f"{estimator}; known are {', '.join(ESTIMATORS)}"))
    return []


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
