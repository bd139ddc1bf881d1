"""Show how far a sweep on this machine is: a bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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

LOOK_SECONDS = 5.0  #: between two looks at all models
LINE_SECONDS = 60.0  #: after which a line says how far the models are, if no other was printed


@dataclass(frozen=True)
class Trained:
    """What some models have trained.

    Args:
        done: models that are done.
        parts: shares of their steps that the others have trained, summed.
    """

    done: int = 0
    parts: float = 0.0

    def __add__(self, other: Trained) -> Trained:
        return Trained(self.done + other.done, self.parts + other.parts)


class SweepProgress:
    """Counts the models that the jobs of a sweep finish.

    Args:
        jobs: how many there are.
        models: of each job, how many models it has to train by the folder of their study; empty
            if the jobs train none. Other commands may train in the folder of the sweep at the
            same time.
    """

    def __init__(self, jobs: int, models: Sequence[Mapping[Path, int]] = ()) -> None:
        self.jobs = jobs
        self.models = sum(sum(job.values()) for job in models)
        self.ended = 0
        self._folders_by_job = [list(job) for job in models]
        self._began = self._spoke = time.monotonic()
        self._counts: dict[Path, Trained] = {}
        self._count_all()
        self._before = self._total()
        self._bar: tqdm[Any] = tqdm(
            total=jobs,
            disable=not sys.stderr.isatty(),
            bar_format="{n:.2g}/{total} jobs |{bar:20}|{postfix}",
        )

    def end_job(self, job: int, text: str) -> None:
        """Print how a job ended, how many have, and how long the rest takes.

        The time goes by models, since jobs differ in size.

        Args:
            job: its number.
            text: how it ended.
        """
        self.ended += 1
        self._bar.n = self.ended
        progress = self._left(self.ended, self.jobs)
        if progress and self.models:
            self._count(self._folders_by_job[job])
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
        """Format how long the rest takes at the pace of this command.

        Returns:
            An empty text if nothing or everything is done.
        """
        if not 0 < done < total:
            return ""
        seconds = time.monotonic() - self._began
        return f", about {roughly(seconds / done * (total - done))} left"

    def _models(self) -> tuple[int, float, float]:
        """Count the models that this command finished.

        Returns:
            How many it finished; how many it trained, parts included; and how many it trains in
            all. What was trained of them before is in neither of the last two.
        """
        if time.monotonic() - self._counted_at >= LOOK_SECONDS:
            self._count_all()
        total = self._total()
        done = total.done - self._before.done
        trained = done + total.parts - self._before.parts
        return done, trained, self.models - self._before.parts

    def _total(self) -> Trained:
        return sum(self._counts.values(), Trained())

    def _count_all(self) -> None:
        """Count the models of all jobs.

        This reads a file of every model, so the ends of many short jobs share one count.
        """
        for folders in self._folders_by_job:
            self._count(folders)
        self._counted_at = time.monotonic()

    def _count(self, studies: Iterable[Path]) -> None:
        """Count the models of these studies."""
        for study in studies:
            self._counts[study] = _trained_in(study)


def _trained_in(study: Path) -> Trained:
    """Count what the models in the folder of a study have trained."""
    done = 0
    parts = 0.0
    for file in study.glob(f"*/{STATUS_FILE}"):
        word = read_status(file.parent).word
        if word == DONE:
            done += 1
        if word in (RUNNING, INTERRUPTED):
            beat = read_beat(file.parent)
            if beat is not None and beat.steps:
                parts += beat.step / beat.steps
    return Trained(done, parts)
