"""Photographs, drawings, ... of files: decoded, kept, normalized, and augmented for training.

Decoded images live in memory, in a memory-mapped file, or nowhere (decoded when they are asked
for).
"""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dgbench.data.datasets.image_table import ImageTable, decoded_folder
from dgbench.data.description import Preprocessing
from dgbench.data.environments import Store
from dgbench.data.fetch.checksums import ChangedFile, Checksums, checksums_of
from dgbench.data.store.array_cache import CachedArray, MappedArray, cached_array
from dgbench.data.store.decoding import decode
from dgbench.data.transforms.augment import Augmentation
from dgbench.errors import DataError, is_out_of_memory

log = logging.getLogger(__name__)

RAM_SHARE = 0.5  #: of the memory that is free now, for images; more stays a mapped file
CHUNK_BYTES = 16 * 2**20
#: bytes of the images augmented at once on a CPU (measured), and on others
PART_BYTES = (8 * 2**20, 256 * 2**20)


class ImageStore(ABC):
    """n decoded images of 3 x side x side.

    Attributes:
        bad: position -> why PIL cannot read the image.
    """

    bad: dict[int, str]

    @abstractmethod
    def rows(self, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        """Map (n,) positions to (n, 3, side, side) uint8 images and sizes of their files.

        The sizes are (n, 2), height and width in pixels.
        """

    def expect(self, coming: Iterable[Tensor]) -> None:  # noqa: B027
        """Receive a hint: these positions will be asked for next, one after another."""

    def prepare(self, indices: Tensor) -> None:  # noqa: B027
        """Receive a hint: these positions will be asked for some time."""

    def to(self, device: torch.device) -> None:  # noqa: B027
        """Move the images to the device of training if they fit there."""


class ResidentStore(ImageStore):
    """Decoded images in memory, in a mapped file, or on the device of training.

    Args:
        images: (n, 3, side, side) uint8.
        sizes: (n, 2) height and width on disk.
        bad: position -> why the image cannot be read.
        device_share: share of the free device memory that images may take.
        mapped: the file whose mapping the images are; None for images that were checked.
    """

    def __init__(
        self,
        images: Tensor,
        sizes: np.ndarray,
        bad: dict[int, str],
        device_share: float,
        mapped: MappedArray | None = None,
    ) -> None:
        self.images = images
        self.sizes = sizes
        self.bad = bad
        self.device_share = device_share
        self._mapped = mapped

    def rows(self, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        positions = indices.cpu().numpy()
        if self._mapped:
            self._mapped.check(positions)
        return self.images[indices.to(self.images.device)], self.sizes[positions]

    def to(self, device: torch.device) -> None:
        if device.type == "cuda" and self.images.device != device:
            if self.images.nbytes <= self.device_share * torch.cuda.mem_get_info(device)[0]:
                if self._mapped:
                    self._mapped.check()
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
        self.files = _Files(table.root, table.paths, side, checksums_of(table.root))
        self.workers = workers
        self._ahead: Iterator[tuple[Tensor, _Decoded]] = iter(())

    def expect(self, coming: Iterable[Tensor]) -> None:
        loader: DataLoader[Any] = DataLoader(
            self.files,
            # any iterable of keys; here a key is a tensor of positions
            sampler=coming,  # type: ignore[arg-type]
            batch_size=None,
            num_workers=self.workers,
        )
        self._ahead = iter(loader)

    def rows(self, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        expected, decoded = next(self._ahead, (None, None))
        if expected is None or decoded is None or not torch.equal(expected, indices):
            self._ahead = iter(())
            decoded = self.files[indices][1]
        if isinstance(decoded, str):
            raise DataError(decoded)
        return decoded[0], decoded[1].numpy()


_Decoded = tuple[Tensor, Tensor] | str


@dataclass(frozen=True)
class _Files(Dataset[tuple[Tensor, _Decoded]]):
    """Maps positions to themselves and their images and sizes, or to what is wrong with one.

    An error travels as text: a DataLoader's worker would wrap an exception into a page of
    traceback.
    """

    root: Path
    paths: Sequence[str]
    side: int
    checksums: Checksums | None

    def __getitem__(self, indices: Tensor) -> tuple[Tensor, _Decoded]:
        images = []
        sizes = []
        for i in indices.tolist():
            file = self.root / self.paths[i]
            try:
                image, size = decode(file, self.side, self.checksums)
            except ChangedFile as error:
                return indices, str(error)
            except Exception as error:  # PIL raises whatever a broken file leads it to
                if is_out_of_memory(error):
                    raise
                reason = f"{type(error).__name__}: {error}"
                return indices, f"{file} cannot be decoded ({reason}); fix or delete it"
            images.append(image)
            sizes.append(size)
        return indices, (torch.from_numpy(np.stack(images)), torch.tensor(sizes))


def image_store(
    table: ImageTable,
    *,
    side: int,
    kind: str,
    cache: Path,
    workers: int | None,
    device_share: float,
) -> ImageStore:
    """Build a store for the images of a table, decoded once into a cache.

    Args:
        table: the files.
        side: of the decoded images, in pixels.
        kind: ``ram``, ``file`` (memory-mapped), ``none`` (decode when asked) or ``auto``: ``ram``
            if half of the free memory suffices, else ``file``.
        cache: folder of caches.
        workers: decoding threads; None is one per core. (Pillow frees the interpreter lock while it
            decodes and resizes, so threads use all cores, and need no fresh interpreters.)
        device_share: share of the free device memory that images may take.

    Raises:
        DataError: a cache that cannot be written.
    """
    workers = workers or cores()
    if kind == "none":
        return FileStore(table, side, workers)
    shape = (len(table), 3, side, side)
    chunk = max(1, min(512, CHUNK_BYTES // (3 * side * side)))
    checksums = checksums_of(table.root)

    def produce(first: int, end: int) -> tuple[np.ndarray, Any]:
        rows = np.zeros((end - first, *shape[1:]), np.uint8)
        sizes = []
        bad = []
        for i in range(first, end):
            try:
                rows[i - first], size = decode(table.root / table.paths[i], side, checksums)
            except ChangedFile:  # not to be left out either: it can be had again
                raise
            except Exception as error:  # PIL raises whatever a broken file leads it to
                # no fault of the file, which would be left out from now on
                if is_out_of_memory(error):
                    raise
                bad.append((i, f"{type(error).__name__}: {str(error).partition(' <_io.')[0]}"))
                size = (side, side)
            sizes.append(size)
        return rows, {"sizes": sizes, "bad": bad}

    folder = decoded_folder(table, side, cache)
    title = f"decoding {table.root.name}"
    done = cached_array(folder, shape, produce, chunk=chunk, workers=workers, title=title)
    return resident(done, kind, device_share)


def resident(done: CachedArray, kind: str, device_share: float) -> ResidentStore:
    """Build a store over a complete cache, in memory or mapped, by ``kind``.

    The notes of the cache hold ``sizes`` and ``bad``.
    """
    in_ram = kind == "ram"
    if kind == "auto":
        in_ram = bool(np.prod(done.shape) <= RAM_SHARE * _free_memory())
    mapped = None if in_ram else done.mapped()
    images = torch.from_numpy(mapped.array if mapped else done.loaded())
    sizes: list[tuple[int, int]] = []
    bad: dict[int, str] = {}
    for _, _, note in done.notes:
        sizes += note["sizes"]
        bad.update(note["bad"])
    return ResidentStore(images, np.array(sizes), bad, device_share, mapped)


def cores() -> int:
    """Count the processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free_memory() -> float:
    """Read how many bytes can be taken without swapping, or all if the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":") for line in lines)
        return 1024.0 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


class PhotographStore(Store):
    """Pictures of three channels.

    Args:
        pixels: of the pictures.
        labels: (n,) int64.
        preprocessing: shape of the images, mean and deviation of their channels, of values in [0,
            1].
        augmentation: what training images go through; None is nothing.
        plain: (n,) bool, images that are not augmented either when they are trained on; None is
            none.
    """

    def __init__(
        self,
        pixels: ImageStore,
        labels: Tensor,
        preprocessing: Preprocessing,
        augmentation: Augmentation | None,
        plain: Tensor | None = None,
    ) -> None:
        self.pixels = pixels
        self.labels = labels
        self.augmentation = augmentation
        self.plain = plain
        self.image = preprocessing.image
        self.device = torch.device("cpu")
        self.mean = torch.tensor(preprocessing.mean, dtype=torch.float64).view(3, 1, 1)
        self.std = torch.tensor(preprocessing.std, dtype=torch.float64).view(3, 1, 1)

    def over(self, pixels: ImageStore, positions: Tensor) -> PhotographStore:
        """Build a store of changed copies of some images, normalized and augmented the same way.

        Args:
            pixels: of n copies.
            positions: (n,) of the originals in this store.
        """
        copies = copy(self)
        copies.pixels = pixels
        copies.labels = self.labels[positions]
        copies.plain = None if self.plain is None else self.plain[positions]
        return copies

    def to(self, device: torch.device) -> None:
        self.device = device
        self.pixels.to(device)
        self.labels = self.labels.to(device)
        self.mean = self.mean.to(device)
        self.std = self.std.to(device)
        self.plain = None if self.plain is None else self.plain.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        images, _ = self.pixels.rows(indices)
        return self._normalized(self._scaled(images)), self._labels(indices)

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        if self.augmentation is None:
            return {}
        return {"augmentation": self.augmentation.draw(rng, n)}

    def gather_for_training(
        self, indices: Tensor, noise: Mapping[str, np.ndarray]
    ) -> tuple[Tensor, Tensor]:
        if self.augmentation is None:
            return self.gather(indices)
        images, sizes = self.pixels.rows(indices)
        uniform = noise["augmentation"]
        plain = None
        if self.plain is not None:
            plain = self.plain[indices.to(self.device)].view(-1, 1, 1, 1)
        out = torch.empty(images.shape, dtype=torch.get_default_dtype(), device=self.device)
        step = max(1, PART_BYTES[self.device.type != "cpu"] // (4 * math.prod(self.image)))
        for first in range(0, len(images), step):
            part = slice(first, first + step)
            scaled = self._scaled(images[part])
            changed = self.augmentation(scaled, uniform[part], sizes[part])
            if plain is not None:
                changed = torch.where(plain[part], scaled, changed)
            out[part] = self._normalized(changed)
        return out, self._labels(indices)

    def expect(self, coming: Iterable[Tensor]) -> None:
        self.pixels.expect(coming)

    def prepare(self, indices: Tensor) -> None:
        self.pixels.prepare(indices)

    def _scaled(self, images: Tensor) -> Tensor:
        """Convert uint8 images to floats in [0, 1] on the device of training."""
        return images.to(self.device, non_blocking=True).to(torch.get_default_dtype()).div_(255)

    def _normalized(self, images: Tensor) -> Tensor:
        return images.sub_(self.mean.to(images)).div_(self.std.to(images))

    def _labels(self, indices: Tensor) -> Tensor:
        return self.labels[indices.to(self.device)]
