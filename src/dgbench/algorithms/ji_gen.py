"""Jigsaw puzzles, JiGen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.errors import ConfigError
from dgbench.modules import AnyNetworks, Networks
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup
from dgbench.objectives.jigsaw import SIDE, TILES, assemble, cut, framed, orders, square
from dgbench.objectives.pixels import from_pixels, gray, to_pixels
from dgbench.objectives.random_inputs import Integers, RandomInputs, Uniform
from dgbench.objectives.schedules import dropped
from dgbench.objectives.step import Outcome, Prediction, Step
from dgbench.requests import LinearSpec, NetworkSpec, Sizes


class JiGen(Algorithm):
    """Also tell how the tiles of an image were shuffled (Carlucci et al., 2019; the authors' code).

    Each row is left in order with probability ``beta``, otherwise its 3 x 3 tiles get one of ``n_permutations`` orders
    or none, all equally likely; each tile turns gray with probability ``tile_gray``, in ordered images too.
    L = CE(h(z), Y) + ``alpha`` CE(jigsaw(z), order), both over all rows, one pass. ``class_on=ordered``: the first term
    over ordered rows only (so the paper; 0 where there are none).

    Sides that are no multiple of 3 lose their outer pixels, 224 -> 222 and 28 -> 27, in training and in prediction as
    with the authors. ``edge=keep`` leaves them around the shuffled square, and so does ``crop`` where the backbone
    takes images of one size only, a perceptron or vision transformer. BatchNorm that is not frozen sees shuffled and
    ordered images in one minibatch. ``optimizer=sgd`` (momentum 0.9) and ``drop_lr_at`` 0.8 are the authors' recipe.
    The views can be looked at with ``benchmarks/views.py``.
    """

    static = frozenset({"n_permutations", "class_on", "edge", "optimizer", "drop_lr_at"})
    choices: ClassVar[Choices] = {
        "class_on": ("all", "ordered"), "edge": ("crop", "keep"), "optimizer": ("adam", "sgd"),
    }  # fmt: skip
    order_matters = True  # orders belong to rows
    why_not_cacheable = "it shuffles tiles of the images, anew at every step"
    why_not_vectors = "it shuffles tiles of pictures"

    @classmethod
    def check(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        super().check(sizes, hparams)
        if len(sizes.image) != 3 or min(sizes.image[1:]) < SIDE:
            raise ConfigError(
                f"JiGen cuts images into {SIDE} x {SIDE} tiles; give images (C, H, W) of that many pixels or "
                f"more, these have the shape {sizes.image}"
            )

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "jigsaw": LinearSpec(sizes.n_features, hparams["n_permutations"] + 1),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {"model": ParamGroup(("featurizer", "classifier", "jigsaw"), optimizer=self.values["optimizer"])}

    def lr_factor(self, group: str, step: int) -> float:
        return dropped(step, self.values["drop_lr_at"], self.sizes.n_steps)

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        # constant, but kept where the run computes
        return {"orders": torch.tensor(orders(self.values["n_permutations"]))}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        n, below = sum(sizes), (self.values["n_permutations"] + 1,)
        return {
            "order": Integers((n,), "number of the order of the tiles, 0 for none", below=below * n),
            "coin": Uniform((n,), "the tiles stay in order where it is below beta"),
            "gray": Uniform((n, TILES), "a tile turns gray where it is below tile_gray"),
        }

    def objective(self, s: Step) -> Outcome:
        x, order = self.view(s)
        z = s.networks.featurizer(x)
        each = F.cross_entropy(s.networks.classifier(z), s.y, reduction="none")
        counts = (order == 0).to(each.dtype) if self.values["class_on"] == "ordered" else torch.ones_like(each)
        risk = (each * counts).sum() / counts.sum().clamp(min=1)
        puzzle = F.cross_entropy(s.networks.jigsaw(z), order)
        return Outcome(risk + s.hp.alpha * puzzle, {"jigsaw_loss": puzzle.detach(), "class_loss": risk.detach()})

    def view(self, s: Step) -> tuple[Tensor, Tensor]:
        """The shuffled images of a step, and the (N,) numbers of their orders."""
        order = torch.where(s.hp.beta > s.random["coin"], 0, s.random["order"])
        tiles = cut(self._inner(s.x))
        turned = (s.random["gray"] < s.hp.tile_gray)[..., None, None, None]
        if tiles.shape[2] == 3:
            colorless = from_pixels(gray(to_pixels(tiles, self.sizes)), self.sizes)
            tiles = torch.where(turned, colorless, tiles)
        rows = torch.arange(len(tiles), device=tiles.device)[:, None]
        shuffled = assemble(tiles[rows, s.state["orders"][order]])
        return (framed(shuffled, s.x) if self._keeps_edge(s.networks) else shuffled), order

    def predict(self, s: Prediction) -> Tensor:
        return s.networks.logits(s.x if self._keeps_edge(s.networks) else self._inner(s.x))

    def _keeps_edge(self, networks: AnyNetworks) -> bool:
        return self.values["edge"] == "keep" or networks.one_image_size()

    @staticmethod
    def _inner(x: Tensor) -> Tensor:
        rows, columns = square(*x.shape[-2:])
        return x[..., rows, columns]
