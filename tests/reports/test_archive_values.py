"""Every number that reports gave for the published archive before their tables became frames, to
the last digit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgbench.analysis.selection import Last
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import collect
from tests.reports.long_frames import long_frame

ARCHIVE = (
    Path(__file__).resolve().parents[2]
    / "results"
    / "hwang2024_table1_scale1_fixed_data"
    / "rows.jsonl.xz"
)
CELL = ["section", "table", "key", "quantity"]
NUMBERS = ["value", "std", "low", "high", "n"]


@pytest.fixture(scope="module")
def kept() -> pd.DataFrame:
    """One line per value: the report, what names its cell, and the numbers."""
    lines = pd.read_csv(Path(__file__).with_name("archive_values.csv.xz"), dtype=str)
    # pandas' own parser may miss the last digit
    return lines.assign(**{number: lines[number].map(float) for number in NUMBERS})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "report", "count"),
    [
        ("measures", MeasuresReport(), 2233),
        ("leaderboard", LeaderboardReport(shifts={"sr_cmnist": "correlation"}), 2450),
    ],
)
def test_the_numbers_of_the_archive_are_what_they_were(
    kept: pd.DataFrame, name: str, report: Any, count: int
) -> None:
    document = report(collect([ARCHIVE]), Last())
    made = long_frame(
        (table, section.title) for section in document.sections for table in section.tables
    )
    expected = kept[kept["report"] == name]
    assert len(expected) == count
    both = expected.merge(made, on=CELL, how="left", suffixes=("", ".new"), validate="one_to_one")
    for number in NUMBERS:
        old, new = both[number].astype("float64"), both[f"{number}.new"].astype("float64")
        differ = ~((old == new) | (old.isna() & new.isna()))
        assert not differ.any(), (
            both.loc[differ, [*CELL, number, f"{number}.new"]].head().to_string()
        )
