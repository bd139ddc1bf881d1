"""Log runs to Weights & Biases, many at a time, never in the way of training.

Each run has an id that stays the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgbench.callbacks.loggers import Guard, MetricsLogger, RunInfo, RunLog
from dgbench.records.metrics import ERRORS
from dgbench.records.spec import digest
from dgbench.records.wandb_runs import (
    Agent,
    Mark,
    agent_of_environment,
    connection,
    forget_mark,
    is_off,
    is_sent,
    project_name,
    read_mark,
    turn_off,
    without_agent,
    write_mark,
)

LIVE_RUNS = 100  # of one process; docs/how_to/loggers.md says what they cost
VALIDATION = f"{ERRORS}training_val"
ADVICE = "training continues, and the same command sends later what W&B lacks"
STUDY = "study"  #: job type of the W&B run of a study


@dataclass
class WandbLog(MetricsLogger):
    """Shows runs and studies as W&B runs.

    The first failure is reported once, and nothing more is shown after it.

    Args:
        project: W&B project; None takes ``WANDB_PROJECT``, or dgbench.
        entity: W&B user or team; None takes the default.
        mode: ``online``, ``offline`` or ``disabled``; None takes ``WANDB_MODE``.
        group: of all runs; None takes ``WANDB_RUN_GROUP``, an agent's sweep, or the study's folder.
        name: of the study's run; None takes ``WANDB_NAME``, or the study's folder.
        tags: of all runs; None takes ``WANDB_TAGS``.
    """

    project: str | None = None
    entity: str | None = None
    mode: str | None = None
    group: str | None = None
    name: str | None = None
    tags: Sequence[str] | None = None
    # by id of the run or study
    _open: dict[str, WandbRun] = field(default_factory=dict, init=False)
    _agent: Agent | None = field(default_factory=agent_of_environment, init=False)
    _agents_study: str = field(default="", init=False)  # id of the study that has the agent's run

    most_live = LIVE_RUNS
    label = "W&B"

    def __post_init__(self) -> None:
        self.guard = Guard(self.label, "command", ADVICE, self._turn_off)

    @property
    def follows_studies(self) -> bool:
        """Whether the run of a study is to be seen while its runs train together.

        It is if an agent watches it.
        """
        return self._agent is not None

    def knows(self, folder: Path) -> bool:
        """Return whether W&B has all of a run, or is off."""
        return self.guard.off or self._mode == "disabled" or is_sent(folder)

    @property
    def _mode(self) -> str | None:
        return self.mode or os.environ.get("WANDB_MODE")

    def open(self, run: RunInfo, anew: bool = False) -> WandbRun:
        """Open the W&B run of a run or study; one that is open already stays so."""
        if run.id in self._open:
            return self._open[run.id]
        if is_off(run.sweep):
            self.guard.off = True
        mark = None if anew else read_mark(run.folder)
        opened = WandbRun(self, run, continues=mark is not None)
        self._open[run.id] = opened
        self.guard.attempt(lambda: opened.begin(self._arguments(run, mark)))
        return opened

    def close(self, run: WandbRun) -> None:
        """Forget a run that is open no longer."""
        self._open.pop(run.info.id, None)

    def _turn_off(self) -> bool:
        """Have everything sent again by the next command that W&B has only a part of.

        Returns:
            Whether another job of the sweep has told of it.
        """
        told = False
        for run in self._open.values():
            forget_mark(run.info.folder)
            told = told or is_off(run.info.sweep)
            turn_off(run.info.sweep)
        return told

    def _arguments(self, run: RunInfo, mark: Mark | None) -> dict[str, Any]:
        """Return the arguments of ``wandb.init``."""
        name = run.name
        base = self.name or os.environ.get("WANDB_NAME")
        if base:
            name = run.name.replace(run.group, base, 1)
        group = self.group or os.environ.get("WANDB_RUN_GROUP")
        if not group:
            group = self._agent.sweep if self._agent else run.group
        tags = self.tags
        if tags is None:
            tags = _words(os.environ.get("WANDB_TAGS", ""))
        arguments: dict[str, Any] = {
            "project": project_name(self.project),
            "entity": self.entity,
            "mode": self.mode,
            "group": group,
            "tags": list(dict.fromkeys([*tags, *run.tags])),
            "job_type": run.job_type,
            "name": name,
            "id": run.id,
            # without a mark, what W&B may have under this id is written over
            "resume": "allow" if mark else None,
            "reinit": "create_new",
            "dir": str(run.folder),
            "config": dict(run.config),
        }
        return arguments | self._of_agent(run, arguments["config"])

    def _of_agent(self, run: RunInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what differs under ``wandb agent``.

        That is its project, and for the first study its run.
        """
        if self._agent is None:
            return {}
        changed: dict[str, Any] = {
            "project": project_name(os.environ.get("WANDB_PROJECT") or self.project),
            "entity": os.environ.get("WANDB_ENTITY") or self.entity,
        }
        if run.job_type == STUDY and self._agents_study in ("", run.id):
            self._agents_study = run.id
            changed |= {"id": self._agent.run, "resume": "allow"}
            changed["config"] = {**config, **self._agent.parameters}
            changed["sweep_id"] = self._agent.sweep
        return changed


@dataclass
class WandbRun(RunLog):
    """The W&B run of a run or study."""

    log_of: WandbLog
    info: RunInfo
    continues: bool  #: what an earlier command logged
    _run: Any = field(default=None, init=False)
    _lowest: float = field(default=float("inf"), init=False)  # validation error so far

    def begin(self, arguments: Mapping[str, Any]) -> None:
        """Start the W&B run."""
        import wandb

        with without_agent():
            wandb.setup()  # remembers the environment
        settings = connection(wandb.Settings.model_fields)
        given = dict(arguments)
        sweep = given.pop("sweep_id", None)
        if sweep:
            settings["sweep_id"] = sweep
        if self.info.job_type != STUDY:
            # the study's run has the list of packages, which takes 0.2 s
            settings["x_save_requirements"] = False
        with without_agent():
            self._run = wandb.init(**given, settings=wandb.Settings(**settings))
        self._run.define_metric("*", step_metric="step")
        self._run.define_metric("environment/*", step_metric="environment/position")
        write_mark(self.info.folder, Mark(given["id"], offline=self._run.offline))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        line = {"step": step, **values}
        if VALIDATION in values:
            self._lowest = min(self._lowest, values[VALIDATION])
            line[f"{VALIDATION}_min"] = self._lowest
        self.log_of.guard.attempt(lambda: self._run.log(line))

    def skip(self, step: int, values: Mapping[str, float]) -> None:
        self._lowest = min(self._lowest, values.get(VALIDATION, self._lowest))

    def results(self, results: StudyResults) -> None:
        """Log what a study found: errors by environment, and its summary.

        The errors are logged as a line for a plot and as a table.
        """
        names = list(dict.fromkeys([*results.everywhere, *results.held_out]))
        places = positions(names)

        def send() -> None:
            import wandb

            for name in sorted(names, key=places.__getitem__):
                point = {"environment/position": places[name]}
                if name in results.held_out:
                    point["environment/held_out"] = results.held_out[name]
                if name in results.everywhere:
                    point["environment/everywhere"] = results.everywhere[name]
                self._run.log(point)
            columns: list[Any] = ["environment", "position", "held out", "everywhere"]
            lines: list[Any] = []
            for name in names:
                held_out = results.held_out.get(name)
                lines.append([name, places[name], held_out, results.everywhere.get(name)])
            self._run.log({"environments": wandb.Table(columns=columns, data=lines)})
            self._run.summary.update(dict(results.summary))

        self.log_of.guard.attempt(send)

    def finish(self, failed: bool = False) -> None:
        self.end(failed)

    def end(self, failed: bool, content: str = "") -> None:
        """End the W&B run, and mark it as taken if W&B had no error and nothing is to come."""
        is_whole = bool(content) or not failed

        def end() -> None:
            self._run.finish(exit_code=int(failed))
            write_mark(self.info.folder, Mark(self._run.id, is_whole, self._run.offline, content))

        if self._run is not None:
            self.log_of.guard.attempt(end)
        self._run = None
        self.log_of.close(self)


def positions(names: Sequence[str]) -> dict[str, float]:
    """Place environments on an axis.

    They stand at their numbers if all names are numbers, else at 0, 1, ... in order.
    """
    try:
        return {name: float(name) for name in names}
    except ValueError:
        return {name: float(place) for place, name in enumerate(names)}


def _words(text: str) -> list[str]:
    """Split ``a, b`` at its commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


@dataclass(frozen=True)
class StudyResults:
    """What the W&B run of a study shows at its end."""

    held_out: Mapping[str, float]  #: environment -> error of the run that never saw it
    everywhere: Mapping[str, float]  #: environment -> error of the run trained on all given ones
    summary: Mapping[str, float | str]  #: the measures, and what selected them


def log_study(log: WandbLog, study: RunInfo, results: StudyResults, failed: bool) -> None:
    """Log the results of a study, unless W&B has the same ones."""
    content = digest([dict(results.held_out), dict(results.everywhere), dict(results.summary)])
    mark = read_mark(study.folder)
    has_them = mark is not None and mark.content == content
    if has_them and not log.follows_studies:  # an agent waits for its run
        return
    run = log.open(study)
    run.results(results)
    run.end(failed, content)
