"""A finished report as one Weights & Biases run: its tables, its figures, and all its files as an
artifact.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.errors import one_line
from dgbench.records.wandb_runs import connection, project_name
from dgbench.reports.document import Document, title_of

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)


def log_report(
    document: Document,
    paths: Sequence[Path],
    folder: str | Path,
    *,
    name: str = "measures",
    project: str | None = None,
) -> str:
    """Log tables under ``<section>/<table>``, figures under ``<section>/<figure>``, the files as
    artifact ``<name>``.

    Tables are those of the CSV files: fractions in full precision, beside a column what belongs to
    its values.
    Offline works (``WANDB_MODE=offline``), and nothing W&B does breaks the report: its files are
    written by then.

    Args:
        document: the report.
        paths: its files, as :func:`dgbench.reports.render.formats.write` returned them.
        folder: receives W&B's own folder.
        name: names the artifact, and the run where ``WANDB_NAME`` does not.
        project: where it is logged; None takes ``WANDB_PROJECT``, or dgbench.

    Returns:
        why it could not be logged; empty when it was.
    """
    try:
        _log(document, paths, Path(folder), name, project)
    except Exception as error:  # whatever W&B does, the report stands
        reason = f"W&B did not take the report: {one_line(error, None)}"
        log.warning(reason)
        return reason
    return ""


def _without_na(frame: pd.DataFrame) -> pd.DataFrame:
    """Write what pandas marks as missing as None, which JSON knows."""
    values = frame.astype(object)
    return values.where(frame.notna(), None)


def _log(
    document: Document, paths: Sequence[Path], folder: Path, name: str, project: str | None
) -> None:
    import wandb

    run: Any = wandb.init(
        project=project_name(project),
        job_type="report",
        name=os.environ.get("WANDB_NAME") or name,
        reinit="create_new",
        dir=str(folder),
        config={"report": name, "command": document.command},
        settings=wandb.Settings(**connection(wandb.Settings.model_fields)),
    )
    failed = True
    try:
        tables = []
        for section in document.sections:
            tables += [(f"{section.name}/{table.name}", table) for table in section.tables]
        items: dict[str, Any] = {
            key: wandb.Table(dataframe=_without_na(table.frame), allow_mixed_types=True)
            for key, table in [*tables, (document.problems.name, document.problems)]
            if len(table)
        }
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
