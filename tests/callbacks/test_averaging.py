"""Averaging in a real fit: what is scored, what is trained, when rows are written, and resuming."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from dgbench.algorithms.erm import ERM
from dgbench.callbacks.averaged import AveragedScores
from dgbench.callbacks.averaging import BetaMovingAverage, MovingAverage, Swad
from dgbench.callbacks.checkpointer import Checkpointer
from dgbench.callbacks.recorder import Recorder, RunRecord
from dgbench.containers import Networks
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.environments import Catalog, Environments, Table, TensorStore
from dgbench.data.minibatches import EnvironmentData
from dgbench.network_specs import Sizes
from dgbench.plan.settings import TrainerSettings
from dgbench.records.rows import lines_before
from dgbench.records.run_identity import RunIdentity
from dgbench.training.modules import SingleRun

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]
STEPS, EVERY = 12, 2
SIZES = Sizes(n_features=4, n_classes=2, n_envs=2, image=(1, 2, 2))


def _toy() -> Environments:
    """Two environments of 20 noisy images;
    the first 14 of each are for training, the others judge.
    """
    rng = np.random.default_rng(0)
    y = torch.tensor(rng.integers(2, size=40))
    x = torch.tensor(rng.normal(size=(40, 1, 2, 2)), dtype=torch.float32) + y[:, None, None, None]
    parts = {"train": range(14), "val": range(14, 20), "test": range(14, 20)}
    subsets = {
        (env, name): 20 * i + np.array(rows)
        for i, env in enumerate("ab")
        for name, rows in parts.items()
    }
    info = DatasetInfo(
        name="toy", variant={}, base="toy", split_seed=0, given=("a", "b"), everywhere=("a", "b"),
        n_classes=2, image=SIZES.image,
    )  # fmt: skip
    catalog = Catalog(y.numpy(), ("0", "1"), Preprocessing.unchanged(SIZES.image))
    return Environments(Table(info, subsets), catalog, TensorStore(x, y))


class _Body(nn.Sequential):
    def __init__(self, batchnorm: bool) -> None:
        super().__init__(
            nn.Flatten(), *([nn.BatchNorm1d(4)] if batchnorm else []), nn.Linear(4, 4), nn.ReLU()
        )


class _Watch(pl.Callback):
    """Remembers the weights that each evaluation scored."""

    def __init__(self) -> None:
        self.scored: list[dict[str, Tensor]] = []

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.scored.append({name: tensor.clone() for name, tensor in pl_module.named_parameters()})


class _Run:
    """One fit with the callbacks in the order of the command line."""

    def __init__(
        self,
        folder: Path,
        rule: Any,
        stop: int = STEPS,
        resume: bool = False,
        batchnorm: bool = False,
    ) -> None:
        torch.manual_seed(0)
        networks = Networks({"featurizer": _Body(batchnorm), "classifier": nn.Linear(4, 2)})
        self.module = SingleRun(
            ERM(SIZES, {"lr": 0.05, "weight_decay": 0.0, "batch_size": 5}), networks
        )
        self.initial = _params(self.module)
        self.path: list[dict[str, Tensor]] = []
        self.module.after_step.append(lambda step, batch: self.path.append(_params(self.module)))
        environments = _toy()
        recipes = environments.table.error_recipes(True, ["val", "test"])
        self.data = EnvironmentData(
            environments,
            ["a", "b"],
            recipes,
            steps=STEPS,
            eval_every=EVERY,
            batch_size=5,
            eval_batch_size=4,
            seed=0,
        )
        identity = RunIdentity(
            run="r", algorithm="erm", hparams={}, backbone="toy", protocol="loo", fold="full",
            held_out=[], seed=0, code="0", **environments.info.identity(),
        )  # fmt: skip
        self.file, self.watch, self.rule = folder / "errors.jsonl", _Watch(), rule
        averaging, last, done = AveragedScores(rule, STEPS), folder / "last.ckpt", 0

        def save(trainer: Any, module: Any) -> None:
            torch.save({"run": module.run_state(0), "averaging": averaging.state_dict()}, last)

        if resume:
            state = torch.load(last, weights_only=True)
            self.module.load_run_states([state["run"]])
            averaging.load_state_dict(state["averaging"])
            done = self.module.steps_done
        recorder = Recorder([RunRecord(self.file, identity, recipes)], final_only=rule.final_only)
        if resume and not rule.final_only:
            recorder.written = [lines_before(self.file, done + 1)]
        settings = TrainerSettings(checkpoint_seconds=0.0, steps=STEPS, eval_every=EVERY)
        checkpointer = Checkpointer(save, [folder / "best.ckpt"], recorder, settings)
        trainer = pl.Trainer(
            accelerator="cpu", max_epochs=(stop - done) // EVERY, num_sanity_val_steps=0,
            logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=[self.watch, recorder, checkpointer, averaging],
        )  # fmt: skip
        trainer.fit(self.module, datamodule=self.data)
        if rule.final_only and stop == STEPS:
            trainer.validate(self.module, datamodule=self.data, verbose=False)
        self.best = (
            torch.load(folder / "best.ckpt", weights_only=True)
            if (folder / "best.ckpt").exists()
            else None
        )

    def rows(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self.file.read_text().splitlines()]
            if self.file.exists()
            else []
        )


def _params(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.named_parameters()}


def _equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(value, b[name]) for name, value in a.items())


def test_a_moving_average_is_scored_and_the_live_weights_are_trained(tmp_path: Path) -> None:
    """start=4: evaluation at step 2 scores step 2, at step 4 the mean of steps 3 and 4, at step 6
    of 3 to 6.
    """
    run = _Run(tmp_path, MovingAverage(start=4))
    plain = _Run(tmp_path, MovingAverage(start=1000))
    assert _equal(run.path[-1], plain.path[-1])
    assert _equal(_params(run.module), run.path[-1])
    assert _equal(run.watch.scored[0], run.path[1])
    for evaluation, first, last in ((1, 3, 4), (2, 3, 6)):
        for name, value in run.watch.scored[evaluation].items():
            torch.testing.assert_close(
                value, torch.stack([w[name] for w in run.path[first - 1 : last]]).mean(0)
            )
    assert [row["step"] for row in run.rows()] == [
        step for step in range(2, 13, 2) for _ in range(4)
    ]


def test_the_best_checkpoint_holds_the_weights_that_were_scored(tmp_path: Path) -> None:
    run = _Run(tmp_path, MovingAverage(start=4))
    assert _equal(run.watch.scored[run.best["step"] // EVERY - 1], run.best["state_dict"])


def test_swad_writes_the_rows_of_its_average_alone(tmp_path: Path) -> None:
    run = _Run(tmp_path, Swad(n_converge=2, n_tolerance=3, tolerance_ratio=10.0))
    assert not run.rule.finished
    assert {row["step"] for row in run.rows()} == {STEPS}
    assert len(run.rows()) == 4
    for evaluation in range(STEPS // EVERY):
        assert _equal(run.watch.scored[evaluation], run.path[(evaluation + 1) * EVERY - 1])
    final = run.watch.scored[-1]
    assert _equal(run.rule.average().weights, final)
    assert not _equal(final, run.path[-1])
    assert _equal(final, run.best["state_dict"])
    assert _equal(_params(run.module), run.path[-1])


def test_the_beta_moving_average_begins_with_the_initial_weights(tmp_path: Path) -> None:
    """With beta = 1 it is the plain mean of steps 0 to 12, scored once, while the live weights are
    trained and judged on the way.
    """
    run = _Run(tmp_path, BetaMovingAverage(beta=1.0))
    assert {row["step"] for row in run.rows()} == {STEPS}
    for evaluation in range(STEPS // EVERY):
        assert _equal(run.watch.scored[evaluation], run.path[(evaluation + 1) * EVERY - 1])
    for name, value in run.watch.scored[-1].items():
        weights = [run.initial[name], *(step[name] for step in run.path)]
        torch.testing.assert_close(value, torch.stack(weights).mean(0))
    assert _equal(_params(run.module), run.path[-1])


def test_swads_loss_is_the_mean_over_training_environments_of_the_live_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6 val images in each of 2 environments: the mean of their two mean cross entropies."""
    gathered: list[int] = []
    gather = TensorStore.gather

    def counted(
        self: TensorStore, indices: Tensor, feature: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        gathered.append(len(indices))
        return gather(self, indices, feature)

    monkeypatch.setattr(TensorStore, "gather", counted)
    run = _Run(tmp_path, Swad(n_converge=99))
    judged = 2 * 6 * (STEPS // EVERY)
    trained = 2 * 5 * STEPS
    assert (
        sum(gathered) - trained - sum(row["seen"] for row in run.rows()) == judged
    )  # no other image in training
    segments = run.rule.recent
    run.module.load_state_dict({**run.module.state_dict(), **run.path[1]})
    toy, losses = _toy(), []
    for env in toy.info.given:
        x, y = toy.store.gather(torch.from_numpy(toy.table.subset(env, "val")))
        losses.append(nn.functional.cross_entropy(run.module(x), y).item())
    assert segments[0].loss == pytest.approx(sum(losses) / 2, rel=1e-6)
    assert [(s.start, s.end) for s in segments] == [
        (1, 2),
        (3, 4),
        (5, 6),
        (7, 8),
        (9, 10),
        (11, 12),
    ]


class _Impatient(Swad):
    """Leaves its valley at the third evaluation."""

    def evaluated(self, step: int, loss: float, buffers: Mapping[str, Tensor]) -> None:
        super().evaluated(step, loss, buffers)
        self.finished = step == 6


def test_a_dead_valley_ends_training_also_after_a_resume(tmp_path: Path) -> None:
    run = _Run(tmp_path, _Impatient())
    assert len(run.path) == 6
    assert {row["step"] for row in run.rows()} == {6}
    again = _Run(tmp_path, _Impatient(), resume=True)
    assert again.path == []
    assert again.rows() == run.rows()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make",
    [
        lambda: MovingAverage(start=4),
        lambda: MovingAverage(start=3, flavor="parameters"),
        lambda: MovingAverage(start=6, flavor="renewed"),
        lambda: Swad(n_converge=2, n_tolerance=3, tolerance_ratio=10.0),
        BetaMovingAverage,
    ],
)
@pytest.mark.parametrize("stop", [4, 8, 12])
def test_two_parts_give_what_one_gives(make: Any, stop: int, tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = _Run(tmp_path / "whole", make(), batchnorm=True)
    _Run(tmp_path / "parts", make(), stop=stop, batchnorm=True)
    second = _Run(tmp_path / "parts", make(), resume=True, batchnorm=True)
    assert len(second.path) == STEPS - stop
    assert second.rows() == whole.rows()
    assert _equal(second.rule.result(), whole.rule.result())
    assert _equal(second.best["state_dict"], whole.best["state_dict"])


def test_swad_renews_an_unfrozen_batchnorm(tmp_path: Path) -> None:
    """Two forward passes on the minibatches that would have come next, steps 12 and 13."""
    run = _Run(tmp_path, Swad(batchnorm_batches=2), batchnorm=True)
    means = [batch.x.flatten(1).mean(0) for batch in run.data.batches(STEPS, 2)]
    torch.testing.assert_close(
        run.best["state_dict"]["networks.featurizer.1.running_mean"], torch.stack(means).mean(0)
    )
