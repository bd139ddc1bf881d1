"""What the papers computed from their own tables, computed again from those tables alone.

Where a paper disagrees with its own table, both numbers stand here.
"""

from __future__ import annotations

import statistics

import pytest

from dgbench.errors import ConfigError
from dgbench.reports.published import boards, names, published
from dgbench.statistics import spearman
from dgbench.statistics.accuracy_summary import domain_std, mean
from dgbench.statistics.ranking import rank_changes, ranking_score, ranks

YU = ["yu2024_table5_supervised", "yu2024_table5_moco_v2", "yu2024_table5_moco_v3"]


def rounded(value: float, digits: int) -> float:
    """How far a correctly rounded number may be from the unrounded one."""
    return pytest.approx(value, abs=0.5 * 10**-digits + 1e-9)  # type: ignore[return-value]


@pytest.mark.parametrize("name", names())
def test_every_table_loads_and_names_its_source(name: str) -> None:
    table = published(name)
    assert "Table" in table.source
    assert table.values or table.words
    assert all(set(line) == set(table.columns) for line in (table.values or table.words).values())


def test_unknown_tables_and_tables_without_accuracies() -> None:
    with pytest.raises(ConfigError, match="no published table smith2020; choose one of hwang2024_table1"):
        published("smith2020")
    with pytest.raises(ConfigError, match="holds correlation, no accuracies"):
        published("hwang2024_table1").accuracies()
    assert {name for name in boards() if "hwang" in name} == set()


@pytest.mark.parametrize("name", YU)
def test_yu2024_averages_ranks_and_changes(name: str) -> None:
    """30 averages, 30 places and 20 changes; every one agrees with the paper."""
    table, old = published(name), published(YU[0]).averages()
    averages = table.averages()
    places, changes = ranks(averages), rank_changes(old, averages)
    assert len(table.printed) == 10
    for row, printed in table.printed.items():
        assert averages[row] == rounded(printed["average"], 1)
        assert places[row] == printed["rank"]
        assert changes[row] == printed.get("rank_change", 0)


def test_yu2024_rank_correlation_between_self_supervised_leaderboards() -> None:
    """The paper prints 0.794 (section 3.2)."""
    v2, v3 = (published(name).averages() for name in YU[1:])
    assert round(spearman(v2, v3), 3) == 0.794


def test_yu2024_leakage() -> None:
    """Averages from the domains; leakages from the averages, up to the rounding of both."""
    table = published("yu2024_table4")
    base = single = 0.0
    for row, line in table.values.items():
        printed = table.printed[row]
        average = mean([value.mean for value in line.values()])
        assert average == rounded(printed["average"], 2)
        if row.endswith("/iid"):
            base = average
        leakage = average - base
        assert leakage == pytest.approx(printed["leakage"], abs=0.0101)
        if row.endswith("/1"):
            single = leakage
        if "change" in printed:
            # a leakage of 0.07 ± 0.01 turns into a change that is known to some 15 points
            assert 100 * (leakage / single - 1) == pytest.approx(printed["change"], abs=100 * 0.011 / single)


#: averages that OoD-Bench prints in Table 2 and that its columns do not give: row -> (printed, computed)
YE_AVERAGES = {
    "rsc": (61.4, 62.9),
    "coral": (61.5, 62.4),
    "mixup": (60.6, 62.5),
    "mldg": (56.6, 61.6),
    "dann": (59.7, 60.0),
}


@pytest.mark.parametrize("name", ["ye2022_table1", "ye2022_table2"])
def test_ye2022_ranking_scores(name: str) -> None:
    """All arrows (16 x 4 and 16 x 3) and all 32 scores follow from ERM's error bar; 5 averages of Table 2 do not."""
    table = published(name)
    erm = table.values["erm"]
    wrong = {}
    for row, line in table.values.items():
        scores = {}
        for column, value in line.items():
            error = erm[column].error
            assert error is not None
            scores[column] = ranking_score(value.mean, erm[column].mean, error)
            assert row == "erm" or scores[column] == value.arrow, (row, column)
        assert sum(scores.values()) == table.printed[row]["score"], row
        average = table.averages()[row]
        if abs(average - table.printed[row]["average"]) > 0.05 + 1e-9:
            wrong[row] = (table.printed[row]["average"], round(average, 1))
    assert wrong == (YE_AVERAGES if name == "ye2022_table2" else {})


def test_ye2022_previous_scores() -> None:
    """Table 2 repeats Table 1's scores; for CORAL it says -1 where Table 1 says 0 (arrows: up, up, down, down)."""
    first, second = published("ye2022_table1").printed, published("ye2022_table2").printed
    assert first.keys() == second.keys()
    differ = {r: (first[r]["score"], second[r]["previous_score"]) for r in first if
              first[r]["score"] != second[r]["previous_score"]}  # fmt: skip
    assert differ == {"coral": (0, -1)}


def test_zhang2023_averages_and_deviations() -> None:
    """All 21 averages and all 21 deviations; these with the divisor K, though the formula (eq. 5) has K-1.

    ERM: accuracies 81.89 79.76 72.42 82.31 76.80 71.01, K: 4.39 as printed, K-1: 4.81.
    """
    table = published("zhang2023_table2")
    assert len(table.values) == 21
    for row, line in table.values.items():
        accuracies = [value.mean for value in line.values()]
        assert mean(accuracies) == rounded(table.printed[row]["average"], 2)
        assert domain_std(accuracies, "K") == rounded(table.printed[row]["std"], 2)
        assert abs(domain_std(accuracies, "K-1") - table.printed[row]["std"]) > 0.1
    erm = [value.mean for value in table.values["erm"].values()]
    assert (round(domain_std(erm, "K"), 2), round(domain_std(erm, "K-1"), 2)) == (4.39, 4.81)


def test_hwang2024_averages() -> None:
    """Table 5's averages; its SR-CMNIST row is the mean of Table 1 over all scales and ratios (.7200, .5936)."""
    table = published("hwang2024_table5").values
    for coefficient in ("spearman", "kendall"):
        for column in ("worst", "gap", "worst_gap"):
            parts = [table[f"{coefficient}/{data}"][column].mean for data in ("sr_cmnist", "c_cats_dogs", "l_cifar10")]
            assert mean(parts) == rounded(table[f"{coefficient}/average"][column].mean, 3)
        first = [line[f"{coefficient}_worst_gap"].mean for line in published("hwang2024_table1").values.values()]
        assert statistics.mean(first) == rounded(table[f"{coefficient}/sr_cmnist"]["worst_gap"].mean, 3)


def test_hwang2024_selected_algorithms() -> None:
    """Section 6.5: of 36 choices worst+gap agrees with ideal in 25 and average in 9; on the mean, 9 and 1 of 12."""
    words = published("hwang2024_table6").words
    for measure, of_seeds, of_mean in (("worst_gap", 25, 9), ("average", 9, 1)):
        hits = [line[f"seed_{s}_ideal"] == line[f"seed_{s}_{measure}"] for line in words.values() for s in range(3)]
        assert (sum(hits), len(hits)) == (of_seeds, 36)
        means = [line["seed_average_ideal"] == line[f"seed_average_{measure}"] for line in words.values()]
        assert (sum(means), len(means)) == (of_mean, 12)
