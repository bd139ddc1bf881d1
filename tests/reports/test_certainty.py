"""What a comparison may conclude, in sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dgbench.measures import resample
from dgbench.protocols.selection import Last
from dgbench.reports.certainty import certainty_table, difference_table, separation
from dgbench.reports.collect import collect
from dgbench.reports.comparisons import Comparison, compare
from dgbench.reports.document import show
from dgbench.reports.statistics_options import Statistics


def studied(root: Path) -> Comparison:
    [comparison], _ = compare(collect([root]), Last())
    return comparison


def test_sentences_about_the_lowest() -> None:
    noise = np.random.default_rng(0).normal(size=(1, 3))
    clear = resample("abc", noise + np.array([[0], [5], [6]]), np.random.default_rng(0))
    assert separation(clear, "average", 3) == "average: a is lower than each other algorithm, told by 3 seeds."
    blurred = resample("abc", [[0, 1, 2], [1, 0, 2.3], [50, 51, 52]], np.random.default_rng(0))
    expected = "average: 3 seeds cannot separate ranks 1-2 (a, b); 1 of 2 others are told from the lowest."
    assert separation(blurred, "average", 3) == expected


def test_differences_of_paired_seeds(small_study: Path) -> None:
    """worst+gap: vrex .45 and .47, erm 1.1 and 1.12: .65 in both seeds, so the interval has no width."""
    table = certainty_table(studied(small_study), "how", Statistics())
    erm = next(row for row in table.rows if row[0].value == "erm")
    assert show(erm[1], "points") == "65.0 [65.0, 65.0]"
    assert show(erm[2], "rank") == "2 [2, 2]"
    assert (erm[3].value, table.rows[0][3].value) == (0, 1)
    assert "worst+gap: vrex is lower than each other algorithm, told by 2 seeds." in table.notes
    [pair] = difference_table(studied(small_study), "how", Statistics()).rows
    assert (pair[0].value, pair[1].value, pair[2].best) == ("erm", "vrex", True)


def test_one_seed_resamples_environments_alone(make: Any, tmp_path: Path) -> None:
    for name, errors in (("a", [0.1, 0.2, 0.1, 0.6]), ("b", [0.3, 0.2, 0.3, 0.5])):
        for fold, error in enumerate(errors):
            make.write_member(tmp_path, make.identity(name, str(fold)), lambda e, s, error=error: error)
    table = certainty_table(studied(tmp_path), "how", Statistics())
    assert "1 seed: nothing can be resampled" in table.rows[0][1].reason
    assert table.rows[0][4].low is not None
    assert "only environments are resampled" in table.notes[0]
