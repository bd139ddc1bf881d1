"""The first picture of every ranking: dots with intervals, the verdict beside each."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgbench.analysis.selection import Last
from dgbench.reports.document import certainty, certainty_notes, contents, main_figure, main_table
from dgbench.reports.dots import Axis, Dot, Picture, broken, dot_figure, dots_of
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.over_seeds import means
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import plain_document, render_html
from dgbench.reports.standing import judge

PICTURE = Picture("p", "P", "Dot: value.", Axis("error (%)", 50.0), Axis("each environment (%)"))


def test_dots_by_hand() -> None:
    """a .2 .3 .4: mean 30, t interval 30 ± 4.303 * 10 / sqrt(3) = 24.8; c has one seed, b loses."""
    values = pd.DataFrame({0: [0.2, 0.8, 0.1], 1: [0.3, 0.91, None], 2: [0.4, 1.0, None]})
    values.index = pd.Index(["a", "b", "c"])
    dots = {dot.name: dot for dot in dots_of(values, means(values), judge(values))}
    assert dots["a"].value == pytest.approx(30)
    assert dots["a"].interval == pytest.approx((30 - 24.84, 30 + 24.84), abs=0.01)
    assert (dots["a"].verdict, dots["a"].kind) == ("leads", "open")
    assert (dots["b"].verdict, dots["b"].kind) == ("worse than the leader", "worse")
    assert (dots["c"].verdict, dots["c"].kind) == ("1 of 3 seeds", "untested")
    assert dots["c"].interval is None


def test_a_long_interval_does_not_dwarf_the_dots() -> None:
    """An interval over the whole axis ends in an arrow, which the caption explains."""
    near = [Dot("a", 40.0, (39.0, 41.0)), Dot("b", 42.0, (41.0, 43.0))]
    wide = Dot("c", 41.0, (-30.0, 110.0), "worse than the leader")
    assert "Arrow" not in dot_figure(PICTURE, near).caption
    figure = dot_figure(replace(PICTURE, axis=Axis("error (%)", 90.0)), [*near, wide])
    assert "Arrow: the interval extends beyond the picture" in figure.caption
    assert "A blind guess (90.0%) lies beyond the picture." in figure.caption
    assert ">worse than the leader<" in figure.svg


def test_long_names_without_spaces_are_broken_behind_their_marks() -> None:
    """timm names networks so; cut at the picture's edge, 60 of them read alike."""
    name = "vit_so400m_patch14_siglip_gap_378.webli_ft_in1k"
    lines = broken(name, 24).split("\n")
    assert lines == ["vit_so400m_patch14_", "siglip_gap_378.webli_ft_", "in1k"]
    assert broken("group_dro lr=0.001 of ours", 24) == "group_dro lr=0.001 of\nours"
    figure = dot_figure(PICTURE, [Dot(name, 40.0, parts=[10.0, 70.0]), Dot("b", 60.0)])
    assert all(f">{line}<" in figure.svg for line in lines)


def test_one_seed_has_no_verdict_beside_its_dots() -> None:
    values = pd.DataFrame({0: [0.2, 0.8]}, index=pd.Index(["a", "b"]))
    dots = dots_of(values, means(values), judge(values))
    assert [(dot.verdict, dot.kind) for dot in dots] == [("", "open"), ("", "open")]


def test_small_dots_have_a_panel_of_their_own() -> None:
    alone = dot_figure(PICTURE, [Dot("a", 40.0), Dot("b", 60.0)])
    assert ">each environment (%)<" not in alone.svg
    assert "Dashed: a blind guess." in alone.caption
    beside = dot_figure(PICTURE, [Dot("a", 40.0, parts=[10.0, 70.0]), Dot("b", 60.0)])
    assert ">each environment (%)<" in beside.svg


def test_picture_then_ranking_column_then_how_sure(small_study: Path) -> None:
    """The first picture is the ranking, its column comes after the name; notes on certainty and
    such tables are folded; the contents have 8 lines at most.
    """
    document = MeasuresReport()(collect([small_study]), Last())
    [section] = document.sections
    figure, table = main_figure(section), main_table(section)
    assert figure is not None and table is not None
    assert figure.title.startswith("Who leads by worst+gap")
    assert ">best<" in figure.svg or ">leads<" in figure.svg
    assert [column.name for column in table.columns][:2] == ["algorithm", "worst_gap"]
    assert len(table.open_notes) == 1 and "standard deviation over 2 seeds" in table.open_notes[0]
    assert any(note.startswith("Resolution") for note in certainty_notes(section))
    names = [item.name for item in certainty(section)]
    assert names[0] == "certainty" and {"seeds", "lead", "resampled", "differences"} < set(names)
    assert len(contents(document)) <= 8
    page = render_html(document)
    shown, _, folded = page.partition('<details class="item sure"')
    assert "Resolution" not in shown and "Resolution" in folded
    terminal = plain_document(document)
    assert "How sure is this? See report.html." in terminal and "Resolution" not in terminal


def test_one_algorithm_has_no_ranking(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity("erm", "0"))
    document = MeasuresReport()(collect([tmp_path]), Last())
    figures = [figure.name for section in document.sections for figure in section.figures]
    assert not any(name.startswith("standing") for name in figures)


def test_a_terminal_of_80_letters_cuts_nothing_without_saying_so(small_study: Path) -> None:
    """Columns that do not fit are named, narrow ones behind them stay; sentences are broken at
    spaces.
    """
    document = MeasuresReport()(collect([small_study]), Last())
    whole = plain_document(document)
    narrow = plain_document(document, 80)
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, whole.splitlines()))
    head = next(line for line in narrow.splitlines() if line.startswith("  algorithm"))
    assert "worst+gap (%)" in head and "gap (%)" not in head.replace("worst+gap (%)", "")
    flat = " ".join(narrow.split())
    left_out = re.search("No room here for (.*?): see report.html.", flat)
    assert left_out is not None and "worst+gap of mean errors (%)" in left_out[1]
    assert left_out[1].endswith("seeds")
    little_more = plain_document(document, len(head) + len("  seeds"))
    assert head + "  seeds" in little_more
    assert " ".join(document.sections[0].answer[0].split()) in flat
