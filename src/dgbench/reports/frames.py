"""Finished runs as tidy data frames, ``dgbench.results`` and ``dgbench.measures``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import yaml
from hydra.utils import instantiate

from dgbench.analysis.measures import ROUNDING
from dgbench.analysis.selection import Last, Selection, describe
from dgbench.configuration import CONF
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.folds import FULL
from dgbench.plan.measures import Measures, choose
from dgbench.reports.evaluation import evaluate
from dgbench.reports.importers.file_formats import is_table
from dgbench.reports.importers.table import read_table
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.row_files import IDENTITY_KEYS
from dgbench.reports.reading.selected import Selected, SelectedRun, select_runs, tests_of
from dgbench.validation import Places, Refusal, checked

#: what a frame says of one evaluation, after the columns that say whose it is
EVALUATION = (
    "step",
    "env",
    "subset",
    "env_held_out",
    "seen",
    "wrong",
    "error",
    "loss",
    "majority_wrong",
    "together",
    "code",
)
#: columns that a frame may lack which was made before they were added
_LATER = ("n_classes", "majority_wrong")
#: keys of an identity that a frame spells in columns of their own, ``variant.ratio``
_IN_COLUMNS = ("variant", "hparams", "user_code", "unlearnable")


@checked
def results(
    source: Places = "multirun",
    selection: Annotated[
        str | Selection, Refusal("is no selection", "name a file of conf/selection")
    ] = "last",
    split_by: str | None = None,
) -> pd.DataFrame:
    """Collect every error of the runs that count, at the step that the selection chose.

    One line is one run x environment x subset. Its columns:

    - whose it is: ``run`` (hash), ``folder``, ``dataset``, ``variant.NAME``, ``base``,
      ``evaluation``, ``data_seed``, ``split_seed``, ``given``, ``algorithm``, ``label`` (the
      algorithm as tables name it, with what sets several of its studies apart), ``hparams.NAME``,
      ``draw``, ``space``, ``trial``, ``backbone``, ``init``, ``head``, ``tuning``,
      ``n_parameters``, ``n_trainable``, ``n_classes``, ``protocol``, ``fold``, ``held_out``,
      ``folds``, ``seed``, ``averaging``, ``beyond``, ``grouped``; see
      :class:`dgbench.records.run_identity.RunIdentity`. Lists are tuples. A key that a run does
      not have, for instance a hyperparameter of another algorithm, is missing (NaN).
    - ``step``: optimizer updates done; ``env``; ``subset``: ``train``, ``val`` or ``test``;
      ``env_held_out``: the run never trained on this environment; ``seen``: images; ``wrong``:
      misclassified images, an expected number if the evaluation is exact; ``error``: wrong / seen;
      ``loss``: mean cross entropy, nats; ``majority_wrong``: images that the most frequent class of
      the run's training images gets wrong, and ``together``: runs that trained in one stack, where
      they are recorded; ``code``: version of dgbench.

    ``frame.attrs["problems"]`` says in one line each what was left out and why,
    ``frame.attrs["selection"]`` how steps were chosen, ``frame.attrs["validation_environments"]``
    on which environments no leaderboard may report, since they chose. pandas keeps them when lines
    are selected, not when frames are joined.

    Args:
        source: folder that is searched for runs, recursively, or an archive of runs, or several of
            both; or tables of others (as ``import=table`` reads them), e.g. ``others.csv``.
        selection: name of a file in ``conf/selection``, or a selection.
        split_by: one more column whose values are kept apart in labels and selection, e.g.
            ``code``.

    Raises:
        RecordError: there is no run.
        ConfigError: the selection or ``split_by`` is unknown.
    """
    places = [source] if isinstance(source, str | Path) else list(source)
    method = selection_named(selection) if isinstance(selection, str) else selection
    tables = [place for place in places if is_table(place)]
    if tables and len(tables) < len(places):
        raise ConfigError(
            f"source names tables ({tables[0]}) and folders of runs; read them one after the other"
        )
    collection = read_table(tables) if tables else collect(places)
    if not collection.runs:
        raise RecordError(
            f"no run under {', '.join(map(str, places))} has rows; {collection.problems[0].reason}"
        )
    selected = select_runs(collection, method, split_by)
    frame = _frame(collection, selected)
    frame.attrs["selection"] = describe(method)
    left_out = [f"not used: {run.folder}: {run.reason}" for run in selected.runs if run.reason]
    problems = [
        f"{problem.kind}: {problem.where}: {problem.reason}" for problem in collection.problems
    ]
    frame.attrs["problems"] = problems + left_out
    frame.attrs["validation_environments"] = tuple(method.validation_environments)
    return frame


@checked
def measures(
    frame: pd.DataFrame, split_by: str | None = None, measures: Measures | None = None
) -> pd.DataFrame:
    """Compute the measures of every study: average, worst, gap, worst+gap and ideal, or others.

    ``dgbench.reports.measures`` gives the means over seeds.

    One line is one study: all folds of a dataset setting, an ``algorithm`` and a ``seed``. Its
    columns are the keys of the setting, ``algorithm`` (as tables name it), ``label`` (the same, its
    former name), ``seed``, the measures ``average``, ``worst``, ``gap``,
    ``worst_gap`` and ``ideal`` (fractions; NaN where it cannot be computed), ``ideal_env``,
    ``trained_on_tested`` (models saw other images of the environments that they are tested in: no
    estimate of generalization) and ``missing`` (why a measure is NaN).

    Source: Hwang et al. 2024, "Towards a Better Evaluation of Out-of-Domain Generalization",
        equations 2, 4 and 6.

    Args:
        frame: of :func:`results`, or a part of its lines; or a table of others, see
            ``import=table``.
        split_by: one more column whose values get lines of their own, e.g. ``code``.
        measures: names of files in ``conf/measure``, or measures of your own
            (:class:`dgbench.analysis.Measure`); None takes all files.

    Raises:
        RecordError: results of several code versions, or two runs of one fold, would share a line.
        ConfigError: ``split_by`` is no column, or something is no measure.
    """
    choice = choose(measures)
    chosen = selected_of_frame(frame)
    evaluation = evaluate(chosen, split_by, choice)
    identities = [
        {"setting": setting.title, **_flat(setting.identity)} for setting in evaluation.settings
    ]
    settings = pd.DataFrame(identities or [{"setting": ""}])
    names = [str(name) for name in settings.columns if name != "setting"]
    of_runs = [measure.name for measure in choice.of_runs]
    whose = ["label"] if "algorithm" in names else ["label", "algorithm"]
    columns = [*names, *whose, "seed", *of_runs, "ideal_env", "trained_on_tested", "missing"]
    studies = evaluation.studies.assign(label=evaluation.studies["algorithm"])
    if "algorithm" in names:  # what the report is split by
        studies = studies.drop(columns="algorithm")
    reasons = studies[[f"{name}.reason" for name in of_runs]].to_numpy()
    missing = []
    for folds, line in zip(studies["missing"], reasons, strict=True):
        texts = dict.fromkeys(reason for reason in line if isinstance(reason, str))
        missing.append(folds or "; ".join(texts))
    studies = studies.assign(missing=missing)
    lines = studies.merge(settings, on="setting")[columns]
    new_problems = [
        f"{problem.kind}: {problem.where}: {problem.reason}" for problem in chosen.problems
    ]
    lines.attrs = {**frame.attrs, "problems": [*frame.attrs.get("problems", ()), *new_problems]}
    return lines


def selected_of_frame(frame: pd.DataFrame) -> Selected:
    """Select the runs of a frame of :func:`dgbench.results`, or of some of its lines.

    A table of others' results has runs, too.

    Raises:
        ConfigError: it is a frame of runs that lacks a column.
        RecordError: a table of others cannot be read, see
            :func:`~dgbench.reports.importers.table.read_table`.
    """
    if not {"folder", "label"} & {*frame}:
        collection = read_table(frame)
        if collection.published:
            return Selected(
                [], collection.rows, published=collection.published, problems=collection.problems
            )
        return replace(select_runs(collection, Last()), problems=collection.problems)
    needed = (
        "folder",
        "label",
        *IDENTITY_KEYS,
        "step",
        "subset",
        "env",
        "env_held_out",
        "seen",
        "wrong",
    )
    optional = {*_IN_COLUMNS, *_LATER}
    absent = [name for name in needed if name not in frame and name not in optional]
    if absent:
        raise ConfigError(
            f"frame has no column {absent[0]}; give one of dgbench.results, or some of its lines"
        )
    _check_errors(frame)
    rows = frame.assign(run=frame.groupby(["run", "folder"], sort=False).ngroup().to_numpy())
    tests = rows[rows["subset"] == "test"]
    tested_by = tests["env"].astype(str).groupby(tests["run"].to_numpy()).agg(frozenset).to_dict()
    runs = []
    for number, line in enumerate(frame.drop_duplicates(["run", "folder"]).to_dict("records")):
        identity = _identity_of(line)
        label = str(identity.pop("label"))
        folder = str(identity.pop("folder"))
        step = int(line["step"])
        everywhere = tested_by.get(number, frozenset()) if identity["fold"] == FULL else frozenset()
        runs.append(SelectedRun(identity, label, folder, step, environments=everywhere))
    return Selected(runs, tests_of(runs, rows), partial=True)


def _check_errors(frame: pd.DataFrame) -> None:
    """Refuse errors that no model can have, and an edited column ``error``, which nothing reads.

    Raises:
        ConfigError: there is one.
    """
    seen, wrong = (frame[name].to_numpy(dtype="float64") for name in ("seen", "wrong"))
    # what is missing is NaN
    impossible = (seen < 1) | (wrong < 0) | (wrong > seen * (1 + ROUNDING))
    if impossible.any():
        row = int(impossible.argmax())
        raise ConfigError(
            f"frame has {wrong[row]:g} wrong of {seen[row]:g} seen in line {row + 1}; give counts "
            "with 0 <= wrong <= seen"
        )
    error = frame["error"].to_numpy(dtype="float64") if "error" in frame else wrong / seen
    edited = ~np.isclose(error, wrong / seen, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    if edited.any():
        row = int(edited.argmax())
        raise ConfigError(
            f"frame has the error {error[row]:g} in line {row + 1}, where wrong / seen is "
            f"{wrong[row] / seen[row]:g}; change wrong, from which errors are computed"
        )


def selection_named(name: str) -> Selection:
    """Load the selection of a file in ``conf/selection``.

    Raises:
        ConfigError: there is no such file.
    """
    files = {file.stem: file for file in sorted((CONF / "selection").glob("*.yaml"))}
    if name not in files:
        raise ConfigError(
            f"selection={name} is unknown; choose from {', '.join(files)}, or pass a selection"
        )
    selection: Selection = instantiate(yaml.safe_load(files[name].read_text(encoding="utf-8")))
    return selection


def _frame(collection: Collection, selected: Selected) -> pd.DataFrame:
    steps = np.array([-1 if run.reason else run.step for run in selected.runs])
    rows = collection.rows[
        collection.rows["step"].to_numpy() == steps[collection.rows["run"].to_numpy()]
    ]
    lines = [{**run.identity, "folder": run.folder, "label": run.label} for run in selected.runs]
    runs = pd.DataFrame([_flat(line) for line in lines])
    position = rows["run"].to_numpy()
    columns = sorted((str(name) for name in runs.columns), key=_place)
    identities = runs[columns].take(position).reset_index(drop=True)
    evaluations = (
        rows.drop(columns="run").reset_index(drop=True).astype({"env": str, "subset": str})
    )
    evaluations["error"] = evaluations["wrong"] / evaluations["seen"]
    if "majority_wrong" not in evaluations:
        evaluations["majority_wrong"] = np.nan
    evaluations["code"] = identities.pop("code")
    evaluations["together"] = pd.array(
        [run.together for run in collection.runs], dtype="Int64"
    ).take(position)
    frame: pd.DataFrame = pd.concat([identities, evaluations[list(EVALUATION)]], axis=1)
    return frame


def _place(column: str) -> int:
    """Return the position of a column among the keys of an identity.

    A column that it does not name comes last.
    """
    key = {"folder": "run", "label": "algorithm"}.get(column, column.partition(".")[0])
    return IDENTITY_KEYS.index(key) if key in IDENTITY_KEYS else len(IDENTITY_KEYS)


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten an identity to columns: a mapping in it gets a column for each of its keys."""
    flat: dict[str, Any] = {}
    for key, value in identity.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": _hashable(item) for name, item in value.items()}
        else:
            flat[key] = _hashable(value)
    return flat


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _identity_of(line: Mapping[Any, Any]) -> dict[str, Any]:
    """Recover the identity that a line of a frame spells in columns: ``variant.ratio`` goes back
    into ``variant``.
    """
    identity: dict[str, Any] = {key: {} for key in _IN_COLUMNS}
    for name, value in line.items():
        key, _, inner = str(name).partition(".")
        missing = isinstance(value, float) and value != value
        if inner:
            if not missing:
                identity[key][inner] = _whole(value)
        else:
            identity[key] = None if missing else _listed(_whole(value))
    return identity


def _whole(value: Any) -> Any:
    """Restore a whole number in a column that missing values made one of floats: 3.0 is 3."""
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value
