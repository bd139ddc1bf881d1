r"""LaTeX with booktabs: every table ready for ``\input``, and one document that holds them all."""

from __future__ import annotations

import re
from pathlib import Path

from dgbench.reports.document import Document, remake, title_of
from dgbench.reports.tables import Cell, Column, Table, cells, is_negative, show

_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable,graphicx}
\begin{document}"""
_LONG = 45  #: lines of a table that no longer fits a page
_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "\n": " ", '"': "''", "|": r"\textbar{}", "`": "'",
}  # fmt: skip


def write_latex(document: Document, folder: Path) -> list[Path]:
    r"""Write ``report.tex``, a document of all tables and figures, and ``tex/<section>_<table>.tex`` for ``\input``.

    A table is scaled to the line where it is wider; one of more than 45 lines is a ``longtable`` in small print.
    """
    tables = folder / "tex"
    tables.mkdir(exist_ok=True)
    paths = []
    parts = [_PREAMBLE, rf"\section*{{{escape(document.title)}}}", *(escape(t) + "\n" for t in document.warnings)]
    for section in document.sections:
        parts.append(rf"\section*{{{escape(section.title)}}}")
        parts += [escape(text) + "\n" for text in section.answer]
        for table in section.tables:
            if not len(table):
                continue
            path = tables / f"{_stem(section.name)}_{_stem(table.name)}.tex"
            title = f"{title_of(table, document)}, {section.title}"
            path.write_text(latex_table(table, title, remake(document, table)), encoding="utf-8")
            paths.append(path)
            parts.append(rf"\input{{tex/{path.name}}}")
        for figure in section.figures:
            caption = rf"\caption{{{escape(title_of(figure, document))}. {escape(figure.caption)}}}"
            graphic = rf"\includegraphics[width=.7\linewidth]{{{figure.name}.png}}"
            parts.append(f"\\begin{{figure}}[htbp]\n\\centering\n{graphic}\n{caption}\n\\end{{figure}}")
        parts.append(r"\clearpage")
    parts.append(r"\end{document}")
    paths.append(folder / "report.tex")
    paths[-1].write_text("\n".join(parts) + "\n", encoding="utf-8")
    return paths


def latex_table(table: Table, title: str | None = None, command: str = "") -> str:
    """Make one table with its caption: title and notes; the command that remakes it is a comment."""
    align = "".join("r" if column.numeric else "l" for column in table.columns)
    head = " & ".join(escape(column.shown) for column in table.columns) + r" \\"
    lines = [
        " & ".join(_cell(c, col) for c, col in zip(line, table.columns, strict=True)) + r" \\" for line in cells(table)
    ]
    words = [(table.title if title is None else title) + ".", *table.notes]
    caption = rf"\caption{{{' '.join(escape(text) for text in words)}}}"
    comment = [f"% {' '.join(command.split())}"] if command else []
    if len(lines) > _LONG:
        body = [
            r"{\scriptsize\setlength{\tabcolsep}{3pt}", rf"\begin{{longtable}}{{{align}}}", caption + r" \\",
            r"\toprule", head, r"\midrule", r"\endfirsthead", r"\toprule", head, r"\midrule", r"\endhead",
            r"\bottomrule", r"\endfoot", *lines, r"\end{longtable}}",
        ]  # fmt: skip
        return "\n".join([*comment, *body]) + "\n"
    body = [
        r"\begin{table}[htbp]", r"\centering", caption,
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{align}}}", r"\toprule", head, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}}",
        r"\end{table}",
    ]  # fmt: skip
    return "\n".join([*comment, *body]) + "\n"


def escape(text: str) -> str:
    """Make text without any character that LaTeX reads as a command; letters beyond Latin-1 become ``?``."""
    out = "".join(_SPECIAL.get(letter, letter) for letter in text)
    return re.sub(r"[^\x00-\xff]", "?", out)


def _cell(cell: Cell, column: Column) -> str:
    text = escape(show(cell, column.unit))
    if column.numeric:
        text = re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)
    if text == "-":
        text = "--"
    if is_negative(cell, column.unit):
        text = rf"\underline{{{text}}}"
    if cell.best:
        return rf"\textbf{{{text}}}"
    return "{[}" + text[1:] if text.startswith("[") else text  # after a line's end, [ would open an option


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
