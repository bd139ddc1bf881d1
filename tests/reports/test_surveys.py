"""Tables over many configurations, from studies whose numbers are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dgbench.errors import ConfigError
from dgbench.measures import Measures
from dgbench.reports.baseline_figure import baseline_figures
from dgbench.reports.comparisons import Comparison
from dgbench.reports.document import Cell, Table
from dgbench.reports.overview import overview_table
from dgbench.reports.rank_diagram import rank_figures
from dgbench.reports.scatter import scatter_figures
from dgbench.reports.size_figures import asymptotic_figure, degradation_figure, distances
from dgbench.reports.statistics_options import Statistics
from dgbench.reports.studies import Study
from dgbench.reports.survey_picks import hits, survey_hit_table, survey_pick_table
from dgbench.reports.survey_published import survey_published_tables
from dgbench.reports.survey_section import survey_sections
from dgbench.reports.survey_statistics import survey_interval_table, survey_rank_table
from dgbench.reports.survey_tables import survey_correlation_table, survey_seed_table
from dgbench.reports.surveys import surveys

# Hwang et al. 2024, Table 6: scale, ratio, then ideal, worst+gap and average for seeds 0, 1, 2.
# G GroupDRO, V VREx, R RSC, M MMD, A ARM, L MLDG, C CDANN
TABLE_6 = """
1 3 G V V  G G R  G G R
1 4 G V V  G G R  G G G
1 5 V G M  G G M  G G M
2 3 V V V  V G G  G G G
2 4 G G G  G G G  G G G
2 5 G G M  V G M  V G M
3 3 G G A  G G V  G G G
3 4 G G V  G G V  G G V
3 5 V G V  G G L  G V A
4 3 G G A  G G V  G G G
4 4 G G A  G G V  G V C
4 5 G G V  G V A  V G A
"""
Values = Mapping[str, Sequence[Mapping[str, float]]]  # algorithm -> seed -> measure -> value


def comparison(
    values: Values, given: Sequence[str] = ("a", "b", "c"), code: str = "1", **variant: object
) -> Comparison:
    identity: dict[str, Any] = {
        "dataset": "d", "variant": variant, "base": "b", "evaluation": "exact", "data_seed": 0, "split_seed": 0,
        "given": list(given), "backbone": "n", "init": "random", "tuning": "ft", "protocol": "loo",
    }  # fmt: skip
    studies = []
    for algorithm in sorted(values):
        for seed, known in enumerate(values[algorithm]):
            measures = Measures(**{"worst": 0.5, "gap": 0.1, **known})  # type: ignore[arg-type]
            held_out = dict.fromkeys(given, known.get("average", 0.5))
            studies.append(Study(algorithm, seed, held_out, {"z": 0.5}, {}, {}, measures))
    return Comparison(identity, studies, (code,))


def ordered(ideal: Sequence[float], **others: Sequence[float]) -> Values:
    """Algorithms a, b, c, ... with the same values in both of 2 seeds."""
    names = "abcdefgh"[: len(ideal)]
    lines = {
        n: {"ideal": v, **{m: o[i] for m, o in others.items()}}
        for i, (n, v) in enumerate(zip(names, ideal, strict=True))
    }
    return {name: [line, line] for name, line in lines.items()}


def table_6() -> list[Comparison]:
    found = []
    for line in TABLE_6.split("\n")[1:-1]:
        scale, ratio, *picks = line.split()
        values: dict[str, list[dict[str, float]]] = {name: [] for name in "ACGLMRV"}
        for seed in range(3):
            best = dict(zip(("ideal", "worst_gap", "average"), picks[3 * seed : 3 * seed + 3], strict=True))
            for name, seeds in values.items():
                seeds.append({m: 0.2 if best[m] == name else 0.3 + 0.01 * "ACGLMRV".index(name) for m in best})
        given = [str(i) for i in range((int(ratio) + 1) * int(scale))]
        found.append(comparison(values, given, ratio=int(ratio), scale=int(scale)))
    return found


def column(table: Table, title: str) -> list[Cell]:
    at = [c.title for c in table.columns].index(title)
    return [row[at] for row in table.rows]


def test_table_6_counts_are_the_papers() -> None:
    """Section 6.5: worst+gap picks the truly best algorithm in 25 of 36 combinations, average in 9."""
    [survey] = surveys(table_6())
    assert survey.axes == ("scale", "ratio")
    assert survey.size_axis == "scale"
    assert [(line.values["scale"], line.values["ratio"], line.count) for line in survey.configurations[:4]] == [
        ("1", "3", 4), ("1", "4", 5), ("1", "5", 6), ("2", "3", 8),
    ]  # fmt: skip
    assert hits(survey, "worst_gap").right == 25
    assert hits(survey, "average").right == 9
    picks = survey_pick_table(survey, "how")
    assert [cell.value for cell in column(picks, "seed 1: average")][:3] == ["R", "R", "M"]
    assert sum(cell.best for seed in range(3) for cell in column(picks, f"seed {seed}: worst+gap")) == 25
    counted = column(survey_hit_table(survey, "how"), "truly best")
    assert [(cell.value, cell.flag, cell.best) for cell in counted[:2]] == [(25, "of 36", True), (9, "of 36", False)]


def test_correlations_by_hand() -> None:
    """4 algorithms: the same order gives 1, the opposite -1; one swap of neighbors rho = 1 - 6 * 2 / 60 = 0.8."""
    ideal, swapped = [0.1, 0.2, 0.3, 0.4], [0.2, 0.1, 0.3, 0.4]
    first = comparison(ordered(ideal, worst_gap=ideal, average=ideal[::-1], worst=swapped, gap=swapped), scale=1)
    second = comparison(ordered(ideal, worst_gap=swapped, average=ideal, worst=ideal, gap=ideal), scale=2)
    [survey] = surveys([second, first])
    table = survey_correlation_table(survey, "how")
    assert [cell.value for cell in column(table, "scale")] == ["1", "2"]
    assert [cell.value for cell in column(table, "Spearman worst+gap")] == pytest.approx([1, 0.8])
    assert [cell.value for cell in column(table, "Spearman average")] == pytest.approx([-1, 1])
    assert [cell.best for cell in column(table, "Spearman worst+gap")] == [True, False]
    assert column(table, "Kendall worst only")[0].value == pytest.approx(4 / 6)
    assert column(table, "Spearman gap only")[0].std == pytest.approx(0)
    assert "better than average in 1 of 2 configurations" in " ".join(table.notes)
    assert len(survey_seed_table(survey, "how").rows) == 4
    overview = overview_table([survey], ["d"], "how")
    assert column(overview, "Spearman worst+gap")[0].value == pytest.approx(0.9)
    assert column(overview, "Spearman average")[0].value == pytest.approx(0)


def test_the_papers_table_1_stands_beside_ours() -> None:
    """Scale 1: worst+gap is ahead of average in 3:1 (1 against -1) and behind in 4:1 (0.8 against 1); the paper has
    it ahead in both: 0.419 against 0.166 and 0.596 against 0.299. A ratio that the paper lacks has no line."""
    ideal, swapped = [0.1, 0.2, 0.3, 0.4], [0.2, 0.1, 0.3, 0.4]
    found = [
        comparison(ordered(ideal, worst_gap=ideal, average=ideal[::-1]), scale=1, ratio=3),
        comparison(ordered(ideal, worst_gap=swapped, average=ideal), scale=1, ratio=4),
        comparison(ordered(ideal, worst_gap=swapped, average=ideal), scale=1, ratio=7),
    ]
    assert not survey_published_tables(surveys(found)[0], "how")  # another dataset
    [survey] = surveys([replace(c, identity={**c.identity, "dataset": "sr_cmnist"}) for c in found])
    [table] = survey_published_tables(survey, "how")
    assert [cell.value for cell in column(table, "ratio")] == ["3", "4"]
    assert [cell.value for cell in column(table, "Spearman worst+gap ours")] == pytest.approx([1, 0.8])
    assert [(c.value, c.std) for c in column(table, "Spearman average paper")] == [(0.166, 0.088), (0.299, 0.170)]
    assert [cell.value for cell in column(table, "Spearman: worst+gap ahead")] == ["in both", "paper only"]
    assert "agree in 2 of 4 cells" in table.notes[1]


def test_the_size_axis_is_the_one_in_proportion_to_n() -> None:
    """N = (ratio + 1) * scale is proportional to scale alone; one that is named wins; a wrong name is told."""
    [survey] = surveys(table_6(), "ratio")
    assert survey.size_axis == "ratio"
    with pytest.raises(
        ConfigError, match=r"report\.size_axis=size tells no configurations apart; choose from ratio, scale"
    ):
        surveys(table_6(), "size")
    texts = [comparison(ordered([0.1, 0.2]), envs=envs) for envs in ("1-1-1-1", "2-2-2-2")]
    assert surveys(texts)[0].size_axis is None


def test_other_base_images_are_another_survey() -> None:
    two = [comparison(ordered([0.1, 0.2]), scale=scale) for scale in (1, 2)]
    other = [replace(c, identity={**c.identity, "base": "other"}) for c in two]
    found = surveys([*two, *other])
    assert [len(survey.configurations) for survey in found] == [2, 2]
    assert surveys([two[0], other[0]]) == []
    table = overview_table(found, ["first", "second"], "how")
    assert table.rows[-1][0].value == "average"
    assert "d stands in more than one line" in table.rows[-1][2].reason


def test_given_environments_tell_configurations_apart_where_nothing_else_does() -> None:
    two = [comparison(ordered([0.1, 0.2]), given=given) for given in ("abc", "abd")]
    assert surveys(two)[0].axes == ("given",)


def test_mixed_code_is_refused_with_the_list() -> None:
    two = [comparison(ordered([0.1, 0.2]), code=f"0.{scale}", scale=scale) for scale in (1, 2)]
    found = surveys(two)
    sections, problems = survey_sections(found, ["d"], ["d"], "how", Statistics(), "erm")
    assert sections[1].tables == []
    assert sections[0].tables[0].rows[0][2].value is None
    assert "0.1 (scale=1), 0.2 (scale=2)" in problems[0].reason
    assert "split_by=code" in problems[0].reason


def test_cells_that_cannot_be_computed_say_why() -> None:
    whole = comparison(ordered([0.1, 0.2, 0.3], worst_gap=[0.1, 0.2, 0.3], average=[0.1, 0.2, 0.3]), scale=1)
    lacking = comparison({"a": [{"worst_gap": 0.2, "average": 0.2}]}, given="abcdef", scale=2)
    [survey] = surveys([whole, lacking])
    cell = column(survey_correlation_table(survey, "how"), "Spearman worst+gap")[1]
    assert (cell.value, bool(cell.reason)) == (None, True)
    assert "seed 1 was not trained" in column(survey_pick_table(survey, "how"), "seed 1: ideal")[1].reason
    assert "3 or more are needed" in column(survey_interval_table(survey, "how", Statistics()), "worst+gap")[1].reason
    assert "Not computed" in survey_rank_table(survey, "how").notes[0]
    assert rank_figures(survey, "d", "how") == []


def test_intervals_hold_their_estimates_and_are_the_same_again() -> None:
    [survey] = surveys(table_6())
    first, second = (survey_interval_table(survey, "how", Statistics(draws=200)) for _ in range(2))
    assert first == second
    for cell in [*column(first, "worst+gap"), *column(first, "difference")]:
        assert cell.low <= cell.value <= cell.high  # type: ignore[operator]
    assert all(0 <= cell.value <= 1 for cell in column(first, "P(best) average"))  # type: ignore[operator]


def test_distance_to_the_ideal_by_hand() -> None:
    """|0.1 - 0.3| and |0.2 - 0.6| have the mean 0.3."""
    line = surveys([comparison(ordered([0.1, 0.2], average=[0.3, 0.6]), scale=s, given="x" * s * 3) for s in (1, 2)])
    assert distances(line[0].configurations[0], "average") == pytest.approx({0: 0.3, 1: 0.3})


def test_figures_of_the_paper() -> None:
    [survey] = surveys(table_6())
    assert len(baseline_figures(survey, "x", "how", "A")) == 4
    assert baseline_figures(survey, "x", "how", "absent") == []
    assert len(scatter_figures(survey, "x", "how")) == 4
    for figure in (degradation_figure(survey, "x", "how"), asymptotic_figure(survey, "x", "how")):
        assert figure is not None
        assert figure.svg.startswith("<svg")
        assert figure.png.startswith(b"\x89PNG")
        assert "ratio=4" in figure.svg
    assert len(rank_figures(survey, "x", "how")) == 3
    assert "21 points" in scatter_figures(surveys(table_6()[::3])[0], "x", "how")[0].caption
