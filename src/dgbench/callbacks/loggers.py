"""Log the metrics of one run at a time, never in the way of training: TensorBoard, W&B, and any Lightning logger.

The names of what is logged are the same in all of them, see docs/how_to/loggers.md.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger, TensorBoardLogger

from dgbench.errors import ConfigError, one_line
from dgbench.plan.building import build, class_at
from dgbench.records.metrics import ERRORS
from dgbench.records.rows import Row

log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class RunInfo:
    """What a logger gets to know of a run."""

    folder: Path  #: of the run
    id: str  #: hexadecimal digits that name it, the same after a resume
    name: str  #: for people, e.g. ``sr_cmnist-erm-mlp-s0-0123456789ab/fold-0``.
    job_type: str  #: ``fold-NAME``, or ``study``
    group: str  #: the runs of one study share it
    config: Mapping[str, Any]  #: the whole configuration, and what to group and filter by
    tags: Sequence[str] = ()  #: dataset, algorithm, ...


class MetricsLogger:
    """Shows the metrics of a run; what it raises is its own affair, see :class:`Guard`. This one shows nothing."""

    def knows(self, folder: Path) -> bool:
        """Return whether it was given the run of this folder before, or takes only what is trained from now on."""
        return True

    def start(self, run: RunInfo) -> bool:
        """Open the log of a run.

        Returns:
            Whether it holds what was logged before an interruption; if not, all of it is given again.
        """
        return True

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log values by name after ``step`` optimizer steps of the open run."""

    def finish(self, failed: bool = False) -> None:
        """Close the open run."""


class CsvLog(MetricsLogger):
    """Nothing beside ``metrics.csv``, which every logger keeps."""


@dataclass
class Guard:
    """Calls what may fail, so that training continues; after the first failure, which is logged, nothing more."""

    name: str  #: what is off then
    off: bool = False

    def __call__(self, call: Callable[[], Any]) -> None:
        if self.off:
            return
        try:
            call()
        except Exception as error:  # whatever a logger raises
            self.off = True
            log.warning("%s is off for the rest of this job: %s", self.name, one_line(error, None))


def error_values(rows: Sequence[Row]) -> dict[str, float]:
    """Collect the errors of one evaluation by name: each row's, and means over training and held-out environments."""
    values = {f"{ERRORS}{row.subset}/{row.env}": row.error for row in rows}
    for name, held_out, subset in (("training_val", False, "val"), ("held_out", True, "test")):
        errors = [row.error for row in rows if row.subset == subset and row.held_out == held_out]
        values |= {f"{ERRORS}{name}": sum(errors) / len(errors)} if errors else {}
    return values


FLUSH_SECONDS = 30  # after which TensorBoard sees a line


class LightningLog(MetricsLogger):
    """A Lightning logger of its own for each run, one run at a time.

    It is given the configuration with ``log_hyperparams``, each line with ``log_metrics``, and ``finalize`` at the end;
    its ``save_dir``, if it takes one, is ``logger`` in the run's folder.

    Args:
        make: the logger's class, some arguments given or none.
        name: what a warning calls it.
    """

    def __init__(self, make: Callable[..., Logger], name: str) -> None:
        self.make, self._safely = make, Guard(name)
        self._logger: Any = None

    def start(self, run: RunInfo) -> bool:
        def open_logger() -> None:
            self._logger = self.make(**self.place(run))
            self._logger.log_hyperparams(dict(run.config))

        self._safely(open_logger)
        return True

    def place(self, run: RunInfo) -> dict[str, Any]:
        """Return the logger's arguments that differ from run to run."""
        takes = "save_dir" in inspect.signature(self.make).parameters
        arguments = getattr(self.make, "keywords", {})
        return {"save_dir": str(run.folder / "logger")} if takes and "save_dir" not in arguments else {}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._safely(lambda: self._logger.log_metrics(dict(values), step=step))

    def finish(self, failed: bool = False) -> None:
        if self._logger is not None:
            self._safely(lambda: self._logger.finalize("failed" if failed else "success"))
        self._logger = None


class TensorBoardLog(LightningLog):
    """TensorBoard event files in ``tensorboard`` of each run's folder, written anew when a run resumes.

    Raises:
        ConfigError: TensorBoard is not installed.
    """

    def __init__(self) -> None:
        if not any(importlib.util.find_spec(name) for name in ("tensorboard", "tensorboardX")):
            raise ConfigError("logger=tensorboard needs TensorBoard; pip install 'dgbench[tensorboard]'")
        super().__init__(TensorBoardLogger, "TensorBoard")

    def knows(self, folder: Path) -> bool:
        return (folder / "tensorboard").is_dir()

    def start(self, run: RunInfo) -> bool:
        """Start new event files, since steps cannot be removed from old ones; all is to be written again."""
        self._safely(lambda: shutil.rmtree(run.folder / "tensorboard", ignore_errors=True))
        super().start(run)
        return False

    def place(self, run: RunInfo) -> dict[str, Any]:
        return {
            "save_dir": str(run.folder),
            "name": "tensorboard",
            "version": "",
            "default_hp_metric": False,
            "flush_secs": FLUSH_SECONDS,
        }


def build_logger(config: Any) -> MetricsLogger | None:
    """Build what ``config["logger"]`` names: one of dgbench's loggers, or a Lightning logger of the user's own.

    Raises:
        ConfigError: it cannot be imported or built, or is no logger.
    """
    content = dict(config["logger"] or {})
    target = content.pop("_target_", None)
    if not target:
        return None
    kind = class_at(target, "logger._target_", object)
    if issubclass(kind, Logger):
        try:
            inspect.signature(kind).bind_partial(**content)
        except TypeError as error:
            raise ConfigError(f"logger._target_={target} cannot be used: {error}; correct its arguments") from error
        return LightningLog(build({"logger": {**config["logger"], "_partial_": True}}, "logger"), target)
    built = build(config, "logger")
    if not isinstance(built, MetricsLogger):
        raise ConfigError(f"logger._target_={target} is no logger; subclass pytorch_lightning.loggers.Logger")
    return built


@dataclass
class WandbLog(MetricsLogger):
    """Follows one run at a time; only the first failure is logged."""

    project: str = "dgbench"
    entity: str | None = None
    mode: str | None = None
    group: str | None = None
    tags: Sequence[str] = ()
    _run: Any = field(default=None, init=False)
    _safely: Guard = field(default_factory=lambda: Guard("W&B"), init=False)

    def start(self, run: RunInfo) -> bool:
        """Open the W&B run of a run, which continues the one with the same id."""
        was_open = self.knows(run.folder)

        def init() -> None:
            import wandb

            self._run = wandb.init(
                project=self.project,
                entity=self.entity,
                mode=self.mode,  # type: ignore[arg-type]
                group=self.group or run.group,
                tags=[*self.tags, *run.tags],
                job_type=run.job_type,
                name=run.name,
                id=run.id,
                resume="allow",
                dir=str(run.folder),
                config=dict(run.config),
                settings=wandb.Settings(console="off", silent=True),
            )
            self._run.define_metric("*", step_metric="step")
            self._run.define_metric("environment/*", step_metric="environment/position")

        self._safely(init)
        return was_open

    def knows(self, folder: Path) -> bool:
        """Return whether the run of this folder was opened before; True as well where W&B is off."""
        return self._safely.off or self.mode == "disabled" or (folder / "wandb").is_dir()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._safely(lambda: self._run.log({"step": step, **values}))

    def summary(self, values: Mapping[str, float | str]) -> None:
        """Set the final numbers of the open run."""
        self._safely(lambda: self._run.summary.update(dict(values)))

    def environments(self, held_out: Mapping[str, float], everywhere: Mapping[str, float]) -> None:
        """Log errors by environment, as a line for a plot over environments and as a table.

        Args:
            held_out: environment -> error of the run that never saw it.
            everywhere: environment -> error of the run trained on all given ones.
        """
        names = [*everywhere, *(name for name in held_out if name not in everywhere)]
        places = positions(names)

        def send() -> None:
            import wandb

            for name in sorted(names, key=places.__getitem__):
                point = {"environment/position": places[name]}
                point |= {"environment/held_out": held_out[name]} if name in held_out else {}
                point |= {"environment/everywhere": everywhere[name]} if name in everywhere else {}
                self._run.log(point)
            lines: list[Any] = [[name, places[name], held_out.get(name), everywhere.get(name)] for name in names]
            columns: list[Any] = ["environment", "position", "held out", "everywhere"]
            self._run.log({"environments": wandb.Table(columns=columns, data=lines)})

        self._safely(send)

    def finish(self, failed: bool = False) -> None:
        if self._run is not None:
            self._safely(lambda: self._run.finish(exit_code=int(failed)))
        self._run = None


def positions(names: Sequence[str]) -> dict[str, float]:
    """Place environments on an axis: at their numbers where all names are numbers, else at 0, 1, ... in order."""
    try:
        return {name: float(name) for name in names}
    except ValueError:
        return {name: float(place) for place, name in enumerate(names)}
