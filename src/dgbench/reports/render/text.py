"""A document as plain text: Markdown for a repository, an issue or a notebook, and what a terminal shows."""

from __future__ import annotations

import re
from pathlib import Path

from dgbench.reports.document import Document, in_order, main_table, remake, sections_in_order, title_of
from dgbench.reports.tables import Cell, Table, Unit, aligned, cells, is_negative, show

#: what would be markup in a name; an underscore between letters, as in ``group_dro``, is none
_MARKUP = re.compile(r"[\\`*<>|~$]|(?<![^\W_])_|_(?![^\W_])|(?<=\])\(|&(?=#?\w+;)")
_MOST_PROBLEMS = 10  # in a terminal


def write_markdown(document: Document, folder: Path) -> list[Path]:
    """Write ``report.md``; figures are linked as the PNG files beside it."""
    parts = [f"# {document.title}", *document.warnings]
    for section in sections_in_order(document):
        parts += [f"## {section.title}", *section.answer]
        for item in in_order(section):
            title, command = title_of(item, document), remake(document, item)
            if isinstance(item, Table):
                parts.append(markdown_table(item, title=title))
            else:
                parts += [f"### {title}", f"![{title}]({item.name}.png)", item.caption]
            parts.append(f"Made by `{command}`" if command else "")
        parts.append("\n".join(f"- {name}: {value}" for name, value in section.facts))
    parts += [" ".join(document.lead), markdown_table(document.problems, level=2)]
    if document.words:
        parts += ["## Words", "\n".join(f"- {term}: {sentence}" for term, sentence in document.words.items())]
    path = folder / "report.md"
    path.write_text("\n\n".join(filter(None, parts)) + "\n", encoding="utf-8")
    return [path]


def markdown_table(table: Table, level: int = 3, title: str | None = None) -> str:
    """Make a heading, a pipe table and its notes."""
    parts = [f"{'#' * level} {table.title if title is None else title}"]
    if len(table):
        lines = [[_escaped(column.shown) for column in table.columns]]
        lines.append(["---:" if column.numeric else "---" for column in table.columns])
        lines += [[_cell(c, col.unit) for c, col in zip(line, table.columns, strict=True)] for line in cells(table)]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(parts + ([" ".join(table.notes)] if table.notes else []))


def _cell(cell: Cell, unit: Unit) -> str:
    text = _escaped(show(cell, unit))
    if is_negative(cell, unit):
        text = f"<u>{text}</u>"
    return f"**{text}**" if cell.best else text


def _escaped(text: str) -> str:
    """Text that shows as it is, in one line."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.splitlines()))


def plain_document(document: Document) -> str:
    """Make what a terminal shows: warnings, answer and main table of every section that is not folded, problems."""
    parts = [*document.warnings]
    left_out = 0
    for section in sections_in_order(document):
        left_out += len(section.tables) + len(section.figures)
        if section.folded:
            continue
        parts += [f"\n== {section.title} ==", *section.answer]
        if (table := main_table(section)) is not None:
            parts.append("\n" + plain_table(table, title_of(table, document)))
            left_out -= 1
    if left_out:
        parts.append(f"\n{left_out} more tables and figures stand in the report.")
    parts += ["", *document.lead]
    problems = cells(document.problems)
    if problems:
        parts.append(f"\n{document.problems.title}")
        parts += ["  " + "  ".join(show(cell, "text") for cell in line) for line in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            parts.append(f"  and {len(problems) - _MOST_PROBLEMS} more, in the report")
    return "\n".join(parts)


def plain_table(table: Table, title: str | None = None) -> str:
    """Make title, aligned columns, notes. Values in bold elsewhere carry a ``*``."""
    lines = [[column.shown for column in table.columns]]
    for line in cells(table):
        of_column = zip(line, table.columns, strict=True)
        lines.append([show(cell, column.unit) + "*" * cell.best for cell, column in of_column])
    text = [table.title if title is None else title]
    if len(table):
        text += aligned(lines, [column.numeric for column in table.columns])
    notes = [f"  {note}".replace("In bold:", "Marked *:").replace("Bold:", "Marked *:") for note in table.notes]
    return "\n".join(text + notes)
