"""Where decoded images live: memory, a memory-mapped file, or nowhere (decoded when they are asked for)."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dgbench.data.datasets.image_table import ImageTable, decoded_folder
from dgbench.data.store.array_cache import CachedArray, cached_array
from dgbench.data.store.decoding import decode
from dgbench.errors import DataError

log = logging.getLogger(__name__)

RAM_SHARE = 0.5  # of the memory that is free now, for images; what does not fit stays a mapped file
CHUNK_BYTES = 16 * 2**20


class ImageStore(ABC):
    """n decoded images of 3 x side x side.

    Attributes:
        bad: position -> why PIL cannot read the image.
    """

    bad: dict[int, str]

    @abstractmethod
    def rows(self, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        """(n,) positions -> (n, 3, side, side) uint8, and (n, 2) height and width of the files in pixels."""

    def expect(self, coming: Iterable[Tensor]) -> None:  # noqa: B027
        """A hint: these positions will be asked for next, one after the other."""

    def prepare(self, indices: Tensor) -> None:  # noqa: B027
        """A hint: these positions will be asked for some time."""

    def to(self, device: torch.device) -> None:  # noqa: B027
        """Move the images to the device of training if they fit there."""


class ResidentStore(ImageStore):
    """Decoded images in memory, in a mapped file, or on the device of training.

    Args:
        images: (n, 3, side, side) uint8.
        sizes: (n, 2) height and width on disk.
        bad: position -> why the image cannot be read.
        device_share: share of the free device memory that images may take.
    """

    def __init__(self, images: Tensor, sizes: np.ndarray, bad: dict[int, str], device_share: float) -> None:
        self.images, self.sizes, self.bad, self.device_share = images, sizes, bad, device_share

    def rows(self, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        return self.images[indices.to(self.images.device)], self.sizes[indices.cpu().numpy()]

    def to(self, device: torch.device) -> None:
        if device.type == "cuda" and self.images.device != device:
            if self.images.nbytes <= self.device_share * torch.cuda.mem_get_info(device)[0]:
                self.images = self.images.to(device)
        elif device.type != "cuda":
            self.images = self.images.to("cpu")


class FileStore(ImageStore):
    """Images decoded whenever they are asked for, for sets that fit nowhere.

    What is expected is decoded ahead by a torch DataLoader; anything else when it is asked for.

    Args:
        table: the files.
        side: of the decoded images, in pixels.
        workers: decoding processes of the DataLoader.
    """

    def __init__(self, table: ImageTable, side: int, workers: int) -> None:
        self.bad = {}
        self.files, self.workers = _Files(table.root, table.paths, side), workers
        self._ahead: Iterator[tuple[Tensor, _Decoded]] = iter(())

    def expect(self, coming: Iterable[Tensor]) -> None:
        loader: DataLoader[Any] = DataLoader(
            self.files,
            sampler=coming,  # type: ignore[arg-type]  # any iterable of keys; here a key is a tensor of positions
            batch_size=None,
            collate_fn=_unchanged,
            num_workers=self.workers,
        )
        self._ahead = iter(loader)

    def rows(self, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        expected, found = next(self._ahead, (None, None))
        if expected is None or found is None or not torch.equal(expected, indices):
            self._ahead = iter(())
            found = self.files[indices][1]
        if isinstance(found, str):
            raise DataError(found)
        return found[0], found[1].numpy()


_Decoded = tuple[Tensor, Tensor] | str


def _unchanged(batch: Any) -> Any:
    return batch


@dataclass(frozen=True)
class _Files(Dataset[tuple[Tensor, _Decoded]]):
    """Positions -> the same, and their images and sizes, or what is wrong with one of them.

    An error travels as text: a DataLoader's worker would wrap an exception into a page of traceback.
    """

    root: Path
    paths: Sequence[str]
    side: int

    def __getitem__(self, indices: Tensor) -> tuple[Tensor, _Decoded]:
        images, sizes = [], []
        for i in indices.tolist():
            file = self.root / self.paths[i]
            try:
                image, size = decode(file, self.side)
            except Exception as error:  # PIL raises whatever a broken file leads it to
                return indices, f"{file} cannot be decoded ({type(error).__name__}: {error}); fix or delete it"
            images.append(image)
            sizes.append(size)
        return indices, (torch.from_numpy(np.stack(images)), torch.tensor(sizes))


def image_store(
    table: ImageTable, *, side: int, kind: str, cache: Path, workers: int | None, device_share: float
) -> ImageStore:
    """A store for the images of a table, decoded once into a cache.

    Args:
        table: the files.
        side: of the decoded images, in pixels.
        kind: ``ram``, ``file`` (memory-mapped), ``none`` (decode when asked) or ``auto``: ``ram`` where half of the
            free memory suffices, else ``file``.
        cache: folder of caches.
        workers: decoding threads; None is one per core. (Pillow frees the interpreter lock while it decodes and
            resizes, so threads use all cores, and need no fresh interpreters.)
        device_share: share of the free device memory that images may take.

    Raises:
        DataError: a cache that cannot be written.
    """
    workers = workers or cores()
    if kind == "none":
        return FileStore(table, side, workers)
    shape = (len(table), 3, side, side)
    chunk = max(1, min(512, CHUNK_BYTES // (3 * side * side)))

    def produce(first: int, end: int) -> tuple[np.ndarray, Any]:
        rows = np.zeros((end - first, *shape[1:]), np.uint8)
        sizes, bad = [], []
        for i in range(first, end):
            try:
                rows[i - first], size = decode(table.root / table.paths[i], side)
            except Exception as error:  # PIL raises whatever a broken file leads it to
                bad.append((i, f"{type(error).__name__}: {error}"))
                size = (side, side)
            sizes.append(size)
        return rows, {"sizes": sizes, "bad": bad}

    folder, title = decoded_folder(table, side, cache), f"decoding {table.root.name}"
    done = cached_array(folder, shape, produce, chunk=chunk, workers=workers, title=title)
    return resident(done, kind, device_share)


def resident(done: CachedArray, kind: str, device_share: float) -> ResidentStore:
    """A store over a complete cache, whose notes hold ``sizes`` and ``bad``; in memory or mapped, by ``kind``."""
    in_ram = kind == "ram" or (kind == "auto" and np.prod(done.shape) <= RAM_SHARE * _free_memory())
    images = torch.from_numpy(done.loaded() if in_ram else done.mapped())
    sizes = np.array([size for _, _, note in done.notes for size in note["sizes"]])
    bad = {i: why for _, _, note in done.notes for i, why in note["bad"]}
    return ResidentStore(images, sizes, bad, device_share)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_memory() -> float:
    """Bytes that can be taken without swapping."""
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":") for line in lines)
        return 1024.0 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
