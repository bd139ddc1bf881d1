"""How long a report takes over as many rows as DomainBed's published sweep has records (1,833,734).

    python benchmarks/report_speed.py [--rows 1800000] [--keep DIR]

Makes a synthetic study (12 configurations x 14 algorithms x 3 seeds, several evaluations per run) in a temporary
folder, then collects, selects, tables and writes it in a process of its own, and prints seconds and peak memory.
Exits with 1 when a target is missed: 90 s and 4 GB on 2 cores.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from synthetic_rows import write_study

SECONDS, GIGABYTES = 90.0, 4.0


def main() -> int:
    """Make the rows, report on them in a fresh process, print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_800_000, help="rows to make")
    parser.add_argument("--selection", default="TrainVal", help="class in dgbench.protocols.selection")
    parser.add_argument("--keep", type=Path, help="make the rows in this folder and leave them there")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the process that is measured
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.selection)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        if not root.is_dir() or not any(root.iterdir()):
            start = time.perf_counter()
            count = write_study(root, steps=range(500, 500 * 9, 500), at_most=options.rows)
            print(f"made {count:,} rows in {time.perf_counter() - start:.0f} s", flush=True)
        start = time.perf_counter()
        command = [sys.executable, __file__, "--measure", str(root), "--selection", options.selection]
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
    gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    missed = seconds > SECONDS or gigabytes > GIGABYTES
    print(f"whole process     {seconds:7.1f} s, peak memory {gigabytes:.2f} GB")
    print(f"targets           {SECONDS:7.1f} s, {GIGABYTES:.2f} GB: {'MISSED' if missed else 'met'}")
    return int(missed)


def measure(root: Path, selection: str) -> None:
    """Collect, select, table and write, each timed."""
    start = time.perf_counter()
    from dgbench.protocols import selection as methods
    from dgbench.reports.collect import collect
    from dgbench.reports.measures_report import MeasuresReport
    from dgbench.reports.renderers import write

    def tell(what: str) -> None:
        nonlocal start
        now = time.perf_counter()
        print(f"{what:17s} {now - start:7.1f} s", flush=True)
        start = now

    tell("import")
    collection = collect([root])
    tell("collect")
    document = MeasuresReport()(collection, getattr(methods, selection)())
    tell("select and table")
    with tempfile.TemporaryDirectory() as output:
        paths = write(document, output)
        page = next(path.stat().st_size for path in paths if path.suffix == ".html")
    tell("write")
    print(f"rows {len(collection.rows):,}, runs {len(collection.runs):,}, page {page / 2**20:.2f} MB")
    assert "torch" not in sys.modules, "a report imported torch"


if __name__ == "__main__":
    sys.exit(main())
