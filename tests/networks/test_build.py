"""Networks from one seed: the same for the same seed, whatever else the process draws."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
import torch
from torch import nn

from dgbench.containers import Networks
from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.networks.build import build_networks
from dgbench.networks.small import MNISTCNN, MLPFeaturizer

SIZES = Sizes(n_features=0, n_classes=2, n_envs=3, image=(2, 14, 14))


def classifier(sizes: Sizes) -> Mapping[str, NetworkSpec]:
    return {"classifier": LinearSpec(sizes.n_features, sizes.n_classes)}


def with_discriminator(sizes: Sizes) -> Mapping[str, NetworkSpec]:
    return {**classifier(sizes), "discriminator": LinearSpec(sizes.n_features, sizes.n_envs)}


def build(
    seed: int = 0, body: type[nn.Module] = MLPFeaturizer, extra: int = 0, needed=classifier
) -> Networks:  # type: ignore[no-untyped-def]
    return build_networks(partial(body, width=8), SIZES, needed, extra, seed)[0]


def equal(first: Networks, second: Networks) -> bool:
    pairs = zip(first.params().items(), second.params().items(), strict=True)
    return all(name == other and torch.equal(a, b) for (name, a), (other, b) in pairs)


def test_the_featurizer_decides_the_number_of_features() -> None:
    """8 units for the MLP; twice the width for the CNN: heads are (2, 8) and (2, 16)."""
    networks, sizes = build_networks(partial(MLPFeaturizer, width=8), SIZES, classifier, 0, 0)
    assert (sizes.n_features, sizes.n_classes, sizes.n_envs, sizes.image) == (8, 2, 3, (2, 14, 14))
    assert networks["classifier"].weight.shape == (2, 8)
    assert build(body=MNISTCNN)["classifier"].weight.shape == (2, 16)


@pytest.mark.parametrize("body", [MLPFeaturizer, MNISTCNN])
def test_same_seed_same_weights(body: type[nn.Module]) -> None:
    """0 is a seed like any other."""
    first = build(0, body)
    torch.manual_seed(99)
    assert equal(first, build(0, body))
    assert not equal(first, build(1, body))


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    build()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_featurizer_comes_first_then_the_heads_in_order() -> None:
    """So an algorithm that asks for one more network starts from ERM's featurizer and
    classifier.
    """
    plain, more = build(), build(needed=with_discriminator)
    assert list(more) == ["featurizer", "classifier", "discriminator"]
    assert all(torch.equal(value, more.params()[name]) for name, value in plain.params().items())
    assert not torch.equal(more["discriminator"].weight[:2], more["classifier"].weight)


@pytest.mark.parametrize("body", [MLPFeaturizer, MNISTCNN])
def test_extra_channels_reach_the_featurizer(body: type[nn.Module]) -> None:
    networks = build(body=body, extra=1)
    assert networks.logits(torch.zeros(4, 3, 14, 14)).shape == (4, 2)


def test_a_factory_that_fails_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()

    def broken(image: tuple[int, int, int]) -> nn.Module:
        torch.rand(1)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        build_networks(broken, SIZES, classifier, 0, 0)
    assert torch.equal(torch.get_rng_state(), before)
