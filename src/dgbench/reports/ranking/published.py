"""Published tables beside ours, and how well leaderboards agree."""

from __future__ import annotations

import math
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from dgbench.analysis import Interval, Rival, noncentrality, spearman
from dgbench.analysis.accuracy import deviation_behind, ranks
from dgbench.analysis.distributions import t
from dgbench.errors import ConfigError, MeasureError
from dgbench.records.run_identity import identity_key
from dgbench.reports.document import Figure, Section
from dgbench.reports.dots import Axis, Dot, Picture, beside, dot_figure, kind_of
from dgbench.reports.importers.files import is_table, title_of_files
from dgbench.reports.importers.table import read_table
from dgbench.reports.labels import label_meant, slug
from dgbench.reports.measuring.tables import ALGORITHM
from dgbench.reports.over_seeds import by_seed, means, too_few
from dgbench.reports.published import Published, published
from dgbench.reports.published.beside import (
    PERCENT,
    published_cell,
    published_column,
    published_value,
    source_note,
)
from dgbench.reports.ranking.contests import Contest, averages_of, contests
from dgbench.reports.ranking.leaderboards import Leaderboard
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.shift_settings import estimates_of
from dgbench.reports.render.drawing import MOST_DRAWN
from dgbench.reports.standing import Leaders, Verdict
from dgbench.reports.tables import Column, Table, decimal, entry, table

PRETRAINING = "yu2024_table2"
_MANY = 1_000_000  # seeds, where it is not known how many: standard errors then count as exact


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
    papers = [
        paper
        for name in names
        for paper in ([published(name)] if not is_table(name) else _user_tables(name, datasets))
    ]
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
        labels = {label for level in levels.values() for label in level}
        (theirs,) = published_boards([name], labels)
    except ConfigError as problem:
        raise ConfigError(
            f"report.baseline: {problem}; or name one of ours: "
            f"{'; '.join(levels) or 'there is none'}"
        ) from None
    return Baseline(_title(theirs), theirs.averages())


def standing_section(theirs: Published) -> Section:
    """Show means with standard errors as a leaderboard, with who leads and from whom the errors
    separate it.
    """
    figure = standing_figure(theirs)
    return Section(
        slug(theirs.name),
        theirs.title,
        [standing_table(theirs)],
        [figure] if figure else [],
        standing_answer(theirs),
    )


def standing_figure(theirs: Published) -> Figure | None:
    """Draw the average of each algorithm with its interval, best on top; None where none has one.

    The interval is Student's, with the degrees of freedom of one column's seeds.
    """
    averages = averages_of(theirs)
    if not averages:
        return None
    order = sorted(averages, key=lambda name: (-averages[name].mean, name))
    judged = theirs if theirs.seeds else replace(theirs, seeds=_MANY, bar="standard_error")
    contest = next((one for one in contests(judged) if one.column == "average"), None)
    verdict = _verdict_of(contest, theirs) if contest else None
    dots = []
    for name in order[:MOST_DRAWN]:
        value = averages[name]
        interval = None
        if value.error is not None and judged.seeds > 1:
            deviation = deviation_behind(value.error, judged.seeds, judged.bar)
            half = float(t.ppf(0.975, judged.seeds - 1)) * deviation / math.sqrt(judged.seeds)
            interval = (value.mean - half, value.mean + half)
        columns = [theirs.values[name].get(column) for column in theirs.columns]
        parts = [column.mean for column in columns if column is not None]
        word = beside(verdict, name) if verdict else ""
        kind = kind_of(verdict, name) if verdict else "open"
        dots.append(Dot(name, value.mean, interval, word, kind, parts))
    seeds = (
        f"{theirs.seeds} seeds" if theirs.seeds else "many seeds, since it does not say how many"
    )
    caption = (
        "Dot: mean of the columns, which small dots show. Line: 95% t interval from the error bars "
        f"of the table, taken as those of {seeds}. Blue: may be the best; gray: not the best, by "
        "Welch's t-tests."
    )
    undrawn = len(order) - len(dots)
    if undrawn:
        caption += f" Not drawn: {undrawn:,} others, which stand in the table."
    picture = Picture(
        name=f"accuracy_{slug(theirs.name)}",
        title="Average accuracy of every algorithm, as stated",
        caption=caption,
        axis=Axis("average accuracy (%), higher is better"),
        parts=Axis("columns (%)"),
    )
    return dot_figure(picture, dots)


def standing_table(theirs: Published) -> Table:
    """List every column, their average and the place, one line per algorithm, best first.

    An algorithm that lacks a column has no average.
    """
    averages = averages_of(theirs)
    places = ranks({name: value.mean for name, value in averages.items()})
    order = sorted(theirs.values, key=lambda name: (places.get(name, math.inf), name))
    lines = []
    for name in order:
        line: dict[str, Any] = {"algorithm": name}
        for column in theirs.columns:
            value = theirs.values[name].get(column)
            line |= published_cell(column, value, unit=PERCENT, reason="not in the table")
        average = averages.get(name)
        line |= published_cell("average", average, unit=PERCENT, reason="an environment is missing")
        lines.append(line | entry("rank", places.get(name), reason="no average, so no place"))
    columns = [
        ALGORITHM,
        Column("average", "average accuracy", "percent", "unweighted mean of the columns"),
        Column(
            "rank", unit="count", help="1 is the highest average; equal ones share the better place"
        ),
        *(Column(name, f"{name} accuracy", "percent") for name in theirs.columns),
    ]
    notes = [f"{theirs.note}. The error of an average takes those of its columns as independent."]
    return table(
        lines, "leaderboard", "Leaderboard: accuracy ± error bar, as stated", columns, notes
    )


def standing_answer(theirs: Published) -> list[str]:
    """Write who has the highest average, if that is decided, and what such error bars find."""
    judged = theirs if theirs.seeds else replace(theirs, seeds=_MANY, bar="standard_error")
    contest = next((one for one in contests(judged) if one.column == "average"), None)
    if contest is None:
        return [too_few(list(theirs.values), 0, "a mean and an error bar in every column")]
    verdict = _verdict_of(contest, theirs)
    n, averages = judged.seeds, averages_of(judged)
    bars = [averages[name].error or 0 for name in contest.names]
    deviations = [deviation_behind(bar, n, judged.bar) for bar in bars]
    pairs = [math.hypot(*pair) / math.sqrt(n) for pair in combinations(deviations, 2)]
    points = noncentrality(n, len(bars)) * float(np.median(pairs))
    numbers = verdict.numbers("average accuracy", contest.means[0] / 100, above=True)
    answer = [
        verdict.headline("average accuracy"),
        (
            f"{numbers}. {verdict.apart()} Such error bars find differences of "
            f"{decimal(points, 1)} points with 80% power (median over pairs)."
        ),
    ]
    if not theirs.seeds:
        text = "How many seeds there were is not known, and few tell less: say import.seeds=N."
        answer.append(text)
    return answer


def _verdict_of(contest: Contest, theirs: Published) -> Verdict:
    """Find who leads a table of means with error bars, and whom these separate from the leader."""
    first, *others = contest.names
    lacking = sorted(theirs.values.keys() - set(contest.names))
    rivals = set(contest.rivals)
    comparisons = {}
    for place, name in enumerate(others, start=1):
        lead = contest.lead_over(place)
        difference = Interval(lead.estimate / 100, lead.low / 100, lead.high / 100, lead.level)
        comparisons[name] = Rival(place, contest.paper.seeds, difference, name not in rivals)
    seeds = theirs.seeds or _MANY
    return Verdict(
        leaders=Leaders((first,), tuple(others)),
        rivals=(*others, *lacking),
        open_to=frozenset([*rivals, *lacking]),
        not_best=tuple(contest.beaten),
        seeds=seeds,
        basis=f"{theirs.seeds} seeds" if theirs.seeds else "error bars, taken as exact,",
        remarks=dict.fromkeys(lacking, "a column or an error bar is missing"),
        comparisons=comparisons,
    )


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
    shared = [
        c
        for c in theirs.columns
        if any(c in ours.get(a, {}) and c in line for a, line in printed.items())
    ]
    rows = [name for name in printed if any(column in ours.get(name, {}) for column in shared)]
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


def gap_section(
    boards: Sequence[Leaderboard], folders: Any
) -> tuple[Section | None, list[Problem]]:
    """Compare linear probing with fine-tuning in every environment, beside distances (Yu et al.
    2024, Table 2).

    Args:
        boards: leaderboards; those that differ in nothing but tuning are compared.
        folders: with ``shifts.jsonl`` of ``estimator=[frechet]``; None leaves our distances out.

    Returns:
        None where no algorithm was tuned both ways; and problems of the folders.
    """
    distances, problems = _distances(folders)
    paper, lines = published(PRETRAINING), list[dict[str, Any]]()
    fine_tuned = {
        _key_without_tuning(board): board for board in boards if board.identity["tuning"] == "ft"
    }
    for probed in boards:
        tuned = fine_tuned.get(_key_without_tuning(probed))
        if probed.identity["tuning"] != "lp" or tuned is None:
            continue
        tuned_accuracies = _accuracies(tuned)
        for (dataset, env, algorithm), lp in _accuracies(probed).items():
            if ft := tuned_accuracies.get((dataset, env, algorithm)):
                row = f"{dataset}/{env}"
                line = {
                    "network": tuned.title,
                    "dataset": dataset,
                    "environment": env,
                    "algorithm": algorithm,
                }
                numbers = {
                    "lp": lp,
                    "ft": ft,
                    "gap": (lp - ft) / ft,
                    "distance": distances.get((dataset, env)),
                }
                gap = published_value(paper, row, "gap")
                distance = published_value(paper, row, "fid")
                printed = published_cell("gap published", gap)
                printed |= published_cell("distance published", distance)
                lines.append({**line, **numbers, **printed})
    if not lines:
        return None, problems
    columns = [
        *(Column(name, key=True) for name in ("network", "dataset", "environment", "algorithm")),
        Column("lp", "linear probing", "percent"),
        Column("ft", "fine-tuning", "percent"),
        Column("gap", unit="distance", help="(linear probing - fine-tuning) / fine-tuning"),
        published_column("gap", "gap", "distance", paper.source),
        Column(
            "distance",
            unit="distance",
            help="Frechet, of the pretraining images (report.distances_from)",
        ),
        published_column(
            "distance", "distance", "distance", f"{paper.source}, by an unknown network"
        ),
    ]
    notes = [source_note(paper)]
    measured = {
        str(index): line for index, line in enumerate(lines) if line["distance"] is not None
    }
    if len(measured) > 2:
        rho = spearman(
            *(
                {index: line[name] for index, line in measured.items()}
                for name in ("gap", "distance")
            )
        )
        notes.append(
            f"Rank correlation of gap and distance: {decimal(rho, 2)} (n={len(measured)})."
        )
    title = "Linear probing against fine-tuning, and distance to the pretraining images"
    columns = [c for c in columns if any(line[c.name] is not None for line in lines)]
    return Section(
        "relative_gap", title, [table(lines, "relative_gap", title, columns, notes)]
    ), problems


def _distances(folders: Any) -> tuple[dict[tuple[str, str], float], list[Problem]]:
    """Read Frechet distances: dataset and environment -> distance; empty without folders."""
    if folders is None:
        return {}, []
    distances = {}
    setting, problems = estimates_of(folders, "frechet", "report.distances_from")
    for line in setting.lines:
        for pair, env in line.pairs["q"].items():
            if estimate := line.value("d2_inf", pair=str(pair)) or line.value("d2", pair=str(pair)):
                distances[str(line.identity["dataset"]), str(env)] = estimate.value
    return distances, problems


def _key_without_tuning(leaderboard: Leaderboard) -> str:
    """Return a key that a leaderboard shares with the one of another tuning."""
    return identity_key(
        leaderboard.identity, [key for key in leaderboard.identity if key != "tuning"]
    )


def _accuracies(leaderboard: Leaderboard) -> dict[tuple[str, str, str], float]:
    """Average accuracies over seeds: dataset, environment and algorithm -> mean."""
    return {
        (str(dataset.identity["dataset"]), str(env), algorithm): level
        for dataset in leaderboard.datasets
        for env, rows_of_env in dataset.accuracies.groupby("env", sort=False)
        for algorithm, level in means(by_seed(rows_of_env, "accuracy")).items()
    }


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
        for (name, env, algorithm), level in _accuracies(leaderboard).items():
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
    for name in sorted({name for leaderboard in boards.values() for name in leaderboard}):
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
