"""Whole commands with ``execution=auto`` against ``single`` and ``stacked``, on an idle machine and
on a busy one.

Each round runs the three commands one after the other, every time in another order, while 0, 2 or 4
processes of others compute. Prints median seconds of each, and the median and range over rounds of
how long `auto` and `stacked` take in times of `single`, rounds being compared with themselves.
Nothing sets the number of threads, so the commands choose it. Run it with `make bench-execution` on
a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODES = ("auto", "single", "stacked")
CASES = {  # title -> overrides, and steps; five runs each
    "mlp-128": (("backbone.width=128",), 3000),
    "mnist_cnn": (("backbone=mnist_cnn", "backbone.min_size=8", "backbone.width=32"), 300),
}
BUSY = "while True: pass"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Let so many other processes compute while the body of the ``with`` statement runs."""
    competitors = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for competitor in competitors:
            competitor.kill()
            competitor.wait()


def seconds(mode: str, words: tuple[str, ...], steps: int) -> float:
    """Measure the wall time of a command in seconds, from its start to its table."""
    environment = {key: value for key, value in os.environ.items() if key not in THREADS}
    fixed = (
        "dataset.base=digits",
        "trainer.device=cpu",
        f"trainer.steps={steps}",
        f"trainer.eval_every={steps}",
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, ROOT / "train.py", *fixed, *words, f"execution={mode}"]
        begun = time.monotonic()
        process = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True
        )
        elapsed = time.monotonic() - begun
    if process.returncode:
        raise SystemExit(process.stderr)
    return elapsed


def main() -> None:
    """Print one line for each network and load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--loads", type=int, nargs="+", default=[0, 2, 4], help="processes of others"
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps, for a look")
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores; seconds of a command of 5 runs, median of {options.repeats} "
        "rounds\n"
    )
    ratios = "".join(f"{f'{mode} / single':>26}" for mode in MODES if mode != "single")
    print(
        f"{'network':<12}{'steps':>7}{'load':>6}" + "".join(f"{mode:>9}" for mode in MODES) + ratios
    )
    for title, (words, default_steps) in CASES.items():
        steps = max(1, round(default_steps * options.share))
        for processes in options.loads:
            rounds: list[dict[str, float]] = []
            with load(processes):
                for number in range(options.repeats):
                    order = [MODES[(number + k) % len(MODES)] for k in range(len(MODES))]
                    rounds.append({mode: seconds(mode, words, steps) for mode in order})
            line = "".join(
                f"{statistics.median(times[mode] for times in rounds):>9.1f}" for mode in MODES
            )
            for mode in ("auto", "stacked"):
                ratio = sorted(times[mode] / times["single"] for times in rounds)
                line += (
                    f"{f'{statistics.median(ratio):.2f} ({ratio[0]:.2f} to {ratio[-1]:.2f})':>26}"
                )
            print(f"{title:<12}{steps:>7}{processes:>6}{line}", flush=True)


if __name__ == "__main__":
    main()
