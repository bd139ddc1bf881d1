"""Corrupted copies of images, made when they are first asked for and kept on disk."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.data.datasets.splits import CorruptedSection
from dgbench.data.store.array_cache import cached_array, is_complete
from dgbench.data.store.photographs import ImageStore, cores, resident
from dgbench.data.transforms.corruptions import RandomNumbers, corrupt
from dgbench.data.transforms.values import CORRUPTION_VERSION
from dgbench.phases import phase
from dgbench.seeding import derive

log = logging.getLogger(__name__)

CHUNK_BYTES = 4 * 2**20  #: of images corrupted at once; changing this changes the random numbers
CHUNK_IMAGES = 128


class CorruptedStore(ImageStore):
    """Sections of corrupted images, one after the other.

    The random numbers of a section depend on ``seed``, its name, its corruption and the severity,
    so its images are the same whichever process makes them, in however many goes. A file's name
    holds a hash of all that decides its content: the state of the clean images, which images these
    are, corruption, severity, seed and the version of the code.

    Args:
        clean: store of the images to corrupt.
        sections: what to make of them.
        severity: 1 (mild) to 5.
        seed: of the corruptions' random numbers.
        side: of the images, in pixels.
        state: changes whenever the clean images change.
        folder: where files go; one folder per section.
        kind: ``ram``, ``file`` (memory-mapped) or ``auto``, by size.
        workers: threads that corrupt; None is one per core.
        device_share: share of the free device memory that a section may take.
    """

    def __init__(
        self,
        clean: ImageStore,
        sections: Sequence[CorruptedSection],
        *,
        severity: int,
        seed: int,
        side: int,
        state: str,
        folder: Path,
        kind: str,
        workers: int | None,
        device_share: float,
    ) -> None:
        self.clean = clean
        self.sections = list(sections)
        self.severity = severity
        self.seed = seed
        self.side = side
        self.state = state
        self.folder = folder
        self.kind = kind
        self.workers = workers or cores()
        self.device_share = device_share
        self.number = {section.name: i for i, section in enumerate(self.sections)}
        positions = [section.positions for section in self.sections]
        self.ends = torch.tensor(list(map(len, positions))).cumsum(0)
        self.starts = torch.cat([self.ends.new_zeros(1), self.ends[:-1]])
        self.positions = torch.from_numpy(np.concatenate(positions))
        self.bad: dict[int, str] = {}
        self.device = torch.device("cpu")
        self._stores: dict[int, ImageStore] = {}

    def span(self, name: str) -> np.ndarray:
        """Return the positions of a section's images in this store."""
        i = self.number[name]
        return np.arange(int(self.starts[i]), int(self.ends[i]))

    def prepare(self, indices: Tensor) -> None:
        """Make the sections of these positions now, several at once, unless they are there."""
        self._prepare(torch.unique(self._section_of(indices.cpu())).tolist())

    def _prepare(self, numbers: Iterable[int]) -> None:
        missing = []
        for i in numbers:
            if self.sections[i].corruption is not None and i not in self._stores:
                missing.append(i)
        if not missing:
            return
        at_once = min(self.workers, len(missing))
        sections = [self.sections[i] for i in missing]
        new = [section for section in sections if not is_complete(self._folder(section))]
        if new:
            n = sum(len(section.positions) for section in new)
            log.info("corrupting %d images, in %d sets, once: %s", n, len(new), self.folder)
        threads = -(-self.workers // at_once)  # rounded up
        with single_threaded(), ThreadPoolExecutor(at_once) as pool:
            futures = {pool.submit(self._make, self.sections[i], threads): i for i in missing}
            try:
                with phase("corrupting", len(futures), "sets", shown=bool(new)) as shown:
                    for future in as_completed(futures):
                        self._stores[futures[future]] = future.result()
                        shown.advance()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        for i in missing:
            self._stores[i].to(self.device)

    def to(self, device: torch.device) -> None:
        self.device = device
        for store in [self.clean, *self._stores.values()]:
            store.to(device)

    def rows(self, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        indices = indices.cpu()
        numbers = self._section_of(indices)
        present: list[int] = torch.unique(numbers).tolist()
        self._prepare(present)
        if len(present) == 1:
            return self._rows(present[0], indices)
        shape = (len(indices), 3, self.side, self.side)
        images = torch.empty(shape, dtype=torch.uint8, device=self.device)
        sizes = np.empty((len(indices), 2), np.int64)
        for i in present:
            mask = numbers == i
            part, sizes[mask.numpy()] = self._rows(i, indices[mask])
            images[mask.to(self.device)] = part.to(self.device)
        return images, sizes

    def _section_of(self, indices: Tensor) -> Tensor:
        """Map (n,) positions to the (n,) numbers of their sections."""
        return torch.bucketize(indices, self.ends, right=True)

    def _rows(self, i: int, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        if self.sections[i].corruption is None:
            return self.clean.rows(self.positions[indices])
        return self._stores[i].rows(indices - self.starts[i])

    def _purpose(self, section: CorruptedSection) -> tuple[str | int, ...]:
        return ("corruption", section.name, section.corruption or "", self.severity)

    def _folder(self, section: CorruptedSection) -> Path:
        digest = hashlib.sha256(section.positions.tobytes())
        purpose = self._purpose(section)
        content = (self.state, self.seed, *purpose, CORRUPTION_VERSION, self._chunk())
        digest.update(repr(content).encode())
        return self.folder / f"{section.name}-severity{self.severity}-{digest.hexdigest()[:16]}"

    def _chunk(self) -> int:
        """Compute how many images are corrupted at once, with one generator."""
        return max(1, min(CHUNK_IMAGES, CHUNK_BYTES // (3 * self.side**2)))

    def _make(self, section: CorruptedSection, workers: int) -> ImageStore:
        corruption = section.corruption
        assert corruption is not None
        positions = torch.from_numpy(section.positions)

        def produce(first: int, end: int) -> tuple[np.ndarray, Any]:
            chance = RandomNumbers(derive(self.seed, *self._purpose(section), first))
            clean, sizes = self.clean.rows(positions[first:end])
            images = corrupt(clean.cpu(), corruption, self.severity, chance)
            return images.numpy(), {"sizes": sizes.tolist(), "bad": []}

        shape = (len(positions), 3, self.side, self.side)
        folder = self._folder(section)
        done = cached_array(
            folder, shape, produce, chunk=self._chunk(), workers=workers, title=None
        )
        return resident(done, self.kind, self.device_share)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Give threads that start in this block one core each from torch.

    Without it, each would take all cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
