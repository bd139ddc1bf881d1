"""Networks on vectors: what they compute, and that a held-out environment has no part in their
normalization.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dgbench.errors import ConfigError
from dgbench.networks.featurizer import Featurizer
from dgbench.networks.small import FeatureMLP, LinearFeaturizer, MLPFeaturizer

pytestmark = pytest.mark.usefixtures("double")
X = torch.tensor([[0.0, 100.0], [2.0, 300.0], [4.0, 200.0], [6.0, 200.0]], dtype=torch.float64)


def test_a_linear_network_sees_normalized_features() -> None:
    """Mean 3 and biased variance 5 of the first feature, 200 and 5000 of the second."""
    featurizer = LinearFeaturizer((2,))
    assert featurizer.n_features == 2 and not list(featurizer.parameters())
    expected = (
        torch.tensor([[-3.0, -100.0], [-1.0, 100.0], [1.0, 0.0], [3.0, 0.0]])
        / torch.tensor([5.0, 5000.0]).sqrt()
    )
    torch.testing.assert_close(featurizer(X), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(LinearFeaturizer((2,), normalize="none")(X), X)


def test_evaluation_uses_the_statistics_of_training_alone() -> None:
    """After one minibatch the running mean is 0.1 of its mean, the variance 0.9 + 0.1 of its
    unbiased one.
    """
    featurizer = LinearFeaturizer((2,))
    featurizer(X)
    featurizer.eval()
    other = torch.tensor([[50.0, -7.0]])
    mean, variance = 0.1 * torch.tensor([3.0, 200.0]), 0.9 + 0.1 * torch.tensor([20 / 3, 20000 / 3])
    expected = (other - mean) / (variance + 1e-5).sqrt()
    torch.testing.assert_close(featurizer(other), expected)
    torch.testing.assert_close(
        featurizer(torch.cat([other, 1000 * other]))[:1], expected, msg="nor by one another"
    )


@pytest.mark.parametrize("normalize", ["batch", "none"])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_perceptron_is_linear_layers_and_relus(depth: int, normalize: str) -> None:
    featurizer = FeatureMLP((2,), width=5, depth=depth, normalize=normalize)
    h = LinearFeaturizer((2,), normalize=normalize)(X)
    for layer in featurizer.layers:
        h = (h @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(featurizer(X), h)
    assert featurizer.n_features == 5 and len(list(featurizer.parameters())) == 2 * depth


@pytest.mark.parametrize("kind", [FeatureMLP, LinearFeaturizer, MLPFeaturizer])
def test_stages_and_maps(kind: Callable[..., Featurizer]) -> None:
    featurizer = kind((2,))
    featurizer(X)  # statistics that are not 0 and 1
    featurizer.eval()
    z, maps = featurizer.with_maps(X)
    torch.testing.assert_close(z, featurizer(X))
    stages = featurizer.stages()
    assert len(maps) == len(stages) + 1
    for k in range(len(stages) + 1):
        torch.testing.assert_close(featurizer.forward_from(featurizer.forward_until(X, k), k), z)
        if k:
            torch.testing.assert_close(maps[k], featurizer.forward_until(X, k))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"width": 0}, "backbone.width=0"),
        ({"depth": 1.5}, "backbone.depth=1.5"),
        ({"normalize": "layer"}, "backbone.normalize=layer"),
    ],
)
def test_wrong_values(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FeatureMLP((2,), **changes)  # type: ignore[arg-type]
