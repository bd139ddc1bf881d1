"""Jigsaw puzzles, JiGen."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import AnyNetworks, Networks
from dgbench.errors import ConfigError
from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup
from dgbench.objectives.pixels import from_pixels, gray, to_pixels
from dgbench.objectives.step import (
    Integers,
    Outcome,
    Prediction,
    RandomInputs,
    Step,
    Uniform,
    dropped,
)

SIDE = 3  # tiles per side
TILES = SIDE * SIDE
# by output position the number of the input tile; at least 4 positions differ between any two
PUBLISHED = """
720156348 012345687 103264875 231078456 345680712 456807123 568712034 687423501 874531260 012387564
104625873 235471086 326514708 458706231 547168320 860243157 673850412 781032645 012437658 103246785
230154867 321068574 456783120 548370216 687501342 765812403 874625031 012547836 103258647 230165478
"""


class JiGen(Algorithm):
    """Also tell how the tiles of an image were shuffled (Carlucci et al., 2019; the authors' code).

    Each row is left in order with probability ``beta``, otherwise its 3 x 3 tiles get one of
    ``n_permutations`` orders or none, all equally likely; each tile turns gray with probability
    ``tile_gray``, in ordered images too. In one pass over all rows,

        L = CE(h(z), Y) + alpha CE(jigsaw(z), order).

    ``class_on=ordered``: the first term over ordered rows only, as in the paper; 0 without any.

    Sides that are no multiple of 3 lose their outer pixels, 224 -> 222 and 28 -> 27, in training
    and in prediction as with the authors. ``edge=keep`` leaves them around the shuffled square, and
    so does ``crop`` where the backbone takes images of one size only, a perceptron or vision
    transformer. BatchNorm that is not frozen sees shuffled and ordered images in one minibatch.
    ``optimizer=sgd`` (momentum 0.9) and ``drop_lr_at`` 0.8 are the authors' settings. The views can
    be looked at with ``benchmarks/views.py``.
    """

    static = frozenset({"n_permutations", "drop_lr_at"})
    choices: ClassVar[Choices] = {
        "class_on": ("all", "ordered"),
        "edge": ("crop", "keep"),
        "optimizer": ("adam", "sgd"),
    }
    why_not_cacheable = "it shuffles tiles of the images, anew at every step"
    why_not_vectors = "it shuffles tiles of pictures"

    @classmethod
    def check(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        super().check(sizes, hparams)
        if len(sizes.image) != 3 or min(sizes.image[1:]) < SIDE:
            raise ConfigError(
                f"JiGen cuts images into {SIDE} x {SIDE} tiles; give images (C, H, W) of that "
                f"many pixels or more, these have the shape {sizes.image}"
            )

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "jigsaw": LinearSpec(sizes.n_features, hparams["n_permutations"] + 1),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "model": ParamGroup(
                ("featurizer", "classifier", "jigsaw"), optimizer=self.values["optimizer"]
            )
        }

    def lr_factor(self, group: str, step: int) -> float:
        return dropped(step, self.values["drop_lr_at"], self.sizes.n_steps)

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        # constant, but kept where the run computes
        return {"orders": torch.tensor(orders(self.values["n_permutations"]))}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        n = sum(sizes)
        n_orders = self.values["n_permutations"] + 1
        return {
            "order": Integers(
                (n,), "number of the order of the tiles, 0 for none", below=(n_orders,) * n
            ),
            "coin": Uniform((n,), "the tiles stay in order where it is below beta"),
            "gray": Uniform((n, TILES), "a tile turns gray where it is below tile_gray"),
        }

    def objective(self, s: Step) -> Outcome:
        x, order = self.view(s)
        z = s.networks.featurizer(x)
        losses = F.cross_entropy(s.networks.classifier(z), s.y, reduction="none")
        if self.values["class_on"] == "ordered":
            weights = (order == 0).to(losses.dtype)
        else:
            weights = torch.ones_like(losses)
        risk = (losses * weights).sum() / weights.sum().clamp(min=1)
        puzzle = F.cross_entropy(s.networks.jigsaw(z), order)
        logs = {"jigsaw_loss": puzzle.detach(), "class_loss": risk.detach()}
        return Outcome(risk + s.hp.alpha * puzzle, logs)

    def view(self, s: Step) -> tuple[Tensor, Tensor]:
        """Shuffle the tiles of a step's images, some gray.

        Returns:
            The images, and the (N,) numbers of the orders of their tiles.
        """
        order = torch.where(s.hp.beta > s.random["coin"], 0, s.random["order"])
        tiles = cut(self._inner(s.x))
        gray_mask = (s.random["gray"] < s.hp.tile_gray)[..., None, None, None]
        if tiles.shape[2] == 3:
            colorless = from_pixels(gray(to_pixels(tiles, self.sizes)), self.sizes)
            tiles = torch.where(gray_mask, colorless, tiles)
        rows = torch.arange(len(tiles), device=tiles.device)[:, None]
        shuffled = assemble(tiles[rows, s.state["orders"][order]])
        if self._keeps_edge(s.networks):
            shuffled = framed(shuffled, s.x)
        return shuffled, order

    def predict(self, s: Prediction) -> Tensor:
        if self._keeps_edge(s.networks):
            return s.networks.logits(s.x)
        return s.networks.logits(self._inner(s.x))

    def _keeps_edge(self, networks: AnyNetworks) -> bool:
        return self.values["edge"] == "keep" or networks.one_image_size()

    @staticmethod
    def _inner(x: Tensor) -> Tensor:
        rows, columns = square(*x.shape[-2:])
        return x[..., rows, columns]


@cache
def orders(count: int) -> tuple[tuple[int, ...], ...]:
    """List the identity and ``count`` permutations of the tiles, far apart in Hamming distance.

    For 30 they are those of Carlucci et al. (2019). Otherwise each is the first in a shuffled list
    whose least distance to the ones before, the identity aside, is largest.
    """
    identity = tuple(range(TILES))
    if count == 30:
        return identity, *(tuple(map(int, word)) for word in PUBLISHED.split())
    candidates = np.array(list(permutations(identity)), np.int8)[1:]
    np.random.default_rng(0).shuffle(candidates)
    chosen = [0]
    distance = np.full(len(candidates), TILES + 1)
    while len(chosen) < count:
        distance = np.minimum(distance, (candidates != candidates[chosen[-1]]).sum(1))
        chosen.append(int(distance.argmax()))
    return identity, *(tuple(order) for order in candidates[chosen].tolist())


def square(height: int, width: int) -> tuple[slice, slice]:
    """Find the rows and columns of the middle part of an image that can be cut into equal tiles."""
    parts = []
    for size in (height, width):
        side = size // SIDE * SIDE
        first = (size - side) // 2
        parts.append(slice(first, first + side))
    return parts[0], parts[1]


def cut(x: Tensor) -> Tensor:
    """Cut (N, C, 3 h, 3 w) images into (N, 9, C, h, w) tiles, row by row."""
    n, c, height, width = x.shape
    tiles = x.reshape(n, c, SIDE, height // SIDE, SIDE, width // SIDE)
    return tiles.permute(0, 2, 4, 1, 3, 5).reshape(n, TILES, c, height // SIDE, width // SIDE)


def assemble(tiles: Tensor) -> Tensor:
    """Assemble images from tiles, the inverse of :func:`cut`."""
    n, _, c, h, w = tiles.shape
    return (
        tiles.reshape(n, SIDE, SIDE, c, h, w)
        .permute(0, 3, 1, 4, 2, 5)
        .reshape(n, c, SIDE * h, SIDE * w)
    )


def framed(inner: Tensor, x: Tensor) -> Tensor:
    """Replace the middle part of images ``x``, see :func:`square`, by ``inner``."""
    height, width = x.shape[-2:]
    rows, columns = square(height, width)
    edges = (columns.start, width - columns.stop, rows.start, height - rows.stop)
    inside = F.pad(torch.ones_like(inner[0, 0], dtype=torch.bool), edges)
    return torch.where(inside, F.pad(inner, edges), x)
