"""Members of a stack equal single runs: weights, rows, checkpoints, failures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import get_class
from omegaconf import OmegaConf
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dgbench.algorithms import activations
from dgbench.algorithms.base import Algorithm
from dgbench.callbacks.progress import StudyProgress
from dgbench.callbacks.status import read_status
from dgbench.cli.entry import CONF, open_key
from dgbench.cli.identity import study_folder
from dgbench.cli.run import train_all
from dgbench.cli.stacking import Group, plan_groups
from dgbench.cli.study import Study
from dgbench.data.module import EnvironmentData
from dgbench.errors import ConfigError
from dgbench.records import read_rows
from dgbench.training import replay
from dgbench.training.replay import Recorder
from dgbench.training.stacked import StackedMembers
from dgbench.types import EnvBatch

ALGORITHMS = [path.stem for path in sorted((CONF / "algorithm").glob("*.yaml"))]
SMALL = ["dataset.base=digits", "backbone.width=8", "trainer.batch_size=8", "trainer.device=cpu"]


def make_study(folder: Path, *overrides: str, environments: Any = None) -> Study:
    OmegaConf.register_new_resolver("study_folder", study_folder, replace=True)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [open_key(word) for word in (*SMALL, *overrides)])
    return Study(config, folder, environments)


def recorder(function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
    """What a CUDA graph does: inputs and outputs stay where they are, a replay computes and overwrites."""
    outputs = function()

    def again() -> None:
        for place, value in zip(pytree.tree_leaves(outputs), pytree.tree_leaves(function()), strict=True):
            if value is not None:
                place.copy_(value)

    return outputs, again


class Once:
    def __init__(self, batches: list[EnvBatch]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[EnvBatch]]:
        yield self.batches


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def fit(module: pl.LightningModule, batches: list[EnvBatch]) -> None:
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(module, train_dataloaders=Once(batches))


def both_ways(
    modules: list[Algorithm], data: list[EnvironmentData], steps: int, record: Recorder | None = None
) -> float:
    """Largest difference of any weight or state after training members one by one and together."""
    alone = copy.deepcopy(modules)
    batches = [d.batches(0, steps) for d in data]
    for module, own in zip(alone, batches, strict=True):
        fit(module, own)
    together = [
        EnvBatch(torch.stack([b[k].x for b in batches]), torch.stack([b[k].y for b in batches]), batches[0][k].sizes)
        for k in range(steps)
    ]
    stack = StackedMembers(modules, record=record)
    fit(stack, together)
    if record:
        assert stack._functions and all(function.recorded for function in stack._functions.values())
    pairs = [(a.state_dict(), stack.write_back(i).state_dict()) for i, a in enumerate(alone)]
    return max(float((a[key] - b[key]).abs().max()) for a, b in pairs for key in a if a[key].numel())


@pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_equals_its_single_runs(algorithm: str, double: None, tmp_path: Path) -> None:
    """Two seeds and two folds, 20 steps in double precision; the adversarial ones round a little more."""
    first = make_study(tmp_path, f"algorithm={algorithm}")
    studies = [first, make_study(tmp_path, f"algorithm={algorithm}", "seed=1", environments=first.environments)]
    members = [(studies[0], studies[0].members[0]), (studies[1], studies[1].members[3])]
    modules = [study.module(member.fold) for study, member in members]
    assert both_ways(modules, [member.data for _, member in members], 20) < 1e-9


@pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_recorded_step_equals_single_runs(algorithm: str, double: None, tmp_path: Path) -> None:
    """Each phase is recorded at its fourth call and replayed from then on; all tensors move as they do alone."""
    seconds = cycle([1.0, 0.5])  # every recording is faster
    study = make_study(tmp_path, f"algorithm={algorithm}")
    modules = [study.module(fold) for fold in study.folds[:2]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "_clocked", lambda call: (call(), next(seconds)))
        assert both_ways(modules, [member.data for member in study.members[:2]], 12, recorder) < 1e-9


class HostMemory(TorchDispatchMode):
    """Notes what reads or fills host memory; Python's numbers, tensors of no dimension there, go with a launch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        crosses = "copy" in str(func) and len({leaf.device for leaf in leaves}) > 1
        if crosses or any(leaf.dim() > 0 and not leaf.is_meta for leaf in leaves):
            self.found.append(str(func))
        return result


def other_ways() -> Iterator[tuple[str, ...]]:
    """Overrides for every value of a switch that is not the default."""
    for name in ALGORITHMS:
        config = OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")
        for key, allowed in get_class(config._target_).choices.items():
            values = [value for value in allowed if value != config.hparams[key]]
            yield from ((f"algorithm={name}", f"hparams.set.{key}={value}") for value in values)


STEPS = [*((f"algorithm={name}",) for name in ALGORITHMS), *other_ways(), ("backbone=mnist_cnn", "backbone.min_size=8")]


@pytest.mark.parametrize("overrides", STEPS, ids=" ".join)
def test_a_step_stays_on_its_device(overrides: tuple[str, ...], tmp_path: Path) -> None:
    """No recording can hold a copy from host memory or a wait for a number; the meta device shows both without CUDA."""
    study = make_study(tmp_path, *overrides)
    stack = StackedMembers([study.module(fold) for fold in study.folds[:2]]).to("meta")
    batches = [member.data.batches(0, 1)[0] for member in study.members[:2]]
    x, y = (torch.stack([getattr(b, name) for b in batches]).to("meta") for name in ("x", "y"))
    sizes = batches[0].sizes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedMembers, "trainer", SimpleNamespace(precision="32-true"))
        stack.configure_optimizers()
    noise = stack._noise_at(0, sizes)
    phases = {(p.objective, p.players): p for step in range(12) for p in stack._members[0].phases(step)}
    for phase in phases.values():
        step = torch.empty((), dtype=torch.long, device="meta")
        function = stack._function(phase, [name for name in phase.players if name in stack._players], sizes)
        with HostMemory() as seen:
            losses, _ = function(noise, x, y, step)
        assert losses.shape == (2,) and losses.is_meta
        assert seen.found == []


@pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
def test_members_differ_in_hyperparameters(double: None, tmp_path: Path) -> None:
    """Learning rate, decay, penalty weight and the step at which Adam is re-created are a member's own."""
    settings = [
        ("hparams.set.lr=0.001", "hparams.set.irm_lambda=1", "hparams.set.irm_penalty_anneal_iters=5"),
        ("hparams.set.lr=0.004", "hparams.set.irm_lambda=50", "hparams.set.irm_penalty_anneal_iters=9"),
        ("hparams.set.lr=0.004", "hparams.set.weight_decay=0.1", "hparams.set.irm_penalty_anneal_iters=9"),
    ]
    studies = [make_study(tmp_path, "algorithm=irm", *own) for own in settings]
    modules = [study.module(study.folds[0]) for study in studies]
    assert both_ways(modules, [study.members[0].data for study in studies], 20) < 1e-12


def run(folder: Path, mode: str, *overrides: str) -> tuple[Study, dict[str, bool]]:
    study = make_study(folder, "trainer.steps=40", "trainer.eval_every=20", f"execution={mode}", *overrides)
    progress = StudyProgress(len(study.members), 40, "test")
    return study, train_all([study], study.config.execution, progress, None).complete


def planned(study: Study) -> list[Group]:
    return plan_groups([(study, member) for member in study.members], study.config.execution)


def test_rows_and_files_of_a_stack_are_those_of_single_runs(tmp_path: Path) -> None:
    """Same folders, files, rows; errors equal, losses to single precision's last digits."""
    studies = {mode: run(tmp_path / mode, mode, "algorithm=vrex")[0] for mode in ("single", "stacked")}
    for one, other in zip(studies["single"].members, studies["stacked"].members, strict=True):
        assert one.folder.name == other.folder.name
        assert sorted(p.name for p in one.folder.rglob("*.ckpt")) == sorted(
            p.name for p in other.folder.rglob("*.ckpt")
        )
        assert read_status(other.folder) == "DONE"
        expected, found = (read_rows(member.folder / "errors.jsonl")[0] for member in (one, other))
        assert [row["wrong"] for row in found] == pytest.approx([row["wrong"] for row in expected], abs=1.01)
        assert [row["loss"] for row in found] == pytest.approx([row["loss"] for row in expected], rel=1e-3)
        same = [key for key in expected[0] if key not in ("wrong", "loss")]
        assert [[row[key] for key in same] for row in found] == [[row[key] for key in same] for row in expected]


def test_best_scores_test_where_val_is_best_and_at_the_last_step(tmp_path: Path) -> None:
    """Alone and together the same rows: those of ``always`` less ``test`` at steps that nobody asks for."""
    settings = ("trainer.eval_every=4", "trainer.lr=0.03", "trainer.precision=64-true")

    def rows(name: str, mode: str, eval_test: str) -> list[list[tuple[Any, ...]]]:
        study, complete = run(tmp_path / name, mode, *settings, f"trainer.eval_test={eval_test}")
        assert all(complete.values())
        found = [read_rows(member.folder / "errors.jsonl")[0] for member in study.members]
        keys = ("step", "subset", "env", "env_held_out", "seen", "wrong")
        return [[tuple(row[key] for key in keys) for row in own] for own in found]

    always, alone, together = rows("a", "single", "always"), rows("b", "single", "best"), rows("c", "stacked", "best")
    left_out = 0
    for whole, one, other in zip(always, alone, together, strict=True):
        assert one == other
        errors: dict[int, list[float]] = {}
        for step, subset, _, held_out, seen, wrong in whole:
            if subset == "val" and not held_out:
                errors.setdefault(step, []).append(wrong / seen)
        means = {step: sum(own) / len(own) for step, own in errors.items()}
        asked = {step for step in means if step == 40 or means[step] <= min(means[s] for s in means if s <= step)}
        assert one == [row for row in whole if row[1] != "test" or row[0] in asked]
        left_out += len(means) - len(asked)
    assert left_out > 5


@pytest.mark.parametrize("eval_test", ["always", "best"])
@pytest.mark.parametrize("second", ["stacked", "single"])
def test_a_stopped_stack_goes_on_together_or_alone(second: str, eval_test: str, tmp_path: Path) -> None:
    """Stopped by an error in the second stretch, resumed in either mode: the rows of an undisturbed run."""
    precise = ("algorithm=irm", "trainer.precision=64-true", "trainer.checkpoint_seconds=0")
    precise = (*precise, f"trainer.eval_test={eval_test}")
    whole, _ = run(tmp_path / "whole", "stacked", *precise)
    study = make_study(tmp_path / "cut", "trainer.steps=40", "trainer.eval_every=20", "execution=stacked", *precise)
    order = EnvironmentData.order

    def stop(self: EnvironmentData, step: int) -> Any:
        if step >= 30:
            raise RuntimeError("stopped")
        return order(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnvironmentData, "order", stop)
        complete = train_all([study], study.config.execution, StudyProgress(5, 40, "test"), None).complete
    assert not any(complete.values())
    study, complete = run(tmp_path / "cut", second, *precise)
    assert all(complete.values())
    for one, other in zip(whole.members, study.members, strict=True):
        expected, found = (read_rows(member.folder / "errors.jsonl")[0] for member in (one, other))
        assert [(r["step"], r["env"], r["subset"], r["wrong"]) for r in found] == [
            (r["step"], r["env"], r["subset"], r["wrong"]) for r in expected
        ]


def test_an_algorithm_that_sees_groups_is_scored_in_drawn_colors(tmp_path: Path) -> None:
    """ARM's context would tell a pass in which every color is the label's from any environment: no expected errors."""
    for algorithm, grouped in (("arm", True), ("erm", False)):
        study, complete = run(tmp_path / algorithm, "single", f"algorithm={algorithm}", "protocol.folds=[0,full]")
        assert all(complete.values())
        for member in study.members:
            rows = [row for row in read_rows(member.folder / "errors.jsonl")[0] if row["subset"] == "test"]
            assert {row["grouped"] for row in rows} == {grouped}
            assert {row["evaluation"] for row in rows} == {"exact"}
            assert all(float(row["wrong"]).is_integer() for row in rows) == grouped


def test_a_member_that_diverges_harms_nobody(tmp_path: Path) -> None:
    """One member's weights are NaN from the start: it FAILS at step 0, the others' rows are bit for bit the same."""
    quiet, _ = run(tmp_path / "quiet", "stacked")
    study = make_study(tmp_path / "loud", "trainer.steps=40", "trainer.eval_every=20", "execution=stacked")
    groups = planned(study)
    with torch.no_grad():
        next(iter(groups[0].modules[1].networks.parameters())).fill_(float("nan"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dgbench.cli.run.plan_groups", lambda *_: groups)
        complete = train_all([study], study.config.execution, StudyProgress(5, 40, "test"), None).complete
    broken = groups[0].members[1][1]
    assert read_status(broken.folder).startswith("FAILED loss became nan at step 0")
    assert [run for run, ok in complete.items() if not ok] == [broken.identity.run]
    for one, other in zip(quiet.members, study.members, strict=True):
        if other.folder != broken.folder:
            assert (one.folder / "errors.jsonl").read_bytes() == (other.folder / "errors.jsonl").read_bytes()


def test_out_of_memory_halves_the_stack(tmp_path: Path) -> None:
    """A device that takes two members at most trains four of them in two halves."""
    fit_start = StackedMembers.configure_optimizers
    tried = []

    def crowded(self: StackedMembers) -> Any:
        tried.append(self.size)
        if self.size > 2:
            raise torch.OutOfMemoryError("too many")
        return fit_start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedMembers, "configure_optimizers", crowded)
        _, complete = run(tmp_path, "stacked")
    assert all(complete.values()) and len(complete) == 5
    assert tried == [4, 2, 2, 1]


def test_out_of_memory_in_the_middle_goes_on_from_the_checkpoints(tmp_path: Path) -> None:
    """Memory ends after the first evaluation of four members; the rows are those of an undisturbed run."""
    precise = ("trainer.precision=64-true", "trainer.checkpoint_seconds=0")
    whole, _ = run(tmp_path / "whole", "stacked", *precise)
    training_step, tried = StackedMembers.training_step, []

    def crowded(self: StackedMembers, batches: Any, batch_idx: int) -> None:
        tried.append((self.size, self.steps_done))
        if self.size > 2 and self.steps_done >= 20:
            raise torch.OutOfMemoryError("too many")
        training_step(self, batches, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedMembers, "training_step", crowded)
        study, complete = run(tmp_path / "cut", "stacked", *precise)
    assert all(complete.values())
    assert min(step for size, step in tried if size == 2) == 20
    for one, other in zip(whole.members, study.members, strict=True):
        expected, found = (read_rows(member.folder / "errors.jsonl")[0] for member in (one, other))
        assert [(r["step"], r["env"], r["subset"], r["wrong"]) for r in found] == [
            (r["step"], r["env"], r["subset"], r["wrong"]) for r in expected
        ]


def test_what_a_stack_says_stands_in_the_log_of_every_member(tmp_path: Path) -> None:
    study, _ = run(tmp_path, "stacked")
    for member in study.members[:4]:
        assert "4 members train together, from step 0 on" in (member.folder / "log.txt").read_text()


@pytest.mark.parametrize("mode", ["single", "stacked"])
@pytest.mark.parametrize("name", ["erm", "mtl", "arm"])
def test_scoring_in_parts_gives_the_same_rows(name: str, mode: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Few images and one member at a time; MTL's noise stays with its image, ARM's groups are left whole."""
    settings = (f"algorithm={name}", "trainer.precision=64-true")
    whole, _ = run(tmp_path / "whole", mode, *settings)
    calls: list[int] = []
    predict = whole.algorithm.predict

    def counted(self: Algorithm, nets: Any, x: Any, *rest: Any) -> Any:
        calls.append(len(x))
        return predict(self, nets, x, *rest)

    monkeypatch.setattr(activations, "CPU_BYTES", 4 * 128 * 100)  # 100 images of 8 x 8 x 2 pixels
    monkeypatch.setattr(whole.algorithm, "predict", counted)
    parts, _ = run(tmp_path / "parts", mode, *settings)
    assert max(calls) > 100 if name == "arm" else max(calls) == 100
    for one, other in zip(whole.members, parts.members, strict=True):
        expected, found = (read_rows(member.folder / "errors.jsonl")[0] for member in (one, other))
        assert [row["wrong"] for row in found] == [row["wrong"] for row in expected]
        assert [row["loss"] for row in found] == pytest.approx([row["loss"] for row in expected], rel=1e-9)


def test_groups(tmp_path: Path) -> None:
    """Four folds of three environments stack, the full fold with four is a stack of its own; max_members cuts."""
    study = make_study(tmp_path, "execution=stacked", "execution.max_members=3")

    def names(groups: list[Group]) -> list[list[str]]:
        return [[member.fold.name for _, member in group.members] for group in groups]

    assert names(planned(study)) == [
        ["0", "1", "2"],
        ["3"],
        ["full"],
    ]
    study.config.execution.mode = "single"
    assert names(planned(study)) == [
        ["0"],
        ["1"],
        ["2"],
        ["3"],
        ["full"],
    ]


@pytest.mark.parametrize("override", ["averaging=eoa", "trainer.precision=bf16-mixed"])
def test_what_cannot_stack_says_so(override: str, tmp_path: Path) -> None:
    study = make_study(tmp_path, "execution=stacked", override)
    with pytest.raises(ConfigError, match=r"cannot be stacked: .*; use execution=single"):
        planned(study)
