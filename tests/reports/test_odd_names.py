"""Names that mean something to what draws or renders them: they are shown as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.drawing import canvas, finish, label_of
from dgbench.reports.render.formats import markdown_text, write

ODD = ("_erm", "a$\\frac{$b", "$x$", "|`*<b>")


def test_a_report_of_odd_algorithms_is_drawn_and_written(make: Any, tmp_path: Path) -> None:
    for algorithm in ODD:
        for fold in ("0", "1", "2", "3", "full"):
            make.write_run(
                tmp_path / "runs" / str(ODD.index(algorithm)), make.identity(algorithm, fold)
            )
    document = MeasuresReport(baseline="_erm")(collect([tmp_path / "runs"]), Last())
    write(document, tmp_path / "report")
    assert list((tmp_path / "report").glob("*.png"))
    drawn = "".join(figure.svg for section in document.sections for figure in section.figures)
    for text in ("_erm", "a$\\frac{$b", "$x$", "|`*&lt;b&gt;"):
        assert f">{text}<" in drawn.replace("\N{ZERO WIDTH SPACE}", ""), text


def test_long_names_of_settings_make_files_that_can_be_written(make: Any, tmp_path: Path) -> None:
    """What tells two forms of a dataset apart may be many keys; the last of them still do."""
    for dataset in ("d" * 300, "d" * 299 + "e"):
        for fold in ("0", "1", "2", "3", "full"):
            run = make.identity("erm", fold, dataset=dataset, run=f"{dataset[-1]}-{fold}")
            make.write_run(tmp_path / "runs" / dataset[-1], run)
    document = MeasuresReport()(collect([tmp_path / "runs"]), Last())
    assert len({section.name for section in document.sections}) == len(document.sections)
    write(document, tmp_path / "report")
    assert len(list((tmp_path / "report").rglob("*_measures.tex"))) == 2


def test_a_legend_names_what_begins_with_an_underscore() -> None:
    """matplotlib leaves such labels out."""
    with canvas("name", 3, 2) as drawn:
        axes = drawn.add_subplot()
        for name in ("_a", "b", "$c$"):
            axes.plot([0, 1], [0, 1], label=label_of(name))
        drawn.legend()
        svg = finish(drawn, "name", "title", "caption").svg
    assert [svg.count(f"{name}<") for name in ("_a", ">b", ">$c$")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("group_dro 1.5", "group_dro 1.5"),
        ("_a_b_ __c__", r"\_a_b\_ \_\_c\_\_"),
        ("a|b`c*d~e$f", r"a\|b\`c\*d\~e\$f"),
        ("<script>\\", r"\<script\>" + "\\\\"),
        ("a\nb\r\nc", "a b c"),
        ("[a](b) [0,1] &lt; a & b", r"[a]\(b) [0,1] \&lt; a & b"),
    ],
)
def test_markdown_shows_text_as_it_is(text: str, shown: str) -> None:
    assert markdown_text(text) == shown
