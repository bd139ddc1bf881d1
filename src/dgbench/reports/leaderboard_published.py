"""Published tables beside ours, and how well leaderboards agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dgbench.errors import ConfigError, MeasureError
from dgbench.measures import spearman
from dgbench.measures.accuracy_summary import mean
from dgbench.measures.ranking import ranks
from dgbench.reports.document import Cell, Column, Section, Table
from dgbench.reports.leaderboard_cells import Board
from dgbench.reports.leaderboard_tables import Baseline
from dgbench.reports.published import Published, published


def published_boards(names: Sequence[str]) -> list[Published]:
    """The tables of accuracies of those names.

    Raises:
        ConfigError: there is no such table, or it holds no accuracies.
    """
    found = [published(name) for name in names]
    for table in found:
        table.accuracies()
    return found


def baseline_of(name: str | None, own: Mapping[str, Mapping[str, float]]) -> Baseline | None:
    """The leaderboard that places are compared with: one of ours by its title, or a published one by its name.

    Raises:
        ConfigError: there is neither.
    """
    if name is None:
        return None
    if name in own:
        return Baseline(name, own[name])
    try:
        (table,) = published_boards([name])
    except ConfigError as problem:
        raise ConfigError(
            f"report.baseline: {problem}; or name one of ours: {'; '.join(own) or 'there is none'}"
        ) from None
    return Baseline(f"{table.title} ({_short(table)})", table.averages())


def beside_table(board: Board, titles: Sequence[str], table: Published, how: str) -> Table | None:
    """Ours, theirs and the difference, for every algorithm and dataset of both; None where they share nothing."""
    ours: dict[str, dict[str, float]] = {}
    for title, cells in zip(titles, board.datasets, strict=True):
        for algorithm in board.algorithms:
            if table.dataset:
                if table.dataset == cells.identity["dataset"]:
                    ours.setdefault(algorithm, {}).update(_environments(cells.accuracy.get(algorithm, {})))
            elif values := list(cells.averages(algorithm).values()):
                key = title if title in table.columns else str(cells.identity["dataset"])
                ours.setdefault(algorithm, {})[key] = mean(values)
    theirs = table.accuracies()
    shared = [c for c in table.columns if any(c in ours.get(a, {}) and c in line for a, line in theirs.items())]
    rows = [name for name in theirs if any(column in ours.get(name, {}) for column in shared)]
    if not rows:
        return None
    columns = [Column("algorithm")]
    for name in shared:
        columns += [
            Column(f"{name} ours (%)", "percent"),
            Column(f"{name} theirs (%)", "percent", table.source),
            Column(f"{name} difference", "points", "ours less theirs, percentage points"),
        ]
    body = []
    for algorithm in rows:
        line = [Cell(algorithm)]
        for name in shared:
            mine, printed = ours.get(algorithm, {}).get(name), table.values[algorithm].get(name)
            their = None if printed is None else printed.mean / 100
            error = None if printed is None or printed.error is None else printed.error / 100
            both = None if mine is None or their is None else mine - their
            missing = "" if both is not None else "one of the two is missing"
            line += [Cell(mine, reason=missing if mine is None else ""), Cell(their, error), Cell(both, reason=missing)]
        body.append(line)
    notes = [f"Theirs: {table.source}; {table.note}. Networks, data and budgets may differ: see the facts above."]
    return Table(f"beside_{table.name}", f"Beside {_short(table)}, {table.title} ({how})", columns, body, notes)


def agreement_section(own: Mapping[str, Mapping[str, float]], tables: Sequence[Published]) -> Section | None:
    """Places on every leaderboard and Spearman's correlation of each pair; None for fewer than two leaderboards."""
    boards = {**own, **{f"{table.title} ({_short(table)})": table.averages() for table in tables}}
    if len(boards) < 2:
        return None
    names = sorted({name for board in boards.values() for name in board})
    places = [ranks(board) for board in boards.values()]
    columns = [
        Column("algorithm"),
        *(Column(title, "count", "place by the average over its datasets") for title in boards),
    ]
    body = []
    for name in names:
        known = [Cell(float(at[name])) if name in at else Cell(reason="not on this leaderboard") for at in places]
        body.append([Cell(name), *known])
    tables_ = [Table("places", "Places on every leaderboard", columns, body), _correlations(boards)]
    facts = [(f"{table.title} ({_short(table)})", f"{table.source}; {table.note}") for table in tables]
    return Section("agreement", "Leaderboards against each other", facts, tables_, [])


def _correlations(boards: Mapping[str, Mapping[str, float]]) -> Table:
    columns = [Column("leaderboard"), *(Column(title, "correlation") for title in boards)]
    body = []
    for title, first in boards.items():
        line = [Cell(title)]
        for second in boards.values():
            both = sorted(first.keys() & second.keys())
            try:
                rho = spearman({name: first[name] for name in both}, {name: second[name] for name in both})
                line.append(Cell(rho, n=len(both), flag=f"(n={len(both)})" if len(both) < len(first) else ""))
            except MeasureError as problem:
                line.append(Cell(reason=str(problem)))
        body.append(line)
    notes = [
        "Spearman's rank correlation of the averages, over the algorithms of both (n where fewer than the line has)."
    ]
    return Table("leaderboard_correlation", "Rank correlation between leaderboards", columns, body, notes)


def _environments(by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    envs = {env for found in by_seed.values() for env in found}
    return {env: mean([found[env] for found in by_seed.values() if env in found]) for env in envs}


def _short(table: Published) -> str:
    paper, _, number = table.name.partition("_table")
    return f"{paper} Table {number.split('_')[0]}"
