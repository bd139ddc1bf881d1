"""Worker processes that run job after job, and are replaced when they die.

Not a pool of a library: those of ``concurrent.futures``, ``multiprocessing`` and joblib break, or
hang, when the system kills one of their processes. The processes are forked from one server that
has imported torch already, so that neither a worker nor its replacement pays for the imports again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess

from dgbench.interruption import end_with, name_of
from dgbench.sweeps.progress import LOOK_SECONDS
from dgbench.sweeps.work import SweepCommand

PRELOAD = ["torchvision", "sklearn.datasets", "dgbench.training.train_runs", "dgbench.cli.outcome"]
DEATHS = 2  # of a job's process, after which the job is given up
STARTS = 5  # attempts to start a worker
GRACE_SECONDS = 30.0  # for workers to end by themselves, with a checkpoint


@dataclass(frozen=True)
class Ended:
    """How a job ended; ``problem`` is None if all went well."""

    job: int
    problem: str | None
    seconds: float


class _Worker:
    """A process, the connection to it, and the job it runs."""

    def __init__(
        self, context: ForkServerContext, command: SweepCommand, device: str | None
    ) -> None:
        self.job: int | None = None
        self.device = device
        for attempt in range(STARTS):
            self.connection, theirs = context.Pipe()
            self.process: ForkServerProcess = context.Process(
                target=_serve, args=(theirs, command, device)
            )
            try:
                self.process.start()
                return
            except (OSError, EOFError):  # the server died; starting the next process starts another
                self.connection.close()
                if attempt == STARTS - 1:
                    raise
            finally:
                theirs.close()

    def give(self, job: int, overrides: Sequence[str]) -> None:
        self.job = job
        self.since = time.monotonic()
        with suppress(OSError):  # it died idle; reading from it will say so
            self.connection.send((job, list(overrides)))

    def end(self, number: signal.Signals) -> None:
        if self.process.pid:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


def run_jobs(
    command: SweepCommand,
    jobs: Sequence[Sequence[str]],
    devices: Sequence[str | None],
    started: Callable[[int], None],
    waited: Callable[[], None],
) -> Iterator[Ended]:
    """Run jobs in one process for each of ``devices``, and tell how each ended, as they end.

    A job whose process dies runs once more in a new one. Leaving the iterator, by an error or
    Ctrl-C, ends them all.

    Args:
        command: what the user started.
        jobs: overrides of each job.
        devices: for each process the GPU that it sees, or None for whatever there is.
        started: called with the number of a job when it starts.
        waited: called every few seconds in which none ends.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    waiting = deque(range(len(jobs)))
    deaths = Counter[int]()
    workers: list[_Worker] = []
    try:
        for device in devices[: len(jobs)]:
            workers.append(_Worker(context, command, device))
        while True:
            _hand_out(waiting, jobs, workers, started)
            busy = [worker for worker in workers if worker.job is not None]
            if not busy:
                return
            ready = wait([worker.connection for worker in busy], LOOK_SECONDS)
            if not ready:
                waited()
            for worker in busy:
                if worker.connection not in ready:
                    continue
                job = worker.job
                seconds = time.monotonic() - worker.since
                assert job is not None
                try:
                    problem = worker.connection.recv()
                except (EOFError, OSError):  # the process is gone
                    deaths[job] += 1
                    workers[workers.index(worker)] = _Worker(context, command, worker.device)
                    if deaths[job] < DEATHS:
                        waiting.appendleft(job)
                        continue
                    problem = (
                        f"its process died {DEATHS} times (killed, or out of memory); the same "
                        "command continues"
                    )
                worker.job = None
                yield Ended(job, problem, seconds)
    finally:
        _end(workers)


def _hand_out(
    waiting: deque[int],
    jobs: Sequence[Sequence[str]],
    workers: Sequence[_Worker],
    started: Callable[[int], None],
) -> None:
    """Give the jobs that wait to the workers that have none."""
    for worker in workers:
        if worker.job is None and waiting:
            job = waiting.popleft()
            started(job)
            worker.give(job, jobs[job])


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        # not SIGINT: Ctrl-C in a terminal reaches them too, and twice means at once
        worker.end(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.connection.close()
        worker.process.join(max(0.0, deadline - time.monotonic()))
        worker.end(signal.SIGKILL)
        worker.process.join(GRACE_SECONDS)


def _serve(connection: Connection, command: SweepCommand, device: str | None) -> None:
    """Run the jobs that the launcher sends to a worker, and send back how each ended.

    The worker ends when the launcher is gone.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    from tqdm import tqdm

    # its own lock is a semaphore of the system, which a killed process leaves behind
    tqdm.set_lock(threading.RLock())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # before this process touches CUDA
    try:
        while True:
            number, overrides = connection.recv()
            connection.send(command.run(overrides, number))
    except (KeyboardInterrupt, EOFError, OSError):
        os._exit(0)


def _interrupted(number: int, _: object) -> None:
    """Raise KeyboardInterrupt once.

    Ctrl-C reaches a worker from the terminal, and again from the launcher.
    """
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    end_with(KeyboardInterrupt(name_of(number)))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)  # nothing is lost that a checkpoint does not hold
