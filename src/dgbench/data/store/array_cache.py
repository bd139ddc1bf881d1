"""A large uint8 array on disk that is made once, in parallel, and can be made in several goes."""

from __future__ import annotations

import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dgbench.errors import DataError
from dgbench.records.locks import exclusive

log = logging.getLogger(__name__)

Produce = Callable[[int, int], tuple[np.ndarray, Any]]
DATA, PROGRESS, COMPLETE = "data.uint8", "progress.jsonl", "complete.jsonl"


@dataclass(frozen=True)
class CachedArray:
    """An array that is complete on disk."""

    folder: Path  #: where it lies
    shape: tuple[int, ...]  #: of the array; the first dimension was made chunk by chunk
    notes: list[tuple[int, int, Any]]  #: (first row, checksum, what ``produce`` noted) of every chunk, in order

    def mapped(self) -> np.ndarray:
        """Map the array's file into memory, copy-on-write: what is written to it does not reach the disk."""
        return np.memmap(self.folder / DATA, np.uint8, "c", shape=self.shape)

    def loaded(self) -> np.ndarray:
        """Read the array into memory, and check it.

        Raises:
            DataError: a chunk differs from what was written.
        """
        array = np.fromfile(self.folder / DATA, np.uint8).reshape(self.shape)
        ends = [first for first, _, _ in self.notes[1:]] + [self.shape[0]]
        for (first, checksum, _), end in zip(self.notes, ends, strict=True):
            if zlib.crc32(array[first:end].data) != checksum:
                raise DataError(f"{self.folder} is damaged; delete that folder and start again")
        return array


def cached_array(
    folder: Path, shape: tuple[int, ...], produce: Produce, *, chunk: int, workers: int, title: str | None
) -> CachedArray:
    """Open the array in ``folder``, or make it by ``produce`` where it is not there yet.

    Processes that want the same array at once wait for the first one; one that dies leaves its chunks to the next.

    Args:
        folder: its name must change with everything that changes the array.
        shape: (n, ...) of the array.
        produce: (first, end) -> rows ``first .. end - 1`` as uint8, and a note that JSON can hold. Called from
            ``workers`` threads at once, so it should spend its time where the interpreter lock is free.
        chunk: rows per call.
        workers: threads.
        title: what the progress bar says; None shows none.

    Raises:
        DataError: the folder cannot be written or has too little space.
    """
    if done := _complete(folder, shape):
        return done
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder.with_name(folder.name + ".lock"), f"waiting for another process that fills {folder}"):
            if not is_complete(folder):
                _make(folder, shape, produce, chunk, workers, title)
            done = _complete(folder, shape)
            assert done
            return done
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written ({error.strerror}); set paths.cache_dir to a folder with space"
        ) from error


def is_complete(folder: Path) -> bool:
    """Return whether the array in this folder is complete."""
    return (folder / COMPLETE).is_file()


def notes_of(folder: Path) -> list[tuple[int, int, Any]]:
    """Read the notes of a complete array, in the order of its rows; empty where it is not complete."""
    return sorted(_notes(folder / COMPLETE), key=lambda note: note[0]) if is_complete(folder) else []


def _complete(folder: Path, shape: tuple[int, ...]) -> CachedArray | None:
    if not is_complete(folder):
        return None
    if not (folder / DATA).is_file() or (folder / DATA).stat().st_size != int(np.prod(shape)):
        raise DataError(f"{folder} is damaged; delete that folder and start again")
    return CachedArray(folder, shape, notes_of(folder))


def _make(folder: Path, shape: tuple[int, ...], produce: Produce, chunk: int, workers: int, title: str | None) -> None:
    row_bytes = int(np.prod(shape[1:]))
    data, progress = folder / DATA, folder / PROGRESS
    done = {first for first, _, _ in _notes(progress)} if data.is_file() and progress.is_file() else set()
    missing = [first for first in range(0, shape[0], chunk) if first not in done]
    needed, free = len(missing) * chunk * row_bytes, shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{folder} needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; set paths.cache_dir to a folder "
            "with space, or dataset.store=none"
        )
    if title:
        log.info("%s: %d of %d into %s", title, min(len(missing) * chunk, shape[0]), shape[0], folder)
    descriptor = os.open(data, os.O_RDWR | os.O_CREAT)
    try:
        os.truncate(descriptor, shape[0] * row_bytes)

        def work(first: int) -> tuple[int, int, Any]:
            rows, note = produce(first, min(first + chunk, shape[0]))
            flat = np.ascontiguousarray(rows)
            os.pwrite(descriptor, flat.data, first * row_bytes)
            return first, zlib.crc32(flat.data), note

        with ThreadPoolExecutor(workers) as pool, open(progress, "a") as lines:
            lines.write("\n")  # ends a line that a crash tore
            hidden = None if title else True  # None: unless there is a terminal
            bar = tqdm(total=shape[0], initial=len(done) * chunk, desc=title, unit=" images", disable=hidden)
            futures = [pool.submit(work, first) for first in missing]
            try:
                for future in as_completed(futures):
                    lines.write(json.dumps(future.result()) + "\n")
                    lines.flush()
                    bar.update(chunk)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                bar.close()
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(progress, folder / COMPLETE)


def _notes(file: Path) -> list[tuple[int, int, Any]]:
    """Read the notes of a progress file, without lines that a crash tore."""
    notes = []
    for line in file.read_text().splitlines():
        with suppress(ValueError):
            first, checksum, note = json.loads(line)
            notes.append((first, checksum, note))
    return notes
