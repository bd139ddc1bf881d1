"""Plain text for the terminal."""

from __future__ import annotations

from dgbench.reports.document import Document, main_table, sections_in_order, title_of
from dgbench.reports.tables import Table, aligned, cells, show

_MOST_PROBLEMS = 10


def plain_document(document: Document) -> str:
    """Warnings, the answer and the main table of every section that is not folded, and the problems."""
    parts = [*document.warnings]
    left_out = 0
    for section in sections_in_order(document):
        tables = [main] if not section.folded and (main := main_table(section)) is not None else []
        left_out += len(section.tables) + len(section.figures) - len(tables)
        if not section.folded:
            parts += [f"\n== {section.title} ==", *section.answer]
            parts += ["\n" + plain_table(table, title_of(table, document)) for table in tables]
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
    """Title, aligned columns, notes. Values in bold elsewhere carry a ``*``."""
    lines = [[column.shown for column in table.columns]]
    for row in cells(table):
        own = zip(row, table.columns, strict=True)
        lines.append([show(cell, column.unit) + "*" * cell.best for cell, column in own])
    text = [table.title if title is None else title]
    if len(table):
        text += aligned(lines, [column.numeric for column in table.columns])
    notes = [f"  {note}".replace("In bold:", "Marked *:").replace("Bold:", "Marked *:") for note in table.notes]
    return "\n".join(text + notes)
