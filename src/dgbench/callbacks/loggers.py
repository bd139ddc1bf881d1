"""Log the metrics of runs, never in the way of training.

Here are the contract, TensorBoard, and any Lightning logger. The names of what is logged are the
same in all of these, see docs/how_to/loggers.md.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.errors import ConfigError, one_line
from dgbench.interruption import request_first
from dgbench.plan.building import build, class_at
from dgbench.records.metrics import ERRORS
from dgbench.records.rows import Row

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class RunInfo:
    """What a logger gets to know of a run."""

    folder: Path  #: of the run
    sweep: Path  #: folder of the studies of its command
    id: str  #: hexadecimal digits that name it, the same after a resume
    name: str  #: for people, e.g. ``sr_cmnist-erm-mlp-s0-0123456789ab/fold-0``.
    job_type: str  #: ``fold-NAME``, or ``study``
    group: str  #: the runs of one study share it
    config: Mapping[str, Any]  #: the whole configuration, and what to group and filter by
    tags: Sequence[str] = ()  #: dataset, algorithm, ...


class RunLog:
    """The open log of one run; what it raises is its logger's affair, see :class:`Guard`.

    This one shows nothing.
    """

    #: it holds what was logged before an interruption; if not, all of it is given again
    continues: bool = True

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log values by name after ``step`` optimizer steps."""

    def skip(self, step: int, values: Mapping[str, float]) -> None:
        """Take note of a line that it holds from an earlier command."""

    def round_ends(self) -> None:
        """Take note that the run has logged all up to an evaluation or a checkpoint."""

    def finish(self, failed: bool = False) -> None:
        """Close it."""


class MetricsLogger:
    """Shows the metrics of runs, each with a log of its own. This one shows nothing."""

    label = "nothing"  #: what messages call it
    most_live = sys.maxsize  #: runs that train together and are shown while they do

    @property
    def follows_studies(self) -> bool:
        """Whether the log of a study shows means over its runs while they train together."""
        return False

    def knows(self, folder: Path) -> bool:
        """Return whether it has all of the run of this folder.

        If not, it takes only what is trained from now on.
        """
        return True

    def open(self, run: RunInfo, anew: bool = False) -> RunLog:
        """Open the log of a run.

        Args:
            run: what it is called.
            anew: forget what it holds of the run; all of it is given again.
        """
        return RunLog()


class CsvLog(MetricsLogger):
    """Nothing beside ``metrics.csv``, which every logger keeps."""


@dataclass
class Guard:
    """Calls what may fail, so that training continues.

    The first failure is logged, and nothing is called after it.
    """

    name: str  #: what is off then
    scope: str = "job"  #: for the rest of which
    advice: str = ""  #: what the message ends with
    #: returns whether another process has told of it
    on_failure: Callable[[], bool] = lambda: False
    off: bool = False

    def attempt(self, call: Callable[[], Any]) -> None:
        """Call a function, unless an earlier one has failed."""
        if self.off:
            return
        try:
            with request_first():
                call()
        except Exception as error:  # whatever a logger raises
            self.off = True
            reason = one_line(error, None)
            if self.on_failure():
                return
            advice = f"; {self.advice}" if self.advice else ""
            log.warning(
                "%s is off for the rest of this %s: %s%s", self.name, self.scope, reason, advice
            )


def error_values(rows: Sequence[Row]) -> dict[str, float]:
    """Collect the errors of one evaluation by name.

    These are the error of each row, and means over training and held-out environments.
    """
    values = {f"{ERRORS}{row.subset}/{row.env}": row.error for row in rows}
    for name, held_out, subset in (("training_val", False, "val"), ("held_out", True, "test")):
        errors = [row.error for row in rows if row.subset == subset and row.held_out == held_out]
        if errors:
            values[f"{ERRORS}{name}"] = sum(errors) / len(errors)
    return values


FLUSH_SECONDS = 30  # after which TensorBoard sees a line
TENSORBOARD_RUNS = 200  # of one process; each has a thread


class LightningLog(MetricsLogger):
    """A Lightning logger of its own for each run.

    It is given the configuration with ``log_hyperparams``, each line with ``log_metrics``, and
    ``finalize`` at the end; its ``save_dir``, if it takes one, is ``logger`` in the run's folder.
    Runs that train together are shown one after the other, at their ends: a logger may stand for
    one run of its process, as many do.

    Args:
        make: the logger's class, some arguments given or none.
        name: what a warning calls it.
    """

    most_live = 1

    def __init__(self, make: Callable[..., Logger], name: str) -> None:
        self.make = make
        self.label = name
        self.guard = Guard(name)

    def open(self, run: RunInfo, anew: bool = False) -> RunLog:
        return _LightningRun(self, run)

    def place(self, run: RunInfo) -> dict[str, Any]:
        """Return the logger's arguments that differ from run to run."""
        given = getattr(self.make, "keywords", {})
        if "save_dir" in given or "save_dir" not in inspect.signature(self.make).parameters:
            return {}
        return {"save_dir": str(run.folder / "logger")}


class _LightningRun(RunLog):
    """A run of a :class:`LightningLog`."""

    def __init__(self, log_of: LightningLog, run: RunInfo) -> None:
        self._guard = log_of.guard
        self._logger: Any = None

        def open_logger() -> None:
            self._logger = log_of.make(**log_of.place(run))
            self._logger.log_hyperparams(dict(run.config))

        self._guard.attempt(open_logger)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._guard.attempt(lambda: self._logger.log_metrics(dict(values), step=step))

    def finish(self, failed: bool = False) -> None:
        if self._logger is not None:
            status = "failed" if failed else "success"
            self._guard.attempt(lambda: self._logger.finalize(status))
        self._logger = None


class TensorBoardLog(LightningLog):
    """TensorBoard event files in ``tensorboard`` of each run's folder.

    They are written anew when a run resumes.

    Raises:
        ConfigError: TensorBoard is not installed.
    """

    most_live = TENSORBOARD_RUNS

    def __init__(self) -> None:
        if not any(importlib.util.find_spec(name) for name in ("tensorboard", "tensorboardX")):
            raise ConfigError(
                "logger=tensorboard needs TensorBoard; pip install 'dgbench[tensorboard]'"
            )
        super().__init__(_tensorboard_logger, "TensorBoard")

    def knows(self, folder: Path) -> bool:
        return (folder / "tensorboard").is_dir()

    def open(self, run: RunInfo, anew: bool = False) -> RunLog:
        """Start new event files, since steps cannot be removed from old ones.

        All is to be written again.
        """
        folder = run.folder / "tensorboard"
        self.guard.attempt(lambda: shutil.rmtree(folder, ignore_errors=True))
        opened = super().open(run)
        opened.continues = False
        return opened

    def place(self, run: RunInfo) -> dict[str, Any]:
        return {
            "save_dir": str(run.folder),
            "name": "tensorboard",
            "version": "",
            "default_hp_metric": False,
            "flush_secs": FLUSH_SECONDS,
        }


def _tensorboard_logger(**arguments: Any) -> Logger:
    from pytorch_lightning.loggers import TensorBoardLogger  # seconds

    return TensorBoardLogger(**arguments)


def build_logger(config: Any) -> MetricsLogger | None:
    """Build what ``config["logger"]`` names, or return None if it names nothing.

    It is one of dgbench's loggers, or a Lightning logger of the user's own.

    Raises:
        ConfigError: it cannot be imported or built, or is no logger.
    """
    content = dict(config["logger"] or {})
    target = content.pop("_target_", None)
    if not target:
        return None
    kind = class_at(target, "logger._target_", object)
    if not issubclass(kind, MetricsLogger) and _is_lightning_logger(kind):
        try:
            inspect.signature(kind).bind_partial(**content)
        except TypeError as error:
            raise ConfigError(
                f"logger._target_={target} cannot be used: {error}; correct its arguments"
            ) from error
        partial = {**config["logger"], "_partial_": True}
        return LightningLog(build({"logger": partial}, "logger"), target)
    built = build(config, "logger")
    if not isinstance(built, MetricsLogger):
        raise ConfigError(
            f"logger._target_={target} is no logger; subclass pytorch_lightning.loggers.Logger"
        )
    return built


def _is_lightning_logger(kind: type) -> bool:
    # this import takes seconds, which whoever names such a class has spent
    from pytorch_lightning.loggers import Logger

    return issubclass(kind, Logger)
