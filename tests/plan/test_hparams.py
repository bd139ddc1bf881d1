"""Hyperparameters: seeds, distributions, draws as printed by the references,
and which value wins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from dgbench.errors import ConfigError
from dgbench.plan.hyperparameters import DISTRIBUTIONS, resolve, seed_hash

CONF = Path(__file__).parents[2] / "conf"
READ = ["lr", "weight_decay", "batch_size"]


def _node(name: str) -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"), resolve=True)
    return content


SHARED = _node("hparams/default")["shared"]
ERM: dict[str, Any] = {"hparams": {}, "search": {}}
ALGORITHMS = sorted(path.stem for path in (CONF / "algorithm").glob("*.yaml"))


def test_seed_hash_gives_the_values_of_the_reference() -> None:
    assert seed_hash(0, 0) == 894182419
    assert seed_hash(1, 2) == 1981683110
    assert seed_hash(3, 1) == 1603725249
    assert seed_hash(1603725249, "lr") == 477362136
    assert seed_hash("PACS", "ERM", [0, 1], 5, 2) == 1155963954


def test_domainbed_draw_3_of_trial_1_for_irm_on_small_images() -> None:
    values = resolve(
        SHARED,
        _node("algorithm/irm"),
        kind="small",
        number=3,
        trial=1,
        read=[*READ, "resnet_dropout"],
    )
    assert values == {
        "lr": 0.0021690714686971317,
        "batch_size": 14,
        "weight_decay": 0.0,
        "resnet_dropout": 0.1,
        "irm_lambda": 2.04779455554515,
        "irm_penalty_anneal_iters": 6533,
    }


def test_domainbed_draw_3_of_trial_1_for_dann_on_large_images() -> None:
    values = resolve(SHARED, _node("algorithm/dann"), kind="large", number=3, trial=1, read=READ)
    printed = {
        "lr_g": 1.6093683562061314e-05,
        "lr_d": 3.7604066589665945e-05,
        "lambda": 2.5427295555805163,
        "mlp_depth": 5,
        "weight_decay": 6.431270010222042e-05,
        "batch_size": 10,
    }
    assert printed.items() <= values.items()


def test_algorithms_share_a_draw_and_a_trial_changes_it() -> None:
    first, other = (
        resolve(SHARED, _node(f"algorithm/{name}"), kind="large", number=1, read=READ)
        for name in ("vrex", "sd")
    )
    assert first["lr"] == other["lr"]
    assert resolve(SHARED, ERM, kind="large", number=1, trial=1, read=READ)["lr"] != first["lr"]


@pytest.mark.parametrize(
    ("name", "args", "low", "high", "kind"),
    [
        ("uniform", [0.5, 1.0], 0.5, 1.0, float),
        ("log10_uniform", [-2, 1], 0.01, 10.0, float),
        ("log_uniform", [0.01, 10.0], 0.01, 10.0, float),
        ("int_uniform", [0, 5], 0, 4, int),
        ("int_log10_uniform", [0, 1], 1, 9, int),
        ("int_log2_uniform", [3, 5], 8, 31, int),
        ("randint", [1, 4], 1, 3, int),
        ("choice", ["a", "b"], "a", "b", str),
    ],
)
def test_a_distribution_stays_in_its_bounds_and_gives_native_values(
    name: str, args: list[Any], low: Any, high: Any, kind: type
) -> None:
    rng = np.random.RandomState(0)
    drawn = [DISTRIBUTIONS[name](rng, args) for _ in range(300)]
    assert all(type(value) is kind for value in drawn)
    assert low <= min(drawn) and max(drawn) <= high
    if kind is not float:
        assert {min(drawn), max(drawn)} == {low, high}


def test_single_stream_consumes_in_the_order_of_the_reference() -> None:
    """DANN, small images: dropout, lr, batch, then lr_g, lr_d, lambda, ...; a fixed weight decay
    consumes nothing.
    """
    stream = np.random.RandomState(seed_hash(2, 0))
    dropout = [0.0, 0.1, 0.5][stream.choice(3)]
    lr, batch = 10 ** stream.uniform(-4.5, -2.5), int(2 ** stream.uniform(3, 9))
    lr_g, lr_d = 10 ** stream.uniform(-4.5, -2.5), 10 ** stream.uniform(-4.5, -2.5)
    weight = 10 ** stream.uniform(-2, 2)
    read = list(SHARED["hparams"])
    values = resolve(
        SHARED, _node("algorithm/dann"), kind="small", number=2, rng="single_stream", read=read
    )
    expected = {
        "resnet_dropout": dropout,
        "lr": lr,
        "batch_size": batch,
        "lr_g": lr_g,
        "lr_d": lr_d,
        "lambda": weight,
    }
    assert expected.items() <= values.items()


def test_arm_on_large_images_uses_8_images_but_the_stream_goes_on() -> None:
    """The shared batch size is drawn before ARM's rule overrides it, so weight decay is the same as
    ERM's.
    """
    arm, erm = (
        resolve(SHARED, own, kind="large", number=4, rng="single_stream", read=READ)
        for own in (_node("algorithm/arm"), ERM)
    )
    assert arm["batch_size"] == 8
    assert arm["weight_decay"] == erm["weight_decay"]
    assert resolve(SHARED, _node("algorithm/arm"), kind="small", read=READ)["batch_size"] == 64


def test_yu2024_draws_between_bounds_with_the_seeds_of_its_search() -> None:
    """Its search ran with seed = data seed = 1, trial 0 here."""
    run_seed = seed_hash(1, 1, 5)
    lr = 10 ** np.random.RandomState(seed_hash(run_seed, "lr")).uniform(
        np.log10(1e-5), np.log10(3e-4)
    )
    values = resolve(
        SHARED, _node("algorithm/irm"), kind="large", space="yu2024", number=5, read=READ
    )
    assert values["lr"] == pytest.approx(lr, rel=1e-15)
    assert values["batch_size"] == 32
    assert 1e-5 <= values["irm_lambda"] <= 1e-1


def test_draw_0_is_the_default_set_of_the_kind() -> None:
    assert resolve(SHARED, ERM, kind="small", read=READ) == {
        "lr": 1e-3,
        "batch_size": 64,
        "weight_decay": 0.0,
    }
    assert resolve(SHARED, ERM, kind="large", read=READ) == {
        "lr": 5e-5,
        "batch_size": 32,
        "weight_decay": 0.0,
    }
    assert "resnet_dropout" in resolve(SHARED, ERM, kind="large", read=[*READ, "resnet_dropout"])


def test_the_strongest_value_wins() -> None:
    """chosen > draw (the algorithm's distribution) > the algorithm's default > the shared
    default.
    """
    own = {"hparams": {"lr": 2.0}, "search": {"domainbed": {"lr": {"choice": [3.0]}}}}
    assert resolve(SHARED, own, kind="small", read=READ)["lr"] == 2.0
    assert resolve(SHARED, own, kind="small", number=1, read=READ)["lr"] == 3.0
    assert resolve(SHARED, own, kind="small", number=1, chosen={"lr": 4.0}, read=READ)["lr"] == 4.0


@pytest.mark.parametrize("space", list(SHARED["search"]))
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_draws_in_every_space(name: str, space: str) -> None:
    own = _node(f"algorithm/{name}")
    for kind in ("small", "large"):
        default = resolve(SHARED, own, kind=kind, space=space, read=READ)
        drawn = resolve(SHARED, own, kind=kind, space=space, number=7, trial=2, read=READ)
        assert drawn.keys() == default.keys()
        assert drawn == resolve(SHARED, own, kind=kind, space=space, number=7, trial=2, read=READ)
        assert not [value for value in drawn.values() if isinstance(value, dict)]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"chosen": {"vrex": 1}},
            "hparams.vrex.*read.*nothing.*study.*lr, batch_size",
        ),
        ({"space": "mine"}, "hparams.space mine.*unknown.*domainbed, ood_bench, yu2024"),
        ({"kind": None}, "dataset.image_kind None.*unknown.*small, large"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        resolve(SHARED, ERM, **{"kind": "small", "read": READ, **changes})


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"normal": [0, 1]}, "normal.*unknown.*uniform"),
        ([0, 1], "is no distribution"),
        ({}, "is no dist"),
    ],
)
def test_an_unknown_distribution_is_refused(how: Any, match: str) -> None:
    own = {"hparams": {"x": 1}, "search": {"domainbed": {"x": how}}}
    with pytest.raises(ConfigError, match=match):
        resolve(SHARED, own, kind="small", number=1)


def test_a_drawn_name_needs_a_default() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.search\.domainbed\.x has no default"):
        resolve(
            SHARED, {"hparams": {}, "search": {"domainbed": {"x": {"choice": [1]}}}}, kind="small"
        )
