"""Weights & Biases: one run per member, and one per study for its measures. Never in the way of training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.records import Row

log = logging.getLogger(__name__)


class WandbLog:
    """Logs rows under stable names ``error/<subset>/<environment>``; the first failure is told and the last.

    Args:
        project, entity, mode: as in ``wandb.init``; ``WANDB_MODE`` of the environment wins over a null mode.
        group: name of the experiment; null takes the study's folder name.
        tags: tags of every run.
    """

    def __init__(
        self,
        project: str = "dgbench",
        entity: str | None = None,
        mode: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        self.project, self.entity, self.mode, self.group, self.tags = project, entity, mode, group, list(tags)
        self._run: Any = None
        self._off = False

    def start(self, folder: Path, run_id: str, name: str, job_type: str, group: str, config: Mapping[str, Any]) -> None:
        """Open the run of one member; the same ``run_id`` continues it after a resume."""

        def init() -> None:
            import wandb

            self._run = wandb.init(
                project=self.project,
                entity=self.entity,
                mode=self.mode,  # type: ignore[arg-type]
                group=self.group or group,
                tags=self.tags,
                job_type=job_type,
                name=name,
                id=run_id,
                resume="allow",
                dir=str(folder),
                config=dict(config),
                settings=wandb.Settings(console="off", silent=True),
            )
            self._run.define_metric("*", step_metric="step")

        self._safely(init)

    def rows(self, step: int, rows: Sequence[Row]) -> None:
        """One evaluation; also listens to :class:`~dgbench.callbacks.environment_errors.EnvironmentErrors`."""
        values = {f"error/{row.subset}/{row.env}": row.error for row in rows}
        self._safely(lambda: self._run.log({"step": step, **values}))

    def summary(self, values: Mapping[str, float]) -> None:
        """Final numbers of the open run."""
        self._safely(lambda: self._run.summary.update(dict(values)))

    def finish(self, failed: bool = False) -> None:
        """Close the open run."""
        if self._run is not None:
            self._safely(lambda: self._run.finish(exit_code=int(failed)))
        self._run = None

    def _safely(self, call: Callable[[], Any]) -> None:
        if self._off:
            return
        try:
            call()
        except Exception as error:  # whatever W&B does, training goes on
            self._off = True
            log.warning("W&B is off for the rest of this job: %s: %s", type(error).__name__, error)
