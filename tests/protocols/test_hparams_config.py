"""Hyperparameters as a user types them, through the configuration tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from dgbench.cli.entry import open_key
from dgbench.cli.hyperparameters import hyperparameters
from dgbench.errors import ConfigError

ROOT = Path(__file__).parents[2]


def _resolved(*overrides: str) -> tuple[Any, dict[str, Any]]:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", [open_key(word) for word in overrides])
    return hyperparameters(config, {"variant"})


def test_a_draw_reaches_the_trainer() -> None:
    trainer, values = _resolved("algorithm=irm", "hparams.draw=3", "hparams.trial=1")
    assert (trainer.lr, trainer.batch_size) == (values["lr"], values["batch_size"]) == (0.0021690714686971317, 14)
    assert "resnet_dropout" not in values


def test_typed_values_and_set_beat_a_draw() -> None:
    trainer, values = _resolved("hparams.draw=3", "trainer.lr=0.5", "trainer.batch_size=9", "hparams.set.batch_size=10")
    assert (trainer.lr, trainer.batch_size) == (values["lr"], values["batch_size"]) == (0.5, 10)


def test_the_algorithms_batch_rule_reaches_the_trainer() -> None:
    assert _resolved("algorithm=arm", "dataset.image_kind=large")[0].batch_size == 8
    assert _resolved("algorithm=arm", "dataset.image_kind=large", "trainer.batch_size=4")[0].batch_size == 4


def test_a_backbone_gets_the_shared_values_it_asks_for() -> None:
    _, values = _resolved("+backbone.hparams={dropout: resnet_dropout}", "hparams.draw=3", "hparams.trial=1")
    assert values["resnet_dropout"] == 0.1


def test_any_known_key_can_be_set_without_a_plus() -> None:
    assert _resolved("algorithm=vrex", "hparams.set.vrex_lambda=3")[1]["vrex_lambda"] == 3
    assert _resolved("algorithm=vrex", "hparams.set={vrex_lambda: 4}")[1]["vrex_lambda"] == 4


@pytest.mark.parametrize(
    ("override", "match"),
    [
        ("hparams.set.vrex_lambda=3", "vrex_lambda is unknown; choose from lr"),
        ("hparams.set.lr=fast", "trainer.lr: .*fast"),
        ("hparams.set=3", "hparams.set=3 is no mapping"),
        ("trainer.batch_size=0", "trainer.batch_size=0 is not at least 1"),
    ],
)
def test_what_cannot_work_is_refused(override: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        _resolved(override)


def test_a_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="hyperparameter vrex_lambda=much is not a number"):
        _resolved("algorithm=vrex", "hparams.set.vrex_lambda=much")


def test_drawing_needs_no_torch() -> None:
    code = "import sys, dgbench.protocols.hparams; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
