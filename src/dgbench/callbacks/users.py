"""Run Lightning callbacks of a user's, as if this were any Lightning training.

``conf/callbacks`` names them. What Lightning counts as batches is otherwise what is gathered at
once, its global step the steps of all optimizers, and its epoch starts at 0 when a run resumes.
Here a batch is one optimizer step, and all counts continue.
"""

from __future__ import annotations

import inspect
import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger

from dgbench.callbacks.metrics import RunMetrics
from dgbench.errors import ConfigError
from dgbench.plan.building import build, class_at
from dgbench.validation import shown, some_of


def check_callbacks(config: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what cannot be built, or is no Lightning callback.

    Raises:
        ConfigError: with the key and the fix.
    """
    for name, content in config.items():
        target = content.get("_target_") if isinstance(content, Mapping) else None
        if not isinstance(target, str):
            raise ConfigError(
                f"callbacks.{name}={content} names no class; write "
                f"callbacks.{name}._target_=package.module.Class"
            )
        kind = class_at(target, f"callbacks.{name}._target_", pl.Callback)
        plain = {key: value for key, value in content.items() if key != "passive"}
        arguments = {key: value for key, value in plain.items() if not key.startswith("_")}
        try:
            inspect.signature(kind).bind(*content.get("_args_", ()), **arguments)
        except TypeError as error:
            raise ConfigError(
                f"callbacks.{name} cannot be used: {error}; correct its arguments"
            ) from error
        if issubclass(kind, pl.callbacks.ModelCheckpoint):
            raise ConfigError(
                f"callbacks.{name}._target_={target} writes checkpoints, which dgbench does "
                "itself; leave it out, and see trainer.checkpoint_seconds"
            )
        if issubclass(kind, pl.callbacks.EarlyStopping):
            _check_early_stopping(name, arguments)
        build({f"callbacks.{name}": plain}, f"callbacks.{name}")


def _check_early_stopping(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuse numbers with which Lightning's EarlyStopping would never judge, or judge nonsense.

    Raises:
        ConfigError: with the key and the fix.
    """
    patience = arguments.get("patience", 0)
    if type(patience) is not int or patience < 0:
        raise ConfigError(
            f"callbacks.{name}.patience={shown(patience)} is no number of evaluations; give 0 or "
            "more"
        )
    least = arguments.get("min_delta", 0.0)
    if type(least) not in (int, float) or not 0 <= least < math.inf:
        raise ConfigError(
            f"callbacks.{name}.min_delta={shown(least)} is no improvement; give a number >= 0"
        )


def check_monitors(config: Mapping[str, Mapping[str, Any]], errors: Collection[str]) -> None:
    """Refuse an EarlyStopping that watches what no training here logs.

    Args:
        config: keys of ``conf/callbacks``. Beside a callback that is not Lightning's own, which may
            log anything, all names are believed.
        errors: names of the errors that every evaluation logs.

    Raises:
        ConfigError: with the key and what to choose from.
    """
    kinds = {
        name: class_at(content["_target_"], name, pl.Callback) for name, content in config.items()
    }
    if any(not kind.__module__.startswith("pytorch_lightning.") for kind in kinds.values()):
        return
    for name, kind in kinds.items():
        watched = config[name].get("monitor")
        if not issubclass(kind, pl.callbacks.EarlyStopping) or not config[name].get("strict", True):
            continue
        # losses, learning rates and what an algorithm logs have names that only its steps tell
        if watched in ("val/loss", *errors) or str(watched).startswith(("train/", "lr/")):
            continue
        known = ["train/loss", "val/loss", *errors]
        close = get_close_matches(str(watched), known, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"callbacks.{name}.monitor={shown(watched)} is not logged by training; "
            f"{meant}choose from {some_of(known, 12)}"
        )


class UserCallbacks(pl.Callback):
    """Counts for callbacks what they expect to be counted, and keeps their states in checkpoints.

    It must stand before them. ``trainer.global_step`` is the number of steps done,
    ``trainer.current_epoch`` that of evaluation intervals. A stop that a callback asked for
    outlives a kill.
    """

    def __init__(self, callbacks: Mapping[str, pl.Callback]) -> None:
        self.callbacks = callbacks
        self._stopped = False
        self._trainer: pl.Trainer | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._trainer = trainer
        for callback in self.callbacks.values():
            if isinstance(callback, pl.callbacks.EarlyStopping):
                # or it would judge once the checkpoint is written
                callback._check_on_train_epoch_end = False
        trainer.should_stop = trainer.should_stop or self._stopped
        intervals_done = pl_module.steps_done // trainer.datamodule.eval_every  # type: ignore[attr-defined]
        loop = trainer.fit_loop
        loop.max_epochs = (loop.max_epochs or 0) + intervals_done
        for count in ("ready", "started", "processed", "completed"):
            setattr(loop.epoch_progress.current, count, intervals_done)
        loop.epoch_loop._batches_that_stepped = pl_module.steps_done
        self._count(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._count(trainer, pl_module)

    def _count(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Set Lightning's count of optimizer steps to the steps done.

        One step may be of several optimizers and updates.
        """
        progress = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        progress.total.completed = pl_module.steps_done

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds: whether training was ended, and the callbacks' states.

        Raises:
            ConfigError: a state holds what is not read from files, which may run foreign code.
        """
        states = {}
        for name, callback in self.callbacks.items():
            state = callback.state_dict()
            if state:
                states[name] = state
        for name, state in states.items():
            file = io.BytesIO()
            try:
                torch.save(state, file)
                file.seek(0)
                torch.load(file, weights_only=True)
            except Exception as error:  # whatever cannot be pickled, or is refused
                raise ConfigError(
                    f"callbacks.{name}: no checkpoint holds its state_dict; give numbers, texts, "
                    "tensors, and lists and dictionaries of them"
                ) from error
        return {"stopped": bool(self._trainer and self._trainer.should_stop), "states": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._stopped = state_dict["stopped"]
        for name, state in state_dict["states"].items():
            if name in self.callbacks:
                self.callbacks[name].load_state_dict(state)


class CallbackLog(Logger):
    """What callbacks log through Lightning, as lines of the runs that train.

    Without a logger there are none.

    Args:
        folder: of the first run, where a callback may write files.
        runs: that train together; each gets the same lines, but for None.
        steps_done: optimizer steps done.
    """

    def __init__(
        self, folder: Path, runs: Sequence[RunMetrics | None], steps_done: Callable[[], int]
    ) -> None:
        super().__init__()
        self.folder = folder
        self.steps_done = steps_done
        self.runs = [run for run in runs if run]

    @property
    def name(self) -> str:
        return "dgbench"

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.folder)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Ignore hyperparameters: loggers get the configuration when a run begins."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        for run in self.runs if values else ():
            run.log(self.steps_done(), values)
