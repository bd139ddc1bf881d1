"""How networks of timm are cut into first layers, stages and pool, by family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dgbench.networks.stages import Stage

TRANSFORMER_STAGES = 4


@dataclass(frozen=True)
class Parts:
    """A network as a chain: stem, stages, end; what pools comes after it.

    Args:
        stem: what comes before the first stage.
        stages: in order, at least one.
        end: what stands between the last stage and the pool.
        layers: parts with a learning rate of their own under layer-wise decay, first ones first; what belongs to none
            of them, such as a last norm, learns like the classifier.
        first_map: images -> what the first layers give as maps, and the output of the stem; None: both are the same.
        has_maps: whether what comes out of stem and stages can be given away (``maps=True``).
        mixes_styles: whether stages give (n, C, H, W), between whose images MixStyle may mix.
    """

    stem: Stage
    stages: tuple[Stage, ...]
    end: Stage
    layers: tuple[Stage, ...]
    first_map: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
    has_maps: bool = True
    mixes_styles: bool = False


@dataclass(frozen=True)
class Family:
    """Networks that are cut alike.

    Args:
        kind: what a message calls them.
        needs: parts of timm's module by which they are known.
        cut: timm's module -> its parts.
        needs_size: the constructor takes ``img_size``; images of another size do not fit.
        min_side: least side of an image, pixels.
        why_not_stackable: see :class:`~dgbench.networks.stages.Featurizer`.
    """

    kind: str
    needs: tuple[str, ...]
    cut: Callable[[Any], Parts]
    needs_size: bool = False
    min_side: int = 1
    why_not_stackable: str | None = None

    def holds(self, body: Any) -> bool:
        """Whether a network is of this family."""
        return all(hasattr(body, part) for part in self.needs)


def _convolutional(
    stem: tuple[str, ...], stages: tuple[str, ...], last: tuple[str, ...] = ()
) -> Callable[[Any], Parts]:
    """Stages by the names of their modules, or the items of one; ``last`` stands between them and the pool."""

    def cut(body: Any) -> Parts:
        first = Stage.of(*(getattr(body, name) for name in stem))
        blocks = [Stage.of(getattr(body, name)) for name in stages] if len(stages) > 1 else _each(body, stages[0])
        end = Stage.of(*(getattr(body, name) for name in last))
        return Parts(first, tuple(blocks), end, (first, *blocks), mixes_styles=True)

    return cut


def _each(body: Any, name: str) -> list[Stage]:
    return [Stage.of(module) for module in getattr(body, name)]


def _transformer(body: Any) -> Parts:
    """Four stages of equally many blocks; rotary embeddings, where it has them, are computed again at every block."""
    rotary = hasattr(body, "rope")  # timm's Eva: positions go to every block, if there are any
    embedding = [m for m in (body.patch_embed, body.pos_drop, body.patch_drop, body.norm_pre) if m is not None]
    tokens = tuple(p for p in (body.cls_token, body.reg_token, body.pos_embed) if p is not None)

    def positions(patches: Tensor) -> Tensor:
        if rotary:
            return body.norm_pre(body._pos_embed(patches)[0])  # type: ignore[no-any-return]
        return body.norm_pre(body.patch_drop(body._pos_embed(patches)))  # type: ignore[no-any-return]

    def first_map(x: Tensor) -> tuple[Tensor, Tensor]:
        patches = body.patch_embed(x)
        return patches.mT.unflatten(2, body.patch_embed.grid_size), positions(patches)

    def block(number: int, module: Any) -> Stage:
        if not rotary:
            return Stage.of(module)
        return Stage(lambda h: module(h, rope=_rotation(body, number)), (module,))

    blocks = [block(i, module) for i, module in enumerate(body.blocks)]
    size = -(-len(blocks) // TRANSFORMER_STAGES)
    groups = [blocks[i : i + size] for i in range(0, len(blocks), size)]
    rope = (body.rope,) if rotary and body.rope is not None else ()
    stem = Stage(lambda x: positions(body.patch_embed(x)), (*embedding, *rope), tokens)
    return Parts(stem, tuple(map(_joined, groups)), Stage.of(body.norm), (stem, *blocks), first_map)


def _rotation(body: Any, number: int) -> Tensor | None:
    """The rotary embedding of a block, if there is any; some networks have one of its own for each."""
    rope = body.rope
    if rope is None:
        return None
    rotation: Tensor = rope.get_embed() if hasattr(rope, "feat_shape") else rope.get_embed(body.patch_embed.grid_size)
    return rotation[number] if getattr(body, "rope_mixed", False) else rotation


def _joined(stages: list[Stage]) -> Stage:
    def run(h: Tensor) -> Tensor:
        for stage in stages:
            h = stage.run(h)
        return h

    return Stage(run, tuple(module for stage in stages for module in stage.modules))


def _whole(body: Any) -> Parts:
    """A network that is not known to come apart: one stage."""
    all_of_it = Stage(body.forward_features, (body,))
    return Parts(Stage.of(), (all_of_it,), Stage.of(), (all_of_it,), has_maps=False)


SIDE = 32  # of a convolutional network's images, which it halves five times
RESNET = Family(
    "ResNet", ("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3", "layer4"),
    _convolutional(("conv1", "bn1", "act1", "maxpool"), ("layer1", "layer2", "layer3", "layer4")), min_side=SIDE,
)  # fmt: skip
TRANSFORMER = Family(
    "vision transformer", ("patch_embed", "pos_embed", "blocks", "norm", "norm_pre", "_pos_embed"), _transformer,
    needs_size=True, why_not_stackable="torch maps the attention of a vision transformer over runs one by one",
)  # fmt: skip
OTHER = Family(
    "network of timm", ("forward_features", "forward_head"), _whole,
    why_not_stackable="it is not known whether torch maps this kind of network over runs",
)  # fmt: skip
#: in the order in which a network is compared with them
FAMILIES = (
    RESNET,
    TRANSFORMER,
    Family("RegNet", ("stem", "s1", "s2", "s3", "s4", "final_conv"),
           _convolutional(("stem",), ("s1", "s2", "s3", "s4"), ("final_conv",)), min_side=SIDE),
    Family("ConvNeXt", ("stem", "stages", "norm_pre"), _convolutional(("stem",), ("stages",), ("norm_pre",)),
           min_side=SIDE),
    Family("EfficientNet", ("conv_stem", "bn1", "blocks", "conv_head", "bn2"),
           _convolutional(("conv_stem", "bn1"), ("blocks",), ("conv_head", "bn2")), min_side=SIDE),
    OTHER,
)  # fmt: skip


def family_of(body: Any) -> Family:
    """The family that a network of timm belongs to."""
    return next(family for family in FAMILIES if family.holds(body))
