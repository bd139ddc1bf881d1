"""docs/concepts/simulations.md shows what interval_coverage, seeds_needed and statements print."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import seeds_needed, statements_evidence
from benchmarks.interval_coverage import COLUMNS, TABLES, Line, cells

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "concepts" / "simulations.md").read_text()
LINES = {line.title: line for lines in TABLES.values() for line in lines}


def shown(title: str) -> list[float]:
    [row] = re.findall(rf"^\| {re.escape(title)} \|(.*)\|$", PAGE, flags=re.MULTILINE)
    return [float(cell) for cell in row.split("|")]


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_every_line_runs_and_stands_on_the_page(line: Line) -> None:
    """Means of two data sets are 0, 50 or 100 but for a mean of printed chances."""
    found = [float(cell) for cell in cells(line, 2)]
    assert len(found) == len(shown(line.title)) == len(COLUMNS)
    assert all(0 <= value <= 100 for value in found)


@pytest.mark.parametrize(
    "title", ["leads in every seed, two tie", "lead, all tie, unequal", "Welch"]
)
def test_the_numbers_of_quick_lines_are_fresh(title: str) -> None:
    """The same generators: a difference of more than a half is another method, not another
    platform.
    """
    assert [float(cell) for cell in cells(LINES[title], 3000)] == pytest.approx(
        shown(title), abs=0.5
    )


def test_how_often_two_that_tie_lead_in_every_seed() -> None:
    """2 / 2^n by the page, for 3, 5 and 10 seeds and any number of algorithms, within 4 standard
    errors.
    """
    for (seeds, _), percent in zip(COLUMNS, shown("leads in every seed, two tie"), strict=True):
        expected = 2.0 ** (1 - seeds)
        assert percent / 100 == pytest.approx(expected, abs=4 * np.sqrt(expected / 3000) + 5e-4)


@pytest.mark.parametrize("make", seeds_needed.TABLES, ids=lambda make: make.__name__)
def test_the_tables_of_needed_seeds_are_those_of_their_benchmark(
    make: Callable[[int], Iterator[str]],
) -> None:
    """With few studies: the same lines, and heads to the letter."""
    first, *lines = "\n".join(make(200)).splitlines()
    assert first in PAGE
    for line in (line for line in lines if line.startswith("| ")):
        assert f"\n{line.split(' | ')[0]} | " in PAGE, line


@pytest.mark.parametrize(
    "make", statements_evidence.SECTIONS.values(), ids=list(statements_evidence.SECTIONS)
)
def test_the_tables_of_evidence_are_those_of_its_benchmark(
    make: Callable[[int], Iterator[str]],
) -> None:
    """With few studies: heads to the letter, and the same lines."""
    first, *lines = "\n".join(make(50)).splitlines()
    assert first in PAGE
    for line in (line for line in lines if line.startswith("| ")):
        assert f"\n{line.split(' | ')[0]} | " in PAGE, line


def test_the_numbers_of_the_worst_group_are_fresh() -> None:
    lines = "\n".join(statements_evidence.worst_group(10_000)).splitlines()[2:]
    for line in lines:
        title, *numbers = line.strip("| ").split(" | ")
        assert [float(number) for number in numbers] == pytest.approx(shown(title), abs=0.5)


@pytest.mark.thorough
def test_claims_of_a_sweep_print_the_tables_of_the_page() -> None:
    """The titles of all columns and lines, of two sweeps: their numbers are chance."""
    file = ROOT / "benchmarks" / "paired_claims.py"
    ended = subprocess.run(
        [sys.executable, file, "--sweeps", "4"], capture_output=True, text=True, check=True
    )
    tables = [line for line in ended.stdout.splitlines() if line.startswith("| ")]
    assert len(tables) == 11 + 5 + 6
    heads = [line for line in tables if line in PAGE]
    assert len(heads) >= 3
    for line in tables:
        title = line.split(" | ")[0]
        assert f"\n{title} |" in PAGE


def test_the_report_of_a_sweep_and_its_truth_agree_on_the_page() -> None:
    """What 20 draws are said to yield of subsets is what fresh sweeps of so many yield."""
    section = PAGE.partition("## Claims of a sweep")[2].partition("\n## ")[0]
    curve = re.findall(
        r"^\| (\d+) \| [\d,]+ \| ([\d.]+) \| ([\d.]+) ±", section, flags=re.MULTILINE
    )
    assert [int(draws) for draws, _, _ in curve] == [1, 2, 5, 10, 20]
    assert all(abs(float(true) - float(said)) < 0.25 for _, true, said in curve)
    [ties] = re.findall(r"equal: decided alone \| ([\d.]+) \| ([\d.]+) \|", section)
    assert all(4 < float(rate) < 6 for rate in ties)
