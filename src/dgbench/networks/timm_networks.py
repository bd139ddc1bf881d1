"""Networks of timm as featurizers, without a classifier.

They take any number of channels, and any image size that timm's network takes.
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.errors import ConfigError
from dgbench.networks.featurizer import Featurizer, Parts, Stage

TRANSFORMER_STAGES = 4
RGB = 3
STYLE_STAGES = (1, 2, 3)
# timm's, in the module of a network: published names -> its own
CONVERTERS = ("checkpoint_filter_fn", "_filter_fn")


@dataclass(frozen=True)
class Family:
    """Networks of timm that are cut into parts in the same way."""

    kind: str  #: what a message calls them
    needs: tuple[str, ...]  #: parts of timm's module by which they are known
    cut: Callable[[Any], Parts]  #: timm's module -> its parts
    #: the constructor takes ``img_size``; images of another size do not fit
    needs_size: bool = False
    min_side: int = 1  #: least side of an image, pixels
    why_not_stackable: str | None = None  #: see :class:`~dgbench.networks.featurizer.Featurizer`


def _convolutional(
    stem: tuple[str, ...], stages: tuple[str, ...], last: tuple[str, ...] = ()
) -> Callable[[Any], Parts]:
    """Return a function that cuts a convolutional network into its parts.

    Args:
        stem: names of the modules before the first stage.
        stages: names of the stages, or of one module whose items they are.
        last: names of the modules between the stages and the pool.
    """

    def cut(body: Any) -> Parts:
        first = Stage.of(*(getattr(body, name) for name in stem))
        if len(stages) > 1:
            modules = [getattr(body, name) for name in stages]
        else:
            modules = getattr(body, stages[0])
        blocks = [Stage.of(module) for module in modules]
        end = Stage.of(*(getattr(body, name) for name in last))
        return Parts(first, tuple(blocks), end, (first, *blocks), mixes_styles=True)

    return cut


def _transformer(body: Any) -> Parts:
    """Cut a transformer of n blocks into 4 stages or fewer, of ceil(n / 4) blocks each.

    Each block computes its rotary embedding.
    """
    rotary = hasattr(body, "rope")  # timm's Eva: positions go to every block, if there are any
    around = (body.patch_embed, body.pos_drop, body.patch_drop, body.norm_pre)
    embedding = [module for module in around if module is not None]
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
    stages = tuple(Stage.joined(*group) for group in groups)
    return Parts(stem, stages, Stage.of(body.norm), (stem, *blocks), first_map)


def _rotation(body: Any, number: int) -> Tensor | None:
    """Compute the rotary embedding of a block, or return None without one.

    In some networks each block has its own.
    """
    rope = body.rope
    if rope is None:
        return None
    rotation: Tensor
    if hasattr(rope, "feat_shape"):
        rotation = rope.get_embed()
    else:
        rotation = rope.get_embed(body.patch_embed.grid_size)
    return rotation[number] if getattr(body, "rope_mixed", False) else rotation


def _whole(body: Any) -> Parts:
    """Treat a network that is not known to come apart as one stage."""
    stage = Stage(body.forward_features, (body,))
    return Parts(Stage.of(), (stage,), Stage.of(), (stage,), has_maps=False)


SIDE = 32  # of a convolutional network's images, which it halves five times
_RESNET_STEM = ("conv1", "bn1", "act1", "maxpool")
_RESNET_STAGES = ("layer1", "layer2", "layer3", "layer4")
RESNET = Family(
    "ResNet",
    needs=(*_RESNET_STEM, *_RESNET_STAGES),
    cut=_convolutional(_RESNET_STEM, _RESNET_STAGES),
    min_side=SIDE,
)
TRANSFORMER = Family(
    "vision transformer",
    needs=("patch_embed", "pos_embed", "blocks", "norm", "norm_pre", "_pos_embed"),
    cut=_transformer,
    needs_size=True,
    why_not_stackable="torch maps the attention of a vision transformer over runs one by one",
)
REGNET = Family(
    "RegNet",
    needs=("stem", "s1", "s2", "s3", "s4", "final_conv"),
    cut=_convolutional(("stem",), ("s1", "s2", "s3", "s4"), ("final_conv",)),
    min_side=SIDE,
)
CONVNEXT = Family(
    "ConvNeXt",
    needs=("stem", "stages", "norm_pre"),
    cut=_convolutional(("stem",), ("stages",), ("norm_pre",)),
    min_side=SIDE,
)
EFFICIENTNET = Family(
    "EfficientNet",
    needs=("conv_stem", "bn1", "blocks", "conv_head", "bn2"),
    cut=_convolutional(("conv_stem", "bn1"), ("blocks",), ("conv_head", "bn2")),
    min_side=SIDE,
)
OTHER = Family(
    "network of timm",
    needs=("forward_features", "forward_head"),
    cut=_whole,
    why_not_stackable="it is not known whether torch maps this kind of network over runs",
)
#: in the order in which a network is compared with them
FAMILIES = (RESNET, TRANSFORMER, REGNET, CONVNEXT, EFFICIENTNET, OTHER)


def family_of(body: Any) -> Family:
    """Find the family that a network of timm belongs to.

    Raises:
        StopIteration: it is no network of timm.
    """

    def belongs(family: Family) -> bool:
        return all(hasattr(body, part) for part in family.needs)

    return next(filter(belongs, FAMILIES))


class TimmFeaturizer(Featurizer):
    """A network of timm without its classifier, (n, C, H, W) -> (n, m).

    Known families (residual networks, RegNet, ConvNeXt, EfficientNet, vision transformers with
    absolute or rotary positions) come apart into stages that can be frozen and looked into; any
    other network is one stage. Random weights of a ResNet are drawn as torchvision does, which
    DomainBed uses: no scale of a BatchNorm starts at 0.

    Args:
        image: C, H, W.
        arch: timm's name of the architecture.
        norm, dropout: see :class:`Featurizer`.
        projection: width of a linear layer without bias behind the pool, as CLIP's into the space
            that images and texts share; None for none.
        unit_length: divide features by their length, as zero-shot classification with a text
            encoder does.

    Attributes:
        body: timm's module; its parameters have the names of published weights.
        input_layer: name within ``body`` of the layer that reads the image.

    Raises:
        ConfigError: ``arch`` is unknown or of another kind, or the images are too small or of a
            size that cannot be cut into patches.
    """

    wanted: Family | None = None  #: the one family that a subclass stands for

    def __init__(
        self,
        image: tuple[int, int, int],
        arch: str,
        norm: str = "train",
        dropout: float = 0.0,
        projection: int | None = None,
        unit_length: bool = False,
    ) -> None:
        super().__init__(norm, dropout)
        self.arch = arch
        self.unit_length = unit_length
        self.body: Any = _created(arch, image)
        self.family = family_of(self.body)
        self._check(image)
        self.input_layer: str = self.body.pretrained_cfg["first_conv"]
        self.n_features: int = (
            getattr(self.body, "head_hidden_size", None) or self.body.num_features
        )
        self.projected = projection is not None
        if projection is not None:
            self._project(projection)
        self.one_image_size = self.family.needs_size or bool(
            self.body.pretrained_cfg.get("fixed_input_size")
        )
        self.why_not_stackable = self.family.why_not_stackable
        parts = self.family.cut(self.body)
        self.style_stages = STYLE_STAGES if parts.mixes_styles else ()
        self._pools = self._outside(parts)  # names: every forward pass asks for the stages
        self.set_norms()
        self.train()

    def _check(self, image: tuple[int, int, int]) -> None:
        if self.wanted is not None and self.family is not self.wanted:
            raise ConfigError(
                f"backbone.arch={self.arch} is no {self.wanted.kind}; choose another arch, or "
                "backbone=timm, which takes any"
            )
        if min(image[1:]) < self.family.min_side:
            least = self.family.min_side
            raise ConfigError(
                f"backbone {self.arch} takes images of at least {least} x {least}, these are "
                f"{image[1]} x {image[2]}; set dataset.image_size where the dataset has it, or use "
                "backbone=mlp"
            )
        if self.family.needs_size:
            patch = self.body.patch_embed.patch_size
            if any(side % length for side, length in zip(image[1:], patch, strict=True)):
                raise ConfigError(
                    f"backbone {self.arch} cuts images into patches of {patch[0]} x {patch[1]}, "
                    f"these are {image[1]} x {image[2]}; set dataset.image_size to a multiple of "
                    f"{patch[0]}"
                )

    def _project(self, width: int) -> None:
        name = self.body.pretrained_cfg["classifier"]
        if not isinstance(width, int) or isinstance(width, bool) or width < 1 or "." in str(name):
            raise ConfigError(
                f"backbone.projection={width} is not a width that {self.arch} can be projected "
                "to; give CLIP's, 512 for ViT-B/16, or null"
            )
        setattr(self.body, name, nn.Linear(self.n_features, width, bias=False))
        self.n_features = width

    def parts(self) -> Parts:
        parts = self.family.cut(self.body)
        pools = Stage(self._pooled, tuple(getattr(self.body, name) for name in self._pools))
        return replace(parts, end=Stage.joined(parts.end, pools))

    def adapted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert published weights to timm's names and to the shapes of this network.

        timm converts what other projects publish (CLIP, DINOv2, DINOv3, SigLIP, SWAG, ConvNeXt) and
        resamples position embeddings to the image size and patches, bicubic. Channel i of the input
        layer gets the weights of channel i mod 3, unscaled (DomainBed). Classifiers are left out.
        """
        expected = self.body.state_dict()
        converted = self._square_positions(self._converted(dict(tensors)), tensors)
        heads = self._classifier_prefixes()
        adapted = {}
        for name, value in converted.items():
            if name in expected or not name.startswith(heads):
                adapted[name] = value
        name = f"{self.input_layer}.weight"
        if name in adapted and name in expected:
            adapted[name] = _with_channels(adapted[name], expected[name].shape[1])
        return adapted

    def _classifier_prefixes(self) -> tuple[str, ...]:
        """List what the names of a classifier's tensors begin with."""
        classifier = self.body.pretrained_cfg.get("classifier") or ()
        names = [classifier] if isinstance(classifier, str) else classifier
        return ("fc.", "head.", *(f"{name}." for name in names))

    def _converted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Bring published names to timm's by the function that timm has for this network."""
        names = vars(sys.modules[type(self.body).__module__])
        convert = next((names[name] for name in CONVERTERS if name in names), None)
        if convert is None:
            return tensors
        with contextlib.redirect_stdout(io.StringIO()):  # one of timm's prints what it leaves out
            takes_model = convert.__code__.co_argcount > 1
            arguments = (tensors, self.body) if takes_model else (tensors,)
            converted: dict[str, Tensor] = convert(*arguments)
        return converted

    def _square_positions(
        self, converted: dict[str, Tensor], published: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Interpolate published position embeddings of a square grid to this network's grid.

        timm compares the number of patches alone, and leaves as many patches in another grid as
        they are.
        """
        positions = converted.get("pos_embed")
        if not self.family.needs_size or positions is None or positions.dim() != 3:
            return converted
        from timm.layers.pos_embed import resample_abs_pos_embed

        grid = list(self.body.patch_embed.grid_size)
        prefix = 0 if self.body.no_embed_class else self.body.num_prefix_tokens
        side = math.isqrt(positions.shape[1] - prefix)
        if grid[0] == grid[1] or side * side + prefix != positions.shape[1]:
            return converted
        for value in published.values():
            unchanged = value.numel() == positions.numel() and value.equal(positions.view_as(value))
            if unchanged:
                converted["pos_embed"] = resample_abs_pos_embed(
                    positions, grid, [side, side], num_prefix_tokens=prefix
                )
                break
        return converted

    def _outside(self, parts: Parts) -> tuple[str, ...]:
        """List the names of the body's modules that belong to no part: they pool and project."""
        used: set[nn.Module] = set()
        for stage in (parts.stem, *parts.stages, parts.end):
            for module in stage.modules:
                used.update(module.modules())
        children = self.body.named_children()
        return tuple(name for name, child in children if used.isdisjoint(child.modules()))

    def decay_layers(self) -> list[list[nn.Parameter]]:
        return [list(layer.parameters()) for layer in self.parts().layers]

    def _pooled(self, h: Tensor) -> Tensor:
        features: Tensor = self.body.forward_head(h, pre_logits=not self.projected)
        return F.normalize(features, dim=1) if self.unit_length else features


class ResNet(TimmFeaturizer):
    """A residual network (He et al., 2016), m = 512 for resnet18 and 2048 for resnet50.

    Four stages, the stem belonging to the first and the average pool to the last; images of at
    least 32 x 32.
    """

    wanted = RESNET


class VisionTransformer(TimmFeaturizer):
    """A vision transformer (Dosovitskiy et al., 2021), m = 768 for ViT-B/16.

    Four stages of equally many blocks; the patch and position embeddings belong to the first, the
    final norm and the pool (the class token) to the last. Image sides are multiples of the patch.
    """

    wanted = TRANSFORMER

    def __init__(
        self, image: tuple[int, int, int], arch: str, dropout: float = 0.0, **options: Any
    ) -> None:
        super().__init__(image, arch, dropout=dropout, **options)


def _with_channels(weight: Tensor, channels: int) -> Tensor:
    """Repeat the weights of an RGB input layer for another number of channels."""
    if weight.dim() != 4 or weight.shape[1] != RGB or channels == RGB:
        return weight
    return weight[:, [i % RGB for i in range(channels)]]


def _created(arch: str, image: tuple[int, int, int]) -> Any:
    """Create timm's module for images of this shape.

    It has random weights and no classifier.
    """
    import timm  # seconds

    if arch is None:
        raise ConfigError(
            "backbone.arch is not set; give timm's name of a network, e.g. "
            "backbone.arch=convnext_tiny"
        )
    if not isinstance(arch, str) or not timm.is_model(arch):
        close = get_close_matches(arch, timm.list_models(), n=3)
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise ConfigError(f"backbone.arch={arch} is unknown to timm; {meant}see timm.list_models()")
    size = tuple(image[1:])
    choices: list[dict[str, Any]] = [
        {"zero_init_last": False},
        {"img_size": size, "dynamic_img_size": False},
        {"img_size": size},
        {},
    ]
    shared: dict[str, Any] = {"pretrained": False, "num_classes": 0, "in_chans": image[0]}
    for options in choices:  # constructors of other families have other options
        try:
            return timm.create_model(arch, **shared, **options)
        except TypeError:
            continue
        except (AssertionError, ValueError, RuntimeError, ZeroDivisionError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"backbone.arch={arch} cannot be built for images of {image[1]} x {image[2]} "
                f"({reason}); set dataset.image_size, or choose another arch"
            ) from error
    raise ConfigError(
        f"backbone.arch={arch} cannot be built by timm.create_model; choose another arch"
    )
