"""Benchmarks use parts of dgbench that nobody else does together;
what was renamed is noticed here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.thorough
def test_every_benchmark_can_be_imported() -> None:
    names = ", ".join(sorted(file.stem for file in BENCHMARKS.glob("*.py")))
    ended = subprocess.run(
        [sys.executable, "-c", f"import {names}"],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
