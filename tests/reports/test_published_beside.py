"""Cells, verdicts and columns of published values, as every table beside a paper has them."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.analysis import SampleSummary
from dgbench.reports.published import Value, published
from dgbench.reports.published.beside import (
    PERCENT,
    difference_cells,
    published_cell,
    published_column,
    published_value,
    source_note,
)
from dgbench.reports.tables import Column


def test_a_value_in_percent_is_a_fraction_here_with_its_error() -> None:
    cells = published_cell("pacs theirs", Value(85.5, 0.2), unit=PERCENT, flag="(other features)")
    assert cells["pacs theirs"] == pytest.approx(0.855)
    assert cells["pacs theirs.std"] == pytest.approx(0.002)
    assert cells["pacs theirs.flag"] == "(other features)"


def test_a_value_without_error_has_none_and_a_missing_one_says_why() -> None:
    assert published_cell("gap published", Value(-0.405)) == {"gap published": -0.405}
    missing = published_cell("gap published", None, reason="not in the table")
    assert missing == {"gap published": None, "gap published.reason": "not in the table"}


@pytest.mark.parametrize(
    ("theirs", "word"),
    [(Value(0.5, 0.1), "agrees"), (Value(0.9, 0.01), "differs")],
)
def test_a_difference_is_judged_by_its_interval(theirs: Value, word: str) -> None:
    """Welch's: 0.6 ± 0.1 over 3 seeds against each."""
    cells = difference_cells("rho difference", "rho: values", SampleSummary(0.6, 0.1, 3), theirs, 3)
    assert cells["rho: values"] == word
    assert cells["rho difference"] == pytest.approx(0.6 - theirs.mean)
    assert (cells["rho difference.low"] <= 0 <= cells["rho difference.high"]) == (word == "agrees")


@pytest.mark.parametrize(
    "ours", ["no finished run", SampleSummary(0.6, None, 1)], ids=["no value", "one seed"]
)
def test_no_verdict_without_an_interval(ours: Any) -> None:
    cells = difference_cells("rho difference", "rho: values", ours, Value(0.5, 0.1), 3)
    assert (cells["rho difference"], cells["rho: values"]) == (None, None)
    assert cells["rho difference.reason"] == cells["rho: values.reason"]
    if isinstance(ours, str):
        assert cells["rho: values.reason"] == ours


def test_rows_of_papers_have_underscores_for_spaces() -> None:
    paper = published("yu2024_table2")
    assert published_value(paper, "office_home/Real World", "gap") is not None
    assert published_value(paper, "office_home/Real World", "no such column") is None
    assert published_value(paper, "office_home/Mars", "gap") is None


def test_a_heading_says_published_in_one_way() -> None:
    column = published_column("pacs seed", "pacs seed", "points", "Table 4")
    assert column == Column("pacs seed published", "pacs seed, published", "points", "Table 4")


def test_a_note_names_the_source_and_whose_the_columns_are() -> None:
    paper = published("yu2024_table2")
    assert source_note(paper).startswith("Published: Yu et al. 2024")
    assert source_note(paper, "Theirs") == f"Theirs: {paper.source}; {paper.note}."
