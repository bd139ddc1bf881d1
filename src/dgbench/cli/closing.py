"""The end of a study: its table, its measures for W&B, and whether all went well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.callbacks.wandb_log import WandbLog
from dgbench.cli.study import Study
from dgbench.errors import MembersFailedError
from dgbench.records import ROW_FILE, read_rows
from dgbench.reports.closing import closing_table


def close_study(study: Study, complete: Sequence[bool], selection: Any, wandb_log: WandbLog | None) -> None:
    """Print the closing table.

    Raises:
        MembersFailedError: a member failed; the table says which.
    """
    files = [member.folder / ROW_FILE for member in study.members]
    rows = [row for file in files if file.exists() for row in read_rows(file)[0]]
    failed = [member.fold.name for member, ok in zip(study.members, complete, strict=True) if not ok]
    if rows:
        print(closing_table(rows, selection, unusable={name: "failed" for name in failed}))
    print(f"rows: {study.folder}")
    if failed:
        raise MembersFailedError(
            f"fold {', '.join(failed)} of {study.folder.name} failed; see log.txt and status in its folder, mend the cause "
            "and start the same command again"
        )
