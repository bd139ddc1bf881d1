"""TRM, Transfer, Fish, ADRMX and ERM++ against numbers that DomainBed computes on the toy problem,
in float64.

ERM++'s average and ARM stand beside plain torch.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from dgbench.algorithms.adrmx import supervised_contrast
from dgbench.algorithms.trm import neumann
from dgbench.callbacks.averaged import AveragedScores
from dgbench.callbacks.averaging import MovingAverage
from dgbench.configuration import CONF
from dgbench.network_specs import TaperedSpec
from dgbench.networks.build import build_head
from dgbench.plan.hyperparameters import resolve
from tests.golden import toy as problem
from tests.golden.toy import B, K, M, N, Toy, batch, checksum, filled

TOLERANCE = 2e-8


def _close(found: Any, expected: Any) -> None:
    assert found == pytest.approx(expected, rel=0, abs=TOLERANCE)


# ---- TRM

# of calls 2 and 3: cross entropy and swap term; dA[0,0], dA[2,3]; c(A), c(W); c(alpha); c(E_0),
# c(f_0)
SWAPS: dict[str, tuple[dict[str, Any], tuple[tuple[float, ...], ...]]] = {
    "strong": (
        {"cos_lambda": 0.5, "groupdro_eta": 0.5},
        (
            (2.28723954, 2.42695436, 0.58629274, 0.48957984, 3.97617507, 0.04535542,
             -0.34247453, 1.04344044, 0.69364662),
            (2.19406669, 2.90314357, 0.62631852, 0.81549634, 3.88868855, 0.07044151,
             -0.46306340, 1.54385811, 0.90364972),
        ),
    ),
    "default": (
        {"cos_lambda": 1e-4, "groupdro_eta": 0.01},
        (
            (2.28723954, 2.13974469, 0.54437466, 0.27892398, 3.96668492, 0.04535542,
             -0.24725919, 1.04344044, 0.69364662),
            (2.19087050, 2.64587106, 0.54592254, 0.43115303, 3.86532900, 0.07022147,
             -0.24847146, 1.54453475, 0.90345980),
        ),
    ),
    "balanced": (
        {"cos_lambda": 0.5, "groupdro_eta": 0.5, "class_balanced": True},
        (
            (2.28723954, 2.53525193, 0.54247976, 0.51589346, 3.97646966, 0.04535542,
             -0.47523512, 2.15295369, 0.87606757),
            (2.19426085, 2.75154229, 0.56930175, 0.52488324, 3.88160192, 0.07042577,
             -0.51541726, 1.80224861, 1.33178840),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SWAPS)
def test_trm(case: str) -> None:
    hparams, calls = SWAPS[case]
    experts = problem.linear(filled(K, M).repeat(N, 1), filled(K).repeat(N))
    toy = Toy("trm", {"iters": 1, **hparams}, {"experts": experts}).step()
    _close((toy.loss, toy.logs["penalty"]), (2.36958293, 0))
    _close(toy.checksums()[:2], (4.07489084, 0.01919194))
    for numbers in calls:
        toy.step()
        swap, state = toy.logs["penalty"], toy.port.state
        found = (
            toy.loss - swap,
            swap,
            *toy.gradients()[2:],
            *toy.checksums()[:2],
            checksum(state["alpha"]),
        )
        _close((*found, checksum(state["weight"][0]), checksum(state["bias"][0])), numbers)


@pytest.mark.parametrize(
    ("scale", "numbers"), [(1, (-3.15742312, 2.68773625)), (6, (28.01349207, -30.78675136))]
)
def test_neumann(scale: float, numbers: tuple[float, float]) -> None:
    z = scale * problem.batch().x[None, :B]
    p = problem.classifier()(z).detach().softmax(2)
    weights = torch.full((1, B), 1 / B, dtype=torch.float64)
    found = neumann(z, p, weights, filled(K, M)[None], overwritten=True)
    _close((checksum(found), float(found[0, 0, 0])), numbers)


# ---- Transfer

# cross entropy and reported gap; c(A), c(W), c(b); c(W'), c(b')
GAPS: dict[str, tuple[dict[str, float], dict[int, tuple[float, ...]]]] = {
    "projected": (
        {"delta": 0.05},
        {
            1: (
                2.36958293,
                0.60517722,
                3.99607505,
                0.01919194,
                -0.15940272,
                0.07987964,
                -0.13895232,
            ),
            2: (
                2.25164178,
                0.20253774,
                3.82836609,
                0.04533532,
                -0.15896557,
                0.09151147,
                -0.13167840,
            ),
            3: (
                2.13842219,
                0.35743239,
                3.67462004,
                0.07057814,
                -0.15837674,
                0.05165718,
                -0.15135360,
            ),
        },
    ),
    "free": (
        {"delta": 2.0},
        {
            1: (
                2.36958293,
                0.72284970,
                3.99607505,
                0.01919194,
                -0.15940272,
                0.35145611,
                -0.04797121,
            ),
            2: (
                2.25164178,
                0.31911561,
                3.82683477,
                0.04533532,
                -0.15896557,
                0.29850130,
                -0.00953392,
            ),
            3: (
                2.13891081,
                0.43427958,
                3.66996603,
                0.07064312,
                -0.15837794,
                -0.01676971,
                -0.12530797,
            ),
        },
    ),
    "gda": (  # that option of DomainBed leaves featurizer and classifier as they are
        {"delta": 2.0, "lr": 0.0},
        {3: (2.38339734, 0.37479734, 4.18155877, -0.00773710, -0.15973815)},
    ),
}


@pytest.mark.parametrize("case", GAPS)
def test_transfer(case: str) -> None:
    hparams, calls = GAPS[case]
    toy = Toy("transfer", {"t_lambda": 1.0, "d_steps_per_g": 2, "lr_d": 0.1, **hparams})
    for call in (1, 2, 3):
        toy.step()
        if call in calls:
            found = (
                toy.logs["loss"],
                toy.logs["adversary_gap"],
                *toy.checksums(),
                toy.c("weight"),
                toy.c("bias"),
            )
            _close(found[: len(calls[call])], calls[call])
    if case == "projected":
        own = dict(toy.networks["classifier"].named_parameters())
        away = torch.cat([(toy.port.state[name] - value).flatten() for name, value in own.items()])
        _close(float(away.detach().norm()), 0.05)


# ---- Fish


def test_fish() -> None:
    toy = Toy("fish", {"meta_lr": 0.5})
    for call, numbers in enumerate(
        (
            (1.87721116, 4.02240436, 0.04519701, -0.15555415),
            (1.98925304, 3.87794943, 0.08332955, -0.15475076),
            (2.05774501, 3.73418771, 0.11862096, -0.15362773),
        )
    ):
        toy.step()
        _close((toy.logs["loss"], *toy.checksums()), numbers)
        (adam,) = toy.module._optimizers.values()
        assert {int(own["step"]) for own in adam.state.values()} == {3 * (call + 1)}


# ---- ERM++


def test_erm_pp() -> None:
    """The averaged weights are those of averaging=eoa, by its own rule."""
    toy = Toy("erm_pp", {"linear_steps": 1, "linear_lr": 0.02})
    average = MovingAverage(start=3)
    average.begin({})
    for call, (loss, a, w, b, mean_a, mean_w) in enumerate(
        (
            (2.36958293, 4.18155877, 0.04612097, -0.15906728, 4.18155877, 0.04612097),
            (2.32667853, 4.18155877, 0.09975150, -0.15824566, 4.18155877, 0.09975150),
            (2.26271784, 4.07489084, 0.12668053, -0.15791022, 4.12822480, 0.11321602),
            (2.14976524, 3.96781438, 0.15154321, -0.15748850, 4.07475466, 0.12599175),
            (2.03115076, 3.85972247, 0.17198891, -0.15692593, 4.02099661, 0.13749104),
        ),
        1,
    ):
        toy.step()
        average.update(call, toy.networks.params(), toy.networks.statistics())
        means = {**toy.networks.params(), **average.result()}
        _close((toy.loss, *toy.checksums()), (loss, a, w, b))
        _close(
            [checksum(means[f"{name}.weight"]) for name in ("featurizer", "classifier")],
            [mean_a, mean_w],
        )


class _PlainERMPlusPlus:
    """ERM++ in plain torch, by the words of the specification: ``live`` is trained, ``average``
    predicts.

    Step k = 1, 2, ...: the first ``linear_steps + 1`` train the classifier with an Adam of its own.
    The average becomes the live state before step ``start``, and (c average + live) / (c + 1) from
    it on, c = k - start + 1; running statistics are part of the state. Then the minibatch passes
    through the average in training mode.
    """

    def __init__(self, live: nn.Sequential, linear_steps: int, start: int) -> None:
        self.live, self.average = live, copy.deepcopy(live)
        self.linear_steps, self.start, self.k = linear_steps, start, 0
        self.linear = torch.optim.Adam(live[-1].parameters(), lr=0.02)
        self.adam = torch.optim.Adam(live.parameters(), lr=0.01)

    def step(self, x: Tensor, y: Tensor) -> None:
        self.k += 1
        adam = self.linear if self.k <= self.linear_steps + 1 else self.adam
        self.live.zero_grad()
        nn.functional.cross_entropy(self.live.train()(x), y).backward()
        adam.step()
        live, c = self.live.state_dict(), max(0, self.k - self.start + 1)
        with torch.no_grad():
            for name, mean in self.average.state_dict().items():
                if mean.is_floating_point():
                    mean.copy_((c * mean + live[name]) / (c + 1))
            self.average.train()(x)

    def predict(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.average.eval()(x)


def _normalizing() -> nn.Sequential:
    """A featurizer whose BatchNorm sees what trained weights make of the images."""
    return nn.Sequential(problem.featurizer(), nn.Flatten(), nn.BatchNorm1d(M), nn.ReLU()).double()


def _averaged(networks: Any, flavor: str, start: int) -> tuple[Toy, MovingAverage]:
    toy, rule = (
        Toy("erm_pp", {"linear_steps": 1, "linear_lr": 0.02}, networks),
        MovingAverage(start, flavor),
    )
    trainer: Any = SimpleNamespace(should_stop=False)
    AveragedScores(rule).on_fit_start(trainer, toy.module)
    return toy, rule


@pytest.mark.parametrize("start", [2, 3, 5, 100])
def test_renewed_averages_are_those_of_erm_pp_with_a_trained_batchnorm(start: int) -> None:
    """Every weight, statistic and logit of the average after each of 8 steps, also before it
    begins.
    """
    reference = _PlainERMPlusPlus(nn.Sequential(_normalizing(), problem.classifier()), 1, start)
    toy, rule = _averaged({"featurizer": _normalizing()}, "renewed", start)
    state, state_rule = _averaged({"featurizer": _normalizing()}, "state", start)
    for call in range(1, 9):
        images = batch(call)
        reference.step(images.x, images.y)
        toy.step()
        state.step()
        means, theirs = rule.result(), reference.average.state_dict()
        for name, value in theirs.items():
            if value.is_floating_point():
                network = ("featurizer", "classifier")[int(name[0])]
                torch.testing.assert_close(
                    means[f"networks.{network}{name[1:]}"], value, rtol=0, atol=1e-13
                )
        live = {name: tensor.clone() for name, tensor in toy.module.state_dict().items()}
        toy.module.load_state_dict({**live, **means})
        torch.testing.assert_close(
            toy.module.eval()(images.x), reference.predict(images.x), rtol=0, atol=1e-13
        )
        toy.module.load_state_dict(live)
        toy.module.train()
        assert all(
            torch.equal(value, live[name]) for name, value in state.module.state_dict().items()
        )
    assert call >= start or not state_rule.result()
    for name, value in state_rule.result().items():
        assert torch.equal(value, means[name]) is ("running" not in name), name


def test_frozen_statistics_are_not_renewed() -> None:
    results = []
    for flavor in ("renewed", "state"):
        toy, rule = _averaged({"featurizer": _normalizing()}, flavor, 3)
        toy.networks.freeze([toy.networks["featurizer"][2]], [])
        for _ in range(5):
            toy.step()
        results.append(rule.result())
    assert results[0].keys() == results[1].keys()
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


# ---- ARM


def test_arm() -> None:
    """The context network keeps its weights, its statistics move; groups of a prediction are
    ``batch_size`` rows.
    """
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(3, M, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).double()
    toy = Toy(
        "arm",
        {"batch_size": B},
        {"featurizer": body, "classifier": problem.classifier()},
        image=(2, 6, 6),
    )
    context = nn.Sequential(
        *(nn.Conv2d(2, 64, 5, padding=2), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Conv2d(64, 64, 5, padding=2), nn.BatchNorm2d(64), nn.ReLU()),
        nn.Conv2d(64, 1, 5, padding=2),
    ).double()
    ours = toy.networks["context"].state_dict().values()
    context.load_state_dict(dict(zip(context.state_dict(), ours, strict=True)))
    network = nn.Sequential(copy.deepcopy(body), problem.classifier())
    adam = torch.optim.Adam(network.parameters(), lr=0.01)

    def adapted(x: Tensor) -> Tensor:
        means = [
            part.mean(0, keepdim=True).expand(len(part), -1, -1, -1) for part in context(x).split(B)
        ]
        logits: Tensor = network(torch.cat([x, torch.cat(means)], 1))
        return logits

    for call in range(1, 5):
        minibatch = batch(call)
        x = torch.randn(N * B, 2, 6, 6, dtype=torch.float64)
        toy.step(minibatches=replace(minibatch, x=x))
        adam.zero_grad()
        loss = nn.functional.cross_entropy(adapted(x), minibatch.y)
        loss.backward()
        adam.step()
        assert toy.loss == pytest.approx(loss.item(), abs=1e-12)
    for mine, theirs in (
        (toy.networks["featurizer"], network[0]),
        (toy.networks["classifier"], network[1]),
    ):
        for value, expected in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
    for value, expected in zip(
        toy.networks["context"].state_dict().values(), context.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
    context.eval()
    torch.testing.assert_close(toy.module.eval()(x), adapted(x), rtol=0, atol=1e-12)
    # contexts of single images, computed in another order than that of the groups
    shuffled = torch.randperm(N * B)
    run, pictures = toy.module, torch.arange(N * B)
    run.predict_logits(x[shuffled], "order", 0, pictures=pictures[shuffled])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.networks.context, "forward", None)  # every picture is known
        known = run.predict_logits(x, "known", 0, pictures=pictures)[0]
    torch.testing.assert_close(known, adapted(x), rtol=0, atol=1e-12)


# ---- ADRMX

# of each class, a the last position and b the one before
LAST_ROWS = {"remix": [[0.99] * K, [0.99] * K]}
EARLY = {
    "mlp_width": 4, "mlp_depth": 3, "mlp_dropout": 0.0, "beta1": 0.5, "lr": 0.01,
    "cnt_lambda": 1.0, "dclf_lambda": 1.0, "rmxd_lambda": 1.0, "disc_lambda": 0.75,
}  # fmt: skip
HEADS = ("classifier", "second_classifier", "domain_classifier")


def _adrmx(k: int) -> Toy:
    heads = {
        name: build_head(TaperedSpec(M, K if name != "domain_classifier" else N)).double()
        for name in HEADS
    }
    for head in heads.values():
        problem.fill(head)
    networks = {"domain_featurizer": problem.featurizer(0.5), **heads}
    return Toy("adrmx", {**EARLY, "d_steps_per_g_step": k}, networks)


# loss; c of both featurizers; sums of c over C_1, C_2, C_d and Q
TURNS = {
    1: (
        (21.76214775, 4.20450061, 2.06783755, 0.02608854, -0.09426168, -0.07132428, -1.31126620),
        (1.18916464, 4.20450061, 2.06783755, 0.02608854, -0.09426168, -0.07132428, -1.31226526),
        (21.72563252, 4.23796929, 2.03046629, 0.04467522, -0.14444749, -0.07889318, -1.31226526),
    ),
    2: (
        (1.18218089, 4.18155877, 4.18155877 / 2, None, None, None, -1.35565794),
        (21.83517595, 4.20450061, 2.06783754, -0.01816485, -0.10091145, -0.06590866, -1.35565794),
        (1.17899052, 4.20450061, 2.06783754, -0.01816485, -0.10091145, -0.06590866, -1.35299642),
        (1.16492196, 4.20450061, 2.06783754, -0.01816485, -0.10091145, -0.06590866, -1.37942161),
    ),
}  # fmt: skip


@pytest.mark.parametrize("k", TURNS)
def test_adrmx(k: int) -> None:
    toy = _adrmx(k)
    for numbers in TURNS[k]:
        toy.step(LAST_ROWS)
        bodies = [toy.c(f"{name}.weight") for name in ("featurizer", "domain_featurizer")]
        found = [toy.loss, *bodies, *(toy.total(name) for name in (*HEADS, "discriminator"))]
        _close(
            *zip(
                *((f, n) for f, n in zip(found, numbers, strict=True) if n is not None), strict=True
            )
        )


def test_parts_of_adrmx() -> None:
    toy = _adrmx(1).step(LAST_ROWS)
    parts = {
        "label_loss": 1.20346074, "second_label_loss": 1.18512806, "domain_loss": 1.17600910,
        "discriminator_loss": 1.18218089, "remix_loss": 0.73781455, "contrast": 2 * 9.17318549,
    }  # fmt: skip
    _close({name: toy.logs[name] for name in parts}, parts)
    own = toy.gradient("featurizer.weight", 0, 0), toy.gradient("domain_featurizer.weight", 0, 0)
    _close(own, (-0.60278573, 0.38759281))
    batch = problem.batch()
    _close(
        float(supervised_contrast(batch.x.flatten(1), batch.y, batch.env, within=0.3)), 9.21383763
    )


# ---- hyperparameters

# as DomainBed prints them for hparams_seed 3 in trial 1
DRAWN: dict[str, tuple[str, dict[str, Any]]] = {
    "fish": ("small", {"meta_lr": 0.1}),
    "trm": (
        "small",
        {"cos_lambda": 0.33800825660951633, "iters": 83, "groupdro_eta": 0.0016183275422355984},
    ),
    "transfer": (
        "large",
        {
            "t_lambda": 0.038560027752108074, "delta": 0.9750703122526484, "d_steps_per_g": 5,
            "lr_d": 0.00018491823977026932,
        },
    ),
    "adrmx": ("large", {"mlp_depth": 10, "lr": 3e-05, "weight_decay": 0.0}),
    "erm_pp": ("large", {"linear_lr": 0.00013835691360054476, "linear_steps": 500}),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_draw_3_of_trial_1(name: str) -> None:
    kind, printed = DRAWN[name]
    assert printed.items() <= _resolved(name, kind).items()
    if name == "adrmx":
        assert _resolved(name, "small")["lr"] == 0.001


def _resolved(name: str, kind: str) -> dict[str, Any]:
    shared: Any = OmegaConf.to_container(
        OmegaConf.load(CONF / "hparams" / "default.yaml"), resolve=True
    )
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / f"{name}.yaml"))
    read = config.get("shared", ["lr", "weight_decay", "batch_size"])
    return resolve(shared["shared"], config, kind=kind, number=3, trial=1, read=read)
