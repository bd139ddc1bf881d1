"""Show how far a sweep on this machine is: a bar on a terminal, elsewhere a line a minute beside those of its jobs."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dgbench.records.rows import PLAN_FILE
from dgbench.records.status import DONE, RUNNING, STATUS_FILE, read_beat, read_status, roughly

LOOK_SECONDS = 5.0  #: between two looks at the models
LINE_SECONDS = 60.0  #: without another line, after which one says how far they are


class SweepProgress:
    """Counts the models that the jobs of a sweep finish."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder, self.jobs = folder, jobs
        self.ended = 0
        self._began = self._spoke = time.monotonic()
        self._before = self._models()[0]
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
        if self._bar.disable and not on_time:
            return
        done, running, a_job = self._models()
        done = max(0, done - self._before)
        left = self._left(done + running, a_job * self.jobs)
        text = f"{done} {'model' if done == 1 else 'models'} done{left}"
        if self._bar.disable:
            self.say(f"[{self.ended}/{self.jobs}] {text}")
        else:
            self._bar.set_postfix_str(text)

    def close(self) -> None:
        """Leave the terminal tidy."""
        self._bar.close()

    def _left(self, done: float, models: float) -> str:
        if not 0 < done <= models:
            return ""
        seconds = time.monotonic() - self._began
        return f", about {roughly(seconds / done * (models - done))} left"

    def _models(self) -> tuple[int, float, float]:
        """Models that are done, what share of others is, and models to a study."""
        done, running, planned = 0, 0.0, list[int]()
        for study in self.folder.glob(f"*/{PLAN_FILE}"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                planned.append(len(json.loads(study.read_text())["runs"]))
        for file in self.folder.glob(f"*/*/{STATUS_FILE}"):
            word = read_status(file.parent).word
            done += word == DONE
            if word == RUNNING and (beat := read_beat(file.parent)) is not None and beat.steps:
                running += beat.step / beat.steps
        return done, running, sum(planned) / len(planned) if planned else 0.0
