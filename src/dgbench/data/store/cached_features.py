"""Features in the place of images: the output of a frozen part of a network, computed once."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dgbench.containers import example_of
from dgbench.data.datasets.image_table import DECODING_VERSION
from dgbench.data.environments import Environments, EvalSet, Store
from dgbench.data.store.array_cache import CachedArray, MappedArray, cached_array
from dgbench.errors import ConfigError
from dgbench.phases import phase

log = logging.getLogger("dgbench")
CHECKED_ROWS = 16  #: features of a file that are computed again before the others are believed
CHUNK_ROWS = 512  #: features that are written, and checked, at once
TITLE = "computing the frozen part of the network"


class CachedFeatures(Store):
    """A store whose images have gone through the frozen part of a network, each once.

    An image that eval sets paint with several spurious features counts once for each. Features are
    computed when the first of them is asked for and lie on the training device, or, with a folder,
    in a file that later runs map into their memory.

    Args:
        source: the environments with their images, which it does not augment.
        frozen: the frozen part in evaluation mode, (n, C, H, W) images -> (n, ...) features, of the
            images' type.
        at_once: images that are computed at once on a device.
        asked: the images that will be asked for; repetitions do not matter.
        gigabytes: largest size of the features.
        folder: where their file lies; None keeps them in memory only.
        smaller: what a user can do if they are larger.

    Raises:
        ConfigError: the source augments, or the features are too large.
        OSError: the folder cannot be made.
    """

    def __init__(
        self,
        source: Environments,
        frozen: nn.Module,
        at_once: Callable[[torch.device], int],
        asked: Sequence[EvalSet],
        gigabytes: float,
        folder: Path | None,
        smaller: str = (
            "raise tuning.cache_gb, freeze more stages, or set tuning.cache_features=false"
        ),
    ) -> None:
        if source.store.training_noise(np.random.default_rng(0), 1):
            raise ConfigError(
                "tuning.cache_features=true keeps one set of features per image, and augmentation "
                "changes images at every step; set dataset.augment=none, or "
                "tuning.cache_features=false"
            )
        self.source = source.store
        self._identity = source.info.identity()
        self._frozen = frozen
        self._at_once = at_once
        self._folder = folder
        self._dtype = example_of(frozen).dtype
        self._device = torch.device("cpu")
        self._features: Tensor | None = None
        self._mapped: MappedArray | None = None
        self._span = 1 + max(int(scored.indices.max()) for scored in asked)
        keys = [self._key(scored.indices.cpu(), scored.feature) for scored in asked]
        self._keys = torch.unique(torch.cat(keys))
        self._row = torch.full((int(self._keys[-1]) + 1,), -1)
        self._row[self._keys] = torch.arange(len(self._keys))
        example, _ = self._computed(self._keys[:1])
        self.image = tuple(example.shape[1:])
        self._feature_dtype = example.dtype
        self._bytes = example.nbytes
        size = len(self._keys) * example.numel() * example.element_size() / 1e9
        if size > gigabytes:
            raise ConfigError(
                f"the features of {len(self._keys):,} images take {size:.1f} GB, more than the "
                f"{gigabytes:g} GB that they may take; {smaller}"
            )
        if folder:
            folder.mkdir(parents=True, exist_ok=True)

    def _key(self, indices: Tensor, feature: Tensor | None) -> Tensor:
        """Encode an image and what is painted on it as one number.

        Numbers below ``_span`` are images as they are.
        """
        if feature is None:
            return indices
        return indices + self._span * (1 + feature.to(indices.device))

    @torch.no_grad()
    def _computed(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Compute features and labels for keys that are all below ``_span``, or all above."""
        painted = None if keys[0] < self._span else keys // self._span - 1
        x, y = self.source.gather(keys % self._span, painted)
        return self._frozen(x.to(self._dtype)), y

    def to(self, device: torch.device) -> None:
        if self._features is None or device != self._device:
            self.source.to(device)
            self._frozen.to(device)
            self._computing_on = device
            if self._folder:
                self._features, self._labels = self._filed(self._folder)
            else:
                features, self._labels = self._in_memory()
                self._features = features.to(device)
            self._labels = self._labels.to(device)
            self._row = self._row.to(device)
            self._device = device
            self._frozen.cpu()

    def _in_memory(self) -> tuple[Tensor, Tensor]:
        parts = []
        with phase(TITLE, len(self._keys), "images") as progress:
            for keys in self._batches(self._keys):
                parts.append(self._computed(keys))
                progress.advance(len(keys))
        features, labels = zip(*parts, strict=True)
        return torch.cat(features), torch.cat(labels)

    def _batches(self, keys: Tensor) -> list[Tensor]:
        """Divide sorted keys into those computed at once: images as they are, then painted ones."""
        plain = int(torch.searchsorted(keys, self._span))
        size = self._at_once(example_of(self._frozen).device)
        parts = [*torch.split(keys[:plain], size), *torch.split(keys[plain:], size)]
        return [part for part in parts if len(part)]

    def _filed(self, folder: Path) -> tuple[Tensor, Tensor]:
        """Map features from their file, and read their labels.

        What is missing, damaged or of other images is computed.
        """
        path = folder / f"features-{self._digest()}"
        cached, labels = self._opened(path)
        if not self._agrees(cached, labels):
            log.warning("%s holds features of other images; they are computed again", path)
            shutil.rmtree(path)
            cached, labels = self._opened(path)
        self._mapped = cached.mapped()
        return self._as_features(self._mapped.array), labels

    def _opened(self, path: Path) -> tuple[CachedArray, Tensor]:
        def produce(first: int, end: int) -> tuple[np.ndarray, Any]:
            # repairs come when the network may be elsewhere again
            self._frozen.to(self._computing_on)
            feature_parts = []
            label_parts = []
            for keys in self._batches(self._keys[first:end]):
                computed, true_labels = self._computed(keys)
                feature_parts.append(computed.cpu())
                label_parts.append(true_labels.cpu())
            features = torch.cat(feature_parts).contiguous()
            labels = torch.cat(label_parts)
            content = features.reshape(len(features), -1).view(torch.uint8).numpy()
            return content, {"labels": labels.tolist()}

        shape = (len(self._keys), self._bytes)
        cached = cached_array(path, shape, produce, chunk=CHUNK_ROWS, workers=1, title=TITLE)
        all_labels: list[int] = []
        for _, _, note in cached.notes:
            all_labels += note["labels"]
        return cached, torch.tensor(all_labels)

    def _as_features(self, content: np.ndarray) -> Tensor:
        """View (n, bytes) of a file as the (n, ...) features that they are."""
        return torch.from_numpy(content).view(self._feature_dtype).view(-1, *self.image)

    def _agrees(self, cached: CachedArray, labels: Tensor) -> bool:
        """Return whether some features and labels, all over the file, are those computed now."""
        rows = np.unique(np.linspace(0, len(self._keys) - 1, CHECKED_ROWS).astype(int))
        content = self._as_features(cached.mapped().check(rows)[rows])
        first = 0
        for keys in self._batches(self._keys[rows]):
            features, true_labels = self._computed(keys)
            part = slice(first, first + len(keys))
            first += len(keys)
            if not torch.equal(true_labels.cpu(), labels[rows][part]):
                return False
            if not torch.allclose(features.cpu(), content[part], rtol=1e-3, atol=1e-4):
                return False
        return True

    def _digest(self) -> str:
        content = hashlib.sha256(
            f"{self._identity} {self._dtype} {self.image} {DECODING_VERSION}".encode()
        )
        content.update(self._keys.numpy().tobytes())
        for name, value in self._frozen.state_dict().items():
            content.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        return content.hexdigest()[:16]

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if self._features is None:
            self.to(self._device)
        assert self._features is not None
        rows = self._row[self._key(indices.to(self._device), feature)]
        if (rows < 0).any():
            raise IndexError(
                "an image was asked for that no score and no training environment holds"
            )
        if self._mapped:
            self._mapped.check(rows.cpu().numpy())
        features = self._features[rows.to(self._features.device)]
        return features.to(self._device), self._labels[rows]
