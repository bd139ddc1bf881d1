"""How sure the differences of one setting are.

Who leads, and whom the seeds separate from the leader; paired resamples of seeds and environments.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations, compress, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import Measure, Resamples, Statistics, lead, resample
from dgbench.analysis.measures import Floats
from dgbench.errors import MeasureError
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.measuring.expected import role_of
from dgbench.reports.over_seeds import (
    algorithms_of,
    by_seed,
    complete,
    means,
    ranked_by,
    seeds_of,
)
from dgbench.reports.standing import Verdict, chance_of
from dgbench.reports.tables import Column, Table, entries, entry, interval_entry, table

VERDICTS = (
    "worse than the leader: its seeds separate the two; not separated: they do not; not the best: "
    "another algorithm beats it, though the leader does not"
)
ALGORITHM = Column("algorithm", key=True)
_MOST_PAIRED = 400  #: algorithms whose pairs are listed: 79,800 lines


def certainty_table(evaluation: Evaluation) -> Table:
    """List each algorithm's difference to the leader and how it stands, by each compared measure.

    Difference and verdict come from one test, so that an interval excludes 0 exactly where the two
    are separated.
    """
    studies = evaluation.studies
    names = algorithms_of(studies)
    ranking = means(by_seed(studies, ranked_by(studies, evaluation.measures).name))
    names.sort(key=lambda name: (ranking.get(name, np.inf), name))
    cells: dict[str, dict[str, Any]] = {name: {"algorithm": name} for name in names}
    columns = [ALGORITHM]
    notes = []
    for measure in evaluation.measures.compared:
        title = measure.title
        difference = f"{title}: to the leader"
        word = f"{title}: verdict"
        columns += [
            Column(difference, unit="points", help=f"{title} less that of the leader"),
            Column(word, help=VERDICTS),
        ]
        verdict = evaluation.verdicts[measure.name]
        if verdict is None or not verdict.comparisons:
            reason = "fewer than 2 algorithms have a value"
            notes.append(f"{title}: not compared, {reason}.")
            for name in names:
                cells[name] |= entries((difference, word), reason)
            continue
        for name in names:
            cells[name] |= _against_leader(verdict, name, difference)
            cells[name][word] = verdict.word(name)
        notes.append(f"{title}: {verdict.leaders.text} {_leads(verdict)}; {verdict.apart()}")
    tests = f"paired t-tests over seeds, one-sided at 0.05 / {max(2, len(names) - 1)}"
    notes.append(
        f"One test for interval and verdict: {tests} (Bonferroni over the {len(names)} "
        "algorithms), so an interval excludes 0 exactly where the seeds separate the two."
    )
    return table(list(cells.values()), "certainty", "Which differences hold", columns, notes)


def _leads(verdict: Verdict) -> str:
    return "leads" if len(verdict.leaders.names) == 1 else "lead"


def _against_leader(verdict: Verdict, name: str, column: str) -> dict[str, Any]:
    """Fill the difference of one algorithm to the leader, or say why there is none."""
    if name in verdict.leaders.names:
        return entry(column, 0.0)
    rival = verdict.comparisons.get(name)
    if rival is None:
        return entry(column, reason="no complete seed: not ruled out")
    if rival.difference is None:
        return entry(
            column, reason=f"{rival.seeds} seeds in common with {verdict.leader}; 2 are needed"
        )
    cell = interval_entry(column, rival.difference)
    if name in verdict.remarks:
        cell[f"{column}.flag"] = f"({verdict.remarks[name]})"
    return cell


def lead_table(evaluation: Evaluation) -> Table:
    """Ask of the first two by each measure how often one of two equal algorithms would lead by as
    much.
    """
    columns = [
        Column("measure", key=True),
        Column("leader"),
        Column("next"),
        Column("lead", unit="points", help="mean over the seeds that both have"),
        Column("wins", help="seeds in which the leader is lower"),
        Column(
            "p", unit="probability", help="share of the relabelings of seeds with as large a lead"
        ),
        Column("in words"),
    ]
    lines = []
    for measure in evaluation.measures.compared:
        verdict = evaluation.verdicts[measure.name]
        if verdict is None or not verdict.comparisons or len(verdict.leaders.names) > 1:
            continue
        second = verdict.rivals[0]
        matrix = by_seed(evaluation.studies, measure.name)
        values = matrix.loc[[verdict.leader, second]].dropna(axis=1)
        if not values.shape[1]:
            continue
        leading = lead(values.to_numpy())
        lines.append(
            {
                "measure": measure.title,
                "leader": verdict.leader,
                "next": second,
                "lead": leading.size,
                "wins": f"{leading.wins} of {leading.seeds}",
                "p": leading.p_value,
                "in words": chance_of(leading),
            }
        )
    notes = [
        "One of two equal algorithms would lead by as much in this share of all exchanges of their "
        "values within seeds: a test that assumes no normal values, of the first two alone."
    ]
    title = "Is the lead luck? A permutation test of the first two"
    return table(lines, "lead", title, columns, notes if lines else [], detail=True)


def resampled_table(evaluation: Evaluation, statistics: Statistics) -> Table:
    """List each algorithm's difference to the lowest and its rank, under resampled seeds and
    environments.
    """
    samples, absences = resamples(evaluation, statistics)
    names = sorted(set().union(*(sample.names for sample in samples.values())))
    lines: dict[str, dict[str, Any]] = {name: {"algorithm": name} for name in names}
    columns = [ALGORITHM]
    notes = []
    if samples:
        notes.append(_intervals_note(evaluation, statistics, samples))
    for measure in evaluation.measures.compared:
        title = measure.title
        difference = f"{title}: to the lowest"
        rank = f"{title}: rank"
        columns += [
            Column(difference, unit="points", help=f"{title} less the lowest of all algorithms"),
            Column(rank, unit="rank", help="1 is the lowest"),
        ]
        if measure.name not in samples:
            absence = absences[measure.name]
            notes.append(f"{title}: not computed, {absence}.")
            for line in lines.values():
                line |= entries((difference, rank), absence)
            continue
        sample = samples[measure.name]
        best = sample.names[int(np.argmin(sample.estimate))]
        ranks = sample.ranks()
        for name, line in lines.items():
            if name in ranks:
                line |= interval_entry(difference, sample.difference(name, best))
                line |= interval_entry(rank, ranks[name])
            else:
                line |= entries((difference, rank), "not complete in every seed")
    incomplete = sorted(set(algorithms_of(evaluation.studies)) - set(names))
    if incomplete and samples:
        notes.append(f"Not complete in every seed, left out: {', '.join(incomplete)}.")
    title = "What might other seeds and environments show? A paired bootstrap"
    return table(list(lines.values()), "resampled", title, columns, notes, detail=True)


def difference_table(evaluation: Evaluation, statistics: Statistics) -> Table:
    """List every pair of algorithms with the interval of their difference.

    Of more than 400 algorithms these are the first by the measure that ranks, as pairs grow with
    the square: 1,267 algorithms would have 802,011.
    """
    samples, _ = resamples(evaluation, statistics)
    compared = evaluation.measures.compared
    columns = [ALGORITHM, Column("less", "minus", key=True)]
    columns += [
        Column(measure.title, unit="points", help=f"difference of {measure.title}")
        for measure in compared
    ]
    names = set().union(*(sample.names for sample in samples.values()))
    one_seed = evaluation.studies["seed"].nunique() < 2
    listed = [] if one_seed else _first_of(names, evaluation)
    pairs = list(combinations(listed, 2))
    frame = pd.DataFrame(pairs, columns=["algorithm", "less"])
    for measure in compared:
        frame = frame.assign(**_differences(pairs, measure.title, samples.get(measure.name)))
    notes = [
        f"Bold: the {statistics.percent} paired bootstrap interval excludes 0. {len(pairs)} pairs, "
        "each judged by itself, so that of many pairs some exclude 0 by luck. Verdicts stand in "
        '"Which differences hold".'
    ]
    if 0 < len(listed) < len(names):
        ranking = ranked_by(evaluation.studies, evaluation.measures)
        notes.append(
            f"The first {len(listed)} of {len(names):,} algorithms by {ranking.in_prose}: all have "
            f"{math.comb(len(names), 2):,} pairs. 'report.pair=[A,B]' compares any two."
        )
    if not pairs:
        notes = ["One seed judges no pair: none is listed."] if one_seed else []
    title = "How far apart are every two? A paired bootstrap, each pair by itself"
    return table(frame, "differences", title, columns, notes, detail=True)


def _first_of(names: Collection[str], evaluation: Evaluation) -> list[str]:
    """Sort the algorithms whose pairs are listed: all, or the first of very many."""
    if len(names) <= _MOST_PAIRED:
        return sorted(names)
    studies = evaluation.studies
    ranking = means(by_seed(studies, ranked_by(studies, evaluation.measures).name))
    by_rank = sorted(names, key=lambda name: (ranking.get(name, np.inf), name))
    return sorted(by_rank[:_MOST_PAIRED])


def _differences(
    pairs: Sequence[tuple[str, str]], title: str, sample: Resamples | None
) -> dict[str, Any]:
    """Make the columns of the differences of pairs by one measure.

    Args:
        pairs: those of one first algorithm stand together.
        title: of the measure.
        sample: resamples of the algorithms that are complete by it; None if there are none.
    """
    judged = set(sample.names) if sample else set()
    blocks = []
    for first, of_first in groupby(pairs, key=itemgetter(0)):
        seconds = [second for _, second in of_first]
        known = np.array([first in judged and second in judged for second in seconds])
        block = np.full((len(seconds), 3), np.nan)
        if sample and known.any():
            block[known] = sample.differences(first, list(compress(seconds, known)))
        blocks.append(block)
    values, low, high = np.concatenate([np.empty((0, 3)), *blocks]).T
    is_known = ~np.isnan(values)
    columns: dict[str, Any] = {title: values}
    if is_known.any():
        excludes_zero = (low > 0) | (high < 0)
        best = excludes_zero
        if not is_known.all():
            best = np.where(is_known, excludes_zero.astype(object), None)
        columns |= {f"{title}.low": low, f"{title}.high": high, f"{title}.best": best}
    if not is_known.all():
        reason = "not computed, see the table above"
        columns[f"{title}.reason"] = [None if known else reason for known in is_known]
    return columns


def resamples(
    evaluation: Evaluation, statistics: Statistics
) -> tuple[dict[str, Resamples], dict[str, str]]:
    """Draw resamples of the complete algorithms: measure -> resamples, and measure -> why there are
    none.
    """
    samples = {}
    absences = {}
    for measure in evaluation.measures.compared:
        name = measure.name
        matrix = complete(evaluation.studies, [name])[name]
        names = list(map(str, matrix.index))
        try:
            if len(names) < 2:
                counts = f"{len(names)} of {len(algorithms_of(evaluation.studies))}"
                raise MeasureError(
                    f"a difference needs 2 algorithms with a value in every seed, here are {counts}"
                )
            values = matrix.to_numpy()
            if measure.is_mean:
                values = _errors_of(evaluation, measure, matrix)
            rng = statistics.rng("certainty", name)
            samples[name] = resample(
                names, values, rng, draws=statistics.draws, level=statistics.level
            )
        except MeasureError as problem:
            absences[name] = str(problem)
    return samples, absences


def _errors_of(evaluation: Evaluation, measure: Measure, matrix: pd.DataFrame) -> Floats:
    """Arrange the errors that a mean is of, so that environments are resampled too: algorithm x
    seed x environment.
    """
    role = role_of(measure)
    lines = evaluation.errors[evaluation.errors["role"] == role]
    errors = lines.groupby(["algorithm", "seed"], sort=False)["error"].apply(list).to_dict()
    by_algorithm = []
    for name in matrix.index:
        by_algorithm.append([errors[name, seed] for seed in matrix.columns])
    return np.array(by_algorithm)


def _intervals_note(
    evaluation: Evaluation, statistics: Statistics, samples: dict[str, Resamples]
) -> str:
    count = len(seeds_of(evaluation.studies))
    seeds = "seeds are" if count > 1 else "1 seed, only environments are"
    units = min(sample.units for sample in samples.values())
    text = (
        f"[low, high]: {statistics.percent} paired bootstrap interval, {statistics.draws} "
        f"resamples, widened for the {units} units "
        f"resampled; {seeds} resampled"
    )
    means_of_errors = [
        measure.title
        for measure in evaluation.measures.compared
        if measure.is_mean and measure.name in samples
    ]
    addition = ""
    if means_of_errors and count > 1:
        addition = f" (for the {', '.join(means_of_errors)}, held-out environments too)"
    return f"{text}{addition}. Each difference is judged by itself."
