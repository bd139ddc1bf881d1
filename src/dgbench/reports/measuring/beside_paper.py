"""Correlations and selections of a benchmark beside those that Hwang et al. 2024 print (Tables 1 to
6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.analysis import SampleSummary
from dgbench.reports.measuring.benchmarks import Benchmark, BenchmarkLine, settings_table
from dgbench.reports.measuring.correlations import benchmark_cells, setting_cells
from dgbench.reports.predictions import COEFFICIENTS, selected
from dgbench.reports.published import Published, Value, names, published
from dgbench.reports.published.beside import (
    AGREES,
    difference_cells,
    published_cell,
    source_note,
)
from dgbench.reports.tables import Column, Table, entry, table

TERMS, SELECTED = "hwang2024_table5", "hwang2024_table6"
_CORRELATED = ("worst_gap", "average")  #: measures of Tables 1 to 4
_SELECTING = ("ideal", "worst_gap", "average")  #: measures of Table 6
_WHOSE = ("ours", "paper")


def benchmark_published_tables(benchmark: Benchmark) -> list[Table]:
    """Build a table beside each published one (the paper's Tables 1 to 6) that holds a setting of
    this benchmark.
    """
    if benchmark.identity["base"] == "digits":  # the 8 x 8 ones, which stand in for MNIST
        return []
    papers = [
        paper
        for paper in map(published, names())
        if paper.match and paper.quantity == "correlation"
    ]
    tables = [_comparison(benchmark, paper) for paper in papers]
    tables += [
        _terms_beside(benchmark, published(TERMS)),
        _selections_beside(benchmark, published(SELECTED)),
    ]
    return [table for table in tables if table is not None]


def _terms_beside(benchmark: Benchmark, paper: Published) -> Table | None:
    """Compare correlations of worst and gap alone and of both, means over settings, with the
    paper's Table 5.
    """
    shown = {name: benchmark.measures.named(name).in_correlations for name in paper.columns}
    lines: list[dict[str, Any]] = []
    for coefficient in COEFFICIENTS:
        theirs = paper.values.get(f"{coefficient.lower()}/{benchmark.identity['dataset']}")
        if theirs is None:
            return None
        cells: dict[str, Any] = {"coefficient": coefficient}
        for measure, title in shown.items():
            cells |= benchmark_cells(benchmark, coefficient, measure, f"{title} ours")
            cells |= published_cell(f"{title} paper", theirs[measure])
        lines.append(cells)
    columns = [Column("coefficient", key=True)]
    for title in shown.values():
        columns += [
            Column(f"{title} ours", unit="correlation"),
            Column(f"{title} paper", unit="correlation", help=paper.source),
        ]
    notes = [f"Ours: {_mean_over(len(benchmark.lines))}. {source_note(paper, 'Paper')}"]
    return table(lines, "published_terms", f"Beside the paper: {paper.title}", columns, notes)


def _mean_over(settings: int) -> str:
    return (
        "of one setting" if settings == 1 else f"mean ± standard deviation over {settings} settings"
    )


def _selections_beside(benchmark: Benchmark, paper: Published) -> Table | None:
    """Compare the algorithms selected on the mean over seeds and seed by seed with those of the
    paper's Table 6.
    """
    titles = {name: benchmark.measures.named(name).title for name in _SELECTING}
    lines = []
    agreeing = 0
    for line in benchmark.lines:
        theirs = paper.words.get(_row(line, paper))
        if not theirs:
            continue
        cells: dict[str, Any] = {**line.values, "N": line.count}
        for name, title in titles.items():
            selections = line.evaluation.selections
            by_seed = [selected(selections, name, seed) for seed in line.seeds]
            words = ", ".join(" = ".join(names) or "-" for names in by_seed)
            chosen = selected(selections, name)
            agrees = theirs[f"seed_average_{name}"] in chosen
            agreeing += agrees
            shown = " = ".join(chosen) or None
            cells |= entry(f"{title} ours", shown, best=agrees, flag=f"({words})")
            words = ", ".join(theirs[f"seed_{seed}_{name}"] for seed in range(3))
            cells |= entry(f"{title} paper", theirs[f"seed_average_{name}"], flag=f"({words})")
        lines.append(cells)
    if not lines:
        return None
    columns = []
    for title in titles.values():
        columns += [Column(f"{title} {side}") for side in _WHOSE]
    notes = [
        (
            "On the mean over seeds, and in brackets for each. The mean selects the paper's "
            f"algorithm in {agreeing} of {len(lines) * len(titles)} cases (bold). Paper: "
            f"{paper.source}."
        )
    ]
    title = f"Beside the paper: {paper.title}"
    return settings_table(benchmark, lines, "published_selections", title, columns, notes)


def _comparison(benchmark: Benchmark, paper: Published) -> Table | None:
    """Compare each setting's correlations with those of its row of a table of the paper."""
    rows = [(line, _row(line, paper)) for line in benchmark.lines]
    rows = [(line, row) for line, row in rows if row in paper.values]
    if not rows:
        return None
    titles = {name: benchmark.measures.named(name).title for name in _CORRELATED}
    lines = []
    orders = []
    verdicts = []
    for line, row in rows:
        cells: dict[str, Any] = {**line.values, "N": line.count}
        for coefficient in COEFFICIENTS:
            means: dict[str, tuple[float | None, float]] = {}
            for name, shown in titles.items():
                title = f"{coefficient} {shown}"
                theirs = paper.values[row][f"{coefficient.lower()}_{name}"]
                cells |= setting_cells(line.evaluation, coefficient, name, f"{title} ours")
                cells |= published_cell(f"{title} paper", theirs)
                cells |= _difference(title, cells, theirs, paper.seeds)
                means[name] = cells[f"{title} ours"], theirs.mean
                verdicts.append(cells[f"{title}: values"])
            orders.append(_ordering(means))
            cells[f"{coefficient}: worst+gap ahead"] = orders[-1]
        lines.append(cells)
    compared = [word for word in verdicts if word]
    agreeing = sum(order in ("in both", "in neither") for order in orders)
    notes = [
        source_note(paper, "Paper"),
        (
            f"Values: {compared.count(AGREES)} of {len(compared)} that can be compared agree: the "
            "95% interval of ours less the paper's holds 0 (Welch's, from means and standard "
            "deviations over seeds; each is judged by itself). Over a few seeds it is wide, so to "
            "agree is not to be equal."
        ),
        (
            "Ordering: on whether worst+gap is ahead of the average measure, the means say the "
            f"same in {agreeing} of {len(orders)} cells. The same ordering does not make the "
            "values agree."
        ),
    ]
    title = "Rank correlation with the ideal measure beside the paper's"
    columns = _comparison_columns(list(titles.values()), paper)
    return settings_table(benchmark, lines, "suite_published", title, columns, notes)


def _comparison_columns(titles: Sequence[str], paper: Published) -> list[Column]:
    columns = []
    for coefficient in COEFFICIENTS:
        for shown in titles:
            title = f"{coefficient} {shown}"
            with_ideal = f"{coefficient}: {shown} with ideal"
            holds_0 = "whether the interval of the difference holds 0"
            columns += [
                Column(f"{title} ours", unit="correlation", help=with_ideal),
                Column(f"{title} paper", unit="correlation", help=paper.source),
                Column(f"{title} difference", unit="correlation", help="ours less the paper's"),
                Column(f"{title}: values", help=holds_0),
            ]
        higher = "whose worst+gap has the higher mean correlation"
        columns.append(Column(f"{coefficient}: worst+gap ahead", help=higher))
    return columns


def _row(line: BenchmarkLine, paper: Published) -> str:
    """Format the name of a setting's row in the paper's table; empty where a key is not of this
    dataset.
    """
    identity = line.setting.identity
    try:
        return paper.match.format(**{"dataset": identity["dataset"], **identity["variant"]})
    except KeyError:
        return ""


def _difference(title: str, cells: Mapping[str, Any], theirs: Value, seeds: int) -> dict[str, Any]:
    """Compare the correlation in the cells of a line with the paper's."""
    rho = cells[f"{title} ours"]
    ours: SampleSummary | str
    if rho is None:
        ours = cells[f"{title} ours.reason"]
    else:
        ours = SampleSummary(rho, cells.get(f"{title} ours.std"), cells[f"{title} ours.n"])
    return difference_cells(f"{title} difference", f"{title}: values", ours, theirs, seeds)


def _ordering(means: Mapping[str, tuple[float | None, float]]) -> str:
    """Describe whether worst+gap has the higher mean correlation, here and in the paper."""
    (ours, theirs), (our_average, their_average) = means["worst_gap"], means["average"]
    ahead_in_paper = theirs > their_average
    if ours is None or our_average is None:
        return "paper only" if ahead_in_paper else "not in the paper"
    words = {(True, True): "in both", (True, False): "ours only", (False, True): "paper only"}
    return words.get((ours > our_average, ahead_in_paper), "in neither")
