"""Show how far training is.

It is shown on the terminal, and written to ``progress.json`` of every run folder for
``report=status``.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from tqdm.auto import tqdm

from dgbench.records.status import Beat, roughly, write_beat

FIRST_SECONDS = 3.0  # of training before the first line
LINE_SECONDS = 15.0  # between two lines
SCORE_SECONDS = 2.0  # of scoring before it is named
_IN_NOTEBOOK = tqdm.__mro__[1].__module__ == "tqdm.notebook"  # and ipywidgets can show a bar there


class StudyProgress(pl.Callback):
    """One bar for a whole command, or in a log file a line every few seconds.

    The bar is for a terminal or a notebook. Both begin with the runs that are over of those
    planned, as ``erm 2/5``; a run is a fold of a study.
    """

    def __init__(self, runs: int, steps: int, label: str) -> None:
        self.runs = runs
        self.steps = steps
        self.label = label
        self.done = 0
        self._bar_shown = sys.stderr.isatty() or _IN_NOTEBOOK
        bar = "{bar}" if _IN_NOTEBOOK else "{bar:20}"
        self._bar: tqdm[Any] = tqdm(
            total=runs * steps,
            unit="step",
            disable=not self._bar_shown,
            bar_format=f"{{desc}} |{bar}| {{percentage:3.0f}}%{{postfix}}",
        )
        self._started: float | None = None
        self._spoke = 0.0
        self._trained = 0
        self._together = 1
        self._title = ""
        self._scoring = Scoring()

    def begin(self, title: str, together: int = 1) -> None:
        """Show that a run begins, or several that train together."""
        self._title = title
        self._together = together
        self._bar.set_description_str(f"{self._counted()}: {title}")
        if together > 1 and not self._bar_shown:
            self._say(f"{self._counted()}: {title}")

    def end(self, title: str, note: str) -> None:
        """Count a run as over, and show a note on it.

        It may have been trained to its end now or before.
        """
        self.done += 1
        self._bar.update(self.done * self.steps - self._bar.n)
        self._say(f"{self._counted()}: {title} {note}")

    def note(self, text: str) -> None:
        """Show a line that ends no run."""
        self._say(f"{self.label}: {text}")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Move the bar to the step that a resumed run continues from."""
        self._bar.update(pl_module.steps_done * self._together)
        if self._started is None:
            self._started = time.monotonic()
            self._spoke = self._started - LINE_SECONDS + FIRST_SECONDS
        if trainer is not None:
            self._scoring.expect(trainer.datamodule)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._trained += len(batch) * self._together
        now = time.monotonic()
        if not self._bar_shown and now - self._spoke > LINE_SECONDS:
            step = f"step {pl_module.steps_done} of {self.steps}"
            pace = self._pace(pl_module.steps_done, now)
            self._say(f"{self._counted()}: {self._title}, {step}, {pace}")
        elif self._bar_shown:
            self._bar.set_postfix_str(self._pace(pl_module.steps_done, now), refresh=False)
        self._bar.update(len(batch) * self._together)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to count the images that are scored."""
        self._scoring.begin(trainer.val_dataloaders, time.monotonic())
        if self._started is None:  # nothing was trained
            self._started = self._scoring.begun

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Show how far scoring is if it takes long."""
        now = time.monotonic()
        scoring = self._scoring
        scoring.images += len(batch.y)
        seconds = now - scoring.begun
        if seconds < SCORE_SECONDS:
            return
        text = scoring.text(seconds)
        step = pl_module.steps_done
        if self._bar_shown:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(0)
            return
        if not scoring.is_named or now - self._spoke > LINE_SECONDS:
            scoring.is_named = True
            self._say(f"{self._counted()}: {self._title}, step {step} of {self.steps}, {text}")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Count the time that scoring took."""
        self._scoring.end(time.monotonic())

    def close(self) -> None:
        """Close the bar, and leave the terminal tidy."""
        self._bar.close()

    def _counted(self) -> str:
        return f"{self.label} {self.done}/{self.runs}"

    def _pace(self, step: int, now: float) -> str:
        """Format the steps per second of this command, and the time left at that pace.

        Evaluations to come are included once one was timed, and counted until then.
        """
        scoring = self._scoring
        seconds = now - (self._started or 0.0) - scoring.seconds
        if seconds <= 0 or not self._trained:
            return ""
        rate = self._trained / seconds
        steps_left = (self.runs - self.done) * self.steps - step * self._together
        pace = f"{rate:.0f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step"
        training = steps_left / rate
        evaluations = scoring.evaluations_left(
            self.runs - self.done, step, self.steps, self._together
        )
        if evaluations and scoring.each is None:
            counted = math.ceil(evaluations)
            noun = "evaluation" if counted == 1 else "evaluations"
            left = f"{roughly(training)} of training left"
            return f"{pace}, {left} and {counted} {noun}, none timed yet"
        scored = evaluations * (scoring.each or 0.0)
        return f"{pace}, {roughly(training + scored)} left"

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        if self._bar_shown:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


class Scoring:
    """What evaluations have taken and will take, in seconds.

    Attributes:
        seconds: of all evaluations so far.
        begun: when the current one began.
        images: of it that were scored.
        is_named: whether a line has named it.
    """

    def __init__(self) -> None:
        self.seconds = self.begun = 0.0
        self.images = self._of = 0
        self.is_named = False
        self._count = 0
        self._every = 0

    def expect(self, data: Any) -> None:
        """Learn how often is scored."""
        self._every = data.eval_every

    def begin(self, loaders: Any, now: float) -> None:
        """Begin an evaluation of the eval sets of these loaders."""
        self.begun = now
        self.images = 0
        self.is_named = False
        self._of = sum(len(loader.scored.indices) for loader in loaders or ())

    def end(self, now: float) -> None:
        """Count the current evaluation as finished."""
        self.seconds += now - self.begun
        self._count += 1

    def text(self, seconds: float) -> str:
        """Format how far the evaluation is, after so many seconds of it."""
        left = seconds / self.images * max(0, self._of - self.images)
        return f"scoring {self.images:,} of {self._of:,} images, {roughly(left)} left for that"

    @property
    def each(self) -> float | None:
        """Return the seconds of one evaluation, or None before the first one is over."""
        return self.seconds / self._count if self._count else None

    def evaluations_left(self, runs: int, step: int, steps: int, together: int) -> float:
        """Count the evaluations to come.

        Args:
            runs: that are not over.
            step: of those that train.
            steps: of each run.
            together: runs that train, and are scored, at once; the others are expected to be as
                many at once.
        """
        if not self._every:
            return 0.0
        in_all = -(-steps // self._every)
        done = max(0, step - 1) // self._every  # one that falls on this step is to come
        return in_all - done + in_all * max(0, runs - together) / together


BEAT_SECONDS = 5.0  # least time between two beats
BEAT_SHARE = 0.005  # of the time that beats may take, for a stack of very many runs


class Heartbeat(pl.Callback):
    """Writes how far these runs are, at most every few seconds.

    See :class:`~dgbench.records.status.Beat`. The speed includes evaluations. A full disk stops no
    training.
    """

    def __init__(self, folders: Sequence[Path], steps: int) -> None:
        self.folders = list(folders)
        self.steps = steps
        self._begun = self._beaten = time.monotonic()
        self._pause = BEAT_SECONDS
        self._first = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begun = time.monotonic()
        self._first = int(pl_module.steps_done)
        self._beat(pl_module)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._beat_in_time(pl_module)

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._beat_in_time(pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._beat(pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if isinstance(exception, KeyboardInterrupt):  # it stopped with a checkpoint of this step
            self._beat(pl_module)

    def _beat_in_time(self, pl_module: Any) -> None:
        if time.monotonic() - self._beaten >= self._pause:
            self._beat(pl_module)

    def _beat(self, pl_module: Any) -> None:
        now = time.monotonic()
        step = int(pl_module.steps_done)
        trained = step - self._first
        speed = round(trained / (now - self._begun), 3) if trained else None
        beat = Beat(step=step, steps=self.steps, steps_per_s=speed, runs=len(self.folders))
        for folder in self.folders:
            with suppress(OSError):
                write_beat(folder, beat)
        self._beaten = time.monotonic()
        self._pause = max(BEAT_SECONDS, (self._beaten - now) / BEAT_SHARE)
