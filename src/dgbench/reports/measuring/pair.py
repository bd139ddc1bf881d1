"""Two algorithms that were named before anybody looked: which one is better, and how sure that is.

It is the paired test by which a report says who leads (:func:`dgbench.analysis.standing`), of these
two alone: nothing is corrected for other comparisons, since the data chose neither of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from dgbench.analysis import Measure, Rival, Statistics, standing
from dgbench.analysis.measures import ROUNDING
from dgbench.errors import ConfigError
from dgbench.plan.settings import Name
from dgbench.reports.document import Section
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.labels import label_meant
from dgbench.reports.measuring.certainty import resamples
from dgbench.reports.over_seeds import algorithms_of, by_seed, reasons
from dgbench.reports.resolution import no_verdict
from dgbench.reports.tables import Column, Table, decimal, entry, interval_entry, percent, table
from dgbench.validation import Refusal, some_of

NamedPair = Annotated[
    Annotated[list[Name], Field(min_length=2, max_length=2)],
    Refusal("is no pair of names", "write e.g. report.pair=[coral,erm]"),
]
_MOST_SETTINGS = 4  # that a sentence names; more are in the table
_MOST_NAMED = 12
_LEAST_P = 0.001  # a smaller p-value is said to be below it


def labels_of_pair(
    pair: Sequence[str], labels: Collection[str], key: str = "report.pair"
) -> tuple[str, str]:
    """Find the labels of two algorithms that a user names.

    Args:
        pair: two names, as they were typed.
        labels: of the algorithms with rows.
        key: that holds them, for messages.

    Raises:
        ConfigError: one is no algorithm here, or both are the same.
    """
    meant = []
    for name in pair:
        label = label_meant(name, labels)
        if label is None:
            close = get_close_matches(name.lower(), [label.lower() for label in labels], n=1)
            alike = [label for label in labels if label.lower() in close]
            question = f"did you mean {alike[0]}? " if alike else ""
            raise ConfigError(
                f"{key} names {name}, which is no algorithm with rows here; {question}there are "
                f"{some_of(sorted(labels), _MOST_NAMED)}"
            )
        meant.append(label)
    first, second = meant
    if first == second:
        raise ConfigError(f"{key} names {first} twice; name two algorithms")
    return first, second


def pair_section(evaluation: Evaluation, pair: Sequence[str], statistics: Statistics) -> Section:
    """Build the section that compares two algorithms, in every setting where both were run.

    Args:
        evaluation: of all settings.
        pair: two names, as they were typed.
        statistics: settings of the bootstrap.

    Raises:
        ConfigError: one is no algorithm here, or both are the same.
    """
    first, second = labels_of_pair(pair, algorithms_of(evaluation.studies))
    title = f"{first} and {second}, named beforehand"
    shared = [
        setting.title
        for setting in evaluation.settings
        if {first, second} <= set(algorithms_of(evaluation.of(setting.title).studies))
    ]
    if not shared:
        return Section("pair", title, answer=[_apart(evaluation, first, second)])
    restricted = {name: _of_pair(evaluation.of(name), first, second) for name in shared}
    answer = []
    for name in shared[:_MOST_SETTINGS]:
        place = f"{name}: " if len(evaluation.settings) > 1 else ""
        answer += [f"{place}{text}" for text in pair_sentences(restricted[name], first, second)]
    if len(shared) > _MOST_SETTINGS:
        answer.append(f"{len(shared) - _MOST_SETTINGS} more settings stand in the table.")
    judged = {
        name: part for name, part in restricted.items() if not no_verdict(part.settings[0].identity)
    }
    if not judged:
        return Section("pair", title, answer=answer)
    answer.append(_how(evaluation, len(judged)))
    return Section("pair", title, [_pair_table(judged, first, second, statistics)], (), answer)


def pair_sentences(evaluation: Evaluation, first: str, second: str) -> list[str]:
    """Write which of two algorithms is better, one sentence for each compared measure.

    Args:
        evaluation: of one setting.
        first, second: labels of algorithms in it.
    """
    unjudged = no_verdict(evaluation.settings[0].identity)
    if unjudged:
        return unjudged
    measures = evaluation.measures.compared
    sentences = [_sentence(evaluation.studies, measure, first, second) for measure in measures]
    return list(dict.fromkeys(sentences))  # what is missing may be the same for all


def _of_pair(evaluation: Evaluation, first: str, second: str) -> Evaluation:
    studies = evaluation.studies
    errors = evaluation.errors
    return replace(
        evaluation,
        studies=studies[studies["algorithm"].isin([first, second])],
        errors=errors[errors["algorithm"].isin([first, second])],
    )


def _values(studies: pd.DataFrame, measure: Measure, first: str, second: str) -> pd.DataFrame:
    """Arrange the measure of both as 2 x seed, of the seeds that both have."""
    return by_seed(studies, measure.name).reindex([first, second]).dropna(axis=1)


def _sentence(studies: pd.DataFrame, measure: Measure, first: str, second: str) -> str:
    name = measure.in_prose
    values = _values(studies, measure, first, second)
    if not values.shape[1]:
        return _no_shared_seed(studies, measure, first, second)
    outcome = standing(values.to_numpy())
    (rival,) = outcome.rivals
    better = str(values.index[outcome.leader])
    other = str(values.index[rival.position])
    seeds = values.shape[1]
    if seeds == 1:
        one = values.iloc[:, 0]
        distance = percent(abs(one.loc[first] - one.loc[second]))
        return (
            f"Undecided by {name}: {better} is {distance} points below {other} in the 1 seed that "
            "both have, and 1 seed cannot tell that from luck."
        )
    assert rival.difference is not None  # of 2 seeds or more
    numbers = (
        f"[{percent(rival.difference.low)}, {percent(rival.difference.high)}], {_p_text(rival)}, "
        f"{seeds} seeds"
    )
    distance = f"{percent(rival.difference.estimate)} points"
    if rival.separated:
        return f"{better} beats {other} by {distance} of {name} {numbers}."
    if np.allclose(values.iloc[0], values.iloc[1], rtol=ROUNDING, atol=0):
        return f"{first} and {second} are equal in {name} in each of {seeds} seeds."
    return f"Undecided by {name}: {better} is {distance} below {other} {numbers}."


def _p_text(rival: Rival) -> str:
    assert rival.p_value is not None
    if rival.p_value < _LEAST_P:
        return f"p < {_LEAST_P}"
    places = 2 if rival.p_value >= 0.1 else 3
    return f"p = {decimal(rival.p_value, places)}"


def _no_shared_seed(studies: pd.DataFrame, measure: Measure, first: str, second: str) -> str:
    """Say why two algorithms have no value of a measure in a common seed."""
    values = by_seed(studies, measure.name)
    absences = reasons(studies, measure.name)
    for name in (first, second):
        if name not in values.index:
            reason = absences.get(name, "no seed has it")
            return f"Not compared by {measure.in_prose}: {name} has none ({reason})."
    seeds = []
    for name in (first, second):
        present = [str(seed) for seed in values.loc[name].dropna().index]
        seeds.append(f"{name} seed{'s' * (len(present) > 1)} {some_of(present, 6)}")
    return (
        f"Not compared by {measure.in_prose}: no seed is complete for both, {seeds[0]} and "
        f"{seeds[1]}; pairs need the same seeds."
    )


def _apart(evaluation: Evaluation, first: str, second: str) -> str:
    """Say that two algorithms were never run in one setting, and where each was."""
    places = []
    for name in (first, second):
        studies = evaluation.studies
        titles = list(dict.fromkeys(studies.loc[studies["algorithm"] == name, "setting"]))
        places.append(f"{name} in {some_of(titles, 2)}")
    return (
        f"Not compared: {first} and {second} were run in different settings, {'; '.join(places)}. "
        "A difference between them may be that of the settings."
    )


def _how(evaluation: Evaluation, settings: int) -> str:
    text = (
        "Lower is better. Interval (95%) and p are of a paired t-test over seeds, each on the same "
        "environments; not corrected, as is right for two that were named beforehand."
    )
    tests = settings * len(evaluation.measures.compared)
    if settings > 1:
        text += f" These are {tests} tests: of 20, one is below 0.05 by luck."
    return text


def _pair_table(
    evaluations: dict[str, Evaluation], first: str, second: str, statistics: Statistics
) -> Table:
    """List the difference by every compared measure and setting.

    Args:
        evaluations: title of a setting -> what it holds of the two.
        first, second: labels of algorithms.
        statistics: settings of the bootstrap.
    """
    difference = "difference"
    resampled = "seeds and environments resampled"
    columns = [
        *([Column("setting", key=True)] if len(evaluations) > 1 else []),
        Column("algorithm", key=True),
        Column("less", "minus", key=True),
        Column("measure", key=True),
        Column(difference, unit="points", help="below 0: the first one is better"),
        Column("p", unit="probability", help="two-sided, of this pair alone"),
        Column("seeds", unit="count", help="that both have"),
        Column("lower in", help=f"seeds in which {first} is lower"),
        Column(resampled, unit="points", help="as in the table of every two"),
    ]
    lines = []
    for setting, evaluation in evaluations.items():
        samples, absences = resamples(evaluation, statistics)
        for measure in evaluation.measures.compared:
            line: dict[str, Any] = {"setting": setting, "algorithm": first, "less": second}
            line["measure"] = measure.title
            line |= _cells(_values(evaluation.studies, measure, first, second), difference)
            if measure.name in samples:
                interval = samples[measure.name].difference(first, second)
                line |= interval_entry(resampled, interval)
            else:
                line |= entry(resampled, reason=absences[measure.name])
            lines.append(line)
    notes = [
        f"Below 0, {first} is better. Bold: the interval excludes 0. The last column is a paired "
        "bootstrap, which also asks what other environments could have shown."
    ]
    return table(lines, "pair", "Two named beforehand", columns, notes)


def _cells(values: pd.DataFrame, difference: str) -> dict[str, Any]:
    """Fill difference, p-value and seeds of one line.

    Args:
        values: 2 x seed, of the seeds that both have.
        difference: name of its column.
    """
    seeds = values.shape[1]
    if seeds < 2:
        reason = "one seed judges no pair" if seeds else "no seed is complete for both"
        return {**entry(difference, reason=reason), **entry("p", reason=reason), "seeds": seeds}
    (rival,) = standing(values.to_numpy(), leader=1).rivals
    assert rival.difference is not None
    lower = int((values.iloc[0] < values.iloc[1]).sum())
    return {
        **interval_entry(difference, rival.difference),
        f"{difference}.best": rival.difference.excludes_zero,
        "p": rival.p_value,
        "seeds": seeds,
        "lower in": f"{lower} of {seeds}",
    }
