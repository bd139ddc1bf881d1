"""Methods that recent tables compare with, against numbers of their authors' code on the toy
problem, in float64.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dgbench.networks.build import PerChannel
from tests.golden import toy as problem
from tests.golden.toy import M, Toy

TOLERANCE = 2e-8
RISK = 2.36958293  # at the start

# name, hyperparameters; of each call: what it logs, dW[0,0], dW[2,3], dA[0,0], dA[2,3], then c(A),
# c(W), c(b)
CLIMBS: dict[str, tuple[str, dict[str, Any], list[tuple[dict[str, float], tuple[float, ...]]]]] = {
    "sam": (
        "sam", {"rho": 0.05},
        [
            (
                {"loss": 2.46448206, "cross_entropy": RISK},
                (0.39222296, 0.16826248, 0.48329884, -0.01525399, 4.07489084, 0.01919194,
                    -0.15940272),
            ),
            (
                {"loss": 2.37930864},
                (0.37929761, 0.17805651, 0.47452251, -0.03159702, 3.96794988, 0.04544662,
                    -0.15898559),
            ),
            (
                {"loss": 2.27535837},
                (0.36130620, 0.18025231, 0.45827932, -0.04560196, 3.86057007, 0.07011851,
                    -0.15842920),
            ),
        ],
    ),
    "sam .5": (
        "sam", {"rho": 0.5},
        [
            (
                {"loss": 3.44092624, "sharpness": 3.44092624 - RISK},
                (0.55766104, 0.24095201, 0.59172857, -0.02762998, 4.07489084, 0.01919194,
                    -0.15940272),
            ),
        ],
    ),
    "sagm": (
        "sagm", {"rho": 0.05, "alpha": 0.001},
        [
            ({"loss": RISK},
                (0.38234764, 0.16416208, 0.47598533, -0.01461177, 4.07489084, 0.01919194,
                    -0.15940272)),
            (
                {"loss": 2.28723954},
                (0.36949842, 0.17337922, 0.46710026, -0.03077166, 3.96794835, 0.04540266,
                    -0.15898274),
            ),
            (
                {"loss": 2.18698199},
                (0.35152526, 0.17530737, 0.45076311, -0.04474489, 3.86057239, 0.06987334,
                    -0.15841790),
            ),
        ],
    ),
    "sagm .5": (
        "sagm", {"rho": 0.5, "alpha": 0.1},
        [({"loss": RISK},
                (0.43173804, 0.18546853, 0.50966656, -0.01809883, 4.07489084, 0.01919194,
                    -0.15940272))],
    ),
    "gsam": (
        "sam", {"rho": 0.5, "alpha": 0.4, "sharpness": "gsam"},
        [
            ({"loss": RISK},
                (0.57976036, 0.25085450, 0.58589374, -0.03051436, 4.07489084, 0.01919195,
                    -0.15940272)),
            (
                {"loss": 2.28723954},
                (0.56461775, 0.27124512, 0.57767591, -0.04853242, 3.96798730, 0.04650299,
                    -0.15902156),
            ),
            (
                {"loss": 2.18701795},
                (0.54733158, 0.27736260, 0.56303789, -0.05859666, 3.86053215, 0.07946933,
                    -0.15856489),
            ),
        ],
    ),
    "disam": (
        "disam", {"rho": 0.5, "lambda": 5.0},
        [
            (
                {"loss": 3.03554127, "cross_entropy": RISK, "variance": 0.06418727},
                (0.51013881, 0.12655725, 0.53551853, 0.02714230, 4.07215610, 0.01919194,
                    -0.15940272),
            ),
            (
                {"loss": 3.23966468, "cross_entropy": 2.28784621, "variance": 0.00991003},
                (0.53735243, 0.20222673, 0.57725916, -0.03188022, 3.96727365, 0.04728904,
                    -0.15905844),
            ),
            (
                {"loss": 3.14930353, "cross_entropy": 2.18929677, "variance": 0.00542109},
                (0.50704838, 0.28664943, 0.54879926, -0.07728354, 3.86205324, 0.07486051,
                    -0.15868802),
            ),
        ],
    ),
}  # fmt: skip


def _close(found: Any, expected: Any) -> None:
    assert found == pytest.approx(expected, rel=0, abs=TOLERANCE)


@pytest.mark.parametrize("case", CLIMBS)
def test_sharpness(case: str) -> None:
    name, hparams, calls = CLIMBS[case]
    toy = Toy(name, hparams)
    for logged, numbers in calls:
        toy.step()
        _close({key: toy.logs[key] for key in logged}, logged)
        _close((*toy.gradients(), *toy.checksums()), numbers)


class _Maps(nn.Linear):
    """z = A x; maps are z as 5 channels of one pixel,
    and one channel with the first four squares.
    """

    def forward(self, x: Tensor, maps: bool = False) -> Any:
        z = super().forward(x)
        return (z, [z[..., None, None], z[:, :4].square().view(-1, 1, 2, 2)]) if maps else z


def test_miro() -> None:
    def body() -> _Maps:
        layer = _Maps(M, M, bias=False, dtype=torch.float64)
        layer.weight.data = torch.eye(M, dtype=torch.float64)
        return layer

    initial = math.log(math.expm1(0.1 - 1e-5))
    variances = PerChannel([(M, 1, 1), (1, 2, 2)], initial).double()
    for value in variances():
        value.data.fill_(initial)  # in double precision
    networks = {"featurizer": body(), "initial": body(), "variances": variances}
    toy = Toy("miro", {"ld": 0.1, "lr_mult": 10.0}, networks)
    for numbers in (
        (2.13932442, -2.30258509, 2.90698295, -1.27093881,
         0.37318173, 0.16035817, 0.46918992, -0.01401615, 4.07489084, 0.01919194, -0.15940272),
        (2.04834402, -2.38895514, 3.03055924, -1.32495811,
         0.36038249, 0.16902959, 0.44244046, -0.02825079, 3.96800145, 0.04535542, -0.15897979),
        (1.94144172, -2.45602900, 3.15405698, -1.37890140,
         0.34242661, 0.17069322, 0.40511690, -0.04118895, 3.86072352, 0.06961233, -0.15840618),
    ):  # fmt: skip
        toy.step()
        learned = [toy.c(f"variances.values.{i}") for i in (0, 1)]
        _close(
            (toy.loss, toy.logs["penalty"], *learned, *toy.gradients(), *toy.checksums()), numbers
        )
    _close(toy.c("initial.weight"), problem.checksum(torch.eye(M)))
