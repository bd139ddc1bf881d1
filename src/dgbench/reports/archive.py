"""Rows of many runs in one compressed file, for publishing results without their run folders.

``python -m dgbench.reports.archive FILE DIR [DIR ...]`` writes the runs under the folders to FILE (``.jsonl.xz``), and
``python report.py runs=[FILE]``, or the folder that FILE lies in, reads it as it reads run folders. One JSON object a
line: folder, status and identity of a run, and its rows by column.
"""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import asdict
from pathlib import Path

from dgbench.errors import DgbenchError
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.runs import ROW_COLUMNS

LOSS_DIGITS = 6  # of single precision, which is all that a table keeps


def write_archive(collection: Collection, file: Path) -> None:
    """Write every run of a collection that has rows."""
    with lzma.open(file, "wt", preset=9, encoding="utf-8") as handle:
        for number, own in collection.rows.groupby("run", sort=True):
            run = collection.runs[number]  # type: ignore[index]  # pandas does not know its keys
            columns = {name: own[name].tolist() for name in ROW_COLUMNS}
            columns["loss"] = [round(value, LOSS_DIGITS) for value in columns["loss"]]
            handle.write(json.dumps({"run": asdict(run), "rows": columns}, separators=(",", ":")) + "\n")


def main(words: list[str]) -> int:
    """Write FILE from DIR...; 1 and one line for what cannot be done."""
    if len(words) < 2:
        print("usage: python -m dgbench.reports.archive FILE DIR [DIR ...]", file=sys.stderr)
        return 1
    file, *roots = words
    try:
        collection = collect(roots)
        write_archive(collection, Path(file))
    except (DgbenchError, OSError) as error:
        print(f"dgbench: {error}", file=sys.stderr)
        return 1
    for problem in collection.problems:
        print(f"{problem.kind}: {problem.where}: {problem.reason}", file=sys.stderr)
    print(f"{file}: {len(collection.runs)} runs, {len(collection.rows)} rows, {Path(file).stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
