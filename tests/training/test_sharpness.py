"""Sharpness-aware training around an algorithm: what it equals, what it goes with, and what it
refuses.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import get_class
from omegaconf import OmegaConf
from torch import Tensor

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.sharpness import GSAM, SAM
from dgbench.plan.studies import planned_again
from dgbench.records.rows import ROW_FILE
from dgbench.reports.labels import algorithm_labels
from dgbench.training.modules import SingleRun
from tests.complaints import refused
from tests.studies import (
    composed,
    groups_of,
    make_plan,
    plain,
    small_study,
    stopping_at,
    train_study,
)
from tests.training.test_stacked import DOUBLE, both_ways, fit, module_of, modules_of, rows_of

pytestmark = pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
# with BatchNorm, whose running statistics count passes
NORMED = (
    "backbone=mnist_cnn",
    "backbone.min_size=8",
)
STEPS = 4
#: those that train other networks first -> what makes them train the featurizer within
#: :data:`STEPS`
BEGINS_ELSEWHERE = {"erm_pp": "hparams.linear_steps=0", "ddg": "hparams.translator_steps=1"}


def kind_of(name: str) -> type[Algorithm]:
    config: Any = OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")
    kind: type[Algorithm] = get_class(config.objective)
    return kind


ALL = [path.stem for path in sorted((CONF / "algorithm").glob("*.yaml"))]
SHARP = [name for name in ALL if not kind_of(name).why_not_sharp]


def trained(folder: Path, *words: str, steps: int = STEPS) -> SingleRun:
    """The first fold's module after some steps."""
    run = small_study(folder, DOUBLE, *words).runs[0]
    module = module_of(run)
    module.collects = True
    fit(module, run.data.batches(0, steps))
    return module


def far(one: SingleRun, other: SingleRun) -> float:
    """Largest difference of a parameter, a statistic or a network's buffer."""
    pairs = zip(
        one.networks.state_dict().values(), other.networks.state_dict().values(), strict=True
    )
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("around", "algorithm"),
    [
        (("sharpness=sam", "sharpness.rho=0.3"), ("algorithm=sam", "hparams.rho=0.3")),
        (
            ("sharpness=gsam", "sharpness.rho=0.3", "sharpness.alpha=0.4"),
            ("algorithm=sam", "hparams.sharpness=gsam", "hparams.rho=0.3", "hparams.alpha=0.4"),
        ),
        (
            ("sharpness=sagm", "sharpness.rho=0.3", "sharpness.alpha=0.02"),
            ("algorithm=sagm", "hparams.rho=0.3", "hparams.alpha=0.02"),
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "beside", [(), ("tuning=lp",), ("hparams.weight_decay=0.1", "trainer.gradient_clip=0.1")]
)
def test_around_erm_it_is_the_algorithm(
    around: tuple[str, ...],
    algorithm: tuple[str, ...],
    beside: tuple[str, ...],
    double: None,
    tmp_path: Path,
) -> None:
    """Weights, running statistics, losses and logs; and it is not ERM."""
    one, other = (
        trained(tmp_path, *words, *NORMED, *beside)
        for words in (("algorithm=erm", *around), algorithm)
    )
    assert far(one, other) < 1e-9
    assert far(one, trained(tmp_path, "algorithm=erm", *NORMED, *beside)) > 1e-4
    expected = {(step, name): values[0] for step, name, values in other.take_values()}
    found = {(step, name): values[0] for step, name, values in one.take_values()}
    assert {name for _, name in found} == {"loss", "sharpness", "gradient_norm"}
    assert all(abs(value - expected[key]) < 1e-9 for key, value in found.items())


def test_no_climb_is_the_algorithm_itself(double: None, tmp_path: Path) -> None:
    for name in ("vrex", "dann", "sag_net", "mtl"):
        words = (f"algorithm={name}", "hparams.batch_size=6")
        raised = trained(tmp_path, *words, "sharpness=sam", "sharpness.rho=1e-12")
        assert far(raised, trained(tmp_path, *words)) < 1e-9, name


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["sam", "gsam", "sagm"])
@pytest.mark.parametrize("algorithm", ["vrex", "dann", "mtl"])
def test_a_stack_equals_single_runs(
    algorithm: str, method: str, double: None, tmp_path: Path
) -> None:
    words = (f"algorithm={algorithm}", DOUBLE, f"sharpness={method}", "sharpness.rho=0.3")
    first = small_study(tmp_path, *words)
    other = small_study(tmp_path, *words, "seed=1", source=first.source)
    runs = [first.runs[0], other.runs[3]]
    assert both_ways(modules_of(runs), [own.data for own in runs], 4) < 1e-9


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", SHARP)
def test_every_algorithm_that_allows_it(algorithm: str, double: None, tmp_path: Path) -> None:
    """Finite, unlike the plain one, and in a stack as alone."""
    words = (f"algorithm={algorithm}", DOUBLE, "sharpness=sam", "sharpness.rho=0.3")
    first = small_study(tmp_path, *words)
    runs = [first.runs[0], small_study(tmp_path, *words, "seed=1", source=first.source).runs[0]]
    if first.algorithm.stackable:
        assert both_ways(modules_of(runs), [own.data for own in runs], 3) < 1e-9
    moving = BEGINS_ELSEWHERE.get(algorithm, "seed=0")
    raised = trained(tmp_path, *words, moving)
    assert all(value.isfinite().all() for value in raised.networks.state_dict().values())
    assert far(raised, trained(tmp_path, f"algorithm={algorithm}", moving)) > 1e-6


def test_a_discriminator_alone_is_not_raised(double: None, tmp_path: Path) -> None:
    """DANN with two steps of the discriminator begins with one of them; the next step is the
    others'.
    """
    words = ("algorithm=dann", "hparams.d_steps_per_g_step=2")
    for steps, same in ((1, True), (2, False)):
        raised = trained(tmp_path, *words, "sharpness=sam", "sharpness.rho=0.3", steps=steps)
        assert (far(raised, trained(tmp_path, *words, steps=steps)) == 0) == same
        assert ("gradient_norm" in {name for _, name, _ in raised.take_values()}) != same


def test_what_is_remembered_is_of_the_first_pass(double: None, tmp_path: Path) -> None:
    words = ("algorithm=mtl", "hparams.variant=fixed")
    raised, plainly = (
        trained(tmp_path, *words, *more, steps=1) for more in (("sharpness=sam",), ())
    )
    torch.testing.assert_close(
        raised.memory.tensors(), plainly.memory.tensors(), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("algorithm", ["erm", "vrex", "sag_net"])
def test_head_first(algorithm: str, double: None, tmp_path: Path) -> None:
    """The head climbs alone while it learns alone; a stack does alike."""
    words = (
        f"algorithm={algorithm}",
        "sharpness=sam",
        "sharpness.rho=0.3",
        "tuning=lp_ft",
        "tuning.head_steps=2",
    )

    def featurizer(module: SingleRun) -> dict[str, Tensor]:
        return dict(module.networks["featurizer"].named_parameters())

    start = module_of(small_study(tmp_path, DOUBLE, *words).runs[0])
    before = copy.deepcopy(featurizer(start))
    head, whole = (trained(tmp_path, *words, steps=steps) for steps in (2, 3))
    assert all(torch.equal(value, before[key]) for key, value in featurizer(head).items())
    assert not any(torch.equal(value, before[key]) for key, value in featurizer(whole).items())
    plainly = trained(tmp_path, *(words[:1] + words[3:]), steps=2)
    assert far(head, plainly) > 1e-6
    study = small_study(tmp_path, DOUBLE, *words)
    runs = study.runs[:2]
    assert both_ways(modules_of(runs), [own.data for own in runs], 4) < 1e-9


@pytest.mark.parametrize("averaging", ["swad", "eoa"])
def test_with_averaged_weights_interrupted_too(averaging: str, tmp_path: Path) -> None:
    """Rows of a run that was stopped and resumed equal those of one in a go, and say what made
    them.
    """
    start = "averaging.rule.start=3" if averaging == "eoa" else "averaging.rule.n_converge=1"
    words = (
        start, "algorithm=vrex", "sharpness=sam", f"averaging={averaging}", "trainer.steps=12",
        "trainer.eval_every=2", "trainer.checkpoint_seconds=0", "protocol.folds=[0]",
    )  # fmt: skip
    whole, again = (small_study(tmp_path / name, *words) for name in ("whole", "again"))
    assert all(train_study(whole).values())
    with stopping_at(7):
        train_study(again)
    assert all(train_study(again).values())
    rows = rows_of(whole.runs[0])
    assert rows and rows == rows_of(again.runs[0])
    assert rows[0]["averaging"] == averaging
    assert (rows[0]["hparams"]["sharpness.name"], rows[0]["hparams"]["sharpness.rho"]) == (
        "sam",
        0.05,
    )
    assert algorithm_labels([rows[0]]) == [f"vrex+{averaging} (sharpness=sam)"]


def test_rows_of_a_stack_say_it_and_plain_rows_do_not(tmp_path: Path) -> None:
    words = ("trainer.steps=2", "trainer.eval_every=2", "protocol.folds=[0,1]", "execution=stacked")
    rows = []
    gsam = ("sharpness=gsam", "sharpness.alpha=0.3")
    for more in ((), ("sharpness=sam",), gsam, ("sharpness=sam", "hparams.draw=2")):
        study = small_study(tmp_path, "algorithm=vrex", *words, *more)
        assert [len(group.runs) for group in groups_of(study)] == [2]
        train_study(study)
        rows.append(json.loads((study.runs[0].folder / ROW_FILE).read_text().splitlines()[0]))
    assert not any(key.startswith("sharpness") for key in rows[0]["hparams"])
    assert (
        rows[2]["hparams"].items()
        >= {"sharpness.name": "gsam", "sharpness.alpha": 0.3, "sharpness.rho": 0.05}.items()
    )
    names = ["vrex", "vrex (sharpness=sam)", "vrex (sharpness=gsam)"]
    assert algorithm_labels(rows[:3]) == names
    # draws of a search around SAM are none of a search without it
    assert algorithm_labels([rows[0], rows[3]], searches=True) == names[:2]
    one, other = rows[1], {**rows[1], "hparams": {**rows[1]["hparams"], "sharpness.rho": 0.1}}
    assert algorithm_labels([one, other]) == [
        f"vrex (sharpness=sam, sharpness.rho={rho})" for rho in (0.05, 0.1)
    ]


def test_other_methods_are_no_stack(tmp_path: Path) -> None:
    """Runs share a stack when they climb alike."""
    from dgbench.training.groups import plan_groups

    first = small_study(tmp_path, "execution=stacked")
    more = [("sharpness=sam",), ("sharpness=sam", "sharpness.rho=0.1"), ("sharpness=sam", "seed=1")]
    studies = [
        first,
        *(
            small_study(tmp_path, "execution=stacked", *words, source=first.source)
            for words in more
        ),
    ]
    runs = [study.runs[0] for study in studies]
    found = [
        [runs.index(run) for run in group.runs]
        for group in plan_groups(runs, first.config["execution"])
    ]
    assert sorted(map(sorted, found)) == [[0], [1, 3], [2]]


# ---- identity


def test_runs_keep_their_names(tmp_path: Path) -> None:
    """Hashes as of version 0.3, which no later one changes; configurations older than the key are
    read, too.
    """
    words = ("algorithm=vrex", "dataset.base=digits")
    planned = make_plan(tmp_path, *words)
    assert planned.folder.name == "sr_cmnist-vrex-mlp-390-s0-bfcc19365333"
    assert planned.run_spec(planned.folds[0]).digest == "2741e2c1f5a3"
    config = plain(composed(*words))
    del config["sharpness"]
    assert planned_again(config, tmp_path).spec.digest == planned.spec.digest


def test_with_it_every_value_counts(tmp_path: Path) -> None:
    more = [(), ("sharpness=sam",), ("sharpness=sam", "sharpness.rho=0.1"), ("sharpness=gsam",),
        ("sharpness=sagm",),
            ("sharpness=gsam", "sharpness.alpha=0.2"),
            ("sharpness=sam", "sharpness.name=mine")]  # fmt: skip
    plans = [make_plan(tmp_path, "dataset.base=digits", *words) for words in more]
    assert len({planned.spec.digest for planned in plans}) == len(more)


# ---- refusals


@pytest.mark.parametrize("algorithm", [name for name in ALL if name not in SHARP])
def test_what_makes_its_own_gradients_is_refused(algorithm: str, tmp_path: Path) -> None:
    message = (
        f"sharpness=gsam cannot be used with algorithm={algorithm}: .*; set sharpness=none or "
        "choose another"
    )
    with refused(message):
        small_study(tmp_path, f"algorithm={algorithm}", "sharpness=gsam")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("word", ["trainer.accumulate=2", "trainer.devices=2"])
def test_parts_of_a_minibatch_are_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=rf"sharpness=sam cannot go with {word}:.*; set.*=1 or sharpness=none"
    ):
        small_study(tmp_path, "sharpness=sam", word)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["-1", "x", "true", "null", "inf"])
def test_numbers_that_cannot_work(value: str, tmp_path: Path) -> None:
    for words, key in (
        (("sharpness=sam",), "rho"),
        (("sharpness=gsam",), "alpha"),
        (("sharpness=sagm",), "alpha"),
    ):
        with pytest.raises(ConfigError, match=rf"sharpness\.{key}=\S+.*number >"):
            small_study(tmp_path, *words, f"sharpness.{key}={value}")


def test_methods_are_equal_by_value() -> None:
    assert SAM(0.05) == SAM() != SAM(0.1)
    assert hash(GSAM(0.05, 0.1)) == hash(GSAM())
    assert GSAM() != SAM()
