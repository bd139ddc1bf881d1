"""``python shift.py``: how far the environments of a dataset are apart.

Here are its plan and what it prints at the end, too.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.cli.entry import hydra_main, sign_of_life
from dgbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from omegaconf import DictConfig

    from dgbench.plan.studies import Planner
    from dgbench.records.shift_rows import ShiftRow
    from dgbench.shift.plan import PlannedShift

SHOWN = ("div", "cor", "emd", "mmd2", "ni", "tv", "min", "max", "noise", "d2", "d2_inf")
MOST_LINES = 60

log = logging.getLogger("dgbench")


@hydra_main(config_name="shift")
def shift(config: DictConfig) -> None:
    """Estimate what is not estimated yet.

    Everything that needs no torch is checked before torch loads.
    """
    from dgbench.plan.studies import Command
    from dgbench.shift.needs import OF_SHIFT

    command = Command.of_hydra(config)
    command.check_words(log.warning, OF_SHIFT)
    values = command.values()
    words = command.words
    parent = command.parent
    if config.plan:
        print_job_plan(values, words, parent)
        return

    from dgbench.shift.plan import planned_shift

    planned_shift(values, words, parent)  # wrong values are refused before anything is downloaded
    sign_of_life(f"{config.dataset.name}, shift: starting ...")

    from dgbench.shift.job import estimate_all
    from dgbench.shift.sampling import prepared
    from dgbench.training.processes import prepare_process

    planned = planned_shift(values, words, parent, download=True)
    prepare_process()
    if any(next(part.left(), None) for part in planned.estimators):
        caution = caution_of(planned)
        if caution:
            raise ConfigError(caution)
    estimate_all(planned, lambda: prepared(planned, sign_of_life), sign_of_life)
    command.place().record_end([estimator.folder for estimator in planned.estimators])
    if command.prints_plan:
        print_estimates([estimator.file for estimator in planned.estimators])


def print_end(n_jobs: int, done: int, folders: Sequence[Path], config: DictConfig) -> None:
    """Print how a sweep ended.

    The arguments are those of :func:`dgbench.cli.outcome.print_sweep_end`.
    """
    from dgbench.records.shift_rows import SHIFT_FILE
    from dgbench.records.status import is_done

    print(
        f"{done} of {n_jobs} job{'s' * (n_jobs != 1)} done: {sum(map(is_done, folders))} of "
        f"{len(folders)} estimators"
    )
    print_estimates([folder / SHIFT_FILE for folder in folders])


def job_check(
    planner: Planner, *, on_this_machine: bool
) -> Callable[[Sequence[str]], Counter[Path]]:
    """Make the function that refuses jobs of a sweep; they train no model.

    The arguments are those of :func:`dgbench.sweeps.plan.job_check`.
    """
    from dgbench.shift.plan import planned_shift

    def check(words: Sequence[str]) -> Counter[Path]:
        caution = caution_of(planned_shift(planner.compose(words).plain(), words, Path()))
        if on_this_machine and caution:
            raise ConfigError(caution)
        return Counter()

    return check


def caution_of(planned: PlannedShift) -> str:
    """Explain why this machine cannot do a job that another may be able to do.

    The text is empty if it can, or if no check with torch is needed.

    Raises:
        ConfigError, WeightsError: no machine can.
    """
    from dgbench.plan.building import is_small

    if is_small(planned.config, planned.info.image):
        return ""

    from dgbench.shift.sampling import check_network_of
    from dgbench.training.devices import why_not_here

    check_network_of(planned)
    return why_not_here(planned.settings)


def print_plan(jobs: Sequence[Sequence[str]], planner: Planner, **_: Any) -> None:
    """Print the plan of a sweep.

    The arguments are those of :func:`dgbench.sweeps.plan.print_plan`.
    """
    for words in jobs:
        composed = planner.compose(words)
        print_job_plan(composed.plain(), words, Path(composed.parent))


def print_job_plan(config: Mapping[str, Any], words: Sequence[str], parent: Path) -> None:
    """Print how many estimates a job makes, and how many are done.

    The arguments are those of ``planned_shift``.
    """
    from statistics import fmean

    from dgbench.records.shift_rows import read_shift_rows
    from dgbench.shift.plan import planned_shift
    from dgbench.sweeps.plan import absent_files

    planned = planned_shift(config, words, parent)
    caution = caution_of(planned)
    for part in planned.estimators:
        n = part.size
        n_left = len(list(part.left()))
        rows = read_shift_rows(part.file)[0] if part.file.exists() else []
        seconds = [row.seconds for row in rows if not row.refused]
        time = (
            f", about {fmean(seconds) * n_left:.0f} s at the speed of those"
            if seconds and n_left
            else ""
        )
        print(
            f"{planned.info.name}, {part.estimator.name}: {len(part.pairs)} pairs x "
            f"{len(part.slots)} estimates, {n - n_left} of {n} done{time}; {part.folder}"
        )
    for line in (
        *absent_files(planned.config, planned.info, planned.weights),
        *([caution] if caution else []),
    ):
        print(line)
    print("Nothing was started.", flush=True)


def print_estimates(files: Sequence[Path]) -> None:
    """Print the mean of the trials of every pair, and the same where there is no shift.

    The last line is the command of the report.
    """
    from dgbench.plan.report_line import report_line
    from dgbench.records.shift_rows import read_shift_rows

    for file in files:
        rows = read_shift_rows(file)[0] if file.exists() else []
        if rows:
            print(_table(rows))
            print(f"rows: {file}")
    folders = sorted({str(file.parent.parent) for file in files})
    print(f"report: {report_line(folders, ['report=shift'])}", flush=True)


def _table(rows: Sequence[ShiftRow]) -> str:
    """Format means of the trials of one estimator for the terminal, a line for each pair."""
    import pandas as pd

    from dgbench.records.shift_rows import HALVES, NO_NULL, TRIAL
    from dgbench.reports.render.formats import plain_table
    from dgbench.reports.tables import Column, table

    identity = rows[0].identity
    lines = []
    estimated: set[str] = set()
    present: set[str] = set()  # titles of columns that hold something
    for pair in dict.fromkeys((row.pairs, row.pair) for row in rows):
        trials = [row for row in rows if (row.pairs, row.pair) == pair and row.kind == TRIAL]
        real = [row for row in trials if row.null == NO_NULL]
        null = [row for row in trials if row.null == HALVES]
        exact: dict[str, float] = {}
        for row in reversed(real):  # the first has the last word
            exact |= row.exact
        line = {
            "p": " + ".join(trials[0].p),
            "q": " + ".join(trials[0].q),
            **pd.DataFrame([row.values for row in real]).mean(),
            **pd.DataFrame([row.values for row in null]).mean().add_prefix("null "),
            **{f"exact {name}": value for name, value in exact.items()},
            "note": next((row.refused for row in real if row.refused), ""),
        }
        present.update(title for title, value in line.items() if value != "")
        lines.append(line)
    for row in rows:
        estimated.update(row.values)
    shown = []
    for name in SHOWN:
        titles = (name, f"null {name}", f"exact {name}")
        if name in estimated:
            shown += [title for title in titles if title in present]
    columns = [
        Column("p", key=True),
        Column("q", key=True),
        *(Column(title, unit="correlation") for title in shown),
    ]
    if "note" in present:
        columns.append(Column("note"))
    network = f"{identity.backbone}, {identity.init}, {identity.features}"
    title = f"{identity.dataset}: {identity.estimator}, mean of trials ({network} features)"
    notes = []
    if len(lines) > MOST_LINES:
        notes.append(f"and {len(lines) - MOST_LINES} more pairs, in the report")
    return plain_table(table(lines[:MOST_LINES], "end", title, columns, notes))
