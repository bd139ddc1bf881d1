"""One self-contained HTML page: no network, light and dark, sortable tables."""

from __future__ import annotations

from pathlib import Path

from dgbench.reports.document import Cell, Document, is_negative, remake, show


def write_html(document: Document, folder: Path) -> list[Path]:
    """``report.html`` from ``templates/report.html.j2``, with style, script and figures inlined."""
    path = folder / "report.html"
    path.write_text(render_html(document), encoding="utf-8")
    return [path]


def render_html(document: Document) -> str:
    """The page as text."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dgbench.reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return templates.get_template("report.html.j2").render(
        document=document, show=show, sort_key=sort_key, is_negative=is_negative, remake=remake
    )


def sort_key(cell: Cell) -> str:
    """What a column is sorted by: the number in full precision, or the text; absent values sort last."""
    return "" if cell.value is None else str(cell.value)
