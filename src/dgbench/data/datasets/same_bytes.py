"""Which files hold the same bytes: of equal size, then with equal samples, then equal throughout. No torch.

Most files are told apart by their size or by a sample, so that few are read whole. What was found is kept in the cache:
files of the same names, sizes and times are not compared again.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from dgbench.data.datasets.image_table import ImageTable
from dgbench.phases import phase
from dgbench.records.files import open_regular, read_regular, write_whole

VERSION = 1  # of the comparison, in the names of what is kept
BLOCKS, BLOCK_BYTES = 8, 256  # of a sample: spread evenly, from the first byte to the last
TOGETHER = 256  # files that a thread takes at once
READ_BYTES = 2**20

Groups = list[list[int]]  #: positions of files with the same bytes, ascending, two or more in each group


def known_groups(table: ImageTable, cache: Path) -> Groups | None:
    """Read which files have the same bytes; None where they were not compared before, or the record is damaged."""
    try:
        groups, checksum = json.loads(read_regular(_record(table, cache)))
        return groups if checksum == _checksum(groups) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def groups_of_files(table: ImageTable, cache: Path, workers: int) -> Groups:
    """Find which files have the same bytes. Empty files, and files that cannot be read, equal nothing.

    Args:
        table: the files.
        cache: folder where what was found is kept, if it can be written.
        workers: threads that read.
    """
    known = known_groups(table, cache)
    if known is not None:
        return known
    alike = _with_equal_size(table.sizes)
    alike = _divided(table, alike, _sample, workers)
    small = [group for group in alike if _is_sampled_whole(table.sizes[group[0]])]
    large = [group for group in alike if not _is_sampled_whole(table.sizes[group[0]])]
    groups = sorted(small + _divided(table, large, _whole, workers))
    with suppress(OSError):  # a cache that cannot be written: they are compared again
        record = _record(table, cache)
        record.parent.mkdir(parents=True, exist_ok=True)
        write_whole(record, json.dumps([groups, _checksum(groups)]))
    return groups


def _record(table: ImageTable, cache: Path) -> Path:
    return cache / "copies" / f"{table.root.name}-{table.state('copies', VERSION)}.json"


def _checksum(groups: Groups) -> int:
    return zlib.crc32(json.dumps(groups).encode())


def _with_equal_size(sizes: np.ndarray) -> Groups:
    filled = np.flatnonzero(sizes)
    return _grouped(filled.tolist(), sizes[filled].tolist())


def _grouped(positions: Iterable[int], keys: Iterable[Hashable]) -> Groups:
    """Group positions whose keys are equal; None equals nothing. Positions that stand alone are left out."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for position, key in zip(positions, keys, strict=True):
        if key is not None:
            groups[key].append(position)
    return [group for group in groups.values() if len(group) > 1]


def _divided(table: ImageTable, groups: Groups, digest: Callable[[str, int], str | None], workers: int) -> Groups:
    """Divide groups of files by a digest of each."""
    positions = [i for group in groups for i in group]
    parts = [positions[first : first + TOGETHER] for first in range(0, len(positions), TOGETHER)]

    def digests(part: Sequence[int]) -> list[str | None]:
        return [digest(f"{table.root}/{table.paths[i]}", int(table.sizes[i])) for i in part]

    found: list[str | None] = []
    title = f"comparing {table.root.name}"
    with (
        ThreadPoolExecutor(workers) as pool,
        phase(title, len(positions), "files of equal size") as progress,
    ):
        for part in pool.map(digests, parts):
            found += part
            progress.advance(len(part))
    return _grouped(positions, _with_size(table.sizes, positions, found))


def _with_size(
    sizes: np.ndarray, positions: Iterable[int], digests: Iterable[str | None]
) -> Iterator[tuple[int, str] | None]:
    for position, digest in zip(positions, digests, strict=True):
        yield None if digest is None else (int(sizes[position]), digest)


def _is_sampled_whole(size: int) -> bool:
    return size <= BLOCKS * BLOCK_BYTES


def _sample(path: str, size: int) -> str | None:
    """Hash a sample of a file, or all of a small one; None where it cannot be read."""
    digest = hashlib.sha256()
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe does not wait
        try:
            if _is_sampled_whole(size):
                digest.update(os.read(descriptor, size))
            else:
                for number in range(BLOCKS):
                    start = number * (size - BLOCK_BYTES) // (BLOCKS - 1)
                    digest.update(os.pread(descriptor, BLOCK_BYTES, start))
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return digest.hexdigest()


def _whole(path: str, size: int) -> str | None:
    """Hash all of a file; None where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while content := file.read(READ_BYTES):
                digest.update(content)
    except OSError:
        return None
    return digest.hexdigest()
