"""Runs trained together against runs trained one by one and against a bare PyTorch loop, in one
process.

Prints steps x runs per second of each, how many times as fast as the bare loop the stack is and
what ``execution=auto`` chooses is, and the share of the device's matrix-product rate that the stack
reaches. Run it with `make bench-stacked`; RUNS and CASES below say what is measured.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch
from made_study import study_of
from torch.nn import functional as F

from dgbench.data.minibatches import EnvironmentData
from dgbench.training.cost import count
from dgbench.training.fit import group_data, group_module
from dgbench.training.groups import RunGroup, plan_groups
from dgbench.training.modules import SingleRun
from dgbench.training.processes import prepare_process
from dgbench.training.study import ReadyRun

RUNS = (1, 5, 25, 75)
REPEATS = 3
LONG_ENOUGH = 60.0  # seconds after which a measurement is not repeated
# separate models that the bare loop goes through; its time per run does not depend on how many
BARE_RUNS = 5
CASES = [  # title, overrides, steps x runs per measurement
    ("mlp-128, digits 8x8", ["dataset.base=digits", "backbone.width=128"], 2000),
    ("mlp-390, MNIST 14x14", ["dataset.base=mnist", "dataset.resolution=14"], 600),
    ("mnist_cnn, MNIST 28x28", ["dataset.base=mnist", "backbone=mnist_cnn"], 6),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Clock(pl.Callback):
    """Seconds of a fit's training steps."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        synchronize()
        self.begun = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        synchronize()
        self.seconds = time.perf_counter() - self.begun


def synchronize() -> None:
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def runs_of(overrides: list[str], n: int, steps: int) -> list[ReadyRun]:
    """Build ``n`` runs of one shape: the held-out folds of as many seeds as it takes, over the same
    images.
    """
    runs: list[ReadyRun] = []
    source, seed = None, 0
    while len(runs) < n:
        words = [
            *overrides,
            f"seed={seed}",
            f"trainer.steps={steps}",
            f"trainer.eval_every={steps}",
        ]
        study = study_of(words, Path(tempfile.gettempdir()), source)
        source, seed = study.source, seed + 1
        runs += study.runs[:-1]
    return runs[:n]


def fit(module: pl.LightningModule, data: pl.LightningDataModule) -> float:
    """Train a module on data and return the seconds of the step loop."""
    clock = Clock()
    trainer = pl.Trainer(
        accelerator=DEVICE, devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
        limit_val_batches=0, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, callbacks=[clock],
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    return clock.seconds


def planned(runs: list[ReadyRun], mode: str) -> list[RunGroup]:
    """Group the runs into the stacks that ``execution.mode`` makes of them, as many as fit into
    memory in each.
    """
    return plan_groups(runs, {**runs[0].study.config["execution"], "mode": mode})


def fit_group(group: RunGroup) -> float:
    """Train a stack and return the seconds of its step loop."""
    return fit(group_module(group), group_data(group))


def bare(modules: list[SingleRun], data: list[EnvironmentData], steps: int) -> float:
    """Measure seconds per step and run of a plain loop over separate models, images painted before
    the clock runs.
    """
    separate = []
    for module, run_data in zip(modules, data, strict=True):
        run_data.environments.store.to(torch.device(DEVICE))
        subsets = [
            torch.from_numpy(run_data.environments.table.subset(env, "train"))
            for env in run_data.training
        ]
        x, y = run_data.environments.store.gather(torch.cat(subsets))
        starts = torch.tensor([0, *(len(subset) for subset in subsets[:-1])]).cumsum(0).tolist()
        networks = copy.deepcopy(module.networks).to(DEVICE)
        separate.append(
            (networks, torch.optim.Adam(networks.parameters(), lr=1e-3), x, y, starts, subsets)
        )
    synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        for networks, optimizer, x, y, starts, subsets in separate:
            drawn = [
                start + torch.randint(len(subset), (run_data.batch_size,), device=DEVICE)
                for start, subset in zip(starts, subsets, strict=True)
            ]
            rows = torch.cat(drawn)
            loss = F.cross_entropy(networks.logits(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    synchronize()
    return (time.perf_counter() - begun) / steps / len(separate)


def matmul_rate(dtype: torch.dtype = torch.float32) -> float:
    """Measure the FLOP/s of a large matrix product, the best of some rounds, since others may use
    the machine.
    """
    n = 8192 if DEVICE == "cuda" else 1024
    a, b = (torch.rand(n, n, device=DEVICE).to(dtype) for _ in range(2))
    a @ b
    synchronize()
    times = []
    for _ in range(2 * REPEATS):
        begun = time.perf_counter()
        for _ in range(10):
            a @ b
        synchronize()
        times.append(time.perf_counter() - begun)
    return 20 * n**3 / min(times)


@dataclass(frozen=True)
class Speeds:
    """Steps x runs per second of runs of one shape, and ratios of times taken in turns."""

    bare: float  #: of a plain loop over separate models
    single: float  #: of one run alone
    stacked: float  #: of all together
    over_bare: float  #: how many times as fast as the bare loop the stack is
    auto: float  #: and what ``execution=auto`` chooses
    flops: float  #: operations per second of the stack


def measured(overrides: list[str], n: int, budget: int, longest: float = LONG_ENOUGH) -> Speeds:
    """Time ``n`` runs: together, one alone, and in a bare loop, in turns.

    Args:
        overrides: of ``python train.py``.
        n: how many runs.
        budget: steps x runs of one measurement.
        longest: seconds after which a measurement is not repeated.
    """
    steps = max(3, budget // n)
    runs = runs_of(overrides, n, steps)
    bare_runs = runs[:BARE_RUNS]
    modules, data = (
        [run.study.module(run.fold) for run in bare_runs],
        [run.data for run in bare_runs],
    )
    bare(modules, data, 2)
    times: list[tuple[float, float, float]] = []
    begun = time.perf_counter()
    while not times or (len(times) < REPEATS and time.perf_counter() - begun < longest):
        alone = fit(copy.deepcopy(modules[0]), data[0]) / steps
        together = sum(fit_group(group) for group in planned(runs, "stacked")) / steps / n
        times.append((bare(modules, data, max(2, steps // BARE_RUNS)), alone, together))
    plain, alone, together = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(t[0] / t[2] for t in times)
    auto = (
        ratio if planned(runs, "auto")[0].stacked else statistics.median(t[0] / t[1] for t in times)
    )
    flops = count(runs[0].study.planned).step / together
    return Speeds(1 / plain, 1 / alone, 1 / together, ratio, auto, flops)


def main() -> None:
    """Measure every case with every number of runs, and print the table."""
    prepare_process()
    peak = matmul_rate()
    print(
        f"torch {torch.__version__}, {DEVICE}, {torch.get_num_threads()} threads, "
        f"{peak / 1e9:.0f} GFLOP/s measured\n"
    )
    columns = ("runs", "bare", "single", "stacked", "x bare", "auto", "of peak")
    print(
        f"{'case':<24}"
        + "".join(f"{column:>9}" for column in columns)
        + "  (steps x runs per second)"
    )
    for title, overrides, budget in CASES:
        for n in RUNS:
            speeds = measured(overrides, n, budget)
            rates = "".join(
                f"{rate:>9.1f}" for rate in (speeds.bare, speeds.single, speeds.stacked)
            )
            ratios = f"{speeds.over_bare:>9.2f}{speeds.auto:>9.2f}{speeds.flops / peak:>9.0%}"
            print(f"{title:<24}{n:>9}{rates}{ratios}", flush=True)


if __name__ == "__main__":
    main()
