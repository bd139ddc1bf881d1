"""Lightning's loggers: TensorBoard, and any that a user names."""

from __future__ import annotations

import importlib.util
import inspect
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hydra.utils import get_class
from pytorch_lightning.loggers import Logger, TensorBoardLogger

from dgbench.callbacks.loggers import Guard, MetricsLogger, RunInfo
from dgbench.errors import ConfigError
from dgbench.plan.building import build

FLUSH_SECONDS = 30  # after which TensorBoard sees a line


class LightningLog:
    """A Lightning logger of its own for each run, one run at a time.

    It is given the configuration with ``log_hyperparams``, each line with ``log_metrics``, and ``finalize`` at the end;
    its ``save_dir``, if it takes one, is ``logger`` in the run's folder.

    Args:
        make: the logger's class, some arguments given or none.
        name: what a warning calls it.
    """

    def __init__(self, make: Callable[..., Logger], name: str) -> None:
        self.make, self._safely = make, Guard(name)
        self._logger: Logger | None = None

    def knows(self, folder: Path) -> bool:
        """It cannot be asked, so it gets what is trained from now on."""
        return True

    def start(self, run: RunInfo) -> bool:
        def open_logger() -> None:
            self._logger = self.make(**self.place(run))
            self._logger.log_hyperparams(dict(run.config))  # type: ignore[arg-type]

        self._safely(open_logger)
        return True

    def place(self, run: RunInfo) -> dict[str, Any]:
        """Arguments that differ from run to run."""
        takes = "save_dir" in inspect.signature(self.make).parameters
        given = getattr(self.make, "keywords", {})
        return {"save_dir": str(run.folder / "logger")} if takes and "save_dir" not in given else {}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._safely(lambda: self._opened().log_metrics(dict(values), step=step))

    def finish(self, failed: bool = False) -> None:
        if self._logger is not None:
            self._safely(lambda: self._opened().finalize("failed" if failed else "success"))
        self._logger = None

    def _opened(self) -> Logger:
        assert self._logger is not None, "no run is open"
        return self._logger


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
        """Event files know no removal of steps, so all are written again."""
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
    try:
        kind: type[Any] = get_class(target)
        if issubclass(kind, Logger):
            inspect.signature(kind).bind_partial(**content)
    except Exception as error:  # also whatever the module itself raises
        reason = " ".join(str(error).split())
        raise ConfigError(f"logger._target_={target} cannot be used: {reason}; correct path or arguments") from error
    if issubclass(kind, Logger):
        return LightningLog(build({"logger": {**config["logger"], "_partial_": True}}, "logger"), target)
    built = build(config, "logger")
    if not isinstance(built, MetricsLogger):
        raise ConfigError(f"logger._target_={target} is no logger; subclass pytorch_lightning.loggers.Logger")
    return built
