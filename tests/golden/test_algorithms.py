"""Every algorithm against numbers that its reference computes on one toy problem, in float64.

The problem: 3 environments of 4 rows, 5 inputs, 3 classes, a linear featurizer A (the identity) and
a linear classifier W; random draws are replaced by fixed ones. Numbers: running the references,
DomainBed unless the name says OoD-Bench.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dgbench.algorithms.and_mask import ANDMask
from dgbench.algorithms.cdann import CDANN
from dgbench.algorithms.coral import CORAL
from dgbench.algorithms.dann import DANN
from dgbench.algorithms.eqrm import EQRM
from dgbench.algorithms.erdg import ERDG
from dgbench.algorithms.erm import ERM
from dgbench.algorithms.fishr import Fishr
from dgbench.algorithms.group_dro import GroupDRO
from dgbench.algorithms.iga import IGA
from dgbench.algorithms.irm import IRM
from dgbench.algorithms.mixup import Mixup
from dgbench.algorithms.mldg import MLDG
from dgbench.algorithms.mmd import MMD
from dgbench.algorithms.mtl import MTL
from dgbench.algorithms.rsc import RSC
from dgbench.algorithms.sag_net import SagNet
from dgbench.algorithms.sd import SD
from dgbench.algorithms.vrex import VREx
from dgbench.batches import EnvBatch
from dgbench.containers import Networks
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_head
from dgbench.objectives.contract import Algorithm, Update
from dgbench.objectives.step import Outcome
from dgbench.training.modules import SingleRun

N, B, M, K = 3, 4, 5, 3
SIZES = Sizes(n_features=M, n_classes=K, n_envs=N, image=(1, 1, M))
TOLERANCE = 1e-7
REVERSED_ROWS = torch.arange(N * B).flip(0)
NOISE = {
    "permutation": torch.tensor([2, 1, 0]),
    "weight": torch.full((N,), 0.3, dtype=torch.float64),
    "summary": torch.full((N * B, M), 0.5, dtype=torch.float64),
    "mix": torch.full((N * B,), 0.25, dtype=torch.float64),
}


pytestmark = pytest.mark.usefixtures("double")


def _batch() -> EnvBatch:
    x = [
        [math.sin(0.7 * d + 1.3 * i + 0.5 * j + 0.1 * i * j) for j in range(M)]
        for d in range(N)
        for i in range(B)
    ]
    return EnvBatch(
        torch.tensor(x),
        torch.tensor([(d + i * i) % 3 for d in range(N) for i in range(B)]),
        (B,) * N,
    )


def _fill(module: nn.Module) -> None:
    """0.5 cos(0.3 + 0.7 t) row by row, t counting from 0 in every tensor."""
    for parameter in module.parameters():
        t = torch.arange(parameter.numel()).view(parameter.shape)
        parameter.data = 0.5 * torch.cos(0.3 + 0.7 * t)


def _algorithm(kind: type[Algorithm], hparams: dict[str, Any]) -> SingleRun:
    hparams = {"lr": 1e-3, "weight_decay": 0.0, **hparams}
    featurizer = nn.Linear(M, M, bias=False)
    featurizer.weight.data = torch.eye(M)
    heads = {name: build_head(spec) for name, spec in kind.networks_needed(SIZES, hparams).items()}
    for head in heads.values():
        _fill(head)
    w = torch.tensor([[math.cos(k + 0.9 * j) for j in range(M)] for k in range(K)])
    classifier = heads["classifier"]
    assert isinstance(classifier, nn.Linear)
    classifier.weight.data = torch.cat([w, w / 2], 1) if classifier.in_features == 2 * M else w
    classifier.bias.data = torch.tensor([0.1, -0.2, 0.3])
    if "style" in heads:
        for head, source in zip(heads["style"].parameters(), classifier.parameters(), strict=True):
            head.data = -source.data
    run = SingleRun(kind(SIZES, hparams), Networks({"featurizer": featurizer, **heads}))
    run.configure_optimizers()
    return run


class _Given:
    """Fixed numbers in the place of drawn ones."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        self.values = values

    def at(self, *_: Any) -> dict[str, Tensor]:
        return self.values


def _run(
    run: SingleRun, update: Update, step: int = 0, noise: dict[str, Tensor] | None = None
) -> Outcome:
    """One update as training runs it: new state kept, gradients left on the parameters of its
    groups.
    """
    outcomes = []

    def kept(s: Any) -> Outcome:
        outcomes.append(update.objective(s))
        return outcomes[-1]

    for parameter in run.networks.parameters():
        parameter.grad = None
    run.draws = _Given(noise or NOISE)  # type: ignore[assignment]
    run._differentiate(
        Update(kept, update.groups), update.groups, step, torch.tensor(step), _batch()
    )
    return outcomes[0]


def _gradient(algorithm: SingleRun, name: str, *place: int) -> float:
    gradient = algorithm.networks.params()[name].grad
    assert gradient is not None
    return float(gradient[place])


def _four_gradients(algorithm: SingleRun) -> list[float]:
    """dW[0,0], dW[2,3], dA[0,0], dA[2,3]."""
    return [
        _gradient(algorithm, f"{name}.weight", *place)
        for name in ("classifier", "featurizer")
        for place in ((0, 0), (2, 3))
    ]


def _close(found: float | Tensor, expected: float) -> None:
    assert float(torch.as_tensor(found).detach()) == pytest.approx(expected, rel=0, abs=TOLERANCE)


@dataclass(frozen=True)
class Case:
    """Values reported by the first call, and the gradients it leaves in dW[0,0], dW[2,3], dA[0,0],
    dA[2,3].
    """

    kind: type[Algorithm]
    gradients: tuple[float, float, float, float]
    hparams: dict[str, Any] = field(default_factory=dict)
    loss: float | None = None
    logs: dict[str, float] = field(default_factory=dict)


ERM_GRADIENTS = (0.37318173, 0.16035817, 0.46918992, -0.01401615)
ERM_W = ERM_GRADIENTS[:2]
MLDG_SPLIT = {"mldg_episodes": "split", "mldg_beta": 1.0, "lr": 0.01}
DISCRIMINATOR = {
    "lr_g": 1e-3, "lr_d": 1e-3, "weight_decay_g": 0.0, "weight_decay_d": 0.0, "beta1": 0.5,
    "lambda": 1.0, "d_steps_per_g_step": 1, "grad_penalty": 0.5, "mlp_width": 4, "mlp_depth": 3,
    "mlp_dropout": 0.0, "dann_gp": "ce",
}  # fmt: skip
ENTROPY = {
    "lr_d": 0.0,
    "lr_c": 0.0,
    "lr_cp": 0.0,
    "lr": 0.0,
    "lbd_c": 0.05,
    "lbd_cp": 0.01,
    "lbd_d": 0.5,
}
FISHR = {"lambda": 1000.0, "penalty_anneal_iters": 0, "ema": 0.95}

CASES = {
    "erm": Case(ERM, ERM_GRADIENTS, loss=2.36958293),
    "irm": Case(
        IRM, (74.81937716, 103.64552145, 55.53266021, -18.73097039),
        {"irm_lambda": 100.0, "irm_penalty_anneal_iters": 0}, 92.77932454, {"penalty": 0.90409742},
    ),
    "vrex": Case(
        VREx, (0.34508320, 1.32576284, 0.36749425, -0.33511200),
        {"vrex_lambda": 10.0, "vrex_penalty_anneal_iters": 0}, 3.01145564, {"penalty": 0.06418727},
    ),
    "group_dro": Case(
        GroupDRO, (0.37223291, 0.18871357, 0.46707575, -0.02121878),
        {"groupdro_eta": 0.5, "groupdro_divide_by_n": False}, 2.40056044,
    ),
    "mixup": Case(
        Mixup, (0.27224214, 0.11477254, 0.36258257, -0.01321531),
        {"mixup_alpha": 0.2, "mixup_inner_permutation": False}, 1.96666814,
    ),
    "mldg-split-2": Case(
        MLDG, (0.21351038, 0.10792313, 0.34665605, 0.05737255), {**MLDG_SPLIT, "n_meta_test": 2},
        1.53105830
    ),
    "mldg-split-1": Case(
        MLDG, (0.51583714, 0.20989824, 0.57990003, -0.08435908), {**MLDG_SPLIT, "n_meta_test": 1},
        3.14490194
    ),
    "mldg-pairs": Case(
        MLDG, (0.72701871, 0.31295147, 0.92289449, -0.02794071),
        {"mldg_episodes": "pairs", "n_meta_test": 2, "mldg_beta": 1.0, "lr": 0.01}, 4.66166349,
    ),
    "coral": Case(CORAL, (*ERM_W, 0.49419720, -0.01192169), {"mmd_gamma": 1.0},
        logs={"penalty": 0.01605202}),
    "mmd": Case(MMD, (*ERM_W, 0.57041017, 0.06269394), {"mmd_gamma": 1.0},
        logs={"penalty": 1.66413214}),
    "dann": Case(DANN, (*ERM_W, 0.45545020, -0.00859670), DISCRIMINATOR, 1.15107719),
    "dann-ood_bench": Case(
        DANN, (*ERM_W, 0.45554885, -0.00858153), {**DISCRIMINATOR, "dann_gp": "softmax_column"},
        1.17036638
    ),
    "cdann": Case(CDANN, (*ERM_W, 0.46111376, -0.01139856), DISCRIMINATOR, 1.13845089),
    "mtl": Case(
        MTL, (1.16048976, 0.47207198, 1.43597647, -0.05938745),
        {"mtl_ema": 0.99, "variant": "reference"}, 7.21747159
    ),
    "rsc": Case(
        RSC, (0.33922473, 0.17483338, 0.44857199, -0.01180080),
        {"rsc_f_drop_factor": 1 / 3, "rsc_b_drop_factor": 1 / 3}, 2.45880545,
    ),
    "sd": Case(
        SD, (0.45741371, 0.15689614, 0.58794040, 0.06515916), {"sd_reg": 0.1},
        logs={"penalty": 2.87045051}
    ),
    "and_mask-1": Case(ANDMask, (0.62196954, 0, 0.68998516, 0), {"tau": 1.0, "forward": "separate"},
        2.36958293),
    "and_mask-.3": Case(ANDMask, ERM_GRADIENTS, {"tau": 0.3, "forward": "separate"}, 2.36958293),
    "iga": Case(
        IGA, (561.64674431, 1410.63291756, 48.72890028, 475.33422005),
        {"penalty": 1000.0, "iga_graph": True, "forward": "separate"}, logs={"penalty": 4.87932449},
    ),
    "iga-ood_bench": Case(
        IGA, ERM_GRADIENTS, {"penalty": 1000.0, "iga_graph": False, "forward": "together"},
        logs={"penalty": 4.87932449},
    ),
    "fishr": Case(
        Fishr, (1.40323617, 2.45693404, 6.02754115, 1.85499314), FISHR, 12.92140549,
        {"penalty": 0.01055182}
    ),
    "eqrm": Case(
        EQRM, (0.31265978, 0.44799340, 0.51687942, 0.02999782),
        {"eqrm_quantile": 0.75, "eqrm_burnin_iters": 0, "eqrm_lr": 1e-6}, 2.63443998,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_first_call(name: str) -> None:
    case = CASES[name]
    algorithm = _algorithm(case.kind, case.hparams)
    (update,) = algorithm.algorithm.updates(0)
    out = _run(algorithm, update)
    for value, expected in zip(_four_gradients(algorithm), case.gradients, strict=True):
        _close(value, expected)
    if case.loss is not None:
        _close(out.loss, case.loss)
    for key, expected in case.logs.items():
        _close(out.logs[key], expected)


def test_risks_of_the_toy_problem() -> None:
    algorithm = _algorithm(GroupDRO, CASES["group_dro"].hparams)
    batch = _batch()
    each = nn.functional.cross_entropy(
        algorithm.networks.logits(batch.x), batch.y, reduction="none"
    )
    for value, expected in zip(
        batch.mean_per_env(each), (2.46022845, 2.62445752, 2.02406283), strict=True
    ):
        _close(value, expected)


def test_group_dro_weights() -> None:
    algorithm = _algorithm(GroupDRO, CASES["group_dro"].hparams)
    out = _run(algorithm, algorithm.algorithm.updates(0)[0])
    assert out.state["q"].tolist() == pytest.approx([0.3461, 0.3757, 0.2783], abs=6e-5)


def test_group_dro_divided_by_n() -> None:
    algorithm = _algorithm(GroupDRO, {"groupdro_eta": 0.5, "groupdro_divide_by_n": True})
    _close(_run(algorithm, algorithm.algorithm.updates(0)[0]).loss, 2.40056044 / 3)


def test_fishr_second_call() -> None:
    algorithm = _algorithm(Fishr, FISHR)
    _run(algorithm, algorithm.algorithm.updates(0)[0])
    out = _run(algorithm, algorithm.algorithm.updates(1)[0], step=1)
    _close(out.loss, 42.49288821)
    _close(out.logs["penalty"], 0.04012331)
    for value, expected in zip(
        _four_gradients(algorithm), (2.38178788, 4.63868111, 11.30797482, 3.63055196), strict=True
    ):
        _close(value, expected)


@pytest.mark.parametrize(
    ("kind", "loss", "output"),
    [(DANN, 1.21850574, (0.14522545, 0.00119713)), (CDANN, 1.23113205, (0.19662973, -0.00080530))],
)
def test_discriminator_step(
    kind: type[Algorithm], loss: float, output: tuple[float, float]
) -> None:
    algorithm = _algorithm(kind, DISCRIMINATOR)
    (update,) = algorithm.algorithm.updates(1)
    assert update.groups == ("discriminator",)
    _close(_run(algorithm, update, step=1).loss, loss)
    _close(_gradient(algorithm, "discriminator.4.weight", 0, 0), output[0])
    _close(_gradient(algorithm, "discriminator.4.weight", 0, 1), output[1])
    if kind is CDANN:
        _close(_gradient(algorithm, "embedding.weight", 0, 0), -0.01001730)


def test_discriminator_turns() -> None:
    """With k = 1 training starts with the generator; with k = 2 it goes D, G, D, D, G, D."""
    for k, turns in ((1, "GDGD"), (2, "DGDDGD")):
        algorithm = _algorithm(DANN, {**DISCRIMINATOR, "d_steps_per_g_step": k})
        assert (
            "".join(
                algorithm.algorithm.updates(t)[0].groups[0][0].upper() for t in range(len(turns))
            )
            == turns
        )


def test_sag_net() -> None:
    algorithm = _algorithm(SagNet, {"sag_w_adv": 0.1})
    noise = {"mix": NOISE["mix"], "permutation": REVERSED_ROWS.expand(3, -1)}
    content, style, adversary = algorithm.algorithm.updates(0)
    _close(_run(algorithm, content, noise=noise).loss, 2.09696647)
    _close(_gradient(algorithm, "classifier.weight", 0, 0), 0.12718395)
    _close(_gradient(algorithm, "classifier.weight", 2, 3), 0.31083099)
    _close(_run(algorithm, style, noise=noise).loss, 1.97312351)
    _close(_run(algorithm, adversary, noise=noise).loss, 0.15340268)
    _close(_gradient(algorithm, "featurizer.weight", 0, 0), 0.01777792)
    _close(_gradient(algorithm, "featurizer.weight", 2, 3), 0.00832538)


def test_erdg() -> None:
    algorithm = _algorithm(ERDG, {**ENTROPY, "erdg_clearing": "remove"})
    experts, main = algorithm.algorithm.updates(0)
    assert experts.groups == ("experts",)
    _close(_run(algorithm, experts).loss, 1.54906886)
    out = _run(algorithm, main)
    logs = {
        "main": 2.36958293,
        "discriminator": 1.44231850,
        "others": 1.54906886,
        "rival": 1.54906886,
    }
    for key, expected in logs.items():
        _close(out.logs[key], expected)
    for value, expected in zip(
        _four_gradients(algorithm), (*ERM_W, 0.40740796, -0.05382464), strict=True
    ):
        _close(value, expected)
