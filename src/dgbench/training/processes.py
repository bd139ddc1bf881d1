"""Prepare a process for training, and train one run with several of them.

Each process computes a share of every minibatch and of every evaluation. All hold the same weights
and take the same steps, since they average losses, gradients, states and running statistics
(``modules/single.py``); nothing else keeps them together. The process that the user started is
number 0. The others are ``python -m dgbench.training.worker``: they read their task from a pipe,
and end when that pipe closes, so none is left behind when process 0 is killed.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch.distributed
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]

from dgbench.errors import ConfigError, DgbenchError
from dgbench.plan.settings import TrainerSettings
from dgbench.training.devices import cannot_train

# of glibc's mallopt(3)
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MB = 2**20
POOL_NUMBERS = 2**18  # numbers, more than torch leaves to one thread


def prepare_process() -> None:
    """Prepare this process for training.

    Lightning's messages are restricted, freed memory is kept, and what makes steps slow for nothing
    is avoided.
    """
    _quiet_lightning()
    _keep_freed_memory()
    _remember_that_there_is_no_gpu()
    with normal_numbers():
        torch.ones(
            POOL_NUMBERS
        ).sum()  # makes the threads that compute with torch, which keep the setting


def _quiet_lightning() -> None:
    """Let Lightning speak up only to warn, and not about what is intended.

    Having no loader workers, say, is intended.
    """
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # runs are jobs of their own
    warnings.filterwarnings("ignore", message=".*`srun` command is available.*")
    # processes take turns at batches
    warnings.filterwarnings("ignore", message=".*across ranks is zero.*")
    # what is logged is the same in every process
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")
    # frozen parts
    warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")
    # rates are functions of the step
    warnings.filterwarnings("ignore", message=".*no learning rate schedulers.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")  # Lightning 2.6 with torch >= 2.15


@contextmanager
def normal_numbers() -> Iterator[None]:
    """Let the CPU take floats below 1e-38 for 0, and restore what it did at the end.

    The gradients of a saturated discriminator are so small, and products of such numbers a hundred
    times slower. Statistics need doubles whole.
    """
    flushed = not torch.tensor([2e-38]).mul(0.01).view(torch.int32).any()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)


def _keep_freed_memory() -> None:
    """Let a step on a CPU get the pages of the step before.

    New pages the kernel would have to clear. By default glibc gives all but 64 MB back to the
    kernel after each step, which took half of the time of ARM's steps on 8 x 8 images. Greater
    limits cost more memory, since freed blocks of other sizes lie between. Other C libraries are
    left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_TRIM_THRESHOLD, 512 * MB)
        mallopt(M_MMAP_THRESHOLD, 64 * MB)


def _remember_that_there_is_no_gpu() -> None:
    """Let torch ask the CUDA runtime for a GPU, which remembers that there is none.

    Every step of an optimizer asks. Lightning sets the variable to 1, with which torch looks for
    NVIDIA's library on disk each time: a tenth of a millisecond if it is missing.
    """
    if not torch.cuda.is_available():
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"


PATIENCE = timedelta(minutes=30)  # how long a process waits for another one


class Process(LightningEnvironment):  # type: ignore[misc]
    """The place of a process among those of one run, on one machine; dgbench starts them itself."""

    creates_processes_externally = True  # type: ignore[assignment]
    main_address = "127.0.0.1"

    def __init__(self, rank: int, count: int, port: int) -> None:
        super().__init__()
        self.rank = rank
        self.count = count
        self._main_port = port
        self.set_world_size(count)
        self.set_global_rank(rank)

    def local_rank(self) -> int:
        return self.rank

    def node_rank(self) -> int:
        return 0


class SharedMinibatches(DDPStrategy):
    """Lightning's distributed strategy without its wrapper around the module.

    The wrapper averages gradients in hooks of one backward pass per step; here a step has several
    updates and parameter groups, some of which compute their gradients with ``torch.func``.
    """

    def __init__(self) -> None:
        super().__init__(timeout=PATIENCE)

    def configure_ddp(self) -> None:
        """Leave the module as it is."""

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        """Skip the wait: process 0 saves a checkpoint while the others continue."""


class CalmSigterm(pl.Callback):
    """Notes SIGTERM, of which process 0 tells the others at the next step.

    Lightning's own handler broadcasts at once, wherever the others are, and so may wait for them
    forever.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        def note(*_: Any) -> None:
            trainer._signal_connector.received_sigterm = True

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, note)  # Lightning puts back what was there before its own


def make_trainer(
    settings: TrainerSettings,
    callbacks: Sequence[pl.Callback],
    epochs: int,
    process: Process | None = None,
    logger: Logger | None = None,
) -> pl.Trainer:
    """Build a quiet trainer, with one device per process.

    dgbench's own callbacks keep rows, checkpoints and progress.

    Raises:
        ConfigError: Lightning refuses device or precision.
    """
    torch.set_float32_matmul_precision(settings.matmul)
    torch.backends.cudnn.allow_tf32 = settings.matmul != "highest"
    # runs are jobs of their own, also inside a SLURM allocation
    place: Any = process or LightningEnvironment()
    has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
    try:
        with warnings.catch_warnings():
            # it would take bf16 instead
            warnings.filterwarnings("error", message=".*fp16 is not supported.*")
            return pl.Trainer(
                accelerator=settings.device,
                devices=process.count if process else 1,
                strategy=SharedMinibatches() if process else "auto",
                use_distributed_sampler=False,
                precision=settings.precision,  # type: ignore[arg-type]
                max_epochs=epochs,
                num_sanity_val_steps=0,
                logger=logger or False,
                log_every_n_steps=settings.log_every,
                enable_checkpointing=False,
                enable_progress_bar=has_bar,
                enable_model_summary=False,
                callbacks=list(callbacks),
                plugins=[place],
            )
    except (MisconfigurationException, ValueError, UserWarning) as error:
        reason = " ".join(str(error).split()).partition(". ")[0]
        raise ConfigError(cannot_train(settings, reason)) from error


SECONDS_TO_END = 60  # for the others, once process 0 is through
SECONDS_TO_COMPLAIN = 5  # for one that broke, to say why


class ProcessError(DgbenchError):
    """One of the processes of a run ended before its time."""


@contextmanager
def processes(count: int, folder: Path, resumes: bool) -> Iterator[Process | None]:
    """Start the other processes that train a run, and yield process 0.

    Returns None if it trains alone.

    Args:
        count: how many processes in all.
        folder: the run's folder with its ``config.yaml``; process k logs to ``process-k.txt`` in
            it.
        resumes: whether the run continues from its checkpoint.

    Raises:
        ProcessError: another process broke; what process 0 then met is its cause.
    """
    if count == 1:
        yield None
        return
    port = _free_port()
    task = {"count": count, "port": port, "resumes": resumes}
    workers = [_start(folder, {"rank": k, **task}) for k in range(1, count)]
    try:
        yield Process(0, count, port)
        for worker in workers:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(SECONDS_TO_END)
    except DgbenchError:
        raise
    except Exception as error:
        broken = _broken(workers, folder)
        if broken:
            raise ProcessError(broken) from error
        raise
    finally:
        for worker in workers:
            assert worker.stdin
            worker.stdin.close()
            worker.kill()
            worker.wait()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _start(folder: Path, task: dict[str, Any]) -> subprocess.Popen[str]:
    """Start a worker process in a session of its own, so that Ctrl-C reaches process 0 alone."""
    with open(folder / f"process-{task['rank']}.txt", "w") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dgbench.training.worker"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
    assert worker.stdin
    worker.stdin.write(json.dumps({**task, "folder": str(folder.absolute())}) + "\n")
    worker.stdin.flush()
    return worker


def _broken(workers: list[subprocess.Popen[str]], folder: Path) -> str:
    """Quote in one line what the first worker that ended with an error said last.

    It is "" if none did.
    """
    for k, worker in enumerate(workers, start=1):
        with suppress(subprocess.TimeoutExpired):
            if worker.wait(SECONDS_TO_COMPLAIN):
                file = folder / f"process-{k}.txt"
                lines = file.read_text().strip().splitlines()
                last = lines[-1] if lines else f"exit status {worker.returncode}"
                return (
                    f"process {k} of {len(workers) + 1}: {last}; {file.name} in the run folder has "
                    "more"
                )
    return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
