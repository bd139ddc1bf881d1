"""What ``shift.py`` prints: its plan, and at its end the estimates and the command of the report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig

from dgbench.configuration import command_words
from dgbench.plan.studies import Planner
from dgbench.records.shift_rows import HALVES, NO_NULL, SHIFT_FILE, TRIAL, ShiftRow, read_shift_rows
from dgbench.records.status import is_done

SHOWN = ("div", "cor", "emd", "mmd2", "ni", "tv", "min", "max", "noise", "d2", "d2_inf")
MOST_LINES = 60


def print_estimates(files: Sequence[Path]) -> None:
    """The mean of the trials of every pair, the same where there is no shift, and the command of the report."""
    for file in files:
        rows = read_shift_rows(file)[0] if file.exists() else []
        if rows:
            print(_table(rows))
            print(f"rows: {file}")
    folders = sorted({str(file.parent.parent) for file in files})
    print(
        "report: " + shlex.join([*command_words("report"), "report=shift", f"runs=[{','.join(folders)}]"]), flush=True
    )


def _table(rows: Sequence[ShiftRow]) -> str:
    from dgbench.reports.frames import Column, table
    from dgbench.reports.renderers.terminal import plain_table

    identity = rows[0].identity
    lines = []
    names = [name for name in SHOWN if any(name in row.values for row in rows)]
    for pair in dict.fromkeys((row.pairs, row.pair) for row in rows):
        own = [row for row in rows if (row.pairs, row.pair) == pair and row.kind == TRIAL]
        real, null = ([row for row in own if row.null == which] for which in (NO_NULL, HALVES))
        line: dict[str, Any] = {"p": " + ".join(own[0].p), "q": " + ".join(own[0].q)}
        for name in names:
            line[name], line[f"null {name}"] = _mean(real, name), _mean(null, name)
            exact = [row.exact[name] for row in real if name in row.exact]
            line[f"exact {name}"] = exact[0] if exact else None
        line["note"] = next((row.refused for row in real if row.refused), "")
        lines.append(line)
    shown = [title for name in names for title in (name, f"null {name}", f"exact {name}")]
    filled = [title for title in shown if any(line[title] is not None for line in lines)]
    columns = [
        Column("p", key=True),
        Column("q", key=True),
        *(Column(title, unit="correlation") for title in filled),
        *([Column("note")] if any(line["note"] for line in lines) else []),
    ]
    network = f"{identity.backbone}, {identity.init}, {identity.features}"
    title = f"{identity.dataset}: {identity.estimator}, mean of trials ({network} features)"
    notes = [f"and {len(lines) - MOST_LINES} more pairs, in the report"] if len(lines) > MOST_LINES else []
    return plain_table(table(lines[:MOST_LINES], "end", title, columns, notes))


def _mean(rows: Sequence[ShiftRow], name: str) -> float | None:
    found = [row.values[name] for row in rows if name in row.values]
    return fmean(found) if found else None


def print_end(n_jobs: int, done: int, folders: Sequence[Path], config: DictConfig) -> None:
    """Print how a sweep ended.

    Args:
        n_jobs: of the sweep.
        done: of them, with nothing left.
        folders: of the rows of those that came to their end.
        config: of the sweep.
    """
    print(
        f"{done} of {n_jobs} job{'s' * (n_jobs != 1)} done: {sum(map(is_done, folders))} of {len(folders)} estimators"
    )
    print_estimates([folder / SHIFT_FILE for folder in folders])


def print_plan(jobs: Sequence[Sequence[str]], planner: Planner, folder: Path, **_: Any) -> None:
    """The plan of a sweep.

    Args:
        jobs: overrides of each.
        planner: composes their configurations.
        folder: where rows go.
    """
    for words in jobs:
        print_job_plan(planner.compose(words).plain(), words, folder)


def print_job_plan(config: Mapping[str, Any], words: Sequence[str], parent: Path) -> None:
    """How many estimates a job makes, and how many are there; nothing is started.

    Args:
        config: plain resolved values by top-level key.
        words: overrides that were typed.
        parent: folder for the folders of rows.
    """
    from dgbench.estimation.shift_plan import planned_shift
    from dgbench.plan.settings import check_configuration

    check_configuration(config)
    planned = planned_shift(config, words, parent)
    for each in planned.estimators:
        n, left = each.size, len(list(each.left()))
        rows = read_shift_rows(each.file)[0] if each.file.exists() else []
        known = [row.seconds for row in rows if not row.refused]
        time = f", about {fmean(known) * left:.0f} s at the speed of those" if known and left else ""
        print(
            f"{planned.info.name}, {each.estimator.name}: {len(each.pairs)} pairs x {len(each.slots)} estimates, "
            f"{n - left} of {n} done{time}; {each.folder}"
        )
    if not planned.info.present:
        print(f"not here yet: images of {planned.info.name}")
    print("Nothing was started.", flush=True)
