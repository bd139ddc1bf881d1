"""Many algorithms: pairs only where seeds can judge them, of the first 400, few on the page."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgbench.analysis.accuracy import ranks
from dgbench.analysis.expected import expected
from dgbench.analysis.selection import Last
from dgbench.plan.measures import choose
from dgbench.reports import tables
from dgbench.reports.document import Document
from dgbench.reports.importers.table import read_table
from dgbench.reports.measuring import certainty
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.render.drawing import MOST_DRAWN
from dgbench.reports.render.formats import csv_files, markdown_files, render_html
from dgbench.reports.render.latex import latex_files
from dgbench.reports.tables import MOST_ON_PAGE, Cell, Column, Table


def many(algorithms: int, seeds: int, environments: int) -> pd.DataFrame:
    dice = np.random.default_rng(0)
    lines = [
        {
            "algorithm": f"net{number:03d}",
            "seed": seed,
            **{f"e{place}": dice.uniform(50, 90) for place in range(environments)},
        }
        for number in range(algorithms)
        for seed in range(seeds)
    ]
    return pd.DataFrame(lines)


def report(frame: pd.DataFrame) -> Document:
    return MeasuresReport()(read_table(frame), Last())


def differences(document: Document) -> Table:
    (table,) = (item for item in document.sections[0].tables if item.name == "differences")
    return table


def test_one_seed_builds_no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the table nor for what a study could find."""
    from dgbench.analysis import power

    built: list[Any] = []
    monkeypatch.setattr(power.itertools, "combinations", lambda *some: built.append(some) or ())
    document = report(many(40, 1, 5))
    assert len(differences(document)) == 0
    assert "One seed judges no pair" in differences(document).notes[0]
    assert not [items for items, _ in built if len(list(items)) == 40]


@pytest.mark.thorough
def test_pairs_are_capped_on_pages_and_whole_in_csv() -> None:
    document = report(many(70, 2, 3))
    table = differences(document)
    assert len(table) == 70 * 69 // 2 > MOST_ON_PAGE
    (text,) = (text for name, text in csv_files(document).items() if name == "differences.csv")
    assert text.count("\n") == len(table) + 1
    pages = [render_html(document)]
    pages += [*markdown_files(document).values(), *latex_files(document).values()]
    said = [page for page in pages if f"The first {MOST_ON_PAGE:,} of 2,415 lines" in page]
    assert len(said) >= 3


def test_of_very_many_algorithms_the_pairs_of_the_first_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The values of a pair do not depend on how many others are listed."""
    frame = many(12, 3, 4)
    whole = differences(report(frame)).frame.set_index(["algorithm", "less"])
    monkeypatch.setattr(certainty, "_MOST_PAIRED", 5)
    document = report(frame)
    table = differences(document)
    (measures,) = (item for item in document.sections[0].tables if item.name == "measures")
    first = sorted(measures.frame["algorithm"][:5])
    pairs = list(map(tuple, table.frame[["algorithm", "less"]].to_numpy()))
    assert pairs == list(itertools.combinations(first, 2))
    pd.testing.assert_frame_equal(table.frame.set_index(["algorithm", "less"]), whole.loc[pairs])
    assert table.notes[-1] == (
        "The first 5 of 12 algorithms by worst+gap: all have 66 pairs. 'report.pair=[A,B]' "
        "compares any two."
    )


def test_each_table_is_formatted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    cells_of = tables._cells

    def counted(frame: pd.DataFrame, column: Column) -> list[Cell]:
        made.append(column.name)
        return cells_of(frame, column)

    monkeypatch.setattr(tables, "_cells", counted)
    document = report(many(4, 2, 3))
    (measures,) = (item for item in document.sections[0].tables if item.name == "measures")
    markdown_files(document)
    latex_files(document)
    render_html(document)
    assert made.count("worst_gap_of_means") == 1
    assert [line[0].value for line in measures.cells] == list(measures.frame["algorithm"])


def test_many_environments_warn_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        document = report(many(3, 2, 75))
        csv_files(document)
        assert "e74" in render_html(document)


@pytest.mark.parametrize("lacking", [False, True])
def test_expected_errors_of_one_pivot_are_those_of_each_algorithm(lacking: bool) -> None:
    frame = many(3, 3, 4).melt(["algorithm", "seed"], var_name="environment", value_name="accuracy")
    if lacking:
        absent = (frame["algorithm"] == "net001") & (frame["seed"] == 2)
        frame = frame[~(absent & (frame["environment"] == "e3"))]
    document = report(frame)
    (table,) = (item for item in document.sections[0].tables if item.name == "expected")
    lines = table.frame[table.frame["measure"] == "worst+gap"].set_index("algorithm")
    for name, own in frame.groupby("algorithm"):
        seeds = own.groupby("seed").filter(lambda lines: len(lines) == 4)
        matrix = seeds.pivot(index="seed", columns="environment", values="accuracy")
        value = expected(1 - matrix.to_numpy() / 100, choose().named("worst_gap")).value
        assert lines.loc[str(name), "of mean errors"] == pytest.approx(value)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_leaderboard_draws_the_first_algorithms_and_counts_the_others(seeds: int) -> None:
    count = MOST_DRAWN + 5
    document = LeaderboardReport()(read_table(many(count, seeds, 2)), Last())
    (section,) = document.sections
    table = section.tables[0]
    (figure,) = section.figures
    drawn = [name for name in table.frame["algorithm"] if f">{name}<" in figure.svg]
    assert drawn == list(table.frame["algorithm"][:MOST_DRAWN])
    assert "Not drawn: 5 others, of lower averages" in figure.caption
    assert "no figure of ranks" in dict(section.facts)
    (text,) = (text for name, text in csv_files(document).items() if name == f"{table.name}.csv")
    assert text.count("\n") == count + 1


@pytest.mark.thorough
def test_as_many_as_a_figure_has_room_for_are_all_drawn() -> None:
    document = LeaderboardReport()(read_table(many(MOST_DRAWN, 2, 2)), Last())
    (section,) = document.sections
    assert all("Not drawn" not in figure.caption for figure in section.figures)
    assert "no figure of ranks" not in dict(section.facts)
    for figure in section.figures:
        assert all(f"net{number:03d}" in figure.svg for number in range(MOST_DRAWN))


def test_ranks_of_many_are_those_of_each_against_all() -> None:
    dice = np.random.default_rng(1)
    values = {f"net{number}": float(dice.integers(0, 40)) / 40 for number in range(200)}
    values |= {"rounded up": 0.3 + 5e-10, "rounded down": 0.3 - 5e-10}
    levels = list(values.values())
    expected_ranks = {
        name: 1 + sum(other > value + 1e-9 for other in levels) for name, value in values.items()
    }
    assert ranks(values) == expected_ranks
