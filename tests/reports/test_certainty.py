"""What a setting's studies may conclude, in sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dgbench.analysis import Statistics, separated
from dgbench.analysis.selection import Last
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.measuring.tables import certainty_table, difference_table
from dgbench.reports.over_seeds import separation_words
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.tables import cells, show


def studied(root: Path) -> Evaluation:
    collection = collect([root])
    return evaluate(select_runs(collection, Last()))


def test_sentences_about_the_lowest() -> None:
    noise = np.random.default_rng(0).normal(size=3)
    clear = separated([noise, noise + np.array([5, 5.1, 5]), noise + np.array([6, 6, 6.1])])
    assert separation_words("abc", clear) == "3 seeds separate it from all 2 others."
    blurred = separated([[0, 1, 2], [1, 0, 2.3], [50, 51, 52]])
    assert separation_words("abc", blurred) == "3 seeds cannot separate it from b; 1 is worse."
    assert "1 seed separates nothing" in separation_words("ab", separated([[0.0], [1.0]]))


def test_differences_of_paired_seeds(small_study: Path) -> None:
    """worst+gap: vrex .45 and .47, erm 1.1 and 1.12: .65 in both seeds, so the interval has no width."""
    table = certainty_table(studied(small_study), Statistics())
    erm = next(row for row in cells(table) if row[0].value == "erm")
    assert show(erm[1], "points") == "65.0 [65.0, 65.0]"
    assert show(erm[2], "rank") == "2 [2, 2]"
    assert (erm[3].value, cells(table)[0][3].value) == ("worse", "lowest")
    assert any(note.startswith("worst+gap: vrex is lowest; 2 seeds") for note in table.notes)
    [pair] = cells(difference_table(studied(small_study), Statistics()))
    assert (pair[0].value, pair[1].value, pair[2].best) == ("erm", "vrex", True)


def test_one_seed_resamples_environments_alone(make: Any, tmp_path: Path) -> None:
    for name, errors in (("a", [0.1, 0.2, 0.1, 0.6]), ("b", [0.3, 0.2, 0.3, 0.5])):
        for fold, error in enumerate(errors):
            make.write_run(tmp_path, make.identity(name, str(fold)), lambda e, s, error=error: error)
    table = certainty_table(studied(tmp_path), Statistics())
    assert "1 seed: nothing" in cells(table)[0][1].reason
    assert cells(table)[0][4].low is not None
    assert "only environments" in table.notes[0]
