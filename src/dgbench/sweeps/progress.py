"""Show how far a sweep on this machine is: a bar on a terminal, elsewhere a line a minute beside
those of its jobs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dgbench.records.status import (
    DONE,
    INTERRUPTED,
    RUNNING,
    STATUS_FILE,
    read_beat,
    read_status,
    roughly,
)

LOOK_SECONDS = 5.0  #: between two looks at the models
LINE_SECONDS = 60.0  #: without another line, after which one says how far they are


class SweepProgress:
    """Counts the models that the jobs of a sweep finish.

    Args:
        jobs: how many there are.
        models: that they have to train, by the folder of their study; none where they train none.
            Other commands may train in the folder of the sweep at the same time.
    """

    def __init__(self, jobs: int, models: Mapping[Path, int]) -> None:
        self.jobs, self.models, self._folders = jobs, sum(models.values()), [*models]
        self.ended = 0
        self._began = self._spoke = time.monotonic()
        self._before = self._counted = self._count()
        self._counted_at = self._began
        self._bar: tqdm[Any] = tqdm(
            total=jobs,
            disable=not sys.stderr.isatty(),
            bar_format="{n:.2g}/{total} jobs |{bar:20}|{postfix}",
        )

    def end_job(self, text: str) -> None:
        """Say how a job ended, how many have, and how long the rest takes: by models, since jobs
        differ in size.
        """
        self.ended += 1
        self._bar.n = self.ended
        progress = self._left(self.ended, self.jobs)
        if progress and self.models:
            done, trained, total = self._models()
            progress = f", {max(0, done)}/{self.models} models{self._left(trained, total)}"
        self.say(f"[{self.ended}/{self.jobs}{progress}] {text}")

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
        done, trained, total = self._models()
        text = f"{max(0, done)} of {self.models} models done{self._left(trained, total)}"
        if self._bar.disable:
            self.say(f"[{self.ended}/{self.jobs}] {text}")
        else:
            self._bar.set_postfix_str(text)

    def close(self) -> None:
        """Leave the terminal tidy."""
        self._bar.close()

    def _left(self, done: float, total: float) -> str:
        """Format how long the rest takes at the pace of this command; empty where nothing or all is
        done.
        """
        seconds = time.monotonic() - self._began
        return (
            f", about {roughly(seconds / done * (total - done))} left" if 0 < done < total else ""
        )

    def _models(self) -> tuple[int, float, float]:
        """Count the models that this command finished; that it trained, parts included; and all
        that it trains.

        What was trained of them before is in neither of the last two. A count reads a file of every
        model, so the ends of many short jobs share one.
        """
        if time.monotonic() - self._counted_at >= LOOK_SECONDS:
            self._counted, self._counted_at = self._count(), time.monotonic()
        (done, shares), (done_before, shares_before) = self._counted, self._before
        return (
            done - done_before,
            done - done_before + shares - shares_before,
            self.models - shares_before,
        )

    def _count(self) -> tuple[int, float]:
        """Count the models that are done, and sum the shares of their steps that the others have
        trained.
        """
        done, shares = 0, 0.0
        for file in chain.from_iterable(
            folder.glob(f"*/{STATUS_FILE}") for folder in self._folders
        ):
            word = read_status(file.parent).word
            done += word == DONE
            if (
                word in (RUNNING, INTERRUPTED)
                and (beat := read_beat(file.parent)) is not None
                and beat.steps
            ):
                shares += beat.step / beat.steps
        return done, shares
