"""How costs grow with rows, environments and runs: three sizes of each, seconds of the processor
and peak memory.

    python benchmarks/growth.py [rows|environments|runs ...]

Each size is read in a process of its own. Rows: more evaluations of 100 runs; environments: more
columns of a wide table (``import=table``); runs: more folders, each with few rows. Ratios of
neighbors stand beside them: sizes double, so that 2 is linear and 4 is quadratic. Exits with 1
where a cost of the larger two grows faster than 3.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from synthetic_rows import ALGORITHMS, write_study

REPORT = Path(__file__).parents[1] / "report.py"
SIZES = {
    "rows": (125_000, 250_000, 500_000),
    "environments": (500, 1000, 2000),
    "runs": (1000, 2000, 4000),
}
STEEPEST = 3.0  # times the cost for twice the size


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=list(SIZES), help=f"of {', '.join(SIZES)}")
    steep = 0
    for kind in parser.parse_args().kinds:
        before = 0.0
        for size in SIZES[kind]:
            with tempfile.TemporaryDirectory() as folder:
                words = MAKE[kind](Path(folder), size)
                seconds, megabytes = measured([*words, f"output={folder}/report", "cache=false"])
            ratio = f"{seconds / before:4.1f} times" if before else ""
            print(
                f"{kind:12s} {size:8,d}  {seconds:6.1f} s  {megabytes:5.0f} MB  {ratio}", flush=True
            )
            steep += size == SIZES[kind][-1] and seconds > STEEPEST * before
            before = seconds
    return int(steep > 0)


def measured(words: list[str]) -> tuple[float, float]:
    """Run one report; return its seconds of the processor and its peak memory in MB."""
    process = subprocess.Popen([sys.executable, str(REPORT), *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def make_rows(folder: Path, size: int) -> list[str]:
    """Write 100 runs with more and more evaluations."""
    steps = range(1, 1 + size // 150)  # some 150 rows an evaluation of one study of five runs
    kind = {"ratios": (3,), "scales": (1,), "algorithms": ALGORITHMS[:10], "seeds": (0, 1)}
    write_study(folder / "runs", **kind, steps=steps, at_most=size)
    return [f"runs=[{folder / 'runs'}]"]


def make_runs(folder: Path, size: int) -> list[str]:
    """Write folders of runs with the rows of one evaluation."""
    seeds = range(size // (5 * len(ALGORITHMS)))
    write_study(folder / "runs", ratios=(3,), scales=(1,), seeds=seeds)
    return [f"runs=[{folder / 'runs'}]"]


def make_environments(folder: Path, size: int) -> list[str]:
    """Write a table of two algorithms and two seeds with a column for each environment."""
    lines = [",".join(["algorithm", "seed", *(f"e{number}" for number in range(size))])]
    for algorithm in ALGORITHMS[:2]:
        for seed in (0, 1):
            values = [
                f"{50 + (7 * seed + 13 * number) % 40}.{len(algorithm)}" for number in range(size)
            ]
            lines.append(",".join([algorithm, str(seed), *values]))
    file = folder / "table.csv"
    file.write_text("\n".join(lines) + "\n")
    return ["import=table", f"import.path={file}"]


MAKE: dict[str, Callable[[Path, int], list[str]]] = {
    "rows": make_rows,
    "environments": make_environments,
    "runs": make_runs,
}

if __name__ == "__main__":
    sys.exit(main())
