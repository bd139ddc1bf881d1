"""The metrics of one run: kept in its ``metrics.csv``, and shown by the logger that follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from dgbench.callbacks.loggers import Guard, MetricsLogger, RunInfo, error_values
from dgbench.callbacks.metrics_file import MetricsFile
from dgbench.records.metrics import ERRORS, METRICS_FILE, Lines, read_metrics, write_metrics
from dgbench.records.rows import ROW_FILE, Row, read_rows, row_of


class RunMetrics:
    """Collects lines, and hands them on at every evaluation and before every checkpoint.

    So a checkpoint's steps are always on disk. What a run logged after the checkpoint that it continues from is
    dropped from the file, and not shown again by a logger that has seen it.

    Args:
        run: whose metrics.
        live: shows lines while the run trains; None where other runs train beside it.
        safely: what guards the file; shared by the runs of a job.
    """

    def __init__(self, run: RunInfo, live: MetricsLogger | None, safely: Guard) -> None:
        self.run, self.live, self._safely = run, live, safely
        self._file: MetricsFile | None = None
        self._waiting: Lines = {}
        self._shown: set[tuple[int, frozenset[str]]] = set()

    def begin(self, step: int) -> None:
        """Continue after ``step`` optimizer steps, or start with 0; the rows of the run end there."""
        before: Lines = {}
        kept: Lines = {}

        def cut() -> None:
            before.update(read_metrics(self.run.folder / METRICS_FILE))
            kept.update(with_errors({at: values for at, values in before.items() if at <= step}, self.run.folder))
            write_metrics(self.run.folder / METRICS_FILE, kept)
            self._file = MetricsFile(self.run.folder)

        self._safely(cut)
        if self.live is None:
            return
        if self.live.start(self.run):
            self._shown = {(at, frozenset(values)) for at, values in before.items()}
            return
        for at, values in kept.items():
            self.live.log(at, values)

    def rows(self, step: int, rows: Sequence[Row]) -> None:
        """Log one evaluation."""
        self.log(step, error_values(rows))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log values by name after ``step`` optimizer steps; those of one step make one line."""
        self._waiting.setdefault(step, {}).update(values)

    def save(self) -> None:
        """Hand on what was logged."""
        lines, self._waiting = self._waiting, {}

        def append() -> None:
            if self._file is None or not lines:
                return
            for step, values in lines.items():
                self._file.log_metrics(dict(values), step)
            self._file.save()

        self._safely(append)
        for step, values in lines.items():
            if self.live is not None and (step, frozenset(values)) not in self._shown:
                self.live.log(step, values)

    def finish(self, failed: bool = False) -> None:
        """The run ends, or is interrupted."""
        self.save()
        if self.live is not None:
            self.live.finish(failed)


def with_errors(lines: Lines, folder: Path) -> Lines:
    """Lines of a run whose errors are those of its rows; also those that were recorded without a logger.

    Raises:
        OSError: the rows cannot be read.
    """
    file = folder / ROW_FILE
    rows = [row_of(flat) for flat in read_rows(file)[0]] if file.exists() else []
    found = {step: {k: v for k, v in own.items() if not k.startswith(ERRORS)} for step, own in lines.items()}
    for step, evaluation in groupby(rows, key=lambda row: row.step):
        found.setdefault(step, {}).update(error_values(list(evaluation)))
    return {step: values for step, values in sorted(found.items()) if values}
