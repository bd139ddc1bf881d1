"""What launching a sweep costs: a local launcher against one process, a plan of 100,000 jobs, a
finished sweep again.

python benchmarks/sweeps.py [--draws 20] [--steps 100]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("dataset.base=digits", "execution=single", "backbone.width=64", "trainer.device=cpu")


def train(folder: Path, *words: str) -> tuple[float, float, str]:
    """Run a sweep; return its seconds, the peak memory of its largest process in GB, and the last
    line it prints.
    """
    folder.mkdir(exist_ok=True)
    with (folder / "said").open("w+") as log:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, ROOT / "train.py", "-m", *SMALL, *words],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        log.seek(0)
        lines = [line for line in log.read().splitlines() if line.strip()] or [""]
    if os.waitstatus_to_exitcode(status):
        raise SystemExit("\n".join(lines[-20:]))
    return seconds, usage.ru_maxrss / 2**20, lines[-1]


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        search = ("algorithm=erm,vrex", "hparams=search", f"hparams.scheme.draws={options.draws}")
        search += (f"trainer.steps={options.steps}", f"trainer.eval_every={options.steps}")
        models = 2 * options.draws * 3 * 5
        alone, _, _ = train(folder / "alone", *search)
        shared, _, _ = train(folder / "shared", *search, "hydra/launcher=local")
        print(
            (
                f"search of {models} models: one process {alone:.1f} s, hydra/launcher=local "
                f"{shared:.1f} s, "
            ),
            end="",
        )
        print(
            f"{alone / shared:.2f} times as fast on {len(os.sched_getaffinity(0))} cores",
            flush=True,
        )

        plan = ("algorithm=erm,vrex", "seed=range(0,50000)", "plan=true")
        seconds, memory, _ = train(folder / "plan", *plan)
        print(f"plan of 100,000 jobs: {seconds:.1f} s, {memory:.2f} GB", flush=True)

        done = (
            "seed=range(0,200)",
            "trainer.steps=1",
            "trainer.eval_every=1",
            "hydra/launcher=local",
        )
        train(folder / "done", *done)
        for launcher in ("basic", "local"):
            seconds, memory, line = train(folder / "done", *done[:3], f"hydra/launcher={launcher}")
            print(
                f"finished sweep of 1,000 runs again, launcher {launcher}: {seconds:.1f} s, "
                f"{memory:.2f} GB: {line}"
            )


if __name__ == "__main__":
    main()
