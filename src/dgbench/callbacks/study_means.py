"""Show a study while its runs train together: means over the runs, in the log of the study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dgbench.callbacks.loggers import MetricsLogger, RunInfo, RunLog

_Values = dict[int, dict[str, list[float]]]  # step -> name -> value of each run


class StudyMeans(MetricsLogger):
    """Opens for each run a share in the log of its study.

    Args:
        logger: has the logs of the studies.
        studies: of each run, by its id.
        with_runs: open a log of each run besides.
    """

    def __init__(
        self, logger: MetricsLogger, studies: Mapping[str, RunInfo], with_runs: bool
    ) -> None:
        self.logger = logger
        self.studies = studies
        self.with_runs = with_runs
        self._means: dict[str, _Means] = {}  # by id of the study
        self._shown = dict.fromkeys(study.id for study in studies.values())
        if not with_runs:
            self._shown = dict.fromkeys(list(self._shown)[: logger.most_live])

    def open(self, run: RunInfo, anew: bool = False) -> RunLog:
        """Open the log of a run, which shares that of its study."""
        of_run = self.logger.open(run) if self.with_runs else RunLog()
        study = self.studies[run.id]
        if study.id not in self._shown:
            return of_run
        if study.id not in self._means:
            self._means[study.id] = _Means(self.logger.open(study))
        return _Share(self._means[study.id], of_run)


@dataclass
class _Means:
    """Means over the runs of a study, sent once each of them has logged what there was."""

    log: RunLog
    _open: set[int] = field(default_factory=set)  # shares of runs that train
    _ready: set[int] = field(default_factory=set)  # of those, the ones that wait for the others
    _values: _Values = field(default_factory=dict)
    _past: _Values = field(default_factory=dict)  # what the log holds from an earlier command

    def add(self, step: int, values: Mapping[str, float]) -> None:
        _collect(self._values, step, values)

    def skip(self, step: int, values: Mapping[str, float]) -> None:
        _collect(self._past, step, values)

    def enter(self, share: int) -> None:
        self._open.add(share)

    def wait(self, share: int) -> None:
        self._ready.add(share)
        if self._open <= self._ready:
            self.send()

    def leave(self, share: int, failed: bool) -> None:
        self._open.discard(share)
        if self._open <= self._ready:
            self.send()
        if not self._open:
            self.log.finish(failed)

    def send(self) -> None:
        self._ready.clear()
        for step, line in sorted(self._past.items()):
            self.log.skip(step, _means(line))
        for step, line in sorted(self._values.items()):
            self.log.log(step, _means(line))
        self._past.clear()
        self._values.clear()


def _collect(collected: _Values, step: int, values: Mapping[str, float]) -> None:
    line = collected.setdefault(step, {})
    for name, value in values.items():
        line.setdefault(name, []).append(value)


def _means(line: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: sum(values) / len(values) for name, values in line.items()}


class _Share(RunLog):
    """What one run gives to the means of its study."""

    def __init__(self, means: _Means, of_run: RunLog) -> None:
        self._means = means
        self._of_run = of_run
        self.continues = of_run.continues and means.log.continues
        means.enter(id(self))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._of_run.log(step, values)
        self._means.add(step, values)

    def skip(self, step: int, values: Mapping[str, float]) -> None:
        self._of_run.skip(step, values)
        self._means.skip(step, values)

    def round_ends(self) -> None:
        self._means.wait(id(self))

    def finish(self, failed: bool = False) -> None:
        self._of_run.finish(failed)
        self._means.leave(id(self), failed)
