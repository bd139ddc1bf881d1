"""Files as CLIP, SigLIP, DINOv2, DINOv3, SWAG, DeiT, ConvNeXt and EfficientNet are published, made
small.

Ours becomes the same network that timm or OpenCLIP makes of them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor

import tests.networks.tiny_timm as tiny
from dgbench.errors import WeightsError
from dgbench.networks.timm_networks import TimmFeaturizer
from dgbench.networks.weights import PretrainedWeights

SIDE, WIDTH, SHARED = tiny.SIDE, tiny.WIDTH, tiny.SHARED
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}


def images(side: int = SIDE) -> Tensor:
    return torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(0))


def shaken(net: Any) -> Any:
    """Every tensor away from its initial value, so that none can be left out unnoticed."""
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in net.state_dict().values():
            if value.is_floating_point():
                value += 0.05 * torch.rand(value.shape, generator=rng).to(value)
    return net.eval()


def clip(quick: bool = True) -> Any:
    vision = {
        "image_size": SIDE,
        "layers": 4,
        "width": WIDTH,
        "head_width": WIDTH // 2,
        "patch_size": tiny.PATCH,
    }
    return shaken(
        open_clip.CLIP(embed_dim=SHARED, vision_cfg=vision, text_cfg=dict(TEXT), quick_gelu=quick)
    )


def siglip() -> Any:
    vision = {"timm_model_name": "tiny_siglip", "timm_model_pretrained": False, "timm_pool": "map",
        "timm_proj": "none",
              "image_size": SIDE}  # fmt: skip
    return shaken(
        open_clip.CustomTextCLIP(
            embed_dim=WIDTH,
            vision_cfg=vision,
            text_cfg={**TEXT, "width": WIDTH},
            init_logit_bias=-10,
        )
    )


def script(net: Any, path: Path) -> Path:
    """OpenAI's way: an archive of TorchScript."""
    text = torch.zeros(1, 77, dtype=torch.long)
    with warnings.catch_warnings(
        action="ignore"
    ):  # tracing is deprecated, and how the published file was made
        torch.jit.trace(net, (images()[:1], text), check_trace=False).save(str(path))
    return path


def saved(content: Any, path: Path) -> Path:
    torch.save(content, path)
    return path


def ours(path: Path, arch: str, side: int = SIDE, **options: Any) -> TimmFeaturizer:
    torch.manual_seed(5)
    net = TimmFeaturizer((3, side, side), arch, **options)
    weights = PretrainedWeights(
        arch=arch, name="file", path=str(path), allow_missing=("*.num_batches_tracked",)
    )
    weights.check(TimmFeaturizer((3, side, side), arch, **options))
    weights.load(net)
    return net.eval()


def timms(path: Path, arch: str, **options: Any) -> Any:
    """timm's network from the same file."""
    overlay = {"file": str(path), "num_classes": options.pop("published_classes", 0)}
    return timm.create_model(
        arch, pretrained=True, pretrained_cfg_overlay=overlay, **{"num_classes": 0, **options}
    ).eval()


@pytest.mark.parametrize("publish", ["openai", "open_clip", "distributed"])
def test_clip(publish: str, tmp_path: Path) -> None:
    net = clip()
    path = tmp_path / "ViT-B-16.pt"
    if publish == "openai":
        script(net, path)
    elif publish == "open_clip":
        saved(net.state_dict(), path)
    else:
        saved(
            {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in net.state_dict().items()}},
            path,
        )
    found = ours(path, "tiny_clip", projection=SHARED)
    with torch.no_grad():
        torch.testing.assert_close(
            found(images()), net.encode_image(images()), rtol=1e-5, atol=1e-6
        )
        unit = ours(path, "tiny_clip", projection=SHARED, unit_length=True)(images())
        torch.testing.assert_close(
            unit, net.encode_image(images(), normalize=True), rtol=1e-5, atol=1e-6
        )
        if publish == "open_clip":  # timm reads the other two only after others have unpacked them
            theirs = timms(path, "tiny_clip", num_classes=SHARED, published_classes=SHARED)
            torch.testing.assert_close(found(images()), theirs(images()), rtol=1e-5, atol=1e-6)
    assert found.n_features == SHARED


def test_without_a_projection_clip_ends_at_its_pool(tmp_path: Path) -> None:
    net = clip()
    found = ours(saved(net.state_dict(), tmp_path / "f.pt"), "tiny_clip")
    with torch.no_grad():
        projected = found(images()) @ net.visual.proj
        torch.testing.assert_close(projected, net.encode_image(images()), rtol=1e-5, atol=1e-6)
    assert found.n_features == WIDTH


def test_siglip(tmp_path: Path) -> None:
    net = siglip()
    path = saved(net.state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    found = ours(path, "tiny_siglip")
    with torch.no_grad():
        torch.testing.assert_close(
            found(images()), net.encode_image(images()), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("side", [SIDE, 48])
def test_dinov2_of_its_authors(side: int, tmp_path: Path) -> None:
    """They have a mask token, and 37 x 37 patches where ours has 16 x 16; here 4 x 4 where ours has
    2 x 2 or 3 x 3.
    """
    net = shaken(timm.create_model("tiny_dinov2", num_classes=0, img_size=64))
    path = saved(
        {**net.state_dict(), "mask_token": torch.zeros(1, WIDTH)},
        tmp_path / "dinov2_vitb14_pretrain.pth",
    )
    found, theirs = ours(path, "tiny_dinov2", side), timms(path, "tiny_dinov2", img_size=side)
    with torch.no_grad():
        assert torch.equal(found(images(side)), theirs(images(side)))
    assert torch.equal(found.body.blocks[2].ls1.gamma, net.blocks[2].ls1.gamma)


@pytest.mark.parametrize("published_by", ["authors", "timm"])
def test_dinov3(published_by: str, tmp_path: Path) -> None:
    net = shaken(timm.create_model("tiny_dinov3", num_classes=0))
    own = net.state_dict()
    if published_by == "timm":
        path = tmp_path / "model.safetensors"
        save_file({k: v.contiguous() for k, v in own.items()}, path)
    else:
        names = {"reg_token": "storage_tokens", "gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma"}
        content = {
            re.sub("|".join(names), lambda m: names[m[0]], key): value for key, value in own.items()
        }
        content |= {"mask_token": torch.zeros(1, WIDTH), "rope_embed.periods": torch.ones(4)}
        content |= {f"blocks.{i}.attn.qkv.bias": torch.zeros(3 * WIDTH) for i in range(4)}
        content |= {f"blocks.{i}.attn.qkv.bias_mask": torch.zeros(3 * WIDTH) for i in range(4)}
        path = saved(content, tmp_path / "dinov3_vitb16_pretrain.pth")
    found, theirs = ours(path, "tiny_dinov3"), timms(path, "tiny_dinov3")
    with torch.no_grad():
        torch.testing.assert_close(found(images()), net(images()), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found(images()), theirs(images()), rtol=1e-5, atol=1e-6)
        x, parts = images(), len(found.stages())
        for k in range(parts + 1):
            assert torch.equal(found.forward_from(found.forward_until(x, k), k), found(x)), k
        assert torch.equal(found(x, maps=True)[0], found(x))


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="torch 2.6 builds no RegNet on the meta device"
)
def test_swag_of_torchvision(tmp_path: Path) -> None:
    net = shaken(torchvision.models.regnet_y_400mf())
    path = saved(net.state_dict(), tmp_path / "regnet_y_16gf_lc_swag-f3ec0043.pth")
    found, theirs = (
        ours(path, "regnety_004", 64),
        timms(path, "regnety_004", published_classes=1000),
    )
    net.fc = torch.nn.Identity()
    with torch.no_grad():
        torch.testing.assert_close(found(images(64)), net(images(64)), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found(images(64)), theirs(images(64)), rtol=1e-6, atol=1e-6)


def convnext_of_its_authors(own: dict[str, Tensor]) -> dict[str, Any]:
    found = {}
    for key, value in own.items():
        key = re.sub(r"^stem\.", "downsample_layers.0.", key)
        key = re.sub(r"^stages\.(\d)\.downsample\.", r"downsample_layers.\1.", key)
        key = re.sub(r"^stages\.(\d)\.blocks\.", r"stages.\1.", key)
        key = key.replace("conv_dw", "dwconv").replace("mlp.fc", "pwconv")
        key = key.replace("head.norm", "norm").replace("head.fc", "head")
        found[key] = value[:, :, 0, 0] if "pwconv" in key and value.dim() == 4 else value
    return {"model": found}


@pytest.mark.parametrize(
    ("arch", "publish", "name"),
    [
        ("convnext_atto", convnext_of_its_authors, "convnext_base_1k_224_ema.pth"),
        ("efficientnet_lite0", lambda own: own, "efficientnet_b0_ra-3dd342df.pth"),
        ("test_vit", lambda own: {"model": own}, "deit_small_patch16_224-cd65a155.pth"),
        ("test_resnet", lambda own: own, "resnet50_ram-a26f946b.pth"),
    ],
)
def test_supervised(arch: str, publish: Callable[[Any], Any], name: str, tmp_path: Path) -> None:
    size = {"img_size": 64} if "vit" in arch else {}
    net = shaken(timm.create_model(arch, num_classes=10, **size))
    found = ours(saved(publish(net.state_dict()), tmp_path / name), arch, 64)
    theirs = timms(tmp_path / name, arch, published_classes=10, **size)
    with torch.no_grad():
        want = net.forward_head(net.forward_features(images(64)), pre_logits=True)
        torch.testing.assert_close(found(images(64)), want, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found(images(64)), theirs(images(64)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("arch", "publish"),
    [
        ("tiny_clip", siglip),
        ("tiny_dinov2", clip),
        ("test_vit", clip),
        ("test_convnext", clip),
        ("test_resnet", siglip),
    ],
)
def test_weights_of_another_architecture_say_so_in_one_line(
    arch: str, publish: Callable[[], Any], tmp_path: Path
) -> None:
    path = saved(publish().state_dict(), tmp_path / "f.pt")
    with pytest.raises(WeightsError, match=f"not fit {arch}") as refused:
        ours(path, arch, 64)
    assert "\n" not in str(refused.value) and "choose the backbone" in str(refused.value)
