"""The tested images of one run, from its ``predictions.parquet``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.plan.folds import tested
from dgbench.records.predictions import ATTRIBUTE, PREDICTION_FILE, about_predictions, read_predictions
from dgbench.reports.reading.runs import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COLUMNS = ("image", "eval_set", "env", "subset", "label", "predicted", "top", "probability")


@dataclass(frozen=True)
class EnvImages:
    """Images of one environment that a run was tested in.

    Args:
        env: the environment.
        image: (n,) names.
        label, predicted: (n,) classes.
        confidence: (n,) probability of the predicted class.
        scores: (n, K) probabilities of all classes; None where only the most probable ones are kept.
        weight: (n,) share of a sampled image, 1; where errors are exact an image stands there once for each painted
            feature, with the probability of that feature.
        attributes: name -> (n,) values.
    """

    env: str
    image: NDArray[Any]
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    scores: NDArray[np.float64] | None
    weight: NDArray[np.float64]
    attributes: Mapping[str, NDArray[Any]]

    @property
    def right(self) -> NDArray[np.bool_]:
        """(n,) whether the predicted class is the true one."""
        equal: NDArray[np.bool_] = self.label == self.predicted
        return equal


@dataclass(frozen=True)
class Predicted:
    """A run that has predictions.

    Args:
        run: as it was collected.
        about: what its file says, see :func:`~dgbench.records.predictions.about_predictions`.
    """

    run: Run
    about: Mapping[str, Any]

    @staticmethod
    def of(run: Run) -> Predicted:
        """The file of a run is looked at, not read.

        Raises:
            RecordError: there is none, or it is no such file.
        """
        return Predicted(run, about_predictions(Path(run.folder) / PREDICTION_FILE))

    @property
    def classes(self) -> list[str]:
        """Names of the K classes."""
        return [str(name) for name in self.about["classes"]]

    def tested(self) -> Iterator[EnvImages]:
        """The images of each environment whose ``test`` errors are the run's result.

        Raises:
            RecordError: the file cannot be read.
        """
        file = Path(self.run.folder) / PREDICTION_FILE
        names = set(tested(self.run.identity))
        recipes = [each for each in self.about["recipes"] if each["subset"] == "test" and each["env"] in names]
        table = read_predictions(file)
        extra = [name for name in table.column_names if name.startswith(ATTRIBUTE)]
        lines = {name: _values(table, name) for name in (*_COLUMNS, *extra)}
        for recipe in recipes:
            rows, weight = _rows(lines, recipe)
            label, top, probability = lines["label"][rows], lines["top"][rows], lines["probability"][rows]
            yield EnvImages(
                env=str(recipe["env"]),
                image=lines["image"][rows],
                label=label,
                predicted=lines["predicted"][rows],
                confidence=probability[:, 0],
                scores=_scores(top, probability, len(self.classes)),
                weight=weight,
                attributes={name.removeprefix(ATTRIBUTE): lines[name][rows] for name in extra},
            )


def _values(table: Any, name: str) -> NDArray[Any]:
    """A column as an array; lists, which are equally long, as the rows of one."""
    column = table.column(name)
    if name in ("top", "probability"):
        values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        kind = np.int64 if name == "top" else np.float64
        return values.reshape(len(column), -1).astype(kind) if len(column) else np.empty((0, 1), kind)
    values = column.to_numpy()
    return values.astype(np.int64) if name in ("label", "predicted") else np.asarray(values, object)


def _rows(lines: Mapping[str, NDArray[Any]], recipe: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Lines that an error counts, and how much each."""
    mixture = recipe["mixture"]
    if len(mixture) == 1:
        own = np.flatnonzero((lines["env"] == recipe["env"]) & (lines["subset"] == recipe["subset"]))
        return own, np.ones(len(own))
    parts = [(np.flatnonzero(lines["eval_set"] == name), weight) for name, weight in mixture.items() if weight > 0]
    weights = [np.full(len(own), float(weight)) for own, weight in parts]
    return np.concatenate([own for own, _ in parts]), np.concatenate(weights)


def _scores(top: NDArray[Any], probability: NDArray[Any], n_classes: int) -> NDArray[np.float64] | None:
    if top.shape[1] != n_classes:
        return None
    scores = np.empty(top.shape)
    np.put_along_axis(scores, top, probability, axis=1)
    return scores


def evaluations(runs: Sequence[Predicted]) -> dict[str, int]:
    """How many runs wrote which evaluation."""
    kinds = [str(each.about.get("evaluation")) for each in runs]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}
