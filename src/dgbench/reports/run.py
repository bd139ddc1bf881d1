"""One member as a report sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ROW_COLUMNS = ("step", "env", "subset", "env_held_out", "seen", "wrong", "loss")

Columns = dict[str, list[Any]]  # the rows of a run: ROW_COLUMNS, in the order they were written


@dataclass(frozen=True)
class Run:
    """One member as found on disk."""

    folder: str
    identity: dict[str, Any]  #: the fields of :class:`~dgbench.records.RunIdentity`
    status: str  #: ``DONE``, ``RUNNING``, ``FAILED`` or ``UNKNOWN``
    reason: str  #: what the status line says after the status
    last_step: int
    row_count: int

    @property
    def unusable(self) -> str:
        """Why its errors must not be used; empty when they may."""
        if self.status == "DONE":
            return ""
        if self.status == "FAILED":
            return f"failed: {self.reason or 'no reason given'}"
        return f"unfinished (status {self.status}), last row at step {self.last_step}"
