"""What each column of a table of others holds, and the values of its cells.

Columns are found by their names (:data:`ALIASES`) or named by the user; whatever had to be assumed
is said in one line; what is ambiguous is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.errors import ConfigError, RecordError
from dgbench.records.checks import LARGEST_COUNT, LONGEST
from dgbench.reports.importers.cells import (
    HPARAMS,
    NOTHING,
    Floats,
    counts,
    has_decimal_comma,
    is_text,
    letters,
    parsed,
    text_of,
    two_readings,
)
from dgbench.reports.reading.folders import ASSUMED, Problem, printable
from dgbench.validation import shown, some_of

#: what a column holds -> letters and digits of its usual names; those behind | count where none of
#: the first is there
ALIASES = {
    "algorithm": "algorithm | algo alg method model approach estimator",
    "seed": "seed trialseed | trial run repetition rep replicate randomseed",
    "environment": "environment env domain",
    "held_out": (
        "heldout testenv testenvs testdomain testdomains testenvironment target targetdomain ted"
    ),
    "role": "role",
    "in_distribution": "indistribution isindistribution isid",
    "validation": "validation",
    "fold": "fold",
    "error": "error | err testerror testerr errorrate",
    "accuracy": "accuracy | acc testacc testaccuracy accavg top1 top1acc acc1",
    "wrong": "wrong | misclassified nwrong",
    "n": "n | seen images nimages ntest count total",
    "standard_error": "standarderror | stderr se sem",
    "dataset": "dataset | benchmark",
    "subset": "subset split",
    "step": "step | steps iteration epoch",
    "draw": "draw hparamsseed paramindex",
    "backbone": "backbone | network arch architecture",
    "init": "init | pretraining weights",
    "status": "status state",
}
#: 10 points, or 0.1 in percent: the smallest of printed bars is of this size, seldom a larger one
_LARGE_BAR = 0.1
#: keys of columns whose names may be spelled in several ways
NAMED = ("dataset", "algorithm", "environment")
AUTO = "auto"  #: of a key: its column is found by its usual names
_DOMAINBED = re.compile(r"env\d+_(in|out)(_acc)?")
_NAMELESS = "Unnamed: "  #: what a column without a name is called


class Columns:
    """A table and what its columns hold.

    Args:
        frame: as it was read.
        source: what it is called in messages.
        problems: receives what is assumed and left out.
        place: says where a row of the frame stands; None counts the rows.
        aliases: what a column may hold -> its usual names, as :data:`ALIASES`.
        title: what its dataset is called where nothing says it.
        renamed: name of a dataset, algorithm or environment -> the one that is meant.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        source: str,
        problems: list[Problem],
        place: Callable[[int], str] | None = None,
        aliases: Mapping[str, str] = ALIASES,
        title: str = "table",
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self.frame = frame
        self.where = source
        self.problems = problems
        self.aliases = aliases
        self.title = title
        self.renamed = {str(name): str(meant) for name, meant in (renamed or {}).items()}
        self.spelled: set[str] = set()  #: names of datasets, algorithms and environments, as read
        self.wide = False  #: each environment had a column
        self.unit = ""  #: of the values, once they were read
        self.height = len(frame)  #: lines, as they are counted in messages
        self.column: dict[str, Any] = {}  #: key of :data:`ALIASES` -> column
        self.hparams: dict[str, Any] = {
            str(name).removeprefix(HPARAMS): name for name in frame if str(name).startswith(HPARAMS)
        }
        self._place = place

    def place(self, row: int) -> str:
        """Say where a row stands, also after each line became one for each environment."""
        line = int(row) % self.height
        return self._place(line) if self._place else f"line {line + 1} of the values"

    def assume(self, text: str) -> None:
        """Record an assumption that a reader must know."""
        self.problems.append(Problem(ASSUMED, self.where, text))

    def refusal(self, fault: str, fix: str) -> RecordError:
        """Build the error that names this table."""
        return RecordError(f"{self.where}: {fault}; {fix}")

    def find(self, typed: Mapping[str, Any]) -> None:
        """Find the column of every key.

        Raises:
            ConfigError: a typed one is not there.
            RecordError: several may be meant.
        """
        if any(_DOMAINBED.fullmatch(str(name)) for name in self.frame):
            raise self.refusal(
                "it holds records of DomainBed", "use import=domainbed import.path=DIR"
            )
        typed = {key: column for key, column in typed.items() if column != AUTO}
        for name, column in {**(typed.pop("hparams", None) or {})}.items():
            typed[f"{HPARAMS}{name}"] = column
        for key, column in typed.items():
            self._check_typed(key, column)
            if key.startswith(HPARAMS):
                self.hparams[key.removeprefix(HPARAMS)] = column
            elif column is not None:
                self.column[key] = column
        named = [*self.column.values(), *self.hparams.values()]
        free = {name: letters(name) for name in self.frame if name not in named}
        for key in self.aliases:
            if key not in typed:
                self._find_usual(key, free)
        if "algorithm" not in self.column and "algorithm" not in typed:
            self._find_nameless()

    def _check_typed(self, key: str, column: Any) -> None:
        """Refuse a key or a column that is not there.

        Raises:
            ConfigError: it is not.
        """
        if key not in self.aliases and not key.startswith(HPARAMS):
            raise ConfigError(
                f"import.columns.{key} is unknown; choose {', '.join(self.aliases)} or "
                f"{HPARAMS}NAME"
            )
        for name in column if isinstance(column, (list, tuple)) else [column]:
            if name is not None and name not in self.frame:
                present = some_of([str(name) for name in self.frame], 12)
                raise ConfigError(
                    f"import.columns.{key}={shown(column)} is no column; the columns are {present}"
                )

    def _find_usual(self, key: str, free: Mapping[Any, str]) -> None:
        """Find the column of a key by its usual names.

        Raises:
            RecordError: several may be meant.
        """
        for usual in self.aliases[key].split("|"):
            matches = [name for name, plain in free.items() if plain in usual.split()]
            if len(matches) > 1:
                raise self.refusal(
                    f"columns {' and '.join(map(str, matches))} may each be the {key}",
                    f"choose with import.columns.{key}={matches[0]}, or rename one",
                )
            if matches:
                self.column[key] = matches[0]
                return

    def _find_nameless(self) -> None:
        """Take the one column without a name, if it holds words, for the algorithm."""
        unnamed = [name for name in self.frame if str(name).startswith(_NAMELESS)]
        if len(unnamed) != 1 or not self._holds_words(unnamed[0]):
            return
        self.column["algorithm"] = unnamed[0]
        self.assume("algorithm from the column without a name")

    def _holds_words(self, name: Any) -> bool:
        cells = self.frame[name].dropna()
        return len(cells) > 0 and bool(np.isnan(parsed(cells)).all())

    def holds_numbers(self, name: Any) -> bool:
        """Return whether any cell of a column is a number."""
        return not np.isnan(parsed(self.frame[name])).all()

    def add(self, key: str, name: str) -> None:
        """Add a column for a key that no column holds, with ``name`` in every line.

        Raises:
            ConfigError: a column holds it.
        """
        if key in self.column and self.column[key] in self.frame:
            raise ConfigError(
                f"import.{key}={name}, but {self.where} has a column {self.column[key]}; leave "
                "one out"
            )
        self.frame = self.frame.assign(**{key: name})
        self.column[key] = key

    def drop(self, ignored: Sequence[Any]) -> None:
        """Drop the columns that the user does not want to be read.

        Raises:
            ConfigError: one is no column.
        """
        for name in ignored:
            if name not in self.frame:
                present = some_of([str(name) for name in self.frame], 12)
                raise ConfigError(
                    f"import.ignore={shown(list(ignored))} names {name}, which is no column; the "
                    f"columns are {present}"
                )
        if ignored:
            self.frame = self.frame.drop(columns=list(ignored))
            self.assume(f"not read: {some_of([str(name) for name in ignored], 12)}")

    def keep(self, wanted: Mapping[str, Any]) -> None:
        """Keep the lines that hold these values; name how many are left out.

        Args:
            wanted: column -> value, or several.

        Raises:
            ConfigError: one is no column, or no line holds the value.
        """
        for name, value in wanted.items():
            if name not in self.frame:
                present = some_of([str(column) for column in self.frame], 12)
                raise ConfigError(
                    f"import.where={shown(wanted)} names {name}, which is no column; the columns "
                    f"are {present}"
                )
            values = value if isinstance(value, (list, tuple)) else [value]
            texts = {text_of(one).lower() for one in values}
            cells = self.frame[name].map(text_of).str.lower()
            held = cells.isin(texts)
            if not held.any():
                present = some_of(sorted(cells.unique()), 6)
                raise ConfigError(
                    f"import.where={shown(wanted)} leaves no line; {name} holds {present}"
                )
            self._keep_rows(held.to_numpy())
            left_out = f"{(~held).sum()} of {len(held)} lines, where {name} is not {shown(value)}"
            self.problems.append(Problem("lines left out", self.where, left_out))

    def _keep_rows(self, held: NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(held)
        self.frame = self.frame[held].reset_index(drop=True)
        self.height = len(rows)
        places = self._place or (lambda line: f"line {line + 1} of the values")
        self._place = lambda line: places(int(rows[line]))

    def missing(self, key: str) -> RecordError:
        """Build the error of a key that no column holds."""
        present = some_of([str(name) for name in self.frame], 12)
        fix = f"name it with import.columns.{key}=COLUMN, or rename it {key}"
        if key == "algorithm":
            fix += ", or say what trained all models with import.algorithm=NAME"
        if key == "environment":
            fix += ", or, if each file is of one, import.environment_from=file"
        return self.refusal(f"no column is the {key} (there are {present})", fix)

    def refuse(self, bad: Any, key: str, fault: str, fix: str) -> None:
        """Refuse the first line that is bad.

        Raises:
            RecordError: there is one.
        """
        positions = np.flatnonzero(np.asarray(bad))
        if not positions.size:
            return
        name = self.column[key]
        value = shown(self.frame[name].iloc[positions[0]])
        count = positions.size
        if self.wide and key not in ("accuracy", "error"):  # once in each line of the file
            count = len({self.place(int(position)) for position in positions})
        addition = f" (and {count - 1} more)" if count > 1 else ""
        if self.wide and key in ("accuracy", "error"):
            name = self.frame["environment"].iloc[positions[0]]
            fix = f"{fix}, or name the columns with import.columns.environment=[A,B,...]"
        where = self.place(positions[0])
        raise self.refusal(f"{name} is {value} in {where}{addition}, {fault}", fix)

    def names(self, key: str) -> pd.Series[Any]:
        """Read the names in a column.

        Raises:
            RecordError: a cell is empty.
        """
        codes, values = pd.factorize(self.frame[self.column[key]])
        texts = [printable(text_of(value)) for value in values.tolist()]
        blank = np.array([not text for text in texts] + [True])  # the last one is of code -1
        self.refuse(blank[codes], key, "no name", "fill it in, or drop the line")
        texts = [text[:LONGEST] for text in texts]
        if key in NAMED:
            self.spelled.update(texts)
            texts = [self.renamed.get(text, text) for text in texts]
        return pd.Series(np.array(texts, dtype=object)[codes], dtype=object)

    def whole(self, key: str) -> Any:
        """Read whole numbers; ``10,000`` is ten thousand.

        Raises:
            RecordError: a cell holds something else, or may be two numbers.
        """
        values = self.counts(key)
        bad = ~(
            np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) <= LARGEST_COUNT)
        )
        bad = bad | (values < 0) if key == "step" else bad
        self.refuse(bad, key, "not a whole number", "number them 0, 1, 2, ...")
        return values.astype("int64")

    def counts(self, key: str) -> Floats:
        """Read numbers of things; NaN where a cell is empty.

        Raises:
            RecordError: a cell holds something else, or may be two numbers.
        """
        column = self.frame[self.column[key]]
        if not is_text(column):
            return self.numbers(key)
        values = counts(column, has_decimal_comma(self.frame))
        texts = column.astype(str).str.strip()
        unread = np.isnan(values) & ~texts.str.lower().isin(NOTHING).to_numpy()
        for row in np.flatnonzero(unread)[:1]:
            readings = two_readings(texts.iloc[row])
            if readings:
                few, many = readings
                fault = f"which may be {few} or {many}"
                self.refuse(unread, key, fault, "write it without separators")
        self.refuse(unread, key, "no number", "write numbers, 0, 1, 2, ...")
        self.refuse(np.isinf(values), key, "not finite", "correct it")
        return values

    def numbers(self, key: str) -> Floats:
        """Parse the numbers of a column; NaN where a cell is empty.

        Raises:
            RecordError: a cell holds something else.
        """
        column = self.frame[self.column[key]]
        values = parsed(column)
        empty = column.isna().to_numpy()
        if np.isnan(values).sum() > empty.sum():
            text = column.astype(str).str.strip().str.lower()
            self.refuse(
                np.isnan(values) & ~empty & ~text.isin(NOTHING), key, "no number", "correct it"
            )
        self.refuse(np.isinf(values), key, "not finite", "correct it")
        return values

    def fractions(self, key: str, unit: str | None) -> Floats:
        """Convert the values of a column to fractions; its unit is that of the whole column."""
        values = self.numbers(key)
        name = self.column[key]
        self.refuse(values < 0, key, "below 0", "correct it")
        self.refuse(values > 100, key, "above 100", "correct it")
        small = (values > 0) & (values <= 1)
        large = values > 1
        cells = self.frame[name]
        signs = np.zeros(len(cells), dtype=bool)
        if is_text(cells):
            signs = cells.astype(str).str.contains("%").to_numpy() | np.isnan(values)
        if unit is None:
            headed = "%" in str(name)
            unit = "percent" if headed or signs.any() or large.any() else "fraction"
            if unit == "percent" and not signs.all():
                alike = "write all alike, or add import.unit=percent"
                self.refuse(small & ~signs, key, "a fraction where others are percent", alike)
            self.assume(f"{name} is {'in percent' if unit == 'percent' else 'a fraction of 1'}")
        self.unit = unit
        if unit == "fraction":
            self.refuse(large, key, "above 1", "leave out import.unit=fraction")
            return values
        return values / 100

    def bars(self, key: str, unit: str | None) -> Floats | None:
        """Convert error bars to fractions; None if there are none.

        Bars of a column of their own may have another unit than the means, which their size
        tells, or the user is asked. Those behind a mean, as in ``84.7 ± 0.4``, have its unit.

        Args:
            key: of the means, whose unit is known.
            unit: ``percent`` or ``fraction``; None: as the bars tell it.

        Raises:
            RecordError: a bar is below 0, or may be in percent or a fraction.
        """
        apart = "standard_error" in self.column
        errors = (
            self.numbers("standard_error")
            if apart
            else parsed(self.frame[self.column[key]], "error")
        )
        if np.isnan(errors).all():
            return None
        key = "standard_error" if apart else key
        self.refuse(errors < 0, key, "a bar below 0", "correct it")
        if not apart:
            self._say_parentheses(key)
        if unit is None:
            unit = self._unit_of_bars(errors, key, apart)
        return errors / 100 if unit == "percent" else errors

    def _say_parentheses(self, key: str) -> None:
        cells = self.frame[self.column[key]].astype(str)
        if cells.str.contains(r"\d\s*\(", regex=True).any():
            self.assume("a number in parentheses behind a mean is its error bar")

    def _unit_of_bars(self, errors: Floats, key: str, apart: bool) -> str:
        """Tell the unit of error bars by the largest; ask if both units give bars that may be.

        Raises:
            RecordError: they do.
        """
        name = self.column[key]
        row = int(np.nanargmax(errors))
        largest = errors[row]
        signs = "%" in str(name) or self.frame[name].astype(str).str.contains("%").any()
        if largest > 1 or (apart and signs):
            unit = "percent"
        elif not largest or (self.unit == "percent") == (largest >= _LARGE_BAR):
            return self.unit
        elif self.unit == "percent" and not apart:
            return self.unit  # printed behind it, in its digits
        else:
            value = shown(self.frame[name].iloc[row])
            means = "percent" if self.unit == "percent" else "fractions"
            raise self.refusal(
                f"{name} is {value} in {self.place(row)}, the largest bar, where the means are "
                f"{means}",
                "say import.bar_unit=percent or import.bar_unit=fraction",
            )
        if unit != self.unit:
            self.assume(f"the error bars of {name} are in percent, the means fractions of 1")
        return unit
