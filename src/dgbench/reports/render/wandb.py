"""A finished report as one Weights & Biases run: its tables, its figures, and all its files as an artifact."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgbench.reports.document import Document, title_of
from dgbench.reports.tables import Cell, Column, Table, cells, show

log = logging.getLogger(__name__)


def log_report(
    document: Document, paths: Sequence[Path], folder: str | Path, *, name: str = "measures", project: str = "dgbench"
) -> str:
    """Log tables under ``<section>/<table>``, figures under ``<section>/<figure>``, the files as artifact ``<name>``.

    Offline works (``WANDB_MODE=offline``), and nothing W&B does breaks the report: its files are written by then.

    Args:
        document: the report.
        paths: its files, as :func:`dgbench.reports.render.formats.write` returned them.
        folder: receives W&B's own folder.
        name: names the run and the artifact.
        project: where it is logged.

    Returns:
        why it could not be logged; empty when it was.
    """
    try:
        _log(document, paths, Path(folder), name, project)
    except Exception as error:  # whatever W&B does, the report stands
        reason = f"W&B did not take the report: {type(error).__name__}: {' '.join(str(error).split())}"
        log.warning(reason)
        return reason
    return ""


def _log(document: Document, paths: Sequence[Path], folder: Path, name: str, project: str) -> None:
    import wandb

    run: Any = wandb.init(
        project=project,
        job_type="report",
        name=name,
        dir=str(folder),
        config={"report": name, "command": document.command},
        settings=wandb.Settings(console="off", silent=True),
    )
    failed = True
    try:
        tables = [(f"{section.name}/{table.name}", table) for section in document.sections for table in section.tables]
        items: dict[str, Any] = {}
        for where, table in [*tables, (document.problems.name, document.problems)]:
            if len(table):
                columns, rows = wandb_table(table)
                items[where] = wandb.Table(columns=columns, data=rows)
        for section in document.sections:
            for figure in section.figures:
                file = next(path for path in paths if path.name == f"{figure.name}.png")
                caption = f"{title_of(figure, document)}. {figure.caption}"
                items[f"{section.name}/{figure.name}"] = wandb.Image(str(file), caption=caption)
        run.log(items)
        run.summary["problems"] = len(document.problems)
        artifact = wandb.Artifact(re.sub(r"[^\w.-]+", "-", f"report-{name}"), type="report")
        root = min((path.parent for path in paths), key=lambda parent: len(parent.parts))
        for path in paths:
            artifact.add_file(str(path), name=path.relative_to(root).as_posix())
        run.log_artifact(artifact)
        failed = False
    finally:
        run.finish(exit_code=int(failed))


def wandb_table(table: Table) -> tuple[list[Any], list[Any]]:
    """Make columns and rows: a number per cell (errors are fractions) where there is one, so that W&B can plot it.

    A column of standard deviations follows each column that has any; why a value is absent stands in ``reasons``.
    """
    lines = cells(table)
    columns: list[tuple[str, list[Any]]] = []
    for column, below in zip(table.columns, zip(*lines, strict=True), strict=True):
        title = column.title or column.name
        columns.append((title, [_plain(cell, column) for cell in below]))
        if any(cell.std is not None for cell in below):
            columns.append((f"{title}: std", [cell.std for cell in below]))
    reasons = ["; ".join(dict.fromkeys(cell.reason for cell in line if cell.reason)) for line in lines]
    if any(reasons):
        columns.append(("reasons", reasons))
    names, values = zip(*columns, strict=True)
    return list(names), [list(row) for row in zip(*values, strict=True)]


def _plain(cell: Cell, column: Column) -> float | str | None:
    if column.numeric:
        return cell.value if isinstance(cell.value, float) else None
    return show(cell, column.unit) if isinstance(cell.value, str) else ""
