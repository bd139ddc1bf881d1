"""Tables that others wrote: a line for each algorithm, seed and environment, or wide ones.

Columns are found by their names (:data:`ALIASES`) or named by the user; whatever had to be assumed
is said in one line, and what is ambiguous is refused. A line is the error of one model in one
environment:

- ``held_out`` names the environments that the model was never trained on; empty: it was trained on
  all.
- ``role`` is ``held out`` (this environment alone was) or ``everywhere`` (a model trained on all
  environments).
- ``fold``: the tested environments of lines with the same fold were held out together; ``full`` is
  trained on all.
- Without these, every line is the error in the one environment that its model never saw.

Fractions that were read stay what they were, bit for bit: ``accuracy`` stands in a column of its
own, as in :mod:`dgbench.reports.importers.domainbed`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.accuracy import SPREADS
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.folds import FULL, LOO
from dgbench.plan.names import our_name
from dgbench.records.rows import DEFAULTS, SUBSETS
from dgbench.records.status import DONE, FAILED
from dgbench.reports.importers import IMPORTED
from dgbench.reports.importers.cells import (
    HPARAMS,
    is_text,
    letters,
    listed,
    mapped,
    parsed,
    text_of,
)
from dgbench.reports.importers.columns import ALIASES, Columns
from dgbench.reports.importers.files import ORIGINS, read_files
from dgbench.reports.importers.headers import check_names
from dgbench.reports.importers.wide import lengthen
from dgbench.reports.labels import slug
from dgbench.reports.published import Published, Value
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem, printable
from dgbench.reports.reading.row_files import Run
from dgbench.validation import shown, some_of

_FINISHED = {"finished", "done", "completed", "success"}
_EVERYWHERE = {"everywhere", "full", "all", "allenvironments"}
_SUBSETS = {
    **{name: name for name in SUBSETS},
    "validation": "val",
    "valid": "val",
    "training": "train",
}
#: what is not said of the models of a table is called so
_UNNAMED = {"dataset": "table", "backbone": "unknown", "init": "unknown"}
#: what papers put behind a name to tell it from another: a dagger, an asterisk, a prime
_MARKS_OF_NAMES = re.compile(r"[^\w\s.()+-]")
_NUMBER = r"\s*[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?\s*"
_STATED = ("algorithm", "environment", "accuracy", "standard_error")


def read_table(
    path: Any,
    columns: Mapping[str, Any] | None = None,
    unit: str | None = None,
    values: str | None = None,
    algorithm: str | None = None,
    dataset: str | None = None,
    backbone: str | None = None,
    init: str | None = None,
    seeds: int | None = None,
    bar: str = "standard_error",
    classes: int | None = None,
    bar_unit: str | None = None,
    ignore: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    part: Any = None,
    algorithm_from: str | None = None,
    environment_from: str | None = None,
    dataset_from: str | None = None,
) -> Collection:
    """Read errors or accuracies of trained models from a table.

    Args:
        path: a file, a folder of files, several, or a data frame.
        columns: key of :data:`ALIASES`, or ``hparams.NAME`` -> name of the column that holds it;
            None: no column does. ``environment`` may be a list of columns, one for each
            environment.
        unit: ``percent`` or ``fraction``; None tells it by all values together.
        values: what columns of environments hold, ``error`` or ``accuracy`` (None).
        algorithm: what trained all models, where no column says it.
        dataset, backbone, init: what they are called where no column says it.
        seeds: behind every mean of a table of means ± error bars; None where it is not known.
        bar: what the error bars are, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
        classes: number of classes of the dataset, for what a blind guess achieves; None where it is
            not known.
        bar_unit: of the error bars, ``percent`` or ``fraction``; None: as they tell it.
        ignore: columns that are not read.
        where: column -> value, or several, of the lines that are read.
        part: sheet of a workbook, or ``tabular`` of a LaTeX file, by name or number; or a list.
        algorithm_from, environment_from, dataset_from: ``file`` or ``part``, whose name says it.

    Raises:
        ConfigError: an argument is unknown, or names what the table does not have.
        RecordError: there is no table, or a column or value of it cannot be used.
    """
    units = ("percent", "fraction")
    origins = {
        "algorithm": algorithm_from,
        "environment": environment_from,
        "dataset": dataset_from,
    }
    _check_choices(
        {
            "unit": (unit, units),
            "values": (values, ("error", "accuracy")),
            "bar": (bar, tuple(SPREADS)),
            "bar_unit": (bar_unit, units),
        }
    )
    _check_number("seeds", seeds)
    _check_number("classes", classes)
    problems: list[Problem] = []
    table = read_columns(path, problems, ALIASES, part, origins)
    table.keep(where or {})
    table.drop([ignore] if isinstance(ignore, str) else list(ignore))
    table.find(columns or {})
    if algorithm is not None:
        table.add("algorithm", algorithm)
    lengthen(table, values)
    refuse_stated(table, {"dataset": dataset, "backbone": backbone, "init": init}, values)
    names = {"dataset": dataset, "backbone": backbone, "init": init}
    lines = _with_errors(table, _lines(table, names), unit, bar_unit)
    if "standard_error" in lines and "seed" not in table.column:
        if classes is not None:
            table.assume(
                "a table of means gets no line for a blind guess: import.classes is not used"
            )
        return _stated(table, lines, seeds, bar)
    if seeds is not None:
        raise ConfigError(
            f"import.seeds={seeds} is of a table of means with error bars, and {table.where} is "
            "none; leave it out"
        )
    return collection_of(table, lines, classes)


def _check_choices(choices_of: Mapping[str, tuple[Any, Sequence[str]]]) -> None:
    for key, (value, choices) in choices_of.items():
        if value not in (None, *choices):
            raise ConfigError(
                f"import.{key}={shown(value)} is unknown; choose {' or '.join(choices)}"
            )


def _check_number(key: str, number: Any) -> None:
    """Refuse a number of seeds or classes below 2.

    Raises:
        ConfigError: it is one.
    """
    if number is not None and not (type(number) is int and number > 1):
        raise ConfigError(
            f"import.{key}={shown(number)} is no number of {key} from 2 on; give one, or null"
        )


def read_columns(
    path: Any,
    problems: list[Problem],
    aliases: Mapping[str, str],
    part: Any = None,
    origins: Mapping[str, str | None] | None = None,
) -> Columns:
    """Read the lines of files, or of a data frame, whose columns are still to be found.

    Args:
        path: a file, a folder of files, several, or a data frame.
        problems: receives what is assumed and left out.
        aliases: what a column may hold -> its usual names.
        part: of a file that holds several tables.
        origins: key -> ``file`` or ``part``, whose name says it, or None.

    Raises:
        RecordError: there is no line of values, or it cannot be read.
        ConfigError: an origin is unknown; or a data frame has none.
    """
    _check_choices({f"{key}_from": (origin, ORIGINS) for key, origin in (origins or {}).items()})
    named = {key: origin for key, origin in (origins or {}).items() if origin is not None}
    if isinstance(path, pd.DataFrame):
        for key in named:
            raise ConfigError(
                f"import.{key}_from names a file, and this is a data frame; leave it out"
            )
        frame = path.reset_index(drop=True)
        if isinstance(frame.columns, pd.MultiIndex):
            levels = [" ".join(map(str, column)).strip() for column in frame.columns]
            frame = frame.set_axis(levels, axis=1)
        source = "the data frame"
        check_names(list(frame.columns), source)
        table = Columns(frame, source, problems, aliases=aliases)
    else:
        read = read_files(path, problems, part, named)
        source = printable(shown(path))
        table = Columns(read.frame, source, problems, read.place, aliases)
    if table.frame.empty:
        raise RecordError(f"{source} has no line of values; add some")
    return table


def collection_of(table: Columns, lines: pd.DataFrame, classes: int | None) -> Collection:
    """Collect the runs and rows of lines with ``wrong``, ``seen`` and ``accuracy``.

    Raises:
        ConfigError: a number of classes is stated for several datasets.
        RecordError: no line can be used, or two contradict one another.
    """
    if classes is not None and lines["dataset"].nunique() > 1:
        named = ", ".join(map(str, lines["dataset"].unique()))
        raise ConfigError(
            f"import.classes={classes} is of one dataset, the table holds {named}; leave it null"
        )
    return _collected(table, _with_held_out(table, lines), classes)


def refuse_stated(table: Columns, named: Mapping[str, str | None], values: str | None) -> None:
    """Refuse what was stated of a table and is not read, since the table says it itself.

    Args:
        table: whose columns are known.
        named: key -> what all lines are to be called; None where nothing was stated.
        values: as of :func:`read_table`.

    Raises:
        ConfigError: for the first of them.
    """
    for key, name in named.items():
        if name is not None and key in table.column:
            raise ConfigError(
                f"import.{key}={name}, but {table.where} has a column {table.column[key]}; leave "
                "one out"
            )
    if values is not None and not table.wide:
        raise ConfigError(
            f"import.values={values} says what columns of environments hold, and {table.where} "
            "has a line for each; leave it out, or name the column with "
            f"import.columns.{values}=COLUMN"
        )


def _lines(table: Columns, named: Mapping[str, str | None]) -> pd.DataFrame:
    """Collect what every line says of its model, checked, in columns that are called by their keys.

    Args:
        named: key -> value where no column says it; None: it is not known.

    Raises:
        RecordError: a column is missing, or a value is none.
    """
    _say_columns(table)
    lines = pd.DataFrame(
        {"algorithm": table.names("algorithm"), "environment": table.names("environment")}
    )
    lines["algorithm"] = lines["algorithm"].map(
        _our_names(table, lines["algorithm"].unique().tolist())
    )
    if table.column["environment"] == table.column.get("held_out"):
        lines["environment"] = mapped(
            lines["environment"], lambda cell: cell if len(listed(cell)) != 1 else min(listed(cell))
        )
        ambiguous = mapped(lines["environment"], lambda cell: len(listed(cell)) != 1)
        table.refuse(
            ambiguous,
            "environment",
            "not one environment",
            "say with a column environment where each line is tested",
        )
    for key, value in named.items():
        lines[key] = table.names(key) if key in table.column else value or _UNNAMED[key]
    if "dataset" not in table.column and named["dataset"] is None:
        table.assume("no column is the dataset: called table; name it with import.dataset=NAME")
    for key in ("seed", "step", "draw"):
        lines[key] = table.whole(key) if key in table.column else 0
    lines["subset"] = "test"
    if "subset" in table.column:
        lines["subset"] = table.names("subset").str.lower().map(_SUBSETS)
        table.refuse(
            lines["subset"].isna(), "subset", f"none of {', '.join(SUBSETS)}", "drop those lines"
        )
    for name, column in table.hparams.items():
        lines[HPARAMS + name] = _numbers_or_text(table.frame[column])
    lines["status"] = table.names("status").str.lower() if "status" in table.column else "done"
    return lines


def lines_of_counts(table: Columns, counted: pd.DataFrame) -> pd.DataFrame:
    """Make lines of what was counted.

    Args:
        table: what was counted.
        counted: columns ``dataset``, ``algorithm``, ``seed``, ``environment``, ``n`` and ``wrong``.
    """
    names = _our_names(table, counted["algorithm"].unique().tolist())
    _say_columns(table)
    if "dataset" not in table.column:
        table.assume("no column is the dataset: called table; name it with import.dataset=NAME")
    return counted.assign(
        algorithm=counted["algorithm"].map(names),
        seen=counted["n"],
        accuracy=1 - counted["wrong"] / counted["n"],
        backbone=_UNNAMED["backbone"],
        init=_UNNAMED["init"],
        step=0,
        draw=0,
        subset="test",
        status="done",
    )


def _say_columns(table: Columns) -> None:
    """Record which column was taken for what, and which are not used."""
    columns = [name for name in table.column.values() if not isinstance(name, list)]
    matched = [
        f"{key} from {name}"
        for key, name in table.column.items()
        if key != name and not isinstance(name, list)
    ]
    used = {*columns, *table.hparams.values()}
    unused = [str(name) for name in table.frame if name not in used]
    unused = [name for name in unused if not name.startswith("Unnamed: ")]
    parts = [", ".join(matched), f"not used: {some_of(unused, 6)}" if unused else ""]
    if matched or unused:
        table.assume("; ".join(filter(None, parts)))


def _our_names(table: Columns, names: Sequence[str]) -> dict[str, str]:
    """Map the names of algorithms to ours; those that the source tells apart stay apart.

    ``ERM`` and ``ERM†`` become erm and erm†; ``Group DRO`` and ``GroupDRO`` stay what they are.
    """
    ours = {name: our_name(name) for name in names}
    sharing: dict[str, list[str]] = {}
    for name, our in ours.items():
        sharing.setdefault(our, []).append(name)
    for our, group in sharing.items():
        if len(group) < 2:
            continue
        marked = {name: our + "".join(_MARKS_OF_NAMES.findall(name)) for name in group}
        distinct = len(set(marked.values())) == len(group)
        ours |= marked if distinct else {name: name for name in group}
        listed_names = ", ".join(f"{name} as {ours[name]}" for name in group)
        table.assume(f"{len(group)} algorithms, as the table tells them apart: {listed_names}")
    return ours


def _numbers_or_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Convert numbers with a decimal comma, as in files of semicolons."""
    if not is_text(column) or not column.dropna().astype(str).str.fullmatch(_NUMBER).all():
        return column
    return pd.Series(parsed(column), column.index)


def _with_errors(
    table: Columns, lines: pd.DataFrame, unit: str | None, bar_unit: str | None
) -> pd.DataFrame:
    """Select the lines that have an error, with ``wrong``, ``seen`` and ``accuracy``.

    Raises:
        RecordError: no column is one, or a value is none.
    """
    count = table.whole("n") if "n" in table.column else None
    if count is not None:
        table.refuse(count < 1, "n", "no number of images", "give one of 1 or more")
    if "wrong" in table.column and count is not None:
        wrong = table.counts("wrong")
        table.refuse((wrong < 0) | (wrong > count), "wrong", "not between 0 and n", "correct it")
        lines = lines.assign(wrong=wrong, seen=count, accuracy=1 - wrong / count)
    else:
        keys = [key for key in ("accuracy", "error") if key in table.column]
        if len(keys) > 1:
            fix = "leave one out, e.g. import.columns.error=null"
            raise table.refusal("columns accuracy and error may each be the result", fix)
        if not keys:
            raise table.missing("n" if "wrong" in table.column else "accuracy")
        values = table.fractions(keys[0], unit)
        accuracy = 1 - values if keys[0] == "error" else values
        error = values if keys[0] == "error" else 1 - values
        images = 1 if count is None else count
        lines = lines.assign(wrong=error * images, seen=images, accuracy=accuracy)
        bars = table.bars(keys[0], bar_unit)
        if bars is not None:
            lines["standard_error"] = bars
    return _without(table, lines, lines["wrong"].isna(), "they have no value")


def _with_held_out(table: Columns, lines: pd.DataFrame) -> pd.DataFrame:
    """Select the usable lines, with ``held_out`` and ``unseen``.

    ``held_out`` holds sorted names; ``unseen`` says whether the environment is among them.

    Raises:
        RecordError: no model is tested in an environment that it never saw.
    """
    names = {name: index for index, name in enumerate(lines["environment"].unique())}
    key = next((key for key in ("held_out", "role", "fold") if key in table.column), None)
    alone = lines["environment"].map({name: (name,) for name in names})
    if key is None:
        table.assume(
            "every line is the error in the one environment that its model never saw "
            "(leave-one-out)"
        )
        lines = _without(
            table,
            lines,
            lines["subset"] != "test",
            "no column held_out says of which model they are",
        )
        held_out = alone
    else:
        cells = table.frame[table.column[key]].map(text_of)
        everywhere = mapped(cells, lambda cell: letters(cell) in _EVERYWHERE)
        if key == "role":
            held_out_role = mapped(cells, lambda cell: letters(cell) == "heldout")
            table.refuse(
                ~everywhere & ~held_out_role, key, "no role", "write held out or everywhere"
            )
        cells, everywhere = cells[lines.index], everywhere[lines.index]
        if key == "held_out":
            held_out = mapped(cells, lambda cell: tuple(sorted(listed(cell))))
        elif key == "role":
            held_out = alone
        else:
            table.assume(
                "environments that are tested in one fold were never trained on by its models"
            )
            folds = lines["dataset"] + "\0" + cells
            tested = lines[lines["subset"] == "test"].groupby(folds)["environment"].unique()
            held_out = folds.map(
                {fold: tuple(sorted(environments)) for fold, environments in tested.items()}
            )
        held_out = held_out.mask(everywhere, pd.Series([()] * len(lines), lines.index))
    codes, values = held_out.factorize()
    places = lines["environment"].map(names).to_numpy()
    inside = [set(map(names.get, group)) for group in values]
    unseen = [
        place in inside[code] for code, place in zip(codes.tolist(), places.tolist(), strict=True)
    ]
    lines = lines.assign(held_out=held_out, unseen=np.array(unseen, dtype=bool))
    trained_on = (lines["subset"] == "test") & ~lines["unseen"] & (held_out.map(len) > 0)
    return _without(
        table,
        lines,
        trained_on,
        "their models were trained on the environment that they are tested in",
    )


def _without(
    table: Columns, lines: pd.DataFrame, bad: pd.Series[bool], reason: str
) -> pd.DataFrame:
    if bad.all():
        raise table.refusal(f"no line can be used: {reason}", "see import.columns.held_out")
    if bad.any():
        count = int(bad.sum())
        left_out = f"{count} line{'s' if count > 1 else ''}, e.g. of {_who(lines[bad])}: {reason}"
        table.problems.append(Problem("lines left out", table.where, left_out))
    return lines[~bad]


def _stated(table: Columns, lines: pd.DataFrame, seeds: int | None, bar: str) -> Collection:
    """Collect means with error bars, which have no seeds, as tables like those of papers."""
    papers = []
    repeated = lines.duplicated(["dataset", "algorithm", "environment"])
    if repeated.any():
        place = table.place(lines.index[repeated.to_numpy()][0])
        raise table.refusal(
            f"a mean is there twice, again in {place} ({_who(lines[repeated])})",
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
    lines = _without(table, lines, repeated, "the same line stands before")
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
    return Collection(runs, rows, table.problems, [], selected_elsewhere="step" not in table.column)


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
        f"another value ({_who(lines.loc[[row]])})",
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


#: stands for the list of environments, which thousands of runs share, while one is formatted
_GIVEN = "\0given\0"


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
        "code": f"{IMPORTED} from a table",
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


def _who(lines: pd.DataFrame) -> str:
    first = lines.iloc[0]
    return f"{first['algorithm']} seed {first['seed']} in {first['environment']}"


def _rounded(fraction: float) -> float:
    """Convert to percent, without what the division by 100 has left behind the printed digits."""
    return round(100 * fraction, 9)


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return None if value != value else int(value) if value.is_integer() else value
    return value
