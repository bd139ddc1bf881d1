"""Writes a document in every format. A renderer is a function ``(document, folder) -> written paths``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dgbench.errors import RecordError
from dgbench.reports.document import Document
from dgbench.reports.renderers.delimited import write_csv
from dgbench.reports.renderers.markdown import write_markdown
from dgbench.reports.renderers.page import write_html
from dgbench.reports.renderers.pictures import write_png

Renderer = Callable[[Document, Path], list[Path]]
RENDERERS: tuple[Renderer, ...] = (write_html, write_markdown, write_csv, write_png)


def write(document: Document, folder: str | Path) -> list[Path]:
    """Write all formats into ``folder``, which is made when it is not there.

    Raises:
        RecordError: the folder cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [path for renderer in RENDERERS for path in renderer(document, folder)]
    except OSError as error:
        raise RecordError(f"cannot write {error.filename or folder} ({error.strerror}); choose output=DIR") from error
