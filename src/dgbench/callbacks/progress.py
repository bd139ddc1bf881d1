"""Live progress of a study: runs done of runs planned, steps per second, time left."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytorch_lightning as pl
from tqdm.auto import tqdm

LINE_SECONDS = 15.0
_IN_NOTEBOOK = tqdm.__mro__[1].__module__ == "tqdm.notebook"  # and ipywidgets can show a bar there


class StudyProgress(pl.Callback):
    """One bar for a whole study on a terminal or in a notebook, a line every few seconds in a log file.

    Args:
        folds: number of folds planned.
        steps: optimizer steps per fold.
        label: what is trained.
    """

    def __init__(self, folds: int, steps: int, label: str) -> None:
        self.folds, self.steps, self.label = folds, steps, label
        self.done = 0
        self._bar_shown = sys.stderr.isatty() or _IN_NOTEBOOK
        bar = "{bar}" if _IN_NOTEBOOK else "{bar:20}"
        self._bar: tqdm[Any] = tqdm(
            total=folds * steps,
            unit="step",
            disable=not self._bar_shown,
            bar_format=f"{{desc}} |{bar}| {{percentage:3.0f}}% [{{elapsed}}<{{remaining}}, {{rate_fmt}}]",
        )
        self._started = self._spoke = time.monotonic()
        self._trained = 0

    def begin(self, title: str, together: int = 1) -> None:
        """A run begins, or several that train together."""
        self._title, self._together = title, together
        self._bar.set_description_str(f"{self.label}: fold {self.done + 1}/{self.folds} ({title})")

    def end(self, note: str) -> None:
        """A run is over, whether trained to its end now or not."""
        self.done += 1
        self._bar.update(self.done * self.steps - self._bar.n)
        self._say(f"{self.label}: fold {self.done}/{self.folds} ({self._title}) {note}")

    def note(self, text: str) -> None:
        """A line that ends no run."""
        self._say(f"{self.label}: {text}")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """A resumed run does not begin at its first step."""
        self._bar.update(pl_module.steps_done * self._together)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._trained += len(batch) * self._together
        self._bar.update(len(batch) * self._together)
        now = time.monotonic()
        if not self._bar_shown and now - self._spoke > LINE_SECONDS:
            rate = self._trained / (now - self._started)
            left = (self.folds - self.done) * self.steps - pl_module.steps_done * self._together
            self._say(
                f"{self.label}: fold {self.done + 1}/{self.folds} ({self._title}), step {pl_module.steps_done} of "
                f"{self.steps}, {rate:.0f} steps/s, {left / rate:.0f} s left"
            )

    def close(self) -> None:
        """Leave the terminal tidy."""
        self._bar.close()

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        self._bar.write(text, file=sys.stderr) if self._bar_shown else print(text, file=sys.stderr, flush=True)
