"""``report=errors``: which images are wrong, from what every run predicted
(``trainer.predictions``).

Its tables are made of the counts of every algorithm of one setting; its pictures are heat maps, and
sheets of images with what they are taken for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from dgbench.analysis.selection import Selection
from dgbench.data.store.decoding import rgb
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
from dgbench.reports.labels import is_adapted, network_text, slug, variant_text
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import check_key
from dgbench.reports.render.drawing import canvas, finish, heat
from dgbench.reports.slices.errors.images import (
    BINS,
    FEW,
    SHOWN,
    Counts,
    RunWithPredictions,
    most_confident,
    only_first,
    predicted_runs,
    settings_of,
)
from dgbench.reports.tables import Column, Table, entry, percent, table
from dgbench.reports.words import glossary
from dgbench.validation import Refusal

if TYPE_CHECKING:
    from PIL.Image import Image

_EVALUATION = {"last": "the last step", "best": "the lowest val error"}
_MOST_NUMBERS = 12  # classes up to which the cells of a heat map hold numbers
_MOST_NAMES = 45  # classes up to which the lines of a heat map have names
_SIDE = 96  # pixels of a thumbnail
_ACROSS = 8  # thumbnails in a row

ByAlgorithm = Mapping[str, Counts]

MOST_CLASSES = 30  # of a confusion matrix that is a table
_MOST_GROUPS = 15  # listed of each algorithm
_MOST_PAIRS = 10  # confusions listed of each algorithm
_NO_AUROC = "predictions hold the 10 most probable classes, AUROC needs the probabilities of all"

_ADJUSTED = "adjusted."  # before the name of an attribute

_ALGORITHM = Column("algorithm", key=True)
_ENVIRONMENT = Column("env", "environment", key=True)
_CLASS = Column("class", key=True)
_IMAGES = Column("images", unit="count")
_MEASURES = (
    Column("macro_f1", "macro-F1", "percent", help="mean F1 of the classes that the labels hold"),
    Column(
        "auroc",
        "AUROC",
        "percent",
        help="one class against the rest, mean over classes, then models",
    ),
    Column("ece", "ECE", "percent", help=f"expected calibration error, {BINS} bins of equal width"),
    Column(
        "excess", "confidence less accuracy", "points", help="in points; above 0 is overconfident"
    ),
)


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
        ("protocol", str(identity["protocol"])),
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


def heat_maps(setting: str, algorithm: str, counts: Counts) -> Figure:
    """Draw confusion matrix and accuracy of each class by environment, side by side, in percent of
    the true class.
    """
    counted = counts.matrix()
    classes = counts.classes
    envs = counts.environments
    with np.errstate(invalid="ignore"):
        shares = counted / counted.sum(1, keepdims=True)  # NaN for a class without images
    groups = counts.groups(attributes=False).pivot(index="label", columns="env", values="accuracy")
    accuracy = groups.reindex(index=range(len(classes)), columns=envs).to_numpy()
    name = f"confusion_{slug(setting)}_{slug(algorithm)}"
    k = len(classes)
    side = _inches_of_cell(k)
    width = 1.6 + side * (k + max(len(envs), 2)) * 1.15
    with canvas(name, max(width, 5.0), max(side * k + 1.3, 2.6)) as drawn:
        widths = [k, max(len(envs), 1 if k <= _MOST_NAMES else k / 4)]
        left, right = drawn.subplots(1, 2, sharey=True, width_ratios=widths)
        written = (lambda share: percent(share, 0)) if k <= _MOST_NUMBERS else None
        heat(left, shares, written)
        heat(right, accuracy, written)
        for axes, words, title in (
            (left, classes, "predicted class (%)"),
            (right, envs, "accuracy (%)"),
        ):
            names = list(words) if len(words) <= _MOST_NAMES else []
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9)
            axes.set_title(title, fontsize=10)
        names = list(classes) if k <= _MOST_NAMES else []
        left.set_yticks(range(len(names)), names, fontsize=9)
        left.set_ylabel("true class")
        caption = (
            "Left: what images of each class are taken for, all environments together. Right: "
            "accuracy of each class in each held-out environment. Percent of the true class, mean "
            "over seeds."
        )
        caption += " Classes stand in the order of their numbers." if k > _MOST_NAMES else ""
        return finish(drawn, name, f"Confusion and accuracy by class, {algorithm}", caption)


def _inches_of_cell(classes: int) -> float:
    """Choose the side of a cell of a heat map, in inches, so that what it holds is legible."""
    if classes <= _MOST_NUMBERS:
        return 0.42
    if classes <= _MOST_NAMES:
        return 0.24
    return 7 / classes


def sheet(
    name: str, title: str, caption: str, lines: pd.DataFrame, classes: Sequence[str]
) -> Figure | str:
    """Draw thumbnails, each with its true class, what it is taken for and how confidently, and its
    environment.

    Args:
        name, title, caption: of the figure.
        lines: images as :func:`dgbench.reports.slices.errors.images.most_confident` gives them.
        classes: names.

    Returns:
        the figure, or why there is none.
    """
    thumbnails: list[tuple[dict[str, Any], Image]] = []
    reason = ""
    records: list[dict[str, Any]] = lines.to_dict("records")  # type: ignore[assignment]
    for line in records:
        try:
            thumbnails.append((line, _thumbnail(line)))
        except Exception as error:  # PIL raises whatever its parts raise over a broken file
            reason = reason or " ".join(str(error).split())
    if not thumbnails:
        return reason
    across = min(_ACROSS, max(len(thumbnails), 4))
    down = -(-len(thumbnails) // across)
    with canvas(name, 1.25 * across, 1.85 * down) as drawn:
        panels = drawn.subplots(down, across, squeeze=False).flatten()
        for axes in panels:
            axes.axis("off")
        for axes, (line, image) in zip(panels, thumbnails, strict=False):
            axes.imshow(np.asarray(image), interpolation="none")
            prediction = f"{_short(classes[line['predicted']])} {percent(line['confidence'], 0)}%"
            text = f"{_short(classes[line['label']])}\nas {prediction}\n{_short(str(line['env']))}"
            axes.set_title(text, fontsize=7.5, linespacing=1.15, pad=3)
        hidden = len(lines) - len(thumbnails)
        caption += f" {hidden} of {len(lines)} images cannot be shown: {reason}." if hidden else ""
        return finish(drawn, name, title, caption)


def _short(word: str) -> str:
    return word if len(word) <= 14 else f"{word[:13]}…"


def _thumbnail(line: Mapping[str, Any]) -> Image:
    if not line["root"]:
        raise FileNotFoundError("the images of this dataset are not in files of their own")
    path = Path(line["root"]).expanduser() / str(line["image"])
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    image = rgb(path)
    image.thumbnail((_SIDE, _SIDE))
    return image


def overall_table(counts: ByAlgorithm) -> Table:
    """List the errors of every algorithm, one line each, most accurate first."""
    lines: list[dict[str, Any]] = []
    adjusted: dict[str, None] = {}
    for algorithm, counted in counts.items():
        adjusted |= dict.fromkeys(counted.adjusted())
        lines.append(_overall_line(algorithm, counted))
    columns = [
        _ALGORITHM,
        Column("accuracy", unit="percent", help="of all tested images alike"),
        Column(
            "average",
            "average over environments",
            "percent",
            help="mean of the environments' accuracies",
        ),
        *_adjusted_columns(list(adjusted)),
        *_MEASURES,
        Column(
            "worst",
            "worst group",
            "percent",
            help=f"lowest accuracy of a class in an environment, n >= {FEW}",
        ),
        Column("group", "which is"),
        Column("images", "images", "count", help="tested in one seed"),
        Column("seeds", "seeds", "count"),
    ]
    lines.sort(key=lambda line: -line["accuracy"])
    repeated = any(line["seeds"] > 1 for line in lines)
    notes = ["Mean ± standard deviation (divisor n-1) over seeds."] if repeated else []
    without_auroc = [line["auroc.reason"] for line in lines if "auroc.reason" in line]
    if without_auroc:
        notes.append(f"AUROC is left out: {without_auroc[0]}.")
    notes += dict.fromkeys(chain.from_iterable(counted.reasons for counted in counts.values()))
    notes.append(
        "Whether two algorithms can be told apart is said by report=measures and "
        "report=leaderboard."
    )
    return table(lines, "errors", "Errors on held-out test images", columns, notes)


def _overall_line(algorithm: str, counts: Counts) -> dict[str, Any]:
    """Summarize one algorithm over all its test images."""
    measures = counts.measures()
    measures["average"] = counts.measures("env")["accuracy"].groupby("repetition").mean()
    known = {
        _ADJUSTED + name: values
        for name, values in counts.adjusted().items()
        if len(values) == len(measures)
    }
    names = ("accuracy", "average", "macro_f1", "auroc", "ece", "excess")
    worst = counts.worst_group()
    return {
        "algorithm": algorithm,
        **_over_seeds(measures, names),
        **_over_seeds(pd.DataFrame(known), known),
        "worst": worst["accuracy"] if worst else None,
        "group": worst["name"] if worst else None,
        "images": measures["images"].mean(),
        "seeds": len(measures),
    }


def _adjusted_columns(attributes: Sequence[str]) -> list[Column]:
    """List a column for each attribute by which an adjusted average is known."""
    columns = []
    for name in attributes:
        title = f"adjusted average ({name})" if len(attributes) > 1 else "adjusted average"
        meaning = (
            f"accuracies of class and {name}, weighed by shares of the training images (Sagawa et "
            "al. 2020)"
        )
        columns.append(Column(_ADJUSTED + name, title, "percent", help=meaning))
    return columns


def environment_table(counts: ByAlgorithm) -> Table:
    """List the measures of every algorithm in each environment."""
    names = ("accuracy", "macro_f1", "auroc", "ece", "excess")
    lines = []
    for algorithm, counted in counts.items():
        for env, measures in counted.measures("env").groupby("env", sort=False):
            line = {"algorithm": algorithm, "env": env, **_over_seeds(measures, names)}
            lines.append({**line, "images": measures["images"].mean()})
    without_help = [replace(column, help="") for column in _MEASURES]
    columns = [_ALGORITHM, _ENVIRONMENT, Column("accuracy", unit="percent"), *without_help, _IMAGES]
    return table(lines, "environments", "Errors by environment", columns)


def class_table(counts: ByAlgorithm) -> Table:
    """List the accuracy of each class in each environment."""
    lines = []
    every = chain.from_iterable(counted.environments for counted in counts.values())
    envs = list(dict.fromkeys(every))
    for algorithm, counted in counts.items():
        groups = {
            (group["label"], group["env"]): group
            for group in counted.groups(attributes=False).to_dict("records")
        }
        for label, name in enumerate(counted.classes):
            line: dict[str, Any] = {"algorithm": algorithm, "class": name}
            for env in envs:
                group = groups.get((label, env))
                if group:
                    flag = f"(n={group['n']:.0f})" if group["n"] < FEW else ""
                    line |= entry(f"in {env}", group["accuracy"], flag=flag)
                else:
                    line |= entry(f"in {env}", reason="no such images")
            lines.append(line)
    columns = [_ALGORITHM, _CLASS, *(Column(f"in {env}", env, "percent") for env in envs)]
    notes = [f"n is named where a class has fewer than {FEW} images in an environment."]
    return table(lines, "classes", "Accuracy of each class by environment", columns, notes)


def group_table(counts: ByAlgorithm) -> Table:
    """List the groups with the lowest accuracy, then those that are too small to be called the
    worst.
    """
    lines: list[dict[str, Any]] = []
    for algorithm, counted in counts.items():
        groups = counted.groups()
        for size, flag in (("n >= @FEW", ""), ("n < @FEW", "(few images)")):
            for group in groups.query(size).head(_MOST_GROUPS).to_dict("records"):
                attribute = None
                if group["attribute"]:
                    attribute = f"{group['attribute']}={group['value']}"
                line = {
                    "algorithm": algorithm,
                    "env": group["env"],
                    "class": counted.classes[group["label"]],
                    "attribute": attribute,
                    **entry("accuracy", group["accuracy"], flag=flag),
                    "images": group["n"],
                }
                lines.append(line)
    columns = [
        _ALGORITHM,
        _ENVIRONMENT,
        _CLASS,
        Column("attribute", key=True),
        Column("accuracy", unit="percent"),
    ]
    columns.append(_IMAGES)
    if not any(line["attribute"] for line in lines):
        columns = [column for column in columns if column.name != "attribute"]
    notes = [
        (
            f"The {_MOST_GROUPS} lowest of each algorithm; groups of fewer than {FEW} images "
            "stand last and are not called the worst."
        )
    ]
    attributes = sorted(set().union(*(counted.many for counted in counts.values())))
    if attributes:
        notes.append(f"Attributes of too many values to be groups: {', '.join(attributes)}.")
    return table(lines, "groups", "Groups with the lowest accuracy", columns, notes)


def pair_table(counts: ByAlgorithm) -> Table:
    """List which class is most often taken for which."""
    lines = []
    for algorithm, counted in counts.items():
        for pair in counted.confusions()[:_MOST_PAIRS]:
            names = {
                "class": counted.classes[pair["label"]],
                "predicted": counted.classes[pair["predicted"]],
            }
            lines.append(
                {"algorithm": algorithm, **names, "images": pair["n"], "share": pair["share"]}
            )
    columns = [
        _ALGORITHM,
        _CLASS,
        Column("predicted", "taken for", key=True),
        Column("images", "images", "count", help="mean over seeds"),
        Column("share", "of the class", "percent"),
    ]
    return table(
        lines,
        "confusions",
        "Most frequent confusions",
        columns,
        [f"The {_MOST_PAIRS} most frequent."],
    )


def confusion_table(algorithm: str, counts: Counts) -> Table | None:
    """Count images by true class (lines) and predicted class, with percent of the line.

    Returns None if there are very many classes.
    """
    if len(counts.classes) > MOST_CLASSES:
        return None
    lines = []
    for name, row in zip(counts.classes, counts.matrix(), strict=True):
        line: dict[str, Any] = {"class": name}
        for predicted, n in zip(counts.classes, row.tolist(), strict=True):
            share = f"{percent(n / row.sum(), 0)}%" if n else ""
            line |= entry(f"as {predicted}", n, flag=share)
        lines.append({**line, "images": float(row.sum())})
    columns = [
        _CLASS,
        *(Column(f"as {predicted}", unit="count") for predicted in counts.classes),
        _IMAGES,
    ]
    notes = [
        (
            "Lines are true classes, columns predicted ones; images (mean over seeds), percent of "
            "the line."
        )
    ]
    return table(
        lines,
        f"confusion_{slug(algorithm)}",
        f"Confusion matrix of {algorithm}",
        columns,
        notes,
        detail=True,
    )


def _over_seeds(measures: pd.DataFrame, names: Iterable[str]) -> dict[str, Any]:
    """Compute mean and sample standard deviation of each column.

    A column with a value that is not defined has the reason instead.
    """
    cells: dict[str, Any] = {}
    for name in names:
        values = measures[name]
        if values.isna().any():
            reason = _NO_AUROC if name == "auroc" else "the images are of one class"
            cells |= entry(name, reason=reason)
        else:
            deviation = values.std() if len(values) > 1 else None
            cells |= entry(name, values.mean(), std=deviation)
    return cells
