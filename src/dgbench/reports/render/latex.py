r"""A document in LaTeX: ``report.tex`` with everything, and a file for ``\input`` of each table.

Names of algorithms are those of papers, letters are ASCII (:mod:`.latex_text`), tables and figures
have labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dgbench.reports.document import Document, Figure, remake, title_of
from dgbench.reports.render.latex_text import latex_text
from dgbench.reports.render.paper_names import paper_names, with_paper_names
from dgbench.reports.tables import Cell, Column, Table, is_negative, on_page, show

_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage{textcomp}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable,graphicx}
\begin{document}"""
_LONG = 45  #: lines of a table that no longer fits a page
_SHORT = 32  #: words of the short form of notes
_WIDE = 40  #: letters of a cell that gets several lines, in a table over pages
_PARAGRAPH = 0.3  #: width of such a column, as a share of the line
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\[(])")


def latex_files(document: Document) -> Mapping[str, str | bytes]:
    r"""Make ``report.tex``, a document of all tables and figures, and ``tex/<section>_<table>.tex``
    for ``\input``.

    A table is scaled to the line where it is wider; one of more than 45 lines is a ``longtable`` in
    small print.
    """
    names = paper_names(_algorithms(document))

    def written(text: str) -> str:
        return latex_text(with_paper_names(text, names))

    files: dict[str, str | bytes] = {}
    parts = [_PREAMBLE, rf"\section*{{{written(document.title)}}}"]
    parts += [f"{written(text)}\n" for text in document.warnings]
    for section in document.sections:
        parts.append(rf"\section*{{{written(section.title)}}}")
        parts += [f"{written(text)}\n" for text in section.answer]
        for table in map(on_page, section.tables):
            if not len(table):
                continue
            label = f"{_stem(section.name)}_{_stem(table.name)}"
            title = f"{title_of(table, document)}, {section.title}"
            shown = with_short_notes(table) if document.short_notes else table
            command = remake(document, table)
            files[f"tex/{label}.tex"] = latex_table(shown, title, command, label, names)
            parts.append(rf"\input{{tex/{label}.tex}}")
        for figure in section.figures:
            title = title_of(figure, document)
            parts.append(_figure(figure, written(f"{title}. {figure.caption}")))
        parts.append(r"\clearpage")
    parts.append(r"\end{document}")
    return {**files, "report.tex": "\n".join(parts) + "\n"}


def _algorithms(document: Document) -> set[str]:
    """Collect what the tables of a document name as algorithms."""
    labels: set[str] = set()
    for section in document.sections:
        for table in section.tables:
            labels.update(_algorithms_of(table))
    return labels


def _algorithms_of(table: Table) -> set[str]:
    labels: set[str] = set()
    for column in ("algorithm", "less"):
        labels.update(map(str, table.frame.get(column, ())))
    return labels


def _figure(figure: Figure, caption: str) -> str:
    return "\n".join(
        [
            r"\begin{figure}[htbp]",
            r"\centering",
            rf"\includegraphics[width=.7\linewidth]{{{figure.name}.pdf}}",
            rf"\caption{{{caption}}}\label{{fig:{_stem(figure.name)}}}",
            r"\end{figure}",
        ]
    )


def with_short_notes(table: Table) -> Table:
    """Return a table with the first sentences of its notes alone: what is printed, not how sure.

    The first one always stays; those that follow it as far as 32 words go.
    """
    sentences = [text for note in table.notes for text in _SENTENCE.split(note)]
    shown: list[str] = []
    for sentence in sentences:
        if shown and len(" ".join([*shown, sentence]).split()) > _SHORT:
            break
        shown.append(sentence)
    return replace(table, notes=tuple(shown))


def latex_table(
    table: Table,
    title: str | None = None,
    command: str = "",
    label: str = "",
    names: Mapping[str, str] | None = None,
) -> str:
    r"""Make one table as a paper prints it: names of algorithms as papers have them, a caption of
    one sentence.

    Notes stand below it in small print; the command that remakes it and the packages that it needs
    are comments.

    Args:
        table: to be written.
        title: for the caption; the table's own where it is not given.
        command: that makes it again.
        label: for ``\ref``.
        names: label of an algorithm -> its name in papers; of those in the table by default.
    """
    if names is None:
        names = paper_names(_algorithms_of(table))
    heads = [with_paper_names(column.shown, names) for column in table.columns]
    head = " & ".join(map(latex_text, heads)) + r" \\"
    lines = _lines(table, names)
    if len(table) < len(lines):  # references stand below a rule
        lines.insert(len(table), r"\midrule")
    caption_text = with_paper_names(table.title if title is None else title, names)
    caption = rf"\caption{{{latex_text(caption_text)}.}}"
    caption += rf"\label{{tab:{label}}}" if label else ""
    is_long = len(lines) > _LONG
    align = _alignment(table, is_long)
    needs = "longtable" if is_long else "graphicx"
    comments = [f"% {' '.join(command.split())}"] if command else []
    comments.append(rf"% \usepackage{{booktabs,{needs}}}")
    notes = []
    if table.notes:
        notes = [latex_text(with_paper_names(" ".join(table.notes), names))]
    if is_long:
        body = [
            r"{\scriptsize\setlength{\tabcolsep}{3pt}",
            rf"\begin{{longtable}}{{{align}}}",
            caption + r" \\",
            r"\toprule",
            head,
            r"\midrule",
            r"\endfirsthead",
            r"\toprule",
            head,
            r"\midrule",
            r"\endhead",
            r"\bottomrule",
            r"\endfoot",
            *lines,
            r"\end{longtable}",
            *notes,
            "}",
        ]
        return "\n".join([*comments, *body]) + "\n"
    body = [
        r"\begin{table}[htbp]",
        r"\centering",
        caption,
        r"\vspace{\smallskipamount}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        head,
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}}",
        *(rf"\par\smallskip{{\footnotesize {text}\par}}" for text in notes),
        r"\end{table}",
    ]
    return "\n".join([*comments, *body]) + "\n"


def _alignment(table: Table, is_long: bool) -> str:
    """Align numbers to the right; long texts of a table that is not scaled get lines."""
    signs = []
    for place, column in enumerate(table.columns):
        sign = "r" if column.numeric else "l"
        if is_long and not column.numeric:
            widest = max(len(show(line[place], column.unit)) for line in table.cells)
            sign = rf"p{{{_PARAGRAPH}\linewidth}}" if widest > _WIDE else sign
        signs.append(sign)
    return "".join(signs)


def _lines(table: Table, names: Mapping[str, str]) -> list[str]:
    lines = []
    for line in table.cells:
        texts = [
            _latex_cell(cell, column, names)
            for cell, column in zip(line, table.columns, strict=True)
        ]
        lines.append(" & ".join(texts) + r" \\")
    return lines


def _latex_cell(cell: Cell, column: Column, names: Mapping[str, str]) -> str:
    text = show(cell, column.unit)
    text = latex_text(text if column.numeric else with_paper_names(text, names))
    if column.numeric:
        text = re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)
    if text == "-":
        text = "--"
    if is_negative(cell, column.unit):
        text = rf"\underline{{{text}}}"
    if cell.best:
        return rf"\textbf{{{text}}}"
    # after a line's end, [ would open an option
    return "{[}" + text[1:] if text.startswith("[") else text


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
