"""``dgbench.score``: predictions of any model, from anywhere, as errors by environment and the
measures over them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest

from dgbench.analysis import Measured
from dgbench.errors import ConfigError
from dgbench.plan.measures import IDEAL, WORST, MeasureChoice, Measures, choose
from dgbench.records.predictions import ATTRIBUTE, about_predictions, need_pyarrow, read_predictions
from dgbench.reports.importers.arrays import is_array, read_array
from dgbench.reports.importers.file_formats import is_table
from dgbench.reports.importers.predictions import predictions_of_one
from dgbench.validation import NotNegative, Refusal, Several, checked, shown

_OF_IMAGES = (
    "[low, high]: 95% exact binomial interval (Clopper & Pearson 1934) over images: of other "
    "images like these, not of other seeds or trainings."
)
_OF_THE_WORST = (
    "The worst of {} groups was picked for its error, which a 95% interval of it alone would not "
    "allow for: that of worst_group is at 1 - 0.05/{}, and holds the picked group's error in 95% "
    "whichever is picked (Bonferroni)."
)
_ONE_MODEL = (
    "worst+gap is of one model for each held-out environment (leave-one-out), these are of one "
    "trained on {}"
)
_NO_GIVEN = (
    "name the environments of training, given=[...]: the ideal is of one model that is tested in "
    "all"
)
_COLUMNS = ("n", "wrong", "error", "low", "high", "role", "where", "reason")


@checked
def score(
    y_true: Any,
    y_pred: Any = None,
    environments: Any = None,
    *,
    given: Annotated[
        Several[str | float] | None, Refusal("is no list of environments", "write e.g. ['photo']")
    ] = None,
    groups: Any = None,
    training_groups: Annotated[
        Mapping[str, NotNegative] | None,
        Refusal("is no mapping from groups to numbers", "write e.g. {'y=0, place=0': 3498, ...}"),
    ] = None,
    measures: Measures | None = None,
) -> pd.DataFrame:
    """Compute errors by environment and group, with intervals, and the measures over environments.

    ``.loc["environment"]`` of the frame has a line for each environment, ``.loc["group"]`` for each
    group, and ``.loc["measure"]`` for ``overall`` (all images), ``average``, ``worst``, ``gap``,
    ``worst_gap`` and ``ideal`` (Hwang et al. 2024, see :func:`dgbench.measures`) and, where there
    are groups, ``worst_group`` (as in WILDS, an error in place of an accuracy; its interval allows
    for being picked among G groups, at 1 - 0.05/G) and, where their training images are known,
    ``adjusted_average`` (Sagawa et al. 2020, the "average" of Waterbirds: groups weighed by their
    shares of the training images).

    Columns: ``n`` images, ``wrong`` ones, ``error`` (a fraction), ``low`` and ``high``, ``role``
    (``held out`` or ``trained on``), ``where`` the worst is, and the ``reason`` why there is no
    value. ``frame.attrs["notes"]`` says what the intervals are of.

    Args:
        y_true: true classes, one per image: array, tensor, list or column, or the path of an array
            (``.npy``, ``.npz``, ``.pt``, or one column of text, as WILDS writes predictions). Or,
            without any other argument, the path of a ``predictions.parquet``, whose test images are
            scored, or of a table with a line for each image, as ``import=predictions`` reads it.
        y_pred: predicted classes.
        environments: environment of every image.
        given: environments that the model was trained on; the others are held out. Without it, each
            environment was predicted by a model that never saw it.
        groups: of every image, as a list, or several lists by name, whose combinations are the
            groups; of a file, names of its columns.
        training_groups: training images, or shares of them, of each group by its name as in
            ``.loc["group"]``; a group that is absent has none. A file of a run knows them for the
            groups of ``label`` and one attribute.
        measures: names of files in ``conf/measure``, or measures of your own
            (:class:`dgbench.analysis.Measure`); None takes all files.

    Raises:
        ConfigError: what was given is no list of classes, or the lists differ in length.
        RecordError: the file cannot be read.
    """
    if isinstance(y_true, str | Path) and not (is_array(y_true) and y_pred is not None):
        if y_pred is not None or environments is not None:
            raise ConfigError(
                f"y_true={y_true} is a file, which has predictions and environments; leave these "
                "out"
            )
        y_true, y_pred, environments, groups, given, training_groups = _of_file(
            Path(y_true), groups, given, training_groups
        )
    true, predicted = _classes("y_true", y_true), _classes("y_pred", y_pred)
    env_names = _names("environments", environments)
    labels = {} if groups is None else {"groups": _groups(groups)}
    _check_lengths({"y_true": true, "y_pred": predicted, "environments": env_names, **labels})
    _check_alike(true, predicted)
    wrong = true != predicted
    if training_groups is not None and not labels:
        raise ConfigError(
            "training_groups counts the training images of groups, and groups is not given; give "
            "groups too"
        )
    trained_on = None if given is None else list(map(str, given))
    seen_names = set(trained_on or ())
    env_lines = _lines(env_names, wrong)
    for name, line in env_lines.items():
        line["role"] = "trained on" if name in seen_names else "held out"
    lines = {("environment", name): line for name, line in env_lines.items()}
    notes = [_OF_IMAGES]
    values = {"overall": _counted(wrong), **_measures(env_lines, trained_on, choose(measures))}
    for label in labels.values():
        group_lines = _lines(label, wrong)
        lines |= {("group", name): line for name, line in group_lines.items()}
        worst = max(group_lines, key=lambda name: group_lines[name]["error"])
        values["worst_group"] = {
            **_counted(wrong[label == worst], 1 - 0.05 / len(group_lines)),
            "where": worst,
        }
        if len(group_lines) > 1:
            notes.append(_OF_THE_WORST.format(len(group_lines), len(group_lines)))
        if training_groups is not None:
            values["adjusted_average"] = _adjusted(group_lines, training_groups)
    lines |= {("measure", name): line for name, line in values.items()}
    frame = pd.DataFrame(list(lines.values()), columns=list(_COLUMNS))
    frame.index = pd.MultiIndex.from_tuples(list(lines), names=["kind", "name"])
    frame = frame.astype({"n": "Int64", "wrong": "Int64"})
    untested = sorted(set(trained_on or ()) - env_lines.keys())
    if untested:
        notes.append(f"Trained on, but not tested: {', '.join(untested)}.")
    frame.attrs = {"title": "Errors of these predictions", "notes": notes}
    return frame


def _measures(
    environments: Mapping[str, Mapping[str, Any]], given: list[str] | None, choice: MeasureChoice
) -> dict[str, dict[str, Any]]:
    """Compute the measures over environments, or say why there are none."""
    errors = {name: float(line["error"]) for name, line in environments.items()}
    trained_on = set(given or ())
    held_out = {name: error for name, error in errors.items() if name not in trained_on}
    untested = sorted(set(given or ()) - errors.keys())
    no_held_out = "" if held_out else "every environment was trained on, so none is held out"
    not_one_each = "" if given is None else _ONE_MODEL.format(", ".join(given))
    no_everywhere = f"not tested in {', '.join(untested)}" if untested else ""
    measured = Measured.of(
        choice.computed,
        held_out,
        errors,
        {
            "held_out": no_held_out,
            "leave_one_out": no_held_out or not_one_each,
            "everywhere": _NO_GIVEN if given is None else no_everywhere,
        },
    )
    env_of = {WORST: max(held_out, key=held_out.__getitem__, default=None)}
    if IDEAL in measured.values:
        env_of[IDEAL] = max(errors, key=errors.__getitem__)
    return {
        measure.name: {
            "error": measured.values.get(measure.name),
            "where": env_of.get(measure.name),
            "reason": measured.reasons.get(measure.name),
        }
        for measure in choice.of_runs
    }


def _adjusted(
    lines: Mapping[str, Mapping[str, Any]], training: Mapping[str, float]
) -> dict[str, Any]:
    """Average the errors of groups by their shares of the training images, or say why that cannot
    be.

    Raises:
        ConfigError: no training image at all, or none of the tested groups is named.
    """
    images = {str(name): float(n) for name, n in training.items() if n}
    untested = [name for name in images if name not in lines]
    if not images or len(untested) == len(images):
        raise ConfigError(
            f"training_groups names {shown(list(training))}, none of the groups; choose from "
            f"{shown(list(lines))}"
        )
    if untested:
        return {"reason": f"trained on, but not tested: {', '.join(untested)}"}
    total = sum(images.values())
    return {"error": sum(n / total * float(lines[name]["error"]) for name, n in images.items())}


def _lines(labels: NDArray[np.str_], wrong: NDArray[np.bool_]) -> dict[str, dict[str, Any]]:
    """Count the errors of each label, in the order in which labels occur."""
    codes, names = pd.factorize(labels.astype(object))
    images = np.bincount(codes, minlength=len(names)).tolist()
    counts = np.bincount(codes, weights=wrong, minlength=len(names)).astype(int).tolist()
    lines = zip(names.tolist(), counts, images, strict=True)
    return {str(name): _interval(count, n) for name, count, n in lines}


def _counted(wrong: NDArray[np.bool_], level: float = 0.95) -> dict[str, Any]:
    """Count errors, with the exact interval of their share at this level."""
    return _interval(int(wrong.sum()), len(wrong), level)


def _interval(count: int, n: int, level: float = 0.95) -> dict[str, Any]:
    low, high = _bounds(count, n, level)
    return {"n": n, "wrong": count, "error": count / n, "low": low, "high": high}


@functools.lru_cache(maxsize=100_000)
def _bounds(count: int, n: int, level: float) -> tuple[float, float]:
    interval = binomtest(count, n).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)


def _of_file(
    path: Path,
    groups: Any,
    given: Iterable[str | float] | None,
    training_groups: Mapping[str, float] | None,
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Read a file of predictions: what :func:`score` takes, in the order of its arguments."""
    if path.suffix.lower() != ".parquet" and is_table(path):
        return (*predictions_of_one(path), groups, given, training_groups)
    if training_groups is None:
        training_groups = _training_of(path, groups)
    return (*_read(path, groups, given), training_groups)


def _check_alike(true: np.ndarray, predicted: np.ndarray) -> None:
    """Refuse names of classes beside numbers of classes.

    Raises:
        ConfigError: only one of the two holds names.
    """
    if (true.dtype.kind == "U") != (predicted.dtype.kind == "U"):
        raise ConfigError(
            "one of y_true and y_pred has names of classes, the other numbers; give both alike"
        )


def _read(path: Path, groups: Any, given: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Read classes, environments and groups of the test images of a file.

    The last value lists the environments that were trained on.
    """
    need_pyarrow("score of a file")
    training = about_predictions(path)["training"]
    frame = read_predictions(path).to_pandas()
    frame = frame[frame["subset"] == "test"]
    if frame.empty:
        raise ConfigError(
            f"{path} has no test images that belong to one environment each, as exact evaluation "
            "computes all environments from the same images; train with dataset.evaluation=sampled"
        )
    if groups is not None:
        names = [groups] if isinstance(groups, str) else list(groups)
        unknown = [name for name in names if name not in frame]
        if unknown:
            raise ConfigError(
                f"groups={shown(unknown)} is no column of {path}; choose from {', '.join(frame)}"
            )
        groups = frame[names]
    return (
        frame["label"],
        frame["predicted"],
        frame["env"],
        groups,
        training if given is None else given,
    )


def _training_of(path: Path, names: Any) -> dict[str, float] | None:
    """Read the training images of the groups of class and one attribute, by name.

    Returns None if they are not known.
    """
    about = about_predictions(path)
    known = about.get("training_groups") or {}
    columns = [] if names is None or isinstance(names, str) else list(map(str, names))
    attributes = [
        name
        for name in columns
        if name.removeprefix(ATTRIBUTE) in known and name.startswith(ATTRIBUTE)
    ]
    if len(columns) != 2 or len(attributes) != 1 or "label" not in columns:
        return None
    number = {str(name): k for k, name in enumerate(about["classes"])}
    images: dict[str, float] = {}
    for value, labels in known[attributes[0].removeprefix(ATTRIBUTE)].items():
        for label, n in labels.items():
            of_column = {"label": number[label], attributes[0]: value}
            images[", ".join(f"{column}={of_column[column]}" for column in columns)] = n
    return images


def _array(name: str, values: Any) -> NDArray[Any]:
    """Convert whatever holds one value per image to an array."""
    if is_array(values):
        values = read_array(values)
    if values is None or isinstance(values, str):
        raise ConfigError(f"{name}={shown(values)} is no list; give one value for every image")
    if hasattr(values, "detach"):  # a tensor, perhaps on a graphics card
        values = values.detach().cpu()
    array = np.asarray(values)
    if array.ndim != 1 or not array.size:
        hint = f", e.g. the class of each line, {name}.argmax(1)" if array.ndim == 2 else ""
        raise ConfigError(f"{name} is of shape {array.shape}; give one value for every image{hint}")
    n_missing = int(pd.isna(array).sum())
    if n_missing > 0:
        raise ConfigError(
            f"{name} holds no value for {n_missing} of {len(array)} images; leave these out"
        )
    return array


def _classes(name: str, values: Any) -> NDArray[Any]:
    """Convert classes to an array of whole numbers or of text."""
    array = _array(name, values)
    if array.dtype.kind == "O":
        array = np.array(array.tolist())
    if array.dtype.kind == "f" and (array % 1 != 0).any():
        raise ConfigError(
            f"{name} holds {array[array % 1 != 0][0]:g}, which is no class; give classes, not "
            "probabilities"
        )
    if array.dtype.kind not in "biufU":
        raise ConfigError(f"{name} holds {array.dtype}, no classes; give whole numbers or names")
    return array


def _names(name: str, values: Any) -> NDArray[np.str_]:
    return np.array([str(value) for value in _array(name, values).tolist()])


def _groups(groups: Any) -> NDArray[np.str_]:
    """Build one label for each image, which combines its values if there are several lists."""
    if not isinstance(groups, Mapping | pd.DataFrame):
        return _names("groups", groups)
    if not len(groups):
        raise ConfigError(
            "groups={} names no list; give one value for every image, or several lists by name"
        )
    columns = {str(key): _names(f"groups[{key!r}]", groups[key]) for key in groups}
    _check_lengths(columns)
    labels = []
    for values in zip(*columns.values(), strict=True):
        named = [f"{key}={value}" for key, value in zip(columns, values, strict=True)]
        labels.append(", ".join(named))
    return np.array(labels)


def _check_lengths(arrays: Mapping[str, NDArray[Any]]) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} holds {length}" for name, length in lengths.items())
        raise ConfigError(f"{listed} values; give one of each for every image")
