"""DDG against the authors' networks and losses, in float64, for both kinds of images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from dgbench.algorithms import ddg
from dgbench.batches import EnvBatch
from dgbench.objectives.pairing import Half
from dgbench.training.modules.factory import Port, algorithm
from dgbench.training.optimizers import UpdateRule

ROWS, K = 4, 3
Y_A, Y_B = torch.tensor([0, 1, 1, 0]), torch.tensor([1, 2, 2, 1])
COINS = (0.9, 0.2, 0.7, 0.3)
PHASES = {"a": 0.0, "b": 1.1, "a+": 0.3, "b+": 1.5}


@dataclass(frozen=True)
class Case:
    """One kind of images: what each of four steps of stage 0 and of three steps of stage 1 reports.

    ``sums`` holds the sum and the sum of squares of all parameters of a network after the last step
    of a stage.
    """

    image: tuple[int, int, int]
    n_features: int
    margin: float
    discriminator: tuple[float, ...]
    adversarial: tuple[float, ...]
    reconstruction: tuple[float, ...]
    cycle: tuple[float, ...]
    risk: tuple[float, ...]
    swapped_risk: tuple[float, ...]
    mu: tuple[float, ...]
    penalty: tuple[float, ...]
    sums: dict[str, tuple[float, float]]


CASES = {
    "large": Case(
        (3, 32, 32), 6, 0.25,
        discriminator=(2998.8007819580, 2193.8687083946, 1583.2806256405, 1119.7892370084),
        adversarial=(1969.8878213199, 1399.9409349694, 971.8085176644, 933.9682296025),
        reconstruction=(1.7694460891, 1.7857249661, 1.7932281062, 1.8278485410),
        cycle=(0.0, 0.0, 1.7899676290, 1.8134088198),
        risk=(4.7000644607, 4.6791074229, 4.6590340457),
        swapped_risk=(2.2753807243, 2.2760952982, 2.2765912755),
        mu=(0.5063368622, 0.5126123704, 0.5188525505),
        penalty=(1.2694458238, 1.2565581117, 1.2493748487),
        sums={
            "0 translator": (-10758.6537249, 18753.0631196),
            "0 image_discriminator": (-1344.3706243304, 2320.7891972174),
            "1 translator": (-10678.1122768, 18626.1190254),
            "1 featurizer": (-5.9955790945, 7.5763231819),
            "1 classifier": (-10.1254709711, 5.4390340792),
        },
    ),
    "digits": Case(
        (1, 28, 28), 128, 0.025,
        discriminator=(15.4902797592, 15.3010648987, 15.1127215955, 14.9267413923),
        adversarial=(4.8411776596, 4.7344568972, 4.6285962701, 4.6213059186),
        reconstruction=(1.2290411577, 1.2121445973, 1.1969808572, 1.1823068954),
        cycle=(0.0, 0.0, 1.1966328786, 1.1827249770),
        risk=(8.9707414217, 8.6406267922, 8.3149313981),
        swapped_risk=(5.1412758701, 5.0832389987, 5.0255977707),
        mu=(0.5058917210, 0.5116931268, 0.5174148854),
        penalty=(1.1790770447, 1.1619206413, 1.1468031221),
        sums={
            "0 translator": (-569.4478875661, 774.7188602180),
            "0 image_discriminator": (-159.9465621059, 211.0034593058),
            "1 translator": (-569.8686788602, 775.5334877042),
            "1 featurizer": (-19.9702372944, 139.7445723269),
            "1 classifier": (-2.8529027862, 3.7012754763),
        },
    ),
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("double")


class _Featurizer(nn.Module):
    """The mean over pixels of tanh of a convolution."""

    def __init__(self, channels: int, n_features: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, n_features, 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, m)."""
        z: Tensor = self.conv(x).tanh().mean((2, 3))
        return z


def _images(image: tuple[int, int, int], phase: float) -> Tensor:
    """0.5 + 0.5 sin(1.3 i + 0.9 c + 0.31 p + 0.17 q + 0.05 p q + phase) of row i, channel c and
    pixel p, q.
    """
    i, c, p, q = torch.meshgrid(*(torch.arange(n).double() for n in (ROWS, *image)), indexing="ij")
    return 0.5 + 0.5 * torch.sin(1.3 * i + 0.9 * c + 0.31 * p + 0.17 * q + 0.05 * p * q + phase)


def _fill(module: nn.Module) -> None:
    """s (((t^2 + 7 t + 3) mod 1009) / 504 - 1), t counting the entries of a tensor; s = sqrt(3 /
    fan in) or 0.5.
    """
    for parameter in module.parameters():
        t = torch.arange(parameter.numel())
        values = ((t**2 + 7 * t + 3) % 1009) / 504 - 1
        scale = 0.5 if parameter.dim() == 1 else math.sqrt(3 / parameter[0].numel())
        parameter.data = scale * values.view(parameter.shape)


def _port(case: Case, **hparams: float) -> Port:
    networks = {
        "featurizer": _Featurizer(case.image[0], case.n_features),
        "classifier": nn.Linear(case.n_features, K),
    }
    values = {"margin": case.margin, "lr": 1e-3, "weight_decay": 0.0, **hparams}
    port = algorithm(
        "ddg",
        networks,
        K,
        1,
        values,
        n_features=case.n_features,
        image=case.image,
        rule=UpdateRule(steps=6),
    )
    _fill(port.networks)
    port.module.collects = True
    return port


def _step(
    port: Port, case: Case, step: int, coin: float, patch: pytest.MonkeyPatch
) -> dict[str, float]:
    """What a step logs. Its positives are images of their own, which no minibatch holds."""
    images = {name: _images(case.image, phase + 0.4 * step) for name, phase in PHASES.items()}
    given = Half(images["a"], Y_A, images["a+"]), Half(images["b"], Y_B, images["b+"])
    patch.setattr(ddg, "halves", lambda *_: given)
    batch = EnvBatch(torch.cat([images["a"], images["b"]]), torch.cat([Y_A, Y_B]), (2 * ROWS,))
    port.step(batch, {"positive": torch.zeros(2, ROWS), "coin": coin})
    return {name: float(value[0]) for _, name, value in port.module.take_values()}


def _sums(port: Port, network: str) -> tuple[float, float]:
    values = torch.cat(
        [parameter.detach().flatten() for parameter in port.networks[network].parameters()]
    )
    return float(values.sum()), float(values.square().sum())


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_translator_first(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    port = _port(case, translator_steps=5)
    for k, coin in enumerate(COINS):
        logs = _step(port, case, k, coin, monkeypatch)
        assert logs["discriminator_loss"] == pytest.approx(
            case.discriminator[k], rel=2e-12, abs=2e-9
        )
        assert logs["adversarial"] == pytest.approx(case.adversarial[k], rel=2e-12, abs=2e-9)
        assert logs["reconstruction"] == pytest.approx(case.reconstruction[k], rel=0, abs=2e-9)
        assert (logs["cycle_weight"] > 0) * logs["cycle"] == pytest.approx(
            case.cycle[k], rel=0, abs=2e-9
        )
        assert logs["cycle_weight"] == pytest.approx((0, 0, 0.01, 0.015)[k], rel=0, abs=1e-12)
    for name in ("translator", "image_discriminator"):
        assert _sums(port, name) == pytest.approx(case.sums[f"0 {name}"], rel=1e-10, abs=2e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_classifier_then(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    port = _port(case, translator_steps=0)
    for k in range(3):
        logs = _step(port, case, k, 0.0, monkeypatch)
        assert logs["risk"] == pytest.approx(case.risk[k], rel=0, abs=2e-9)
        assert logs["swapped_risk"] == pytest.approx(case.swapped_risk[k], rel=0, abs=2e-9)
        assert logs["penalty_weight"] == pytest.approx(case.mu[k], rel=0, abs=2e-9)
        assert logs["penalty"] == pytest.approx(case.penalty[k], rel=0, abs=2e-9)
    for name in ("translator", "featurizer", "classifier"):
        assert _sums(port, name) == pytest.approx(case.sums[f"1 {name}"], rel=1e-10, abs=2e-8)
