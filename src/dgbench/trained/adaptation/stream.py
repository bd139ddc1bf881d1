"""Streams of test images: their order, their batches, and a model that adapts to them.

Each eval set, a subset of one environment, is a stream of its own: the model begins it as it was
trained, sees all images in an order that a seed decides, batch by batch, and is forgotten at the
end (``episodic``: after each batch). Labels are counted and reach no method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dgbench.batches import ErrorRecipe, EvalBatch
from dgbench.data.environments import Environments, EvalSet, Store
from dgbench.errors import ConfigError
from dgbench.seeding import derive
from dgbench.trained.adaptation.contract import Adaptation, Adapter
from dgbench.trained.matched import Matched


@dataclass(frozen=True)
class Stream:
    """How images come."""

    batch_size: int  #: images that are seen together
    seed: int  #: of their order
    episodic: bool = False  #: forget after each batch

    def order(self, name: str, n: int) -> Tensor:
        """Permute the n images of an eval set; its name and the seed alone decide how."""
        rng = np.random.default_rng(derive(self.seed, "stream", name))
        return torch.from_numpy(rng.permutation(n))

    def parts(self, n: int) -> list[slice]:
        """Cut n images into batches.

        The last one has what is left; a single image, of which there are no statistics, joins the
        batch before it.
        """
        size = self.batch_size
        starts = list(range(0, n, size))
        if len(starts) > 1 and n - starts[-1] == 1:
            starts.pop()
        ends = [*starts[1:], n]
        return [slice(start, end) for start, end in zip(starts, ends, strict=True)]


class StreamLoader:
    """Batches of one eval set, in the order of the stream, gathered on the device."""

    def __init__(self, store: Store, name: str, scored: EvalSet, parts: Sequence[slice]) -> None:
        self.store = store
        self.name = name
        self.scored = scored
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[EvalBatch]:
        self.store.expect(self.scored.indices[part] for part in self.parts)
        for number, part in enumerate(self.parts):
            batch = self.scored.at(part)
            x, y = self.store.gather(batch.indices, batch.feature)
            yield EvalBatch(x, y, self.name, number, batch.indices, batch.pictures)


class AdaptingModel:
    """A model that a method adapts to one stream after the other.

    Args:
        method: of adaptation.
        network: the model as it was trained; each stream changes a copy of it.
        stream: how images come.
    """

    def __init__(self, method: Adaptation, network: Matched, stream: Stream) -> None:
        self.method = method
        self.network = network
        self.stream = stream
        self._adapter: Adapter | None = None

    def __call__(self, x: Tensor, name: str, index: int) -> Tensor:
        """Map the batch of number ``index`` of a stream to logits; batch 0 begins a stream."""
        if self._adapter is None or index == 0 or self.stream.episodic:
            self._adapter = self.method.start(deepcopy(self.network))
        return self._adapter(x)

    def loaders(
        self, environments: Environments, recipes: Sequence[ErrorRecipe]
    ) -> list[StreamLoader]:
        """Make a stream of every eval set that some error mixes.

        Raises:
            ConfigError: an eval set has too few images.
        """
        names: dict[str, None] = {}
        for recipe in recipes:
            names.update(dict.fromkeys(recipe.mixture))
        least = self.method.least_images(self.network)
        loaders = []
        for name, scored in environments.eval_sets(list(names)).items():
            n = len(scored.indices)
            if n < least:
                raise ConfigError(
                    f"{name} has {n} image, of which BatchNorm has no statistics; leave that "
                    "environment or subset out, or choose adaptation=t3a"
                )
            ordered = scored.at(self.stream.order(name, n))
            loaders.append(StreamLoader(environments.store, name, ordered, self.stream.parts(n)))
        return loaders
