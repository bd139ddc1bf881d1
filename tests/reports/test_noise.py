"""A lead that rounding, the order of minibatches or initial weights alone would make is named under
the tables.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgbench.analysis import floor_of_lead
from dgbench.analysis.selection import Last
from dgbench.reports.document import Document
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.resolution import below_noise


def matrix(**values: list[float]) -> pd.DataFrame:
    return pd.DataFrame(values).T


def test_the_floor_of_a_lead() -> None:
    """Student's t with 1 degree of freedom, 12.706, times the deviation sqrt(2) over the root of 4
    seeds.
    """
    assert floor_of_lead([-1.0, 1.0], 4) == pytest.approx(12.706 * np.sqrt(2) / 2, rel=1e-4)
    assert floor_of_lead([0.5, 0.5, 0.5], 3) == 0


def test_leads_of_equal_algorithms_are_below_the_floor() -> None:
    """In 95% of studies whose seeds move nothing else: of 2,000, each with 5 repetitions of its
    own.
    """
    rng = np.random.default_rng(0)
    below = [
        abs(rng.normal(size=3).mean()) < floor_of_lead(rng.normal(size=5), 3) for _ in range(2000)
    ]
    assert np.mean(below) == pytest.approx(0.95, abs=0.015)


def test_parts_that_alone_make_such_a_lead_are_named() -> None:
    values = matrix(a=[0.10, 0.10, 0.10], b=[0.11, 0.11, 0.11])
    rounding = matrix(a=[0.1, 0.1, 0.1], b=[0.1, 0.1, 0.1001])
    order = matrix(a=[0.1, 0.1, 0.1], b=[0.05, 0.1, 0.15])
    [note] = below_noise(values, {"nothing": rounding, "order": order}, "worst")
    assert "a leads b by 1.0 points" in note
    assert "minibatches" in note and "rounding" not in note
    assert below_noise(values, {"nothing": rounding}, "worst") == []
    assert below_noise(values, {"order": order.drop("b")}, "worst") == [], "nothing is known of b"
    [note] = below_noise(values, {"order": order}, "accuracy", highest=True)
    assert "b leads a" in note


@pytest.fixture
def study(tmp_path: Path, make: SimpleNamespace) -> Path:
    """Two algorithms, 1 point apart in both seeds; the order alone moves vrex by 20 points, on one
    draw of the data.
    """

    def write(algorithm: str, seed: int, error: float, **changes: Any) -> None:
        for fold in ("0", "1", "2", "3", "full"):
            who = make.identity(
                algorithm, fold, seed, run=f"{algorithm}{fold}{seed}{changes}", **changes
            )
            folder = f"{algorithm}_{seed}_{fold}_{who.seed_moves}"
            make.write_run(tmp_path, who, lambda env, step: error, folder=folder, steps=[200])

    for seed in (0, 1):
        write("erm", seed, 0.30, data_seed=seed)
        write("vrex", seed, 0.31, data_seed=seed)
        write("erm", seed, 0.30, seed_moves="order")
        write("vrex", seed, 0.30 + 0.2 * seed, seed_moves="order")
    return tmp_path


def notes(document: Document, name: str) -> dict[str, list[str]]:
    """Section -> what stands under its table of that name and names the floor."""
    tables = [
        (section.title, table)
        for section in document.sections
        for table in section.tables
        if table.name == name
    ]
    return {title: [note for note in table.notes if "floor" in note] for title, table in tables}


@pytest.mark.parametrize(
    ("report", "name"), [(MeasuresReport, "measures"), (LeaderboardReport, "leaderboard")]
)
def test_rows_that_repeat_a_setting_tell_its_floor(study: Path, report: Any, name: str) -> None:
    document = report()(collect(study), Last())
    found = notes(document, name)
    assert len(found) == 2, "seeds that move the order alone share no table with others"
    [whole] = [title for title in found if "order" not in title]
    assert ["minibatches" in note for note in found.pop(whole)] == [True]
    assert list(found.values()) == [[]]
    verdicts = {
        section.title: any("ecided" in text for text in section.answer)
        for section in document.sections
    }
    assert {title for title, decided in verdicts.items() if decided} == {whole}, (
        "no verdict over parts of a seed"
    )
