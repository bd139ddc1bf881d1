"""Rows of unchanged folders, kept in one file of columns so that a report of many runs is fast the second time.

The file is hidden in the folder that was searched. It says nothing that the row files do not say: it may be deleted,
one that is corrupt or of another version is passed over, and a folder that cannot be written gets none.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import sys
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

import dgbench.records.rows
import dgbench.reports.reading.row_files
from dgbench.records.files import open_regular, write_whole
from dgbench.records.rows import ROW_FILE
from dgbench.reports.reading.row_files import (
    ROW_COLUMNS,
    ROW_TYPE,
    Fault,
    FoundRun,
    Names,
    RowFile,
    read_row_file,
    stamp_of,
)

CACHE_FILE = ".dgbench-rows.npz"
WORTH = 8_000_000  # bytes of row files read anew from which on the cache is written: less is read in a moment


class RowCache:
    """Reads the row files under a searched folder, those that have not changed from the cache.

    Args:
        root: the searched folder.
        names: receives the names that rows hold.
        use: False reads all row files and writes nothing.
    """

    def __init__(self, root: Path, names: Names, use: bool = True) -> None:
        self._file, self._root, self._names, self._use = root / CACHE_FILE, root, names, use
        self._kept = _load(self._file, names) if use else {}
        self._files: dict[str, RowFile] = {}
        self._anew = 0

    def read(self, folder: Path) -> RowFile:
        """What the row file of a run folder under the root says.

        Raises:
            OSError: it cannot be read, or is no regular file.
        """
        file, key = folder / ROW_FILE, os.path.relpath(folder, self._root)
        known = self._kept.get(key)
        if known is None or known.stamp != stamp_of(os.stat(file)):
            known = read_row_file(file, self._names)
            self._anew += known.stamp[0] if known.stamp else 0
        self._files[key] = known
        return known

    def save(self) -> None:
        """Replace the cache by what was read since, where that is worth it and the folder can be written."""
        if self._use and self._anew >= WORTH:
            with suppress(OSError):
                content = _pack({key: file for key, file in self._files.items() if file.stamp}, self._names)
                write_whole(self._file, content, sync=False)


def _pack(files: dict[str, RowFile], names: Names) -> bytes:
    listed = [
        {
            "folder": key,
            "stamp": file.stamp,
            "faults": [astuple(fault) for fault in file.faults],
            "runs": [(run.identity, run.last_step, run.together, len(run.rows)) for run in file.runs],
        }
        for key, file in files.items()
    ]
    index = json.dumps({"version": _version(), "names": names.listed, "files": listed}, separators=(",", ":"))
    rows = np.concatenate([np.empty(0, ROW_TYPE), *(run.rows for file in files.values() for run in file.runs)])
    buffer = io.BytesIO()
    columns: dict[str, Any] = {name: rows[name] for name in ROW_COLUMNS}
    np.savez(buffer, index=np.frombuffer(index.encode(), dtype=np.uint8), **columns)
    return buffer.getvalue()


def _load(path: Path, names: Names) -> dict[str, RowFile]:
    """The row files that a cache holds, by folder; none where there is no cache, or one that cannot be used."""
    try:
        with open_regular(path) as handle, np.load(handle, allow_pickle=False) as stored:
            index = json.loads(stored["index"].tobytes())
            if index["version"] != _version():
                return {}
            numbers = np.array([names.number(name) for name in index["names"]], dtype=np.int32)
            columns = {name: stored[name] for name in ROW_COLUMNS}
        rows = np.empty(len(columns["step"]), dtype=ROW_TYPE)
        for name in ROW_COLUMNS:
            rows[name] = numbers[columns[name]] if name in ("env", "subset") else columns[name]
        files, start = {}, 0
        for entry in index["files"]:
            runs = []
            for identity, last_step, together, count in entry["runs"]:
                runs.append(FoundRun(identity, last_step, together, rows[start : start + count]))
                start += count
            faults = [Fault(*fault) for fault in entry["faults"]]
            files[entry["folder"]] = RowFile(runs, faults, tuple(entry["stamp"]))
        return files
    except Exception:  # absent, cut short or of another make, in any way: then the row files are read
        return {}


@functools.cache
def _version() -> str:
    """Another one whenever the code that reads rows is another, or what Python takes for printable."""
    modules = (
        dgbench.records.rows, dgbench.records.rows, dgbench.records.rows, dgbench.reports.reading.row_files,
        dgbench.reports.reading.row_files,
    )  # fmt: skip
    content = b"".join(Path(str(module.__file__)).read_bytes() for module in (*modules, sys.modules[__name__]))
    return hashlib.sha256(content).hexdigest() + sys.version
