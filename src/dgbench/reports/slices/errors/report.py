"""``report=errors``: which images are wrong, from what every run predicted
(``trainer.predictions``).

Its tables are made of the counts of every algorithm of one setting; its pictures are heat maps, and
sheets of images with what they are taken for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import pandas as pd
from pydantic import Field

from dgbench.analysis.selection import Selection
from dgbench.errors import ConfigError, RecordError
from dgbench.phases import Phase, phase
from dgbench.plan.folds import trained_on_tested
from dgbench.plan.settings import FileName, Name
from dgbench.records.predictions import need_pyarrow
from dgbench.reports.document import (
    ADAPTED_AT_TEST_TIME,
    TARGET_ORACLE,
    Document,
    Figure,
    Report,
    Section,
    leads,
    problem_table,
)
from dgbench.reports.labels import is_adapted, network_text, protocol_text, slug, variant_text
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import check_key
from dgbench.reports.slices.errors.figures import heat_maps, sheet
from dgbench.reports.slices.errors.images import (
    SHOWN,
    Counts,
    RunWithPredictions,
    most_confident,
    only_first,
    predicted_runs,
    settings_of,
)
from dgbench.reports.slices.errors.tables import (
    class_table,
    confusion_table,
    environment_table,
    group_table,
    overall_table,
    pair_table,
)
from dgbench.reports.tables import percent
from dgbench.reports.words import glossary
from dgbench.validation import Refusal

_EVALUATION = {"last": "the last step", "best": "the lowest val error"}


class ErrorsReport(Report):
    """Shows what runs get wrong on the test images of the environments that they never saw.

    Args:
        compare: two algorithms whose mistakes are set side by side; None takes those with the most
            runs.
    """

    name: FileName = "errors"
    compare: Annotated[
        Annotated[list[Name], Field(min_length=2, max_length=2)] | None,
        Refusal(
            "is not two algorithms", "write e.g. [erm,vrex], or null for those with the most runs"
        ),
    ] = None
    unread = ("selection",)

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        check_key(split_by)
        need_pyarrow("report=errors")
        runs, problems = predicted_runs(collection)
        settings = settings_of(runs, split_by)
        compared = self._compared(set().union(*settings.values()))
        with phase("reading predictions", len(runs), "runs") as progress:
            sections = [
                _section(title, by_algorithm, compared, problems, progress)
                for title, by_algorithm in settings.items()
            ]
        warnings = []
        if any(trained_on_tested(predicted.run.identity) for predicted in runs):
            warnings.append(TARGET_ORACLE)
        if any(is_adapted(predicted.run.identity) for predicted in runs):
            warnings.append(ADAPTED_AT_TEST_TIME)
        return Document(
            title="Which images are wrong",
            selection=" and ".join(_evaluations(runs)),
            sections=sections,
            problems=problem_table(problems),
            warnings=warnings,
            lead=leads(f"Predictions of {len(runs)} run{'s' * (len(runs) != 1)}", problems),
            words=glossary("errors", terms=["held-out environment", "selection"]),
        )

    def _compared(self, algorithms: set[str]) -> list[str]:
        """Return the two algorithms that were asked for, or none."""
        names = self.compare or []
        if names and (len(set(names)) != 2 or not set(names) <= algorithms):
            raise ConfigError(
                f"report.compare=[{','.join(names)}] is not two algorithms with predictions; "
                f"choose two of {', '.join(sorted(algorithms))}"
            )
        return names


def _section(
    title: str,
    runs: Mapping[str, Sequence[RunWithPredictions]],
    compared: Sequence[str],
    problems: list[Problem],
    progress: Phase,
) -> Section:
    """Build the section of one setting, with everything about it.

    Args:
        title: of the setting.
        runs: algorithm -> its runs.
        compared: two algorithms; empty takes those with the most runs.
        problems: receives what cannot be read.
        progress: counts the runs that were read.
    """
    pair = _pair(runs, compared)
    read = {}
    for name, predicted in runs.items():
        images = _read(predicted, name in pair, problems, progress)
        if images is not None:
            read[name] = images
    if not read:
        return Section(slug(title), title, answer=["No file of predictions could be read."])
    main = overall_table({name: images.counts for name, images in read.items()})
    counts = {name: read[name].counts for name in map(str, main.frame["algorithm"])}
    tables = [
        main,
        environment_table(counts),
        class_table(counts),
        group_table(counts),
        pair_table(counts),
    ]
    matrices = [confusion_table(name, counted) for name, counted in counts.items()]
    tables += [matrix for matrix in matrices if matrix is not None]
    figures: list[Figure | str] = [
        heat_maps(title, name, counted) for name, counted in counts.items()
    ]
    figures += [_mistakes(title, name, read[name]) for name in counts]
    if pair and set(pair) <= set(counts):
        one, other = pair
        figures.append(_contrast_sheet(title, one, other, read))
        figures.append(_contrast_sheet(title, other, one, read))
    facts = _facts(list(chain.from_iterable(runs.values())))
    reasons = sorted({figure for figure in figures if isinstance(figure, str) and figure})
    if reasons:
        facts.append(("no images are shown", "; ".join(reasons)))
    drawn = [figure for figure in figures if not isinstance(figure, str)]
    best = next(iter(counts))
    answer = _answer(best, counts[best], len(counts))
    return Section(slug(title), title, tables, drawn, answer=answer, facts=facts)


def _pair(runs: Mapping[str, Sequence[RunWithPredictions]], compared: Sequence[str]) -> list[str]:
    """Choose the two algorithms that are set side by side, or none."""
    if compared:
        pair = [name for name in compared if name in runs]
    else:
        pair = sorted(runs, key=lambda name: -len(runs[name]))[:2]
    return pair if len(pair) == 2 else []


def _facts(runs: Sequence[RunWithPredictions]) -> list[tuple[str, str]]:
    """Describe what the runs of a setting share, and whose images were predicted."""
    identity = runs[0].run.identity
    kinds = [f"{n} of {kind}" for kind, n in _evaluations(runs).items()]
    return [
        ("dataset", variant_text(identity)),
        ("network", network_text(identity)),
        ("protocol", protocol_text(identity)),
        ("predictions", f"{len(runs)} files: {', '.join(kinds)}"),
        (
            "images",
            (
                "test images of environments that were held out; several folds and seeds are "
                "counted alike"
            ),
        ),
    ]


@dataclass(frozen=True)
class _Read:
    """What is kept of the images of one algorithm; one run's are in memory at a time."""

    counts: Counts
    worst: pd.DataFrame  #: those that are wrong, the most confident of each run
    images: pd.DataFrame | None  #: all, where the algorithm is compared with another one


def _read(
    runs: Sequence[RunWithPredictions], compared: bool, problems: list[Problem], progress: Phase
) -> _Read | None:
    counts = Counts(runs[0].classes)
    worst = []
    all_images = []
    for predicted in runs:
        progress.advance()
        try:
            parts = list(predicted.tested())
        except RecordError as error:
            problems.append(Problem("unreadable predictions", predicted.run.folder, str(error)))
            continue
        counts.add_run(parts, predicted.repetition, predicted.training_groups)
        for images in parts:
            frame = images.frame.assign(env=images.env, root=predicted.about.get("root"))
            wrong = frame[~frame["right"] & (frame["weight"] > 0)]
            worst.append(wrong.nlargest(SHOWN, "confidence"))
            if compared:
                all_images.append(frame)
    if not worst:
        return None
    return _Read(counts, pd.concat(worst), pd.concat(all_images) if compared else None)


def _mistakes(setting: str, algorithm: str, read: _Read) -> Figure | str:
    return sheet(
        f"mistakes_{slug(setting)}_{slug(algorithm)}",
        f"Most confident mistakes, {algorithm}",
        (
            "Test images of held-out environments that are wrong with the highest probability of "
            "the wrong class: true class, predicted class and its probability, environment. Files "
            "as they are, before they are resized or corrupted."
        ),
        most_confident(read.worst),
        read.counts.classes,
    )


def _contrast_sheet(setting: str, one: str, other: str, read: Mapping[str, _Read]) -> Figure | str:
    first = read[one].images
    second = read[other].images
    assert first is not None and second is not None  # both are compared
    lines, n = only_first(first, second)
    return sheet(
        f"only_{slug(setting)}_{slug(one)}",
        f"Right with {one}, wrong with {other}",
        (
            f"{n} test image{'s' * (n != 1)} of held-out environments that every run of {one} "
            f"gets right and every run of {other} wrong; shown are those that {other} is most "
            "confident about, as it takes them."
        ),
        lines,
        read[one].counts.classes,
    )


def _evaluations(runs: Sequence[RunWithPredictions]) -> dict[str, int]:
    """Count the runs whose predictions are of each evaluation: last step, lowest val error, ..."""
    kinds = Counter(str(predicted.about.get("evaluation")) for predicted in runs)
    return {_EVALUATION.get(kind, kind): kinds[kind] for kind in sorted(kinds)}


def _answer(algorithm: str, counts: Counts, algorithms: int) -> list[str]:
    """Summarize what the section shows of the best algorithm, in two sentences.

    Args:
        algorithm: the best of all.
        counts: of it.
        algorithms: how many there are.
    """
    measures = counts.measures()
    accuracy, ece, excess = measures[["accuracy", "ece", "excess"]].mean()
    among = f", the most of {algorithms} algorithms" if algorithms > 1 else ""
    mean = f" (mean of {len(measures)} seeds)" if len(measures) > 1 else ""
    first = f"{algorithm} gets {percent(accuracy)}% of the held-out test images right{mean}{among}"
    worst = counts.worst_group(attributes=True)
    if worst:
        first += (
            f"; its worst group is {worst['name']}: {percent(worst['accuracy'])}% of "
            f"{worst['n']:.0f} images"
        )
    direction = "above" if excess > 0 else "below"
    second = (
        f"confidence is {percent(abs(excess))} points {direction} its accuracy (ECE "
        f"{percent(ece)}%)"
    )
    pairs = counts.confusions()
    if not pairs:
        return [f"{first}.", f"Its {second}."]
    label = counts.classes[pairs[0]["label"]]
    predicted = counts.classes[pairs[0]["predicted"]]
    confusion = f"{label} is taken for {predicted}"
    share = percent(pairs[0]["share"], 0)
    return [f"{first}.", f"Most often {confusion} ({share}% of its images); its {second}."]
