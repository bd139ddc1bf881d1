"""Markdown for a repository, an issue or a notebook."""

from __future__ import annotations

from pathlib import Path

from dgbench.reports.document import Cell, Document, Table, Unit, is_negative, remake, show


def write_markdown(document: Document, folder: Path) -> list[Path]:
    """``report.md``; figures are linked as the PNG files beside it."""
    parts = [f"# {document.title}", *document.lead]
    for section in document.sections:
        parts.append(f"## {section.title}")
        parts.append("\n".join(f"- {name}: {value}" for name, value in section.facts))
        shown = [table for table in section.tables if not table.detail]
        parts += [markdown_table(table, command=remake(document, table)) for table in shown]
        for f in section.figures:
            parts.append(f"### {f.title}\n\n![{f.title}]({f.name}.png)\n\n{f.caption}" + _command(remake(document, f)))
        folded = [table for table in section.tables if table.detail]
        parts += [markdown_table(table, command=remake(document, table)) for table in folded]
    parts.append(markdown_table(document.problems, level=2))
    path = folder / "report.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return [path]


def markdown_table(table: Table, level: int = 3, command: str = "") -> str:
    """A heading, a pipe table, its notes and the command that makes it again."""
    parts = [f"{'#' * level} {table.title}"]
    if table.rows:
        lines = [[column.title for column in table.columns]]
        lines.append(["---:" if column.numeric else "---" for column in table.columns])
        lines += [[_cell(c, col.unit) for c, col in zip(row, table.columns, strict=True)] for row in table.rows]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(parts + ([" ".join(table.notes)] if table.notes else [])) + _command(command)


def _command(command: str) -> str:
    return f"\n\nMade by `{command}`" if command else ""


def _cell(cell: Cell, unit: Unit) -> str:
    text = show(cell, unit).replace("|", "\\|").replace("\n", " ")
    if is_negative(cell, unit):
        text = f"<u>{text}</u>"
    return f"**{text}**" if cell.best else text
