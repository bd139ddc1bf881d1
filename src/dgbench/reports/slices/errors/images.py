"""The tested images of runs, from their ``predictions.parquet``: which runs belong together, and
counts of images.

Counts are summed run by run, so that the images of one run are in memory at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score, roc_auc_score

from dgbench.errors import RecordError
from dgbench.phases import tracked
from dgbench.plan.folds import tested
from dgbench.records.predictions import (
    ATTRIBUTE,
    MOST_VALUES,
    PREDICTION_FILE,
    TrainingGroups,
    about_predictions,
    read_predictions,
)
from dgbench.reports.groups import one_code
from dgbench.reports.labels import setting_labels
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import Run
from dgbench.reports.reading.selected import SelectedRun, once_per_network
from dgbench.reports.slices.errors.adjusted import adjusted_averages

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHOWN = 16  # images on a sheet
BINS = 15  # of confidence, as in Guo et al. (2017)
FEW = 10  # images of a group below which it is not called the worst
_GROUP = ["attribute", "value", "label", "env"]
_WAYS = (
    "train with trainer.predictions=last, or write them with dgbench evaluate and predictions=true"
)


@dataclass(frozen=True)
class EnvImages:
    """Images of one environment that a run was tested in."""

    env: str  #: the environment
    #: a line per image: ``image`` (name), ``label`` and ``predicted`` (classes), ``right``,
    #: ``confidence`` (probability of the predicted class), ``weight`` (share of a sampled image, 1;
    #: where errors are exact an image stands there once for each painted feature, with the
    #: probability of that feature), and ``attribute.*``
    frame: pd.DataFrame
    #: (n, K) probabilities of all classes, or None if only the most probable ones are kept
    scores: NDArray[np.float64] | None


@dataclass(frozen=True)
class RunWithPredictions:
    """A run that has predictions."""

    run: Run  #: as it was collected
    file: Path  #: beside its rows, or beside a copy of them
    #: what its file says, see :func:`~dgbench.records.predictions.about_predictions`
    about: Mapping[str, Any]

    @property
    def classes(self) -> list[str]:
        """Names of the K classes."""
        return [str(name) for name in self.about["classes"]]

    @property
    def repetition(self) -> str:
        """Seed and trial, which its folds have in common."""
        return f"{self.run.identity['seed']}, trial {self.run.identity['trial']}"

    @property
    def training_groups(self) -> TrainingGroups:
        """Training images by attribute, value and class; empty if they are not known."""
        groups: TrainingGroups = self.about.get("training_groups") or {}
        return groups

    def tested(self) -> Iterator[EnvImages]:
        """Read the images of each environment whose ``test`` errors are the run's result.

        Raises:
            RecordError: the file cannot be read.
        """
        table = read_predictions(self.file)
        top = _rows(table.column("top"))
        probability = _rows(table.column("probability"))
        frame = table.drop_columns(["top", "probability"]).to_pandas()
        frame = frame.astype({"label": "int64", "predicted": "int64", "image": object})
        frame["right"] = frame["label"] == frame["predicted"]
        frame["confidence"] = probability[:, 0].astype("float64")
        scores = None
        if top.shape[1] == len(self.classes):
            scores = np.empty(top.shape)
            np.put_along_axis(scores, top.astype("int64"), probability.astype("float64"), axis=1)
        names = tested(self.run.identity)
        for recipe in self.about["recipes"]:
            if recipe["subset"] != "test" or recipe["env"] not in names:
                continue
            positions, weight = _counted(frame, recipe)
            images = frame.iloc[positions].assign(weight=weight)
            scores_there = None if scores is None else scores[positions]
            yield EnvImages(str(recipe["env"]), images, scores_there)


def _rows(column: Any) -> NDArray[Any]:
    """Stack a column of lists of equal length as the rows of an array."""
    values: NDArray[Any] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1 if len(column) else 1)


def _counted(
    frame: pd.DataFrame, recipe: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the positions of the lines that an error counts, and the weight of each."""
    mixture = {name: float(weight) for name, weight in recipe["mixture"].items()}
    if len(mixture) == 1:
        positions = np.flatnonzero(
            (frame["env"] == recipe["env"]) & (frame["subset"] == recipe["subset"])
        )
        return positions, np.ones(len(positions))
    parts = [
        (np.flatnonzero(frame["eval_set"] == name), weight)
        for name, weight in mixture.items()
        if weight > 0
    ]
    weights = [np.full(len(positions), weight) for positions, weight in parts]
    return np.concatenate([positions for positions, _ in parts]), np.concatenate(weights)


def predicted_runs(collection: Collection) -> tuple[list[RunWithPredictions], list[Problem]]:
    """Find the finished runs that have predictions and test environments; and what is missing.

    Raises:
        RecordError: there is none.
    """
    runs = []
    problems = list(collection.problems)
    lacking: dict[Path, int] = defaultdict(int)
    for run in tracked(collection.runs, "looking for predictions", len(collection.runs), "runs"):
        if run.unusable or not tested(run.identity):
            continue
        file = run.file(PREDICTION_FILE)
        if file is None:
            lacking[Path(run.folder).parent] += 1
            continue
        try:
            runs.append(RunWithPredictions(run, file, about_predictions(file)))
        except RecordError as error:
            problems.append(Problem("unreadable predictions", str(file.parent), str(error)))
    for folder, count in lacking.items():
        problems.append(
            Problem("no predictions", str(folder), f"{count} finished run(s) have none; {_WAYS}")
        )
    if not runs:
        raise RecordError(f"no finished run has {PREDICTION_FILE}; {_WAYS}")
    return runs, problems


def settings_of(
    runs: Sequence[RunWithPredictions], split_by: str | None
) -> dict[str, dict[str, list[RunWithPredictions]]]:
    """Group runs: title of the setting -> algorithm -> runs.

    Raises:
        RecordError: one setting would mix code versions.
    """
    placed = once_per_network([predicted.run.identity for predicted in runs])
    labels = setting_labels([identity for _, identity in placed], split_by)
    settings: dict[str, dict[str, list[RunWithPredictions]]] = defaultdict(
        lambda: defaultdict(list)
    )
    members: dict[str, list[SelectedRun]] = defaultdict(list)
    for (index, identity), (title, algorithm) in zip(placed, labels, strict=True):
        settings[title][algorithm].append(runs[index])
        members[title].append(SelectedRun(identity, "", runs[index].run.folder))
    for group in members.values():
        one_code(group, group[0].identity)
    return dict(settings)


def most_confident(images: pd.DataFrame) -> pd.DataFrame:
    """Take the images that fit on a sheet, each once: those with the highest probability of the
    predicted class.
    """
    ordered = images.sort_values("confidence", ascending=False, kind="stable")
    return ordered.drop_duplicates(["env", "image"]).head(SHOWN).reset_index(drop=True)


def only_first(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Find images that all runs of one algorithm get right and all runs of another one get wrong.

    Args:
        first, second: every image of every run of either algorithm, with ``env``, ``image`` and
            ``right``.

    Returns:
        those that the second is most confident about, as it sees them; and how many there are in
        all.
    """
    place = ["env", "image"]
    right = first.groupby(place, sort=False)["right"].all()
    wrong = ~second.groupby(place, sort=False)["right"].any()
    common = right.index[right].intersection(wrong.index[wrong])
    return most_confident(second[pd.MultiIndex.from_frame(second[place]).isin(common)]), len(common)


class Counts:
    """What the runs of one algorithm do in the environments that they are tested in.

    Args:
        classes: names.

    Attributes:
        many: attributes with more values than make groups.
        reasons: why attributes have no adjusted average.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = classes
        self.many: set[str] = set()
        self.reasons: list[str] = []
        self._runs: Counter[str] = Counter()
        self._parts: dict[str, list[pd.DataFrame]] = defaultdict(list)

    def add_run(
        self, tested: Sequence[EnvImages], repetition: str, training: TrainingGroups
    ) -> None:
        """Count the images of a run in all environments that it is tested in.

        ``training`` is what its record says.
        """
        for images in tested:
            self.add(images, repetition)
        self._runs[repetition] += bool(tested)
        if not training or not tested:
            return
        frame = pd.concat([images.frame for images in tested], ignore_index=True)
        averages, reasons = adjusted_averages(frame, training, self.classes)
        self.reasons += [reason for reason in reasons if reason not in self.reasons]
        lines = [{"attribute": name, "accuracy": value} for name, value in averages.items()]
        if lines:
            self._parts["adjusted"].append(pd.DataFrame(lines).assign(repetition=repetition))

    def adjusted(self) -> dict[str, pd.Series[float]]:
        """Average the adjusted averages of each attribute over the folds of a repetition, by
        repetition.

        A repetition of which some run has none is left out, and an attribute without repetitions.
        """
        if not self._parts["adjusted"]:
            return {}
        averages: dict[str, pd.Series[float]] = {}
        for name, lines in self._all("adjusted").groupby("attribute", sort=False):
            by_repetition = lines.groupby("repetition", sort=False)["accuracy"]
            runs = by_repetition.size()
            whole = runs == [self._runs[str(repetition)] for repetition in runs.index]
            if whole.any():
                averages[str(name)] = by_repetition.mean()[whole]
        return averages

    def add(self, images: EnvImages, repetition: str) -> None:
        """Count the images of one run in one environment.

        Args:
            images: of the run.
            repetition: seed and trial; counts of its folds are added.
        """
        frame = images.frame
        weight = frame["weight"]
        # ((m - 1)/BINS, m/BINS]
        bins = np.clip(np.ceil(frame["confidence"] * BINS).astype(int) - 1, 0, BINS - 1)
        counted = frame[["label", "predicted"]].assign(
            bin=bins,
            n=weight,
            right=weight * frame["right"],
            confidence=weight * frame["confidence"],
        )
        parts = {
            "confusion": counted.groupby(["label", "predicted"])[["n", "right"]]
            .sum()
            .reset_index(),
            "bins": counted.groupby("bin")[["n", "right", "confidence"]].sum().reset_index(),
            "areas": pd.DataFrame({"auroc": [auroc(images)]}),
        }
        for column in (name for name in map(str, frame) if name.startswith(ATTRIBUTE)):
            name = column.removeprefix(ATTRIBUTE)
            value = (
                frame[column]
                .astype(object)
                .where(frame[column].notna(), None)
                .map(str)
                .rename("value")
            )
            self.many |= {name} if value.nunique() > MOST_VALUES else set()
            if name not in self.many:
                groups = counted.groupby([value, "label"])[["n", "right"]].sum().reset_index()
                parts[f"groups of {name}"] = groups.assign(attribute=name)
        for name, part in parts.items():
            kind = name.partition(" ")[0]
            self._parts[kind].append(part.assign(repetition=repetition, env=images.env))

    def _all(self, kind: str) -> pd.DataFrame:
        return pd.concat(self._parts[kind], ignore_index=True)

    @cached_property
    def confusion(self) -> pd.DataFrame:
        """``repetition``, ``env``, ``label``, ``predicted``, ``n`` and ``right`` (images)."""
        return self._all("confusion")

    @property
    def environments(self) -> list[str]:
        """Tested environments, in the order of the runs."""
        return list(dict.fromkeys(self.confusion["env"]))

    @property
    def repetitions(self) -> int:
        """How many seeds (and trials) there are."""
        return int(self.confusion["repetition"].nunique())

    def measures(self, *by: str) -> pd.DataFrame:
        """Compute the measures of each repetition over all images, or those of each environment.

        ``auroc`` is one class against the rest, mean over the classes, then over the models and
        environments: scores of two models are not on one scale. ``ece`` is the expected calibration
        error, the mean over images of |accuracy - confidence| of their bin.

        Source: Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian
            Binning", with the 15 equal
        bins of Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 5.

        Args:
            by: ``env``, or nothing.

        Returns:
            lines by ``repetition`` and ``by``; ``images``, and the fractions ``accuracy``,
            ``macro_f1`` (mean F1 over classes that occur among labels), ``auroc`` (NaN where it is
            not defined), ``ece`` and ``excess`` (mean confidence less accuracy; above 0 is
            overconfident).
        """
        keys = ["repetition", *by]
        totals = self.confusion.groupby(keys, sort=False)
        n = totals["n"].sum()
        right = totals["right"].sum()
        bins = (
            self._all("bins")
            .groupby([*keys, "bin"], sort=False)[["n", "right", "confidence"]]
            .sum()
        )
        off = (bins["right"] - bins["confidence"]).abs().groupby(keys, sort=False).sum()
        confidence = bins["confidence"].groupby(keys, sort=False).sum()
        areas = self._all("areas").groupby(["repetition", "env"], sort=False)["auroc"].agg(_mean)
        return pd.DataFrame(
            {
                "images": n,
                "accuracy": right / n,
                "macro_f1": totals[["label", "predicted", "n"]].apply(macro_f1),
                "auroc": areas.groupby(keys, sort=False).agg(_mean),
                "ece": off / n,
                "excess": (confidence - right) / n,
            }
        )

    def groups(self, attributes: bool = True) -> pd.DataFrame:
        """Compute the accuracy of each class in each environment, and in each value of the
        attributes; lowest first.

        Args:
            attributes: add the groups by values of attributes.

        Returns:
            columns ``attribute`` and ``value`` (empty for a class as a whole), ``label``, ``env``,
            ``accuracy`` (mean over repetitions), ``n`` (images of one repetition) and ``name``,
            e.g. ``dog in sketch, light day``.
        """
        parts = [self.confusion.assign(attribute="", value="")]
        if attributes and self._parts["groups"]:
            valued = self._all("groups")
            parts.append(valued[~valued["attribute"].isin(self.many)])
        counted = (
            pd.concat(parts).groupby([*_GROUP, "repetition"])[["n", "right"]].sum().query("n > 0")
        )
        counted["accuracy"] = counted["right"] / counted["n"]
        groups = counted.groupby(_GROUP)[["accuracy", "n"]].mean().reset_index()
        words = []
        for attribute, value, label, env in groups[_GROUP].itertuples(index=False):
            addition = f", {attribute} {value or '(empty)'}" if attribute else ""
            words.append(f"{self.classes[label]} in {env}{addition}")
        order = {"accuracy": True, "n": False, **dict.fromkeys(_GROUP, True)}
        return groups.assign(name=words).sort_values(
            list(order), ascending=list(order.values()), ignore_index=True
        )

    def worst_group(self, attributes: bool = False) -> dict[str, Any] | None:
        """Find the group of :data:`FEW` images or more with the lowest accuracy, as a line of
        :meth:`groups`.
        """
        large = self.groups(attributes).query("n >= @FEW")
        return _with_text_keys(large.iloc[0]) if len(large) else None

    def matrix(self) -> NDArray[np.float64]:
        """Count (K, K) images by true and predicted class over all environments, mean over
        repetitions.
        """
        k = range(len(self.classes))
        counted = self.confusion.pivot_table("n", "label", "predicted", "sum", fill_value=0.0)
        return (
            counted.reindex(index=k, columns=k, fill_value=0.0).to_numpy(float) / self.repetitions
        )

    def confusions(self) -> list[dict[str, Any]]:
        """List ``label``, ``predicted`` (what it is taken for), ``n`` and ``share`` of the class,
        most images first.
        """
        counted = self.matrix()
        label, predicted = np.nonzero(counted * (1 - np.eye(len(counted))))
        n = counted[label, predicted]
        pairs = pd.DataFrame(
            {"label": label, "predicted": predicted, "n": n, "share": n / counted.sum(1)[label]}
        )
        pairs = pairs.sort_values("n", ascending=False, kind="stable")
        return list(map(_with_text_keys, pairs.to_dict("records")))


def _with_text_keys(values: Any) -> dict[str, Any]:
    return {str(key): value for key, value in values.items()}


def macro_f1(confusion: pd.DataFrame) -> float:
    """Compute the mean F1 over the classes that occur in ``label``, of ``n`` images a line.

    A class that is only predicted lowers the precision of no other one and has no F1 of its own:
        with it, two models
    would be averaged over different classes.

    Source: Koh et al. 2021, "WILDS", whose code averages over the classes of the true labels.
    """
    label = confusion["label"].to_numpy()
    predicted = confusion["predicted"].to_numpy()
    n = confusion["n"].to_numpy()
    classes = np.unique(label[n > 0])
    score = f1_score(
        label, predicted, labels=classes, average="macro", sample_weight=n, zero_division=0
    )
    return float(score)


def auroc(images: EnvImages) -> float:
    """Average the area under the ROC curve of each class against the rest over the classes that
    occur.

    NaN where all images are of one class, and where not all probabilities are known.
    """
    if images.scores is None:
        return float("nan")
    labels = images.frame["label"].to_numpy()
    weight = images.frame["weight"].to_numpy()
    areas = []
    for label in np.unique(labels).tolist():
        positive = labels == label
        if not positive.all():
            areas.append(roc_auc_score(positive, images.scores[:, label], sample_weight=weight))
    return float(np.mean(areas)) if areas else float("nan")


def _mean(values: pd.Series[Any]) -> float:
    """Average values; NaN if any value is NaN."""
    return float(values.mean(skipna=False))
