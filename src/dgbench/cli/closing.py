"""The end of a study: its table, its measures for W&B, and whether all went well."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from dgbench.callbacks.wandb_log import WandbLog
from dgbench.cli.study import Study
from dgbench.errors import MembersFailedError
from dgbench.measures import MEASURES
from dgbench.records import ROW_FILE, read_rows
from dgbench.reports.closing import closing_table
from dgbench.reports.studies import evaluate_study

log = logging.getLogger("dgbench")


def close_study(study: Study, complete: Sequence[bool], selection: Any, wandb_log: WandbLog | None) -> None:
    """Print the closing table, and give the measures to W&B as a run of their own.

    Raises:
        MembersFailedError: a member failed; the table says which.
    """
    rows: list[dict[str, Any]] = []
    for file in (member.folder / ROW_FILE for member in study.members):
        whole, torn = read_rows(file) if file.exists() else ([], [])
        rows += whole
        for problem in torn:
            log.warning("%s line %d dropped: %s", problem.file, problem.line, problem.reason)
    failed = [member.fold.name for member, ok in zip(study.members, complete, strict=True) if not ok]
    unusable = dict.fromkeys(failed, "failed")
    if rows:
        print(closing_table(rows, selection, unusable=unusable))
    if rows and wandb_log:
        config: Any = OmegaConf.to_container(study.config, resolve=True)
        wandb_log.start(study.folder, study.run, study.folder.name, "study", study.folder.name, config)
        wandb_log.summary(_measures(rows, selection, unusable))
        wandb_log.finish(failed=bool(failed))
    print(f"rows: {study.folder}")
    if failed:
        raise MembersFailedError(
            f"fold {', '.join(failed)} of {study.folder.name} failed; see log.txt and status in its folder, mend the cause "
            "and start the same command again"
        )


def _measures(rows: Sequence[Mapping[str, Any]], selection: Any, unusable: Mapping[str, str]) -> dict[str, float]:
    """The measures that these rows allow, by name."""
    members: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        members[row["fold"]].append(row)
    measures = evaluate_study(members, rows[0], selection, unusable=unusable).measures
    values = {name: measures.value(name) for name in MEASURES}
    return {name: value for name, value in values.items() if value is not None}
