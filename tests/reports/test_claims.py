"""Claims of published tables against scipy's test from printed statistics, and against counts by
hand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import t, ttest_ind_from_stats

from dgbench.analysis.comparison import holm, welch
from dgbench.errors import ConfigError
from dgbench.reports.published import names, published
from dgbench.reports.ranking.contests import contests
from dgbench.reports.slices.claims import ClaimsReport


def of(table: str, column: str) -> Any:
    return next(contest for contest in contests(published(table)) if contest.column == column)


@pytest.mark.parametrize(
    ("first", "second"), [("sag_net", "coral"), ("coral", "vrex"), ("cdann", "erm")]
)
def test_p_values_of_domainbed_are_those_of_scipy(first: str, second: str) -> None:
    """DomainBed prints the population's deviation over sqrt(3): times 3 / sqrt(2) it is the
    sample's.
    """
    table = published("domainbed2020_train_val")
    contest = of(table.name, "pacs")
    one, other = (table.values[name]["pacs"] for name in (first, second))
    s = [3 / math.sqrt(2) * float(value.error or 0) for value in (one, other)]
    expected = ttest_ind_from_stats(one.mean, s[0], 3, other.mean, s[1], 3, equal_var=False).pvalue
    at = [contest.names.index(name) for name in (first, second)]
    assert contest.p_values[at[0], at[1]] == pytest.approx(expected, rel=1e-12)


def test_a_clear_claim_survives_and_a_close_one_does_not() -> None:
    """MIRO 95.6 ± 0.8 above ERM 83.4 ± 0.5; SagNet 86.3 ± 0.2 above CORAL 86.2 ± 0.3."""
    clear, close = of("cha2022_table2_clip", "pacs"), of("domainbed2020_train_val", "pacs")
    assert (clear.names[0], clear.rivals) == ("miro", [])
    assert close.names[:2] == ("sag_net", "coral") and "coral" in close.rivals


def test_measures_are_compared_within_a_row_of_correlations() -> None:
    """l_cifar10/5:0: Spearman 0.808 ± 0.007 of worst+gap, 0.673 ± 0.098 of the average, 3 seeds."""
    contest = of("hwang2024_table2", "l_cifar10/5:0 spearman")
    assert contest.names == ("worst_gap", "average")
    expected = ttest_ind_from_stats(0.808, 0.007, 3, 0.673, 0.098, 3, equal_var=False).pvalue
    assert contest.p_values[0, 1] == pytest.approx(expected, rel=1e-9)


def test_an_average_has_the_errors_of_its_columns() -> None:
    table = published("domainbed2020_train_val")
    erm = table.values["erm"].values()
    contest = of(table.name, "average")
    assert contest.means[contest.names.index("erm")] == pytest.approx(
        sum(value.mean for value in erm) / 5
    )


def test_an_average_has_the_degrees_of_freedom_of_its_columns() -> None:
    """Satterthwaite over the variances of both averages, 3 runs each; a column of large errors
    dominates them.
    """
    table = published("domainbed2020_train_val")
    contest = of(table.name, "average")
    first, second = contest.names[0], contest.names[3]
    shares = []
    for name in (first, second):
        bars = [float(value.error or 0.05) for value in table.values[name].values()]
        shares += [(3 / math.sqrt(2) * bar) ** 2 / 3 / 25 for bar in bars]
    freedom = 2 * sum(shares) ** 2 / sum(share**2 for share in shares)
    assert 2 < freedom < 20
    statistic = (contest.means[0] - contest.means[3]) / math.sqrt(sum(shares))
    assert contest.p_values[0, 3] == pytest.approx(2 * t.sf(statistic, freedom), rel=1e-9)


def test_the_average_of_one_column_is_that_column() -> None:
    """And equal columns of equal deviations have their degrees of freedom times the number of
    columns.
    """
    means, deviations = [1.0, 2.0, 2.5], np.array([0.3, 0.4, 0.2])
    assert welch(means, deviations[:, None], 3).tolist() == welch(means, deviations, 3).tolist()
    statistic = 0.5 / math.sqrt(2 * 0.3**2 / 3 / 4)
    p_value = welch([1.0, 1.5], np.full((2, 4), 0.3), 3)[0, 1]
    assert p_value == pytest.approx(2 * t.sf(statistic, 4 * 4), rel=1e-9)


def test_p_values_are_those_of_scikit_posthocs() -> None:
    """Welch's tests of every two of four samples, with Holm's correction."""
    posthocs = pytest.importorskip("scikit_posthocs", reason="needs pip install -e .[oracle]")
    samples = np.random.default_rng(0).normal(size=(4, 5)) + np.arange(4)[:, None]
    expected = posthocs.posthoc_ttest(list(samples), equal_var=False, p_adjust="holm").to_numpy()
    pairs = np.triu_indices(4, 1)
    adjusted = holm(welch(samples.mean(axis=1), samples.std(axis=1, ddof=1), 5)[pairs])
    assert adjusted == pytest.approx(expected[pairs], rel=1e-9)


def test_a_bar_of_zero_is_half_of_the_last_digit() -> None:
    """± 0 twice would separate 81.5 from 81.6 for sure."""
    assert published("ye2022_table1").values["erm"]["pacs"].error == 0
    assert of("ye2022_table1", "pacs").p_values.min() > 0


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert welch([1, 1], [0, 0], 3).tolist() == np.ones((2, 2)).tolist()


def test_the_report_counts_every_table_with_bars() -> None:
    document = ClaimsReport()(None, None)  # type: ignore[arg-type]
    counts = document.sections[0].tables[0].frame.set_index("table")
    assert set(counts.index) == {name for name in names() if published(name).bar}
    assert (counts["together"] <= counts["alone"]).all() and (
        counts["alone"] <= counts["pairs"]
    ).all()
    assert counts.loc["domainbed2020_train_val", "best"] == 6  # five datasets and their average
    counted = counts[["best survive", "best", "alone", "together"]].sum().tolist()
    assert counted == [23, 96, 926, 238]  # recomputed from the printed tables without dgbench


def test_twenty_of_the_leaders_of_domainbed_are_undecided() -> None:
    """21 tables by environment; recomputed from the printed tables with scipy."""
    tables = [name for name in names() if name.startswith("domainbed2020")]
    report = ClaimsReport(tables=tables, domains=True)
    (section,) = report(None, None).sections  # type: ignore[arg-type]
    counts, best = (table.frame for table in section.tables)
    totals = counts[["best", "best survive", "pairs", "alone", "together"]].sum().tolist()
    assert (len(counts), totals) == (21, [114, 2, 9910, 1365, 219])
    leaders = best[best["column"] == "average"]
    decided = leaders[leaders["not separated"] == ""]
    assert (len(leaders), decided["best"].tolist()) == (21, ["arm"])
    with pytest.raises(ConfigError, match=r"ye2022_table1.*by environment"):
        ClaimsReport(tables=["ye2022_table1"], domains=True)(None, None)  # type: ignore[arg-type]


def test_an_error_bar_that_no_paper_explains_is_an_assumption() -> None:
    """Those of Yu et al.; they are named under the table, and only where such a table is read."""
    document = ClaimsReport()(None, None)  # type: ignore[arg-type]
    assert not document.warnings  # the answer comes first
    [said] = [text for text in document.sections[0].tables[0].notes if "Assumed" in text]
    assert all(
        f"yu2024_table5_{weights}" in said for weights in ("moco_v2", "moco_v3", "supervised")
    )
    assert "population std" in said
    other = ClaimsReport(tables=["ye2022_table1"])(None, None)  # type: ignore[arg-type]
    assert not any("Assumed" in text for text in other.sections[0].tables[0].notes)


def test_a_table_without_bars_is_refused() -> None:
    with pytest.raises(ConfigError, match="clip_zero_shot prints no error bars"):
        ClaimsReport(tables=["clip_zero_shot"])(None, None)  # type: ignore[arg-type]
