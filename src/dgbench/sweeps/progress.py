"""Show how far a sweep on this machine is: a bar on a terminal, elsewhere a line a minute beside those of its jobs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dgbench.records.status import DONE, INTERRUPTED, RUNNING, STATUS_FILE, read_beat, read_status, roughly

LOOK_SECONDS = 5.0  #: between two looks at the models
LINE_SECONDS = 60.0  #: without another line, after which one says how far they are


class SweepProgress:
    """Counts the models that the jobs of a sweep finish.

    Args:
        folder: of the sweep.
        jobs: how many there are.
        models: that they have to train; 0 where they train none.
    """

    def __init__(self, folder: Path, jobs: int, models: int) -> None:
        self.folder, self.jobs, self.models = folder, jobs, models
        self.ended = 0
        self._began = self._spoke = time.monotonic()
        self._done_before, self._shares_before = self._models()
        self._bar: tqdm[Any] = tqdm(
            total=jobs, disable=not sys.stderr.isatty(), bar_format="{n:.2g}/{total} jobs |{bar:20}|{postfix}"
        )

    def end_job(self, text: str) -> None:
        """Say how a job ended, how many have, and how long the others take at that pace."""
        self.ended += 1
        self._bar.n = self.ended
        left = (time.monotonic() - self._began) / self.ended * (self.jobs - self.ended)
        self.say(f"[{self.ended}/{self.jobs}, {roughly(left)} left] {text}")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._spoke = time.monotonic()
        self._bar.write(text, file=sys.stderr)
        sys.stderr.flush()

    def look(self) -> None:
        """Show the models that are done by now."""
        on_time = time.monotonic() - self._spoke >= LINE_SECONDS
        if not self.models or (self._bar.disable and not on_time):
            return
        done, shares = self._models()
        done = max(0, done - self._done_before)
        text = f"{done} of {self.models} models done{self._left(done + shares)}"
        if self._bar.disable:
            self.say(f"[{self.ended}/{self.jobs}] {text}")
        else:
            self._bar.set_postfix_str(text)

    def close(self) -> None:
        """Leave the terminal tidy."""
        self._bar.close()

    def _left(self, done: float) -> str:
        """How long the models take that are not done, at the pace of this command.

        Args:
            done: models, with the shares of those that are not; some shares are of commands before this one.
        """
        trained = done - self._shares_before
        if trained <= 0 or done > self.models:
            return ""
        seconds = time.monotonic() - self._began
        return f", about {roughly(seconds / trained * (self.models - done))} left"

    def _models(self) -> tuple[int, float]:
        """Models that are done, and the sum of the shares that others have trained."""
        done, shares = 0, 0.0
        for file in self.folder.glob(f"*/*/{STATUS_FILE}"):
            word = read_status(file.parent).word
            done += word == DONE
            if word in (RUNNING, INTERRUPTED) and (beat := read_beat(file.parent)) is not None and beat.steps:
                shares += beat.step / beat.steps
        return done, shares
