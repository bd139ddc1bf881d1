"""Tables hold data frames: one line per algorithm (study, setting, ...), one column per quantity,
errors as fractions.

Beside a column ``NAME`` may stand what belongs to its values:

=================  ====================================================================
``NAME.std``       sample standard deviation over seeds (divisor n-1), unit of the value
``NAME.n``         seeds (or whatever was averaged) behind the value
``NAME.low``       lower end of its confidence interval, unit of the value
``NAME.high``      upper end
``NAME.best``      statistics separate it from the rest: printed bold
``NAME.flag``      short text shown after the value
``NAME.reason``    why there is no value
=================  ====================================================================

A column ``reference`` is true in lines that are no results but what results are compared with, such
as a blind guess: they come last, and are never ranked, sorted, marked or counted.

A :class:`Table` adds what a reader needs: title, units, notes.

Nothing here loads pandas before there is a frame: a status prints aligned text again and again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

    from dgbench.analysis.intervals import Interval


Unit = Literal[
    "percent",
    "points",
    "correlation",
    "coefficient",
    "probability",
    "loss",
    "distance",
    "rank",
    "count",
    "signed",
    "text",
]
BESIDE = ("std", "n", "low", "high", "best", "flag", "reason")
REFERENCE = "reference"
ADAPTATION = "adaptation="  #: in the label of a model that adapts, ``erm (adaptation=tent)``
ADAPTED = "adapted at test time, on unlabeled images of the environments that are tested."
_PLACES = {
    "percent": 1,
    "points": 1,
    "correlation": 2,
    "coefficient": 2,
    "probability": 2,
    "loss": 3,
    "distance": 3,
    "rank": 1,
}


@dataclass(frozen=True)
class Column:
    """How one column is shown."""

    name: str  #: in the frame
    title: str = ""  #: as a reader sees it; the name by default
    unit: Unit = "text"
    help: str = ""  #: one sentence, shown where there is space for it
    key: bool = False  #: names the line, as the algorithm does

    @property
    def numeric(self) -> bool:
        return self.unit != "text"

    @property
    def shown(self) -> str:
        """The title, with ``(%)`` where values are shown in percent."""
        return (self.title or self.name) + (" (%)" if self.unit == "percent" else "")


@dataclass(frozen=True, eq=False)
class Table:
    """Values with what a reader needs beside them."""

    frame: pd.DataFrame  #: one line per algorithm (study, setting, ...)
    #: stem of its file; tables of one name in several sections have the same kind of lines
    name: str = "table"
    title: str = ""
    columns: tuple[Column, ...] = ()  #: those that are shown, in order
    notes: tuple[str, ...] = ()  #: plain sentences under the table
    detail: bool = False  #: folded away where the renderer can, left out of the terminal
    #: notes that stand below it; later ones are folded under "How sure is this?"; None shows all
    shown_notes: int | None = None
    certainty: bool = False  #: says how sure the section is, so it is folded with these notes

    @property
    def open_notes(self) -> tuple[str, ...]:
        """The notes that stand below it."""
        return self.notes[: self.shown_notes]

    @property
    def folded_notes(self) -> tuple[str, ...]:
        """The notes that are folded under "How sure is this?"."""
        return () if self.shown_notes is None else self.notes[self.shown_notes :]

    def __len__(self) -> int:
        if REFERENCE not in self.frame:
            return len(self.frame)
        return len(self.frame) - sum(self.references)

    @functools.cached_property
    def cells(self) -> list[list[Cell]]:
        """Of each line the cells of its shown columns, made once for all renderers."""
        columns = [_cells(self.frame, column) for column in self.columns]
        return [list(line) for line in zip(*columns, strict=True)]

    @property
    def references(self) -> list[bool]:
        """Of each line, whether it is a reference."""
        if REFERENCE not in self.frame:
            return [False] * len(self.frame)
        return [bool(value) for value in self.frame[REFERENCE].tolist()]


MOST_ON_PAGE = 2000  #: lines of a table of details: the pairs of 63 algorithms


def on_page(table: Table) -> Table:
    """Return a table as pages show it: of very many details the first lines; its CSV has all."""
    count = len(table.frame)
    if not table.detail or count <= MOST_ON_PAGE:
        return table
    note = (
        f"The first {MOST_ON_PAGE:,} of {count:,} lines; all of them stand in {table.name}.csv, "
        "which output=DIR writes."
    )
    shown = None if table.shown_notes is None else table.shown_notes + 1
    notes = (note, *table.notes)
    return replace(table, frame=table.frame.head(MOST_ON_PAGE), notes=notes, shown_notes=shown)


@dataclass(frozen=True)
class Cell:
    """One value of a table with all that stands beside it, or the reason why there is none."""

    value: float | str | None = None
    std: float | None = None
    n: int | None = None
    low: float | None = None
    high: float | None = None
    best: bool = False
    flag: str = ""
    reason: str = ""


def table(
    lines: pd.DataFrame | Sequence[Mapping[str, Any]],
    name: str,
    title: str,
    columns: Sequence[Column],
    notes: Iterable[str] = (),
    detail: bool = False,
) -> Table:
    """Build a table of these lines, whose shown columns come first.

    Args:
        lines: the values, as a frame or as one mapping per line (see :func:`entry`).
        name, title, columns, notes, detail: of :class:`Table`.
    """
    import pandas as pd

    frame = lines if isinstance(lines, pd.DataFrame) else pd.DataFrame(list(lines))
    shown = [column.name for column in columns]
    frame = frame.reindex(columns=[*shown, *frame.columns.difference(shown, sort=False)])
    all_notes = [*notes, *_note_on_adaptation(frame, columns)]
    return Table(frame, name, title, tuple(columns), tuple(all_notes), detail)


def _note_on_adaptation(frame: pd.DataFrame, columns: Sequence[Column]) -> list[str]:
    """Make the note of a table with lines or columns of models that adapted at test time."""
    names: list[object] = [column.shown for column in columns]
    for column in columns:
        if not column.numeric:
            names += frame[column.name].unique().tolist()
    if not any(ADAPTATION in str(name) for name in names):
        return []
    return [f"{ADAPTATION}...: {ADAPTED}"]


def with_lines(
    table: Table, lines: Sequence[Mapping[str, Any]], notes: Iterable[str] = ()
) -> Table:
    """Append lines of references to a table; their cells that are missing stay empty."""
    import pandas as pd

    results = table.frame.assign(**{REFERENCE: False})
    added = set(chain.from_iterable(lines)) - {*results.columns}
    columns = [*results.columns, *sorted(added)]
    frame = pd.DataFrame([*results.to_dict("records"), *lines], columns=columns)
    for name, kind in results.dtypes.items():
        if pd.api.types.is_bool_dtype(kind):
            frame[name] = frame[name].map(lambda value: value is True)
        elif pd.api.types.is_integer_dtype(kind):
            frame[name] = frame[name].astype("Int64")  # whole beside cells that are empty
        else:
            frame[name] = frame[name].astype(kind)
    return replace(table, frame=frame, notes=(*table.notes, *notes))


def entry(
    name: str,
    value: float | str | None = None,
    *,
    std: float | None = None,
    n: int | None = None,
    low: float | None = None,
    high: float | None = None,
    best: bool | None = None,
    flag: str = "",
    reason: str = "",
) -> dict[str, Any]:
    """Write one value and what stands beside it as part of a line.

    Returns:
        ``{"NAME": value, "NAME.std": std, ...}``, without what is not given. The reason says why
        there is no value; beside a value it is left out.
    """
    cells: dict[str, Any] = {name: value}
    why = reason if value is None else ""
    extras = (std, n, low, high, best, flag or None, why or None)
    for kind, extra in zip(BESIDE, extras, strict=True):
        if extra is not None:
            cells[f"{name}.{kind}"] = extra
    return cells


def entries(names: Iterable[str], reason: str) -> dict[str, Any]:
    """Make several columns without a value, for one reason, part of a line."""
    cells: dict[str, Any] = {}
    for name in names:
        cells |= entry(name, reason=reason)
    return cells


def interval_entry(name: str, interval: Interval, n: int | None = None) -> dict[str, Any]:
    """Make an interval part of a line, in which it is shown as ``0.42 [0.10, 0.71]``."""
    return entry(name, interval.estimate, n=n, low=interval.low, high=interval.high)


def _cells(frame: pd.DataFrame, column: Column) -> list[Cell]:
    extras = {
        kind: _values(frame[f"{column.name}.{kind}"])
        for kind in BESIDE
        if f"{column.name}.{kind}" in frame
    }
    column_cells = []
    for index, value in enumerate(_values(frame[column.name])):
        beside = {
            kind: values[index] for kind, values in extras.items() if values[index] is not None
        }
        if "n" in beside:
            beside["n"] = int(beside["n"])
        if value is not None and column.numeric and not isinstance(value, str):
            value = float(value)
        elif isinstance(value, float) and value.is_integer():
            value = str(int(value))
        elif value is not None and not isinstance(value, str):
            value = str(value)
        column_cells.append(Cell(value, **beside))
    return column_cells


def _values(column: pd.Series[Any]) -> list[Any]:
    """Convert a column to Python's values, and what is missing to None."""
    values: list[Any] = []
    for value, is_absent in zip(column.tolist(), column.isna().tolist(), strict=True):
        if is_absent:
            values.append(None)
        else:
            values.append(value.item() if hasattr(value, "item") else value)
    return values


def is_negative(cell: Cell, unit: Unit) -> bool:
    """Return whether a value is a correlation below 0: its measure ranks algorithms the wrong way.

    Shown underlined.
    """
    return unit == "correlation" and isinstance(cell.value, float) and cell.value < 0


def show(cell: Cell, unit: Unit) -> str:
    """Format a cell: ``28.1 ± 0.4``, a name, or ``-``.

    In tables, fractions become percent only here.
    """
    if cell.value is None:
        return "-"
    if isinstance(cell.value, str):
        return cell.value + (f" {cell.flag}" if cell.flag else "")
    if unit == "signed":
        return f"{cell.value:+.0f}" if cell.value else "0"
    factor = 100.0 if unit in ("percent", "points") else 1.0
    whole_rank = unit == "rank" and cell.low is not None and cell.value.is_integer()
    places = 0 if whole_rank else _PLACES.get(unit, 0)
    text = decimal(cell.value * factor, places)
    if cell.low is not None and cell.high is not None:
        ends = 0 if unit == "rank" else places
        text += f" [{decimal(cell.low * factor, ends)}, {decimal(cell.high * factor, ends)}]"
    if cell.std is not None:
        text += f" ± {decimal(cell.std * factor, places)}"
    return text + (f" {cell.flag}" if cell.flag else "")


def percent(fraction: float, places: int = 1) -> str:
    """Format a fraction, or a difference of two, in percent (points) as a table shows it, for
    sentences beside it.
    """
    return decimal(100.0 * fraction, places)


def decimal(number: float, places: int) -> str:
    """Format a number with so many decimal places, the same on every machine.

    Processors differ in the last bits of a float, which would decide about 3.25 between 3.2 and
    3.3; so these bits are cut off first.
    """
    return f"{round(number, 9) + 0.0:.{places}f}"


def aligned(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[str]:
    """Pad lines so that their columns have one width each.

    Args:
        lines: the head, then the values, as text.
        numeric: of each column, whether it is set to the right.
    """
    widths = []
    for column in zip(*lines, strict=True):
        widths.append(max(map(len, column)))
    padded = []
    for line in lines:
        cells_of_line = []
        for text, width, is_right in zip(line, widths, numeric, strict=True):
            cells_of_line.append(text.rjust(width) if is_right else text.ljust(width))
        padded.append("  " + "  ".join(cells_of_line).rstrip())
    return padded
