"""Live progress of a study: folds done of folds planned, steps per second, time left."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytorch_lightning as pl
from tqdm import tqdm

LINE_SECONDS = 15.0


class StudyProgress(pl.Callback):
    """One bar for a whole study on a terminal, a line every few seconds in a log file.

    Args:
        folds: number of folds planned.
        steps: optimizer steps per fold.
        label: what is trained.
    """

    def __init__(self, folds: int, steps: int, label: str) -> None:
        self.folds, self.steps, self.label = folds, steps, label
        self.done = 0
        self._terminal = sys.stderr.isatty()
        self._bar: tqdm[Any] = tqdm(
            total=folds * steps,
            unit="step",
            disable=not self._terminal,
            bar_format="{desc} |{bar:20}| {percentage:3.0f}% [{elapsed}<{remaining}, {rate_fmt}]",
        )
        self._started = self._spoke = time.monotonic()
        self._trained = 0

    def fold(self, title: str, members: int = 1) -> None:
        """A fold begins, or several that train together."""
        self._title, self._members = title, members
        self._bar.set_description_str(f"{self.label}: fold {self.done + 1}/{self.folds} ({title})")

    def fold_done(self, note: str) -> None:
        """A fold is over, whether trained to its end now or not."""
        self.done += 1
        self._bar.update(self.done * self.steps - self._bar.n)
        self._say(f"{self.label}: fold {self.done}/{self.folds} ({self._title}) {note}")

    def note(self, text: str) -> None:
        """A line that ends no fold."""
        self._say(f"{self.label}: {text}")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """A resumed fold does not begin at its first step."""
        self._bar.update(int(pl_module.steps_done) * self._members)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._trained += len(batch) * self._members
        self._bar.update(len(batch) * self._members)
        now = time.monotonic()
        if not self._terminal and now - self._spoke > LINE_SECONDS:
            rate = self._trained / (now - self._started)
            left = (self.folds - self.done) * self.steps - int(pl_module.steps_done) * self._members
            self._say(
                f"{self.label}: fold {self.done + 1}/{self.folds} ({self._title}), step {int(pl_module.steps_done)} of "
                f"{self.steps}, {rate:.0f} steps/s, {left / rate:.0f} s left"
            )

    def close(self) -> None:
        """Leave the terminal tidy."""
        self._bar.close()

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        self._bar.write(text, file=sys.stderr) if self._terminal else print(text, file=sys.stderr, flush=True)
