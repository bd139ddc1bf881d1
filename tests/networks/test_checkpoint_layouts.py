"""Every layout of ``checkpoint_layouts`` arrives whole, number for number, or is refused in one line that is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dgbench.errors import DgbenchError
from dgbench.networks.timm_networks import ResNet, VisionTransformer
from dgbench.networks.weights import PretrainedWeights
from tests.networks.checkpoint_layouts import LAYOUTS, SIDE, VIT, Layout, encoder, network

OLD = ("*.num_batches_tracked",)


def featurizer(arch: str) -> Any:
    make: Any = VisionTransformer if arch == VIT else ResNet
    return make((3, SIDE, SIDE), arch).eval()


def loaded(layout: Layout, folder: Path) -> tuple[PretrainedWeights, Any]:
    path = folder / layout.file
    layout.write(network(layout.arch), path)
    keys: dict[str, Any] = {"allow_missing": OLD, **layout.keys}
    weights = PretrainedWeights(arch=layout.arch, name="file", path=str(path), **keys)
    ours = featurizer(layout.arch)
    weights.check(featurizer(layout.arch))
    weights.load(ours)
    return weights, ours


def arrived(layout: Layout, folder: Path) -> bool:
    _, ours = loaded(layout, folder)
    half = "half precision" in LAYOUTS and layout is LAYOUTS["half precision"]
    state = ours.body.state_dict()
    want = encoder(network(layout.arch))
    assert len(want) > 50 and state.keys() == want.keys()
    return all(torch.equal(state[key], want[key].half().float() if half else want[key]) for key in want)


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if not layout.says])
def test_it_arrives_whole(name: str, tmp_path: Path) -> None:
    assert arrived(LAYOUTS[name], tmp_path)


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.says])
def test_it_is_refused_in_one_line_that_is_true(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    with pytest.raises(DgbenchError) as refused:
        loaded(layout, tmp_path)
    text = str(refused.value)
    assert "\n" not in text and len(text) < 600
    assert all(word in text for word in layout.says), text
