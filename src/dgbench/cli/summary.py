"""The end of a study: its table, its measures for W&B, and whether all went well."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.analysis import MEASURES
from dgbench.analysis.selection import describe
from dgbench.callbacks.loggers import MetricsLogger, RunInfo, WandbLog
from dgbench.cli.searches import Search, choices_of
from dgbench.plan.studies import TABLES, Ended
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.records.status import read_status
from dgbench.reports.evaluation import Study as Evaluated
from dgbench.reports.evaluation import evaluate_study, fold_ranges
from dgbench.reports.hparams import choices_table
from dgbench.reports.measuring.closing import closing_table
from dgbench.reports.render.text import plain_table
from dgbench.training.study import Study
from dgbench.training.train_runs import RunOutcomes

log = logging.getLogger("dgbench")


SPELLED = 8  # more runs left alone than this are only counted


def summarize(
    studies: Sequence[Study],
    outcomes: RunOutcomes,
    selection: Any,
    logger: MetricsLogger | None,
    searches: Sequence[Search] = (),
) -> Ended:
    """Print the summary of every study or search, and give a study's measures to W&B as a run of its own.

    Runs that this job left alone are named last.
    """
    failed, left = [], []
    wandb_log = logger if isinstance(logger, WandbLog) else None
    for study in studies:
        why = {run.fold.name: outcomes.left[run.hash] for run in study.runs if run.hash in outcomes.left}
        lost = {run.fold.name: _why(run.folder) for run in study.runs if outcomes.complete.get(run.hash) is False}
        _summarize(study, {**lost, **why}, selection, wandb_log, brief=len(studies) > TABLES)
        failed += [f"fold {fold_ranges(list(lost))} of {study.folder.name}"] if lost else []
        left += [f"fold {fold} of {study.folder.name}: {reason}" for fold, reason in why.items()]
    if left:
        print(f"left alone ({len(left)}): {'; '.join(left[:SPELLED])}{'; ...' if len(left) > SPELLED else ''}")
    for search in searches:
        _summarize_search(search)
    return Ended([run.folder for study in studies for run in study.runs], failed)


def _why(folder: Path) -> str:
    """``failed: out of memory``: the reason a run's status gives."""
    status = read_status(folder)
    return f"{status.word.lower() or 'failed'}{f': {status.reason}' if status.reason else ''}"


def _summarize(
    study: Study, unusable: Mapping[str, str], selection: Any, wandb_log: WandbLog | None, brief: bool
) -> None:
    rows: list[dict[str, Any]] = []
    for file in (run.folder / ROW_FILE for run in study.runs):
        whole, torn = read_rows(file) if file.exists() else ([], [])
        rows += whole
        for problem in torn:
            log.warning("%s line %d dropped: %s", problem.file, problem.line, problem.reason)
    found = evaluate_study(rows, selection, unusable) if rows else None
    measures = _measures(found) if found else {}
    searched = study.planned.search is not None  # one table tells the whole search
    if brief and not searched:
        print(f"{study.folder.name}: " + ", ".join(f"{name} {100 * value:.1f} %" for name, value in measures.items()))
    elif not searched:
        if rows:
            print(closing_table(rows, selection, unusable=unusable))
        print(f"rows: {study.folder}")
    if found and wandb_log:
        name, tags = study.folder.name, [*study.tags(), "study"]
        wandb_log.start(RunInfo(study.folder, study.spec.digest, name, "study", name, study.columns(), tags))
        wandb_log.environments(found.held_out, found.everywhere)
        wandb_log.summary({**measures, "selection": selection.name})
        wandb_log.finish(failed=any(why.startswith("failed") for why in unusable.values()))


def _summarize_search(search: Search) -> None:
    """What was chosen for every trial and fold, once there is a choice."""
    found = choices_of(search)
    if found:
        table = choices_table(found)
        print(plain_table(table, f"{table.title} ({describe(search.scheme.chosen_by)})"))
    print(f"rows: {search.place}")


def _measures(found: Evaluated) -> dict[str, float]:
    """The measures that there are, by name."""
    values = {name: found.measures.value(name) for name in MEASURES}
    return {name: value for name, value in values.items() if value is not None}
