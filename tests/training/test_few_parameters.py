"""``tuning=lora``, ``bias`` and ``norm``: what learns, alone, in stacks and after a kill."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.networks.timm_networks import TimmFeaturizer
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.trained.loading import load_one
from dgbench.training.frozen_weights import complete
from dgbench.training.modules import SingleRun
from dgbench.training.study import ReadyRun
from dgbench.training.tuning import Tuning
from tests.studies import make_plan, small_study, stopping_at, train_study
from tests.training.test_stacked import DOUBLE, fit, module_of, modules_of, stack_of, together

pytestmark = pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
STEPS = 3
DECAY = "hparams.weight_decay=0.1"  # would move what has no gradient
LORA = ("tuning=lora", "tuning.rank=2", DECAY)
#: of one loss, several optimizers, a frozen copy, a climb, a memory, a context
ALGORITHMS = ["erm", "dann", "miro", "sam", "iga", "fish", "arm"]


def _trained(run: ReadyRun) -> tuple[SingleRun, SingleRun]:
    """The module of a run before and after three steps."""
    module = module_of(run)
    before = copy.deepcopy(module)
    fit(module, run.data.batches(0, STEPS))
    return before, module


def _moved(before: nn.Module, after: nn.Module) -> set[str]:
    start: dict[str, Tensor] = before.state_dict()
    return {name for name, end in after.state_dict().items() if not torch.equal(start[name], end)}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_low_rank_parts_and_heads_move_alone(algorithm: str, tmp_path: Path) -> None:
    """Two layers, A and B of each; further networks have none."""
    study = small_study(tmp_path, f"algorithm={algorithm}", *LORA)
    before, after = _trained(study.runs[0])
    parts = {name for name in before.networks.state_dict() if "low_rank" in name}
    moved = _moved(before.networks, after.networks)
    assert {name for name in moved if name.startswith("featurizer.")} == parts
    assert len(parts) == 4
    assert any(name.startswith("classifier.") for name in moved)


def test_biases_move_alone(tmp_path: Path) -> None:
    study = small_study(tmp_path, "tuning=bias", DECAY)
    before, after = _trained(study.runs[0])
    moved = _moved(before.networks["featurizer"], after.networks["featurizer"])
    assert moved == {"layers.1.bias", "layers.3.bias"}


@pytest.mark.parametrize("arch", ["test_resnet", "test_vit2"])
@pytest.mark.parametrize("norm", ["train", "frozen"])
@pytest.mark.parametrize("trains", ["lora", "bias", "norm"])
def test_what_learns_and_what_batchnorm_does(trains: str, norm: str, arch: str) -> None:
    """Statistics follow the images where scales or shifts learn, unless they are frozen."""
    torch.manual_seed(0)
    body = TimmFeaturizer((3, 32, 32), arch, norm=norm)
    networks = Networks({"featurizer": body, "classifier": nn.Linear(body.n_features, 2)})
    Tuning(trains=trains, rank=2).narrow(networks, "featurizer", 0)
    before = copy.deepcopy(body)
    adam = torch.optim.Adam(networks.params().values(), 0.1)
    for _ in range(2):  # A has no gradient while B is zero
        adam.zero_grad()
        networks.train()
        networks["classifier"](body(torch.randn(4, 3, 32, 32))).square().sum().backward()
        adam.step()
    moved = _moved(before, body)
    follow = trains != "lora" and norm == "train" and arch == "test_resnet"
    assert any("running" in name for name in moved) == follow
    learnt = {name for name in moved if "running" not in name and "batches" not in name}
    ends = {name.rpartition(".")[2] for name in learnt}
    expected: dict[str, set[str]] = {
        "lora": {"low_rank_down", "low_rank_up"},
        "bias": {"bias"},
        "norm": {"weight", "bias"},
    }
    assert ends == expected[trains]
    if trains == "norm":
        layers = {type(body.get_submodule(name.rpartition(".")[0])) for name in learnt}
        assert all("Norm" in layer.__name__ for layer in layers)
        assert not any("attn.proj" in name or "fc1" in name for name in learnt)


@pytest.mark.parametrize("algorithm", ["erm", "vrex", "dann", "miro"])
@pytest.mark.parametrize("tuning", ["lora", "bias"])
def test_a_stack_equals_single_runs(algorithm: str, tuning: str, tmp_path: Path) -> None:
    """Two seeds and two folds, in double precision; frozen weights of one seed are kept once."""
    torch.set_default_dtype(torch.float64)
    try:
        words = (f"algorithm={algorithm}", DOUBLE, f"tuning={tuning}", DECAY)
        first = small_study(tmp_path, *words)
        other = small_study(tmp_path, *words, "seed=1", source=first.source)
        runs = [first.runs[0], other.runs[2]]
        modules = modules_of(runs)
        alone = copy.deepcopy(modules)
        for module, run in zip(alone, runs, strict=True):
            fit(module, run.data.batches(0, STEPS))
        stack = stack_of(modules)
        fit(stack, together([run.data for run in runs], STEPS))
        for i, one in enumerate(alone):
            for key, value in one.state_dict().items():
                both = stack.write_back(i).state_dict()[key]
                torch.testing.assert_close(both, value, rtol=1e-9, atol=1e-9)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.thorough
@pytest.mark.parametrize("tuning", ["lora", "bias"])
@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_a_killed_run_ends_as_if_undisturbed(mode: str, tuning: str, tmp_path: Path) -> None:
    """Rows byte for byte, and every tensor of the last checkpoint."""
    words = (
        f"tuning={tuning}", f"execution={mode}", "protocol.folds=[0,1]", "trainer.steps=24",
        "trainer.eval_every=8", "trainer.checkpoint_seconds=0", "hparams.lr=0.01",
    )  # fmt: skip
    whole = small_study(tmp_path / "whole", *words)
    assert all(train_study(whole).values())
    stopped = small_study(tmp_path / "stopped", *words)
    with stopping_at(9):
        assert not any(train_study(stopped).values())
    again = small_study(tmp_path / "stopped", *words, source=stopped.source)
    assert all(train_study(again).values())
    for one, other in zip(whole.runs, again.runs, strict=True):
        assert (one.folder / ROW_FILE).read_bytes() == (other.folder / ROW_FILE).read_bytes()
        ends = [load_one(run.folder).run.state_dict() for run in (one, other)]
        assert all(torch.equal(value, ends[1][key]) for key, value in ends[0].items())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> ReadyRun:
    study = small_study(
        tmp_path_factory.mktemp("lora"), *LORA, "tuning.alpha=6", "protocol.folds=[0]",
        "trainer.steps=20", "trainer.eval_every=10", "hparams.lr=0.1",
    )  # fmt: skip
    assert all(train_study(study).values())
    return study.runs[0]


def test_rows_say_what_was_trained(finished: ReadyRun) -> None:
    """A is (2, in) and B (8, 2) of two layers, and the classifier of 8 features and 2 classes."""
    row: dict[str, Any] = read_rows(finished.folder / ROW_FILE)[0][0]
    inputs = 2 * 8 * 8
    low_rank = 2 * (inputs + 8) + 2 * (8 + 8)
    assert row["n_trainable"] == low_rank + 2 * 8 + 2
    assert row["n_parameters"] == low_rank + (inputs + 1) * 8 + 9 * 8 + 2 * 8 + 2
    assert row["tuning"] == "lora"
    shown = {key: value for key, value in row["hparams"].items() if key.startswith("tuning")}
    assert shown == {"tuning.rank": 2, "tuning.alpha": 6, "tuning.targets": None}


def test_a_loaded_model_is_merged_and_predicts_what_was_scored(finished: ReadyRun) -> None:
    """It has the tensors of a plain network, and its logits are those of the run bit for bit."""
    model = load_one(finished.folder)
    assert not any("low_rank" in name for name in model.run.state_dict())
    module = finished.study.module(finished.fold)
    file = finished.folder / "checkpoints" / "last.ckpt"
    content = torch.load(file, weights_only=True)
    module.load_state_dict(complete(content["runs"][finished.hash], file.parent))
    assert sum("low_rank" in name for name in module.state_dict()) == 4
    x = torch.randn(5, *model.preprocessing.image)
    with torch.no_grad():
        assert torch.equal(model(x), module.eval()(x))
        body = module.networks["featurizer"].train()
        torch.testing.assert_close(
            body(x), model.run.networks["featurizer"](x), atol=1e-6, rtol=1e-6
        )


def test_a_record_without_the_factor_is_of_another_network(
    finished: ReadyRun, tmp_path: Path
) -> None:
    """Unmerged tensors never pass for the plain network."""
    record = json.loads((finished.folder / "model.json").read_text())
    assert record["low_rank_scale"] == 3.0
    assert json.loads(json.dumps(record)) == record
    del record["low_rank_scale"]
    shutil.copytree(finished.folder / "checkpoints", tmp_path / "checkpoints")
    (tmp_path / "model.json").write_text(json.dumps(record))
    with pytest.raises(Exception, match="belongs to another network"):
        load_one(tmp_path)


def test_each_setting_is_another_run_and_defaults_are_the_run_they_were(tmp_path: Path) -> None:
    """The hash of fine-tuning was written down before low-rank parts were there."""
    digests = set()
    for words in ((), ("tuning.rank=4",), ("tuning.alpha=4",), ("tuning.targets=['*']",)):
        digests.add(make_plan(tmp_path, "tuning=lora", *words).spec.digest)
    digests.add(make_plan(tmp_path, "tuning=bias").spec.digest)
    digests.add(make_plan(tmp_path, "tuning=norm").spec.digest)
    assert len(digests) == 6
    assert make_plan(tmp_path, "tuning=ft").spec.tuning == {"name": "ft", "layer_decay": None}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tuning=lora", "tuning.rank=0"], r"tuning.rank=0 is not an integer >= 1"),
        (["tuning=lora", "tuning.rank=9"], r"tuning.rank=9 is above the rank of layer .*, 8;"),
        (["tuning=lora", "tuning.alpha=0"], r"tuning.alpha=0 is not a number > 0"),
        (["tuning=lora", "tuning.targets=[]"], r"tuning.targets.*empty"),
        (["tuning=lora", "tuning.targets=[fc]"], r"tuning.targets=fc is the name of no linear"),
        (["tuning=lora", "tuning.targets=fc"], r"tuning.targets=fc is no list of names"),
        (["tuning=lora", "tuning.trains=all"], r"tuning.trains=all is unknown"),
        (["tuning=lora", "algorithm=and_mask"], r"algorithm=and_mask: it masks the gradients"),
        (["tuning=lora", "algorithm=sand_mask"], r"algorithm=sand_mask: it masks"),
        (["tuning=lora", "algorithm=mldg"], r"algorithm=mldg: it looks one step"),
        (["tuning=norm"], r"tuning=norm trains the scales and shifts of normalization"),
        (["+tuning.trains=bias"], r"tuning.name=ft is not what.*choose tuning=bias"),
        (["tuning=lora", "tuning.name=ft"], r"tuning.name=ft only changes what rows"),
        (["tuning=ft", "tuning.name=lora"], r"tuning.name=lora only changes"),
        (
            ["tuning=lp", "+tuning.trains=bias", "tuning.name=x"],
            r"tuning.freeze_stages=all cannot go with tuning.trains=bias",
        ),
    ],
)  # fmt: skip
def test_refused_in_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        small_study(tmp_path, *words)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.rglob("*.jsonl"))
