"""``hydra/launcher=slurm``: the jobs of a sweep as jobs of a Slurm cluster, through submitit.

submitit writes the batch scripts, carries the work to the nodes and requeues a job that reaches its time limit. What it
cannot tell without Slurm's accounting is that a job is lost (killed, out of memory, its node gone): its own launcher
would wait without end. Here ``squeue`` and the files that a job leaves decide; a lost job is submitted again.
"""

from __future__ import annotations

import getpass
import io
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from hydra.core.utils import JobReturn, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from pydantic import Field

from dgbench.configuration import command_line, command_words, typed_words
from dgbench.errors import ConfigError, one_line
from dgbench.interruption import end_with
from dgbench.plan.studies import Planner
from dgbench.records.commands import expect_jobs
from dgbench.records.files import open_regular, read_json, write_whole
from dgbench.records.status import roughly
from dgbench.sweeps.local import LauncherKeys, labels, raise_failed, refuse_optimizers, tell
from dgbench.sweeps.sizes import JobSize, Part, Speeds, Workload, clocked_here, packed, parts_of_jobs
from dgbench.sweeps.work import THREADS, SweepCommand
from dgbench.validation import Count0, Folder, NonBlank, OneLine, Positive, Refusal

OURS = ("submitit_folder", "max_num_timeout", "resubmit", "poll_seconds", "silence_minutes")
GENERIC = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
POLLS = 2  # in which a job must be missing from the queue, without a result, to be lost: its files may come late
TELL_SECONDS = 60.0
SHOWN = 8  # ids of the queue that are spelled out
RESULT = "result.json"  # behind the id of a job of the queue
LOG_END = 4096  # bytes of a log in which its last line is looked for
SECONDS = 30.0  # for an answer of Slurm: none keeps us waiting without end


Limit = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Refusal("is not an integer >= 1", "give one, or null for the cluster's own limit"),
]
Usual = Annotated[
    Annotated[int, Field(ge=1)] | None, Refusal("is not an integer >= 1", "give one, or null for the cluster's default")
]
Duration = Annotated[Positive, Refusal("is not a number > 0", "give one")]


Line = Annotated[Annotated[NonBlank, OneLine], Refusal("is no text of one line", "give some")]  # of the batch script


class SlurmKeys(LauncherKeys):
    """Keys of ``hydra/launcher=slurm``."""

    timeout_min: Limit
    signal_delay_s: Count0
    max_num_timeout: Count0
    nodes: Usual
    tasks_per_node: Usual
    cpus_per_task: Usual
    gpus_per_node: Annotated[
        Annotated[int, Field(ge=0)] | None, Refusal("is not an integer >= 0", "give one, or null for none")
    ]
    mem_gb: Annotated[
        Positive | None, Refusal("is not a number > 0", "give one, or null for the cluster's default")
    ]  # fmt: skip
    array_parallelism: Limit
    submitit_folder: Folder
    name: Line
    partition: Line | None
    account: Line | None
    qos: Line | None
    constraint: Line | None
    exclude: Line | None
    setup: Annotated[list[Line] | None, Refusal("is no list of shell lines", 'write e.g. ["module load cuda"]')]
    additional_parameters: Annotated[
        Mapping[Line, Line | int | float | bool | None],
        Refusal("is no mapping of options", "write e.g. {mail-type: END}"),
    ]
    resubmit: Count0
    poll_seconds: Duration
    silence_minutes: Duration


class SlurmLauncher(Launcher):
    """Jobs of a Slurm array; with ``wait=false`` they go on without this command.

    Its keys, :data:`OURS` and those that submitit and sbatch take, stand in ``conf/hydra/launcher/slurm.yaml``.
    """

    queue = True  #: its jobs go on when this command ends
    in_this_folder = True  #: its workers start in the folder of the command

    def __init__(self, **params: Any) -> None:
        self.watching = {key: params.pop(key) for key in OURS}
        self.params = {k: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for k, v in params.items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        refuse_optimizers(config)
        keys: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
        SlurmKeys(**keys)
        self.config, self.command = config, SweepCommand.of(hydra_context, config, task_function)
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
            raise ConfigError(f"no Slurm here ({error}); use hydra/launcher=local, or log in to the cluster") from error

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the jobs that the queue does not hold yet, and wait for all.

        Raises:
            ConfigError: Slurm refuses the jobs.
            JobsFailedError: some failed; each was reported when it did.
        """
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        alive, folder = self.alive, Path(str(self.watching["submitit_folder"]))
        folder.mkdir(parents=True, exist_ok=True)
        self.submissions, self.size = Submissions(folder), JobSize.asked(self.config)
        places = list(map(self.planner.place, job_overrides))
        held = {number for job in self.submissions.held(alive, [key for _, key in places]) for number in job.numbers}
        waiting = [Part(words) for i, words in enumerate(job_overrides) if i in held]
        undone = [i for i, place in enumerate(places) if i not in held and place.is_left(self.config.retry)]  # by now
        self.jobs = [*waiting, *self._in_parts([job_overrides[i] for i in undone])]
        places = [self.planner.place(job.words) for job in self.jobs]
        expect_jobs(places, command_line(typed_words(self.config.hydra.job.name)))  # anew: some may be split by now
        self.names, self.keys = labels([job.words for job in self.jobs]), [key for _, key in places]
        self.queued = self.submissions.held(alive, self.keys)
        self.ended: dict[int, str] = {}  # number of a job -> what went wrong, empty where nothing did
        self.times_lost = Counter[int]()
        self._tell_before(alive)
        self._submit(range(len(waiting), len(self.jobs)))
        if not self.config.wait:
            self._leave()
            return []
        try:
            self._wait()
        except KeyboardInterrupt:
            if self.queued:
                tell(f"the jobs stay in the queue: the same command watches them again, {self._cancel()} ends them")
            raise
        raise_failed([self.names[n] for n in sorted(self.ended) if self.ended[n]], len(self.jobs))
        return []

    # ---- submitting ---------------------------------------------------------------------------------------------

    def _in_parts(self, jobs: Sequence[Sequence[str]]) -> list[Part]:
        """Split jobs to the size that is asked for; one that is split stays so, for the same command again."""
        if self.size.runs is None and not self.size.by_time:
            return [Part(words) for words in jobs]
        folder = Path(self.config.hydra.sweep.dir)
        speeds = Speeds(clocked_here if self.size.can_clock else None, folder, self.size.device)
        by_job = parts_of_jobs(jobs, Workload(self.planner), self.size, speeds)
        sized = [part for parts in by_job for part in parts]
        unknown = sum(part.seconds is None for part in sized)
        if self.size.by_time and unknown:
            location = "" if self.size.can_clock else ", on a machine with a GPU,"
            tell(
                "; ".join([*speeds.notes(), f"how long {unknown} of {len(sized)} jobs take is not known, so they are "])
                + f"neither split nor packed by time; the same command with plan=probe{location} clocks them"
            )
        cut = [(words, parts) for words, parts in zip(jobs, by_job, strict=True) if len(parts) > 1]
        if cut:
            subject, n = "1 job is" if len(cut) == 1 else f"{len(cut)} jobs are", sum(len(parts) for _, parts in cut)
            tell(f"{subject} split into {n}, each expected to take less than {roughly(self.size.splits or 0)}")
        for words, parts in cut:
            self.planner.place(words).keep_parts([part.extra for part in parts])
        return sized

    def _tell_before(self, alive: Mapping[str, str]) -> None:
        """Print how many jobs of an earlier command are in the queue, and how those that are not done left it."""
        states = Counter(alive[job.id].partition(" ")[0].lower() for job in self.queued for _ in job.numbers)
        held = {number for job in self.queued for number in job.numbers}
        ends = self.submissions.ends([key for number, key in enumerate(self.keys) if number not in held])
        listed_ends = ", ".join(f"{n} {end}" for end, n in Counter(ends.values()).items())
        if held:
            subject = "job is" if len(held) == 1 else "jobs are"
            listed = ", ".join(f"{n} {state}" for state, n in states.items())
            tell(f"{len(held)} {subject} in the queue already, from an earlier command ({listed})")
        if ends:
            subject = "job that is" if len(ends) == 1 else "jobs that are"
            tell(f"{len(ends)} {subject} not done left the queue ({listed_ends}): submitted again")

    def _leave(self) -> None:
        """Say how to watch, end and continue the jobs that stay in the queue."""
        ids = [job.id for job in self.queued]
        if not ids:
            return
        shown = ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")
        status = command_line([*command_words("report"), "report=status", f"runs=[{self.config.hydra.sweep.dir}]"])
        tell(f"in the queue: {len(ids)} {'job' if len(ids) == 1 else 'jobs'} ({shown}); this command does not wait")
        tell(f"watch: {status}")
        tell(f"end: {self._cancel()}")
        tell("the same command again says what is open, and submits what was lost or cancelled")

    def _cancel(self) -> str:
        return f"scancel {' '.join(dict.fromkeys(job.id.partition('_')[0] for job in self.queued))}"

    def _submit(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        packs = packed([self.jobs[number] for number in numbers], self.size)
        batches = [{self.keys[numbers[i]]: self.jobs[numbers[i]].words for i in pack} for pack in packs]
        import submitit

        try:
            executor = submitit.AutoExecutor(
                folder=self.submissions.folder, cluster="slurm", slurm_max_num_timeout=self.watching["max_num_timeout"]
            )
            named = {key if key in GENERIC else f"slurm_{key}": value for key, value in self.params.items()}
            executor.update_parameters(**{key: value for key, value in named.items() if value is not None})
            with executor.batch():
                folder = self.submissions.folder
                queue_jobs = [executor.submit(Batch(self.command, jobs, folder)) for jobs in batches]
        except Exception as error:  # submitit raises whatever sbatch says
            raise ConfigError(f"Slurm refuses the jobs: {' '.join(str(error).split())}; see hydra.launcher") from error
        for job, jobs, pack in zip(queue_jobs, batches, packs, strict=True):
            self.submissions.note(job.job_id, list(jobs))
            self.queued.append(Queued(job.job_id, [numbers[i] for i in pack]))
        ids = queue_jobs[0].job_id if len(queue_jobs) == 1 else f"{queue_jobs[0].job_id} to {queue_jobs[-1].job_id}"
        tell(f"{len(numbers)} of the sweep's jobs submitted as {len(queue_jobs)} of the queue's: {ids}")

    # ---- watching -----------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        heard = last_progress = time.monotonic()
        while self.queued:
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
            to_submit: list[int] = []
            for job in list(self.queued):
                result = self.submissions.result(job.id)
                job.missing = 0 if job.id in alive else job.missing + 1
                if result is None and job.missing < POLLS:
                    continue
                self.queued.remove(job)
                to_submit += self._ended(job, result)
            self._submit(to_submit)
            if time.monotonic() - last_progress > TELL_SECONDS and self.queued:
                last_progress = time.monotonic()
                states = Counter(alive.get(job.id, "leaving") for job in self.queued)
                tell("; ".join(f"{n} {state.lower()}" for state, n in states.items()))

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
    """Jobs that one job of the queue runs, one after the other. After a requeue those that are done are skipped.

    Args:
        command: what the user started.
        jobs: words of each job by its key.
        folder: that receives the result, see :func:`write_result`.
    """

    def __init__(self, command: SweepCommand, jobs: Mapping[str, Sequence[str]], folder: Path) -> None:
        self.command = command
        self.jobs = {key: list(words) for key, words in jobs.items()}
        self.folder = folder

    def __call__(self) -> None:
        """Run the jobs, and write what went wrong."""
        try:
            problems = self._run()
        except Exception as error:  # submitit gives up; what it writes of that is a pickle, which nobody reads
            write_result(self.folder, job_of_queue(), {"error": one_line(error, None)})
            raise
        write_result(self.folder, job_of_queue(), {"problems": problems})

    def _run(self) -> dict[str, str]:
        """Run the jobs; return what went wrong, by the key of the job."""
        for name in THREADS:  # before torch is imported
            os.environ.setdefault(name, os.environ.get("SLURM_CPUS_PER_TASK", "1"))
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # one of them is Slurm's warning of the time limit
            if callable(handler := signal.getsignal(number)):
                signal.signal(number, partial(_handle, handler))
        try:
            ends = {key: self.command.run(words, number) for number, (key, words) in enumerate(self.jobs.items())}
        except _NotRequeued as error:
            raise error.reason from None
        return {key: problem for key, problem in ends.items() if problem is not None}

    def checkpoint(self) -> Any:
        """Return what submitit runs after a requeue: the same jobs, whose runs continue from their checkpoints."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class _NotRequeued(BaseException):
    """Carries what submitit says of a job that it gives up past everything that catches errors of a run."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason


def _handle(handler: Callable[[int, Any], Any], number: int, frame: Any) -> None:
    """Run submitit's handler of a signal; what goes wrong in it is no fault of the run that the signal interrupts.

    Where Slurm did not take the request to requeue, the job ends without a result: it is lost, and submitted again.
    """
    try:
        handler(number, frame)
    except SystemExit as end:  # the job is in the queue again
        end_with(end)
    except (OSError, subprocess.SubprocessError) as error:
        end_with(SystemExit(f"job not requeued: {error}"))
    except Exception as error:  # submitit: timed out too many times
        end_with(_NotRequeued(error))


def job_of_queue() -> str:
    """Look up the id of the job of the queue that this process is, ``12_3`` in an array."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array is None:
        return os.environ.get("SLURM_JOB_ID", "")
    return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"


def write_result(folder: Path, job: str, result: Mapping[str, Any]) -> None:
    """Write how a job of the queue ended beside submitit's own files, as JSON.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(folder / f"{job}_{RESULT}", json.dumps(result, indent=1) + "\n")


class QueueError(Exception):
    """Slurm gave no answer."""


def in_queue() -> dict[str, str]:
    """Read state and reason of every job of this user that waits or runs, by its id (``12_3`` in an array).

    Raises:
        QueueError: Slurm gave no answer.
    """
    lines = _ask(["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i|%T|%r"])
    entries = (line.split("|") for line in lines.splitlines() if line.count("|") == 2)
    return {job.strip(): f"{state} ({reason})" for job, state, reason in entries}


def last_state(job: str) -> str:
    """Look up how a job left the queue, ``FAILED``, ``CANCELLED``, ...; empty once Slurm no longer remembers it."""
    try:
        answer = _ask(["scontrol", "--oneliner", "show", "job", job])
    except QueueError:
        return ""
    state = re.search(r"\bJobState=(\w+)", answer)
    return state[1] if state else ""


def _ask(command: list[str]) -> str:
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueueError(f"{command[0]}: {error}") from error
    if asked.returncode:
        raise QueueError(f"{command[0]}: {' '.join(asked.stderr.split())}")
    return asked.stdout


@dataclass
class Queued:
    """One job of the queue."""

    id: str
    numbers: list[int]  # of our jobs
    missing: int = 0  # polls


class Submissions:
    """The files of submitit, and beside them which jobs of a sweep each job of the queue runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, job: str, keys: Sequence[str]) -> None:
        """Remember what a job of the queue runs.

        Raises:
            OSError: it cannot be written.
        """
        (self.folder / f"{job}_jobs.json").write_text(json.dumps(list(keys)))

    def held(self, alive: Mapping[str, str], keys: Sequence[str]) -> list[Queued]:
        """Find the jobs of the queue that run some of these jobs of a sweep."""
        numbers = {key: number for number, key in enumerate(keys)}
        queued = []
        for job in alive:
            job_numbers = [numbers[key] for key in self._keys(self.folder / f"{job}_jobs.json") if key in numbers]
            if job_numbers:
                queued.append(Queued(job, job_numbers))
        return queued

    def ends(self, keys: Sequence[str]) -> dict[str, str]:
        """Look up how each job, none of which is in the queue, last left it: ``failed``, ``cancelled`` or ``lost``."""
        last: dict[str, str] = {}
        for file in sorted(self.folder.glob("*_jobs.json"), key=_written_at):
            last |= dict.fromkeys(self._keys(file), file.name.removesuffix("_jobs.json"))
        jobs = {job: self._end(job) for job in {last[key] for key in keys if key in last}}
        return {key: jobs[last[key]] for key in keys if key in last}

    def result(self, job: str) -> dict[str, str] | str | None:
        """Read the result of a job of the queue: problems by key, or the error that ended it; None if it has none.

        A job that ended before it could write one, because its node lacks a package, say, leaves submitit's pickle, of
        which no more is read than that it is there.
        """
        file = self.folder / f"{job}_{RESULT}"
        try:
            content = read_json(file)
        except FileNotFoundError:
            return self._last_words(job) if (self.folder / f"{job}_0_result.pkl").is_file() else None
        except (OSError, ValueError) as error:
            return f"job {job}: its result {file} cannot be read ({one_line(error)})"
        problems = content.get("problems") if isinstance(content, dict) else None
        if isinstance(problems, dict):
            return {str(key): _printable(problem) for key, problem in problems.items()}
        reason = content.get("error") if isinstance(content, dict) else None
        return f"job {job}: {_printable(reason or 'its result says nothing')}"

    def _last_words(self, job: str) -> str:
        """Return the last line that a job of the queue wrote to its log."""
        try:
            with open_regular(self.folder / f"{job}_0_log.err") as log:
                size = log.seek(0, io.SEEK_END)
                log.seek(max(0, size - LOG_END))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        return f"job {job}: {_printable(lines[-1] if lines else 'ended without a result')}"

    def _end(self, job: str) -> str:
        if self.result(job) is not None:
            return "failed"
        return {"CANCELLED": "cancelled", "COMPLETED": "failed"}.get(last_state(job), "lost")

    @staticmethod
    def _keys(file: Path) -> list[str]:
        try:
            return [str(key) for key in read_json(file)]
        except (OSError, ValueError, TypeError):  # not of this sweep, or cut short
            return []


def _written_at(file: Path) -> int:
    """Return when a file was written, in ns; 0 of a link that leads nowhere."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _printable(text: object) -> str:
    """Put what a file says into one line of characters that a terminal shows."""
    line = " ".join(str(text).split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)
