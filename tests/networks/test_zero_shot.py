"""Classifiers made by a text encoder: on a tiny CLIP and a tiny SigLIP, our logits are OpenCLIP's
own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dgbench.errors import ConfigError, WeightsError
from dgbench.networks.initial_heads import RandomHead, ZeroHead, ZeroShotHead
from dgbench.networks.weights import PretrainedWeights
from tests.networks.test_published_formats import (
    SHARED,
    SIDE,
    TEXT,
    WIDTH,
    clip,
    images,
    ours,
    saved,
)
from tests.networks.tiny_timm import PATCH

CLASSES = ("dog", "house", "Alarm_Clock")
ENCODER = {
    "embed_dim": SHARED, "quick_gelu": True, "text_cfg": TEXT,
    "vision_cfg": {"image_size": SIDE, "layers": 4, "width": WIDTH, "head_width": WIDTH // 2,
        "patch_size": PATCH},
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Path]:
    """A CLIP, its file, and OpenCLIP's configuration of it."""
    folder = tmp_path_factory.mktemp("clip")
    configuration = folder / "tiny-clip.json"
    configuration.write_text(json.dumps(ENCODER))
    net = clip()
    return net, saved(net.state_dict(), folder / "tiny.pt"), configuration


def weights(path: Path) -> PretrainedWeights:
    return PretrainedWeights(arch="tiny_clip", name="file", path=str(path))


def texts(net: Any, prompts: list[str]) -> torch.Tensor:
    embedded: torch.Tensor = net.encode_text(
        open_clip.SimpleTokenizer(context_length=77)(prompts), normalize=True
    )
    return embedded


def test_logits_are_open_clips(tiny: tuple[Any, Path, Path]) -> None:
    net, path, model = tiny
    head = nn.Linear(SHARED, 3)
    ZeroShotHead(model=str(model)).set(head, weights(path), CLASSES, True)
    body = ours(path, "tiny_clip", projection=SHARED, unit_length=True)
    with torch.no_grad():
        tokens = open_clip.SimpleTokenizer(context_length=77)(
            ["a photo of a dog.", "a photo of a house.", "a photo of a Alarm Clock."]
        )
        image, text, scale = net(images(), tokens)[:3]
        torch.testing.assert_close(
            head(body(images())), scale * image @ text.T, rtol=1e-5, atol=1e-5
        )
        theirs = net.get_logits(images(), tokens)[0]
        torch.testing.assert_close(head(body(images())), theirs, rtol=1e-5, atol=1e-5)


def test_several_prompts_are_averaged_and_names_replaced(tiny: tuple[Any, Path, Path]) -> None:
    net, path, model = tiny
    head = nn.Linear(SHARED, 3)
    prompts = ["a {}", "the drawing of one {}"]
    ZeroShotHead(model=str(model), prompts=prompts, class_names={"dog": "puppy"}, scale=7).set(
        head, weights(path), CLASSES, True
    )
    with torch.no_grad():
        for row, name in enumerate(("puppy", "house", "Alarm Clock")):
            want = F.normalize(
                texts(net, [prompt.replace("{}", name) for prompt in prompts]).mean(0), dim=0
            )
            torch.testing.assert_close(head.weight[row], 7 * want, rtol=1e-5, atol=1e-6)
        assert torch.equal(head.bias, torch.zeros(3))


def test_siglip_adds_its_bias(tmp_path: Path) -> None:
    """SigLIP's own tokenizer, which OpenCLIP takes by the model's name, comes from the hub; here
    CLIP's words.
    """
    configuration = tmp_path / "tiny-sigmoid.json"
    text = {**TEXT, "width": WIDTH, "no_causal_mask": True, "proj_bias": True, "pool_type": "last"}
    vision = {"timm_model_name": "tiny_siglip", "timm_model_pretrained": False, "timm_pool": "map",
        "timm_proj": "none",
              "image_size": SIDE}  # fmt: skip
    content = {
        "embed_dim": WIDTH,
        "init_logit_bias": -10,
        "custom_text": True,
        "vision_cfg": vision,
        "text_cfg": text,
    }
    configuration.write_text(json.dumps(content))
    open_clip.add_model_config(configuration)
    net = open_clip.create_model("tiny-sigmoid").eval()
    path = saved(net.state_dict(), tmp_path / "siglip.bin")
    head, body = nn.Linear(WIDTH, 3), ours(path, "tiny_siglip", unit_length=True)
    ZeroShotHead(model=str(configuration)).set(head, weights(path), CLASSES, True)
    tokens = open_clip.SimpleTokenizer(context_length=77)(
        [f"a photo of a {c.replace('_', ' ')}." for c in CLASSES]
    )
    with torch.no_grad():
        torch.testing.assert_close(
            head(body(images())), net.get_logits(images(), tokens)[0], rtol=1e-5, atol=1e-5
        )
    assert head.bias.tolist() == [-10.0] * 3


def test_a_zero_head_and_a_random_one() -> None:
    head = nn.Linear(4, 3)
    before = head.weight.clone()
    RandomHead().set(head, weights(Path("no")), CLASSES, False)
    assert torch.equal(head.weight, before)
    ZeroHead().set(head, weights(Path("no")), CLASSES, False)
    assert head.weight.abs().sum() == 0 == head.bias.abs().sum()
    without = nn.Linear(4, 3, bias=False)
    ZeroHead().set(without, weights(Path("no")), CLASSES, False)
    assert without.weight.abs().sum() == 0


@pytest.mark.parametrize(
    ("options", "head", "unit_length", "says"),
    [
        ({}, nn.Linear(SHARED, 3), True, "init=file"),
        ({"model": "no-such"}, nn.Linear(SHARED, 3), True, "head.model=no-such"),
        ({"model": "ViT-B-16"}, nn.Linear(SHARED, 3), True, "encoder of ViT-B-16"),
        ({"model": "here.json"}, nn.Linear(SHARED, 3), True, "head.model=here.json"),
        ({"model": "TINY"}, nn.Linear(SHARED, 3), False, "length one"),
        ({"model": "TINY"}, nn.Linear(512, 3), True, "backbone.projection=24"),
        ({"model": "TINY"}, nn.Sequential(nn.Linear(SHARED, 3)), True, "one linear layer"),
        (
            {"model": "TINY", "class_names": {"cat": "kitten"}},
            nn.Linear(SHARED, 3),
            True,
            "cat, which",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_line(
    options: dict[str, Any],
    head: nn.Module,
    unit_length: bool,
    says: str,
    tiny: tuple[Any, Path, Path],
) -> None:
    _, path, model = tiny
    own = {key: str(model) if value == "TINY" else value for key, value in options.items()}
    with pytest.raises((ConfigError, WeightsError)) as refused:
        ZeroShotHead(**own).set(head, weights(path), CLASSES, unit_length)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_without_open_clip_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(ConfigError, match=r"pip install 'dgbench\[clip\]'"):
        ZeroShotHead(model="ViT-B-16").check(nn.Linear(SHARED, 3), weights(Path("no")), True)
