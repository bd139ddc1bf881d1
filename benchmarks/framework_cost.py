"""What the framework costs: train.py's step loop against a bare PyTorch loop of the same networks, in one process.

Prints milliseconds per step of both and their ratio (median over interleaved repeats). Run it with `make bench`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch.nn import functional as F

from dgbench.callbacks.checkpoint import Checkpoints
from dgbench.callbacks.environment_errors import EnvironmentErrors
from dgbench.callbacks.progress import StudyProgress
from dgbench.cli.entry import CONF
from dgbench.cli.identity import study_folder
from dgbench.cli.member import make_trainer
from dgbench.cli.prepare import prepare_process
from dgbench.cli.study import Study
from dgbench.records import ROW_FILE

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


def framework(study: Study, folder: Path) -> float:
    """Seconds per step of one member as train.py trains it, evaluation left out."""
    member, clock = study.members[-1], Clock()
    progress = StudyProgress(1, study.trainer.steps, "bench")
    progress.fold("bench")
    rows = EnvironmentErrors(folder / ROW_FILE, member.identity, member.data.scores)
    trainer = make_trainer(study, [clock, rows, Checkpoints(folder / "checkpoints", 1e9), progress])
    trainer.limit_val_batches = 0
    trainer.fit(study.module(member.fold), datamodule=member.data)
    return clock.seconds / study.trainer.steps


def bare(study: Study) -> float:
    """Seconds per step of the shortest loop that trains the same networks on the same minibatches."""
    member = study.members[-1]
    environments = study.environments
    networks = study.module(member.fold).networks
    subsets = [torch.from_numpy(environments.subset(env, "train")) for env in member.fold.training]
    x, y = environments.gather(torch.cat(subsets))  # painted once, before the clock runs
    starts = torch.tensor([0, *(len(s) for s in subsets[:-1])]).cumsum(0)
    optimizer = torch.optim.Adam(networks.parameters(), lr=study.trainer.lr)
    begun = time.perf_counter()
    for _ in range(study.trainer.steps):
        drawn = [torch.randint(len(subset), (study.trainer.batch_size,)) for subset in subsets]
        rows = torch.cat([start + positions for start, positions in zip(starts, drawn, strict=True)])
        loss = F.cross_entropy(networks.logits(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - begun) / study.trainer.steps


def main() -> None:
    """Time every case and print the table."""
    prepare_process()
    OmegaConf.register_new_resolver("study_folder", study_folder, replace=True)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print(f"{'backbone':<12}{'image':<12}{'bare ms':>9}{'train.py ms':>13}{'ratio':>8}{'allowed':>9}")
    for backbone, side, steps, allowed in CASES:
        overrides = [f"backbone={backbone}", f"dataset.resolution={side}", "dataset.base=mnist", "trainer.device=cpu"]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config: Any = compose("train", [*overrides, f"trainer.steps={steps}", f"trainer.eval_every={steps}"])
        with tempfile.TemporaryDirectory() as folder:
            study = Study(config, Path(folder))
            framework(study, Path(folder)), bare(study)  # warm up
            pairs = [(bare(study), framework(study, Path(folder))) for _ in range(REPEATS)]
        ratio = statistics.median(ours / theirs for theirs, ours in pairs)
        theirs, ours = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
        shape = "x".join(map(str, study.environments.image))
        print(f"{backbone:<12}{shape:<12}{theirs:>9.2f}{ours:>13.2f}{ratio:>8.2f}{allowed:>9.2f}", flush=True)


if __name__ == "__main__":
    main()
