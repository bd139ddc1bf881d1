"""Lightning's CSV logger for a folder that has other files in it, and a file that may be there already."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from dgbench.records.files import write_whole
from dgbench.records.metrics import METRICS_FILE, metrics_text


class MetricsFile(CSVLogger):
    """Appends to the ``metrics.csv`` of a run folder, where Lightning's logger would delete it first.

    Lines are written by ``save()`` only.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, name="", version="", flush_logs_every_n_steps=sys.maxsize)
        self._experiment = _Continued(folder)


class _Continued(ExperimentWriter):
    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._file = folder / METRICS_FILE
        if self._file.exists():
            with open(self._file, newline="") as file:
                self.metrics_keys = next(csv.reader(file), [])

    def _check_log_dir_exists(self) -> None:
        """A run folder is not empty, and what is there is continued."""

    def _rewrite_with_new_header(self, fieldnames: Sequence[str]) -> None:
        """The same file with more columns, whole at any moment."""
        with open(self._file, newline="") as file:
            text = metrics_text(fieldnames, csv.DictReader(file))
        write_whole(self._file, text, sync=False)
