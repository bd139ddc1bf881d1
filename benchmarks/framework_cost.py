"""What the framework costs: train.py's step loop against a bare PyTorch loop of the same networks,
in one process.

Prints milliseconds per step of both and their ratio (median over interleaved repeats). Run it with
`make bench`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
from made_study import study_of
from torch.nn import functional as F

from dgbench.callbacks.checkpointer import Checkpointer
from dgbench.callbacks.progress import Heartbeat, StudyProgress
from dgbench.callbacks.recorder import Recorder, RunRecord
from dgbench.records.rows import ROW_FILE
from dgbench.training.processes import make_trainer, prepare_process
from dgbench.training.study import ReadyStudy

REPEATS = 5
CASES = [  # backbone, image side, steps per repeat, most the ratio may be
    ("mlp", 14, 300, 1.5),
    ("mlp", 28, 150, 1.5),
    ("mnist_cnn", 28, 6, 1.15),
]


class Clock(pl.Callback):
    """Seconds between the first training batch and the end of the last one."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.begun = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seconds = time.perf_counter() - self.begun


def framework(study: ReadyStudy, folder: Path) -> float:
    """Measure the seconds per step of one run as train.py trains it, evaluation left out."""
    run, clock, settings = study.runs[-1], Clock(), study.settings
    module = study.module(run.fold)
    progress = StudyProgress(1, settings.steps, "bench")
    progress.begin("bench")
    recorder = Recorder([RunRecord(folder / ROW_FILE, run.identity(module), run.data.recipes)])
    checkpointer = Checkpointer(lambda *_: None, [None], recorder, settings)
    callbacks = [clock, recorder, progress, checkpointer, Heartbeat([folder], settings.steps)]
    trainer = make_trainer(study.settings, callbacks, epochs=1)
    trainer.limit_val_batches = 0
    trainer.fit(module, datamodule=run.data)
    return clock.seconds / settings.steps


def bare(study: ReadyStudy) -> float:
    """Time the shortest loop that trains the same networks on minibatches of the same images:
    seconds per step.
    """
    run = study.runs[-1]
    environments = study.environments
    networks = study.module(run.fold).networks
    subsets = [
        torch.from_numpy(environments.table.subset(env, "train")) for env in run.fold.training
    ]
    x, y = environments.store.gather(torch.cat(subsets))  # painted once, before the clock runs
    starts = torch.tensor([0, *(len(s) for s in subsets[:-1])]).cumsum(0)
    optimizer = torch.optim.Adam(networks.parameters(), lr=study.hparams["lr"])
    begun = time.perf_counter()
    for _ in range(study.settings.steps):
        drawn = [torch.randint(len(subset), (study.batch_size,)) for subset in subsets]
        rows = torch.cat(
            [start + positions for start, positions in zip(starts, drawn, strict=True)]
        )
        loss = F.cross_entropy(networks.logits(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - begun) / study.settings.steps


def main() -> None:
    """Time every case and print the table."""
    prepare_process()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print(
        f"{'backbone':<12}{'image':<12}{'bare ms':>9}{'train.py ms':>13}{'ratio':>8}{'allowed':>9}"
    )
    for backbone, side, steps, allowed in CASES:
        overrides = [
            f"backbone={backbone}",
            f"dataset.resolution={side}",
            "dataset.base=mnist",
            "trainer.device=cpu",
        ]
        overrides += [
            f"trainer.steps={steps}",
            f"trainer.eval_every={steps}",
            "trainer.checkpoint_seconds=1e9",
        ]
        with tempfile.TemporaryDirectory() as folder:
            study = study_of(overrides, Path(folder))
            framework(study, Path(folder)), bare(study)  # warm up
            pairs = [(bare(study), framework(study, Path(folder))) for _ in range(REPEATS)]
        ratio = statistics.median(ours / theirs for theirs, ours in pairs)
        theirs, ours = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
        shape = "x".join(map(str, study.environments.store.image))
        print(
            f"{backbone:<12}{shape:<12}{theirs:>9.2f}{ours:>13.2f}{ratio:>8.2f}{allowed:>9.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
