"""A cache of the rows of many runs, so that a report of them is fast the second time.

It is hidden in the folder that was searched, and says nothing that the row files do not say: it may
be deleted, one of another version is passed over, and a folder that cannot be written gets none. It
keeps the checksum of every row file that it was made from, of which some are looked at before it is
believed; one that is damaged, or was made from other rows, is named and made again.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import logging
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import dgbench.records.checks
import dgbench.records.evaluations
import dgbench.records.row_columns
import dgbench.records.rows
import dgbench.records.run_identity
import dgbench.records.status
import dgbench.reports.reading.row_files
from dgbench.records.files import Checksum, open_regular, read_arrays, write_whole
from dgbench.records.rows import ROW_FILE
from dgbench.reports.reading.folders import printable
from dgbench.reports.reading.row_files import (
    IDENTITY_KEYS,
    ROW_TYPE,
    Fault,
    Names,
    RowFile,
    Run,
    read_row_file,
    stamp_of,
)

log = logging.getLogger("dgbench")
CACHE_FILE = ".dgbench-rows.npz"
# bytes of row files read anew from which on the cache is written: less is read in a moment
WORTH_CACHING = 8_000_000
CHECKED_FILES = 16  # row files of a cache that are looked at before it is believed


class RowCache:
    """Reads the row files under a searched folder, those that have not changed from the cache.

    Args:
        root: the searched folder.
        names: receives the names that rows hold.
        use: False reads all row files and writes nothing.
    """

    def __init__(self, root: Path, names: Names, use: bool) -> None:
        self._file = root / CACHE_FILE
        self._root = root
        self._names = names
        self._use = use
        self._is_damaged = False
        self._kept = self._believed(_loaded(self._file, names)) if use else {}
        self._files: dict[str, RowFile] = {}
        self._anew = 0

    def _believed(self, loaded: dict[str, RowFile] | None) -> dict[str, RowFile]:
        """Return what was loaded, or nothing if row files are not those that it was made from.

        Only some of them, all over it, are compared.
        """
        if loaded is None:
            fault = "is damaged"
        elif any(self._is_other(key, loaded[key]) for key in _spread(list(loaded))):
            fault = "was made from other rows"
        else:
            return loaded
        self._is_damaged = True
        log.warning("%s %s; it is made again", printable(self._file), fault)
        return {}

    def _is_other(self, key: str, kept: RowFile) -> bool:
        """Return whether a row file looks unchanged, and holds other bytes than those that were
        read.
        """
        file = self._root / key / ROW_FILE
        try:
            if stamp_of(os.stat(file)) != kept.stamp:
                return False  # it is read anew
            with open_regular(file) as handle:
                return Checksum.of_beginning(handle).crc32 != kept.crc32
        except OSError:
            return False

    def read(self, folder: Path) -> RowFile:
        """Read the row file of a run folder under the root, from the cache where it has not
        changed.

        Raises:
            OSError: it cannot be read, or is no regular file.
        """
        file = folder / ROW_FILE
        key = os.path.relpath(folder, self._root)
        content = self._kept.get(key)
        if content is None or content.stamp != stamp_of(os.stat(file)):
            content = read_row_file(file, self._names)
            self._anew += content.stamp[0] if content.stamp else 0
        if self._use:
            self._files[key] = content
        return content

    def save(self) -> None:
        """Replace the cache by all row files that were read, where enough is new and the folder can
        be written.
        """
        if self._use and (self._is_damaged or self._anew >= WORTH_CACHING):
            with suppress(OSError):
                files = {key: file for key, file in self._files.items() if file.stamp}
                write_whole(self._file, lambda file: _pack(files, self._names, file), sync=False)


def _pack(files: Mapping[str, RowFile], names: Names, target: BinaryIO) -> None:
    """Write a cache: an ``.npz`` file, run by run, since all rows are in memory once already."""
    with zipfile.ZipFile(target, "w") as archive:
        # one line about all, and one for each file
        with archive.open("index", "w", force_zip64=True) as lines:
            lines.write(_json_line({"version": _version(), "names": list(names)}))
            for key, file in files.items():
                lines.write(_json_line(_about(key, file)))
        arrays = []
        for file in files.values():
            arrays += [rows for _, rows in file.runs]
        shape = (sum(map(len, arrays)),)
        header = {
            "descr": np.lib.format.dtype_to_descr(ROW_TYPE),
            "fortran_order": False,
            "shape": shape,
        }
        with archive.open("rows.npy", "w", force_zip64=True) as content:  # as numpy.savez writes it
            np.lib.format.write_array_header_2_0(content, header)
            for rows in arrays:
                content.write(rows.tobytes())


def _about(key: str, file: RowFile) -> dict[str, Any]:
    """Collect what a cache says of a file besides its rows."""
    # copies are known once all files are read
    runs = []
    for run, _ in file.runs:
        values = dict(vars(run))
        del values["copies"]
        runs.append(values)
    faults = [astuple(fault) for fault in file.faults]
    return {"folder": key, "stamp": file.stamp, "crc32": file.crc32, "faults": faults, "runs": runs}


def _json_line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _spread(keys: Sequence[str]) -> list[str]:
    """Choose some keys, all over them."""
    places = np.unique(np.linspace(0, max(0, len(keys) - 1), CHECKED_FILES).astype(int))
    return [keys[place] for place in places.tolist() if keys]


def _loaded(path: Path, names: Names) -> dict[str, RowFile] | None:
    """Load the row files that a cache holds, by folder.

    There are none without a cache, or if it is one of another version.

    Returns:
        None if it is damaged.
    """
    if not path.is_file():
        return {}
    try:
        content = read_arrays(path)
        lines = io.BytesIO(content.pop("index"))
        rows = content["rows"].astype(ROW_TYPE, copy=False)
        about = json.loads(next(lines))
        if about["version"] != _version():
            return {}
        numbers = np.array([names[name] for name in about["names"]], dtype=np.int32)
        for name in ("env", "subset"):
            rows[name] = numbers[rows[name]]
        files = {}
        start = 0
        for entry in map(json.loads, lines):
            runs = []
            for values in entry["runs"]:
                # with keys that all runs share: those of a parsed line are texts of its own
                identity = {key: names.shared(values["identity"][key]) for key in IDENTITY_KEYS}
                run = Run(**{**values, "identity": identity})
                runs.append((run, rows[start : start + run.row_count]))
                start += run.row_count
            faults = [Fault(*fault) for fault in entry["faults"]]
            files[entry["folder"]] = RowFile(runs, faults, tuple(entry["stamp"]), entry["crc32"])
        if start != len(rows):
            return None
        return files
    except Exception:  # cut short or of another make, in any way: then the row files are read
        return None


@functools.cache
def _version() -> str:
    """Compute a version that changes with the code that reads rows and with Python, which decides
    what is printable.
    """
    modules = (
        dgbench.records.checks,
        dgbench.records.run_identity,
        dgbench.records.rows,
        dgbench.records.row_columns,
        dgbench.records.evaluations,
        dgbench.records.status,
        dgbench.reports.reading.row_files,
    )
    files = [str(module.__file__) for module in modules]
    content = b"".join(Path(file).read_bytes() for file in [*files, __file__])
    return hashlib.sha256(content).hexdigest() + sys.version
