"""Published tables beside ours, and how well leaderboards agree."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dgbench.analysis import spearman
from dgbench.analysis.accuracy import ranks
from dgbench.errors import ConfigError, MeasureError
from dgbench.reports.document import Section
from dgbench.reports.importers.file_formats import is_table
from dgbench.reports.importers.files import title_of_files
from dgbench.reports.importers.table import read_table
from dgbench.reports.labels import label_meant
from dgbench.reports.measuring.tables import ALGORITHM
from dgbench.reports.over_seeds import means
from dgbench.reports.published import Published, published
from dgbench.reports.published.beside import PERCENT, published_cell, source_note
from dgbench.reports.ranking.leaderboards import Leaderboard, accuracies_by_environment
from dgbench.reports.tables import Column, Table, entry, table


@dataclass(frozen=True)
class Baseline:
    """A leaderboard to compare places with."""

    title: str
    means: Mapping[str, float]  #: algorithm -> mean over its datasets


def published_boards(
    names: Sequence[str], labels: Names[str] = (), datasets: Names[str] = ()
) -> list[Published]:
    """Read the tables of accuracies of those names: published ones, or files of a user's.

    Args:
        names: of tables.
        labels: of our algorithms, which lines of the same algorithms get.
        datasets: ours; of a single one is a file that does not name its own.

    Raises:
        ConfigError: there is no such table, or it holds no accuracies.
    """
    papers: list[Published] = []
    for name in names:
        if is_table(name):
            papers += _user_tables(name, datasets)
        else:
            papers.append(published(name))
    for paper in papers:
        paper.accuracies()
    return [_with_labels(paper, set(labels)) for paper in papers]


def _with_labels(paper: Published, labels: set[str]) -> Published:
    """Give the lines of a published table the labels that we have for their algorithms."""
    if paper.match:  # whose lines are networks
        return paper
    ours = {row: label_meant(row, labels) or row for row in paper.values}
    if len(set(ours.values())) < len(ours):
        return paper
    return replace(
        paper,
        values={ours[row]: line for row, line in paper.values.items()},
        printed={ours.get(row, row): line for row, line in paper.printed.items()},
        domains=tuple(_with_labels(part, labels) for part in paper.domains),
    )


def _user_tables(file: str, datasets: Names[str]) -> Sequence[Published]:
    """Read the tables of means in a file of a user's."""
    papers = read_table(file).published
    if papers:
        unnamed = title_of_files(file)
        if len(datasets) != 1:
            return papers
        (ours,) = datasets
        return [
            replace(paper, dataset=ours) if paper.dataset == unnamed else paper for paper in papers
        ]
    raise ConfigError(
        f"report.published: {file} holds no means ± standard errors; read its runs with "
        "import=table"
    )


def baseline_of(name: str | None, levels: Mapping[str, Mapping[str, float]]) -> Baseline | None:
    """Find the leaderboard to compare places with: one of ours by its title, or a published one by
    its name.

    Raises:
        ConfigError: there is neither.
    """
    if name is None:
        return None
    if name in levels:
        return Baseline(name, levels[name])
    try:
        labels = set().union(*levels.values())
        (theirs,) = published_boards([name], labels)
    except ConfigError as problem:
        raise ConfigError(
            f"report.baseline: {problem}; or name one of ours: "
            f"{'; '.join(levels) or 'there is none'}"
        ) from None
    return Baseline(_title(theirs), theirs.averages())


def beside_tables(leaderboard: Leaderboard, theirs: Published, selection: str) -> list[Table]:
    """Compare every algorithm and column of both, by dataset and by environment: ours, theirs and
    the difference.

    Args:
        leaderboard: ours.
        theirs: a published table; those that it holds by environment follow it.
        selection: name of the one that chose ours.

    Returns:
        One frame for each table with which the leaderboard shares something.
    """
    note = _settings_note(leaderboard, theirs, selection)
    papers = [_restricted_to_network(leaderboard, paper) for paper in (theirs, *theirs.domains)]
    frames = [_comparison(leaderboard, paper, note) for paper in papers]
    return [frame for frame in frames if frame is not None]


def _restricted_to_network(leaderboard: Leaderboard, theirs: Published) -> Published:
    """Restrict a table of networks, all with ERM, to the leaderboard's network; return other tables
    as they are.
    """
    row = theirs.match.format(**_network(leaderboard))
    erm = label_meant("erm", leaderboard.algorithms) or "erm"
    return (
        replace(theirs, values={erm: theirs.values[row]} if row in theirs.values else {})
        if row
        else theirs
    )


def _network(leaderboard: Leaderboard) -> dict[str, Any]:
    """Return network and protocol of a leaderboard, its initial weights without the hash of their
    file.
    """
    return {**leaderboard.identity, "init": str(leaderboard.identity["init"]).partition(":")[0]}


def _comparison(leaderboard: Leaderboard, theirs: Published, settings: str) -> Table | None:
    ours = _our_means(leaderboard, theirs)
    printed = theirs.accuracies()
    in_both: set[str] = set()
    for name, line_of_paper in printed.items():
        in_both |= ours.get(name, {}).keys() & line_of_paper.keys()
    shared = [column for column in theirs.columns if column in in_both]
    rows = [name for name in printed if ours.get(name, {}).keys() & in_both]
    if not rows:
        return None
    columns = [ALGORITHM]
    for name in shared:
        columns += [
            Column(f"{name} ours", f"{name} accuracy, ours", "percent"),
            Column(f"{name} theirs", f"{name} accuracy, theirs", "percent", theirs.source),
            Column(f"{name} difference", unit="points", help="ours less theirs, percentage points"),
        ]
    lines = []
    for algorithm in rows:
        line: dict[str, Any] = {"algorithm": algorithm}
        for name in shared:
            accuracy = ours.get(algorithm, {}).get(name)
            value = theirs.values[algorithm].get(name)
            difference = None
            if accuracy is not None and value is not None:
                difference = accuracy - printed[algorithm][name]
            reason = "one of the two is missing"
            line |= entry(f"{name} ours", accuracy, reason=reason)
            line |= published_cell(f"{name} theirs", value, unit=PERCENT)
            line |= entry(f"{name} difference", difference, reason=reason)
        lines.append(line)
    notes = [f"{source_note(theirs, 'Theirs')} {settings}"]
    return table(
        lines, f"beside_{theirs.name}", f"Beside {_short(theirs)}, {theirs.title}", columns, notes
    )


def agreement_section(
    levels: Mapping[str, Mapping[str, float]], tables: Sequence[Published]
) -> Section | None:
    """Compare leaderboards: all places, and Spearman's correlation of each pair; None for fewer
    than two of them.

    Args:
        levels: title of our leaderboard -> algorithm -> mean accuracy.
        tables: published ones.
    """
    tables = [paper for paper in tables if not paper.match]  # whose lines are algorithms
    boards = {**levels, **{_title(paper): paper.averages() for paper in tables}}
    if len(boards) < 2:
        return None
    facts = [(_title(paper), f"{paper.source}; {paper.note}") for paper in tables]
    title = "Leaderboards against each other"
    return Section("agreement", title, [_places(boards), _correlations(boards)], facts=facts)


def _settings_note(leaderboard: Leaderboard, theirs: Published, selection: str) -> str:
    """Describe how our settings differ from those that a published table names."""
    if not theirs.settings:
        return "Networks, data and budgets may differ: see the facts above."
    ours = {**_network(leaderboard), "selection": selection}
    contrasts = [
        f"{key} {ours[key]} here, {text} there"
        for key, text in theirs.settings.items()
        if ours[key] != text
    ]
    if contrasts:
        return (
            f"Not the same settings: {'; '.join(contrasts)}. Data and budgets may differ too: see "
            "the facts above."
        )
    named = ", ".join(f"{key} {text}" for key, text in theirs.settings.items())
    return f"The same here as there: {named}. Data and budgets may differ: see the facts above."


def _our_means(leaderboard: Leaderboard, theirs: Published) -> dict[str, dict[str, float]]:
    """Average accuracies over our seeds: algorithm -> column of theirs -> mean."""
    ours: dict[str, dict[str, float]] = {name: {} for name in leaderboard.algorithms}
    if theirs.dataset:
        for (name, env, algorithm), level in accuracies_by_environment(leaderboard).items():
            if name == theirs.dataset:
                ours[algorithm][env] = level
        return ours
    for dataset in leaderboard.datasets:
        has_title = dataset.title in theirs.columns
        column = dataset.title if has_title else str(dataset.identity["dataset"])
        for algorithm, level in means(dataset.averages).items():
            ours[algorithm][column] = level
    return ours


def _places(boards: Mapping[str, Mapping[str, float]]) -> Table:
    places = {title: ranks(leaderboard) for title, leaderboard in boards.items()}
    lines = []
    for name in sorted(set().union(*boards.values())):
        line: dict[str, Any] = {"algorithm": name}
        for title, place_of in places.items():
            line |= entry(title, place_of.get(name), reason="not on this leaderboard")
        lines.append(line)
    columns = [
        ALGORITHM,
        *(Column(t, unit="count", help="place by the average over its datasets") for t in boards),
    ]
    return table(lines, "places", "Places on every leaderboard", columns)


def _correlations(boards: Mapping[str, Mapping[str, float]]) -> Table:
    lines = []
    for first, averages in boards.items():
        line: dict[str, Any] = {"leaderboard": first}
        for second, board in boards.items():
            common = sorted(averages.keys() & board.keys())
            flag = f"(n={len(common)})" if len(common) < len(averages) else ""
            try:
                rho = spearman(
                    {name: averages[name] for name in common},
                    {name: board[name] for name in common},
                )
                line |= entry(second, rho, n=len(common), flag=flag)
            except MeasureError as problem:
                line |= entry(second, reason=str(problem))
        lines.append(line)
    columns = [
        Column("leaderboard", key=True),
        *(Column(title, unit="correlation") for title in boards),
    ]
    notes = [
        (
            "Spearman's rank correlation of the averages, over the algorithms of both (n where "
            "fewer than the line has)."
        )
    ]
    return table(
        lines, "leaderboard_correlation", "Rank correlation between leaderboards", columns, notes
    )


def _title(theirs: Published) -> str:
    return f"{theirs.title} ({_short(theirs)})"


def _short(theirs: Published) -> str:
    paper, separator, number = theirs.name.partition("_table")
    return f"{paper} Table {number.split('_')[0]}" if separator else paper
