"""Corrupted copies of images, made when they are first asked for and kept on disk."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from dgbench.data.datasets.corrupted import CorruptedPlan, Section
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.store.array_cache import cached_array, is_complete
from dgbench.data.store.image_store import ImageStore, cores, resident
from dgbench.data.store.photographs import FolderEnvironments
from dgbench.data.transforms.corruptions import Chance, corrupt
from dgbench.data.transforms.values import VERSION
from dgbench.seeding import derive
from dgbench.tensors import ErrorRecipe

log = logging.getLogger(__name__)

CHUNK_BYTES = 4 * 2**20  # of images corrupted at once; changing this changes the random numbers
CHUNK_IMAGES = 128


class CorruptedStore(ImageStore):
    """Sections of corrupted images, one after the other.

    The random numbers of a section depend on ``seed``, its name, its corruption and the severity, so its images are
    the same whichever process makes them, in however many goes. A file's name holds a hash of all that decides its
    content: the state of the clean images, which of them, corruption, severity, seed and the version of the code.

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
        sections: Sequence[Section],
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
        self.clean, self.sections, self.severity, self.seed, self.side = clean, list(sections), severity, seed, side
        self.state, self.folder, self.kind = state, folder, kind
        self.workers, self.device_share = workers or cores(), device_share
        self.number = {section.name: i for i, section in enumerate(self.sections)}
        ends = torch.tensor([len(section.positions) for section in self.sections]).cumsum(0)
        self.ends, self.starts = ends, torch.cat([ends.new_zeros(1), ends[:-1]])
        self.positions = torch.from_numpy(np.concatenate([section.positions for section in self.sections]))
        self.bad: dict[int, str] = {}
        self.device = torch.device("cpu")
        self._made: dict[int, ImageStore] = {}

    def span(self, name: str) -> np.ndarray:
        """Positions of a section's images in this store."""
        i = self.number[name]
        return np.arange(int(self.starts[i]), int(self.ends[i]))

    def prepare(self, names: Iterable[str]) -> None:
        """Make the images of these sections now, several at once, where they are not there yet."""
        wanted = dict.fromkeys(self.number[name] for name in names)
        missing = [i for i in wanted if self.sections[i].corruption is not None and i not in self._made]
        if not missing:
            return
        at_once = min(self.workers, len(missing))
        new = [self.sections[i] for i in missing if not is_complete(self._folder(self.sections[i]))]
        if new:
            n = sum(len(section.positions) for section in new)
            log.info("corrupting %d images, in %d sets, once: %s", n, len(new), self.folder)
        with single_threaded(), ThreadPoolExecutor(at_once) as pool:
            futures = {pool.submit(self._make, self.sections[i], -(-self.workers // at_once)): i for i in missing}
            try:
                hidden = None if new else True  # None: unless there is a terminal
                for future in tqdm(as_completed(futures), "corrupting", len(futures), unit=" sets", disable=hidden):
                    self._made[futures[future]] = future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        for i in missing:
            self._made[i].to(self.device)

    def to(self, device: torch.device) -> None:
        self.device = device
        for store in [self.clean, *self._made.values()]:
            store.to(device)

    def rows(self, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        indices = indices.cpu()
        where = torch.bucketize(indices, self.ends, right=True)
        present: list[int] = torch.unique(where).tolist()
        self.prepare(self.sections[i].name for i in present)
        if len(present) == 1:
            return self._rows(present[0], indices)
        images = torch.empty(len(indices), 3, self.side, self.side, dtype=torch.uint8, device=self.device)
        sizes = np.empty((len(indices), 2), np.int64)
        for i in present:
            mine = where == i
            own, sizes[mine.numpy()] = self._rows(i, indices[mine])
            images[mine.to(self.device)] = own.to(self.device)
        return images, sizes

    def _rows(self, i: int, indices: Tensor) -> tuple[Tensor, np.ndarray]:
        if self.sections[i].corruption is None:
            return self.clean.rows(self.positions[indices])
        return self._made[i].rows(indices - self.starts[i])

    def _purpose(self, section: Section) -> tuple[str | int, ...]:
        return ("corruption", section.name, section.corruption or "", self.severity)

    def _folder(self, section: Section) -> Path:
        decides = hashlib.sha256(section.positions.tobytes())
        decides.update(repr((self.state, self.seed, *self._purpose(section), VERSION, self._chunk())).encode())
        return self.folder / f"{section.name}-severity{self.severity}-{decides.hexdigest()[:16]}"

    def _chunk(self) -> int:
        """Images corrupted at once, with one generator."""
        return max(1, min(CHUNK_IMAGES, CHUNK_BYTES // (3 * self.side**2)))

    def _make(self, section: Section, workers: int) -> ImageStore:
        corruption = section.corruption
        assert corruption is not None
        positions = torch.from_numpy(section.positions)

        def produce(first: int, end: int) -> tuple[np.ndarray, Any]:
            chance = Chance(derive(self.seed, *self._purpose(section), first))
            clean, sizes = self.clean.rows(positions[first:end])
            made = corrupt(clean.cpu(), corruption, self.severity, chance)
            return made.numpy(), {"sizes": sizes.tolist(), "bad": []}

        shape = (len(positions), 3, self.side, self.side)
        folder = self._folder(section)
        done = cached_array(folder, shape, produce, chunk=self._chunk(), workers=workers, title=None)
        return resident(done, self.kind, self.device_share)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Threads that start in this block get one core each from torch; without it, each would take all of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CorruptedEnvironments(Environments):
    """Every domain of a dataset, clean and under each corruption (Hwang et al., 2024, section 4.3).

    Environments are ``photo``, ``photo+gaussian_noise``, ...: with four domains and all 15 corruptions, 64. The given
    ones are drawn, k corruptions for each domain, by ``data_seed`` alone, or listed. The paper draws anew for each of
    its seeds and reports each apart (Tables 3, 4), so one seed of it is one ``data_seed`` with the same ``seed``. A
    domain's corruptions are the first k of one permutation: for one ``data_seed``, 2-2-2-2 contains 1-1-1-1, and
    1-0-1-1 is 1-1-1-1 without the second domain.

    The paper does not say which images an environment holds. Here, as in :class:`SpuriousEnvironments`, no image that
    is trained on judges anything: ``pool_fraction`` of each domain's images (by ``split_seed``, so that all given sets
    are judged on the same ones) form a pool, which under its 16 forms is the ``test`` subset of the domain's 16
    environments. The domain's other images are dealt to its given environments (by ``data_seed``), so none is in two
    of them, and split into ``train`` and ``val`` (by ``split_seed``). Subsets that a list of images names are not used.

    Images are corrupted once, after they are resized, with random numbers of ``corruption_seed``.

    Args:
        info: the dataset.
        base: the clean images, and how they become a network's input.
        plan: environments, and which images go where.
        store: the corrupted images, section by section as planned.
    """

    def __init__(self, info: DatasetInfo, base: FolderEnvironments, plan: CorruptedPlan, store: CorruptedStore) -> None:
        self.info, self.store = info, store
        self.given, self.everywhere = list(info.given), list(info.everywhere)
        self.image, self.n_classes = base.image, base.n_classes
        self._subsets = {(env, "test"): store.span(f"{env}-pool") for env in self.everywhere}
        for env, n_train in plan.n_train.items():
            span = store.span(f"{env}-dealt")
            self._subsets[env, "train"], self._subsets[env, "val"] = span[:n_train], span[n_train:]
        self._pixels = copy(base)  # its way from uint8 to a network's input, over the corrupted images
        self._pixels.store, self._pixels.labels = store, base.labels[store.positions]
        self._pixels.plain = base.plain[store.positions]

    @property
    def class_names(self) -> tuple[str, ...]:
        return self._pixels.class_names

    @property
    def preprocessing(self) -> Preprocessing:
        return self._pixels.preprocessing

    def image_names(self, positions: np.ndarray) -> list[str]:
        """Paths of the clean images."""
        return self._pixels.image_names(self.store.positions.numpy()[positions])

    def image_attributes(self, positions: np.ndarray) -> dict[str, list[str]]:
        """Those of the clean images."""
        return self._pixels.image_attributes(self.store.positions.numpy()[positions])

    def to(self, device: torch.device) -> None:
        self._pixels.to(device)

    def subset(self, env: str, name: str) -> np.ndarray:
        return self._subsets[env, name]

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._pixels.gather(indices)

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return self._pixels.training_noise(rng, n)

    def gather_for_training(self, indices: Tensor, noise: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor]:
        return self._pixels.gather_for_training(indices, noise)

    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        found = []
        for subset in subsets:
            for env in self.everywhere if subset == "test" and everywhere else self.given:
                found.append(ErrorRecipe(env, subset, {f"{subset}/{env}": 1.0}))
        return found

    def eval_sets(self, names: Sequence[str]) -> dict[str, EvalSet]:
        asked = {name: name.split("/", 1) for name in names}
        self.store.prepare(f"{env}-{'pool' if subset == 'test' else 'dealt'}" for subset, env in asked.values())
        return {name: EvalSet(torch.from_numpy(self._subsets[env, subset])) for name, (subset, env) in asked.items()}
