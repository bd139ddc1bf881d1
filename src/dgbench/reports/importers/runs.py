"""Lines of tables of others as runs and rows, or, of means with error bars, as published tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.accuracy import SPREADS
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.folds import FULL, LOO
from dgbench.records.rows import SUBSETS
from dgbench.records.run_identity import DEFAULTS
from dgbench.records.status import DONE, FAILED
from dgbench.reports.importers import FROM_TABLE
from dgbench.reports.importers.cells import HPARAMS
from dgbench.reports.importers.columns import Columns
from dgbench.reports.importers.in_distribution import MARK, attached
from dgbench.reports.importers.lines import who_of, with_held_out, without
from dgbench.reports.labels import slug
from dgbench.reports.published import Published, Value
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import Run
from dgbench.validation import some_of

_FINISHED = {"finished", "done", "completed", "success"}
_STATED = ("algorithm", "environment", "accuracy", "standard_error")
#: stands for the list of environments, which thousands of runs share, while one is formatted
_GIVEN = "\0given\0"


def collection_of(
    table: Columns, lines: pd.DataFrame, classes: int | None, unit: str | None = None
) -> Collection:
    """Collect the runs and rows of lines with ``wrong``, ``seen`` and ``accuracy``.

    Args:
        table: that was read.
        lines: those in distribution are marked, if there may be some.
        classes: number of classes of the dataset; None where it is not known.
        unit: of a column ``validation``.

    Raises:
        ConfigError: a number of classes is stated for several datasets.
        RecordError: no line can be used, or two contradict one another.
    """
    if classes is not None and lines["dataset"].nunique() > 1:
        named = ", ".join(map(str, lines["dataset"].unique()))
        raise ConfigError(
            f"import.classes={classes} is for one dataset, and the table holds {named}; "
            "leave it null"
        )
    if MARK not in lines:
        return _collected(table, with_held_out(table, lines), classes)
    is_inside = lines[MARK].to_numpy()
    lines = lines.drop(columns=MARK)
    if is_inside.all():
        raise table.refusal(
            "every line is in distribution", "add those of environments that were held out"
        )
    outside = with_held_out(table, lines[~is_inside])
    return _collected(table, attached(table, outside, lines[is_inside], unit), classes)


def means_of(table: Columns, lines: pd.DataFrame, seeds: int | None, bar: str) -> Collection:
    """Collect means with error bars, which have no seeds, as tables like those of papers."""
    papers = []
    repeated = lines.duplicated(["dataset", "algorithm", "environment"])
    if repeated.any():
        place = table.place(lines.index[repeated.to_numpy()][0])
        raise table.refusal(
            f"a mean is there twice, again in {place} ({who_of(lines[repeated])})",
            "drop one, or name import.columns.seed",
        )
    for dataset, dataset_lines in lines.groupby("dataset", sort=False):
        values: dict[str, dict[str, Value]] = {}
        for name, env, mean, error in zip(*(dataset_lines[key] for key in _STATED), strict=True):
            values.setdefault(name, {})[env] = Value(
                _rounded(mean), None if error != error else _rounded(error)
            )
        note = f"Mean ± {SPREADS[bar]} over {seeds or 'an unknown number of'} seeds"
        paper = Published(
            name=slug(str(dataset)),
            source=table.where,
            title=str(dataset),
            dataset=str(dataset),
            quantity="accuracy",
            note=note,
            seeds=seeds or 0,
            bar=bar,
            columns=tuple(dataset_lines["environment"].unique()),
            values=values,
            words={},
            printed={},
        )
        papers.append(paper)
    return Collection([], pd.DataFrame(), table.problems, [], papers)


def _collected(table: Columns, lines: pd.DataFrame, classes: int | None) -> Collection:
    """Collect runs, whose dataset has so many classes, and their rows."""
    if "seed" not in table.column:
        table.assume("no column is the seed: one seed")
    if "step" not in table.column:
        table.assume(
            "no column is the step: how the models were selected is not known, each value counts "
            "as it stands"
        )
    run_columns = ["dataset", "backbone", "init", "algorithm", "seed", "draw", "held_out"]
    run_columns += [HPARAMS + name for name in table.hparams]
    lines = lines.assign(
        run=lines.groupby(run_columns, sort=False, dropna=False).ngroup().astype("int32")
    )
    place = ["run", "step", "environment", "subset"]
    repeated = lines.duplicated(place)
    differing = repeated & ~lines.duplicated([*place, "accuracy"])
    if differing.any():
        raise _contradiction(table, lines, place, int(lines.index[differing.to_numpy()][0]))
    lines = without(table, lines, repeated, "the same line stands before")
    given: dict[Any, list[str]] = {}
    sizes: dict[Any, set[int]] = {}
    for dataset, dataset_lines in lines.groupby("dataset", sort=False):
        sets = dataset_lines["held_out"].unique()
        sizes[dataset] = {len(held_out) for held_out in sets}
        tested: set[str] = {name for held_out in sets for name in held_out}
        order: list[str] = dataset_lines["environment"].unique().tolist()
        given[dataset] = [name for name in order if name in tested or not tested] + sorted(
            tested - {*order}
        )
    last = lines.groupby("run")["step"].agg(["max", "size"]).to_numpy()
    heads = (
        lines.drop_duplicates("run").sort_values("run")[[*run_columns, "status"]].to_dict("records")
    )
    datasets = {name: _Dataset(names, sizes[name], classes) for name, names in given.items()}
    runs = [
        _run(table, head, datasets[head["dataset"]], *map(int, last_and_count))
        for head, last_and_count in zip(heads, last, strict=True)
    ]
    rows = pd.DataFrame(
        {
            "run": lines["run"],
            "step": lines["step"].astype("int32"),
            "env": pd.Categorical(lines["environment"]),
            "subset": pd.Categorical(lines["subset"], SUBSETS),
            "env_held_out": lines["unseen"],
            "seen": lines["seen"].astype("int32"),
            "wrong": lines["wrong"],
            "loss": np.float32("nan"),
            "accuracy": lines["accuracy"],
        }
    ).reset_index(drop=True)
    search = ["dataset", "algorithm", "seed", "held_out"]
    are_searches = lines.drop_duplicates([*search, "draw"]).duplicated(search).any()
    draws_stay_apart = bool(are_searches) and not (lines["subset"] == "val").any()
    if draws_stay_apart:
        table.problems.append(_no_choice(table, lines))
    return Collection(
        runs,
        rows,
        table.problems,
        [],
        selected_elsewhere="step" not in table.column,
        draws_stay_apart=draws_stay_apart,
    )


def _no_choice(table: Columns, lines: pd.DataFrame) -> Problem:
    """Say that no draw of hyperparameters can be chosen, and what a table that allows it holds."""
    text = (
        f"{lines['draw'].nunique()} draws of hyperparameters and no accuracy on validation data: "
        "none can be chosen without looking at the tested environments; add a column validation, "
        "or lines in distribution or of subset val"
    )
    return Problem("no selection", table.where, text)


def _contradiction(
    table: Columns, lines: pd.DataFrame, place: Sequence[str], row: int
) -> RecordError:
    """Build the error of a line that another one contradicts; names the columns that differ."""
    same = (lines[list(place)] == lines.loc[row, list(place)]).all(axis=1)
    before = int(lines.index[same.to_numpy()][0])
    used = {name for name in table.column.values() if not isinstance(name, list)} | {
        *table.hparams.values()
    }
    free = [name for name in table.frame if name not in used]
    cells = table.frame.loc[[before, row], free].astype(str)
    apart = [str(name) for name in free if cells[name].nunique() > 1]
    fix = "drop one, or name the column that tells them apart, e.g. import.columns.seed=COLUMN"
    if apart:
        named = ", ".join(f"{name}: {name}" for name in apart[:1])
        fix += f" or import.columns.hparams={{{named}}}; they differ in {some_of(apart, 6)}"
    return table.refusal(
        f"{table.place(row)} is of the same model and environment as {table.place(before)}, with "
        f"another value ({who_of(lines.loc[[row]])})",
        fix,
    )


class _Dataset:
    """What the runs of one dataset share.

    Args:
        given: names of its environments, in order.
        sizes: how many of them models held out.
        classes: number of its classes; None where it is not known.
    """

    def __init__(self, given: list[str], sizes: set[int], classes: int | None) -> None:
        self.given = given
        self.classes = classes
        self.size = min(sizes - {0}, default=1)
        self.place = {name: place for place, name in enumerate(given)}
        self.text = json.dumps(given)


def _run(
    table: Columns, head: Mapping[Any, Any], dataset: _Dataset, last_step: int, count: int
) -> Run:
    places = sorted(dataset.place[name] for name in head["held_out"])
    held_out = [dataset.given[place] for place in places]
    size = len(held_out) or dataset.size  # a model of all environments stands beside the others
    hparams = {name: _plain(head[HPARAMS + name]) for name in table.hparams}
    identity = {
        **DEFAULTS,
        **{key: head[key] for key in ("dataset", "backbone", "init", "algorithm", "seed", "draw")},
        "variant": {},
        "base": "table",
        "evaluation": "sampled",
        "data_seed": 0,
        "split_seed": 0,
        "given": _GIVEN,
        "hparams": {name: value for name, value in hparams.items() if value is not None},
        "trial": head["seed"],
        "protocol": {1: LOO, 2: "pairs"}.get(size, "multi_test"),
        "fold": "-".join(map(str, places)) or FULL,
        "held_out": held_out,
        "code": FROM_TABLE,
    }
    content = json.dumps(identity, sort_keys=True, default=str).replace(
        json.dumps(_GIVEN), dataset.text
    )
    identity["run"] = hashlib.sha256(content.encode()).hexdigest()[:12]
    identity |= {"given": dataset.given, "n_classes": dataset.classes}
    status, reason = (
        (DONE, "") if head["status"] in _FINISHED else (FAILED, f"status {head['status']}")
    )
    source = f"{table.where}: {head['algorithm']} seed {head['seed']} fold {identity['fold']}"
    if reason:
        table.problems.append(Problem("failed run", source, reason))
    return Run(source, identity, status, reason, last_step, count)


def _rounded(fraction: float) -> float:
    """Convert to percent, without what the division by 100 has left behind the printed digits."""
    return round(100 * fraction, 9)


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return None if value != value else int(value) if value.is_integer() else value
    return value
