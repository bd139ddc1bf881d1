"""``hydra/launcher=slurm``: the jobs of a sweep as jobs of a Slurm cluster, through submitit.

submitit writes the batch scripts, carries the work to the nodes and requeues a job that reaches its time limit. What it
cannot tell without Slurm's accounting is that a job is lost (killed, out of memory, its node gone): its own launcher
would wait without end. Here ``squeue`` and the files that a job leaves decide; a lost job is submitted again.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from dgbench.configuration import command_words, typed_words
from dgbench.errors import ConfigError
from dgbench.plan.compose import Composer
from dgbench.plan.studies import Planner
from dgbench.records.commands import expect_jobs, is_left, keep_parts
from dgbench.records.status import roughly
from dgbench.sweeps.launcher_keys import SlurmKeys
from dgbench.sweeps.local import labels, raise_failed, tell
from dgbench.sweeps.plan import speeds_for
from dgbench.sweeps.sizes import JobSize, SizedJob, packed, sized
from dgbench.sweeps.submissions import Queued, QueueError, Submissions, in_queue, last_state
from dgbench.sweeps.work import Batch, SweepCommand

OURS = ("submitit_folder", "max_num_timeout", "resubmit", "poll_seconds", "silence_minutes")
GENERIC = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
POLLS = 2  # in which a job must be missing from the queue, without a result, to be lost: its files may come late
TELL_SECONDS = 60.0
SHOWN = 8  # ids of the queue that are spelled out


@dataclass
class _Watch:
    """What is known while jobs of the queue are watched."""

    queued: list[Queued]
    ended: dict[int, str] = field(default_factory=dict)  # number -> what went wrong, empty where nothing did
    lost: Counter[int] = field(default_factory=Counter)


class SlurmLauncher(Launcher):
    """Jobs of a Slurm array; with ``wait=false`` they go on without this command.

    Args:
        submitit_folder: where scripts, logs and results of the queue's jobs go; all nodes must see it.
        resubmit: how often a lost job is submitted again.
        poll_seconds: between two looks at the queue.
        silence_minutes: without an answer from Slurm, after which watching is given up.
        max_num_timeout: requeues of a job at its time limit.
        params: what submitit and sbatch take, see ``conf/hydra/launcher/slurm.yaml``.
    """

    queue = True  #: its jobs go on when this command ends

    def __init__(self, **params: Any) -> None:
        own = {key: params.pop(key) for key in OURS}
        self.own = own
        self.params = {k: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for k, v in params.items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        SlurmKeys(**config.hydra.launcher)
        self.config, self.context = config, hydra_context
        self.command = SweepCommand.of(hydra_context, config, task_function)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the jobs that the queue does not hold yet, and wait for all.

        Raises:
            ConfigError: Slurm or submitit is not there, or refuses the jobs.
            JobsFailedError: some failed; each was reported when it did.
        """
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        try:
            alive = in_queue()
        except QueueError as error:
            raise ConfigError(f"no Slurm here ({error}); use hydra/launcher=local, or log in to the cluster") from error
        folder = Path(str(self.own["submitit_folder"]))
        folder.mkdir(parents=True, exist_ok=True)
        self.submissions = Submissions(folder)
        loader = self.context.config_loader
        self.planner = Planner(Composer(loader, partial(loader.load_sweep_config, self.config)))
        places = [self.planner.place(words) for words in job_overrides]
        here = {number for job in self.submissions.held(alive, [key for _, key in places]) for number in job.numbers}
        waiting = [words for i, words in enumerate(job_overrides) if i in here]
        left = [i not in here and is_left(*place, self.config.retry) for i, place in enumerate(places)]  # by now
        absent = [words for words, own in zip(job_overrides, left, strict=True) if own]
        self.size = JobSize.asked(self.config)
        parts = self._in_parts(absent)
        self.jobs = [*waiting, *([*absent[part.job], *part.extra] for part in parts)]
        places = [self.planner.place(words) for words in self.jobs]
        expect_jobs(places, shlex.join(typed_words(self.config.hydra.job.name)))  # anew: some may be split by now
        self.names, self.keys = labels(self.jobs), [key for _, key in places]
        self.sizes = [*(SizedJob(i, (), 1, None) for i in range(len(waiting))), *parts]
        watch = _Watch(self.submissions.held(alive, self.keys))
        self._tell_before(watch, alive)
        watch.queued += self._submit(range(len(waiting), len(self.jobs)))
        if not self.config.wait:
            self._leave(watch)
            return []
        try:
            self._wait(watch)
        except KeyboardInterrupt:
            if watch.queued:
                ids = " ".join(dict.fromkeys(job.id.partition("_")[0] for job in watch.queued))
                tell(f"the jobs stay in the queue: the same command watches them again, scancel {ids} ends them")
            raise
        raise_failed([self.names[n] for n in sorted(watch.ended) if watch.ended[n]], len(self.jobs))
        return []

    # ---- submitting ---------------------------------------------------------------------------------------------

    def _in_parts(self, jobs: Sequence[Sequence[str]]) -> list[SizedJob]:
        """Jobs of the size that is asked for; one that is split stays so, for the same command again."""
        if self.size.runs is None and not self.size.by_time:
            return [SizedJob(i, (), 1, None) for i in range(len(jobs))]
        speeds = speeds_for(self.size, Path(self.config.hydra.sweep.dir), clock=True, anew=False)
        found = sized(jobs, self.planner, self.size, speeds)
        unknown = sum(part.seconds is None for part in found)
        if self.size.by_time and unknown:
            where = "" if self.size.can_clock else ", on a machine with a GPU,"
            tell(
                "; ".join([*speeds.notes(), f"how long {unknown} of {len(found)} jobs take is not known, so they are "])
                + f"neither split nor packed by time; the same command with plan=probe{where} clocks them"
            )
        by_job: dict[int, list[Sequence[str]]] = defaultdict(list)
        for part in found:
            by_job[part.job].append(part.extra)
        cut = {number: extra for number, extra in by_job.items() if len(extra) > 1}
        if cut:
            are, n = "1 job is" if len(cut) == 1 else f"{len(cut)} jobs are", sum(map(len, cut.values()))
            tell(f"{are} split into {n}, each expected to take less than {roughly(self.size.splits or 0)}")
        for number, extra in cut.items():
            keep_parts(*self.planner.place(jobs[number]), extra)
        return found

    def _tell_before(self, watch: _Watch, alive: Mapping[str, str]) -> None:
        """How the jobs stand that an earlier command submitted."""
        states = Counter(alive[job.id].partition(" ")[0].lower() for job in watch.queued for _ in job.numbers)
        here = {number for job in watch.queued for number in job.numbers}
        gone = self.submissions.ends([key for number, key in enumerate(self.keys) if number not in here])
        again = ", ".join(f"{n} {how}" for how, n in Counter(gone.values()).items())
        if here:
            are = "job is" if len(here) == 1 else "jobs are"
            listed = ", ".join(f"{n} {state}" for state, n in states.items())
            tell(f"{len(here)} {are} in the queue already, from an earlier command ({listed})")
        if gone:
            are = "job that is" if len(gone) == 1 else "jobs that are"
            tell(f"{len(gone)} {are} not done left the queue ({again}): submitted again")

    def _leave(self, watch: _Watch) -> None:
        """Say how to watch, end and continue the jobs that stay in the queue."""
        ids = [job.id for job in watch.queued]
        if not ids:
            return
        shown = ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")
        status = shlex.join([*command_words("report"), "report=status", f"runs=[{self.config.hydra.sweep.dir}]"])
        arrays = " ".join(dict.fromkeys(job.partition("_")[0] for job in ids))
        tell(f"in the queue: {len(ids)} {'job' if len(ids) == 1 else 'jobs'} ({shown}); this command does not wait")
        tell(f"watch: {status}")
        tell(f"end: scancel {arrays}")
        tell("the same command again says what is open, and submits what was lost or cancelled")

    def _submit(self, numbers: Sequence[int]) -> list[Queued]:
        if not numbers:
            return []
        packs = packed([self.sizes[number] for number in numbers], self.size)
        batches = [[numbers[i] for i in pack] for pack in packs]
        try:
            import submitit

            executor = submitit.AutoExecutor(
                folder=self.submissions.folder, cluster="slurm", slurm_max_num_timeout=self.own["max_num_timeout"]
            )
            named = {key if key in GENERIC else f"slurm_{key}": value for key, value in self.params.items()}
            executor.update_parameters(**{key: value for key, value in named.items() if value is not None})
            with executor.batch():
                made = [executor.submit(self._batch(own)) for own in batches]
        except ImportError as error:
            raise ConfigError(f"{error}; pip install 'dgbench[slurm]'") from error
        except Exception as error:  # submitit raises whatever sbatch says
            raise ConfigError(f"Slurm refuses the jobs: {' '.join(str(error).split())}; see hydra.launcher") from error
        queued = [Queued(job.job_id, own) for job, own in zip(made, batches, strict=True)]
        for job in queued:
            self.submissions.note(job.id, [self.keys[number] for number in job.numbers])
        ids = f"{queued[0].id} to {queued[-1].id}" if len(queued) > 1 else queued[0].id
        tell(f"{len(numbers)} of the sweep's jobs submitted as {len(queued)} of the queue's: {ids}")
        return queued

    def _batch(self, numbers: Sequence[int]) -> Batch:
        return Batch(self.command, {self.keys[number]: self.jobs[number] for number in numbers})

    # ---- watching -----------------------------------------------------------------------------------------------

    def _wait(self, watch: _Watch) -> None:
        heard = told = time.monotonic()
        while watch.queued:
            time.sleep(self.own["poll_seconds"])
            try:
                alive = in_queue()
            except QueueError as error:
                if time.monotonic() - heard > 60 * self.own["silence_minutes"]:
                    raise ConfigError(
                        f"no answer from Slurm ({error}); the same command watches its jobs again"
                    ) from error
                continue
            heard = time.monotonic()
            again: list[int] = []
            for job in list(watch.queued):
                result = self.submissions.result(job.id)
                job.missing = 0 if job.id in alive else job.missing + 1
                if result is None and job.missing < POLLS:
                    continue
                watch.queued.remove(job)
                again += self._ended(watch, job, result)
            if again:
                watch.queued += self._submit(again)
            if time.monotonic() - told > TELL_SECONDS and watch.queued:
                told = time.monotonic()
                states = Counter(alive.get(job.id, "leaving") for job in watch.queued)
                tell("; ".join(f"{n} {state.lower()}" for state, n in states.items()))

    def _ended(self, watch: _Watch, job: Queued, result: dict[str, str] | str | None) -> Iterator[int]:
        """Tell how a job of the queue ended; numbers of the jobs to submit again."""
        state = "" if result is not None else last_state(job.id)
        for number in job.numbers:
            if isinstance(result, dict):
                problem = result.get(self.keys[number], "")
            elif result is not None:
                problem = result
            elif state == "CANCELLED":
                problem = f"job {job.id} was cancelled"
            else:
                watch.lost[number] += 1
                problem = f"job {job.id} is lost{f' ({state})' if state else ''}"
                if watch.lost[number] <= self.own["resubmit"]:
                    tell(f"{self.names[number]}: {problem}; submitted again")
                    yield number
                    continue
            watch.ended[number] = problem
            how = f"FAILED: {problem}" if problem else "done"
            tell(f"[{len(watch.ended)}/{len(self.jobs)}] {self.names[number]}: {how}")
