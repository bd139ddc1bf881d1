"""A large uint8 array on disk that is made once, in parallel, and can be made in several goes.

Every chunk is checked when it is first used, loaded or mapped. One that is damaged is named and
made again.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgbench.errors import DataError
from dgbench.phases import phase
from dgbench.records.files import read_regular, write_whole
from dgbench.records.locks import exclusive

log = logging.getLogger(__name__)

Produce = Callable[[int, int], tuple[np.ndarray, Any]]
Note = tuple[int, int, Any]  #: first row of a chunk, its checksum, and what ``produce`` noted
DATA = "data.uint8"
PROGRESS = "progress.jsonl"
COMPLETE = "complete.jsonl"


@dataclass(frozen=True)
class _Recipe:
    """How the array of a folder is made."""

    folder: Path
    shape: tuple[int, ...]
    produce: Produce
    chunk: int

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:]))

    def starts(self) -> range:
        """Return the first rows of all chunks."""
        return range(0, self.shape[0], self.chunk)

    def rows_of(self, first: int) -> slice:
        """Return the rows of the chunk that begins with a row."""
        return slice(first, min(first + self.chunk, self.shape[0]))

    def make(self, first: int, descriptor: int) -> Note:
        """Make a chunk and write it into the open file of the array."""
        rows, note = self.produce(first, self.rows_of(first).stop)
        flat = np.ascontiguousarray(rows)
        os.pwrite(descriptor, flat.data, first * self.row_bytes)
        return first, zlib.crc32(flat.data), note


class CachedArray:
    """An array that is complete on disk.

    Attributes:
        notes: (first row, checksum, what ``produce`` noted) of every chunk, in order.
    """

    def __init__(self, recipe: _Recipe, notes: list[Note]) -> None:
        self._recipe = recipe
        self.notes = notes
        self._mending = threading.Lock()

    @property
    def folder(self) -> Path:
        """Return where it lies."""
        return self._recipe.folder

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array; the first dimension was made chunk by chunk."""
        return self._recipe.shape

    def mapped(self) -> MappedArray:
        """Map the array's file into memory, to be checked where it is used.

        What is written to the mapping does not reach the disk.
        """
        return MappedArray(self, np.memmap(self.folder / DATA, np.uint8, "c", shape=self.shape))

    def loaded(self) -> np.ndarray:
        """Read the array into memory, and check it; make damaged chunks again.

        Raises:
            DataError: what makes the chunks cannot make one again.
        """
        array = np.fromfile(self.folder / DATA, np.uint8).reshape(self.shape)
        for number in range(len(self.notes)):
            self.check(array, number)
        return array

    def check(self, array: np.ndarray, number: int) -> None:
        """Check a chunk of the array in memory, and make a damaged one again, here and on disk."""
        first, checksum, _ = self.notes[number]
        rows = self._recipe.rows_of(first)
        if zlib.crc32(array[rows].data) == checksum:
            return
        with self._mending:
            log.warning(
                "%s was damaged; rows %d to %d are made again",
                self.folder / DATA,
                first,
                rows.stop - 1,
            )
            content, note = self._recipe.produce(first, rows.stop)
            array[rows] = content
            self.notes[number] = first, zlib.crc32(np.ascontiguousarray(content).data), note
            try:
                self._mend(first, array[rows])
            except OSError as error:
                log.warning("%s stays damaged (%s); delete it", self.folder, error.strerror)

    def _mend(self, first: int, content: np.ndarray) -> None:
        with exclusive(_lock_file(self.folder)):
            descriptor = os.open(self.folder / DATA, os.O_WRONLY)
            try:
                start = first * self._recipe.row_bytes
                os.pwrite(descriptor, np.ascontiguousarray(content).data, start)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            write_whole(self.folder / COMPLETE, "".join(map(_line, self.notes)))


class MappedArray:
    """A file that is mapped into memory, whose chunks are checked when they are first asked for.

    Args:
        cached: the array on disk.
        array: its mapping, copy-on-write.
    """

    def __init__(self, cached: CachedArray, array: np.ndarray) -> None:
        self.array = array
        self._cached = cached
        self._firsts = np.array([first for first, _, _ in cached.notes], dtype=np.int64)
        self._unchecked = np.ones(len(self._firsts), dtype=bool)

    def check(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Check the chunks of these rows that were not checked before; None checks all.

        Returns:
            the whole mapping.

        Raises:
            DataError: a damaged chunk cannot be made again.
        """
        if not self._unchecked.any():
            return self.array
        numbers = np.arange(len(self._firsts))
        if rows is not None:
            numbers = np.unique(np.searchsorted(self._firsts, rows, side="right") - 1)
        for number in numbers[self._unchecked[numbers]].tolist():
            self._cached.check(self.array, number)
            self._unchecked[number] = False
        return self.array


def cached_array(
    folder: Path,
    shape: tuple[int, ...],
    produce: Produce,
    *,
    chunk: int,
    workers: int,
    title: str | None,
    unit: str = "images",
) -> CachedArray:
    """Open the array in ``folder``, or make what is missing there by ``produce``.

    Processes that want the same array at once wait for the first one; one that dies leaves its
    chunks to the next.

    Args:
        folder: its name must change with everything that changes the array.
        shape: (n, ...) of the array.
        produce: (first, end) -> rows ``first .. end - 1`` as uint8, and a note that JSON can hold.
            Called from ``workers`` threads at once, so it should spend its time where the
            interpreter lock is free.
        chunk: rows per call.
        workers: threads.
        title: what the progress says; None shows none.
        unit: of the rows, in plural.

    Raises:
        DataError: the folder cannot be written or has too little space.
    """
    recipe = _Recipe(folder, shape, produce, chunk)
    done, _ = _complete(recipe)
    if done:
        return done
    try:
        folder.mkdir(parents=True, exist_ok=True)
        waiting = f"waiting for another process that fills {folder}"
        with exclusive(_lock_file(folder), waiting):
            done, fault = _complete(recipe)  # another process may have made it meanwhile
            if fault:
                log.warning("%s was damaged (%s); what is lost is made again", folder, fault)
            if done is None:
                notes = _make(recipe, workers, title, unit)
                done = CachedArray(recipe, notes)
            return done
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written ({error.strerror}); set paths.cache_dir to a folder with "
            "space"
        ) from error


def is_complete(folder: Path) -> bool:
    """Return whether the array in this folder is complete."""
    return (folder / COMPLETE).is_file()


def notes_of(folder: Path) -> list[Note]:
    """Read the notes of an array in the order of its rows, none if it is not complete."""
    return _notes(folder / COMPLETE) if is_complete(folder) else []


def _lock_file(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")


def _complete(recipe: _Recipe) -> tuple[CachedArray | None, str]:
    """Open a complete array; return it, or None, and what is lost or damaged."""
    folder = recipe.folder
    if not is_complete(folder):
        return None, ""
    fault = _size_fault(recipe)
    notes = notes_of(folder)
    if not fault and [first for first, _, _ in notes] != list(recipe.starts()):
        fault = f"{COMPLETE} is damaged"
    if fault:
        return None, fault
    return CachedArray(recipe, notes), ""


def _size_fault(recipe: _Recipe) -> str:
    """Describe a file of another size than the array's, or return no text."""
    data = recipe.folder / DATA
    size = recipe.shape[0] * recipe.row_bytes
    if not data.is_file():
        return f"there is no {DATA}"
    present = data.stat().st_size
    return "" if present == size else f"{DATA} has {present} bytes of {size}"


def _make(recipe: _Recipe, workers: int, title: str | None, unit: str) -> list[Note]:
    """Make what is missing of an array, and return all of its notes."""
    folder = recipe.folder
    n = recipe.shape[0]
    data = folder / DATA
    progress = folder / PROGRESS
    notes = _remaining_notes(recipe)
    missing = [first for first in recipe.starts() if first not in notes]
    _need_room(folder, len(missing) * recipe.chunk * recipe.row_bytes)
    if title:
        rows = min(len(missing) * recipe.chunk, n)
        log.info("%s: %d of %d into %s", title, rows, n, folder)
    descriptor = os.open(data, os.O_RDWR | os.O_CREAT)
    try:
        os.truncate(descriptor, n * recipe.row_bytes)
        with (
            ThreadPoolExecutor(workers) as pool,
            open(progress, "a") as lines,
            phase(title or "", n, unit, len(notes) * recipe.chunk, shown=bool(title)) as shown,
        ):
            lines.write("\n")  # ends a line that a crash tore
            futures = [pool.submit(recipe.make, first, descriptor) for first in missing]
            try:
                for future in as_completed(futures):
                    note = future.result()
                    notes[note[0]] = note
                    lines.write(_line(note))
                    lines.flush()
                    shown.advance(recipe.chunk)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(progress, folder / COMPLETE)
    return [notes[first] for first in recipe.starts()]


def _remaining_notes(recipe: _Recipe) -> dict[int, Note]:
    """Read what an earlier start has made, or is left of a damaged array, by first row.

    The progress of the array begins anew with it.
    """
    folder = recipe.folder
    complete = folder / COMPLETE
    progress = folder / PROGRESS
    with suppress(FileNotFoundError):
        os.replace(complete, progress)  # of a damaged one: it is no longer complete
    lost = not (folder / DATA).is_file()
    starts = set(recipe.starts())
    read = [] if lost or not progress.is_file() else _notes(progress)
    notes = {note[0]: note for note in read if note[0] in starts}
    write_whole(progress, "".join(map(_line, notes.values())))
    return notes


def _need_room(folder: Path, needed: int) -> None:
    """Refuse to begin if the disk has too little space, in bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{folder} needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; set "
            "paths.cache_dir to a folder with space, or dataset.store=none"
        )


def _line(note: Note) -> str:
    """Format a note with its own checksum as a line."""
    return json.dumps([*note, _checksum(note)]) + "\n"


def _checksum(note: Sequence[Any]) -> int:
    return zlib.crc32(json.dumps(list(note)).encode())


def _notes(file: Path) -> list[Note]:
    """Read the notes of a progress file in the order of rows.

    Lines that a crash tore or that were changed are left out.
    """
    notes: dict[int, Note] = {}
    with suppress(OSError):
        for line in read_regular(file).splitlines():
            with suppress(ValueError, TypeError, RecursionError):
                first, checksum, note, *own_checksum = json.loads(line)
                # caches of earlier versions have no checksums of notes
                if not own_checksum or own_checksum == [_checksum((first, checksum, note))]:
                    notes[int(first)] = int(first), int(checksum), note
    return [notes[first] for first in sorted(notes)]
