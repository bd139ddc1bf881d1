"""``hydra/launcher=slurm``: the jobs of a sweep as jobs of a Slurm cluster, through submitit.

submitit writes the batch scripts, carries the work to the nodes and requeues a job that reaches its time limit. What it
cannot tell without Slurm's accounting is that a job is lost (killed, out of memory, its node gone): its own launcher
would wait without end. Here ``squeue`` and the files that a job leaves decide; a lost job is submitted again.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from dgbench.errors import ConfigError
from dgbench.sweeps.local import THREADS, labels, raise_failed, tell
from dgbench.sweeps.packing import packed
from dgbench.sweeps.queue import QueueError, in_queue, last_state
from dgbench.sweeps.work import Command

OURS = ("submitit_folder", "max_num_timeout", "resubmit", "poll_seconds", "silence_minutes")
GENERIC = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
POLLS = 2  # in which a job must be missing from the queue, without a result, to be lost: its files may come late
TELL_SECONDS = 60.0


class Batch:
    """Jobs that one job of the queue runs, one after the other. After a requeue those that are done are skipped."""

    def __init__(self, command: Command, jobs: Sequence[tuple[int, Sequence[str]]]) -> None:
        self.command, self.jobs = command, [(number, list(words)) for number, words in jobs]

    def __call__(self) -> dict[int, str]:
        """What went wrong, by the number of the job."""
        for name in THREADS:  # before torch is imported
            os.environ.setdefault(name, os.environ.get("SLURM_CPUS_PER_TASK", "1"))
        ends = {number: self.command.run(words, number) for number, words in self.jobs}
        return {number: problem for number, problem in ends.items() if problem is not None}

    def checkpoint(self) -> Any:
        """What submitit runs after a requeue: the same; runs continue from their checkpoints."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


@dataclass
class _Queued:
    """One job of the queue."""

    id: str
    numbers: list[int]  # of our jobs
    missing: int = 0  # polls


@dataclass
class _Watch:
    """What is known while jobs of the queue are watched."""

    queued: list[_Queued]
    ended: dict[int, str] = field(default_factory=dict)  # number -> what went wrong, empty where nothing did
    lost: Counter[int] = field(default_factory=Counter)


class SlurmLauncher(Launcher):
    """Jobs of a Slurm array.

    Args:
        submitit_folder: where scripts, logs and results of the queue's jobs go; all nodes must see it.
        resubmit: how often a lost job is submitted again.
        poll_seconds: between two looks at the queue.
        silence_minutes: without an answer from Slurm, after which watching is given up.
        max_num_timeout: requeues of a job at its time limit.
        params: what submitit and sbatch take, see ``conf/hydra/launcher/slurm.yaml``.
    """

    def __init__(self, **params: Any) -> None:
        own = {key: params.pop(key) for key in OURS}
        for key in ("max_num_timeout", "resubmit"):
            if own[key] < 0:
                raise ConfigError(f"hydra.launcher.{key}={own[key]} is below 0; give a number, 0 for never")
        if not own["poll_seconds"] > 0:
            raise ConfigError(f"hydra.launcher.poll_seconds={own['poll_seconds']} is not above 0; give a number")
        self.own = own
        self.params = {k: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for k, v in params.items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.context = config, hydra_context
        self.command = Command.of(hydra_context, config, task_function)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the jobs that the queue does not hold yet, and wait for all.

        Raises:
            ConfigError: Slurm or submitit is not there, or refuses the jobs.
            JobsFailedError: some failed; each was reported when it did.
        """
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        self.jobs, self.names = job_overrides, labels(job_overrides)
        try:
            alive = in_queue()
        except QueueError as error:
            raise ConfigError(f"no Slurm here ({error}); use hydra/launcher=local, or log in to the cluster") from error
        self.folder = Path(str(self.own["submitit_folder"]))
        self.folder.mkdir(parents=True, exist_ok=True)
        watch = _Watch(self._held(alive))
        held = {number for job in watch.queued for number in job.numbers}
        if held:
            are = "job is" if len(held) == 1 else "jobs are"
            tell(f"{len(held)} {are} in the queue already, from an earlier command")
        watch.queued += self._submit([i for i in range(len(job_overrides)) if i not in held])
        try:
            self._wait(watch)
        except KeyboardInterrupt:
            if watch.queued:
                ids = " ".join(dict.fromkeys(job.id.partition("_")[0] for job in watch.queued))
                tell(f"the jobs stay in the queue: the same command watches them again, scancel {ids} ends them")
            raise
        raise_failed([self.names[n] for n in sorted(watch.ended) if watch.ended[n]], len(job_overrides))
        return []

    # ---- submitting ---------------------------------------------------------------------------------------------

    def _submit(self, numbers: Sequence[int]) -> list[_Queued]:
        if not numbers:
            return []
        words = [self.jobs[number] for number in numbers]
        packs = packed(words, self.config.sweep.runs_per_job, self.context, self.config)
        batches = [[numbers[i] for i in pack] for pack in packs]
        try:
            import submitit

            executor = submitit.AutoExecutor(
                folder=self.folder, cluster="slurm", slurm_max_num_timeout=self.own["max_num_timeout"]
            )
            named = {key if key in GENERIC else f"slurm_{key}": value for key, value in self.params.items()}
            executor.update_parameters(**{key: value for key, value in named.items() if value is not None})
            with executor.batch():
                made = [executor.submit(Batch(self.command, [(n, self.jobs[n]) for n in own])) for own in batches]
        except ImportError as error:
            raise ConfigError(f"{error}; pip install 'dgbench[slurm]'") from error
        except Exception as error:  # submitit raises whatever sbatch says
            raise ConfigError(f"Slurm refuses the jobs: {' '.join(str(error).split())}; see hydra.launcher") from error
        queued = [_Queued(job.job_id, own) for job, own in zip(made, batches, strict=True)]
        for job in queued:
            content = json.dumps([list(self.jobs[number]) for number in job.numbers])
            (self.folder / f"{job.id}_jobs.json").write_text(content)
        ids = f"{queued[0].id} to {queued[-1].id}" if len(queued) > 1 else queued[0].id
        tell(f"{len(numbers)} of the sweep's jobs submitted as {len(queued)} of the queue's: {ids}")
        return queued

    def _held(self, alive: dict[str, str]) -> list[_Queued]:
        """Jobs of an earlier command that the queue still holds, and that this one wants too."""
        numbers = {tuple(words): number for number, words in enumerate(self.jobs)}
        found = []
        for job in alive:
            try:
                known = json.loads((self.folder / f"{job}_jobs.json").read_text())
            except (OSError, ValueError):  # not of this sweep
                continue
            own = [numbers[tuple(words)] for words in known if tuple(words) in numbers]
            if own:
                found.append(_Queued(job, own))
        return found

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
                result = self._result(job.id)
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

    def _ended(self, watch: _Watch, job: _Queued, result: dict[int, str] | str | None) -> Iterator[int]:
        """Tell how a job of the queue ended; numbers of the jobs to submit again."""
        state = "" if result is not None else last_state(job.id)
        for number in job.numbers:
            if isinstance(result, dict):
                problem = result.get(number, "")
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

    def _result(self, job: str) -> dict[int, str] | str | None:
        """What a job of the queue left: problems by number, or why it has none; None where it left nothing."""
        try:
            how, what = pickle.loads((self.folder / f"{job}_0_result.pkl").read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        if how == "success":
            problems: dict[int, str] = what
            return problems
        return f"job {job}: {str(what).strip().splitlines()[-1]}"
