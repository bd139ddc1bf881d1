"""Plain text for the terminal."""

from __future__ import annotations

from dgbench.reports.document import Document, Table, show


def plain_document(document: Document, most_problems: int = 10) -> str:
    """The main tables and the problems, without the folded details."""
    parts = [*document.lead]
    folded = sum(section.folded for section in document.sections)
    for section in document.sections:
        if section.folded:
            continue
        parts.append(f"\n== {section.title} ==")
        parts += ["\n" + plain_table(table) for table in section.tables if not table.detail]
    if folded:
        parts.append(f"\n{folded} comparisons stand in the report alone.")
    rows = document.problems.rows
    if rows:
        parts.append(f"\n{document.problems.title}")
        parts += ["  " + "  ".join(show(cell, "text") for cell in row) for row in rows[:most_problems]]
        if len(rows) > most_problems:
            parts.append(f"  and {len(rows) - most_problems} more, in the report")
    return "\n".join(parts)


def plain_table(table: Table) -> str:
    """Title, aligned columns, notes. Best values carry a ``*``."""
    lines = [[column.title for column in table.columns]]
    for row in table.rows:
        cells = zip(row, table.columns, strict=True)
        lines.append([show(cell, column.unit) + "*" * cell.best for cell, column in cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    text = [table.title]
    for line in lines if table.rows else []:
        padded = [
            value.rjust(width) if column.numeric else value.ljust(width)
            for value, width, column in zip(line, widths, table.columns, strict=True)
        ]
        text.append("  " + "  ".join(padded).rstrip())
    return "\n".join(text + [f"  {note}".replace("in bold", "marked *") for note in table.notes])
