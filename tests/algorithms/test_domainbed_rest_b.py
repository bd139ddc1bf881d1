"""Switches of the SAM family, TRM, Transfer, Fish, ADRMX, ERM++ and MIRO: alone and stacked, and
what each changes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.algorithms.adrmx import supervised_contrast
from dgbench.algorithms.trm import neumann
from dgbench.batches import EnvBatch
from dgbench.configuration import CONF
from dgbench.training.modules import RunModule, SingleRun, StackedRuns, training_module

M, K = 8, 3
SIZES = (5, 3, 4)


pytestmark = pytest.mark.usefixtures("double")


class CNN(nn.Module):
    """Two convolutions with an unfrozen BatchNorm, before which a bias would have a gradient of
    rounding noise.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.conv = (
            nn.Conv2d(2, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.Conv2d(4, M, 2),
        )

    def forward(self, x: Tensor, maps: bool = False) -> Any:
        first = self.norm(self.stem(x)).relu()
        second = self.conv(first).tanh()
        z = second.mean((2, 3))
        return (z, [first, second]) if maps else z


def batch(step: int, run: int = 0, sizes: tuple[int, ...] = SIZES) -> EnvBatch:
    rng = torch.Generator().manual_seed(100 * step + run)
    n = sum(sizes)
    x, y = torch.randn(n, 2, 5, 5, generator=rng), torch.randint(K, (n,), generator=rng)
    return EnvBatch(x, y, sizes)


def module(name: str, seed: int = 0, n_envs: int = 3, **values: Any) -> SingleRun:
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / f"{name}.yaml"))
    torch.manual_seed(seed)
    return training_module(
        config["objective"], CNN(), K, n_envs, hparams=config["hparams"],
        values={"lr": 0.01, **values},
        shared=config.get("shared", ("lr", "weight_decay", "batch_size")), n_features=M,
        image=(2, 5, 5), seed=seed,
    )  # fmt: skip


def train(run: RunModule, batches: list[EnvBatch]) -> RunModule:
    run.train()
    run.collects = True
    optimizers = dict(zip(run.trained_groups(), run.configure_optimizers(), strict=True))
    for each in batches:
        run.train_steps([each], optimizers)
    return run


SMALL = {"mlp_depth": 3, "d_steps_per_g_step": 1}
STACKS: dict[str, tuple[str, dict[str, Any], dict[str, list[float]]]] = {
    "sam": ("sam", {}, {"rho": [0.05, 0.5, 0.1]}),
    "gsam": ("sam", {"sharpness": "gsam", "rho": 0.5}, {"alpha": [0.1, 0.4, 0.0]}),
    "sagm": ("sagm", {"rho": 0.5}, {"alpha": [0.1, 0.4, 0.0]}),
    "disam": ("disam", {"rho": 0.5}, {"lambda": [0.1, 5.0, 0.0]}),
    "trm": ("trm", {"groupdro_eta": 0.5}, {"iters": [0, 1, 3], "cos_lambda": [0.5, 0.1, 1.0]}),
    "trm paper": ("trm", {"trm_neumann": "paper", "cos_lambda": 0.5}, {"iters": [0, 1, 3]}),
    "trm consistent": ("trm", {"trm_alpha": "consistent", "class_balanced": True},
        {"iters": [0, 1, 3]}),
    "transfer": (
        "transfer", {"lr_d": 0.1, "d_steps_per_g": 2},
        {"delta": [0.01, 2.0, 0.1], "weight_decay": [0.1, 0, 0]},
    ),
    "fish": ("fish", {}, {"meta_lr": [0.5, 0.05, 1.0], "lr": [0.01, 0.01, 0.02]}),
    "adrmx": ("adrmx", {**SMALL, "adrmx_remix": "reference"}, {"cnt_lambda": [1.0, 0.5, 2.0]}),
    "adrmx fixed": ("adrmx", {**SMALL, "adrmx_remix": "fixed"}, {"rmxd_lambda": [1, 2, 3]}),
    "erm_pp": ("erm_pp", {"linear_steps": 1}, {"linear_lr": [0.1, 0.2, 0.3]}),
    "miro": ("miro", {}, {"ld": [0.1, 1.0, 0.01]}),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("sizes", [SIZES, (4, 4)])
@pytest.mark.parametrize("case", STACKS)
def test_stack_equals_single_runs(case: str, sizes: tuple[int, ...]) -> None:
    """Four steps of a network with convolutions and an unfrozen BatchNorm, unequal and few
    minibatches.
    """
    name, fixed, varied = STACKS[case]
    values = [{**fixed, **{key: each[i] for key, each in varied.items()}} for i in range(3)]

    def make(i: int) -> SingleRun:
        return module(name, i, len(sizes), **values[i])

    alone = [train(make(i), [batch(step, i, sizes) for step in range(4)]) for i in range(3)]
    batches = [[batch(step, i, sizes) for i in range(3)] for step in range(4)]
    together = [
        EnvBatch(torch.stack([own.x for own in each]), torch.stack([own.y for own in each]), sizes)
        for each in batches
    ]
    stack = train(StackedRuns([make(i) for i in range(3)]), together)
    logged = stack.take_values()
    for i, run in enumerate(alone):
        expected = run.weights(0)
        assert (
            max(
                float((stack.weights(i)[key] - value).abs().max())
                for key, value in expected.items()
            )
            < 1e-9
        )
        for (*_, found), (*_, value) in zip(logged, run.take_values(), strict=True):
            assert abs(found[i] - value[0]) < 1e-9


def moved(run: RunModule) -> dict[str, Tensor]:
    return {
        name: value.detach().clone() for name, value in run.runs[0].networks.state_dict().items()
    }  # type: ignore[attr-defined]


# ---- the SAM family


def test_special_cases_of_the_sam_family() -> None:
    """No climb is ERM, no weight of the gap and no weight of the variance are SAM; statistics
    apart.
    """
    batches = [batch(step) for step in range(3)]

    def weights(name: str, **values: Any) -> Tensor:
        run = train(module(name, **values), batches)
        return torch.cat([p.detach().flatten() for p in run.networks.parameters()])  # type: ignore[union-attr]

    erm, sam = weights("erm"), weights("sam", rho=0.5)
    torch.testing.assert_close(weights("sam", rho=0.0), erm, rtol=0, atol=1e-9)
    torch.testing.assert_close(weights("sagm", rho=0.0, alpha=0.0), erm, rtol=0, atol=1e-9)
    torch.testing.assert_close(
        weights("sam", sharpness="gsam", rho=0.5, alpha=0.0), sam, rtol=0, atol=1e-9
    )
    torch.testing.assert_close(weights("disam", rho=0.5, **{"lambda": 0.0}), sam, rtol=0, atol=1e-9)
    assert (sam - erm).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("name", "changed", "passes"),
    [
        ("sam", {}, 2),
        ("sam", {"sharpness": "gsam"}, 1),
        ("sagm", {}, 1),
        ("disam", {}, 2),
        ("erm", {}, 1),
    ],
)
def test_running_statistics_move_with_the_passes_that_count(
    name: str, changed: dict[str, Any], passes: int
) -> None:
    run = train(module(name, **changed), [batch(0)])
    assert int(moved(run)["featurizer.norm.num_batches_tracked"]) == passes


def test_sam_without_a_gradient() -> None:
    """All weights 0 and as many images of each class: there is nowhere to climb, and nothing
    becomes NaN.
    """
    run = module("sam")
    with torch.no_grad():
        for parameter in run.networks.parameters():
            parameter.zero_()
    one = batch(0, sizes=(3, 3, 3))
    train(run, [EnvBatch(one.x, torch.arange(9) % K, one.sizes)])
    assert all(value.isfinite().all() for value in moved(run).values())


# ---- TRM


@pytest.mark.parametrize("overwritten", [True, False])
def test_neumann_is_the_series(overwritten: bool) -> None:
    """Term by term with the Hessian that automatic differentiation finds."""
    rng = torch.Generator().manual_seed(0)
    z, w, v = (torch.randn(*shape, generator=rng) / 2 for shape in ((4, M), (K, M), (K, M)))
    y = torch.tensor([0, 1, 2, 1])
    hessian = torch.autograd.functional.hessian(
        lambda own: F.cross_entropy(z @ own.T, y), w
    ).reshape(K * M, K * M)
    term, total = v.flatten(), v.flatten()
    for i in range(10):
        term = term - hessian @ term
        total = 2 * term if overwritten and i == 0 else total + term
        if total.abs().max() > 10:
            break
    found = neumann(
        z[None], (z @ w.T).softmax(1)[None], torch.full((1, 4), 0.25), v[None], overwritten
    )
    torch.testing.assert_close(found[0].flatten(), total)


def test_pair_weights_of_trm() -> None:
    """Both forms have one loss; without a step of the pair weights they have one gradient too."""
    for eta, same in ((0.0, True), (1.0, False)):
        runs = [
            train(module("trm", iters=0, groupdro_eta=eta, trm_alpha=form), [batch(0)])
            for form in ("reference", "consistent")
        ]
        losses = [
            next(value for _, name, value in run.take_values() if name == "loss") for run in runs
        ]
        assert abs(losses[0] - losses[1]) < 1e-12
        gradients = [run.networks["featurizer"].conv.weight.grad for run in runs]  # type: ignore[union-attr]
        assert torch.allclose(*gradients, rtol=1e-9) is same


# ---- Transfer


def test_the_gap_moves_the_featurizer_alone() -> None:
    """After two steps the classifier has made two, on the cross entropy only; Adam would drift on a
    zero gradient.
    """
    run = train(module("transfer"), [batch(0), batch(1)])
    steps = {
        name: {int(own["step"]) for own in adam.state.values()}
        for name, adam in run._optimizers.items()
    }
    assert steps == {"featurizer": {4}, "classifier": {2}}


# ---- ADRMX


def test_supervised_contrast_by_rows() -> None:
    one = batch(0)
    # the last class has one row
    z, y, env = (
        one.x.flatten(1),
        torch.cat([one.y[:-1] % 2, torch.tensor([2])]),
        one.env,
    )
    u, losses = z / z.norm(dim=1, keepdim=True), []
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i]
        e = {
            j: (0.3 if env[i] == env[j] else 0.7) * float((u[i] @ u[j] / 0.07).exp())
            for j in others
        }
        same = [j for j in others if y[i] == y[j]]
        if same:
            shares = torch.tensor([e[j] / (sum(e.values()) + 1e-5) + 1e-5 for j in same])
            losses.append(float(-shares.log().mean()))
    assert len(losses) == len(y) - 1
    assert float(supervised_contrast(z, y, env, within=0.3)) == pytest.approx(
        sum(losses) / (len(losses) + 1)
    )


def test_fixed_remix_takes_rows_of_one_class() -> None:
    """Classes far apart: mixed with rows of other classes their loss is large, within a class it is
    not.
    """

    class Known(nn.Module):
        n_features = K

        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(scale))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * x.flatten(1)

    y = torch.tensor([0, 1, 2, 2, 1, 0])
    one = EnvBatch(20.0 * F.one_hot(y, K).to(torch.float64)[:, None, None], y, (3, 3))
    losses = {}
    for form in ("reference", "fixed"):
        config: Any = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / "adrmx.yaml"))
        networks = {
            "featurizer": Known(1.0),
            "domain_featurizer": Known(0.5),
            "classifier": nn.Identity(),
        }
        run = training_module(
            config["objective"], networks, K, 2, hparams=config["hparams"], shared=["batch_size"],
            values={"adrmx_remix": form, "d_steps_per_g_step": 0, "mlp_depth": 2},
        )  # fmt: skip
        train(run, [one])
        losses[form] = next(
            float(value[0]) for _, name, value in run.take_values() if name == "remix_loss"
        )
    assert losses["fixed"] < 1e-3 < losses["reference"]
