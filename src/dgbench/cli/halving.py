"""``hparams=halving``: what stands between two rungs of a search.

Draws are ranked, and those that lost are stopped.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dgbench.analysis.evaluations import COUNTED_BY, RunKey, records_of
from dgbench.callbacks.progress import StudyProgress
from dgbench.cli.outcome import Search, rows_of, runs_of
from dgbench.errors import ConfigError
from dgbench.plan.search import Halving
from dgbench.records.status import STOPPED, is_settled, read_status, write_status
from dgbench.training.checkpoints import last_step
from dgbench.training.study import ReadyRun, ReadyStudy

log = logging.getLogger("dgbench")


def rung_ends(searches: Sequence[Search]) -> list[int]:
    """List the steps at which all rungs but the last end.

    There are none without ``hparams=halving``.

    Raises:
        ConfigError: rungs that the runs cannot have.
    """
    ends = set()
    for search in searches:
        if not isinstance(search.scheme, Halving):
            continue
        for study in search.studies:
            if study.settings.devices > 1:
                raise ConfigError(
                    "hparams=halving can only pause runs of one process; set trainer.devices=1"
                )
            if any(run.evaluations.every == 0 for run in study.runs):
                raise ConfigError(
                    "hparams=halving needs evaluations while a run trains; set averaging=none"
                )
            ends.add(tuple(search.scheme.ends(study.settings.steps, study.settings.eval_every)))
    if len(ends) > 1 or (
        ends and not all(isinstance(search.scheme, Halving) for search in searches)
    ):
        raise ConfigError(
            "hparams=halving needs the same rungs in all studies of a command; sweep over "
            "trainer.steps and trainer.eval_every with -m"
        )
    return list(ends.pop()) if ends else []


def survivors(
    studies: Sequence[ReadyStudy], searches: Sequence[Search], end: int, progress: StudyProgress
) -> list[ReadyStudy]:
    """Stop the draws that rank last at the end of a rung; the others go on, every fold of them.

    Args:
        studies: that trained in this rung.
        searches: that they belong to.
        end: step at which the rung ended.
        progress: shows which stop.

    Returns:
        The studies that advance; none if a run of the rung did not finish, since nothing can be
        ranked then.

    Raises:
        ConfigError: the selection has nothing to rank by.
    """
    waiting = [run for run in runs_of(studies) if not _came_to(run, end)]
    if waiting:
        text = str(read_status(waiting[0].folder)) or "not started"
        log.warning(
            "a rung is not complete: %d models did not reach step %d (e.g. %s: %s); "
            "the same command continues",
            len(waiting),
            end,
            waiting[0].title,
            text,
        )
        return []
    going = []
    for search in searches:
        scheme = search.scheme
        trials = defaultdict(list)
        assert isinstance(scheme, Halving)
        for study in studies:
            if study.planned.search == search.planned:
                trials[study.spec.trial].append(study)
        for draws in trials.values():
            accuracy = _accuracies(draws, scheme, end)
            ranked = sorted(
                draws,
                key=lambda study: (accuracy[study.folder.name], study.spec.draw),
                reverse=True,
            )
            n = scheme.going_on(len(draws))
            going += ranked[:n]
            for place, study in enumerate(ranked[n:], n + 1):
                value = accuracy[study.folder.name]
                shown = f"validation accuracy {100 * value:.2f} %"
                if value == -math.inf:
                    shown = "no validation accuracy"
                reason = (
                    f"at step {end}: {shown}, place {place} of {len(draws)}, of which {n} go on"
                )
                _stop(study, reason, progress)
    return [study for study in studies if study in going]


def _stop(study: ReadyStudy, reason: str, progress: StudyProgress) -> None:
    """Stop the runs of a study that are not over, and show how each ended."""
    for run in study.runs:
        if not is_settled(run.folder):
            write_status(run.folder, STOPPED, reason)
        progress.end(run.title, str(read_status(run.folder)))


def _came_to(run: ReadyRun, end: int) -> bool:
    """Return whether a run has trained to a step, or cannot.

    A run that failed later is tried again by a later rung.
    """
    return is_settled(run.folder) or last_step(run) >= end


def _accuracies(draws: Sequence[ReadyStudy], scheme: Halving, end: int) -> dict[str, float]:
    """Compute the validation accuracy of draws by folder name.

    It is the mean over the folds that the selection can judge.

    Args:
        draws: of one trial.
        scheme: says how they are judged.
        end: last step whose rows count; a draw that is further already has more.
    """
    names = ("step", "env", "subset", "env_held_out", "seen", "wrong", *COUNTED_BY.values())
    runs = runs_of(draws)
    numbers = {run.hash: number for number, run in enumerate(runs)}
    keys = [
        RunKey(
            "",
            tuple(run.study.info.given),
            frozenset(run.fold.held_out),
            run.spec.seed,
            run.spec.draw,
        )
        for run in runs
    ]
    lines = []
    for study in draws:
        for row in rows_of(study.planned):
            if row["step"] <= end:
                line = {name: row[name] for name in names}
                lines.append({"run": numbers[row["run"]], **line})
    choices = scheme.chosen_by.choose(
        records_of(pd.DataFrame(lines, columns=["run", *names]), keys)
    )
    judged = {run.fold.name for number, run in enumerate(runs) if choices.judged[number]}
    if not judged:
        raise ConfigError(
            f"hparams.scheme.chosen_by={scheme.chosen_by.name} cannot rank any draw here: "
            f"{next(iter(choices.reason.values()), 'no rows')}"
        )
    values: dict[str, list[float]] = defaultdict(list)
    for number, run in enumerate(runs):
        if run.fold.name in judged:
            value = float(choices.accuracy[number]) if choices.judged[number] else math.nan
            values[run.study.folder.name].append(-math.inf if math.isnan(value) else value)
    return {name: float(np.mean(accuracies)) for name, accuracies in values.items()}
