"""Methods that look at images, or remember something of each, on a stack with a convolutional
network.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studies import small_study
from tests.training.test_stacked import both_ways, modules_of

CNN = ("backbone=mnist_cnn", "backbone.min_size=8", "trainer.precision=64-true", "trainer.steps=5")
RUNS = {
    "stable_net": ("hparams.lambdap=0.05", "hparams.warm_steps=2"),
    "dna": (),
    "fact": ("hparams.temperature=1", "hparams.ramp_epochs=0", "hparams.partner=mutual"),
    "ji_gen": ("hparams.beta=0.3",),
    "mmld": ("hparams.rounds=2",),
    "ada_clust": (
        "hparams.clust_epoch=1",
        "hparams.batch_size=64",
    ),
}


@pytest.mark.thorough
@pytest.mark.usefixtures("double")
@pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
@pytest.mark.parametrize("name", RUNS)
def test_stacked_equals_single_runs(name: str, tmp_path: Path) -> None:
    """Two seeds and two folds; surveys come more than once."""
    words = (f"algorithm={name}", *CNN, *RUNS[name])
    first = small_study(tmp_path, *words)
    other = small_study(tmp_path, *words, "seed=1", source=first.source)
    runs = [first.runs[0], first.runs[2], other.runs[3]]
    assert both_ways(modules_of(runs), [own.data for own in runs], 5) < 1e-9
