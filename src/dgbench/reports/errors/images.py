"""The tested images of runs, from their ``predictions.parquet``, and which runs belong together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgbench.errors import RecordError
from dgbench.plan.folds import tested
from dgbench.records.predictions import ATTRIBUTE, PREDICTION_FILE, about_predictions, read_predictions
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.evaluation import one_code
from dgbench.reports.labels import algorithm_labels, setting_titles
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import Run
from dgbench.reports.reading.selected import SelectedRun, beside_trained

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHOWN = 16  # images on a sheet
_WAYS = "train with trainer.predictions=last, or write them with dgbench evaluate and predictions=true"


@dataclass(frozen=True)
class EnvImages:
    """Images of one environment that a run was tested in.

    Args:
        env: the environment.
        frame: a line per image: ``image`` (name), ``label`` and ``predicted`` (classes), ``right``, ``confidence``
            (probability of the predicted class), ``weight`` (share of a sampled image, 1; where errors are exact an
            image stands there once for each painted feature, with the probability of that feature), and
            ``attribute.*``.
        scores: (n, K) probabilities of all classes; None where only the most probable ones are kept.
    """

    env: str
    frame: pd.DataFrame
    scores: NDArray[np.float64] | None

    @property
    def attributes(self) -> list[str]:
        """Names of the columns that say what else is known of an image."""
        return [name for name in map(str, self.frame) if name.startswith(ATTRIBUTE)]


@dataclass(frozen=True)
class PredictedRun:
    """A run that has predictions.

    Args:
        run: as it was collected.
        about: what its file says, see :func:`~dgbench.records.predictions.about_predictions`.
    """

    run: Run
    about: Mapping[str, Any]

    @property
    def classes(self) -> list[str]:
        """Names of the K classes."""
        return [str(name) for name in self.about["classes"]]

    @property
    def repetition(self) -> str:
        """What its folds have in common."""
        return f"{self.run.identity['seed']}, trial {self.run.identity['trial']}"

    def tested(self) -> Iterator[EnvImages]:
        """Read the images of each environment whose ``test`` errors are the run's result.

        Raises:
            RecordError: the file cannot be read.
        """
        table = read_predictions(Path(self.run.folder) / PREDICTION_FILE)
        top, probability = (_rows(table.column(name)) for name in ("top", "probability"))
        frame = table.drop_columns(["top", "probability"]).to_pandas()
        frame = frame.astype({"label": "int64", "predicted": "int64"})
        frame["right"], frame["confidence"] = frame["label"] == frame["predicted"], probability[:, 0].astype("float64")
        scores = None
        if top.shape[1] == len(self.classes):
            scores = np.empty(top.shape)
            np.put_along_axis(scores, top.astype("int64"), probability.astype("float64"), axis=1)
        names = tested(self.run.identity)
        for recipe in self.about["recipes"]:
            if recipe["subset"] == "test" and recipe["env"] in names:
                at, weight = _counted(frame, recipe)
                images = frame.iloc[at].assign(weight=weight)
                yield EnvImages(str(recipe["env"]), images, None if scores is None else scores[at])


def _rows(column: Any) -> NDArray[Any]:
    """A column of lists, which are equally long, as the rows of an array."""
    values: NDArray[Any] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1 if len(column) else 1)


def _counted(frame: pd.DataFrame, recipe: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Positions of the lines that an error counts, and how much each."""
    mixture = {name: float(weight) for name, weight in recipe["mixture"].items()}
    if len(mixture) == 1:
        at = np.flatnonzero((frame["env"] == recipe["env"]) & (frame["subset"] == recipe["subset"]))
        return at, np.ones(len(at))
    parts = [(np.flatnonzero(frame["eval_set"] == name), weight) for name, weight in mixture.items() if weight > 0]
    weights = [np.full(len(at), weight) for at, weight in parts]
    return np.concatenate([at for at, _ in parts]), np.concatenate(weights)


def predicted_runs(collection: Collection) -> tuple[list[PredictedRun], list[Problem]]:
    """Find the finished runs that have predictions and test environments; and what is missing.

    Raises:
        RecordError: there is none.
    """
    runs, problems = [], list(collection.problems)
    lacking: dict[Path, int] = defaultdict(int)
    for run in collection.runs:
        file = Path(run.folder) / PREDICTION_FILE
        if run.unusable or not tested(run.identity):
            continue
        if not file.is_file():
            lacking[file.parent.parent] += 1
            continue
        try:
            runs.append(PredictedRun(run, about_predictions(file)))
        except RecordError as error:
            problems.append(Problem("unreadable predictions", run.folder, str(error)))
    for folder, count in lacking.items():
        problems.append(Problem("no predictions", str(folder), f"{count} finished run(s) have none; {_WAYS}"))
    if not runs:
        raise RecordError(f"no finished run has {PREDICTION_FILE}; {_WAYS}")
    return runs, problems


def settings_of(runs: Sequence[PredictedRun], split_by: str | None) -> list[tuple[str, dict[str, list[PredictedRun]]]]:
    """Sort runs into settings: title, and algorithm -> runs.

    Raises:
        RecordError: one setting would mix code versions.
    """
    names = keys(Role.SETTING, split_by)
    groups: dict[str, list[PredictedRun]] = defaultdict(list)
    shared: dict[str, dict[str, Any]] = {}
    for at, identity in beside_trained([predicted.run.identity for predicted in runs]):
        place = identity_key(identity, names)
        groups[place].append(runs[at])
        shared.setdefault(place, {key: identity[key] for key in names})
    settings = []
    for title, group in zip(setting_titles(list(shared.values())), groups.values(), strict=True):
        identities = [predicted.run.identity for predicted in group]
        one_code([SelectedRun(each.run.identity, "", each.run.folder) for each in group], identities[0])
        by_algorithm: dict[str, list[PredictedRun]] = defaultdict(list)
        for label, predicted in zip(algorithm_labels(identities), group, strict=True):
            by_algorithm[label].append(predicted)
        settings.append((title, dict(by_algorithm)))
    return settings


def most_confident(images: pd.DataFrame) -> pd.DataFrame:
    """Take the images that fit on a sheet, each once: those with the highest probability of the predicted class."""
    ordered = images.sort_values("confidence", ascending=False, kind="stable")
    return ordered.drop_duplicates(["env", "image"]).head(SHOWN).reset_index(drop=True)


def only_first(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Find images that all runs of one algorithm get right and all runs of another one get wrong.

    Args:
        first, second: every image of every run of either algorithm, with ``env``, ``image`` and ``right``.

    Returns:
        those that the second is most confident about, as it sees them; and how many there are in all.
    """
    place = ["env", "image"]
    right = first.groupby(place, sort=False)["right"].all()
    wrong = ~second.groupby(place, sort=False)["right"].any()
    both = right.index[right].intersection(wrong.index[wrong])
    return most_confident(second[pd.MultiIndex.from_frame(second[place]).isin(both)]), len(both)
