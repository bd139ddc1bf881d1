"""Frozen parts stand still, in single and stacked execution, for every algorithm."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dgbench.batches import EnvBatch
from dgbench.containers import Networks
from dgbench.data.minibatches import EnvironmentData
from dgbench.errors import ConfigError
from dgbench.training.modules import SingleRun, StackedRuns
from tests.studies import small_study
from tests.training.test_stacked import (
    ALGORITHMS,
    DOUBLE,
    fit,
    module_of,
    modules_of,
    rows_of,
    run,
    stack_of,
    together,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
STEPS = 3
AT_ONCE = {"ddg": ("hparams.translator_steps=0",)}  # where the classifier would learn later only
#: of the others, clipood never trains the classifier, and is refused
PROBED = [name for name in ALGORITHMS if name != "clipood"]
LP = ("tuning=lp", "hparams.weight_decay=0.1")  # a decay would move what has no gradient


def _together(modules: list[SingleRun], data: list[EnvironmentData]) -> list[SingleRun]:
    stack = stack_of(modules)
    fit(stack, together(data, STEPS))
    return [stack.write_back(i) for i in range(len(modules))]


def _featurizer(module: SingleRun) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in module.networks["featurizer"].state_dict().items()}


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", PROBED)
def test_linear_probing_moves_heads_only(algorithm: str, tmp_path: Path) -> None:
    """Three steps with weight decay: the featurizer's tensors bit for bit, the classifier's not."""
    study = small_study(tmp_path, f"algorithm={algorithm}", *LP, *AT_ONCE.get(algorithm, ()))
    runs = study.runs[:2]
    modules = modules_of(runs)
    before = copy.deepcopy(modules)
    alone = module_of(runs[0])
    fit(alone, runs[0].data.batches(0, STEPS))
    assert all(p.grad is None for p in alone.networks["featurizer"].parameters())
    held = [p for o in _optimizers(alone) for group in o.param_groups for p in group["params"]]
    assert {id(p) for p in held}.isdisjoint(
        {id(p) for p in alone.networks["featurizer"].parameters()}
    )
    for start, end in [
        (before[0], alone),
        *zip(before, _together(modules, [own.data for own in runs]), strict=True),
    ]:
        features = _featurizer(start)
        assert all(torch.equal(value, features[key]) for key, value in _featurizer(end).items())
        assert not any(
            torch.equal(p, q)
            for p, q in zip(
                start.networks["classifier"].parameters(),
                end.networks["classifier"].parameters(),
                strict=True,
            )
        )


def _optimizers(module: SingleRun) -> list[torch.optim.Optimizer]:
    found = module.optimizers()
    return list(found) if isinstance(found, list) else [found]  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["erm", "iga", "mldg", "sag_net", "erdg"])
def test_a_stack_of_frozen_networks_equals_single_runs(algorithm: str, tmp_path: Path) -> None:
    """Two seeds, so two frozen featurizers, and two folds, in double precision."""
    torch.set_default_dtype(torch.float64)
    try:
        first = small_study(tmp_path, f"algorithm={algorithm}", DOUBLE, *LP)
        other = small_study(
            tmp_path, f"algorithm={algorithm}", DOUBLE, *LP, "seed=1", source=first.source
        )
        runs = [first.runs[0], other.runs[2]]
        modules = modules_of(runs)
        alone = copy.deepcopy(modules)
        for module, own in zip(alone, runs, strict=True):
            fit(module, own.data.batches(0, STEPS))
        for one, both in zip(alone, _together(modules, [own.data for own in runs]), strict=True):
            for key, value in one.state_dict().items():
                torch.testing.assert_close(both.state_dict()[key], value, rtol=1e-9, atol=1e-9)
    finally:
        torch.set_default_dtype(torch.float32)


def test_equal_frozen_weights_are_kept_once(tmp_path: Path) -> None:
    """Folds of one seed share their frozen featurizer, seeds do not."""
    first = small_study(tmp_path, *LP)
    other = small_study(tmp_path, *LP, "seed=1", source=first.source)
    weight = "featurizer.layers.1.weight"
    for studies, leading in (([first, first], ()), ([first, other], (2,))):
        stack = StackedRuns([study.module(study.folds[i]) for i, study in enumerate(studies)])
        batches = [study.runs[i].data.batches(0, 1)[0] for i, study in enumerate(studies)]
        fit(
            stack,
            [
                EnvBatch(
                    torch.stack([b.x for b in batches]),
                    torch.stack([b.y for b in batches]),
                    batches[0].sizes,
                )
            ],
        )
        assert stack.constants[weight].shape == (
            *leading,
            *first.module(first.folds[0]).networks.constants()[weight].shape,
        )
        assert not any(name.startswith("featurizer") for name in stack.params)


class Normed(nn.Module):
    n_features = 4

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def test_what_is_frozen_computes_as_in_evaluation() -> None:
    """BatchNorm keeps and uses its statistics, dropout is off, also after ``train()`` of what
    surrounds it.
    """
    networks = Networks({"featurizer": Normed(), "classifier": nn.Linear(4, 2)})
    networks.freeze([networks["featurizer"]], networks["featurizer"].parameters())
    outer = nn.ModuleList([networks]).train()
    x = torch.randn(8, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    norm = networks["featurizer"].layers[2]
    before = norm.running_mean.clone()
    assert torch.equal(networks.featurizer(x), networks.featurizer(x))
    assert torch.equal(norm.running_mean, before)
    assert networks["classifier"].training
    assert sorted(networks.params()) == ["classifier.bias", "classifier.weight"]
    assert len(networks.constants()) == 4
    copy.deepcopy(outer).train()


@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_rows_say_what_was_trained(mode: str, tmp_path: Path) -> None:
    """MLP of width 8 on 2 x 8 x 8 pixels: 129 * 8 + 9 * 8 = 1,104; head 9 * 2 = 18."""
    rows = {}
    for tuning in ("ft", "lp"):
        study, _ = run(tmp_path, mode, f"tuning={tuning}", "protocol.folds=[0]")
        rows[tuning] = rows_of(study.runs[0])[0]
        assert ("-lp-" in study.folder.name) == (tuning == "lp")
    assert [(r["tuning"], r["n_trainable"], r["n_parameters"]) for r in rows.values()] == [
        ("ft", 1122, 1122),
        ("lp", 18, 1122),
    ]
    assert rows["ft"]["run"] != rows["lp"]["run"]


@pytest.mark.parametrize("value", ["-1", "some", "1.5", "null"])
def test_bad_number_of_stages(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tuning.freeze_stages=.*number.*stages"):
        small_study(tmp_path, "tuning=freeze", f"tuning.freeze_stages={value}")


@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_frozen_stages_stand_still_and_later_ones_move(mode: str, tmp_path: Path) -> None:
    """The first two of four convolutions with their norms, bit for bit, with weight decay."""
    words = ("backbone=mnist_cnn", "backbone.min_size=8", "tuning=freeze", "tuning.freeze_stages=2",
             "hparams.weight_decay=0.1", "algorithm=mldg")  # fmt: skip
    study = small_study(tmp_path, *words)
    own, module = study.runs[0], study.module(study.folds[0])
    before = _featurizer(module)
    if mode == "single":
        fit(module, own.data.batches(0, STEPS))
    else:
        (module,) = _together([module], [own.data])
    moved = {
        key for key, value in _featurizer(module).items() if not torch.equal(value, before[key])
    }
    assert moved == {
        f"{kind}.{i}.{part}"
        for kind in ("convs", "norms")
        for i in (2, 3)
        for part in ("weight", "bias")
    }
    assert own.identity(module).tuning == "freeze2"


@pytest.mark.parametrize("algorithm", ["erm", "dann", "fishr", "mldg"])
def test_head_first_in_a_stack_equals_single_runs(algorithm: str, tmp_path: Path) -> None:
    """Two steps of the head, then one of everything; resets, own gradients and several groups among
    them.
    """
    words = (
        f"algorithm={algorithm}",
        DOUBLE,
        "tuning=lp_ft",
        "tuning.head_steps=2",
        "tuning.head_lr=0.01",
    )
    torch.set_default_dtype(torch.float64)
    try:
        first = small_study(tmp_path, *words)
        runs = [first.runs[0], small_study(tmp_path, *words, "seed=1", source=first.source).runs[2]]
        modules = modules_of(runs)
        alone, start = copy.deepcopy(modules), _featurizer(modules[0])
        for module, own in zip(alone, runs, strict=True):
            fit(module, own.data.batches(0, STEPS))
        for one, both in zip(alone, _together(modules, [own.data for own in runs]), strict=True):
            for key, value in one.state_dict().items():
                torch.testing.assert_close(both.state_dict()[key], value, rtol=1e-9, atol=1e-9)
        two = module_of(runs[0])
        fit(two, runs[0].data.batches(0, 2))
        assert all(torch.equal(value, start[key]) for key, value in _featurizer(two).items())
        assert not torch.equal(_featurizer(alone[0])["layers.1.weight"], start["layers.1.weight"])
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tuning.head_steps=-1", "tuning.head_steps=-1.*integer >= 0"),
        ("tuning.head_steps=1.5", "tuning.head_steps=1.5.*integer >= 0"),
        ("tuning.head_lr=0", "tuning.head_lr=0.*number > 0"),
        ("trainer.steps=500", "tuning.head_steps=500 leaves none of trainer.steps=500"),
    ],
)
def test_head_first_with_bad_numbers(word: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        small_study(tmp_path, "tuning=lp_ft", word)


def test_more_stages_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"freeze_stages=2 leaves nothing.*2-stage backbone.*most 1"
    ):
        small_study(tmp_path, "tuning=freeze", "tuning.freeze_stages=2")
