"""Writes a document in every format. A renderer is a function ``(document, folder) -> written paths``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from dgbench.errors import RecordError
from dgbench.reports.document import Document
from dgbench.reports.renderers.export_files import write_csv, write_files, write_parquet, write_png, write_svg
from dgbench.reports.renderers.latex import write_latex
from dgbench.reports.renderers.markdown import write_markdown
from dgbench.reports.renderers.page import write_html

_MOST_LISTED = 12

Renderer = Callable[[Document, Path], list[Path]]
RENDERERS: tuple[Renderer, ...] = (
    write_markdown,
    write_latex,
    write_csv,
    write_parquet,
    write_files,
    write_html,  # from here on with figures, which are drawn meanwhile
    write_png,
    write_svg,
)


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


def listed(paths: Sequence[Path]) -> list[str]:
    """One line per file, or per kind of file where there are many, the page first."""
    paths = sorted(paths, key=lambda path: path.suffix != ".html")
    if len(paths) <= _MOST_LISTED:
        return [f"  {path}" for path in paths]
    kinds = Counter((path.parent, path.suffix) for path in paths)
    alone = [path for path in paths if kinds[path.parent, path.suffix] == 1]
    many = [f"  {folder}/*{suffix} ({count} files)" for (folder, suffix), count in kinds.items() if count > 1]
    return [*(f"  {path}" for path in alone), *many]
