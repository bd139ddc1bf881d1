"""Running jobs of a sweep in a process that is not the one the user started."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import run_job
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from dgbench.interruption import request_first
from dgbench.plan.explain import explain
from dgbench.plan.studies import Planner

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class SweepCommand:
    """What the user started, less what varies over its jobs; can be sent to another process."""

    context: HydraContext
    config: DictConfig
    task: tuple[str, str]

    @staticmethod
    def of(context: HydraContext, config: DictConfig, task: TaskFunction) -> SweepCommand:
        """Build from what a launcher was set up with."""
        return SweepCommand(context, config, (task.__module__, task.__qualname__))

    def run(self, overrides: Sequence[str], number: int) -> str | None:
        """Run a job; what it prints goes to a log in ``.jobs``.

        Returns:
            What went wrong, in one line, or None if nothing did.
        """
        loader = self.context.config_loader
        if (
            not GlobalHydra.instance().is_initialized()
        ):  # a process that Hydra did not start; a grid composes studies
            GlobalHydra.instance().initialize(Hydra(self.config.hydra.job.name, loader))
        try:
            config = loader.load_sweep_config(self.config, list(overrides))
            with open_dict(config):
                config.hydra.job.id = config.hydra.job.num = number
                config.hydra.job.chdir = False  # relative folders are those of the command
            place = Planner.of_sweep(loader, self.config).place(overrides)
            if not place.is_left(config.retry):  # e.g. done before a requeue
                return None
            module, name = self.task
            # less the handling of its command line
            task = importlib.import_module(module).__dict__[name].__wrapped__
            with request_first(), _printing_to(place.file("log")):
                _ = run_job(
                    task_function=task,
                    config=config,
                    job_dir_key="hydra.sweep.dir",
                    job_subdir_key="hydra.sweep.subdir",
                    hydra_context=self.context,
                ).return_value  # raises what the task raised
        except Exception as error:  # whatever broke this job, the others are run
            return explain(error, self.config.hydra.job.config_name)
        return None


@contextmanager
def _printing_to(file: Path) -> Iterator[None]:
    """Append standard output and error to a file, also what libraries and child processes write."""
    file.parent.mkdir(parents=True, exist_ok=True)
    saved = [os.dup(stream) for stream in (1, 2)]
    with open(file, "ab", buffering=0) as log:
        try:
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for stream, descriptor in zip((1, 2), saved, strict=True):
                os.dup2(descriptor, stream)
                os.close(descriptor)
