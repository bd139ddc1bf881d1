"""Training from image files: train.py against (a) resident tensors and (b) PIL with a DataLoader.

(a) is the shortest loop that trains the same network on minibatches that are already there: what
the network itself costs. (b) opens and augments every image when it is drawn, as DomainBed does,
with as many workers as there are cores; once in this process, with the memory that train.py keeps
between steps (dgbench.training.processes), and once in a process of its own, as a plain PyTorch
script has it. Ours and (b) train on the same JPEG files with the same augmentation. Prints images
per second, the median ratio over interleaved repeats, and peak memory; and below, for a whole run
with its evaluation, the share of its time that saving predictions takes, and its peak memory with
and without them, each in a process of its own. Run it with `make bench-images`; `--root DIR` takes
your images (a tree environment/class/image) instead of random pictures of PACS' size, 227 x 227
pixels, and `--side` makes pictures of another size.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from made_study import study_of
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from dgbench.callbacks.predictions import PredictionWriter
from dgbench.data.datasets.image_table import ImageTable
from dgbench.data.minibatches import EnvironmentData
from dgbench.data.store.photographs import cores
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.training.fit import Fit
from dgbench.training.groups import plan_groups
from dgbench.training.processes import make_trainer, prepare_process
from dgbench.training.study import ReadyStudy

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REPEATS = 5
AHEAD = 2 * cores()  # minibatches that a DataLoader's workers make ahead of time
CASES = {  # backbone, image side, images per environment and step, steps per repeat
    "cpu": [("resnet18", 64, 8, 30), ("resnet50", 224, 4, 3)],
    "cuda": [("resnet18", 64, 32, 100), ("resnet50", 224, 32, 50)],
}
ENVIRONMENTS, CLASSES, PICTURES, PACS_SIDE = 4, 2, 40, 227


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


def pictures(root: Path, side: int) -> Path:
    """Write a tree of random, smooth JPEG files of side x side pixels; return its root."""
    rng = np.random.default_rng(0)
    for place in (f"{e}/{c}" for e in range(ENVIRONMENTS) for c in range(CLASSES)):
        (root / place).mkdir(parents=True)
        for i in range(PICTURES):
            coarse = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            fine = rng.normal(0, 12, (side, side, 3))
            picture = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC)) + fine
            Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(
                root / place / f"{i}.jpg", quality=90
            )
    return root


def ours(study: ReadyStudy) -> float:
    """Measure images per second as train.py trains, evaluation left out."""
    run, clock = study.runs[0], Clock()
    trainer = make_trainer(study.settings, [clock], epochs=1)
    trainer.limit_val_batches = 0
    trainer.fit(study.module(run.fold), datamodule=run.data)
    return images(study) / clock.seconds


def images(study: ReadyStudy) -> int:
    """Count the images that a measurement trains on."""
    data = study.runs[0].data
    return study.settings.steps * data.batch_size * len(data.training)


def timed(study: ReadyStudy, batches: Iterator[tuple[Tensor, Tensor]]) -> float:
    """Measure images per second of a bare loop over minibatches, the first AHEAD not counted."""
    networks = study.module(study.runs[0].fold).networks.to(DEVICE).train()
    optimizer = torch.optim.Adam(networks.parameters(), lr=study.hparams["lr"])
    begun = 0.0
    for step in range(AHEAD + study.settings.steps):
        if step == AHEAD:  # what workers had made before is used up
            synchronize()
            begun = time.perf_counter()
        x, y = next(batches)
        x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
        loss = F.cross_entropy(networks.logits(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    synchronize()
    return images(study) / (time.perf_counter() - begun)


def resident(study: ReadyStudy) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the same random minibatch again and again, on the device."""
    data = study.runs[0].data
    n = data.batch_size * len(data.training)
    x = torch.randn(n, *study.environments.store.image, device=DEVICE)
    y = torch.randint(study.environments.info.n_classes, (n,), device=DEVICE)
    while True:
        yield x, y


class Opened(Dataset[tuple[Tensor, int]]):
    """Every image opened and augmented by PIL and torchvision when it is drawn: DomainBed's
    pipeline.
    """

    def __init__(self, table: ImageTable, side: int) -> None:
        self.table = table
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(side, scale=(0.7, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(0.3, 0.3, 0.3, 0.3),
                transforms.RandomGrayscale(),
                transforms.ToTensor(),
                transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        with Image.open(self.table.root / self.table.paths[i]) as opened:
            image = opened.convert("RGB")
        return self.transform(image), int(self.table.label[i])


def opened(study: ReadyStudy) -> Iterator[tuple[Tensor, Tensor]]:
    """Load minibatches in the study's own order by a DataLoader, as many workers as cores, two
    batches each ahead.
    """
    data: EnvironmentData = study.runs[0].data
    options: Any = study.planned.dataset
    order = (data.runs[0].order(step % 1000).tolist() for step in range(10**9))
    dataset = Opened(options.table(), study.environments.store.image[-1])
    loader = DataLoader(
        dataset, batch_sampler=order, num_workers=cores(), pin_memory=DEVICE == "cuda"
    )  # type: ignore[arg-type]
    return iter(loader)


def peak(call: Callable[[], float]) -> tuple[float, float]:
    """Return a call's result and the peak memory in GB: the device's meanwhile, or this process's
    so far on a CPU.
    """
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    result = call()
    if DEVICE == "cuda":
        return result, torch.cuda.max_memory_allocated() / 1e9
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def script(words: list[str], folder: Path) -> float:
    """Measure images per second of (b) in a process of its own, without train.py's settings of
    memory.
    """
    plain = {key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"}
    command = [sys.executable, __file__, "--script", str(folder), *words]
    return float(
        subprocess.run(
            command, env=plain, capture_output=True, text=True, check=True
        ).stdout.split()[-1]
    )


def whole_run(study: ReadyStudy) -> str:
    """Time a run with its evaluation: seconds, of them in the callback of predictions, peak GB,
    bytes per image.
    """
    spent = 0.0

    def timed_hook(hook: Callable[..., None]) -> Callable[..., None]:
        def call(*values: object) -> None:
            nonlocal spent
            synchronize()
            begun = time.perf_counter()
            hook(*values)
            spent += time.perf_counter() - begun

        return call

    for name in (
        "on_fit_start",
        "on_validation_start",
        "on_validation_batch_end",
        "on_validation_epoch_end",
    ):
        setattr(PredictionWriter, name, timed_hook(getattr(PredictionWriter, name)))
    (group,) = plan_groups(study.runs, study.config["execution"])
    group.runs[0].folder.mkdir(parents=True)
    begun = time.perf_counter()
    _, memory = peak(lambda: float(len(Fit(group).train())))
    seconds = time.perf_counter() - begun
    file = group.runs[0].folder / PREDICTION_FILE
    per_image = 0.0
    if file.exists():
        import pyarrow.parquet as pq

        per_image = file.stat().st_size / pq.read_metadata(file).num_rows
    return f"{seconds} {spent} {memory} {per_image}"


def saving(words: list[str], folder: Path) -> tuple[list[float], list[float]]:
    """Measure :func:`whole_run` without predictions and with them, each in a process of its own."""
    measurements = []
    for choice in ("none", "last"):
        overrides = [*words, f"trainer.predictions={choice}", "execution=single"]
        command = [sys.executable, __file__, "--whole", str(folder / choice), *overrides]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        measurements.append([float(word) for word in printed.splitlines()[-1].split()])
    return measurements[0], measurements[1]


def main() -> None:
    """Time every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--root", type=Path, help="tree environment/class/image; default: random pictures"
    )
    parser.add_argument(
        "--case",
        type=int,
        choices=(0, 1),
        help="ResNet-18 at 64 pixels (0) or ResNet-50 at 224 (1)",
    )
    parser.add_argument(
        "--side", type=int, default=PACS_SIDE, help="pixels of the random pictures' sides"
    )
    parser.add_argument(
        "--batch", type=int, help="images per environment and step; default: the case's own"
    )
    parser.add_argument("--steps", type=int, help="steps per repeat; default: enough for seconds")
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help=f"interleaved repeats, {REPEATS} by default"
    )
    # folder and words: what `script` runs
    parser.add_argument("--script", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--whole", nargs="+", help=argparse.SUPPRESS)  # what `saving` runs
    options = parser.parse_args()
    if options.whole:
        prepare_process()
        print(whole_run(study_of(options.whole[1:], Path(options.whole[0]))))
        return
    if options.script:
        study = study_of(options.script[1:], Path(options.script[0]))
        lazy = opened(study)
        timed(study, lazy)  # warms up
        print(timed(study, lazy))
        return
    prepare_process()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {cores()} cores, "
        f"{DEVICE}; images per second\n"
    )
    head = (
        f"{'backbone':<10}{'image':<10}{'batch':>6}{'ours':>9}"
        f"{'resident':>10}{'PIL':>9}{'script':>9}"
    )
    saved = []
    print(f"{head}{'/ resident':>12}{'/ PIL':>8}{'/ script':>10}{'peak GB':>9}")
    for number, (backbone, side, usual_batch, usual_steps) in enumerate(CASES[DEVICE]):
        steps, batch = options.steps or usual_steps, options.batch or usual_batch
        if options.case not in (None, number):
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            root = options.root or pictures(folder / "pictures", options.side)
            words = [
                "dataset=image_folder", f"dataset.root={root}", f"dataset.image_size={side}",
                f"backbone={backbone}", f"paths.cache_dir={folder}/cache",
                f"hparams.batch_size={batch}", f"trainer.steps={steps}",
                f"trainer.eval_every={steps}", "protocol.folds=[0]",
                f"trainer.device={'gpu' if DEVICE == 'cuda' else 'cpu'}",
            ]  # fmt: skip
            study = study_of(words, folder)
            _, memory = peak(lambda study=study: ours(study))  # type: ignore[misc]  # also warms up
            constant, lazy = resident(study), opened(study)
            timed(study, constant), timed(study, lazy)
            repeats = [
                (ours(study), timed(study, constant), timed(study, lazy), script(words, folder))
                for _ in range(options.repeats)
            ]
            lean, full = saving(words, folder)
            saved.append(
                f"{backbone}: saving predictions took {1000 * full[1]:.0f} ms of a run of "
                f"{full[0]:.1f} s ({100 * full[1] / full[0]:.2f} %), {full[3]:.1f} bytes per "
                f"image; peak {full[2]:.2f} GB, without {lean[2]:.2f} GB ({lean[0]:.1f} s)"
            )
        rates = [statistics.median(column) for column in zip(*repeats, strict=True)]
        ratios = [statistics.median(run[0] / run[k] for run in repeats) for k in (1, 2, 3)]
        n = batch * len(study.runs[0].data.training)
        print(
            f"{backbone:<10}{f'{side}x{side}':<10}{n:>6}{rates[0]:>9.1f}{rates[1]:>10.1f}{rates[2]:>9.1f}"
            f"{rates[3]:>9.1f}{ratios[0]:>12.2f}{ratios[1]:>8.2f}{ratios[2]:>10.2f}{memory:>9.2f}",
            flush=True,
        )
    print("\n" + "\n".join(saved))


if __name__ == "__main__":
    main()
