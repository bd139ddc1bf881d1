"""Covariate and concept shift of every dataset, beside those of Zhang et al. 2023, Table 1."""

from __future__ import annotations

from typing import Any

from dgbench.reports.published import published
from dgbench.reports.published.beside import published_column, source_note
from dgbench.reports.reading.shift_settings import ShiftLine, ShiftSetting
from dgbench.reports.tables import Column, Table, table
from dgbench.shift.cells import DATASET, filled, other_features, over_pairs, pair_text, printed

#: what stands beside the estimators that have no choice of sources
COVARIATE_AND_CONCEPT = "zhang2023_table1"

CONCEPT_TITLES = {
    "tv": "M_cov, total variation",
    "disc": "M_cov, discrepancy",
    "min": "M_cpt min",
    "max": "M_cpt max",
    "noise": "disagreement without shift",
}
_PRINTED = {"tv": "cov", "min": "cpt_min", "max": "cpt_max"}

_CONCEPT_MEANINGS = {
    "tv": "2 accuracy - 1 of telling p from q, at least 0: a lower bound of the total variation",
    "disc": (
        "largest difference of two classifiers' disagreement on p and on q, over those trained here"
    ),
    "min": (
        "share of images on which classifiers of p and of q differ, on the side where they differ "
        "less"
    ),
    "max": "the same where they differ more",
    "noise": "the same share between classifiers of two halves of p and q together",
}


def concept_table(setting: ShiftSetting) -> Table:
    """List covariate and concept shift of every dataset beside published ones.

    Source of the published ones: Zhang et al. 2023, Table 1.
    """
    source = published(COVARIATE_AND_CONCEPT)
    is_printed: list[bool] = []
    lines = []
    for line in setting.lines:
        cells: dict[str, Any] = {"dataset": line.title, "pairs": pair_text(line)}
        for name in CONCEPT_TITLES:
            cells |= over_pairs(line, name)
        for name, column in _PRINTED.items():
            row = str(line.identity["dataset"])
            cells |= printed(source, row, column, f"{name} published", other_features(setting))
        is_printed += [cells[f"{name} published"] is not None for name in _PRINTED]
        lines.append(cells)
    columns = [DATASET, Column("pairs")]
    columns += [
        Column(name, title, "distance", _CONCEPT_MEANINGS[name])
        for name, title in CONCEPT_TITLES.items()
    ]
    for name in _PRINTED:
        shift = CONCEPT_TITLES[name].partition(",")[0]
        columns.append(published_column(name, shift, "distance", source.source))
    notes = ["Mean ± standard deviation (divisor n-1) over pairs; of one pair, its interval."]
    if any(is_printed):
        notes.append(
            f"{source_note(source)} Their M_cov is taken over another class of hypotheses: 0.325 "
            "for PACS as a total variation would mean that photographs and sketches can be told "
            "apart in only 66% of cases, and a network tells them apart nearly always. Compare "
            "orders, not sizes."
        )
    too_low = [line.title for line in setting.lines if _underestimated(line)]
    if too_low:
        notes.append(
            f"{', '.join(too_low)}: M_cpt max - min exceeds the interval of the total variation, "
            "which it cannot: the total variation is underestimated there."
        )
    title = "Covariate shift M_cov and concept shift M_cpt"
    return table(lines, "concept", title, filled(columns, lines), notes)


def _underestimated(line: ShiftLine) -> bool:
    """Return whether M_cpt max - min exceeds M_cov, or the high end of its interval, which the true
    values cannot.
    """
    low, high, tv = (line.value(name) for name in ("min", "max", "tv"))
    return bool(
        low and high and tv and high.value - low.value > (tv.value if tv.high is None else tv.high)
    )
