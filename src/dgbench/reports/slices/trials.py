"""What the runs of a sweep say of its claims: ``report=claims report.of=rows``.

For every dataset and selection: which orders of two algorithms are decided if trials are paired,
what worst+gap would have selected, how many trials an undecided order needs, and what draws of
hyperparameters gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import pairs, seeds_needed
from dgbench.analysis.comparison import holm
from dgbench.analysis.paired_claims import (
    expected_result,
    paired_p_values,
    ranked_by,
    same_leader,
    unpaired_p_values,
)
from dgbench.analysis.selection import Last, LooVal, Oracle, Selection, TrainVal
from dgbench.plan.measures import MeasureChoice
from dgbench.records.run_identity import Role, identity_keys, keys
from dgbench.reports.document import Figure, Section
from dgbench.reports.evaluation import PAIRS, Evaluation, evaluate
from dgbench.reports.over_seeds import by_seed, comparable
from dgbench.reports.ranking.contests import ALPHA
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import NamedRuns, Selected, name_runs, select_runs
from dgbench.reports.render.drawing import COLORS, canvas, end_labels, finish, grid
from dgbench.reports.tables import Column, Table, entry, percent, table
from dgbench.reports.words import WORDS

AVERAGE = "average"
WORST_GAP = "worst_gap"
ALL = "all datasets"
_POWER = 0.8
_SAMPLES = 200  # studies of random subsets of draws
_OF_PAIRS = "p < 0.05 after Holm's correction over the pairs of a line"


@dataclass(frozen=True, eq=False)
class Judged:
    """The runs of a collection under one selection."""

    selection: Selection
    selected: Selected
    evaluation: Evaluation

    def values(self, measure: str) -> Iterator[tuple[str, pd.DataFrame]]:
        """Iterate over the settings: algorithm x trial, those with the most trials."""
        for setting in self.evaluation.settings:
            studies = self.evaluation.of(setting.title).studies
            values = comparable(by_seed(studies, measure))
            if len(values) > 1:
                yield setting.title, values


def selections_of(collection: Collection) -> list[Selection]:
    """List the selections that the rows allow: those that look at no test environment first."""
    is_val = collection.rows["subset"] == "val"
    held_out = collection.rows["env_held_out"].astype(bool)
    possible: list[Selection] = []
    if (is_val & ~held_out).any():
        possible.append(TrainVal())
    if any(run.identity["protocol"] == PAIRS for run in collection.runs):
        possible.append(LooVal())
    if (is_val & held_out).any():
        possible.append(Oracle())
    return possible or [Last()]


def judge(collection: Collection, split_by: str | None, choice: MeasureChoice) -> Iterator[Judged]:
    """Evaluate the runs under each selection that the rows allow."""
    names: dict[bool, NamedRuns] = {}
    for selection in selections_of(collection):
        searches = selection.chooses_draws
        if searches not in names:
            names[searches] = name_runs(collection, searches=searches, split_by=split_by)
        selected = select_runs(collection, selection, split_by, names[searches])
        yield Judged(selection, selected, evaluate(selected, split_by, choice))


def _over_datasets(tables: Sequence[pd.DataFrame]) -> tuple[list[str], np.ndarray[Any, Any]] | None:
    """Stack the tables of several datasets that share algorithms and the number of trials."""
    if len(tables) < 2 or len({values.shape[1] for values in tables}) > 1:
        return None
    shared = set(tables[0].index)
    for values in tables[1:]:
        shared &= set(values.index)
    names = sorted(map(str, shared))
    if len(names) < 2:
        return None
    return names, np.stack([values.loc[names].to_numpy(dtype=float) for values in tables])


def order_table(judged: Sequence[Judged], measures: MeasureChoice) -> Table:
    """Count, for each dataset and selection, the orders of two algorithms that trials decide."""
    lines: list[dict[str, Any]] = []
    for one in judged:
        for measure in measures.compared:
            found = list(one.values(measure.name))
            about = {"selection": one.selection.title, "measure": measure.title}
            for title, values in found:
                lines.append({"dataset": title, **about, **_orders(values.to_numpy(dtype=float))})
                lines[-1]["leader"] = str(values.mean(axis=1).idxmin())
            stacked = _over_datasets([values for _, values in found])
            if stacked is not None:
                names, blocks = stacked
                lines.append({"dataset": ALL, **about, **_orders(blocks)})
                lines[-1]["leader"] = names[int(blocks.mean(axis=(0, 2)).argmin())]
    columns = [
        Column("dataset", key=True),
        Column("selection", key=True),
        Column("measure", key=True),
        Column("leader", help="the lowest mean"),
        Column("leads", help="whether it is decided against every other one, all together"),
        Column("pairs", unit="count", help="orders of two algorithms"),
        Column("alone", "decided alone", "count", "paired t-test over trials, p < 0.05"),
        Column("together", "with all", "count", _OF_PAIRS),
        Column("unpaired", "alone, unpaired", "count", "Welch's t-test, as from printed means"),
        Column("trials", unit="count"),
    ]
    notes = [
        "Chance alone decides 5% of pairs that tie, each taken alone.",
        f"{ALL}: the mean difference, whose variance all datasets estimate (Satterthwaite).",
    ]
    return table(lines, "orders", "Orders that trials decide", columns, notes)


def _orders(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Count decided orders; the values are (A, S), or (D, A, S) of several datasets."""
    algorithms, trials = values.shape[-2:]
    cells: dict[str, Any] = entry("pairs", algorithms * (algorithms - 1) // 2)
    cells["trials"] = trials
    if trials < 2:
        reason = "1 trial: nothing says what chance does"
        for name in ("alone", "together", "unpaired"):
            cells |= entry(name, reason=reason)
        return cells
    above = np.triu_indices(algorithms, 1)
    p_values = paired_p_values(values)
    jointly = np.ones_like(p_values)
    jointly[above] = holm(p_values[above])
    jointly = np.minimum(jointly, jointly.T)
    axes = (0, 2) if values.ndim == 3 else 1
    leader = int(values.mean(axis=axes).argmin())
    beaten = np.delete(jointly[leader], leader) < ALPHA
    cells |= entry("alone", int((p_values[above] < ALPHA).sum()))
    cells |= entry("together", int((jointly[above] < ALPHA).sum()))
    cells["leads"] = "decided" if beaten.all() else f"undecided against {int((~beaten).sum())}"
    if values.ndim == 2:
        cells |= entry("unpaired", int((unpaired_p_values(values)[above] < ALPHA).sum()))
    else:
        cells |= entry("unpaired", reason="not computed over datasets")
    return cells


def pair_table(judged: Sequence[Judged], measure: str) -> Table:
    """List every order of two algorithms, with the trials that an undecided one needs."""
    lines: list[dict[str, Any]] = []
    for one in judged:
        for title, values in one.values(measure):
            if values.shape[1] < 2:
                continue
            lines += _pair_lines(title, one.selection.title, values)
    columns = [
        Column("dataset", key=True),
        Column("selection", key=True),
        Column("better"),
        Column("worse"),
        Column("difference", unit="points", help="mean over trials"),
        Column("deviation", unit="points", help="of the difference, over trials"),
        Column("p", unit="probability", help="paired t-test, two-sided, alone"),
        Column("joint", "p with all", "probability", "after Holm's correction"),
        Column("needed", "trials needed", "count", WORDS["trials needed"]),
    ]
    return table(lines, "pairs", "Every order of two algorithms", columns, detail=True)


def _pair_lines(title: str, selection: str, values: pd.DataFrame) -> Iterator[dict[str, Any]]:
    matrix = values.to_numpy(dtype=float)
    names = list(map(str, values.index))
    p_values = paired_p_values(matrix)
    above = np.triu_indices(len(names), 1)
    jointly = np.ones_like(p_values)
    jointly[above] = holm(p_values[above])
    jointly = np.minimum(jointly, jointly.T)
    for pair in pairs(matrix):
        place = (pair.first, pair.second)
        line: dict[str, Any] = {
            "dataset": title,
            "selection": selection,
            "better": names[pair.first],
            "worse": names[pair.second],
        }
        line |= entry("difference", pair.size) | entry("deviation", pair.deviation)
        line |= entry("p", float(p_values[place])) | entry("joint", float(jointly[place]))
        yield line | _needed(pair.size, pair.deviation, float(p_values[place]))


def _needed(size: float, deviation: float, p: float) -> dict[str, Any]:
    """Compute how many trials an undecided order needs."""
    if p < ALPHA:
        return entry("needed", reason="decided")
    if not size > 0 or not deviation > 0:
        return entry("needed", reason="equal in these trials")
    trials = seeds_needed(deviation, size, power=_POWER)
    if trials == float("inf"):
        return entry("needed", reason="more than half a million")
    return entry("needed", int(trials))


def choice_table(judged: Sequence[Judged]) -> Table:
    """List what worst+gap would have selected in place of the average."""
    lines: list[dict[str, Any]] = []
    for one in judged:
        of_worst_gap = dict(one.values(WORST_GAP))
        for title, averages in one.values(AVERAGE):
            about = {"dataset": title, "selection": one.selection.title}
            by_average = str(averages.mean(axis=1).idxmin())
            lines.append({**about, "by average": by_average})
            if title not in of_worst_gap:
                lines[-1] |= entry("by worst+gap", reason="no worst+gap")
                continue
            by_worst_gap = str(of_worst_gap[title].mean(axis=1).idxmin())
            lines[-1]["by worst+gap"] = by_worst_gap
            shared = averages.index.intersection(of_worst_gap[title].index)
            if by_average in shared and by_worst_gap in shared:
                lines[-1] |= _exchange(averages, of_worst_gap[title], by_average, by_worst_gap)
    columns = [
        Column("dataset", key=True),
        Column("selection", key=True),
        Column("by average", "the average selects"),
        Column("by worst+gap", "worst+gap selects"),
        Column("gained", unit="points", help="worst+gap of the first less that of the second"),
        Column("lost", unit="points", help="average error of the second less that of the first"),
    ]
    return table(lines, "chosen", "What worst+gap would have selected", columns)


def _exchange(
    averages: pd.DataFrame, worst_gaps: pd.DataFrame, first: str, second: str
) -> dict[str, Any]:
    average = averages.mean(axis=1)
    worst_gap = worst_gaps.mean(axis=1)
    gained = float(worst_gap[first] - worst_gap[second])
    lost = float(average[second] - average[first])
    return entry("gained", gained) | entry("lost", lost)


@dataclass(frozen=True, eq=False)
class Searches:
    """The searches of one dataset: an algorithm, held-out environments and a trial each."""

    algorithm: np.ndarray[Any, Any]  #: (Q,)
    trial: np.ndarray[Any, Any]  #: (Q,)
    validation: np.ndarray[Any, Any]  #: (Q, n) accuracies that choose among n draws
    accuracy: np.ndarray[Any, Any]  #: (Q, n) accuracies where nothing was seen


def searches_of(one: Judged, split_by: str | None) -> dict[str, Searches]:
    """Collect the searches with the most draws of each setting that has searches."""
    names = keys(Role.SETTING, split_by)
    settings = one.evaluation.settings
    titles = [setting.title for setting in settings]
    title_of = dict(zip(identity_keys([s.identity for s in settings], names), titles, strict=True))
    places = identity_keys([run.identity for run in one.selected.runs], names)
    tests = one.selected.tests
    held_out = tests[tests["role"] == "held_out"]
    accuracy = held_out.groupby("run", sort=False)["accuracy"].mean()
    by_run = dict(zip(accuracy.index.tolist(), accuracy.tolist(), strict=True))
    of_setting: dict[str, dict[Any, list[tuple[int, float, float]]]] = {}
    for number, (run, place) in enumerate(zip(one.selected.runs, places, strict=True)):
        identity = run.identity
        if number not in by_run or run.accuracy != run.accuracy or place not in title_of:
            continue
        search = (run.label, identity["seed"], tuple(identity["held_out"]))
        of_search = of_setting.setdefault(title_of[place], defaultdict(list))
        of_search[search].append((identity["draw"], run.accuracy, by_run[number]))
    stacked = {}
    for title, of_search in of_setting.items():
        most = max(map(len, of_search.values()))
        whole = {key: sorted(draws) for key, draws in of_search.items() if len(draws) == most}
        if most < 2:
            continue
        numbers = np.array(list(whole.values()), dtype=float)
        stacked[title] = Searches(
            np.array([key[0] for key in whole], dtype=object),
            np.array([key[1] for key in whole]),
            numbers[:, :, 1],
            numbers[:, :, 2],
        )
    return stacked


def draw_table(
    judged: Sequence[Judged], subsets: Sequence[int], split_by: str | None = None
) -> Table:
    """List what 1, 2, 5, ... draws of hyperparameters yield, over all their subsets."""
    lines: list[dict[str, Any]] = []
    for one in judged:
        if not one.selection.chooses_draws:
            continue
        for dataset, searches in searches_of(one, split_by).items():
            about = {"dataset": dataset, "selection": one.selection.title}
            for line in _draw_lines(searches, subsets):
                lines.append({**about, **line})
    columns = [
        Column("dataset", key=True),
        Column("selection", key=True),
        Column("draws", unit="count", help="tried in every search"),
        Column("chosen", "accuracy chosen", "percent", "mean over algorithms, folds and trials"),
        Column("gain", unit="points", help="against one draw"),
        Column("best", "best of them", "percent", "by the tested environments"),
        Column("leader", "same leader", "percent", "how often as with all draws"),
        Column("models", unit="count", help="that are trained"),
    ]
    notes = [
        (
            "Accuracies are exact means over all subsets of the draws; ± standard deviation over "
            f"trials. The leader is that of the mean accuracy, in {_SAMPLES} random studies."
        )
    ]
    return table(lines, "draws", "What draws of hyperparameters gain", columns, notes)


def _draw_lines(searches: Searches, subsets: Sequence[int]) -> Iterator[dict[str, Any]]:
    count = searches.validation.shape[1]
    ranked = ranked_by(searches.validation, searches.accuracy)
    by_result = -np.sort(-searches.accuracy, axis=1)
    single = float(expected_result(ranked, 1).mean())
    rng = np.random.default_rng(0)
    for subset in sorted({min(number, count) for number in [*subsets, count]}):
        results = pd.Series(expected_result(ranked, subset))
        level = float(results.mean())
        by_trial = results.groupby(searches.trial).mean()
        deviation = float(by_trial.std()) if len(by_trial) > 1 else None
        line: dict[str, Any] = {"draws": subset}
        line |= entry("chosen", level, std=deviation, n=len(by_trial))
        line |= entry("gain", level - single)
        line |= entry("best", float(expected_result(by_result, subset).mean()))
        agreement = same_leader(ranked, searches.algorithm, subset, rng, _SAMPLES)
        line |= entry("leader", agreement) if len(set(searches.algorithm)) > 1 else {}
        line["models"] = subset * len(ranked)
        yield line


def draw_figure(draws: Table) -> Figure | None:
    """Draw the curve of draws: a panel for each dataset, a line for each selection."""
    frame = draws.frame
    if frame.empty:
        return None
    datasets = list(dict.fromkeys(frame["dataset"]))
    columns = min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    with canvas("draws", 3.2 * columns + 1.6, 2.7 * rows + 0.3) as drawn:
        panels = drawn.subplots(rows, columns, squeeze=False).ravel()
        for panel, dataset in zip(panels, datasets, strict=False):
            _draw_panel(panel, frame[frame["dataset"] == dataset])
            panel.set_title(str(dataset))
        for panel in panels[len(datasets) :]:
            panel.set_visible(False)
        caption = (
            "Accuracy in the held-out environments of the draw that validation chooses among k "
            "random ones, mean over algorithms; at the top, of the best draw, which only the "
            "tested environments know."
        )
        return finish(drawn, "draws", "What draws of hyperparameters gain", caption)


def _draw_panel(panel: Any, lines: pd.DataFrame) -> None:
    ends: dict[str, tuple[float, float]] = {}
    colors: dict[str, str] = {}
    for number, (selection, of_one) in enumerate(lines.groupby("selection", sort=False)):
        x = of_one["draws"].to_numpy(dtype=float)
        y = 100 * of_one["chosen"].to_numpy(dtype=float)
        name = str(selection).split(",")[0].replace("leave-one-domain-out", "leave-one-out")
        colors[name] = COLORS[number % len(COLORS)]
        panel.plot(x, y, color=colors[name], marker="o", linewidth=1.8)
        ends[name] = (float(x[-1]), float(y[-1]))
        if number == 0:
            best = 100 * of_one["best"].to_numpy(dtype=float)
            panel.plot(x, best, color=COLORS[5], linewidth=1.2)
            ends["best"] = (float(x[-1]), float(best[-1]))
            panel.set_xscale("log")
            panel.set_xticks(x, [f"{value:g}" for value in x])
            panel.minorticks_off()
    panel.set_xlabel("draws")
    panel.set_ylabel("accuracy (%)")
    grid(panel)
    end_labels(panel, ends, colors)


def section_of(
    collection: Collection, split_by: str | None, choice: MeasureChoice, subsets: Sequence[int]
) -> tuple[Section, list[Problem]]:
    """Build the section of all claims of a collection, and list what is missing."""
    judged = list(judge(collection, split_by, choice))
    orders = order_table(judged, choice)
    draws = draw_table(judged, subsets, split_by)
    order_pairs = pair_table(judged, AVERAGE)
    tables = [orders, choice_table(judged), order_pairs]
    if len(draws):
        tables.insert(2, draws)
    figure = draw_figure(draws)
    figures = [figure] if figure else []
    answer = _answer(orders, order_pairs, draws)
    problems = list(judged[0].evaluation.problems) if judged else []
    section = Section("trials", "Claims of these runs", tables, figures, answer=answer)
    return section, problems


def _answer(orders: Table, order_pairs: Table, draws: Table) -> list[str]:
    """Count how many orders are decided, how many trials the others need, and what draws gain."""
    frame = orders.frame[orders.frame["dataset"] != ALL]
    total, alone, together = (
        int(np.nansum(frame[name].to_numpy(dtype=float))) for name in ("pairs", "alone", "together")
    )
    sentences = [
        (
            f"Of {total:,} orders of two algorithms, trials that are paired decide {alone:,} alone "
            f"and {together:,} with all others of their line."
        )
    ]
    if not order_pairs.frame.empty:
        needed = order_pairs.frame["needed"].dropna()
        if len(needed):
            median = int(np.median(needed.to_numpy(dtype=float)))
            sentences.append(f"An undecided order by average needs {median:,} trials (median).")
    if not draws.frame.empty:
        last = draws.frame.groupby(["dataset", "selection"], sort=False).tail(1)
        gains = last.groupby("selection", sort=False)["gain"].mean()
        texts = [f"{percent(gain)} points by {name}" for name, gain in gains.items()]
        most = int(last["draws"].max())
        sentences.append(f"{most} draws against one gain {', '.join(texts)} (mean over datasets).")
    return sentences
