"""Write a sweep as large as DomainBed's, with a known truth, in the format of its logs.

    python benchmarks/domainbed_sweep.py FOLDER [--trials 3] [--draws 20] [--records 25] [--apart]
    python report.py import=domainbed import.path=FOLDER/results.jsonl \\
        import.require_done=false report=claims report.of=rows output=claims

14 algorithms, 7 datasets, 3 trials of 20 draws of hyperparameters, and a run for every one and two
held-out environments: 73,920 runs, 1,848,000 records of 25 steps. All algorithms but the last two
are equal: ``TRUTH`` says by how much these are better or worse. Draws differ in quality, which
validation on training environments sees with noise. With --apart the path is FOLDER.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ALGORITHMS = (
    *("ERM", "IRM", "GroupDRO", "Mixup", "MLDG", "CORAL", "MMD", "DANN", "CDANN", "MTL"),
    *("SagNet", "ARM", "VREx", "RSC"),
)
#: dataset -> accuracy in each environment
LEVELS = {
    "RotatedMNIST": (0.95, 0.98, 0.99, 0.99, 0.99, 0.96),
    "ColoredMNIST": (0.71, 0.73, 0.10),
    "VLCS": (0.97, 0.64, 0.73, 0.76),
    "PACS": (0.85, 0.80, 0.97, 0.79),
    "OfficeHome": (0.61, 0.52, 0.75, 0.76),
    "TerraIncognita": (0.50, 0.43, 0.57, 0.38),
    "DomainNet": (0.58, 0.19, 0.46, 0.13, 0.60, 0.49),
}
TRUTH = {"VREx": 0.02, "RSC": -0.02}  #: accuracy above that of all others, everywhere
#: standard deviations, of accuracy: trial (shared by all algorithms), algorithm in a trial, draw,
#: and what validation and test data of one run add
TRIAL, STUDY, DRAW, NOISE = 0.01, 0.004, 0.02, 0.005


def folds(count: int) -> list[tuple[int, ...]]:
    """List every one and two of the environments, as DomainBed holds them out."""
    single = [(first,) for first in range(count)]
    return [*single, *itertools.combinations(range(count), 2)]


def runs(trials: int, draws: int) -> Iterator[tuple[str, str, tuple[int, ...], int, int]]:
    """Iterate over dataset, algorithm, held-out environments, trial and draw of every run."""
    for dataset, levels in LEVELS.items():
        for algorithm in ALGORITHMS:
            for held_out in folds(len(levels)):
                for trial in range(trials):
                    for draw in range(draws):
                        yield dataset, algorithm, held_out, trial, draw


def quality(rng: np.random.Generator, trials: int, draws: int) -> dict[Any, Any]:
    """Draw what is added to the accuracy of trials, studies and draws."""
    added: dict[Any, Any] = {}
    for dataset in LEVELS:
        added[dataset] = TRIAL * rng.standard_normal(trials)
        for algorithm in ALGORITHMS:
            study = STUDY * rng.standard_normal(trials)
            draw = DRAW * rng.standard_normal((trials, draws))
            added[dataset, algorithm] = TRUTH.get(algorithm, 0.0) + study[:, None] + draw
    return added


def accuracies_of(
    levels: np.ndarray[Any, Any],
    held_out: tuple[int, ...],
    better: np.ndarray[Any, Any],
    rng: np.random.Generator,
    records: int,
) -> np.ndarray[Any, Any]:
    """Draw the accuracies of runs.

    Args:
        levels: (N,) accuracy in each environment.
        held_out: positions of the environments that runs are not trained on.
        better: (...) what is added to the accuracy of each run.
        rng: of the noise.
        records: number R of records of a run.

    Returns:
        (..., R, N, 2): of the ``in`` and the ``out`` part.
    """
    unseen = np.isin(np.arange(len(levels)), held_out)
    level = np.where(unseen, levels, np.maximum(levels, 0.9)) + better[..., None]
    noise = NOISE * rng.standard_normal((*better.shape, records, len(levels), 2))
    growth = 1 - 0.3 * np.exp(-np.arange(records) / 3)
    return np.clip(growth[:, None, None] * level[..., None, :, None] + noise, 0, 1)


def lines_of(
    run: tuple[str, str, tuple[int, ...], int, int],
    added: dict[Any, Any],
    rng: np.random.Generator,
    records: int,
) -> list[str]:
    """Write the records of a run, keys sorted, as DomainBed does."""
    dataset, algorithm, held_out, trial, draw = run
    levels = np.array(LEVELS[dataset])
    better = added[dataset][trial] + added[dataset, algorithm][trial, draw]
    accuracy = accuracies_of(levels, held_out, np.asarray(better), rng, records)
    args = {
        "algorithm": algorithm,
        "data_dir": "./domainbed/data/",
        "dataset": dataset,
        "holdout_fraction": 0.2,
        "hparams": None,
        "hparams_seed": draw,
        "output_dir": f"sweep/{dataset}-{algorithm}-{trial}-{draw}-{'-'.join(map(str, held_out))}",
        "seed": trial * 1000 + draw,
        "skip_model_save": False,
        "steps": None,
        "test_envs": list(held_out),
        "trial_seed": trial,
        "uda_holdout_fraction": 0,
    }
    hparams = {
        "batch_size": 32,
        "class_balanced": False,
        "data_augmentation": True,
        "lr": 10 ** (-5 + draw / 20),
        "nonlinear_classifier": False,
        "resnet18": False,
        "resnet_dropout": 0.0,
        "weight_decay": 10 ** (-6 + draw / 10),
    }
    head = f'{{"args": {json.dumps(args)}, '
    tail = f'"hparams": {json.dumps(hparams)}, "loss": 0.5, "mem_gb": 8.5, '
    lines = []
    for record in range(records):
        values = accuracy[record].ravel().tolist()
        parts = [
            f'"env{index // 2}_{"out" if index % 2 else "in"}_acc": {value:.16f}'
            for index, value in enumerate(values)
        ]
        step = f'"step": {record * 300}, "step_time": 0.25}}\n'
        lines.append(f"{head}{', '.join(parts)}, {tail}{step}")
    return lines


def write(folder: Path, trials: int, draws: int, records: int, apart: bool) -> int:
    """Write the sweep, as one file or in a folder for each run; return the number of records."""
    rng = np.random.default_rng(0)
    added = quality(rng, trials, draws)
    folder.mkdir(parents=True)
    written = 0
    whole = None if apart else (folder / "results.jsonl").open("w")
    for number, run in enumerate(runs(trials, draws)):
        lines = lines_of(run, added, rng, records)
        written += len(lines)
        if whole is not None:
            whole.writelines(lines)
            continue
        place = folder / f"{number:06d}"
        place.mkdir()
        (place / "results.jsonl").write_text("".join(lines))
        (place / "done").write_text("done")
    if whole is not None:
        whole.close()
    return written


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--records", type=int, default=25)
    parser.add_argument("--apart", action="store_true", help="a folder for each run")
    options = parser.parse_args()
    start = time.process_time()
    count = write(options.folder, options.trials, options.draws, options.records, options.apart)
    print(f"{count:,} records in {time.process_time() - start:.0f} s")


if __name__ == "__main__":
    main()
