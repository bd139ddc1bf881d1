"""Every layout of ``checkpoint_layouts`` arrives whole, number for number, or is refused in one
line that is true.
"""

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
    return all(
        torch.equal(state[key], want[key].half().float() if half else want[key]) for key in want
    )


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


def test_what_arrived_is_counted_and_the_part_that_was_typed_is_part_of_the_identity(
    tmp_path: Path,
) -> None:
    weights, _ = loaded(LAYOUTS["MoCo v1 and v2"], tmp_path)
    assert weights.arrival is not None
    record = weights.arrival.to_json()
    assert record["place"] == "state_dict, module.encoder_q.*"
    assert record["tensors"] == [90, 90] and record["numbers"][0] == record["numbers"][1] > 100_000
    assert record["left_out"] == 90 + 2 + 2  # keys and their head, the queue and its pointer
    plain = weights.identity
    typed = PretrainedWeights(
        arch=weights.arch, name="file", path=str(weights.file), prefix="module.encoder_k."
    )
    assert typed.identity == f"{plain}:prefix=module.encoder_k."
    assert (
        PretrainedWeights(arch=weights.arch, name="file", path=str(weights.file)).identity == plain
    )
    typed.load(featurizer(weights.arch or ""))
    assert typed.arrival is not None and typed.arrival.place == "state_dict, module.encoder_k.*"


def test_allowed_gaps_are_counted(tmp_path: Path) -> None:
    net = network("test_resnet")
    path = tmp_path / "part.pth"
    torch.save(
        {name: value for name, value in net.state_dict().items() if "layer1" not in name}, path
    )
    weights = PretrainedWeights(
        arch="test_resnet", name="file", path=str(path), allow_missing=("layer1.*",)
    )
    weights.load(featurizer("test_resnet"))
    assert weights.arrival is not None
    assert (
        weights.arrival.tensors
        == sum("layer1" not in name for name in encoder(net))
        < weights.arrival.of_tensors
    )
    assert 2 * weights.arrival.numbers > weights.arrival.of_numbers > weights.arrival.numbers
