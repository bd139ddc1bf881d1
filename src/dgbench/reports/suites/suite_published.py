"""A paper's correlations with the ideal measure beside ours, setting by setting."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dgbench.errors import MeasureError
from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.published import Published, Value, names, published
from dgbench.reports.settings.over_seeds import over_seeds
from dgbench.reports.settings.statistics_options import interval_entry
from dgbench.reports.settings.study_values import COEFFICIENTS, correlations, seeds_of
from dgbench.reports.suites.suite_tables import SHOWN, key_columns, key_entries
from dgbench.reports.suites.suites import Suite, SuiteLine
from dgbench.statistics import Sample, compatible

#: the measures that the paper's Tables 1 and 2 hold
MEASURES = ("worst_gap", "average")
AGREES, DIFFERS = "agrees", "differs"


def suite_published_tables(suite: Suite) -> list[Table]:
    """One table for every published one that holds a setting of this suite."""
    tables = [published(name) for name in names()]
    return [made for each in tables if each.match and (made := _beside(suite, each)) is not None]


def _beside(suite: Suite, paper: Published) -> Table | None:
    found = [(line, row) for line in suite.lines if (row := _row(line, paper)) in paper.values]
    if not found:
        return None
    columns = key_columns(suite)
    for name in COEFFICIENTS:
        for measure in MEASURES:
            title = f"{name} {SHOWN[measure]}"
            columns.append(Column(f"{title} ours", unit="correlation", help=f"{name}: {SHOWN[measure]} with ideal"))
            columns.append(Column(f"{title} paper", unit="correlation", help=paper.source))
            columns.append(Column(f"{title} difference", unit="correlation", help="ours less the paper's"))
            columns.append(Column(f"{title}: values", help="whether the interval of the difference holds 0"))
        columns.append(Column(f"{name}: worst+gap ahead", help="whose worst+gap has the higher mean correlation"))
    lines, orders = [], []
    for line, row in found:
        own = key_entries(suite, line)
        for name in COEFFICIENTS:
            means: dict[str, Any] = {}
            for measure in MEASURES:
                title = f"{name} {SHOWN[measure]}"
                by_seed, why = correlations(line.studies, measure, name)
                theirs = paper.values[row][f"{name.lower()}_{measure}"]
                own |= over_seeds(f"{title} ours", by_seed, len(seeds_of(line.studies)), next(iter(why.values()), ""))
                own |= entry(f"{title} paper", theirs.mean, std=theirs.error)
                own |= _difference(title, own, theirs, paper.seeds)
                means[measure] = own[f"{title} ours"], theirs.mean
            orders.append(_ordering(means))
            own[f"{name}: worst+gap ahead"] = orders[-1]
        lines.append(own)
    made = pd.DataFrame(lines)
    verdicts = [f"{c} {SHOWN[m]}: values" for c in COEFFICIENTS for m in MEASURES]
    compared = [word for word in made[verdicts].to_numpy().ravel() if isinstance(word, str)]
    same = sum(order in ("in both", "in neither") for order in orders)
    notes = [
        f"Paper: {paper.source}; {paper.note}.",
        f"Values: {compared.count(AGREES)} of {len(compared)} that can be compared agree: the 95% interval of "
        "ours less the paper's holds 0 (Welch's, from means and standard deviations over seeds; each is judged by "
        "itself). Over a few seeds it is wide, so to agree is not to be equal.",
        f"Ordering: on whether worst+gap is ahead of the average measure, the means say the same in {same} of "
        f"{len(orders)} cells. The same ordering does not make the values agree.",
    ]
    title = "Rank correlation with the ideal measure beside the paper's"
    return table(made, "suite_published", title, columns, notes)


def _difference(title: str, line: dict[str, Any], theirs: Value, seeds: int) -> dict[str, Any]:
    """Ours less theirs with its interval, and whether that holds 0; why not where it cannot be told."""
    mine = line[f"{title} ours"]
    both = [f"{title} difference", f"{title}: values"]
    if mine is None:
        return {k: v for name in both for k, v in entry(name, reason=line[f"{title} ours.reason"]).items()}
    ours = Sample(mine, line.get(f"{title} ours.std"), line[f"{title} ours.n"])
    try:
        found = compatible(ours, Sample(theirs.mean, theirs.error, seeds))
    except MeasureError as problem:
        return {k: v for name in both for k, v in entry(name, reason=str(problem)).items()}
    return {**interval_entry(both[0], found), both[1]: DIFFERS if found.excludes_zero else AGREES}


def _row(line: SuiteLine, paper: Published) -> str:
    """The name that the paper's table has for a setting; empty where a key is not of this dataset."""
    identity = line.setting.identity
    try:
        return paper.match.format(**{"dataset": identity["dataset"], **identity["variant"]})
    except KeyError:
        return ""


def _ordering(means: dict[str, Any]) -> str:
    (ours, theirs), (our_average, their_average) = means["worst_gap"], means["average"]
    there = theirs > their_average
    if ours is None or our_average is None:
        return "paper only" if there else "not in the paper"
    return {(True, True): "in both", (True, False): "ours only", (False, True): "paper only"}.get(
        (ours > our_average, there), "in neither"
    )
