"""``report=errors``: which images are wrong, from what every run predicted (``trainer.predictions``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.errors import ConfigError, RecordError
from dgbench.plan.folds import trained_on_tested
from dgbench.records.predictions import need_pyarrow
from dgbench.reports.document import TARGET_ORACLE, Document, Figure, Section, leads, problem_table
from dgbench.reports.errors.error_counts import Counts
from dgbench.reports.errors.error_figures import heat_maps, sheet
from dgbench.reports.errors.error_tables import (
    class_table,
    confusion_table,
    environment_table,
    group_table,
    overall_table,
    pair_table,
)
from dgbench.reports.errors.errors_answer import answer
from dgbench.reports.errors.mistakes import Mistakes, only_first, pair_of
from dgbench.reports.errors.predicted_runs import Together, predicted_runs, settings_of
from dgbench.reports.errors.tested_images import Predicted, evaluations
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.settings.evaluation import check_key
from dgbench.reports.settings.labels import network_text, slug, variant_text
from dgbench.selection.methods import Selection

#: what the report is about, explained where it first stands
WORDS = {
    "macro-F1": "mean over the classes of the harmonic mean of precision and recall.",
    "AUROC": "chance that an image of a class gets a higher probability of it than an image of another class.",
    "ECE": "expected calibration error: mean difference of confidence and accuracy, in bins of equal confidence.",
    "worst group": "the class and environment with the lowest accuracy, among those with 10 images or more.",
}
_EVALUATION = {"last": "the last step", "best": "the lowest val error"}


@dataclass(frozen=True)
class ErrorsReport:
    """Shows what runs get wrong on the test images of the environments that they never saw.

    Args:
        name: names the output folder.
        compare: two algorithms whose mistakes are set side by side; None takes those with the most runs.
    """

    name: str = "errors"
    compare: Sequence[str] | None = field(default=None)

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        check_key(split_by)
        need_pyarrow("report=errors")
        found, problems = predicted_runs(collection)
        settings = settings_of(found, split_by)
        self._check_compare(settings)
        sections = [self._section(title, own, problems) for title, own in settings]
        count = len(found)
        oracle = any(trained_on_tested(each.run.identity) for each in found)
        return Document(
            title="Which images are wrong",
            selection=" and ".join(_EVALUATION.get(kind, kind) for kind in evaluations(found)),
            sections=sections,
            problems=problem_table(problems),
            warnings=[TARGET_ORACLE] if oracle else [],
            lead=leads(f"Predictions of {count} run{'s' * (count != 1)}", problems),
            words=WORDS,
        )

    @property
    def _compared(self) -> list[str]:
        asked = self.compare or []
        return [asked] if isinstance(asked, str) else [str(name) for name in asked]

    def _check_compare(self, settings: Sequence[tuple[str, Together]]) -> None:
        names = {name for _, runs in settings for name in runs}
        asked = self._compared
        if asked and (len(set(asked)) != 2 or not set(asked) <= names):
            raise ConfigError(
                f"report.compare=[{','.join(asked)}] is not two algorithms with predictions; choose two of "
                f"{', '.join(sorted(names))}"
            )

    def _section(self, title: str, runs: Together, problems: list[Problem]) -> Section:
        classes = next(iter(runs.values()))[0].classes
        pair = pair_of({name: len(own) for name, own in runs.items()}, self._compared)
        counts: dict[str, list[Counts]] = {}
        mistakes: dict[str, Mistakes] = {}
        for name, own in runs.items():
            mistakes[name] = Mistakes(compared=pair is not None and name in pair)
            counts[name] = _counted(own, len(classes), mistakes[name], problems)
        counts = {name: seeds for name, seeds in counts.items() if seeds}
        if not counts:
            return Section(slug(title), title, answer=["No file of predictions could be read."])
        main = overall_table(counts, classes)
        order = [str(name) for name in main["algorithm"]]
        counts = {name: counts[name] for name in order}
        tables = [main, environment_table(counts), class_table(counts, classes), group_table(counts, classes)]
        tables += [pair_table(counts, classes)]
        tables += [each for name in order if (each := confusion_table(name, counts[name], classes)) is not None]
        figures: list[Figure | str] = [heat_maps(title, name, counts[name], classes) for name in order]
        figures += [_most_confident(title, name, mistakes[name], classes) for name in order]
        if pair and set(pair) <= set(counts):
            figures += [_only(title, one, other, mistakes, classes) for one, other in (pair, pair[::-1])]
        facts = _facts(next(iter(runs.values()))[0], [each for own in runs.values() for each in own])
        if why := sorted({each for each in figures if isinstance(each, str) and each}):
            facts.append(("no images are shown", "; ".join(why)))
        drawn = [figure for figure in figures if not isinstance(figure, str)]
        return Section(slug(title), title, tables, drawn, answer=answer(order[0], counts, classes), facts=facts)


def _counted(runs: Sequence[Predicted], n_classes: int, mistakes: Mistakes, problems: list[Problem]) -> list[Counts]:
    """Counts of each seed; one run's images are in memory at a time."""
    seeds: dict[tuple[int, int], Counts] = {}
    for each in runs:
        try:
            parts = list(each.tested())
        except RecordError as error:
            problems.append(Problem("unreadable predictions", each.run.folder, str(error)))
            continue
        who = each.run.identity["seed"], each.run.identity["trial"]
        for images in parts:
            seeds.setdefault(who, Counts(n_classes)).add(images)
            mistakes.add(images, each)
    return list(seeds.values())


def _most_confident(setting: str, algorithm: str, mistakes: Mistakes, classes: Sequence[str]) -> Figure | str:
    lines = mistakes.most_confident()
    if not len(lines):
        return ""
    return sheet(
        f"mistakes_{slug(setting)}_{slug(algorithm)}",
        f"Most confident mistakes, {algorithm}",
        "Test images of held-out environments that are wrong with the highest probability of the wrong class: true "
        "class, predicted class and its probability, environment. Files as they are, before they are resized or "
        "corrupted.",
        lines,
        classes,
    )


def _only(setting: str, one: str, other: str, of: Mapping[str, Mistakes], classes: Sequence[str]) -> Figure | str:
    lines, n = only_first(of[one], of[other])
    if not n:
        return ""
    return sheet(
        f"only_{slug(setting)}_{slug(one)}",
        f"Right with {one}, wrong with {other}",
        f"{n} test image{'s' * (n != 1)} of held-out environments that every run of {one} gets right and every run of "
        f"{other} wrong; shown are those that {other} is most confident about, as it takes them.",
        lines,
        classes,
    )


def _facts(first: Predicted, runs: Sequence[Predicted]) -> list[tuple[str, str]]:
    identity: Mapping[str, Any] = first.run.identity
    kinds = [f"{n} of {_EVALUATION.get(kind, kind)}" for kind, n in evaluations(runs).items()]
    return [
        ("dataset", variant_text(identity)),
        ("network", network_text(identity)),
        ("protocol", str(identity["protocol"])),
        ("predictions", f"{len(runs)} files: {', '.join(kinds)}"),
        ("images", "test images of environments that were held out; several folds and seeds are counted alike"),
    ]
