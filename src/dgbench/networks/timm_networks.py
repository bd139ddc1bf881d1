"""ResNets and vision transformers of timm as featurizers: no classifier, any image size and number of channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dgbench.errors import ConfigError
from dgbench.networks.stages import Featurizer, Stage

RGB = 3
TRANSFORMER_STAGES = 4
MIN_SIDE = 32  # of a ResNet's images, which it halves five times


class TimmFeaturizer(Featurizer):
    """A network of timm without its classifier.

    Args:
        image: C, H, W.
        arch: timm's name of the architecture.
        norm, dropout: see :class:`Featurizer`.
        options: more for timm's constructor.

    Attributes:
        body: timm's module; its parameters have the names of published weights.
        input_layer: name within ``body`` of the convolution that reads the image.
    """

    kind: str
    needs: tuple[str, ...]

    def __init__(
        self, image: tuple[int, int, int], arch: str, norm: str = "train", dropout: float = 0.0, **options: Any
    ) -> None:
        import timm  # seconds

        super().__init__(norm, dropout)
        if not timm.is_model(arch):
            raise ConfigError(f"backbone.arch={arch} is unknown to timm; see timm.list_models()")
        self.arch = arch
        try:
            self.body: Any = timm.create_model(arch, pretrained=False, num_classes=0, in_chans=image[0], **options)
        except TypeError:  # another kind of network has other options
            self.body = None
        if not all(hasattr(self.body, part) for part in self.needs):
            raise ConfigError(f"backbone.arch={arch} is no {self.kind}; choose another backbone, or another arch")
        self.input_layer: str = self.body.pretrained_cfg["first_conv"]
        self.n_features: int = self.body.num_features
        self.train()

    def adapted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Published weights, made for three channels, for the channels of this network.

        Channel i of the input layer gets the weights of channel i mod 3, unscaled (DomainBed).
        """
        name, found = f"{self.input_layer}.weight", dict(tensors)
        n = self.body.state_dict()[name].shape[1]
        if name in found and found[name].dim() == 4 and found[name].shape[1] == RGB != n:
            found[name] = found[name][:, [i % RGB for i in range(n)]]
        return found

    def _pooled(self, h: Tensor) -> Tensor:
        features: Tensor = self.body.forward_head(h, pre_logits=True)
        return features


class ResNet(TimmFeaturizer):
    """A residual network (He et al., 2016), m = 512 for resnet18 and 2048 for resnet50.

    Four stages, the stem belonging to the first and the average pool to the last; images of at least 32 x 32. Random
    weights are drawn as torchvision does, which DomainBed uses: no scale of a BatchNorm starts at 0.

    Raises:
        ConfigError: the images are too small, or ``arch`` is no ResNet.
    """

    kind = "ResNet"
    needs = ("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3", "layer4")
    style_stages = (1, 2, 3)

    def __init__(self, image: tuple[int, int, int], arch: str, norm: str = "train", dropout: float = 0.0) -> None:
        if min(image[1:]) < MIN_SIDE:
            raise ConfigError(
                f"backbone {arch} takes images of at least {MIN_SIDE} x {MIN_SIDE}, these are {image[1]} x {image[2]}; "
                "set dataset.image_size, or use backbone=mnist_cnn"
            )
        super().__init__(image, arch, norm, dropout, zero_init_last=False)

    def stages(self) -> list[Stage]:
        body = self.body

        def last(h: Tensor) -> Tensor:
            return self._pooled(body.layer4(h))

        return [
            Stage.of(body.conv1, body.bn1, body.act1, body.maxpool, body.layer1),
            Stage.of(body.layer2),
            Stage.of(body.layer3),
            Stage(last, (body.layer4,)),
        ]

    def with_maps(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        body = self.body
        maps = [body.maxpool(body.act1(body.bn1(body.conv1(x))))]
        for layer in (body.layer1, body.layer2, body.layer3, body.layer4):
            maps.append(layer(maps[-1]))
        return self.dropout(self._pooled(maps[-1])), maps


class VisionTransformer(TimmFeaturizer):
    """A vision transformer (Dosovitskiy et al., 2021), m = 768 for ViT-B/16.

    Four stages of equally many blocks; the patch and position embeddings belong to the first, the final norm and the
    pool (the class token) to the last. Image sides are multiples of the patch.

    Raises:
        ConfigError: the images cannot be cut into patches, or ``arch`` is no vision transformer.
    """

    kind = "vision transformer"
    one_image_size = True
    why_not_stackable = "torch maps the attention of a vision transformer over runs one by one"
    needs = ("patch_embed", "pos_embed", "blocks", "norm")

    def __init__(self, image: tuple[int, int, int], arch: str, dropout: float = 0.0) -> None:
        try:
            super().__init__(image, arch, dropout=dropout, img_size=tuple(image[1:]))
        except TypeError as error:  # no vision transformer: the constructor knows no image size
            raise ConfigError(
                f"backbone.arch={arch} is no {self.kind}; choose another backbone, or another arch"
            ) from error
        patch = self.body.patch_embed.patch_size
        if any(side % by for side, by in zip(image[1:], patch, strict=True)):
            raise ConfigError(
                f"backbone {arch} cuts images into patches of {patch[0]} x {patch[1]}, these are {image[1]} x "
                f"{image[2]}; set dataset.image_size to a multiple of {patch[0]}"
            )

    def adapted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As for any network; position embeddings of another image size are resampled as timm does (bicubic)."""
        from timm.layers.pos_embed import resample_abs_pos_embed

        found, own = super().adapted(tensors), self.body.pos_embed
        given = found.get("pos_embed")
        if given is None or given.dim() != 3 or given.shape[2] != own.shape[2]:
            return found  # not ours; whoever compares says so
        prefix = 0 if self.body.no_embed_class else self.body.num_prefix_tokens
        side = math.isqrt(given.shape[1] - prefix)
        if side * side + prefix == given.shape[1]:  # published ones are square
            grid = list(self.body.patch_embed.grid_size)
            found["pos_embed"] = resample_abs_pos_embed(given, grid, [side, side], num_prefix_tokens=prefix)
        return found

    def stages(self) -> list[Stage]:
        body, blocks = self.body, list(self.body.blocks)
        size = -(-len(blocks) // TRANSFORMER_STAGES)
        stages = [Stage.of(*blocks[i : i + size]) for i in range(0, len(blocks), size)]
        first, last = stages[0], stages[-1]
        embedding = (body.patch_embed, body.pos_drop, body.patch_drop, body.norm_pre)
        tokens = tuple(p for p in (body.cls_token, body.reg_token, body.pos_embed) if p is not None)

        def embed(x: Tensor) -> Tensor:
            return first.run(body.norm_pre(body.patch_drop(body._pos_embed(body.patch_embed(x)))))

        def pool(h: Tensor) -> Tensor:
            return self._pooled(body.norm(last.run(h)))

        stages[0] = Stage(embed, (*embedding, *first.modules), tokens)
        stages[-1] = Stage(pool, (*last.modules, body.norm, body.fc_norm))
        return stages

    def with_maps(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """As for any network: 0 is the patch embedding as (n, C, rows, columns), k the tokens after stage k."""
        body, blocks = self.body, list(self.body.blocks)
        size = -(-len(blocks) // TRANSFORMER_STAGES)
        patches = body.patch_embed(x)
        h = body.norm_pre(body.patch_drop(body._pos_embed(patches)))
        maps = [patches.mT.unflatten(2, body.patch_embed.grid_size)]
        for i, block in enumerate(blocks, start=1):
            h = block(h)
            if i % size == 0 or i == len(blocks):
                maps.append(h)
        return self.dropout(self._pooled(body.norm(h))), maps
