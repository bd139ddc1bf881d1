"""Shows on the screen what takes long, how far it is and how long it still takes.

Decoding, statistics and figures use it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm import tqdm

from dgbench.records.status import roughly

Item = TypeVar("Item")

QUIET_SECONDS = 2.0  #: a phase that is over earlier says nothing
LINE_SECONDS = 15.0  #: between two lines if there is no terminal


class Phase:
    """How far one phase of a command is: a bar on a terminal, else a line every few seconds.

    The first one comes by itself, even if the first unit takes long.

    Args:
        title: what is done, as ``decoding PACS``.
        total: units in all; None if that is not known.
        unit: in plural.
        done: units that an earlier start has done.
        shown: False shows nothing.
    """

    def __init__(
        self, title: str, total: int | None, unit: str, done: int = 0, shown: bool = True
    ) -> None:
        self.title = title
        self.total = total
        self.unit = unit
        self.done = self._before = done
        self._shown = shown
        self._started = time.monotonic()
        self._next_line = self._started + QUIET_SECONDS
        self._bar: tqdm[Any] | None = None
        if shown and sys.stderr.isatty():
            self._bar = tqdm(
                total=total,
                initial=done,
                desc=title,
                unit=f" {unit}",
                delay=QUIET_SECONDS,
                leave=False,
            )
        self._first = threading.Timer(QUIET_SECONDS, self._begin)
        self._first.daemon = True
        if shown:
            self._first.start()

    def _begin(self) -> None:
        """Show that it takes long, unless something was shown."""
        if self._bar is not None:
            self._bar.refresh()
        elif self._next_line == self._started + QUIET_SECONDS:
            self._say(time.monotonic())

    def _say(self, now: float) -> None:
        self._next_line = now + LINE_SECONDS
        print(self.text(now), file=sys.stderr, flush=True)

    def advance(self, units: int = 1) -> None:
        """Count units as done."""
        self.done += units
        if self._bar is not None:
            self._bar.update(units)
            return
        now = time.monotonic()
        if self._shown and now >= self._next_line:
            self._say(now)

    def text(self, now: float) -> str:
        """Format what is done, how far it is, and how long the rest takes at the pace so far."""
        if self.total is None:
            return f"{self.title}: {self.done:,} {self.unit}"
        counted = f"{self.title}: {min(self.done, self.total):,} of {self.total:,} {self.unit}"
        advanced = self.done - self._before
        units_left = max(0, self.total - self.done)
        if not advanced or not units_left:
            return counted
        return f"{counted}, {roughly((now - self._started) / advanced * units_left)} left"

    def close(self) -> None:
        """Remove the bar; nothing is said any more."""
        self._first.cancel()
        if self._bar is not None:
            self._bar.close()


@contextmanager
def phase(
    title: str, total: int | None, unit: str, done: int = 0, shown: bool = True
) -> Iterator[Phase]:
    """Open a :class:`Phase`, which ends with the block."""
    counted = Phase(title, total, unit, done, shown)
    try:
        yield counted
    finally:
        counted.close()


def tracked(items: Iterable[Item], title: str, total: int | None, unit: str) -> Iterator[Item]:
    """Iterate over items, and count each as done once it was used."""
    with phase(title, total, unit) as progress:
        for item in items:
            yield item
            progress.advance()
