"""``metrics.csv`` of a run folder: what training logged, one line per step, for curves.

It is no result.

The format is that of Lightning's ``CSVLogger`` (which would delete the file of a run that resumes):
a column for every name that was ever logged, in alphabetical order, ``step`` among them; a cell is
empty if a line lacks the value.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from dgbench.records.files import read_regular, write_whole

METRICS_FILE = "metrics.csv"
ERRORS = "error/"  #: beginning of the names of errors, which the rows hold as well

Lines = dict[int, dict[str, float]]  #: step -> name -> value, in the order of the steps


def read_metrics(path: Path) -> Lines:
    """Read the lines of a file, none if there is none.

    What is torn, by a crash or a full disk, is left out.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    try:
        text = read_regular(path).decode(errors="replace")
    except FileNotFoundError:
        return {}
    lines: Lines = {}
    reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
    try:
        for row in reader:
            if None in row or None in row.values():  # more or fewer cells than columns
                continue
            try:
                step = int(row.pop("step"))
                values = lines.setdefault(step, {})
                values.update({name: float(cell) for name, cell in row.items() if cell})
            except (KeyError, ValueError):
                continue
    except csv.Error:  # no text
        pass
    return dict(sorted(lines.items()))


def write_metrics(path: Path, lines: Mapping[int, Mapping[str, float]]) -> None:
    """Replace a file atomically, or remove it if there are no lines.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    if not lines:
        path.unlink(missing_ok=True)
        return
    names = {"step", *chain.from_iterable(lines.values())}
    rows = ({"step": step, **values} for step, values in lines.items())
    write_whole(path, metrics_text(sorted(names), rows))


def append_metrics(path: Path, lines: Mapping[int, Mapping[str, float]]) -> None:
    """Add lines to a file, which is replaced atomically if they have names that it does not know.

    Raises:
        OSError: it cannot be written.
    """
    before: list[dict[str, str]] = []
    columns: list[str] = []
    rows = [{"step": step, **values} for step, values in lines.items()]
    if path.exists():
        with open(path, newline="") as file:
            columns = next(csv.reader(file), [])
    names = sorted({*columns, *chain.from_iterable(rows)})
    if names == columns:
        with open(path, "a", newline="") as file:
            csv.DictWriter(file, columns).writerows(rows)
        return
    if columns:
        with open(path, newline="") as file:
            before = list(csv.DictReader(file))
    write_whole(path, metrics_text(names, [*before, *rows]), sync=False)


def metrics_text(columns: Iterable[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Format rows as text with a header, as Lightning's ``CSVLogger`` writes them."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(columns))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
