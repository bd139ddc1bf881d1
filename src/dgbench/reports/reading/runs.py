"""One run as a report sees it, and its rows as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    RowArray = NDArray[np.void]  # of ROW_TYPE, in the order in which the rows were written

#: a row: ``env`` and ``subset`` are numbers of a :class:`Names`
ROW_TYPE = np.dtype(
    [
        ("step", "int32"),
        ("env", "int32"),
        ("subset", "int32"),
        ("env_held_out", "bool"),
        ("seen", "int32"),
        ("wrong", "float64"),
        ("loss", "float32"),
    ]
)
ROW_COLUMNS: tuple[str, ...] = ROW_TYPE.names or ()


class Names:
    """Numbers for the names of environments and subsets: one number for each name in all runs that are read."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}

    def number(self, name: str) -> int:
        """The number of a name, a new one where it has none."""
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def listed(self) -> list[str]:
        """All names, in the order of their numbers."""
        return list(self._numbers)


def row_array(rows: Iterable[tuple[Any, ...]]) -> RowArray:
    """Rows from tuples in the order of :data:`ROW_COLUMNS`, with numbers for names."""
    with np.errstate(over="ignore"):  # a loss beyond single precision is infinite in a table
        return np.array(list(rows), dtype=ROW_TYPE)


@dataclass(frozen=True)
class Run:
    """One run as found on disk."""

    folder: str
    identity: dict[str, Any]  #: the fields of :class:`~dgbench.records.rows.RunIdentity`
    status: str  #: ``DONE``, ``RUNNING``, ``FAILED``, ``INTERRUPTED`` or ``UNKNOWN``
    reason: str  #: what the status line says after the status
    last_step: int
    row_count: int
    together: int | None = None  #: how many runs trained together at its last step; None where the rows do not say

    @property
    def unusable(self) -> str:
        """Why its errors must not be used; empty when they may."""
        if self.status == "DONE":
            return ""
        if self.status == "FAILED":
            return f"failed: {self.reason or 'no reason given'}"
        return f"unfinished (status {self.status}), last row at step {self.last_step}"
