"""How long reports take: of as many rows as DomainBed's published sweep has records (1,833,734),
again, and of few.

    python benchmarks/report_speed.py [--rows 1800000] [--keep DIR]

Makes a synthetic study (12 settings x 14 algorithms x 3 seeds, several evaluations per run) in a
temporary folder and runs `report.py` over it; adds ten runs and reports again, now with the rows
that the first report kept; and reports on 100 runs alone. Prints seconds and peak memory of each
process, and exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from synthetic_rows import ALGORITHMS, write_study

from dgbench.reports.reading.row_cache import CACHE_FILE

REPORT = Path(__file__).parents[1] / "report.py"
GIGABYTES = 1.0
FIRST, AGAIN, FEW = 40.0, 8.0, 4.0  # seconds, on 2 cores


def main() -> int:
    """Make the rows, report on them in fresh processes, print the numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_800_000, help="rows to make")
    parser.add_argument("--selection", default="train_val", help="file of conf/selection")
    parser.add_argument(
        "--keep", type=Path, help="make the rows in this folder and leave them there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary, "rows")
        if not root.is_dir() or not any(root.iterdir()):
            start = time.perf_counter()
            count = write_study(root, steps=range(500, 500 * 9, 500), at_most=options.rows)
            print(f"made {count:,} rows in {time.perf_counter() - start:.0f} s", flush=True)
        small, extra = Path(temporary, "few"), Path(temporary, "new")
        # 5 folds each
        write_study(small, ratios=(3,), scales=(1,), algorithms=ALGORITHMS[:10], seeds=(0, 1))
        write_study(
            extra,
            ratios=(3,),
            scales=(1,),
            algorithms=("erm",),
            seeds=(3, 4),
            steps=range(500, 500 * 9, 500),
        )
        (root / CACHE_FILE).unlink(missing_ok=True)
        met = [
            report("all", [root], options.selection, FIRST),
            report("again, 10 runs new", [root, extra], options.selection, AGAIN),
            report("100 runs", [small], options.selection, FEW),
        ]
    return int(not all(met))


def report(what: str, roots: Sequence[Path], selection: str, seconds: float) -> bool:
    """Time one report in a process of its own; return whether it meets the targets."""
    with tempfile.TemporaryDirectory() as output:
        words = [
            f"runs=[{','.join(map(str, roots))}]",
            f"output={output}",
            f"selection={selection}",
        ]
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, str(REPORT), *words], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.perf_counter() - start
        page = sum(path.stat().st_size for path in Path(output).glob("*.html"))
    gigabytes = usage.ru_maxrss / 2**20
    met = os.waitstatus_to_exitcode(status) == 0 and elapsed <= seconds and gigabytes <= GIGABYTES
    print(
        (
            f"{what:18s} {elapsed:5.1f} s of {seconds:.0f} s, peak memory {gigabytes:.2f} of "
            f"{GIGABYTES:.0f} GB, page {page / 2**20:.2f} MB: {'met' if met else 'MISSED'}"
        ),
        flush=True,
    )
    return met


if __name__ == "__main__":
    sys.exit(main())
