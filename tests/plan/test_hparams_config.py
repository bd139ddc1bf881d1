"""Hyperparameters as a user types them, through the configuration tree."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dgbench.errors import ConfigError
from dgbench.plan.hyperparameters import hyperparameters
from dgbench.plan.settings import TrainerSettings
from tests.studies import composed, plain


def _resolved(*overrides: str) -> dict[str, Any]:
    config = plain(composed(*overrides))
    return hyperparameters(config, TrainerSettings(**config["trainer"]), 0)


def test_a_draw_reaches_the_study() -> None:
    values = _resolved("algorithm=irm", "hparams.draw=3", "hparams.trial=1")
    assert (values["lr"], values["batch_size"]) == (0.0021690714686971317, 14)
    assert "resnet_dropout" not in values


def test_typed_values_beat_a_draw() -> None:
    values = _resolved("hparams.draw=3", "hparams.lr=0.5", "hparams.batch_size=10")
    assert (values["lr"], values["batch_size"]) == (0.5, 10)


def test_a_drawn_batch_is_cut_to_the_smallest_environment_and_a_typed_one_refused() -> None:
    """Draw 1 of trial 0 has 372 images."""
    config = plain(composed("hparams.draw=1"))
    settings = TrainerSettings(**config["trainer"])
    assert hyperparameters(config, settings, 0)["batch_size"] == 372
    assert hyperparameters(config, settings, 308)["batch_size"] == 308
    config["hparams"]["batch_size"] = 372
    with pytest.raises(
        ConfigError, match=r"hparams.batch_size=372 is larger .* set hparams.batch_size=308 or less"
    ):
        hyperparameters(config, settings, 308)


def test_the_algorithms_batch_rule_reaches_the_study() -> None:
    assert _resolved("algorithm=arm", "dataset.image_kind=large")["batch_size"] == 8
    assert (
        _resolved("algorithm=arm", "dataset.image_kind=large", "hparams.batch_size=4")["batch_size"]
        == 4
    )


def test_a_shared_value_that_this_algorithm_does_not_read_is_for_others() -> None:
    """DANN has rates of its own; a sweep over algorithms may set the shared one."""
    assert "lr" not in _resolved("algorithm=dann", "hparams.lr=0.5")
    assert _resolved("algorithm=dann", "hparams.lr_g=0.5")["lr_g"] == 0.5


def test_a_backbone_gets_the_shared_values_it_asks_for() -> None:
    values = _resolved(
        "+backbone.hparams={dropout: resnet_dropout}", "hparams.draw=3", "hparams.trial=1"
    )
    assert values["resnet_dropout"] == 0.1


def test_any_known_key_can_be_set_without_a_plus() -> None:
    assert _resolved("algorithm=vrex", "hparams.vrex_lambda=3")["vrex_lambda"] == 3


@pytest.mark.parametrize(
    ("override", "match"),
    [
        ("hparams.vrex_lambda=3", "hparams.vrex_lambda.*read.*nothing.*study.*lr"),
        ("hparams.lr=fast", "hparams.lr=fast.*number"),
        ("hparams.set=3", "hparams.set is set by hparams.NAME"),
        ("hparams.batch_size=0", "hparams.batch_size=0.*integer >= 1"),
    ],
)
def test_what_cannot_work_is_refused(override: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        _resolved(override)


def test_a_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hparams.vrex_lambda=much.*number"):
        _resolved("algorithm=vrex", "hparams.vrex_lambda=much")


def test_drawing_needs_no_torch() -> None:
    code = "import sys, dgbench.plan.hyperparameters; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
