"""``hydra/launcher=slurm``: the jobs of a sweep as jobs of a Slurm cluster, through submitit.

submitit writes the batch scripts, carries the work to the nodes and requeues a job that reaches its
time limit. What it cannot tell without Slurm's accounting is that a job is lost (killed, out of
memory, its node gone): its own launcher would wait without end. Here ``squeue`` and the files that
a job leaves decide; a lost job is submitted again.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from dgbench.configuration import typed_command
from dgbench.errors import ConfigError, one_line
from dgbench.plan.report_line import report_line
from dgbench.plan.studies import Planner
from dgbench.records.commands import expect_jobs
from dgbench.sweeps.arrays import Arrays, Pack, refusal
from dgbench.sweeps.local import labels, raise_failed, refuse_optimizers, tell
from dgbench.sweeps.queue import QueueError, in_queue, largest_array, last_state
from dgbench.sweeps.requeue import PATIENCE, until_done
from dgbench.sweeps.sizes import (
    JobSize,
    SizedJob,
    Workload,
    packed,
    sized_jobs,
)
from dgbench.sweeps.slurm_keys import SlurmKeys
from dgbench.sweeps.submissions import Queued, Submissions, write_result
from dgbench.sweeps.work import THREADS, SweepCommand

OURS = ("submitit_folder", "max_num_timeout", "resubmit", "poll_seconds", "silence_minutes")
GENERIC = (
    "name",
    "timeout_min",
    "mem_gb",
    "nodes",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
)
#: looks at the queue in which a job must be missing, without a result, to be lost: its files may
#: come late
POLLS = 2
TELL_SECONDS = 60.0
HELD = "held"  # in the reason why a job waits: JobHeldUser, launch failed requeued held
SHOWN = 8  # ids of the queue that are spelled out


class SlurmLauncher(Launcher):
    """Jobs of a Slurm array; with ``wait=false`` they go on without this command.

    Its keys, :data:`OURS` and those that submitit and sbatch take, stand in
    ``conf/hydra/launcher/slurm.yaml``.
    """

    queue = True  #: its jobs go on when this command ends
    in_this_folder = True  #: its workers start in the folder of the command

    def __init__(self, **params: Any) -> None:
        self.watching = {key: params.pop(key) for key in OURS}
        self.params: dict[str, Any] = {}
        for key, value in params.items():
            if OmegaConf.is_config(value):
                value = OmegaConf.to_container(value)
            self.params[key] = value

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        refuse_optimizers(config)
        keys: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
        SlurmKeys(**keys)
        self.config = config
        self.command = SweepCommand.of(hydra_context, config, task_function)
        self.planner = Planner.of_sweep(hydra_context.config_loader, config)

    def look(self) -> None:
        """Ask Slurm what its queue holds, before anything is written.

        Raises:
            ConfigError: Slurm or submitit is not there.
        """
        try:
            import submitit  # noqa: F401

            self.alive = in_queue()
        except ImportError as error:
            raise ConfigError(f"{error}; pip install 'dgbench[slurm]'") from error
        except QueueError as error:
            raise ConfigError(
                f"no Slurm here ({error}); use hydra/launcher=local, or log in to the cluster"
            ) from error

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit the jobs that the queue does not hold yet, and wait for all.

        Raises:
            ConfigError: Slurm refuses the jobs.
            JobsFailedError: some failed; each was reported when it did.
        """
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        alive = self.alive
        folder = Path(str(self.watching["submitit_folder"])).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        self.submissions = Submissions(folder)
        self.size = JobSize.asked(self.config)
        places = list(map(self.planner.place, job_overrides))
        held = numbers_of(self.submissions.held(alive, [key for _, key in places]))
        waiting = [SizedJob(words) for i, words in enumerate(job_overrides) if i in held]
        # others may have been done since the sweeper looked
        undone = [
            job_overrides[i]
            for i, place in enumerate(places)
            if i not in held and place.is_left(self.config.retry)
        ]
        self.jobs = [*waiting, *self._sized(undone)]
        places = [self.planner.place(job.words) for job in self.jobs]
        expect_jobs(places, typed_command(self.config.hydra.job.name))
        self.names = labels([job.words for job in self.jobs])
        self.keys = [key for _, key in places]
        self.queued = self.submissions.held(alive, self.keys)
        self.ended: dict[int, str] = {}  # number of a job -> what went wrong, or an empty text
        self.times_lost = Counter[int]()
        self.told_held = False
        self.full = False  # whether it was said that the queue is full
        self.crowd = 0  # jobs of this user in the queue when it was last full
        self.tried = 0.0  # when jobs were last submitted
        parallelism: Any = self.params["array_parallelism"] or len(self.jobs)
        self.arrays = Arrays(self._submit_array, parallelism, largest_array())
        self._tell_before(alive)
        self._submit(range(len(waiting), len(self.jobs)))
        if not self.config.wait:
            self._leave()
            self._refuse_rest()
            return []
        try:
            self._wait()
        except KeyboardInterrupt:
            if self.queued:
                tell(
                    "the jobs stay in the queue: the same command watches them again, "
                    f"{self._cancel()} ends them"
                )
            if self.arrays.waiting:
                tell(
                    f"{len(self.arrays.waiting)} jobs wait here and are not submitted; "
                    "the same command submits them"
                )
            raise
        raise_failed([self.names[n] for n in sorted(self.ended) if self.ended[n]], len(self.jobs))
        return []

    # ---- submitting
    # ---------------------------------------------------------------------------------------------

    def _sized(self, jobs: Sequence[Sequence[str]]) -> list[SizedJob]:
        """Count the runs that jobs have left; estimates of shift have none."""
        if "sweep" not in self.config:
            return [SizedJob(words) for words in jobs]
        return sized_jobs(jobs, Workload(self.planner))

    def _tell_before(self, alive: Mapping[str, str]) -> None:
        """Print how many jobs of an earlier command are in the queue, and how others left it."""
        states = Counter[str]()
        for job in self.queued:
            state = alive[job.id].partition(" ")[0].lower()
            states[state] += len(job.numbers)
        held = numbers_of(self.queued)
        ends = self.submissions.ends(
            [key for number, key in enumerate(self.keys) if number not in held]
        )
        listed_ends = ", ".join(f"{n} {end}" for end, n in Counter(ends.values()).items())
        if held:
            subject = "job is" if len(held) == 1 else "jobs are"
            listed = ", ".join(f"{n} {state}" for state, n in states.items())
            tell(f"{len(held)} {subject} in the queue already, from an earlier command ({listed})")
        if ends:
            subject = "job that is" if len(ends) == 1 else "jobs that are"
            tell(f"{len(ends)} {subject} not done left the queue ({listed_ends}): submitted again")

    def _leave(self) -> None:
        """Tell how to watch, end and continue the jobs that stay in the queue."""
        ids = [job.id for job in self.queued]
        if not ids:
            return
        shown = ", ".join(ids[:SHOWN])
        if len(ids) > SHOWN:
            shown += f" and {len(ids) - SHOWN} more"
        status = report_line([self.config.hydra.sweep.dir], ["report=status"])
        noun = "job" if len(ids) == 1 else "jobs"
        tell(f"in the queue: {len(ids)} {noun} ({shown}); this command does not wait")
        tell(f"watch: {status}")
        tell(f"end: {self._cancel()}")
        tell("the same command again says what is left, and submits what was lost or cancelled")

    def _refuse_rest(self) -> None:
        """Refuse to leave jobs that are not in the queue.

        Raises:
            ConfigError: the queue had no room for some.
        """
        n_waiting = len(self.arrays.waiting)
        n_queued = len(self.queued)
        if n_waiting:
            raise ConfigError(
                f"{n_waiting} of {n_waiting + n_queued} jobs of the queue are not submitted "
                f"({self.arrays.limit}); the same command submits them once there is room, and "
                f"without wait=false waits for it{self._fewer(n_queued, 'makes few enough')}"
            )

    def _cancel(self) -> str:
        return f"scancel {' '.join(dict.fromkeys(job.id.partition('_')[0] for job in self.queued))}"

    def _submit(self, numbers: Sequence[int], most: int | None = None) -> None:
        """Submit jobs, and what had no room before, in arrays that the cluster takes.

        The rest waits here.
        """
        self.arrays.waiting += self._packs(numbers)
        if not self.arrays.waiting:
            return
        arrays = self._send(most)
        sent = list(chain.from_iterable(arrays))
        if sent:
            n = sum(len(pack) for _, pack in sent)
            ids = " to ".join(dict.fromkeys([sent[0][0], sent[-1][0]]))
            tell(f"{n} of the sweep's jobs submitted as {len(sent)} of the queue's: {ids}")
        if len(arrays) > 1 and not self.arrays.limit:
            tell(
                f"they are in {len(arrays)} arrays: this cluster takes "
                f"{self.arrays.largest} jobs in "
                f"one{self._fewer(self.arrays.largest, 'makes one')}"
            )
        if self.config.wait and self.arrays.limit and (sent or not self.full):
            n = len(self.arrays.waiting)
            tell(
                f"the queue has no room for {n} more ({self.arrays.limit}): they wait here until "
                "it has"
            )
        self.full = bool(self.arrays.limit)

    def _submit_array(self, packs: Sequence[Pack], parallelism: int) -> list[str]:
        """Submit packs of jobs as one array.

        Raises:
            NoRoomError, ArrayTooLargeError, ConfigError: Slurm does not take it.
        """
        import submitit

        folder = self.submissions.folder
        batches = []
        for pack in packs:
            batches.append({self.keys[number]: self.jobs[number].words for number in pack})
        params = {**self.params, "array_parallelism": parallelism}
        warned_before: Any = self.params["signal_delay_s"]
        patience = max(1.0, min(PATIENCE, warned_before / 2))
        said = io.StringIO()  # submitit repeats on the screen what sbatch says
        try:
            with redirect_stderr(said):
                executor = submitit.AutoExecutor(
                    folder=folder,
                    cluster="slurm",
                    slurm_max_num_timeout=self.watching["max_num_timeout"],
                )
                given = {}
                for key, value in params.items():
                    if value is not None:
                        given[key if key in GENERIC else f"slurm_{key}"] = value
                executor.update_parameters(**given)
                with executor.batch():
                    jobs = [
                        executor.submit(Batch(self.command, batch, folder, patience))
                        for batch in batches
                    ]
        except Exception as error:  # submitit raises whatever sbatch says
            raise refusal(error) from error
        sys.stderr.write(said.getvalue())
        for job, batch, pack in zip(jobs, batches, packs, strict=True):
            self.submissions.note(job.job_id, list(batch))
            self.queued.append(Queued(job.job_id, list(pack)))
        return [job.job_id for job in jobs]

    def _send(self, most: int | None) -> list[list[tuple[str, Pack]]]:
        """Send what waits here.

        Raises:
            ConfigError: the queue takes no job of this user at all.
        """
        arrays = self.arrays.send(most)
        self.tried = time.monotonic()
        self.crowd = self._crowd() if self.arrays.limit else 0
        if not self.arrays.limit or self.crowd or self.arrays.is_shared:
            return arrays
        arrays += self.arrays.send(1)  # the last of ours may have ended between the two answers
        if self.arrays.limit and not arrays:
            raise ConfigError(
                f"Slurm takes no job of yours ({self.arrays.limit}), though none is in its queue; "
                "choose another hydra.launcher.account, hydra.launcher.qos or "
                "hydra.launcher.partition"
            )
        return arrays

    def _crowd(self) -> int:
        """Count the jobs of this user in the queue."""
        try:
            return len(in_queue())
        except QueueError:
            return len(self.queued)

    def _submit_freed(self, numbers: Sequence[int], alive: Mapping[str, str]) -> None:
        """Submit jobs again, and as much of what waits here as the queue may have room for."""
        freed = self.crowd - len(alive)
        if not self.arrays.waiting:
            self._submit(numbers)
        elif freed > 0 or time.monotonic() - self.tried > TELL_SECONDS:
            self._submit(numbers, most=max(1, freed))
        else:
            self.arrays.waiting += self._packs(numbers)

    def _packs(self, numbers: Sequence[int]) -> list[Pack]:
        """Group jobs that one job of the queue is to run."""
        packs = packed([self.jobs[number].runs for number in numbers], self.size)
        grouped = []
        for pack in packs:
            grouped.append([numbers[i] for i in pack])
        return grouped

    def _fewer(self, most: int, outcome: str) -> str:
        """Find with which sweep.runs_per_job all jobs are at most ``most`` of the queue.

        Returns an empty text if that is open.
        """
        if not most or OmegaConf.select(self.config, "sweep") is None:
            return ""
        runs_by_job = [job.runs for job in self.jobs]
        n_runs = sum(runs_by_job)
        for runs in range(max(1, -(-n_runs // most)), n_runs + 1):
            if len(packed(runs_by_job, replace(self.size, runs=runs))) <= most:
                return f"; sweep.runs_per_job={runs} {outcome}"
        return ""

    def _wait(self) -> None:
        heard = last_progress = time.monotonic()
        while self.queued or self.arrays.waiting:
            time.sleep(self.watching["poll_seconds"])
            try:
                alive = in_queue()
            except QueueError as error:
                if time.monotonic() - heard > 60 * self.watching["silence_minutes"]:
                    raise ConfigError(
                        f"no answer from Slurm ({error}); the same command watches its jobs again"
                    ) from error
                continue
            heard = time.monotonic()
            self._tell_held(alive)
            to_submit: list[int] = []
            for job in list(self.queued):
                result = self.submissions.result(job.id)
                job.missing = 0 if job.id in alive else job.missing + 1
                if result is None and job.missing < POLLS:
                    continue
                self.queued.remove(job)
                to_submit += self._ended(job, result)
            self._submit_freed(to_submit, alive)
            if time.monotonic() - last_progress > TELL_SECONDS and self.queued:
                last_progress = time.monotonic()
                states = Counter(alive.get(job.id, "leaving") for job in self.queued)
                states["waiting here"] += len(self.arrays.waiting)
                tell("; ".join(f"{n} {state.lower()}" for state, n in states.items() if n))

    def _tell_held(self, alive: Mapping[str, str]) -> None:
        """Print once which jobs wait for somebody to release them.

        Slurm holds a job whose node failed at its start, for one.
        """
        held = [job.id for job in self.queued if HELD in alive.get(job.id, "").lower()]
        if held and not self.told_held:
            ids = " ".join(held)
            tell(f"Slurm holds {ids} ({alive[held[0]]}); scontrol release {ids} lets them go on")
        self.told_held = bool(held)

    def _ended(self, job: Queued, result: dict[str, str] | str | None) -> Iterator[int]:
        """Print how a job of the queue ended; yield the numbers of the jobs to submit again."""
        state = "" if result is not None else last_state(job.id)
        for number in job.numbers:
            if isinstance(result, dict):
                problem = result.get(self.keys[number], "")
            elif result is not None:
                problem = result
            elif state == "CANCELLED":
                problem = f"job {job.id} was cancelled"
            else:
                self.times_lost[number] += 1
                problem = f"job {job.id} is lost{f' ({state})' if state else ''}"
                if self.times_lost[number] <= self.watching["resubmit"]:
                    tell(f"{self.names[number]}: {problem}; submitted again")
                    yield number
                    continue
            self.ended[number] = problem
            outcome = f"FAILED: {problem}" if problem else "done"
            tell(f"[{len(self.ended)}/{len(self.jobs)}] {self.names[number]}: {outcome}")


class Batch:
    """Jobs that one job of the queue runs, one after the other.

    After a requeue those that are done are skipped.

    Args:
        command: what the user started.
        jobs: words of each job by its key.
        folder: that receives the result, see :func:`write_result`.
        patience: seconds that a run has, once it was warned, to reach its next checkpoint.
    """

    patience = PATIENCE  #: of jobs that an earlier version submitted
    #: folder of the command, in which relative ones are meant; sbatch may be told another
    home: str | None = None

    def __init__(
        self,
        command: SweepCommand,
        jobs: Mapping[str, Sequence[str]],
        folder: Path,
        patience: float = PATIENCE,
    ) -> None:
        self.command = command
        self.patience = patience
        self.home = os.getcwd()
        self.jobs = {key: list(words) for key, words in jobs.items()}
        self.folder = folder

    def __call__(self) -> None:
        """Run the jobs, and write what went wrong."""
        if self.home:
            os.chdir(self.home)
        try:
            problems = self._run()
        except Exception as error:
            # submitit gives up; what it writes of that is a pickle, which nothing reads
            write_result(self.folder, job_of_queue(), {"error": one_line(error, None)})
            raise
        write_result(self.folder, job_of_queue(), {"problems": problems})

    def _run(self) -> dict[str, str]:
        """Run the jobs; return what went wrong, by the key of the job."""
        for name in THREADS:  # before torch is imported
            os.environ.setdefault(name, os.environ.get("SLURM_CPUS_PER_TASK", "1"))
        ends = until_done(self._run_jobs, self.patience)
        return {key: problem for key, problem in ends.items() if problem is not None}

    def _run_jobs(self) -> dict[str, str | None]:
        jobs = enumerate(self.jobs.items())
        return {key: self.command.run(words, number) for number, (key, words) in jobs}

    def checkpoint(self) -> Any:
        """Return what submitit runs after a requeue.

        These are the same jobs, whose runs continue from their checkpoints.
        """
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def numbers_of(queued: Iterable[Queued]) -> set[int]:
    """Return the numbers of the jobs of a sweep that jobs of the queue run."""
    return set(chain.from_iterable(job.numbers for job in queued))


def job_of_queue() -> str:
    """Look up the id of the job of the queue that this process is, ``12_3`` in an array."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array is None:
        return os.environ.get("SLURM_JOB_ID", "")
    return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"
