"""Lines of tables of others that hold accuracy in distribution.

A model is tested on images like those that it was trained on, and on others. The first are no
result of domain generalization: they become ``val`` rows of an environment that was not held out,
as validation data of the training environments are in the rows of dgbench. So they never enter an
average over held-out environments, ``selection=train_val`` can choose by them, and
``report=distribution`` sets them against the errors elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from dgbench.errors import ConfigError
from dgbench.reports.importers.cells import HPARAMS, letters, mapped, text_of
from dgbench.reports.importers.columns import Columns
from dgbench.reports.importers.lines import who_of
from dgbench.reports.reading.folders import Problem
from dgbench.validation import shown, some_of

MARK = "in_distribution"  #: column of lines, and key of the import
_YES = {"true", "1", "yes", "in", "id", "iid", "indistribution"}
_NO = {"false", "0", "no", "out", "ood", "outofdistribution"}
#: letters of names of environments that are hardly held out
_SUSPECTS = {
    *("id", "iid", "idtest", "idval", "iidtest", "iidval", "testid", "valid", "indist"),
    *("indistribution", "indistributiontest", "indomain", "source"),
}
_MODEL = ("dataset", "backbone", "init", "algorithm", "seed", "draw")
_FOLD = "fold of the line"
_VALIDATION = "validation"  #: key of the column, and environment of the rows that it makes


def with_marks(table: Columns, lines: pd.DataFrame, named: Collection[str] | None) -> pd.DataFrame:
    """Add a column that marks the lines in distribution.

    Args:
        table: may have a column ``in_distribution``, or a ``role`` that says it.
        lines: with ``environment``.
        named: environments that are in distribution; None: none was named, empty: there is none.

    Raises:
        ConfigError: a named environment is none of the table.
        RecordError: a cell says neither; or the name of an environment sounds as if it were.
    """
    marks = np.zeros(len(lines), dtype=bool)
    if MARK in table.column:
        cells = mapped(table.frame[table.column[MARK]].map(text_of), letters)
        unknown = ~cells.isin(_YES | _NO)
        table.refuse(unknown, MARK, "neither true nor false", "write true or false")
        marks |= cells[lines.index].isin(_YES).to_numpy()
    if "role" in table.column:
        roles = mapped(table.frame[table.column["role"]].map(text_of), letters)
        marks |= (roles[lines.index] == letters(MARK)).to_numpy()
    if named is not None:
        marks |= _named(table, lines, named)
    elif not marks.any():
        _ask(table, lines)
    return lines.assign(**{MARK: marks})


def _named(table: Columns, lines: pd.DataFrame, named: Collection[str]) -> pd.Series[bool]:
    present = lines["environment"].unique().tolist()
    for name in named:
        if name not in present:
            raise ConfigError(
                f"import.in_distribution={shown(list(named))} names {name}, which is no "
                f"environment of {table.where}; they are {some_of(present, 12)}"
            )
    return lines["environment"].isin(list(named))


def _ask(table: Columns, lines: pd.DataFrame) -> None:
    """Ask about an environment that is called as if it were in distribution.

    Raises:
        RecordError: there is one.
    """
    present = lines["environment"].unique().tolist()
    suspects = [name for name in present if letters(name) in _SUSPECTS]
    if suspects and len(suspects) < len(present):
        raise table.refusal(
            f"environment {some_of(suspects, 4)} may be in distribution, and would count as held "
            "out",
            f"say import.in_distribution={shown(suspects)}, or [] where it was held out",
        )


def without_marked(table: Columns, lines: pd.DataFrame) -> pd.DataFrame:
    """Leave out lines in distribution, of a table of means that has no place for them."""
    inside = lines[MARK].to_numpy()
    if inside.any():
        text = f"{inside.sum()} in distribution, e.g. of {who_of(lines[inside])}"
        table.problems.append(Problem("lines left out", table.where, text))
    return lines[~inside].drop(columns=MARK)


def attached(
    table: Columns, outside: pd.DataFrame, inside: pd.DataFrame, unit: str | None
) -> pd.DataFrame:
    """Join lines in distribution to the models whose errors elsewhere are known.

    A line whose environment is held out by a model of the table is of that model alone, as
    TableShift writes it; any other is of every model of its algorithm and seed, as ImageNet beside
    its variants. Columns ``held_out`` and ``fold`` say it themselves.

    Args:
        table: that was read.
        outside: lines with ``held_out`` and ``unseen``.
        inside: lines in distribution.
        unit: of a column ``validation``, as of :func:`~.table.read_table`.

    Returns:
        both, ``inside`` as ``val`` lines, one for each model.
    """
    parts = [outside]
    if len(inside):
        parts.append(_joined(table, outside, inside))
    if _VALIDATION in table.column:
        parts.append(_validated(table, outside, unit))
    if len(parts) == 1:
        return outside
    return pd.concat(parts, ignore_index=False)


def _model_columns(table: Columns) -> list[str]:
    return [*_MODEL, *(HPARAMS + name for name in table.hparams)]


def _joined(table: Columns, outside: pd.DataFrame, inside: pd.DataFrame) -> pd.DataFrame:
    model = _model_columns(table)
    tested = outside[outside["held_out"].map(len) > 0]
    column = next((key for key in ("held_out", "fold") if key in table.column), None)
    if column is None:
        pairs = set(zip(tested["dataset"], tested["environment"], strict=True))
        places = zip(inside["dataset"], inside["environment"], strict=True)
        own_fold = np.array([place in pairs for place in places], dtype=bool)
        fold_of = tested["environment"]
        fold_of_inside = inside["environment"]
    else:
        own_fold = np.ones(len(inside), dtype=bool)
        cells = table.frame[table.column[column]].map(text_of)
        fold_of = cells[tested.index]
        fold_of_inside = cells[inside.index]
    folds = tested.assign(**{_FOLD: fold_of})[[*model, _FOLD, "held_out"]]
    lines = inside.assign(**{_FOLD: fold_of_inside}, line=inside.index)
    of_one = lines[own_fold].merge(folds.drop_duplicates(), on=[*model, _FOLD])
    models = folds.drop(columns=_FOLD).drop_duplicates()
    of_all = lines[~own_fold].merge(models, on=model)
    joined = pd.concat([of_one, of_all])
    alone = ~inside.index.isin(joined["line"])
    if alone.any():
        text = (
            f"{alone.sum()} in distribution, e.g. of {who_of(inside[alone])}: their models have "
            "no errors elsewhere"
        )
        table.problems.append(Problem("lines left out", table.where, text))
    environments = sorted(set(inside["environment"]))
    table.assume(
        f"in distribution, and in no average: {len(inside)} lines of {some_of(environments, 4)}"
    )
    held_out_too = set(tested["environment"])
    names = joined["environment"].map(
        lambda name: f"{name}, in distribution" if name in held_out_too else name
    )
    joined = joined.assign(environment=names, subset="val", unseen=False)
    return joined.set_index("line")[[*outside.columns]].rename_axis(None)


def _validated(table: Columns, outside: pd.DataFrame, unit: str | None) -> pd.DataFrame:
    """Make a ``val`` line of each model and step from a column of its accuracy in distribution."""
    accuracy = table.fractions(_VALIDATION, unit)[outside.index]
    lines = outside.assign(accuracy=accuracy)[~np.isnan(accuracy)]
    lines = lines[(lines["subset"] == "test") & lines["unseen"]]
    lines = lines.assign(
        environment=_VALIDATION,
        subset="val",
        unseen=False,
        wrong=(1 - lines["accuracy"]) * lines["seen"],
    )
    return lines.drop_duplicates([*_model_columns(table), "held_out", "step", "accuracy"])


def names_of(names: str | Sequence[str] | None) -> list[str] | None:
    """Make the value of the key ``in_distribution`` a list, or None."""
    if names is None:
        return None
    return [names] if isinstance(names, str) else [str(name) for name in names]
