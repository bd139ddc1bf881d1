"""The log.txt of run folders."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

LOG_FILE = "log.txt"


class _FolderLogs(logging.Handler):
    """Appends every record to a file in each folder; a stack has more runs than a process may have open files."""

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__(logging.DEBUG)
        self.files = [folder / LOG_FILE for folder in folders]
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        for file in self.files:
            with suppress(OSError), open(file, "a") as handle:  # a full disk is reported by what trains
                handle.write(line)


@contextmanager
def own_log(*folders: Path) -> Iterator[None]:
    """Everything logged while runs train also goes to the log.txt of their folders."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    handler, root, ours = _FolderLogs(folders), logging.getLogger(), logging.getLogger("dgbench")
    root.addHandler(handler)
    ours.setLevel(logging.DEBUG)  # details go to the files; the console's handler stops at INFO
    try:
        yield
    finally:
        root.removeHandler(handler)
