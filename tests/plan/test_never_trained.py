"""What training would refuse after a while, or would do in vain, is refused when it is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgbench.plan.overrides import open_keys
from dgbench.plan.settings import check_configuration
from dgbench.plan.studies import Planner
from dgbench.sweeps.plan import Judged, print_plan
from dgbench.sweeps.sizes import JobSize
from tests.complaints import refused
from tests.studies import composed, composer, plain

STOPPING = "callbacks=early_stopping"
SMALL = ("dataset.base=digits", "trainer.device=cpu", "trainer.steps=8", "trainer.eval_every=4")
REFUSED = {
    f"{STOPPING} callbacks.early_stopping.monitor=nope": (
        r"monitor=nope is not logged .*error/training_val"
    ),
    f"{STOPPING} callbacks.early_stopping.monitor=error/trainin_val": (
        r"did you mean error/training_val\?"
    ),
    f"{STOPPING} callbacks.early_stopping.monitor=error/val/0.81x": r"did you mean error/val/",
    f"{STOPPING} callbacks.early_stopping.monitor=null": r"early_stopping\.monitor=null",
    # not of fold full
    f"{STOPPING} callbacks.early_stopping.monitor=error/held_out": r"monitor=error/held_out",
    f"{STOPPING} averaging=swad averaging.rule.n_converge=1": (
        r"monitor=error/training_val .*val/loss"
    ),
    f"{STOPPING} callbacks.early_stopping.patience=-3": r"early_stopping\.patience=-3 .*0 or more",
    f"{STOPPING} callbacks.early_stopping.patience=1.5": (
        r"early_stopping\.patience=1\.5 .*0 or more"
    ),
    f"{STOPPING} callbacks.early_stopping.patience=abc": (
        r"early_stopping\.patience=abc .*0 or more"
    ),
    f"{STOPPING} callbacks.early_stopping.min_delta=nan": r"early_stopping\.min_delta=nan .*>= 0",
    f"{STOPPING} callbacks.early_stopping.min_delta=-1": r"early_stopping\.min_delta=-1 .*>= 0",
    "+callbacks.mine._target_=pytorch_lightning.callbacks.ModelCheckpoint": (
        r"callbacks\.mine.*checkpoint_seconds"
    ),
    "+callbacks.mine._target_=pytorch_lightning.callbacks.Timer +callbacks.mine.duration=soon": (
        r"callbacks\.mine"
    ),
    "backbone.width=1e9": r"backbone\.width=1000000000\.0 is not a positive number of units",
    "backbone.width=true": r"backbone\.width=True is not a positive number of units",
    "backbone.width=1000000000": r"GB of weights.*lower backbone\.width",
    "backbone.width=2000000": r"GB of weights.*lower backbone\.width",
    "seed_moves=inputs": r"seed_moves=inputs changes nothing for algorithm=erm",
    "seed_moves=inputs algorithm=vrex": r"seed_moves=inputs changes nothing for algorithm=vrex",
}
ACCEPTED = (
    STOPPING,
    f"{STOPPING} callbacks.early_stopping.monitor=train/penalty algorithm=irm",
    f"{STOPPING} callbacks.early_stopping.monitor=error/held_out protocol.folds=[0]",
    (
        f"{STOPPING} callbacks.early_stopping.monitor=val/loss averaging=swad "
        "averaging.rule.n_converge=1"
    ),
    "backbone.width=5000",
    "seed_moves=inputs algorithm=mixup",
    "seed_moves=inputs algorithm=stable_net",
    "seed_moves=weights",
)


def judge(words: str, folder: Path) -> None:
    """Plan a study and judge it as a plan does."""
    check_configuration(plain(composed(*SMALL, *words.split())))
    for study in Planner(composer(), folder).studies(open_keys([*SMALL, *words.split()])):
        Judged().add(study)


@pytest.mark.parametrize("words", REFUSED)
def test_a_plan_refuses_it(words: str, tmp_path: Path) -> None:
    with refused(REFUSED[words]):
        judge(words, tmp_path)


@pytest.mark.parametrize("words", ACCEPTED)
def test_a_plan_accepts_it(words: str, tmp_path: Path) -> None:
    judge(words, tmp_path)


def test_halving_without_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan says it before it prints anything of the search."""
    words = [*SMALL, "hparams=halving", "hparams.scheme.draws=4", "trainer.steps=0"]
    planner = Planner(composer(), tmp_path)
    size = JobSize.alone("cpu")
    with refused(r"hparams=halving .*trainer\.steps=0.*set trainer\.steps"):
        print_plan([open_keys(words)], planner, starts=False, size=size)
    assert not list(tmp_path.iterdir())
