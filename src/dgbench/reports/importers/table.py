"""Tables that others wrote: a line for each algorithm, seed and environment, or wide ones.

Columns are found by their names (:data:`ALIASES`) or named by the user; whatever had to be assumed
is said in one line, and what is ambiguous is refused. A line is the error of one model in one
environment:

- ``held_out`` names the environments that the model was never trained on; empty: it was trained on
  all.
- ``role`` is ``held out`` (this environment alone was), ``everywhere`` (a model trained on all
  environments) or ``in distribution`` (see :mod:`.in_distribution`).
- ``fold``: the tested environments of lines with the same fold were held out together; ``full`` is
  trained on all.
- Without these, every line is the error in the one environment that its model never saw.

Fractions that were read stay what they were, bit for bit: ``accuracy`` stands in a column of its
own, as in :mod:`dgbench.reports.importers.domainbed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dgbench.analysis.accuracy import SPREADS
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.importers.columns import ALIASES, Columns
from dgbench.reports.importers.files import ORIGINS, read_files, title_of_files
from dgbench.reports.importers.headers import check_names
from dgbench.reports.importers.in_distribution import names_of, with_marks, without_marked
from dgbench.reports.importers.lines import lines_of, with_errors
from dgbench.reports.importers.runs import collection_of, means_of
from dgbench.reports.importers.spelling import check_spelling
from dgbench.reports.importers.wide import lengthen
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem, printable
from dgbench.validation import shown


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
    rename: Mapping[str, str] | None = None,
    in_distribution: str | Sequence[str] | None = None,
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
        rename: name of an algorithm, environment or dataset -> the one that is meant; itself: it is
            a name of its own, however near another one is.
        in_distribution: environments, or their columns, of images like those of the training; None
            where a column says it, or there are none.

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
    table = read_columns(path, problems, ALIASES, part, origins, rename)
    table.keep(where or {})
    table.drop([ignore] if isinstance(ignore, str) else list(ignore))
    table.find(columns or {})
    if algorithm is not None:
        table.add("algorithm", algorithm)
    inside = names_of(in_distribution)
    lengthen(table, values, inside or ())
    refuse_stated(table, {"dataset": dataset, "backbone": backbone, "init": init}, values)
    names = {"dataset": dataset, "backbone": backbone, "init": init}
    lines = with_errors(table, lines_of(table, names), unit, bar_unit)
    check_spelling(table, lines)
    lines = with_marks(table, lines, inside)
    if "standard_error" in lines and "seed" not in table.column:
        if classes is not None:
            table.assume(
                "a table of means gets no line for a blind guess: import.classes is not used"
            )
        return means_of(table, without_marked(table, lines), seeds, bar)
    if seeds is not None:
        raise ConfigError(
            f"import.seeds={seeds} is for a table of means with error bars, which "
            f"{table.where} is not; leave it out"
        )
    return collection_of(table, lines, classes, unit)


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
    rename: Mapping[str, str] | None = None,
) -> Columns:
    """Read the lines of files, or of a data frame, whose columns are still to be found.

    Args:
        path: a file, a folder of files, several, or a data frame.
        problems: receives what is assumed and left out.
        aliases: what a column may hold -> its usual names.
        part: of a file that holds several tables.
        origins: key -> ``file`` or ``part``, whose name says it, or None.
        rename: name of an algorithm, environment or dataset -> the one that is meant.

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
        table = Columns(frame, source, problems, aliases=aliases, renamed=rename)
    else:
        read = read_files(path, problems, part, named)
        source = printable(shown(path))
        table = Columns(
            read.frame, source, problems, read.place, aliases, title_of_files(path), rename
        )
    if table.frame.empty:
        raise RecordError(f"{source} has no line of values; add some")
    return table


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
