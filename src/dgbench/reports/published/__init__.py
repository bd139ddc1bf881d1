"""Tables of papers as small data files, each with its source, to print beside our own numbers.

A file ``<paper>_table<n>.yaml`` holds the table as printed: names of its columns and a block of
lines of values ``mean``, ``mean±error`` or a name, one line per algorithm (by any of its names,
which become ours), or in a table of shifts per dataset, ``DATASET/ENVIRONMENT`` or ``DATASET/PAIR``
with ``_`` for a space. Arrows are OoD-Bench's -1 and +1, ``-`` is no value. Columns under
``printed`` are those that the paper computed from the others. Percent stay percent in the file;
:meth:`Published.accuracies` gives fractions. ``settings`` says with which keys of a leaderboard,
and which selection, a table was made; ``seeds`` and ``bar`` what stands behind ±. ``domains`` holds
the same by
environment: ``columns`` and ``rows`` of each dataset for which they are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

import yaml

from dgbench.errors import ConfigError
from dgbench.plan.names import our_name

_ARROWS = {"↑": 1, "↓": -1}


@dataclass(frozen=True)
class Value:
    """One printed value."""

    mean: float
    error: float | None = None  #: what stands after ±
    arrow: int = 0  #: OoD-Bench's score, -1, 0 or 1


@dataclass(frozen=True, kw_only=True)
class Published:
    """One table of a paper, in the paper's unit; what its file need not say has a default."""

    name: str  #: name of the file without its ending
    source: str
    title: str
    quantity: str  #: ``accuracy`` (percent), ``correlation``, ``algorithm``, ``shift``, ...
    note: str
    columns: tuple[str, ...]
    dataset: str = ""  #: where the columns are environments of one dataset: its name
    #: how a configuration's dataset and variant make the name of its row, e.g.
    #: ``{scale}/{ratio}:1``
    match: str = ""
    seeds: int = 0  #: seeds behind each value, where ± is a spread over them
    bar: str = ""  #: what ± is, a key of :data:`~dgbench.analysis.accuracy.SPREADS`
    assumed_bar: bool = False  #: the paper does not say what ± is, so that ``bar`` is an assumption
    shift: str = ""  #: ``diversity`` or ``correlation`` where the paper splits its datasets so
    formula: str = ""  #: of tables of shifts: ``ye2022`` or ``hellinger``
    #: ``backbone``, ``init``, ``tuning``, ``selection``
    settings: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, dict[str, Value]]  #: row -> column -> value
    words: Mapping[str, dict[str, str]]  #: row -> column -> name, for a table of names
    printed: Mapping[str, dict[str, float]]  #: row -> column that the paper computed -> value
    domains: tuple[
        Published, ...
    ] = ()  #: the table by environment, one for each dataset where it is known

    def accuracies(self) -> dict[str, dict[str, float]]:
        """Convert percent to fractions in [0, 1]: row -> column -> accuracy.

        Raises:
            ConfigError: this is no table of accuracies.
        """
        if self.quantity != "accuracy":
            raise ConfigError(
                f"{self.name} holds {self.quantity}, no accuracies; choose one of "
                f"{', '.join(boards())}"
            )
        fractions = {}
        for row, line in self.values.items():
            fractions[row] = {name: value.mean / 100 for name, value in line.items()}
        return fractions

    def averages(self) -> dict[str, float]:
        """Average over the columns: row -> unrounded mean, in the paper's unit.

        Only rows that have a value in every column are averaged.
        """
        averages = {}
        for row, line in self.values.items():
            if len(line) == len(self.columns):
                averages[row] = math.fsum(value.mean for value in line.values()) / len(line)
        return averages


def names() -> list[str]:
    """List the published tables."""
    return sorted(
        file.name.removesuffix(".yaml")
        for file in _folder().iterdir()
        if file.name.endswith(".yaml")
    )


def shifts() -> list[str]:
    """List the tables of diversity and correlation shift, both of whole datasets."""
    tables = []
    for name in names():
        table = published(name)
        if table.quantity != "shift" or not {"div", "cor"} <= set(table.columns):
            continue
        if not any("/" in row for row in table.values):
            tables.append(table.name)
    return tables


def boards() -> list[str]:
    """List the tables of accuracies, algorithms by datasets or by environments."""
    return [name for name in names() if published(name).quantity == "accuracy"]


@cache
def published(name: str) -> Published:
    """Read the table of that name.

    Raises:
        ConfigError: there is none, or its file is no such table.
    """
    file = _folder() / f"{name}.yaml"
    if not file.is_file():
        raise ConfigError(f"published={name} is unknown; choose one of {', '.join(names())}")
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    domains = []
    for dataset, part in data.pop("domains", {}).items():
        title = f"{data['title']}, {dataset} by domain"
        domains.append(
            _table(
                f"{name}_{dataset}",
                {**data, "title": title, "dataset": dataset, "printed": [], **part},
            )
        )
    return replace(_table(name, data), domains=tuple(domains))


def _table(name: str, data: Mapping[str, Any]) -> Published:
    columns = tuple(data["columns"])
    printed = data["printed"]
    values: dict[str, dict[str, Value]] = {}
    words: dict[str, dict[str, str]] = {}
    computed: dict[str, dict[str, float]] = {}
    for line in data["rows"].splitlines():
        algorithm, *cells = line.split()
        row = our_name(algorithm)
        if len(cells) != len(columns) + len(printed):
            raise ConfigError(
                f"{name}: {row} has {len(cells)} values for {len(columns) + len(printed)} "
                "columns; correct it"
            )
        body = cells[: len(columns)]
        rest = cells[len(columns) :]
        if data["quantity"] == "algorithm":
            words[row] = dict(zip(columns, map(our_name, body), strict=True))
        else:
            values[row] = {
                column: _value(cell)
                for column, cell in zip(columns, body, strict=True)
                if cell != "-"
            }
        computed[row] = {
            column: float(cell) for column, cell in zip(printed, rest, strict=True) if cell != "-"
        }
    facts = {key: value for key, value in data.items() if key != "rows"}
    return Published(
        **{
            **facts,
            "name": name,
            "columns": columns,
            "values": values,
            "words": words,
            "printed": computed,
        }
    )


def _value(cell: str) -> Value:
    arrow = _ARROWS.get(cell[-1], 0)
    mean, _, error = cell.rstrip("".join(_ARROWS)).partition("±")
    return Value(float(mean), float(error) if error else None, arrow)


def _folder() -> resources.abc.Traversable:
    return resources.files(__name__)
