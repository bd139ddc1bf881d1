"""Markdown for a repository, an issue or a notebook."""

from __future__ import annotations

from pathlib import Path

from dgbench.reports.document import Cell, Document, Table, Unit, show


def write_markdown(document: Document, folder: Path) -> list[Path]:
    """``report.md``; figures are linked as the PNG files beside it."""
    parts = [f"# {document.title}", *document.lead]
    for section in document.sections:
        parts.append(f"## {section.title}")
        parts.append("\n".join(f"- {name}: {value}" for name, value in section.facts))
        shown = [table for table in section.tables if not table.detail]
        parts += [markdown_table(table) for table in shown]
        parts += [f"### {f.title}\n\n![{f.title}]({f.name}.png)\n\n{f.caption}" for f in section.figures]
        parts += [markdown_table(table) for table in section.tables if table.detail]
    parts.append(markdown_table(document.problems, level=2))
    path = folder / "report.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return [path]


def markdown_table(table: Table, level: int = 3) -> str:
    """A heading, a pipe table and its notes."""
    parts = [f"{'#' * level} {table.title}"]
    if table.rows:
        lines = [[column.title for column in table.columns]]
        lines.append(["---:" if column.numeric else "---" for column in table.columns])
        lines += [[_cell(c, col.unit) for c, col in zip(row, table.columns, strict=True)] for row in table.rows]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(parts + ([" ".join(table.notes)] if table.notes else []))


def _cell(cell: Cell, unit: Unit) -> str:
    text = show(cell, unit).replace("|", "\\|").replace("\n", " ")
    return f"**{text}**" if cell.best else text
