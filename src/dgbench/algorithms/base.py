"""The LightningModule that trains any algorithm on ordinary modules: any backbone, device or precision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.activations import activations, images_at_once
from dgbench.algorithms.trainable import Trainable
from dgbench.algorithms.updates import UpdateRule
from dgbench.seeding import derive
from dgbench.types import Buffers, Networks, ScoreBatch, Sizes, Tensors

NOISE_BLOCK = 64  # steps whose random numbers come from one generator; the draw of a step depends on nothing else


class Algorithm(Trainable):
    """Base class of all algorithms; a subclass implements :meth:`objective`.

    Args:
        networks: the networks that :meth:`networks_needed` asked for, plus ``featurizer``.
        sizes: numbers of classes, features and training environments, image shape.
        hparams: every hyperparameter, ``lr`` and ``weight_decay`` included.
        seed: base seed of the random numbers drawn for the objective.
        rule: how gradients become updates.
    """

    def __init__(
        self,
        networks: Networks,
        sizes: Sizes,
        hparams: Mapping[str, Any],
        seed: int = 0,
        rule: UpdateRule | None = None,
    ) -> None:
        super().__init__()
        self.check(sizes, hparams)
        self.automatic_optimization = False
        self.networks, self.sizes, self.values = networks, sizes, dict(hparams)
        self.noise_seed, self.rule = derive(seed, "noise"), rule or UpdateRule()
        dynamic = {key: value for key, value in hparams.items() if key not in self.static}
        self.hp = Buffers({k: torch.tensor(v, dtype=torch.get_default_dtype()) for k, v in dynamic.items()})
        self.memory = Buffers(self.initial_state(sizes))
        self.register_buffer("steps_done", torch.tensor(0))
        self.after_step = []
        self._noise: dict[int, tuple[int, tuple[int, ...], Tensors]] = {}

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, K) logits of this member."""
        return self._predict(x, "forward", 0)

    def noise_at(self, step: int, sizes: tuple[int, ...], share: int = 0) -> Tensors:
        """The random numbers of one step: a function of the seed, the step, the minibatch sizes and the share alone."""
        block, offset = divmod(step, NOISE_BLOCK)
        known = self._noise.get(share)
        if known is None or known[:2] != (block, sizes):
            known = self._noise[share] = (block, sizes, self.noise_block(block, sizes, share))
        return {name: values[offset] for name, values in known[2].items()}

    def noise_block(self, block: int, sizes: tuple[int, ...], share: int = 0) -> Tensors:
        """The random numbers of NOISE_BLOCK steps; axis 0 is the step."""
        rng = np.random.default_rng([self.noise_seed, block, *([share] if share else [])])
        drawn = self.draw_noise(rng, NOISE_BLOCK, sizes, self.values)
        return {name: self._on_device(array) for name, array in drawn.items()}

    def _on_device(self, array: np.ndarray) -> Tensor:
        dtype = torch.get_default_dtype() if array.dtype.kind == "f" else None
        return torch.as_tensor(array, dtype=dtype, device=self.device)

    # ---- scoring ------------------------------------------------------------------------------------------

    def validation_step(self, batch: ScoreBatch, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        """Count what is wrong in one batch: ``seen``, ``wrong`` and the summed cross entropy ``loss``."""
        logits = self._predict(batch.x, batch.name, batch.index)
        wrong = (logits.argmax(1) != batch.y).sum()
        loss = F.cross_entropy(logits, batch.y, reduction="none").double().sum()
        return {"seen": torch.tensor(len(batch.y)), "wrong": wrong, "loss": loss}

    def _predict(self, x: Tensor, *purpose: str | int) -> Tensor:
        noise = self.noise_for_scoring(len(x), *purpose)
        parts = [
            self.predict(self.networks, x[rows], self.hp.tensors(), self.memory.tensors(), cut(noise, rows))
            for rows in self.scored_together(len(x), self.device)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @cached_property
    def activations(self) -> list[int]:
        """Numbers that each layer of the featurizer puts out for one image."""
        channels, *sides = self.sizes.image
        return activations(self.networks["featurizer"], (channels + self.extra_channels, *sides))

    def images_at_once(self, device: torch.device) -> int:
        """Images that are scored at once on a device, so that no layer puts out too much."""
        return images_at_once(self.activations, device)

    def scored_together(self, n: int, device: torch.device) -> list[slice]:
        """The rows of a batch of ``n`` images, cut into what one call of :meth:`predict` gets."""
        size = n if self.group_size(self.values) else self.images_at_once(device)
        return [slice(first, min(first + size, n)) for first in range(0, n, size)]

    def noise_for_scoring(self, n: int, *purpose: str | int) -> Tensors:
        """The random numbers of a prediction on ``n`` images: a function of the seed and the batch's name alone."""
        rng = np.random.default_rng(derive(self.noise_seed, "score", *purpose))
        return {name: self._on_device(array) for name, array in self.scoring_noise(rng, n).items()}


def cut(noise: Tensors, rows: slice, axis: int = 0) -> Tensors:
    """The random numbers of some of the images, which lie along ``axis``."""
    return {name: values.narrow(axis, rows.start, rows.stop - rows.start) for name, values in noise.items()}
