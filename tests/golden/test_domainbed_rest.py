"""DomainBed's remaining algorithms against numbers that its code computes on the toy problem of
``toy.py``.

Each row: what the call reports, the gradients dW[0,0], dW[2,3], dA[0,0], dA[2,3] that it leaves,
and the checksums c(A), c(W), c(b) after its step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from dgbench.algorithms.self_reg import _partners
from dgbench.batches import EnvBatch
from dgbench.configuration import CONF
from dgbench.errors import DivergedError
from dgbench.objectives.step import Integers, draw
from dgbench.plan.hyperparameters import resolve
from tests.golden.toy import LABELS, B, K, M, N, Toy, batch, reversed_within_classes

TOLERANCE = 1e-8


def _close(found: tuple[float, ...], expected: tuple[float, ...]) -> None:
    assert found == pytest.approx(expected, rel=0, abs=TOLERANCE)


def _table(text: str, width: int) -> list[tuple[float, ...]]:
    """Numbers in rows of ``width``, wherever lines end."""
    numbers = [float(word) for word in text.split()]
    assert len(numbers) % width == 0
    return [tuple(numbers[i : i + width]) for i in range(0, len(numbers), width)]


ROWS = {
    "ib_erm": """
        2.36958293 0.68086587  0.37318173 0.16035817 0.46918992 -0.01401615
            4.07489084 0.01919194 -0.15940272
        3.58787300 0.65031673  0.36038249 0.16902959 1.00589016 0.39423858
            3.96747559 0.04612097 -0.15906728
        3.40752205 0.60815049  0.34291833 0.17061434 0.98145658 0.36603537
            3.86758915 0.07215022 -0.15864553
    """,
    "ib_irm": """
        3.27368035 0.90409742 0.68086587  1.11764369 1.19520980 1.01982462 -0.20118569
            4.05513458 -0.01583408 -0.15940272
        3.82908673 0.22362632 0.64924542  0.78466596 0.78629411 1.27473397 0.41679277
            3.92888564 -0.02393105 -0.15906728
        3.41895866 -0.00420075 0.60729945  1.25159193 0.50054688 1.46896489 1.14280233
            3.83969300 -0.00775133 -0.15873185
    """,
    "sand_mask-steep": """
        2.36958293  0.37338531 0.16032758 0.47062821 -0.01405911  4.07489084 0.01919194 -0.15940272
        2.28723954  0.36047847 0.16905112 0.46086403 -0.03004805  3.96795428 0.04535229 -0.15897957
        2.18698917  0.34247347 0.17072320 0.44415130 -0.04398631  3.86059155 0.06960240 -0.15840565
    """,
    "sand_mask-flat": """
        2.36958293  1.33035398 0.00290292 0.96831166 -0.00052180  4.07489091 0.01919206 -0.15940272
        2.28723963  1.52168046 0.00355806 0.79874332 -0.00127684  3.97172633 0.04247689 -0.15893648
        2.18939154  1.36211553 0.00380706 0.64287750 -0.00186402  3.87096957 0.06232544 -0.15826607
    """,
    "sand_mask-defaults": """
        2.36958293  0.00000000 0.00000000 0.00000000 -0.00000000  4.18155877 -0.00773710 -0.15973815
    """,
    "cad": """
        2.36958293 1.16310815 2.48589375  0.37318173 0.16035817 0.40376410 -0.08637154
            4.07489084 0.01919194 -0.15940272
        2.28723954 1.25180605 2.41242014  0.36038249 0.16902959 0.38592173 -0.10388332
            3.96896844 0.04535542 -0.15897979
        2.18710463 1.35285881 2.32239051  0.34243312 0.17067099 0.35979607 -0.11900088
            3.86548034 0.06960846 -0.15840607
    """,
    "cad-normalized": """
        2.36958293 3.06408962 2.67599189  0.37318173 0.16035817 0.47704779 -0.01854339
            4.07489084 0.01919194 -0.15940272
    """,
    "cad-not_flipped": """
        2.36958293 -31.46524521 -0.77694159  0.37318173 0.16035817 -0.45153901 -0.82203647
            4.21781084 0.01919194 -0.15940272
    """,
    "cond_cad": """
        2.36958293 8.69637729 3.23922066  0.37318173 0.16035817 0.30013662 0.45120646
            4.06508885 0.01919194 -0.15940272
        2.30148561 8.09110548 3.11059616  0.36526519 0.16641448 0.16064512 0.51357820
            3.95462403 0.04612130 -0.15899516
        2.21722459 7.69751820 2.98697641  0.35345602 0.16454312 0.06988613 0.52079462
            3.85525313 0.07333286 -0.15847217
    """,
    "cond_cad-defaults": """
        2.36958293 7.29420207 3.09900314  0.37318173 0.16035817 0.25586584 0.73330396
            4.05676591 0.01919194 -0.15940272
    """,
    "cond_cad-not_flipped": """
        2.36958293 -19.09122714 0.46046022  0.37318173 0.16035817 -0.70617463 0.34398989
            4.17075006 0.01919194 -0.15940272
    """,
    "rdm": """
        2.36958293 2.36958293 0.36571988 4.64339327  0.37318173 0.16035817 0.46918992 -0.01401615
            4.07489084 0.01919194 -0.15940272
        5.00887754 2.28723954 0.54067543 4.56521684  0.62826972 -0.58402509 0.67977040 0.56266107
            4.08376706 0.06293124 -0.13711976
        5.09482300 2.24526158 0.56622726 4.60628320  -0.11813018 1.34416830 -0.02897767 0.90060369
            4.01717364 0.08529103 -0.10146920
    """,
    "rdm-at_once": """
        6.51987896 2.36958293 0.36571988 4.64339327  4.24688334 -1.27868741 3.83136229 -0.71262512
            4.10365245 0.09703102 -0.18202111
    """,
    "caus_irl_coral": """
        2.36958293 0.21751707  0.37318173 0.16035817 0.63993662 0.01696512
            4.07215609 0.01919194 -0.15940272
        2.28784620 0.00000000  0.36054441 0.16932984 0.46025067 -0.03066287
            3.96530347 0.04551285 -0.15898261
        2.18893876 0.53365664  0.34291423 0.17101448 0.98857944 -0.01908954
            3.85745521 0.07029430 -0.15841497
    """,
    "caus_irl_mmd": """
        2.36958293 1.27347180  0.37318173 0.16035817 0.56281456 -0.01364318
            4.07489084 0.01919194 -0.15940272
        2.28723954 0.00000000  0.36038248 0.16902959 0.46018792 -0.03000397
            3.96812057 0.04535542 -0.15897979
        2.18737245 1.95398245  0.34258404 0.17063107 0.79405617 -0.16000527
            3.86397817 0.06962889 -0.15840651
    """,
    "self_reg": """
        11.55184706  3.02660513 0.05706678 4.33803950 2.50440477  4.05434367 -0.01981132 -0.15940272
        10.66826034  2.91324760 0.02657672 4.25786589 2.34307259  3.92730332 -0.03180715 -0.15899450
        9.76345604  2.75267822 -0.01747523 4.10971395 2.19304044  3.80062430 -0.04335883 -0.15846715
    """,
}

REPORTED: dict[str, Callable[[Toy], tuple[float, ...]]] = {
    "ib_erm": lambda t: (t.loss, t.logs["penalty"]),
    "ib_irm": lambda t: (t.loss, t.logs["irm_penalty"], t.logs["ib_penalty"]),
    "sand_mask": lambda t: (t.loss,),
    "cad": lambda t: (_risk(t), t.logs["penalty"], t.loss),
    "cond_cad": lambda t: (_risk(t), t.logs["penalty"], t.loss),
    "rdm": lambda t: (t.loss, t.loss - _weighted(t), t.logs["penalty"], t.logs["variance"]),
    "caus_irl_coral": lambda t: (_risk(t), t.logs["penalty"]),
    "caus_irl_mmd": lambda t: (_risk(t), t.logs["penalty"]),
    "self_reg": lambda t: (t.loss,),
}


def _risk(toy: Toy) -> float:
    return toy.loss - toy.logs["penalty_weight"] * toy.logs["penalty"]


def _weighted(toy: Toy) -> float:
    """RDM's two penalties with their weights."""
    spread = (
        toy.port.module.algorithm.values["variance_weight"] if toy.logs["penalty_weight"] else 0.0
    )
    return toy.logs["penalty_weight"] * toy.logs["penalty"] + spread * toy.logs["variance"]


CUTS = [{"cuts": cuts} for cuts in ((1, 2, 3), (0, 0, 1), (3, 1, 2))]
# the order of keys is the reverse of that of rows
FALLING = torch.linspace(0.9, 0.1, N * B, dtype=torch.float64)
SELF_REG = [{"weight": 0.3, "keys": FALLING.expand(2, -1)}] * 3

# name, hyperparameters, random inputs of the calls
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "ib_erm": ("ib_erm", {"ib_lambda": 2.0, "ib_penalty_anneal_iters": 1}, None),
    "ib_irm": (
        "ib_irm",
        {"irm_lambda": 3.0, "irm_penalty_anneal_iters": 2, "ib_lambda": 2.0,
            "ib_penalty_anneal_iters": 1},
        None,
    ),
    "sand_mask-steep": ("sand_mask", {"tau": 0.3, "k": 10.0}, None),
    "sand_mask-flat": ("sand_mask", {"tau": 0.3, "k": 0.01}, None),
    "sand_mask-defaults": ("sand_mask", {}, None),
    "cad": ("cad", {"temperature": 1.0}, None),
    "cad-normalized": ("cad", {"temperature": 1.0, "is_normalized": True}, None),
    "cad-not_flipped": ("cad", {"temperature": 1.0, "is_flipped": False}, None),
    "cond_cad": ("cond_cad", {"temperature": 1.0}, None),
    "cond_cad-defaults": ("cond_cad", {}, None),
    "cond_cad-not_flipped": ("cond_cad", {"temperature": 1.0, "is_flipped": False}, None),
    "rdm": (
        "rdm",
        {"rdm_penalty_anneal_iters": 1, "rdm_lambda": 5.0, "variance_weight": 0.004,
            "rdm_lr": 0.02}, None
    ),
    "rdm-at_once": (
        "rdm",
        {"rdm_penalty_anneal_iters": 0, "rdm_lambda": 5.0, "variance_weight": 0.5, "rdm_lr": 0.02},
        None
    ),
    "caus_irl_coral": ("caus_irl_coral", {}, CUTS),
    "caus_irl_mmd": ("caus_irl_mmd", {}, CUTS),
    "self_reg": ("self_reg", {}, SELF_REG),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_steps(case: str) -> None:
    name, hparams, randoms = CASES[case]
    toy, reported = Toy(name, hparams), REPORTED[name]
    width = len(reported(Toy(name, hparams).step(randoms and randoms[0]))) + 7
    for call, expected in enumerate(_table(ROWS[case], width)):
        toy.step(randoms and randoms[call])
        _close((*reported(toy), *toy.gradients(), *toy.checksums()), expected)


def test_self_reg_moves_the_statistics_of_an_untrained_projection() -> None:
    toy = Toy("self_reg")
    before = toy.total("projection")
    for random, expected in zip(SELF_REG, (-0.10061530, -0.19188405, -0.27465935), strict=True):
        toy.step(random)
        _close((toy.c("projection.1.running_mean"),), (expected,))
    assert toy.total("projection") == before
    assert Toy("self_reg", {"variant": "fixed"}).step(SELF_REG[0]).total("projection") != before


def test_self_reg_pairs_rows_of_one_class() -> None:
    """With the keys given here each class is reversed; drawn ones give every partner of the class
    as often.
    """
    y = torch.tensor(LABELS)
    assert torch.equal(_partners(y, FALLING), reversed_within_classes(y))
    keys = torch.rand(4000, len(y), generator=torch.Generator().manual_seed(0))
    drawn = torch.func.vmap(_partners, in_dims=(None, 0))(y, keys)
    assert (drawn.sort(1).values == torch.arange(len(y))).all()
    share = (drawn[:, :, None] == torch.arange(len(y))).double().mean(0)
    same = (y[:, None] == y).double()
    torch.testing.assert_close(share, same / same.sum(1, keepdim=True), rtol=0, atol=0.04)


@pytest.mark.parametrize("name", ["ib_erm", "ib_irm"])
def test_a_minibatch_of_one_row_has_no_variance(name: str) -> None:
    whole = batch()
    rows = torch.tensor([0, *range(4, 12)])
    with pytest.raises(DivergedError):
        Toy(name).step(minibatches=EnvBatch(whole.x[rows], whole.y[rows], (1, 4, 4)))


def test_rdm_takes_minibatches_of_different_sizes() -> None:
    """Against plain sums over the rows of the worst environment and over all rows."""
    whole = batch()
    rows = torch.tensor([0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 9])
    toy = Toy("rdm", {"rdm_penalty_anneal_iters": 0, "rdm_lambda": 1.0, "variance_weight": 1.0})
    logits = toy.networks.logits(whole.x[rows]).detach()
    losses = torch.nn.functional.cross_entropy(logits, whole.y[rows], reduction="none")
    parts = losses.split([4, 8, 2])
    worst = max(parts, key=torch.mean)
    assert worst is parts[1]

    def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        squares = (a[:, None] - b[None]).square()
        return (
            torch.stack([(-(10.0**power) * squares).exp() for power in range(-4, 4)]).sum(0).mean()
        )

    distance = kernel(worst, worst) + kernel(losses, losses) - 2 * kernel(worst, losses)
    variance = worst.var() + losses.var()
    risk = torch.stack([part.mean() for part in parts]).mean()
    toy.step(minibatches=EnvBatch(whole.x[rows], whole.y[rows], (4, 8, 2)))
    _close((toy.logs["penalty"], toy.logs["variance"]), (float(distance), float(variance)))
    _close((toy.loss,), (float(risk + distance + variance),))


def test_cuts_lie_within_their_minibatches() -> None:
    drawn = draw({"cuts": Integers((3,), below=(1, 4, 7))}, np.random.default_rng(0), 2000)["cuts"]
    assert [sorted(set(column)) for column in drawn.T.tolist()] == [
        [0],
        [0, 1, 2, 3],
        list(range(7)),
    ]


URM: dict[str, tuple[dict[str, Any], str]] = {
    "tanh": (
        {
            "urm_generator_output": "tanh",
            "urm_discriminator_hidden_layers": 1,
        },
        """
        2.04690871 0.21450526 -0.01292778 0.00173038 0.72469083 0.09940762 4.07489084 0.01919194
            -4.07022998
        2.82323051 0.31818888 0.14216389 -0.28320855 -4.63007364 -0.99472527 3.95870866 0.04591707
            -4.11245980
        2.43569718 0.35454843 0.02943476 -0.00243930 0.01826113 -0.00092740 3.84376876 0.07176559
            -4.06802057
        """,
    ),
    "relu": (
        {
            "urm_generator_output": "relu",
            "urm_discriminator_hidden_layers": 2,
            "urm_discriminator_label_smoothing": 0.1,
        },
        """
        1.68739568 0.21039048 0.01072190 0.00193299 1.35421602 0.17213671 4.08522897 0.01411588
            -6.76724901
        7.29021341 0.41393615 0.01068317 1.08080910 0.00258844 -0.91959230 4.03074156 0.03074027
            -7.01158255
        3.31574213 0.36709587 0.16168968 0.31500322 0.05282218 -0.91916983 3.96278753 0.04317579
            -6.90581191
        """,
    ),
}


@pytest.mark.parametrize("case", URM)
def test_urm(case: str) -> None:
    """The model's loss; dA[0,0], dA[2,3]; gradients of Q: first and last weight [0,0], last bias;
    c(A), c(W), c(Q).

    c(Q) is the sum over its tensors.
    """
    hparams, text = URM[case]
    toy = Toy("urm", {"urm_discriminator_lr": 0.02, "urm_adv_lambda": 0.1, **hparams})
    quarter = {
        name: torch.full(each.shape, 0.25)
        for name, each in toy.port.random_inputs((B,) * N).items()
    }
    last = 2 * hparams["urm_discriminator_hidden_layers"] + 2
    for expected in _table(text, 9):
        toy.step(quarter)
        gradients = [
            toy.gradient(f"discriminator.{at}", *place)
            for at, place in (
                ("0.weight", (0, 0)),
                (f"{last}.weight", (0, 0)),
                (f"{last}.bias", (0,)),
            )
        ]
        found = (
            toy.loss - toy.logs["discriminator_loss"],
            *toy.gradients()[2:],
            *gradients,
            *toy.checksums()[:2],
            toy.total("discriminator"),
        )
        _close(found, expected)


def test_urm_with_sgd() -> None:
    """Two steps of momentum 0.9 with weight decay."""
    toy = Toy(
        "urm",
        {"urm_discriminator_optimizer": "sgd", "urm_discriminator_lr": 0.5, "weight_decay": 0.1},
    )
    bias, velocity = toy.networks.discriminator[0].bias.detach().clone(), 0.0
    for _ in range(2):
        toy.step({"noise": torch.full((N * B, M), 0.25)})
        velocity = 0.9 * velocity + toy.networks.discriminator[0].bias.grad + 0.1 * bias
        bias = bias - 0.5 * velocity
    torch.testing.assert_close(toy.networks.discriminator[0].bias.detach(), bias)


def test_urm_predicts_from_activated_features() -> None:
    toy = Toy("urm", {"urm_generator_output": "relu"})
    x = batch().x
    torch.testing.assert_close(toy.port.predict(x), toy.networks.classifier(x.relu()))
    assert toy.port.random_inputs((B,) * N)["noise"].shape == (N * B, M)
    assert toy.port.predict(x).shape == (N * B, K)


def hyperparameters(
    name: str, kind: str, dataset: str = "", number: int = 0, trial: int = 0
) -> dict[str, Any]:
    """What ``conf`` gives a run of an algorithm:
    the default set, or a draw of DomainBed's search.
    """
    shared, own = (
        OmegaConf.load(CONF / f"{file}.yaml") for file in ("hparams/default", f"algorithm/{name}")
    )
    read = ["lr", "weight_decay", "batch_size", "resnet_dropout"]
    declared: Any = OmegaConf.to_container(shared.shared, resolve=True)
    content: Any = OmegaConf.to_container(own)
    return resolve(
        declared, content, kind=kind, number=number, trial=trial, read=read, dataset=dataset
    )


# draw 3 of trial 1, as DomainBed's own search draws it; (algorithm, kind of images, dataset)
DRAWS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("sand_mask", "large", ""): {"tau": 0.8962189421219676, "k": 2.793887235235227},
    ("ib_erm", "large", ""): {"ib_lambda": 0.5844505187341589, "ib_penalty_anneal_iters": 21},
    ("ib_irm", "small", ""): {"ib_lambda": 0.5844505187341589, "ib_penalty_anneal_iters": 21},
    ("cad", "large", ""): {"lmbda": 0.001, "temperature": 0.05},
    ("cond_cad", "small", ""): {"lmbda": 0.001, "temperature": 0.05},
    ("caus_irl_coral", "large", ""): {"mmd_gamma": 0.3930938370700335},
    ("caus_irl_mmd", "large", ""): {"mmd_gamma": 0.3930938370700335},
    ("rdm", "small", ""): {
        "rdm_lambda": 1.4693450592674966, "rdm_penalty_anneal_iters": 1075,
        "variance_weight": 0.0035079968512577832, "rdm_lr": 8.680118215833218e-06,
    },
    ("rdm", "large", "pacs"): {"rdm_lambda": 2.244859144788633, "batch_size": 74},
    ("rdm", "large", "terra_incognita"): {"rdm_lambda": 2.244859144788633, "variance_weight": 0.0,
        "batch_size": 34},
    ("rdm", "large", "office_home"): {"rdm_lambda": 1.4693450592674966, "variance_weight": 0.0,
        "batch_size": 74},
    ("rdm", "large", "domain_net"): {
        "rdm_lambda": 0.22448591447886332, "rdm_penalty_anneal_iters": 1717, "variance_weight": 0.0,
        "batch_size": 34,
    },
    ("urm", "small", ""): {
        "urm_adv_lambda": 0.07586635120949191, "urm_discriminator_hidden_layers": 2,
        "urm_generator_output": "tanh", "urm_discriminator_lr": 4.694187097871323e-05,
    },
    ("urm", "large", ""): {"urm_discriminator_lr": 7.562585480916335e-06},
}  # fmt: skip


@pytest.mark.parametrize("case", DRAWS, ids="-".join)
def test_draws(case: tuple[str, str, str]) -> None:
    name, kind, dataset = case
    found = hyperparameters(name, kind, dataset, number=3, trial=1)
    assert {key: found[key] for key in DRAWS[case]} == DRAWS[case]


def test_defaults_of_rdm() -> None:
    keys = ("rdm_lambda", "rdm_penalty_anneal_iters", "variance_weight", "rdm_lr", "batch_size")
    for dataset, expected in {
        "pacs": (5.0, 1500, 0.004, 1.5e-5, 88),
        "vlcs": (5.0, 1500, 0.004, 1.5e-5, 88),
        "office_home": (5.0, 1500, 0.0, 1.5e-5, 88),
        "terra_incognita": (5.0, 1500, 0.0, 1.5e-5, 40),
        "domain_net": (0.5, 2400, 0.0, 1.5e-5, 40),
    }.items():
        found = hyperparameters("rdm", "large", dataset)
        assert tuple(found[key] for key in keys) == expected
