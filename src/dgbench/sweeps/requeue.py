"""End a job of Slurm as a cluster asks for: with a checkpoint first, where the time allows.

A cluster says in two ways that a job has to go. SIGUSR1 or SIGUSR2 warns of the time limit, and the
job has itself requeued. SIGTERM says that Slurm ends it, to preempt or to cancel it or because its
node is wanted, and Slurm alone knows whether it is to come back: a job that ended by itself before
that would count as failed, and not be requeued.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from dgbench.interruption import end_with, forget, interrupt, stop_soon

# seconds that a run has to reach its next checkpoint before the job is requeued without it
PATIENCE = 60.0
# seconds after SIGTERM in which Slurm ends a job; where it does not, the job continues
GRACE = 150.0
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)

T = TypeVar("T")
Handler = Callable[[int, Any], Any]


class _NotRequeued(BaseException):
    """Carries what submitit says of a job that it gives up.

    It is no Exception, so that nothing that catches the errors of a run catches it.
    """

    def __init__(self, reason: Exception) -> None:
        self.reason = reason


def until_done(work: Callable[[], T], patience: float) -> T:
    """Do the work of a job.

    It is done again, from its checkpoints, if Slurm said that it ends the job and did not.

    Args:
        work: ends with KeyboardInterrupt at its next checkpoint after SIGINT.
        patience: seconds that it has for that.

    Raises:
        SystemExit: the job is in the queue again, or Slurm ends it.
        Exception: submitit gives it up, after too many requeues.
    """
    while True:
        with _Asked(patience) as asked:
            try:
                try:
                    return work()
                except KeyboardInterrupt:
                    asked.answer()
            except _NotRequeued as error:
                raise error.reason from None


class _Asked:
    """What a cluster asks of a job while it works: the handlers of its signals."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.warned_by = 0  #: number of the signal; 0 where there was none
        self.told_to_end = False
        self._waits = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Asked:
        forget()
        requeue = next(filter(callable, map(signal.getsignal, reversed(WARNINGS))), None)
        self._requeue: Handler | None = requeue  # type: ignore[assignment]
        handlers: dict[signal.Signals, Handler] = {
            signal.SIGINT: interrupt,
            signal.SIGTERM: self._end,
            signal.SIGALRM: self._hurry,
        }
        if self._requeue:
            handlers |= dict.fromkeys(WARNINGS, self._warn)
        self._before = {
            number: signal.signal(number, handler) for number, handler in handlers.items()
        }
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def answer(self) -> None:
        """Do what was asked for, now that the work has ended with a checkpoint.

        Raises:
            SystemExit: the job is in the queue again, or Slurm ends it.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.warned_by:
            self._hurry(self.warned_by, None)
            return
        self._waits = True
        _say("stopped with a checkpoint; waits for Slurm to end this job")
        signal.signal(signal.SIGTERM, _ended_by_slurm)
        time.sleep(GRACE)
        _say("Slurm did not end this job: it continues")

    def _warn(self, number: int, frame: Any) -> None:
        """Ask the work for its next checkpoint, and keep the signal for then."""
        if self.warned_by:
            return
        self.warned_by = number
        if self._waits:
            self._hurry(number, frame)
        signal.setitimer(signal.ITIMER_REAL, self.patience)
        if not self.told_to_end:
            stop_soon("Slurm")

    def _end(self, number: int, frame: Any) -> None:
        """Ask the work for its next checkpoint.

        Slurm may say so twice at once, to the job and to its step.
        """
        if not self.told_to_end and not self.warned_by:
            self.told_to_end = True
            stop_soon("Slurm")

    def _hurry(self, number: int, frame: Any) -> None:
        """Have the job requeued at once, from its last checkpoint."""
        assert self._requeue
        requeue_by(self._requeue, self.warned_by, frame)


def requeue_by(handler: Handler, number: int, frame: Any) -> None:
    """Run submitit's handler of a signal.

    What goes wrong in it is no fault of the run that the signal interrupts. If Slurm did not take
    the request to requeue, the job ends without a result: it is lost, and submitted again.
    """
    try:
        handler(number, frame)
    except SystemExit as end:  # the job is in the queue again
        end_with(end)
    except (OSError, subprocess.SubprocessError) as error:
        end_with(SystemExit(f"job not requeued: {error}"))
    except Exception as error:  # submitit: timed out too many times
        end_with(_NotRequeued(error))


def _ended_by_slurm(*_: object) -> None:
    end_with(SystemExit("ended by Slurm"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
