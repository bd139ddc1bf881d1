"""Markdown for a repository, an issue or a notebook."""

from __future__ import annotations

import re
from pathlib import Path

from dgbench.reports.document import Document, in_order, remake, sections_in_order, title_of
from dgbench.reports.tables import Cell, Table, Unit, cells, is_negative, show

#: what would be markup in a name; an underscore between letters, as in ``group_dro``, is none
_MARKUP = re.compile(r"[\\`*<>|~$]|(?<![^\W_])_|_(?![^\W_])|(?<=\])\(|&(?=#?\w+;)")


def write_markdown(document: Document, folder: Path) -> list[Path]:
    """``report.md``; figures are linked as the PNG files beside it."""
    parts = [f"# {document.title}", *document.warnings]
    for section in sections_in_order(document):
        parts += [f"## {section.title}", *section.answer]
        for item in in_order(section):
            title, made = title_of(item, document), _command(remake(document, item))
            if isinstance(item, Table):
                parts.append(markdown_table(item, title=title) + made)
            else:
                parts.append(f"### {title}\n\n![{title}]({item.name}.png)\n\n{item.caption}{made}")
        parts.append("\n".join(f"- {name}: {value}" for name, value in section.facts))
    parts += [" ".join(document.lead), markdown_table(document.problems, level=2)]
    if document.words:
        parts += ["## Words", "\n".join(f"- {term}: {sentence}" for term, sentence in document.words.items())]
    path = folder / "report.md"
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return [path]


def markdown_table(table: Table, level: int = 3, title: str | None = None) -> str:
    """A heading, a pipe table and its notes."""
    parts = [f"{'#' * level} {table.title if title is None else title}"]
    if len(table):
        lines = [[_escaped(column.shown) for column in table.columns]]
        lines.append(["---:" if column.numeric else "---" for column in table.columns])
        lines += [[_cell(c, col.unit) for c, col in zip(line, table.columns, strict=True)] for line in cells(table)]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(parts + ([" ".join(table.notes)] if table.notes else []))


def _command(command: str) -> str:
    return f"\n\nMade by `{command}`" if command else ""


def _cell(cell: Cell, unit: Unit) -> str:
    text = _escaped(show(cell, unit))
    if is_negative(cell, unit):
        text = f"<u>{text}</u>"
    return f"**{text}**" if cell.best else text


def _escaped(text: str) -> str:
    """Text that shows as it is, in one line."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.splitlines()))
