"""The end of a study: its table, its measures for W&B, and whether all went well."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.callbacks.status import read_status
from dgbench.callbacks.wandb_log import WandbLog
from dgbench.cli.run import Ends
from dgbench.cli.search import Search, choices_of
from dgbench.cli.study import Study
from dgbench.cli.sweeps.marks import job_key, mark_end
from dgbench.errors import MembersFailedError
from dgbench.measures import MEASURES
from dgbench.protocols.selection import describe
from dgbench.records import ROW_FILE, read_rows
from dgbench.reports.choices import choices_table
from dgbench.reports.closing import closing_table
from dgbench.reports.renderers.terminal import plain_table
from dgbench.reports.studies import Study as Evaluated
from dgbench.reports.studies import evaluate_study, fold_ranges

log = logging.getLogger("dgbench")


SPELLED = 8  # more members left alone than this are only counted
TABLES = 4  # more studies in one job than this are told in a line each


def close_all(
    studies: Sequence[Study],
    ends: Ends,
    selection: Any,
    wandb_log: WandbLog | None,
    searches: Sequence[Search] = (),
) -> None:
    """Print the closing table of every study or search, and give a study's measures to W&B as a run of its own.

    Members that this job left alone are named last.

    Raises:
        MembersFailedError: a member failed; the message says which.
    """
    failed, left = [], []
    for study in studies:
        why = {m.fold.name: ends.left[m.identity.run] for m in study.members if m.identity.run in ends.left}
        lost = {m.fold.name: _why(m.folder) for m in study.members if ends.complete.get(m.identity.run) is False}
        _close(study, {**lost, **why}, selection, wandb_log, brief=len(studies) > TABLES)
        failed += [f"fold {fold_ranges(list(lost))} of {study.folder.name}"] if lost else []
        left += [f"fold {fold} of {study.folder.name}: {reason}" for fold, reason in why.items()]
    if left:
        print(f"left alone ({len(left)}): {'; '.join(left[:SPELLED])}{'; ...' if len(left) > SPELLED else ''}")
    for search in searches:
        _close_search(search)
    if failed:
        more = f" and of {len(failed) - TABLES} more" if len(failed) > TABLES else ""
        raise MembersFailedError(
            f"{'; '.join(failed[:TABLES])}{more} failed; see log.txt and status in its folder, mend the cause and "
            "start the same command again"
        )


def remember(folder: Path, config: DictConfig, studies: Sequence[Study]) -> None:
    """Let the next command know what this job planned, unless the images may be others by then.

    Args:
        folder: the job's.
        config: the job's.
        studies: all that it trained or found done.
    """
    if any(s.config.dataset.get("base") == "auto" and s.environments.identity()["base"] != "mnist" for s in studies):
        return  # MNIST, once it can be had, makes other members
    mark_end(folder, job_key(config), [member.folder for study in studies for member in study.members])


def _why(folder: Path) -> str:
    """``failed: out of memory``: the reason a member's status mark gives."""
    word, _, reason = read_status(folder).partition(" ")
    return f"{word.lower() or 'failed'}{f': {reason}' if reason else ''}"


def _close(study: Study, unusable: Mapping[str, str], selection: Any, wandb_log: WandbLog | None, brief: bool) -> None:
    rows: list[dict[str, Any]] = []
    for file in (member.folder / ROW_FILE for member in study.members):
        whole, torn = read_rows(file) if file.exists() else ([], [])
        rows += whole
        for problem in torn:
            log.warning("%s line %d dropped: %s", problem.file, problem.line, problem.reason)
    found = _evaluated(rows, selection, unusable) if rows else None
    measures = _measures(found) if found else {}
    searched = study.config.hparams.get("scheme") is not None  # one table tells the whole search
    if brief and not searched:
        print(f"{study.folder.name}: " + ", ".join(f"{name} {100 * value:.1f} %" for name, value in measures.items()))
    elif not searched:
        if rows:
            print(closing_table(rows, selection, unusable=unusable))
        print(f"rows: {study.folder}")
    if found and wandb_log:
        config: Any = {**OmegaConf.to_container(study.config, resolve=True), **study.columns()}  # type: ignore[dict-item]
        name = study.folder.name
        wandb_log.start(study.folder, study.run, name, "study", name, config, [*study.tags(), "study"])
        wandb_log.environments(found.held_out, found.everywhere)
        wandb_log.summary({**measures, "selection": selection.name})
        wandb_log.finish(failed=any(why.startswith("failed") for why in unusable.values()))


def _close_search(search: Search) -> None:
    """What was chosen for every trial and fold, once there is a choice."""
    found = choices_of(search)
    if found:
        print(plain_table(choices_table(found, describe(search.scheme.chosen_by))))
    print(f"rows: {search.place}")


def _evaluated(rows: Sequence[Mapping[str, Any]], selection: Any, unusable: Mapping[str, str]) -> Evaluated:
    """The errors and measures that these rows allow."""
    members: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        members[row["fold"]].append(row)
    return evaluate_study(members, rows[0], selection, unusable=unusable)


def _measures(found: Evaluated) -> dict[str, float]:
    """The measures that there are, by name."""
    values = {name: found.measures.value(name) for name in MEASURES}
    return {name: value for name, value in values.items() if value is not None}
