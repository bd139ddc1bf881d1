"""Which files hold the same bytes: of equal size, then with equal samples, then equal throughout.

Imports no torch.

Most files are told apart by their size or a sample, so few are read whole. The result is kept in
the cache: files of the same names, sizes and times are not compared again.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np

from dgbench.data.datasets.image_table import ImageTable
from dgbench.phases import phase
from dgbench.records.files import read_regular, write_whole

COMPARISON_VERSION = 1  #: of the comparison, in the names of its results
#: in the middle of a file: its beginning is a heading, and its edges are often blank
SAMPLE_BYTES = 1024
FILES_AT_ONCE = 256  #: that a thread takes

Item = TypeVar("Item")
#: positions of files with the same bytes, ascending, two or more in each group
Groups = list[list[int]]


def known_groups(table: ImageTable, cache: Path) -> Groups | None:
    """Read which files have the same bytes; return None if that is not known.

    They may not have been compared before, or the record is damaged.
    """
    return _read(_record(table, cache))


def groups_of_files(table: ImageTable, cache: Path, workers: int) -> Groups:
    """Find which files have the same bytes.

    Empty files, and files that cannot be read, equal nothing.

    Args:
        table: the files.
        cache: folder where the result is kept, if it can be written.
        workers: threads that read.
    """
    record = _record(table, cache)
    known = _read(record)
    if known is not None:
        return known
    filled = np.flatnonzero(table.sizes)
    sizes = table.sizes.tolist()
    of_equal_size = _grouped(filled.tolist(), [sizes[i] for i in filled.tolist()])
    paths = [f"{table.root}/{path}" for path in table.paths]
    with ThreadPoolExecutor(workers) as pool:
        groups = _compared(paths, sizes, of_equal_size, pool, f"comparing {table.root.name}")
    with suppress(OSError):  # a cache that cannot be written: they are compared again
        record.parent.mkdir(parents=True, exist_ok=True)
        write_whole(record, json.dumps([groups, _checksum(groups)]))
    return groups


def _record(table: ImageTable, cache: Path) -> Path:
    return cache / "copies" / f"{table.root.name}-{table.state('copies', COMPARISON_VERSION)}.json"


def _read(record: Path) -> Groups | None:
    try:
        groups, checksum = json.loads(read_regular(record))
        return groups if checksum == _checksum(groups) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _checksum(groups: Groups) -> int:
    return zlib.crc32(json.dumps(groups).encode())


def _compared(
    paths: Sequence[str], sizes: Sequence[int], groups: Groups, pool: ThreadPoolExecutor, title: str
) -> Groups:
    """Divide groups of files of equal size into files with the same bytes."""
    positions = list(chain.from_iterable(groups))
    keys: list[Hashable] = []
    with phase(title, len(positions), "files of equal size") as progress:
        for samples in pool.map(lambda part: _samples(paths, sizes, part), _parts(positions)):
            keys += samples
            progress.advance(len(samples))
    sampled = _grouped(positions, keys)
    equal: Groups = []

    def divide(part: Sequence[list[int]]) -> list[Groups]:
        return [_equal(paths, group) for group in part]

    with phase(title, len(sampled), "groups of files byte by byte") as progress:
        for divided in pool.map(divide, _parts(sampled)):
            progress.advance(len(divided))
            equal += chain.from_iterable(divided)
    return sorted(equal)


def _parts(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Cut what is to be done into what a thread takes at once."""
    return [items[first : first + FILES_AT_ONCE] for first in range(0, len(items), FILES_AT_ONCE)]


def _grouped(positions: Iterable[int], keys: Iterable[Hashable]) -> Groups:
    """Group positions whose keys are equal; None equals nothing.

    Positions that stand alone are left out.
    """
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for position, key in zip(positions, keys, strict=True):
        if key is not None:
            groups[key].append(position)
    return [group for group in groups.values() if len(group) > 1]


def _samples(paths: Sequence[str], sizes: Sequence[int], part: Iterable[int]) -> list[Hashable]:
    """Read a sample of each file: its size and a checksum; return None if it cannot be read."""
    samples: list[Hashable] = []
    for i in part:
        start = max(0, sizes[i] - SAMPLE_BYTES) // 2
        try:
            descriptor = os.open(paths[i], os.O_RDONLY | os.O_NONBLOCK)  # a pipe does not wait
        except OSError:
            samples.append(None)
            continue
        try:
            samples.append((sizes[i], zlib.crc32(os.pread(descriptor, SAMPLE_BYTES, start))))
        except OSError:
            samples.append(None)
        finally:
            os.close(descriptor)
    return samples


def _equal(paths: Sequence[str], group: Sequence[int]) -> Groups:
    """Divide files by all of their bytes.

    They are compared with those of the first, and the others by a hash.
    """
    first = _content(paths[group[0]])
    like_first = [group[0]]
    others: list[int] = []
    hashes: list[Hashable] = []
    for i in group[1:]:
        content = _content(paths[i])
        if content is not None and content == first:
            like_first.append(i)
        else:
            others.append(i)
            hashes.append(None if content is None else hashlib.sha256(content).digest())
    copies_of_first = [like_first] if len(like_first) > 1 else []
    return copies_of_first + _grouped(others, hashes)


def _content(path: str) -> bytes | None:
    """Read all of a file, or return None if it cannot be read."""
    try:
        return read_regular(path)
    except OSError:
        return None
