"""Tables of the leakage report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dgbench.measures.accuracy_summary import SPREADS, mean, spread
from dgbench.measures.leakage import Leakage
from dgbench.reports.document import Cell, Column, Table

_HELP = {
    "leakage": "average less that of the honest choice, percentage points",
    "change": "leakage against that of K=1",
}


@dataclass(frozen=True)
class Group:
    """Models of one algorithm with the same test domains."""

    algorithm: str
    tested: tuple[str, ...]
    by_seed: dict[int, list[Leakage]]  #: seed -> honest choice, K=1, 2, ...
    why: str  #: why a seed has none


def leakage_table(groups: Sequence[Group], kind: str, how: str) -> Table:
    """One line per algorithm and way of choosing: mean over seeds and over the sets of test domains."""
    columns = [
        Column("algorithm"),
        Column("chosen by", key=True),
        Column("average (%)", "percent", "mean accuracy over the test domains"),
        Column("leakage (points)", "points", _HELP["leakage"]),
        Column("change (%)", "percent", _HELP["change"]),
        Column("test domains", "count", "test domains of each model"),
        Column("models", "count", "sets of test domains times seeds"),
    ]
    by_size: dict[tuple[str, int], list[list[Leakage]]] = defaultdict(list)
    for group in groups:
        by_size[group.algorithm, len(group.tested)] += group.by_seed.values()
    body = []
    for (algorithm, size), gains in sorted(by_size.items()):
        if not gains:
            why = next((group.why for group in groups if group.algorithm == algorithm and group.why), "no finished run")
            empty = Cell(reason=why)
            body.append([Cell(algorithm), Cell("-"), empty, empty, empty, Cell(float(size)), Cell(0.0)])
            continue
        for lines in zip(*gains, strict=True):
            single = mean([gain[1].leakage for gain in gains])
            body.append([Cell(algorithm), *_line(lines, single, kind), Cell(float(size)), Cell(float(len(lines)))])
    sizes = {len(group.tested) for group in groups}
    notes = [f"± {SPREADS[kind]}, over models. Leakage: {_HELP['leakage']}; change: {_HELP['change']}."]
    if sizes == {1}:
        notes.insert(
            0,
            "Every model here has 1 test domain, so only K=1 exists: whether more test domains leak less needs runs "
            "that hold out several environments (a protocol that holds out groups, or pair runs).",
        )
    return Table("leakage", f"Oracle leakage with K test domains (against {how})", columns, body, notes)


def domain_table(groups: Sequence[Group], given: Sequence[str], kind: str, how: str) -> Table:
    """One line per algorithm, set of test domains and way of choosing: accuracy of each domain (Table 4)."""
    columns = [Column("algorithm"), Column("test domains", key=True), Column("chosen by", key=True)]
    columns += [Column(f"{env} (%)", "percent") for env in given]
    columns += [
        Column("average (%)", "percent", "mean accuracy over the test domains"),
        Column("leakage (points)", "points", _HELP["leakage"]),
        Column("change (%)", "percent", _HELP["change"]),
    ]
    body = []
    for group in groups:
        gains = list(group.by_seed.values())
        for lines in zip(*gains, strict=True):
            cells = {
                env: Cell(mean([line.accuracies[place] for line in lines]), n=len(lines))
                for place, env in enumerate(group.tested)
            }
            single = mean([gain[1].leakage for gain in gains])
            choice, *summary = _line(lines, single, kind)
            domains = [cells.get(env, Cell(reason=f"trained on {env}")) for env in given]
            body.append([Cell(group.algorithm), Cell(", ".join(group.tested)), choice, *domains, *summary])
    notes = [
        f"Mean over seeds, ± {SPREADS[kind]}. The accuracy of a domain at K is its mean over the sets of K with it."
    ]
    return Table("leakage_domains", f"Oracle leakage in each test domain (against {how})", columns, body, notes, True)


def _line(lines: Sequence[Leakage], single: float, kind: str) -> list[Cell]:
    """How it was chosen, average, leakage and its change against that of K=1."""
    size = lines[0].test_domains
    averages, leaks = [line.average for line in lines], [line.leakage for line in lines]
    leak = mean(leaks)
    average = Cell(mean(averages), spread(averages, kind), len(lines))
    if size == 0:
        return [Cell("validation"), average, Cell(0.0, n=len(lines)), Cell(reason="the honest choice leaks nothing")]
    change = Cell(leak / single - 1) if single else Cell(reason="K=1 leaks nothing")
    return [Cell(f"oracle, K={size}"), average, Cell(leak, spread(leaks, kind), len(lines)), change]
