"""LaTeX for papers: their names everywhere, every letter printed, labels, and it compiles."""

# ruff: noqa: RUF001 (letters that resemble others)

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.text import Text

from dgbench.analysis.selection import Last
from dgbench.reports.document import Document, Section, problem_table
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.drawing import canvas, end_labels, finish, pictures
from dgbench.reports.render.formats import write
from dgbench.reports.render.latex import latex_files, latex_table, with_short_notes
from dgbench.reports.render.latex_text import latex_text
from dgbench.reports.render.paper_names import paper_names, with_paper_names
from dgbench.reports.tables import Column, Table, table
from tests.conftest import Command

LATEX = shutil.which("pdflatex")
#: Latin, Vietnamese, Greek, Cyrillic and Chinese letters, symbols, a picture
LETTERS = "Čž Łódź ŽžŐő ế ß æ ø ı ﬁ ² ½ α Λ Σ ς ≥ → − × † … “x” 中 Ж ☃ é"


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("Čapek", r"\v{C}apek"),
        ("C\u030capek", r"\v{C}apek"),  # the same letter, in two characters
        ("ế", r"\'{\^{e}}"),
        ("Łódź", r"\L{}\'{o}d\'{z}"),
        ("λ Λ Α ς", r"$\lambda$ $\Lambda$ A $\varsigma$"),
        ("a → b ≥ 1", r"a $\rightarrow$ b $\geq$ 1"),
        ("ﬁ ² ½ …", r"fi \textsuperscript{2} 1/2 ..."),
        ("ERM†", r"ERM\textdagger{}"),
        ("中", "[U+4E2D]"),
        ("☃", "[snowman]"),
        ("a\u00a0b\u200bc", "a bc"),
        ("50% & $x_1$", r"50\% \& \$x\_1\$"),
    ],
)
def test_every_letter_is_printed_or_named(text: str, latex: str) -> None:
    assert latex_text(text) == latex


def two() -> Table:
    lines = [
        {"algorithm": "group_dro", "less": "erm", "seed 0": "vrex = erm", "note": "terms of erm++"},
        {"algorithm": "vrex", "less": "group_dro", "seed 0": "erm (n=2)", "note": "derm"},
    ]
    columns = [Column(name) for name in lines[0]]
    return table(lines, "t", "erm and vrex", columns, ["group_dro leads erm."])


def test_names_of_papers_stand_in_every_cell_and_sentence() -> None:
    names = {**paper_names(["group_dro", "erm", "vrex", "mine"])}
    assert names == {"group_dro": "GroupDRO", "erm": "ERM", "vrex": "V-REx"}
    text = latex_table(two(), names=names)
    body = text.split(r"\midrule")[1]
    assert "GroupDRO & ERM & V-REx = ERM & terms of erm++" in body
    assert "V-REx & GroupDRO & ERM (n=2) & derm" in body
    assert r"\caption{ERM and V-REx.}" in text and "GroupDRO leads ERM." in text
    section = Section("s", "erm here", [two()], answer=["vrex beats erm by 1.0 points."])
    whole = latex_files(Document("T", "", [section], problem_table([])))["report.tex"]
    assert "V-REx beats ERM by" in str(whole) and "section*{ERM here}" in str(whole)
    assert with_paper_names("in fact", names) == "in fact"  # fact is no algorithm here


def test_figures_have_names_of_papers_in_pdf_alone() -> None:
    with canvas("f", 4, 3) as drawn:
        axes = drawn.add_subplot()
        axes.plot([0, 1], [0, 1], label="vrex")
        axes.set_yticks([0, 1], ["group_dro", "erm (lr=0.1)"])
        axes.set_title("group_dro against vrex")
        axes.legend()
        end_labels(axes, {"coral": (1.0, 1.0)}, {})
        figure = finish(drawn, "f", "F", "A caption.")
        assert ">group_dro<" in figure.svg and ">coral<" in figure.svg
    shown = {text.get_text() for text in drawn.findobj(Text)}
    assert {"GroupDRO", "ERM (lr=0.1)", "GroupDRO against V-REx", "V-REx", "CORAL"} <= shown
    with canvas("g", 4, 3) as plain:
        plain.add_subplot().set_title("error over training")
        assert pictures(plain, {}, {})[2].startswith(b"%PDF")


def test_a_second_panel_without_names_leaves_those_of_the_first() -> None:
    with canvas("p", 4, 3) as drawn:
        axes, beside = drawn.subplots(1, 2, sharey=True)
        axes.set_yticks([0, 1], ["group_dro", "erm"])
        beside.tick_params(axis="y", labelleft=False)
        assert ">erm<" in finish(drawn, "p", "P", "A caption.").svg
    shown = {text.get_text() for text in drawn.findobj(Text)}
    assert {"GroupDRO", "ERM"} <= shown


@pytest.fixture
def documents(small_study: Path) -> list[Document]:
    collection = collect([small_study])
    pair = MeasuresReport(pair=["vrex", "erm"])(collection, Last())
    return [pair, LeaderboardReport()(collection, Last())]


def test_tables_and_figures_have_labels(documents: list[Document]) -> None:
    for document in documents:
        files = latex_files(document)
        whole = str(files["report.tex"])
        assert whole.count(r"\label{fig:") == whole.count(r"\includegraphics") > 0
        labels = re.findall(r"\\label\{([^}]*)\}", "".join(map(str, files.values())))
        assert len(set(labels)) == len(labels) == len(files) - 1 + whole.count(r"\label{fig:")


def test_short_notes_are_the_first_sentences(documents: list[Document]) -> None:
    (section, *_) = [s for s in documents[0].sections if s.name != "pair"]
    measures = next(item for item in section.tables if item.name == "measures")
    short = with_short_notes(measures)
    text = " ".join(short.notes)
    assert text.startswith("Lower is better.") and "Mean ± standard deviation" in text
    assert len(text.split()) <= 32 < len(" ".join(measures.notes).split())
    assert "Resolution" not in text
    files = latex_files(replace(documents[0], short_notes=True))
    whole = "".join(str(text) for text in files.values())
    assert "Resolution" not in whole
    assert "Resolution" in "".join(str(text) for text in latex_files(documents[0]).values())


def test_key_of_short_notes(command: Command, small_study: Path, tmp_path: Path) -> None:
    words = ("report.py", f"runs=[{small_study}]", f"output={tmp_path / 'page'}")
    ended = command(*words, "notes=short", cwd=tmp_path)
    assert ended.code == 0, ended.err
    tables = [file.read_text() for file in (tmp_path / "page" / "tex").glob("*_measures.tex")]
    assert tables and not any("Resolution" in text for text in tables)
    ended = command(*words, "notes=brief", cwd=tmp_path)
    assert ended.complaints == ["dgbench: notes=brief is unknown; choose full or short"]


@pytest.mark.thorough
@pytest.mark.skipif(LATEX is None, reason="no pdflatex is installed")
def test_it_compiles(documents: list[Document], tmp_path: Path) -> None:
    columns = [Column("algorithm", key=True), Column("letters")]
    lines = [{"algorithm": f"a_{number}", "letters": 5 * LETTERS} for number in range(50)]
    odd = table(lines, "odd", LETTERS, columns, [LETTERS])
    few = replace(odd, name="few", frame=odd.frame.head(2))
    documents.append(Document(LETTERS, "", [Section("s", LETTERS, [odd, few])], problem_table([])))
    for number, document in enumerate(documents):
        folder = tmp_path / str(number)
        write(document, folder)
        options = ("-interaction=nonstopmode", "-halt-on-error")
        for _ in range(2):  # labels, and widths of tables over pages
            ended = subprocess.run(
                [str(LATEX), *options, "report.tex"], cwd=folder, capture_output=True
            )
        log = ended.stdout.decode(errors="replace")
        assert ended.returncode == 0, log[-2000:]
        assert (folder / "report.pdf").read_bytes().startswith(b"%PDF")
        assert "undefined" not in log and "Missing character" not in log
