"""Weights & Biases: one W&B run per run, and one per study for its measures. Never in the way of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.callbacks.loggers import Guard, RunInfo


class WandbLog:
    """Follows one run at a time; only the first failure is logged.

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
        self._safely = Guard("W&B")

    def start(self, run: RunInfo) -> bool:
        """Open the W&B run of a run, which continues the one with the same id."""
        known = self.knows(run.folder)

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
        return known

    def knows(self, folder: Path) -> bool:
        """Whether the run of this folder was opened before; True as well where W&B is off."""
        return self._safely.off or self.mode == "disabled" or (folder / "wandb").is_dir()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One line of the history."""
        self._safely(lambda: self._run.log({"step": step, **values}))

    def summary(self, values: Mapping[str, float | str]) -> None:
        """Final numbers of the open run."""
        self._safely(lambda: self._run.summary.update(dict(values)))

    def environments(self, held_out: Mapping[str, float], everywhere: Mapping[str, float]) -> None:
        """Errors by environment, as a line for a plot over environments and as a table.

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
        """Close the open run."""
        if self._run is not None:
            self._safely(lambda: self._run.finish(exit_code=int(failed)))
        self._run = None


def positions(names: Sequence[str]) -> dict[str, float]:
    """Where an axis shows environments: at their numbers where all names are numbers, else at 0, 1, ... in order."""
    try:
        return {name: float(name) for name in names}
    except ValueError:
        return {name: float(place) for place, name in enumerate(names)}
