"""Runs of a stack equal single runs: weights, rows, checkpoints, failures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import get_class
from omegaconf import OmegaConf
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dgbench.batches import EnvBatch
from dgbench.configuration import CONF
from dgbench.data.minibatches import EnvironmentData
from dgbench.errors import ConfigError
from dgbench.networks.context import ContextNetwork
from dgbench.objectives.contract import Algorithm
from dgbench.records.rows import read_rows
from dgbench.records.status import read_status
from dgbench.training import fit as fit_file
from dgbench.training.groups import RunGroup
from dgbench.training.modules import SingleRun, StackedRuns, predicting
from dgbench.training.study import ReadyRun, ReadyStudy
from tests.studies import groups_of, small_study, stopping_at, train_study

ALGORITHMS = [path.stem for path in sorted((CONF / "algorithm").glob("*.yaml"))]
DOUBLE = "trainer.precision=64-true"


class Once:
    def __init__(self, batches: list[EnvBatch]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[EnvBatch]]:
        yield self.batches


def fit(module: pl.LightningModule, batches: list[EnvBatch]) -> None:
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(module, train_dataloaders=Once(batches))


def module_of(run: ReadyRun) -> SingleRun:
    module = run.study.module(run.fold)
    # a function, which no deepcopy copies
    module.training_images = lambda i: run.data.training_images(i)
    return module


def modules_of(runs: Sequence[ReadyRun]) -> list[SingleRun]:
    return [module_of(run) for run in runs]


def stack_of(modules: Sequence[SingleRun]) -> StackedRuns:
    stack, images = StackedRuns(modules), [module.training_images for module in modules]
    stack.training_images = lambda i: images[i](0)  # type: ignore[misc]
    return stack


def together(data: Sequence[EnvironmentData], steps: int) -> list[EnvBatch]:
    """The minibatches of several runs as those of a stack."""
    batches = [own.batches(0, steps) for own in data]

    def stacked(k: int, name: str) -> torch.Tensor:
        return torch.stack([getattr(own[k], name) for own in batches])

    sizes = batches[0][0].sizes
    return [
        EnvBatch(stacked(k, "x"), stacked(k, "y"), sizes, stacked(k, "index")) for k in range(steps)
    ]


def both_ways(modules: list[SingleRun], data: list[EnvironmentData], steps: int) -> float:
    """Largest difference of any weight, state or logged value after training runs one by one and
    together.
    """
    alone = copy.deepcopy(modules)
    logged = []
    for module, own in zip(alone, data, strict=True):
        module.collects = True
        fit(module, own.batches(0, steps))
        logged.append(module.take_values())
    stack = stack_of(modules)
    stack.collects = True
    fit(stack, together(data, steps))
    found = stack.take_values()
    assert all([line[:2] for line in own] == [line[:2] for line in found] for own in logged)
    values = [
        abs(own[0] - all_[i])
        for i, o in enumerate(logged)
        for (*_, own), (*_, all_) in zip(o, found, strict=True)
    ]
    pairs = [(a.state_dict(), stack.write_back(i).state_dict()) for i, a in enumerate(alone)]
    weights = [
        float((a[key] - b[key]).abs().max()) for a, b in pairs for key in a if a[key].numel()
    ]
    return max([*weights, *map(float, values)])


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_equals_its_single_runs(
    algorithm: str, double: None, tmp_path: Path
) -> None:
    """Two seeds and two folds, 12 steps in double precision; the adversarial ones round a little
    more.
    """
    first = small_study(tmp_path, f"algorithm={algorithm}", DOUBLE)
    other = small_study(tmp_path, f"algorithm={algorithm}", DOUBLE, "seed=1", source=first.source)
    runs = [first.runs[0], other.runs[3]]
    assert both_ways(modules_of(runs), [own.data for own in runs], 12) < 1e-9


class HostMemory(TorchDispatchMode):
    """Notes what reads or fills host memory; Python's numbers, tensors of no dimension there, go
    with a launch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = [
            leaf
            for leaf in pytree.tree_leaves((args, kwargs, result))
            if isinstance(leaf, torch.Tensor)
        ]
        crosses = "copy" in str(func) and len({leaf.device for leaf in leaves}) > 1
        if crosses or any(leaf.dim() > 0 and not leaf.is_meta for leaf in leaves):
            self.found.append(str(func))
        return result


def other_ways() -> Iterator[tuple[str, ...]]:
    """Overrides for every value of a switch that is not the default."""
    for name in ALGORITHMS:
        config = OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")
        for key, allowed in get_class(config.objective).choices.items():
            values = [value for value in allowed if value != config.hparams[key].default]
            yield from ((f"algorithm={name}", f"hparams.{key}={value}") for value in values)


STEPS = [
    *((f"algorithm={name}",) for name in ALGORITHMS),
    *other_ways(),
    ("backbone=mnist_cnn", "backbone.min_size=8"),
]


@pytest.mark.thorough
@pytest.mark.skipif(
    torch.__version__.startswith("2.6."),
    reason="vmap of torch 2.6 indexes with tensors of the host",
)
@pytest.mark.parametrize("overrides", STEPS, ids=" ".join)
def test_a_step_stays_on_its_device(overrides: tuple[str, ...], tmp_path: Path) -> None:
    """A copy from host memory, or a wait for a number, stalls a CUDA device; the meta device shows
    both.
    """
    study = small_study(tmp_path, *overrides)
    stack = StackedRuns([study.module(fold) for fold in study.folds[:2]]).to("meta")
    stack.collects = True  # as with a logger
    batches = [own.data.batches(0, 1)[0] for own in study.runs[:2]]
    x, y, index = (
        torch.stack([getattr(b, name) for b in batches]).to("meta") for name in ("x", "y", "index")
    )
    sizes = batches[0].sizes
    stack.configure_optimizers()
    learning = stack._learning(0)
    noise = stack._random_at(0, sizes)
    updates = {
        (u.objective, u.groups): u for step in range(12) for u in stack.algorithm.updates(step)
    }
    for update in updates.values():
        step = torch.empty((), dtype=torch.long, device="meta")
        names = [key for group in update.groups if group in learning for key in learning[group]]
        function = stack._function(update, names, sizes)
        with HostMemory() as seen:
            losses, _, logs = function(noise, x, y, {"index": index}, step)
        assert losses.shape == (2,) and losses.is_meta
        assert all(value.shape == (2,) and value.is_meta for value in logs.values())
        assert seen.found == []


@pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
def test_runs_differ_in_hyperparameters(double: None, tmp_path: Path) -> None:
    """Learning rate, decay, penalty weight and the step at which Adam is re-created are a run's
    own.
    """
    settings = [
        ("hparams.lr=0.001", "hparams.irm_lambda=1", "hparams.irm_penalty_anneal_iters=5"),
        ("hparams.lr=0.004", "hparams.irm_lambda=50", "hparams.irm_penalty_anneal_iters=9"),
        ("hparams.lr=0.004", "hparams.weight_decay=0.1", "hparams.irm_penalty_anneal_iters=9"),
    ]
    studies = [small_study(tmp_path, "algorithm=irm", DOUBLE, *own) for own in settings]
    modules = [study.module(study.folds[0]) for study in studies]
    assert both_ways(modules, [study.runs[0].data for study in studies], 20) < 1e-12


TWICE = ("trainer.steps=12", "trainer.eval_every=6")  # two evaluations
ONCE = ("trainer.steps=2", "trainer.eval_every=2")
STOPPED = ("algorithm=irm", DOUBLE, "trainer.checkpoint_seconds=0")


def run(folder: Path, mode: str, *overrides: str) -> tuple[ReadyStudy, dict[str, bool]]:
    study = small_study(folder, *TWICE, f"execution={mode}", *overrides)
    return study, train_study(study)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ReadyStudy]:
    """A stacked study for each value of ``trainer.eval_test``, which resumed ones must equal."""

    @cache
    def trained(eval_test: str) -> ReadyStudy:
        folder = tmp_path_factory.mktemp(eval_test)
        return run(folder, "stacked", *STOPPED, f"trainer.eval_test={eval_test}")[0]

    return trained


def same_errors(whole: ReadyStudy, study: ReadyStudy) -> bool:
    keys = ("step", "env", "subset", "wrong")
    one, other = (
        [[[row[key] for key in keys] for row in rows_of(own)] for own in of.runs]
        for of in (whole, study)
    )
    return one == other


def rows_of(run: ReadyRun) -> list[dict[str, Any]]:
    return read_rows(run.folder / "errors.jsonl")[0]


def test_rows_and_files_of_a_stack_are_those_of_single_runs(tmp_path: Path) -> None:
    """Same folders, files, rows; errors equal, losses to single precision's last digits."""
    studies = {
        mode: run(tmp_path / mode, mode, "algorithm=vrex")[0] for mode in ("single", "stacked")
    }
    for one, other in zip(studies["single"].runs, studies["stacked"].runs, strict=True):
        assert one.folder.name == other.folder.name
        assert sorted(p.name for p in one.folder.rglob("*.ckpt")) == sorted(
            p.name for p in other.folder.rglob("*.ckpt")
        )
        assert read_status(other.folder).word == "DONE"
        expected, found = rows_of(one), rows_of(other)
        assert [row["wrong"] for row in found] == pytest.approx(
            [row["wrong"] for row in expected], abs=1.01
        )
        assert [row["loss"] for row in found] == pytest.approx(
            [row["loss"] for row in expected], rel=1e-3
        )
        assert {row["together"] for row in expected} == {1}
        assert {row["together"] for row in found} == {4 if other.fold.held_out else 1}
        same = [key for key in expected[0] if key not in ("wrong", "loss", "together")]
        assert [[row[key] for key in same] for row in found] == [
            [row[key] for key in same] for row in expected
        ]


def test_best_scores_test_where_val_is_best_and_at_the_last_step(tmp_path: Path) -> None:
    """Alone and together the same rows: those of ``always`` less ``test`` at steps that no
    selection asks for.
    """
    settings = (
        "trainer.steps=40",
        "trainer.eval_every=4",
        "hparams.lr=0.03",
        DOUBLE,
        "protocol.folds=[0,1]",
    )

    def rows(name: str, mode: str, eval_test: str) -> list[list[tuple[Any, ...]]]:
        study, complete = run(tmp_path / name, mode, *settings, f"trainer.eval_test={eval_test}")
        assert all(complete.values())
        found = [rows_of(own) for own in study.runs]
        keys = ("step", "subset", "env", "env_held_out", "seen", "wrong")
        return [[tuple(row[key] for key in keys) for row in own] for own in found]

    always, alone, together = (
        rows("a", "single", "always"),
        rows("b", "single", "best"),
        rows("c", "stacked", "best"),
    )
    left_out = 0
    for whole, one, other in zip(always, alone, together, strict=True):
        assert one == other
        errors: dict[int, list[float]] = {}
        for step, subset, _, held_out, seen, wrong in whole:
            if subset == "val" and not held_out:
                errors.setdefault(step, []).append(wrong / seen)
        means = {step: sum(own) / len(own) for step, own in errors.items()}
        asked = {
            step
            for step in means
            if step == 40 or means[step] <= min(means[s] for s in means if s <= step)
        }
        assert one == [row for row in whole if row[1] != "test" or row[0] in asked]
        left_out += len(means) - len(asked)
    assert left_out > 5


@pytest.mark.thorough
@pytest.mark.parametrize("eval_test", ["always", "best"])
@pytest.mark.parametrize("second", ["stacked", "single"])
def test_a_stopped_stack_continues_together_or_alone(
    second: str, eval_test: str, undisturbed: Callable[[str], ReadyStudy], tmp_path: Path
) -> None:
    """Stopped by an error in the second interval, resumed in either mode: the rows of an
    undisturbed run.
    """
    words = (*STOPPED, f"trainer.eval_test={eval_test}")
    study = small_study(tmp_path, *TWICE, "execution=stacked", *words)
    with stopping_at(9):
        complete = train_study(study)
    assert not any(complete.values())
    study, complete = run(tmp_path, second, *words)
    assert all(complete.values())
    assert same_errors(undisturbed(eval_test), study)


def test_an_algorithm_that_sees_groups_is_scored_in_drawn_colors(tmp_path: Path) -> None:
    """ARM's context would tell an eval set of label-colored images from any environment: no
    expected errors.
    """
    for algorithm, grouped in (("arm", True), ("erm", False)):
        words = (*ONCE, f"algorithm={algorithm}", "protocol.folds=[0,full]")
        study, complete = run(tmp_path / algorithm, "single", *words)
        assert all(complete.values())
        for own in study.runs:
            rows = [row for row in rows_of(own) if row["subset"] == "test"]
            assert {row["grouped"] for row in rows} == {grouped}
            assert {row["evaluation"] for row in rows} == {"exact"}
            assert all(float(row["wrong"]).is_integer() for row in rows) == grouped


@pytest.mark.thorough
@pytest.mark.parametrize(("mode", "folds"), [("single", "[0]"), ("stacked", "[0,1]")])
def test_a_picture_of_many_environments_meets_the_context_network_once(
    mode: str, folds: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """Four environments show two pictures of each image; errors are those of one pass for each
    environment.
    """
    settings = (*ONCE, "algorithm=arm", f"protocol.folds={folds}", DOUBLE)
    met = {"single": 0, "grouped": 0}  # pictures
    forward = ContextNetwork.forward

    def counted(self: ContextNetwork, x: torch.Tensor, groups: tuple[int, ...]) -> torch.Tensor:
        met["single" if len(groups) == len(x) else "grouped"] += 0 if self.training else len(x)
        return forward(self, x, groups)

    monkeypatch.setattr(ContextNetwork, "forward", counted)
    kept, _ = run(tmp_path / "kept", mode, *settings)
    rows = rows_of(kept.runs[0])
    pool, passes = (
        next(row["seen"] for row in rows if row["subset"] == "test"),
        len({row["step"] for row in rows}),
    )
    assert pool * passes < met["single"] <= 2 * pool * passes

    monkeypatch.setattr(predicting, "KEPT_BYTES", 0)
    forgotten, _ = run(tmp_path / "forgotten", mode, *settings)
    met["single"] = 0
    monkeypatch.setattr(kept.algorithm, "per_image", Algorithm.per_image)
    grouped, _ = run(tmp_path / "grouped", mode, *settings)
    assert met["single"] == 0
    for other in (forgotten, grouped):
        for one, two in zip(kept.runs, other.runs, strict=True):
            for found, expected in zip(rows_of(one), rows_of(two), strict=True):
                assert (found["env"], found["wrong"]) == (expected["env"], expected["wrong"])
                assert found["loss"] == pytest.approx(expected["loss"], rel=1e-9)


def test_a_run_that_diverges_harms_no_other(tmp_path: Path) -> None:
    """One run's weights are NaN from the start: it FAILS at step 0, the others' rows are bit for
    bit the same.
    """
    quiet, _ = run(tmp_path / "quiet", "stacked", *ONCE)
    study = small_study(tmp_path / "loud", *ONCE, "execution=stacked")
    broken = study.runs[1]
    group_module = fit_file.group_module

    def with_a_broken_run(group: RunGroup) -> Any:
        module = group_module(group)
        if broken in group.runs:
            with torch.no_grad():
                next(iter(module.runs[group.runs.index(broken)].networks.parameters())).fill_(
                    float("nan")
                )
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_file, "group_module", with_a_broken_run)
        complete = train_study(study)
    assert str(read_status(broken.folder)).startswith("FAILED loss became nan")
    assert [own for own, ok in complete.items() if not ok] == [broken.hash]
    for one, other in zip(quiet.runs, study.runs, strict=True):
        if other.folder != broken.folder:
            assert (one.folder / "errors.jsonl").read_bytes() == (
                other.folder / "errors.jsonl"
            ).read_bytes()


def test_out_of_memory_halves_the_stack(tmp_path: Path) -> None:
    """A device that takes two runs at most trains four of them in two halves."""
    fit_start = StackedRuns.configure_optimizers
    tried = []

    def crowded(self: StackedRuns) -> Any:
        tried.append(self.size)
        if self.size > 2:
            raise torch.OutOfMemoryError("too many")
        return fit_start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedRuns, "configure_optimizers", crowded)
        _, complete = run(tmp_path, "stacked", *ONCE)
    assert all(complete.values()) and len(complete) == 5
    assert tried == [4, 2, 2, 1]


def test_out_of_memory_in_the_middle_continues_from_the_checkpoint(
    undisturbed: Callable[[str], ReadyStudy], tmp_path: Path
) -> None:
    """Memory ends after the first evaluation of four runs; the rows are those of an undisturbed
    run.
    """
    training_step, tried = StackedRuns.training_step, []

    def crowded(self: StackedRuns, batches: Any, batch_idx: int) -> None:
        tried.append((self.size, self.steps_done))
        if self.size > 2 and self.steps_done >= 6:
            raise torch.OutOfMemoryError("too many")
        training_step(self, batches, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedRuns, "training_step", crowded)
        study, complete = run(tmp_path, "stacked", *STOPPED, "trainer.eval_test=always")
    assert all(complete.values())
    assert min(step for size, step in tried if size == 2) == 6
    assert same_errors(undisturbed("always"), study)


def test_what_a_stack_says_stands_in_the_log_of_every_run(tmp_path: Path) -> None:
    study, _ = run(tmp_path, "stacked", *ONCE)
    for own in study.runs[:4]:
        assert "4 runs together, from" in (own.folder / "log.txt").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["single", "stacked"])
@pytest.mark.parametrize("name", ["erm", "mtl", "arm"])
def test_scoring_in_parts_gives_the_same_rows(
    name: str, mode: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """Few images and one run at a time; MTL's noise stays with its image, ARM's groups are left
    whole.
    """
    settings = (*ONCE, f"algorithm={name}", "protocol.folds=[0,1]", DOUBLE)
    whole, _ = run(tmp_path / "whole", mode, *settings)
    calls: list[int] = []
    predict = whole.algorithm.predict

    def counted(self: Any, s: Any) -> Any:
        calls.append(len(s.x))
        return predict(self, s)

    monkeypatch.setattr(predicting, "CPU_BYTES", 4 * 128 * 100)  # 100 images of 8 x 8 x 2 pixels
    monkeypatch.setattr(whole.algorithm, "predict", counted)
    parts, _ = run(tmp_path / "parts", mode, *settings)
    assert max(calls) > 100 if name == "arm" else max(calls) == 100
    for one, other in zip(whole.runs, parts.runs, strict=True):
        expected, found = rows_of(one), rows_of(other)
        assert [row["wrong"] for row in found] == [row["wrong"] for row in expected]
        assert [row["loss"] for row in found] == pytest.approx(
            [row["loss"] for row in expected], rel=1e-9
        )


def test_groups(tmp_path: Path) -> None:
    """Four folds of three environments stack, the full fold with four is a stack of its own;
    max_runs cuts.
    """
    study = small_study(tmp_path, "execution=stacked", "execution.max_runs=3")

    def names(groups: list[RunGroup]) -> list[list[str]]:
        return [[own.fold.name for own in group.runs] for group in groups]

    assert names(groups_of(study)) == [
        ["0", "1", "2"],
        ["3"],
        ["full"],
    ]
    assert names(groups_of(study, mode="single")) == [
        ["0"],
        ["1"],
        ["2"],
        ["3"],
        ["full"],
    ]


@pytest.mark.parametrize(
    "words", ["averaging=eoa averaging.rule.start=2", "trainer.precision=bf16-mixed"]
)
def test_what_cannot_stack_says_so(words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be stacked: .*; use execution=single"):
        small_study(tmp_path, "execution=stacked", *words.split())
