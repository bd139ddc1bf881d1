"""Features in the place of images: what a frozen part of a network makes of every image, computed once."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dgbench.containers import example_of
from dgbench.data.datasets.image_table import DECODED
from dgbench.data.environments import Environments, EvalSet, Store
from dgbench.errors import ConfigError

log = logging.getLogger("dgbench")
CHECKED = 16  # features of a file that are computed again before the others are believed


class CachedFeatures(Store):
    """A store whose images have gone through the frozen part of a network, each once.

    An image that eval sets paint with several spurious features counts once for each. Features are computed when
    the first of them is asked for and lie on the training device, or, with a folder, in a file that later runs map
    into their memory.

    Args:
        source: the environments with their images, which it does not augment.
        frozen: the frozen part in evaluation mode, (n, C, H, W) images -> (n, ...) features, of the images' type.
        at_once: images that are computed at once on a device.
        asked: the images that will be asked for; repetitions do not matter.
        gigabytes: largest size of the features.
        folder: where their file lies; None keeps them in memory only.
        smaller: what a user can do where they are larger.

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
        smaller: str = "raise tuning.cache_gb, freeze more stages, or set tuning.cache_features=false",
    ) -> None:
        if source.store.training_noise(np.random.default_rng(0), 1):
            raise ConfigError(
                "tuning.cache_features=true keeps one set of features per image, and augmentation changes images at "
                "every step; set dataset.augment=none, or tuning.cache_features=false"
            )
        self.source, self._identity = source.store, source.info.identity()
        self._frozen, self._at_once, self._folder = frozen, at_once, folder
        self._dtype = example_of(frozen).dtype
        self._device = torch.device("cpu")
        self._features: Tensor | None = None
        self._span = 1 + max(int(scored.indices.max()) for scored in asked)
        self._keys = torch.unique(torch.cat([self._key(scored.indices.cpu(), scored.feature) for scored in asked]))
        self._row = torch.full((int(self._keys[-1]) + 1,), -1)
        self._row[self._keys] = torch.arange(len(self._keys))
        example, _ = self._computed(self._keys[:1])
        self.image = tuple(example.shape[1:])
        size = len(self._keys) * example.numel() * example.element_size() / 1e9
        if size > gigabytes:
            raise ConfigError(
                f"the features of {len(self._keys):,} images take {size:.1f} GB, more than the {gigabytes:g} GB that "
                f"they may take; {smaller}"
            )
        if folder:
            folder.mkdir(parents=True, exist_ok=True)

    def _key(self, indices: Tensor, feature: Tensor | None) -> Tensor:
        """Encode an image and what is painted on it as one number; numbers below ``_span`` are images as they are."""
        return indices if feature is None else indices + self._span * (1 + feature.to(indices.device))

    @torch.no_grad()
    def _computed(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Compute features and labels for keys that are all below ``_span``, or none of them."""
        painted = None if keys[0] < self._span else keys // self._span - 1
        x, y = self.source.gather(keys % self._span, painted)
        return self._frozen(x.to(self._dtype)), y

    def to(self, device: torch.device) -> None:
        if self._features is None or device != self._device:
            self.source.to(device)
            self._frozen.to(device)
            features, self._labels = self._filed() if self._folder else self._all()
            self._features = features if self._folder else features.to(device)
            self._labels, self._row, self._device = self._labels.to(device), self._row.to(device), device
            self._frozen.cpu()

    def _all(self) -> tuple[Tensor, Tensor]:
        log.info("computing the frozen part of the network for %d images, once", len(self._keys))
        plain = int(torch.searchsorted(self._keys, self._span))
        size = self._at_once(example_of(self._frozen).device)
        batches = [part for keys in (self._keys[:plain], self._keys[plain:]) for part in keys.split(size) if len(part)]
        features, labels = zip(*map(self._computed, batches), strict=True)
        return torch.cat(features), torch.cat(labels)

    def _filed(self) -> tuple[Tensor, Tensor]:
        """Map features and labels from their file, written first where there is none; refuse a file of other images."""
        assert self._folder is not None
        path = self._folder / f"features-{self._digest()}.pt"
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}.partial")
            torch.save([tensor.cpu() for tensor in self._all()], partial)
            os.replace(partial, path)
        features, labels = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        recomputed, _ = self._computed(self._keys[:CHECKED])
        if not torch.allclose(recomputed.cpu(), features[: len(recomputed)], rtol=1e-3, atol=1e-4):
            raise ConfigError(f"{path} holds features of other images; delete it, or set another tuning.cache_dir")
        return features, labels

    def _digest(self) -> str:
        content = hashlib.sha256(f"{self._identity} {self._dtype} {self.image} {DECODED}".encode())
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
            raise IndexError("an image was asked for that no score and no training environment holds")
        return self._features[rows.to(self._features.device)].to(self._device), self._labels[rows]
