"""Architectures of timm's own code with few channels, under names that timm then knows."""

from __future__ import annotations

from functools import partial
from typing import Any

from timm.layers import LayerNorm
from timm.models import (
    build_model_with_cfg,
    eva,
    generate_default_cfgs,
    register_model,
    vision_transformer,
)
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer

SIDE, PATCH, WIDTH, SHARED = 32, 16, 32, 24
_CFG = {
    "first_conv": "patch_embed.proj",
    "classifier": "head",
    "num_classes": 0,
    "input_size": (3, SIDE, SIDE),
}
default_cfgs = generate_default_cfgs(
    {f"tiny_{name}.any": dict(_CFG) for name in ("clip", "siglip", "dinov2", "dinov3")}
)


def _vit(name: str, kwargs: dict[str, Any], **own: Any) -> Any:
    sizes = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": 4, "num_heads": 2}
    convert = partial(vision_transformer.checkpoint_filter_fn)
    return build_model_with_cfg(
        VisionTransformer,
        name,
        kwargs.pop("pretrained", False),
        pretrained_filter_fn=convert,
        **{**sizes, **own, **kwargs},
    )


@register_model
def tiny_clip(**kwargs: Any) -> Any:
    """OpenAI's CLIP: norm before the blocks, QuickGELU."""
    norm = partial(LayerNorm, eps=1e-5)
    return _vit("tiny_clip", kwargs, pre_norm=True, norm_layer=norm, act_layer="quick_gelu")


@register_model
def tiny_siglip(**kwargs: Any) -> Any:
    """SigLIP: no class token, attention pool."""
    return _vit("tiny_siglip", kwargs, class_token=False, global_pool="map")


@register_model
def tiny_dinov2(**kwargs: Any) -> Any:
    """DINOv2: scales behind every residual branch."""
    return _vit("tiny_dinov2", kwargs, init_values=1e-5)


@register_model
def tiny_dinov3(**kwargs: Any) -> Any:
    """DINOv3: rotary positions, registers, no position embedding."""
    own: dict[str, Any] = {
        "img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": 4, "num_heads": 2,
        "qkv_bias": False, "init_values": 1e-5, "rope_type": "dinov3", "use_rot_pos_emb": True,
        "use_abs_pos_emb": False, "num_reg_tokens": 4, "use_fc_norm": False,
        "rope_temperature": 100, "rope_rotate_half": True,
        "norm_layer": partial(LayerNorm, eps=1e-5), "dynamic_img_size": True,
    }  # fmt: skip
    return build_model_with_cfg(
        Eva,
        "tiny_dinov3",
        kwargs.pop("pretrained", False),
        pretrained_filter_fn=eva.checkpoint_filter_fn,
        **{**own, **kwargs},
    )
