"""``hydra/launcher=local``: the jobs of a sweep on the cores or GPUs of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from hydra.core.utils import JobReturn, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, Field

from dgbench.errors import ConfigError, JobsFailedError
from dgbench.records.status import roughly
from dgbench.sweeps.progress import SweepProgress
from dgbench.sweeps.sizes import cores, gpus
from dgbench.sweeps.work import THREADS, SweepCommand
from dgbench.validation import Checked, Count1, Refusal

NAMED = 5  # failed jobs spelled out at the end; all are reported when they fail


class LauncherKeys(Checked):
    """Keys of ``hydra.launcher``; others are left to Hydra and to Slurm."""

    model_config = ConfigDict(extra="ignore")
    key = "hydra.launcher"


def refuse_optimizers(config: DictConfig) -> None:
    """Refuse a sweeper that waits for a value of each job: the launchers of dgbench return none.

    Raises:
        ConfigError: the sweeper is not dgbench's own.
    """
    chosen = config.hydra.runtime.choices
    if chosen["hydra/sweeper"] != "studies":
        raise ConfigError(
            f"hydra/launcher={chosen['hydra/launcher']} gives "
            f"hydra/sweeper={chosen['hydra/sweeper']} no values to optimize; leave the launcher "
            "out, or use joblib, see docs/how_to/search.md"
        )


class LocalKeys(LauncherKeys):
    """Keys of ``hydra/launcher=local``."""

    workers: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Refusal(
            "is not an integer >= 1", "give one, or null for as many as there are cores or GPUs"
        ),
    ]
    per_gpu: Count1
    threads: Count1


class LocalLauncher(Launcher):
    """Worker processes, as many as cores or GPUs allow.

    ``conf/hydra/launcher/local.yaml`` says what its keys mean.
    """

    in_this_folder = True  #: its workers start in the folder of the command
    #: of each job, how many models it has to train by the folder of their study; the sweeper
    #: counts them
    models: Sequence[Mapping[Path, int]] = ()

    def __init__(self, workers: int | None, per_gpu: int, threads: int) -> None:
        self.workers = workers
        self.per_gpu = per_gpu
        self.threads = threads

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        refuse_optimizers(config)
        LocalKeys(**config.hydra.launcher)
        self.config = config
        self.command = SweepCommand.of(hydra_context, config, task_function)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run the jobs.

        Raises:
            JobsFailedError: some failed; each was reported when it did.
        """
        from dgbench.sweeps.pool import run_jobs

        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        for name in THREADS:
            # what the workers inherit, before they import torch
            os.environ[name] = str(self.threads)
        devices = self._devices()
        names = labels(job_overrides)
        n = len(job_overrides)
        failed: list[str] = []
        progress = SweepProgress(n, self.models)
        progress.say(
            f"{n} jobs, {min(len(devices), n)} at a time; what each prints is in .jobs of the "
            "sweep's folder"
        )
        endings = run_jobs(
            self.command,
            job_overrides,
            devices,
            lambda job: progress.say(f"{names[job]}: starts"),
            progress.look,
        )
        try:
            for ended in endings:
                if ended.problem is not None:
                    failed.append(names[ended.job])
                outcome = "done" if ended.problem is None else f"FAILED: {ended.problem}"
                text = f"{names[ended.job]}: {outcome} ({roughly(ended.seconds)})"
                progress.end_job(ended.job, text)
        finally:
            progress.close()
        raise_failed(failed, n)
        return []

    def _devices(self) -> list[str | None]:
        device = OmegaConf.select(self.config, "trainer.device")
        devices = gpus() if device not in ("cpu", "mps") else []
        if not devices:
            return [None] * (self.workers or max(1, cores() // self.threads))
        n = self.workers or min(len(devices) * self.per_gpu, max(1, cores() // self.threads))
        return [devices[i % len(devices)] for i in range(n)]


def labels(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """Label each job by the overrides that not all of the jobs have."""
    common: set[str] = set()
    if len(job_overrides) > 1:
        common = set(job_overrides[0]).intersection(*job_overrides)
    names = []
    for overrides in job_overrides:
        distinct = [word for word in overrides if word not in common]
        names.append(" ".join(distinct) or "job")
    return names


def raise_failed(failed: Sequence[str], n: int) -> None:
    """Raise an error that names the failed jobs of a sweep of ``n`` jobs, if any failed.

    Raises:
        JobsFailedError: some failed.
    """
    if failed:
        tail = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        raise JobsFailedError(
            f"{len(failed)} of {n} jobs failed ({'; '.join(failed[:NAMED])}{tail}); correct the "
            "cause and start the same command again"
        )


def tell(text: str) -> None:
    """Print a line of progress on standard error."""
    print(text, file=sys.stderr, flush=True)
