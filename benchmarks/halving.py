"""What ``hparams=halving`` saves against a whole search, and what the draws that it chooses are
worth.

python benchmarks/halving.py [--folder DIR] [--algorithms erm,vrex] [--searches 5] [--steps 480]

Both searches have the same 20 draws of each algorithm and search; the draw and the step of every
fold are chosen by training-domain validation, and their test error is that of the held-out
environment. The batch size is fixed, so that draws train together in both. Both run at once, each
on a CPU thread of its own. With ``--folder`` the models stay, and the same command goes on where it
was stopped; seconds are then those of its last part.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from dgbench.analysis.accuracy import mean_interval
from dgbench.analysis.selection import TrainVal
from dgbench.reports.choices import choices
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs

ROOT = Path(__file__).resolve().parents[1]
ALGORITHMS = "erm,irm,vrex,group_dro,coral,mmd,mixup,mldg,sag_net,ib_erm"
DRAWS = 20
SMALL = (
    "dataset.base=digits",
    "backbone.width=32",
    "trainer.device=cpu",
    "protocol.folds=[0,1,2,3]",
)
Key = tuple[str, int]  #: algorithm, search
KINDS = ("search", "halving")


def train(
    folder: Path, kind: str, algorithms: str, searches: int, steps: int
) -> subprocess.Popen[bytes]:
    """Start a command that trains all searches of one kind."""
    words = (
        f"algorithm={algorithms}",
        f"hparams={kind}",
        f"hparams.scheme.draws={DRAWS}",
        f"hparams.scheme.trials={searches}",
        "hparams.batch_size=32",
        f"trainer.steps={steps}",
        f"trainer.eval_every={steps // 16}",
        f"hydra.sweep.dir={folder / kind}",
    )
    with (folder / f"{kind}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, ROOT / "train.py", "-m", *SMALL, *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def outcome(
    folder: Path,
) -> tuple[dict[Key, float], dict[Key, set[tuple[str, int]]], dict[str, int]]:
    """Read what the searches in a folder chose.

    Returns:
        The mean test error of the chosen models of each search, their folds and draws, and the
        optimizer steps that each algorithm's models took.
    """
    collection = collect(folder)
    errors, draws, steps = defaultdict(list), defaultdict(set), defaultdict(int)
    for run in collection.runs:
        steps[run.identity["algorithm"]] += run.last_step
    for choice in choices(select_runs(collection, TrainVal())):
        if choice.test is None:
            raise SystemExit(f"{choice.folder} has no test error")
        errors[choice.algorithm, choice.trial].append(1 - choice.test)
        draws[choice.algorithm, choice.trial].add((choice.fold, choice.draw))
    return {key: sum(values) / len(values) for key, values in errors.items()}, draws, steps


def table(folder: Path) -> None:
    """Print a line for each algorithm, and one for all."""
    (whole, whole_draws, whole_steps), (halved, halved_draws, halved_steps) = (
        outcome(folder / kind) for kind in KINDS
    )
    print(
        "| algorithm | steps, % | same draw, % | whole search, % | halving, % | difference, "
        "points | 95 % interval |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")

    def line(title: str, keys: list[Key], share: float) -> None:
        same = [len(whole_draws[key] & halved_draws[key]) / len(whole_draws[key]) for key in keys]
        difference = mean_interval([100 * (halved[key] - whole[key]) for key in keys])
        errors = [100 * sum(side[key] for key in keys) / len(keys) for side in (whole, halved)]
        print(
            f"| {title} | {100 * share:.1f} | {100 * sum(same) / len(same):.0f} | {errors[0]:.1f} "
            f"| {errors[1]:.1f} | {difference.estimate:+.1f} | {difference.low:+.1f} to "
            f"{difference.high:+.1f} |"
        )

    for algorithm in dict.fromkeys(name for name, _ in whole):
        keys = [key for key in whole if key[0] == algorithm]
        line(algorithm, keys, halved_steps[algorithm] / whole_steps[algorithm])
    line("all", list(whole), sum(halved_steps.values()) / sum(whole_steps.values()))


def main() -> None:
    """Train both kinds of searches, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--algorithms", default=ALGORITHMS)
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--steps", type=int, default=480)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        commands = {
            kind: train(folder, kind, options.algorithms, options.searches, options.steps)
            for kind in KINDS
        }
        seconds = {}
        for kind in reversed(KINDS):
            _, status, usage = os.wait4(commands[kind].pid, 0)
            if os.waitstatus_to_exitcode(status):
                commands["search"].kill()
                raise SystemExit((folder / f"{kind}.log").read_text()[-2000:])
            seconds[kind] = usage.ru_utime + usage.ru_stime
        table(folder)
        print(
            (
                f"CPU seconds: whole searches {seconds['search']:.0f}, halving "
                f"{seconds['halving']:.0f}, "
            ),
            end="",
        )
        print(f"{100 * seconds['halving'] / seconds['search']:.0f} %")


if __name__ == "__main__":
    main()
