"""The files of a report: LaTeX that is well formed, tidy values, pictures, the command in every
caption.
"""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ElementTree
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dgbench
from dgbench.analysis.selection import Last
from dgbench.errors import ConfigError
from dgbench.reports.document import Document, Section, keep, problem_table, remake, words_used
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import (
    listed,
    markdown_table,
    plain_document,
    write,
)
from dgbench.reports.render.latex import latex_table
from dgbench.reports.render.latex_text import latex_text
from dgbench.reports.tables import (
    Cell,
    Column,
    Table,
    entry,
    is_negative,
    percent,
    show,
    table,
)


def made(lines: int = 1) -> Table:
    columns = [
        Column("algorithm_name & co"),
        Column("scale", key=True),
        Column("rho", unit="correlation"),
    ]
    line = {"algorithm_name & co": "group_dro 100%", "scale": "1"}
    line |= entry("rho", -0.25, std=0.1, n=3, low=-0.5, high=0.125)
    return table([line] * lines, "t", "A_title (50%)", columns, ["A note with # and ^."])


def other(name: str, value: float) -> Table:
    return table([{"x": value}], name, name, [Column("x", unit="percent")])


@pytest.fixture
def document(small_study: Path) -> Document:
    built = MeasuresReport()(collect([small_study]), Last())
    return replace(built, command="python report.py 'runs=[x]'")


def balanced(text: str) -> bool:
    """Braces and environments that open close again, in order."""
    depth = 0
    for sign in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if sign == "{" else -1
        if depth < 0:
            return False
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            stack.append(name)
        elif not stack or stack.pop() != name:
            return False
    return depth == 0 and not stack


def test_latex_by_structure(document: Document, tmp_path: Path) -> None:
    """Where there is no LaTeX: balanced, every line of a table has its columns, nothing is left
    unescaped.
    """
    paths = [path for path in write(document, tmp_path) if path.suffix == ".tex"]
    whole = (tmp_path / "report.tex").read_text()
    assert balanced(whole)
    inputs = re.findall(r"\\input\{([^}]*)\}", whole)
    assert sorted(inputs) == sorted(
        str(path.relative_to(tmp_path)) for path in paths if path.name != "report.tex"
    )
    graphics = re.findall(r"\\includegraphics\[[^]]*\]\{([^}]*)\}", whole)
    assert graphics
    assert all((tmp_path / name).exists() for name in graphics)
    for path in paths:
        text = path.read_text()
        assert balanced(text), path
        assert text.isascii(), path
        for aligned, body in re.findall(
            r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, re.DOTALL
        ):
            lines = [line for line in body.split("\n") if line.endswith(r" \\")]
            assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(aligned) - 1}
            assert not re.search(r"(?<!\\)[_#%]", body)


def test_latex_marks_and_escapes() -> None:
    line = {"algorithm_name & co": "[a]", "scale": "1", **entry("rho", -0.25, best=True)}
    bold = replace(made(), frame=pd.DataFrame([line]))
    text = latex_table(bold, "A_title (50%), where", "python x")
    assert text.startswith("% python x\n")
    assert r"\textbf{\underline{$-$0.25}}" in text
    assert "{[}a]" in text
    assert r"algorithm\_name \& co" in text
    assert r"A\_title (50\%), where." in text
    assert "longtable" in latex_table(made(46))
    assert latex_text("±\\{}→") == r"$\pm$\textbackslash{}\{\}$\rightarrow$"


def embedded_fonts(pdf: Path) -> bytes:
    """Unpack what a PDF holds; a font begins with the names of its tables."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf.read_bytes(), flags=re.DOTALL)
    contents = []
    for stream in streams:
        with suppress(zlib.error):
            contents.append(zlib.decompress(stream))
    return b"".join(contents)


def test_latex_is_ready_for_a_paper(document: Document, tmp_path: Path) -> None:
    """Names as papers print them, a caption of one sentence with a label, the packages in a
    comment, figures as PDF.
    """
    lines = [{"algorithm": "group_dro+swad", "rho": 0.5}, {"algorithm": "erm (draw=1)", "rho": 0.4}]
    columns = (Column("algorithm", key=True), Column("rho", unit="correlation"))
    notes = ["Lower is better.", "group_dro+swad leads erm (draw=1)."]
    text = latex_table(table(lines, "ranks", "Ranks", columns, notes), label="one_ranks")
    assert (
        r"\caption{Ranks.}\label{tab:one_ranks}" in text
        and r"% \usepackage{booktabs,graphicx}" in text
    )
    assert (
        "\nGroupDRO+SWAD & 0.50" in text
        and "GroupDRO+SWAD leads ERM (draw=1)." in text
        and "group" not in text
    )
    pdfs = [path for path in write(document, tmp_path) if path.suffix == ".pdf"]
    assert pdfs and all(path.read_bytes().startswith(b"%PDF") for path in pdfs)
    assert not any(table in embedded_fonts(pdfs[0]) for table in (b"GPOS", b"GSUB", b"GDEF"))
    assert b"glyf" in embedded_fonts(pdfs[0])
    assert all(f"{{{path.name}}}" in (tmp_path / "report.tex").read_text() for path in pdfs)


def test_intervals_are_shown_and_kept(tmp_path: Path) -> None:
    assert show(made().cells[0][2], "correlation") == "-0.25 [-0.50, 0.12] ± 0.10"
    assert is_negative(Cell(-0.1), "correlation")
    assert not is_negative(Cell(-0.1), "points")
    write(Document("T", "", [Section("s", "S", [made()])], problem_table([])), tmp_path)
    with open(tmp_path / "t.csv", newline="") as handle:
        [line] = csv.DictReader(handle)
    assert (line["scale"], line["rho"]) == ("1", "-0.25")
    assert (line["rho.low"], line["rho.high"], line["rho.std"]) == ("-0.5", "0.125", "0.1")
    assert "| <u>-0.25 [-0.50, 0.12] ± 0.10</u> |" in markdown_table(made())


@pytest.mark.parametrize(
    "number",
    [0.0325, np.nextafter(0.0325, 1), np.nextafter(0.0325, 0), 0.0325 + 1e-13, 0.0325 - 1e-13],
)
def test_the_last_bits_of_a_number_decide_nothing(number: float) -> None:
    """Of 3.25 points a sum on another processor makes 3.2500000000000004."""
    assert (
        show(Cell(float(number), low=float(-number), high=float(number)), "points")
        == "3.2 [-3.2, 3.2]"
    )
    assert percent(float(number)) == "3.2"


def test_sentences_show_percent_as_tables_do() -> None:
    """A sentence that formats a fraction by itself may differ from its table where two decimals are
    equally near.
    """
    package = Path(dgbench.__file__).parent
    by_hand = re.compile(r"\{100(\.0)? \* [^{}]*:\.\df\}")
    files = [*(package / "reports").rglob("*.py"), package / "cli" / "outcome.py"]
    sources = {path.relative_to(package): path.read_text() for path in files}
    assert not {
        name: by_hand.findall(text) for name, text in sources.items() if by_hand.search(text)
    }


def test_every_caption_has_its_command(document: Document, tmp_path: Path) -> None:
    write(document, tmp_path)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    for section in document.sections:
        for item in (*section.tables, *section.figures):
            command = f"python report.py 'runs=[x]' 'only=[{item.name}]'"
            assert remake(document, item) == command
            assert command in text
            assert command.replace("'", "&#39;") in page


def test_only_some_tables(document: Document) -> None:
    kept = keep(document, ["correlation"])
    assert [each.name for section in kept.sections for each in section.tables] == ["correlation"]
    assert kept.sections[0].figures == []
    with pytest.raises(ConfigError, match=r"only=\['corelation'\].*section.*correlation\?"):
        keep(document, ["corelation"])


def test_svg_files_stand_alone(document: Document, tmp_path: Path) -> None:
    paths = [path for path in write(document, tmp_path) if path.suffix == ".svg"]
    assert [path.name.partition("_")[0] for path in paths] == ["standing", "curves"]
    for path in paths:
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("viewBox")


def test_the_terminal_begins_with_the_answer_and_prints_main_tables_alone() -> None:
    first = Section("a", "No answer yet", [made()])
    second = Section(
        "b", "Answered", [other("main", 0.5), other("more", 0.25)], answer=["It is so."]
    )
    folded = Section("c", "Folded", [other("hidden", 0.125)], answer=["Not here."], folded=True)
    text = plain_document(
        Document("T", "s", [first, second, folded], problem_table([]), warnings=["Beware."])
    )
    lines = [line for line in text.splitlines() if line]
    assert lines[:4] == ["Beware.", "== Answered ==", "It is so.", "main (s)"]
    assert "== No answer yet ==" in lines
    assert not {"more (s)", "hidden (s)", "Not here."} & set(lines)
    assert "2 more tables and figures stand in the report." in lines
    alone = plain_document(Document("T", "s", [second], problem_table([])))
    assert "1 more table or figure stands in the report." in alone


def test_markdown_holds_everything_with_the_answer_first(
    document: Document, tmp_path: Path
) -> None:
    write(document, tmp_path)
    text = (tmp_path / "report.md").read_text()
    [section] = document.sections
    assert text.startswith(f"# {document.title}\n\n## {section.title}\n\n{section.answer[0]}\n\n")
    places = [text.index(f"### {each.title} (") for each in section.tables]
    picture = text.index(f"({section.figures[0].name}.png)")
    assert picture < min(places)
    assert places[0] == min(places)
    assert all(f"- {term}: {sentence}" in text for term, sentence in words_used(document).items())
    assert all(f"- {name}: {value}" in text for name, value in section.facts)


def test_many_files_are_listed_by_kind(tmp_path: Path) -> None:
    paths = [tmp_path / "report.html", *(tmp_path / f"{i}.png" for i in range(20))]
    assert listed(paths) == [f"  {tmp_path / 'report.html'}", f"  {tmp_path}/*.png (20 files)"]
    assert listed(paths[:2]) == [f"  {paths[0]}", f"  {paths[1]}"]
