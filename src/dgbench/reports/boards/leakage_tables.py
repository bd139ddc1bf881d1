"""Tables of the leakage report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.settings.measure_tables import ALGORITHM
from dgbench.statistics.accuracy_summary import SPREADS, mean, spread

_LEAKAGE = "average less that of the honest choice, percentage points"
_CHANGE = "leakage against that of K=1"
_CHOSEN_BY = Column("chosen by", key=True)
_RESULTS = (
    Column("average", "average accuracy", "percent", "mean accuracy over the test domains"),
    Column("leakage", "leakage (points)", "points", _LEAKAGE),
    Column("change", unit="percent", help=_CHANGE),
)


def leakage_table(models: pd.DataFrame, kind: str) -> Table:
    """One line per algorithm and way of choosing: mean over seeds and over the sets of test domains.

    Args:
        models: of :func:`~dgbench.reports.kinds.leakage_report.leakages`.
        kind: deviation over models, a key of :data:`~dgbench.statistics.accuracy_summary.SPREADS`.
    """
    lines: list[dict[str, Any]] = []
    for (algorithm, domains), own in models.groupby(["algorithm", "domains"]):
        known = own[own["average"].notna()]
        number = {"test domains": domains, "models": len(known[["held out", "seed"]].drop_duplicates())}
        if not len(known):
            why = next((text for text in own["average.reason"] if isinstance(text, str)), "no finished run")
            empty = [entry(column.name, reason=why) for column in _RESULTS]
            lines.append({"algorithm": algorithm, "chosen by": "-"} | _joined(empty) | number)
        lines += [{"algorithm": algorithm} | _summary(known, size, kind) | number for size in _sizes(known)]
    columns = [
        ALGORITHM,
        _CHOSEN_BY,
        *_RESULTS,
        Column("test domains", unit="count", help="test domains of each model"),
        Column("models", unit="count", help="sets of test domains times seeds"),
    ]
    notes = [f"± {SPREADS[kind]}, over models. Leakage: {_LEAKAGE}; change: {_CHANGE}."]
    if set(models["domains"]) == {1}:
        notes.insert(
            0,
            "Every model here has 1 test domain, so only K=1 exists: whether more test domains leak less needs runs "
            "that hold out several environments (a protocol that holds out groups, or pair runs).",
        )
    return table(lines, "leakage", "Oracle leakage with K test domains", columns, notes)


def domain_table(models: pd.DataFrame, given: Sequence[str], kind: str) -> Table:
    """One line per algorithm, set of test domains and way of choosing: accuracy of each domain (Table 4).

    Args:
        models: of :func:`~dgbench.reports.kinds.leakage_report.leakages`.
        given: the given environments.
        kind: deviation over seeds, a key of :data:`~dgbench.statistics.accuracy_summary.SPREADS`.
    """
    lines: list[dict[str, Any]] = []
    known = models[models["average"].notna()]
    who: Any
    for who, own in known.groupby(["algorithm", "held out"]):
        algorithm, held_out = who
        for size in _sizes(own):
            lines.append({"algorithm": algorithm, "test domains": ", ".join(held_out)} | _summary(own, size, kind))
            here = own[own["K"] == size]
            for env in given:
                at = held_out.index(env) if env in held_out else None
                found = [] if at is None else [float(values[at]) for values in here["accuracies"]]
                lines[-1] |= entry(env, mean(found), n=len(found)) if found else entry(env, reason=f"trained on {env}")
    environments = [Column(env, f"accuracy in {env}", "percent") for env in given]
    columns = [ALGORITHM, Column("test domains", key=True), _CHOSEN_BY, *environments, *_RESULTS]
    notes = [
        f"Mean over seeds, ± {SPREADS[kind]}. The accuracy of a domain at K is its mean over the sets of K with it."
    ]
    return table(lines, "leakage_domains", "Oracle leakage in each test domain", columns, notes, detail=True)


def leakage_answer(models: pd.DataFrame) -> list[str]:
    """What an oracle gains by looking at one test domain and at the most, as a range over algorithms; one sentence.

    Args:
        models: of :func:`~dgbench.reports.kinds.leakage_report.leakages`.
    """
    known = models[models["average"].notna()]
    if known.empty:
        return []
    said = []
    for size in sorted({1, max(_sizes(known))}):
        gains = known[known["K"] == size].groupby("algorithm")["leakage"].agg(lambda own: mean(own.tolist()))
        least, most = (
            f"{100 * gains.min():.1f} ({gains.idxmin()})",
            f"{100 * gains.max():.1f} points ({gains.idxmax()})",
        )
        points = most if len(gains) == 1 else f"{least} to {most}"
        said.append(f"at {size} test domain{'s' * (size > 1)} gains {points}")
    return [
        f"An oracle that looks {', and one that looks '.join(said)} of accuracy, against the choice by validation data."
    ]


def _sizes(models: pd.DataFrame) -> list[int]:
    return sorted(int(size) for size in models["K"].unique())


def _summary(models: pd.DataFrame, size: int, kind: str) -> dict[str, Any]:
    """How it was chosen, average, leakage and its change against that of K=1."""
    here = models[models["K"] == size]
    averages, leaks = here["average"].tolist(), here["leakage"].tolist()
    average = entry("average", mean(averages), std=spread(averages, kind), n=len(here))
    if size == 0:
        honest = entry("leakage", 0.0, n=len(here)) | entry("change", reason="the honest choice leaks nothing")
        return {"chosen by": "validation", **average, **honest}
    leak, single = mean(leaks), mean(models.loc[models["K"] == 1, "leakage"].tolist())
    change = entry("change", leak / single - 1) if single else entry("change", reason="K=1 leaks nothing")
    return {
        "chosen by": f"oracle, K={size}",
        **average,
        **entry("leakage", leak, std=spread(leaks, kind), n=len(here)),
        **change,
    }


def _joined(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for each in entries for key, value in each.items()}
