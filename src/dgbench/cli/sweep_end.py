"""The end of a sweep: how many jobs and models are done, what they found, and the command of the report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.analysis.selection import Selection, describe
from dgbench.configuration import command_words
from dgbench.errors import DgbenchError
from dgbench.plan.building import build
from dgbench.records.status import FAILED, is_done, read_status

MOST_RUNS = 5000  # of which a table is made within seconds; a report takes more
MOST_LINES = 40


def print_end(n_jobs: int, done: int, runs: Sequence[Path], config: DictConfig) -> None:
    """Print how a sweep ended.

    Args:
        n_jobs: of the sweep.
        done: of them, with nothing left to train.
        runs: folders of the runs of those that came to their end.
        config: of the sweep.
    """
    finished = [run for run in runs if is_done(run)]
    failed = sum(read_status(run).word == FAILED for run in runs)
    jobs = "1 job" if n_jobs == 1 else f"{n_jobs} jobs"
    models = f"{len(finished)} of their {len(runs)} models" + (f", {failed} failed" if failed else "")
    print(f"{done} of {jobs} done: {models}")
    selection = _selection(config)
    if finished and len(finished) <= MOST_RUNS:
        try:
            print(_table(finished, selection))
        except DgbenchError as error:  # e.g. results that no table may mix
            print(f"no table here: {error}")
    chosen = [f"selection={selection.name}"] if selection.name != "last" else []
    print("report: " + shlex.join([*command_words("report"), *chosen, f"runs=[{config.hydra.sweep.dir}]"]), flush=True)


def _selection(config: DictConfig) -> Selection:
    """That of the configuration; in a search the one that chooses among its draws."""
    searched = OmegaConf.select(config, "hparams.scheme.chosen_by") is not None
    found: Selection = build(config.hparams.scheme, "chosen_by") if searched else build(config, "selection")
    return found


def _table(runs: Sequence[Path], selection: Selection) -> str:
    """Measures of every algorithm, mean over its studies."""
    from dgbench.analysis import MEASURES
    from dgbench.reports.render.text import plain_table
    from dgbench.reports.results import measures, results
    from dgbench.reports.tables import Column, table

    studies = measures(results(runs, selection))
    varying = [
        str(name)
        for name in studies.columns
        if str(name).startswith(("dataset", "variant.", "base", "given", "init", "protocol"))
        and studies[name].map(str).nunique() > 1
    ]
    lines: list[dict[str, Any]] = []
    for key, own in studies.groupby([*varying, "label"], dropna=False, sort=False):
        line = dict(zip([*varying, "label"], map(str, key), strict=True))
        means = {name: own[name].mean(skipna=False) for name in MEASURES}
        lines.append({**line, "seeds": own["seed"].nunique(), **means})
    lines = [{name: None if value != value else value for name, value in line.items()} for line in lines]
    columns = [
        *(Column(name, key=True) for name in varying),
        Column("label", "algorithm", key=True),
        Column("seeds", unit="count"),
        *(Column(name, title, unit="percent") for name, title in MEASURES.items()),
    ]
    notes = [f"and {len(lines) - MOST_LINES} more lines, in the report"] if len(lines) > MOST_LINES else []
    title = f"Measures, mean over seeds ({describe(selection)})"
    return plain_table(table(lines[:MOST_LINES], "end", title, columns, notes))
