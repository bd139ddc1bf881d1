"""What every line of a table of others says: model, environment, error, what was held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dgbench.records.rows import SUBSETS
from dgbench.reports.importers import UNKNOWN
from dgbench.reports.importers.cells import (
    HPARAMS,
    is_text,
    letters,
    listed,
    mapped,
    parsed,
    text_of,
)
from dgbench.reports.importers.columns import Columns
from dgbench.reports.reading.folders import Problem
from dgbench.validation import some_of

_EVERYWHERE = {"everywhere", "full", "all", "allenvironments"}
_SUBSETS = {
    **{name: name for name in SUBSETS},
    "validation": "val",
    "valid": "val",
    "training": "train",
}
_NUMBER = r"\s*[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?\s*"


def lines_of(table: Columns, named: Mapping[str, str | None]) -> pd.DataFrame:
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
    if table.column["environment"] == table.column.get("held_out"):
        lines["environment"] = mapped(
            lines["environment"], lambda cell: cell if len(listed(cell)) != 1 else min(listed(cell))
        )
        ambiguous = mapped(lines["environment"], lambda cell: len(listed(cell)) != 1)
        table.refuse(
            ambiguous,
            "environment",
            "not one environment",
            "add a column environment that says where each line was tested",
        )
    defaults = {"dataset": table.title, "backbone": UNKNOWN, "init": UNKNOWN}
    for key, value in named.items():
        lines[key] = table.names(key) if key in table.column else value or defaults[key]
    if named["dataset"] is None:
        _say_dataset(table)
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
    _say_columns(table)
    _say_dataset(table)
    return counted.assign(
        seen=counted["n"],
        accuracy=1 - counted["wrong"] / counted["n"],
        backbone=UNKNOWN,
        init=UNKNOWN,
        step=0,
        draw=0,
        subset="test",
        status="done",
    )


def _say_dataset(table: Columns) -> None:
    """Record what the dataset is called where no column says it."""
    if "dataset" not in table.column:
        called = f"no column is the dataset: called {table.title}"
        table.assume(f"{called}; name it with import.dataset=NAME")


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


def _numbers_or_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Convert numbers with a decimal comma, as in files of semicolons."""
    if not is_text(column) or not column.dropna().astype(str).str.fullmatch(_NUMBER).all():
        return column
    return pd.Series(parsed(column), column.index)


def with_errors(
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
        if count is not None and len(np.unique(count)) > 1:
            table.assume(
                f"{table.column['n']} (images) is not used as a weight: averages weigh "
                "environments the same; a measure of class WeightedAverage weighs them"
            )
        lines = lines.assign(wrong=error * images, seen=images, accuracy=accuracy)
        bars = table.bars(keys[0], bar_unit)
        if bars is not None:
            lines["standard_error"] = bars
    return without(table, lines, lines["wrong"].isna(), "they have no value")


def with_held_out(table: Columns, lines: pd.DataFrame) -> pd.DataFrame:
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
        lines = without(
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
            unknown = ~everywhere & ~held_out_role & mapped(cells, _is_not_in_distribution)
            table.refuse(unknown, key, "no role", "write held out, everywhere or in distribution")
        cells, everywhere = cells[lines.index], everywhere[lines.index]
        if key == "held_out":
            held_out = mapped(cells, lambda cell: _held_out_of(table, cell))
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
    return without(
        table,
        lines,
        trained_on,
        "their models were trained on the environment that they are tested in",
    )


def _held_out_of(table: Columns, cell: str) -> tuple[str, ...]:
    """List the environments that a cell names as held out, by the alphabet."""
    return tuple(sorted({table.renamed.get(name, name) for name in listed(cell)}))


def _is_not_in_distribution(cell: str) -> bool:
    return letters(cell) != "indistribution"


def without(table: Columns, lines: pd.DataFrame, bad: pd.Series[bool], reason: str) -> pd.DataFrame:
    if bad.all():
        raise table.refusal(f"no line can be used: {reason}", "see import.columns.held_out")
    if bad.any():
        count = int(bad.sum())
        left_out = f"{count} line{'s' if count > 1 else ''}, e.g. of {who_of(lines[bad])}: {reason}"
        table.problems.append(Problem("lines left out", table.where, left_out))
    return lines[~bad]


def who_of(lines: pd.DataFrame) -> str:
    """Name the model and environment of the first line."""
    first = lines.iloc[0]
    return f"{first['algorithm']} seed {first['seed']} in {first['environment']}"
