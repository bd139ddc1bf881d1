"""``report=shift``: how far the environments of datasets are apart, from the rows of ``python shift.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgbench.analysis.selection import Selection
from dgbench.reports.document import Document, Section, leads, problem_table
from dgbench.reports.published import Published
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.shift_files import read_shifts
from dgbench.reports.shift.shift_estimates import ShiftSetting, shift_settings
from dgbench.reports.shift.shift_published import published_shifts
from dgbench.reports.shift.shift_sections import ESTIMATORS, shift_section

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
