"""One run trained by several processes: each computes a share of every minibatch and of every evaluation.

All processes hold the same weights and take the same steps, since they average losses, gradients, states and running
statistics (``algorithms/shares.py``); nothing else keeps them together.
"""

from __future__ import annotations

import signal
import threading
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.strategies import DDPStrategy

PATIENCE = timedelta(minutes=30)  # how long a process waits for another one


class Process(LightningEnvironment):  # type: ignore[misc]
    """The place of a process among those of one run, on one machine; dgbench starts them itself.

    Args:
        rank: number of the process; 0 writes rows, checkpoints and marks.
        count: number of processes.
        port: where process 0 listens.
    """

    creates_processes_externally = True  # type: ignore[assignment]
    main_address = "127.0.0.1"

    def __init__(self, rank: int, count: int, port: int) -> None:
        super().__init__()
        self.rank, self.count, self._main_port = rank, count, port

    def world_size(self) -> int:
        return self.count

    def global_rank(self) -> int:
        return self.rank

    def local_rank(self) -> int:
        return self.rank

    def node_rank(self) -> int:
        return 0

    def set_global_rank(self, rank: int) -> None:
        """It has its number already."""


class SharedMinibatches(DDPStrategy):
    """Lightning's distributed strategy without its wrapper around the module.

    The wrapper averages gradients in hooks of one backward pass per step; here a step has several updates and parameter
    groups, some of which compute their gradients with ``torch.func``.
    """

    def __init__(self) -> None:
        super().__init__(timeout=PATIENCE)

    def configure_ddp(self) -> None:
        """Leave the module as it is."""

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        """Do not wait: process 0 saves a checkpoint while the others continue."""


class CalmSigterm(pl.Callback):
    """Notes SIGTERM, of which process 0 tells the others at the next step.

    Lightning's own handler broadcasts at once, wherever the others are, and so may wait for them forever.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        def note(*_: Any) -> None:
            trainer._signal_connector.received_sigterm = True

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, note)  # Lightning puts back what was there before its own
