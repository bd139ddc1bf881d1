"""Tables over the settings of a suite (Hwang et al. 2024, Tables 1-6).

Rank correlations of the measures with the ideal one; what each measure selects and what that costs; how sure these are:
intervals, chance of a correct selection, ranks; and a paper's correlations beside ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import (
    Sample,
    Statistics,
    compatible,
    correlation_difference,
    correlation_interval,
    pick_probability,
    sign_test,
)
from dgbench.analysis.accuracy import mean
from dgbench.errors import MeasureError
from dgbench.records.rows import Role, keys
from dgbench.reports.measuring.suites import Suite, SuiteLine
from dgbench.reports.over_seeds import (
    COEFFICIENTS,
    Chosen,
    Ranking,
    complete,
    correlations,
    leader,
    over_seeds,
    seeds_of,
    selections,
)
from dgbench.reports.published import Published, Value, names, published
from dgbench.reports.tables import Column, Table, entry, interval_entry, table

#: the practical measures in the paper's order and words
SHOWN = {"worst_gap": "worst+gap", "average": "average", "worst": "worst only", "gap": "gap only"}
#: what must be equal for datasets to share an average
_SAME = ("evaluation", *(key for key in keys(Role.NETWORK | Role.PROTOCOL) if key != "backbone"))
_BOLD = "Bold: highest of a line and coefficient, where the seeds separate it from the others; negative underlined."


def suite_correlation_table(suite: Suite) -> Table:
    """One line per setting: each measure's rank correlation with the ideal one, mean ± std over seeds."""
    lines = []
    for line in suite.lines:
        own = key_entries(suite, line)
        seeds = len(seeds_of(line.studies))
        for coefficient in COEFFICIENTS:
            found = {measure: correlations(line.studies, measure, coefficient) for measure in SHOWN}
            best = leader(
                pd.DataFrame.from_dict({m: rho for m, (rho, _) in found.items()}, orient="index"), highest=True
            )
            for measure, (rho, why) in found.items():
                name = f"{coefficient} {SHOWN[measure]}"
                own |= over_seeds(name, [*rho.values()], seeds, _why(line, why)) | {f"{name}.best": measure == best}
        lines.append(own)
    columns = [*key_columns(suite), *_columns()]
    title = "Rank correlation with the ideal measure, every setting"
    made = pd.DataFrame(lines)
    return table(made, "suite_correlation", title, columns, _on_correlation(suite, made))


def suite_seed_table(suite: Suite) -> Table:
    """The same, one line per setting and seed, as in Tables 3 and 4."""
    lines = []
    for line in suite.lines:
        found = {(c, m): correlations(line.studies, m, c) for c in COEFFICIENTS for m in SHOWN}
        for seed in seeds_of(line.studies):
            own = key_entries(suite, line) | {"seed": seed}
            for (coefficient, measure), (rho, why) in found.items():
                reason = "" if seed in rho else _why(line, why) or "not computed"
                own |= entry(f"{coefficient} {SHOWN[measure]}", rho.get(seed), n=1, reason=reason)
            lines.append(own)
    columns = [*key_columns(suite), Column("seed", unit="count", key=True), *_columns()]
    title = "Rank correlation with the ideal measure, every seed"
    return table(lines, "suite_correlation_seeds", title, columns, ["Negative ones are underlined."], detail=True)


def overview_table(suites: Sequence[Suite]) -> Table:
    """One line per suite: its correlations, mean ± std over settings; below, the average over datasets."""
    lines: list[dict[str, Any]] = []
    for suite in suites:
        own: dict[str, Any] = {"dataset": suite.title, "settings": len(suite.lines)}
        for coefficient in COEFFICIENTS:
            for measure, title in SHOWN.items():
                levels, why = [], suite.refused
                for line in suite.lines if not suite.refused else []:
                    rho, reasons = correlations(line.studies, measure, coefficient)
                    why = why or _why(line, reasons)
                    levels += [mean(list(rho.values()))] if rho else []
                own |= over_seeds(f"{coefficient} {title}", levels, len(suite.lines), why)
        lines.append(own)
    notes = ["Mean over seeds, then mean ± standard deviation over settings; n marks those that have a value."]
    if len(suites) > 1:
        why = _unlike(suites)
        own = {"dataset": "average", "settings": sum(len(suite.lines) for suite in suites)}
        for column in _columns():
            values = [line[column.name] for line in lines if line[column.name] is not None]
            whole = not why and len(values) == len(lines)
            reason = "" if whole else why or "a dataset has none"
            own |= entry(column.name, mean(values) if whole else None, n=len(values), reason=reason)
        lines.append(own)
        notes.append(f"No average over the lines: {why}." if why else "average: every dataset counts once.")
    columns = [Column("dataset", key=True), Column("settings", unit="count"), *_columns()]
    return table(lines, "overview", "Rank correlation with the ideal measure, per dataset", columns, notes)


def key_columns(suite: Suite) -> list[Column]:
    """The columns that name a setting."""
    axes = [Column(axis, key=True) for axis in suite.axes]
    return [*axes, Column("N", unit="count", help="given environments", key=True)]


def key_entries(suite: Suite, line: SuiteLine) -> dict[str, Any]:
    """Their values."""
    return {**{axis: line.values[axis] for axis in suite.axes}, "N": line.count}


def chance_words(wins: int, losses: int) -> str:
    """Two-sided sign test over what does not tie, in words."""
    if not wins + losses:
        return "a tie throughout"
    p = sign_test(wins, losses)
    verdict = "more than chance" if p < 0.05 else "no more than chance may do"
    return f"{verdict} (sign test, p = {p:.2g})"


def _columns() -> list[Column]:
    return [
        Column(f"{coefficient} {title}", unit="correlation", help=f"{coefficient}: {title} with ideal")
        for coefficient in COEFFICIENTS
        for title in SHOWN.values()
    ]


def _on_correlation(suite: Suite, lines: pd.DataFrame) -> list[str]:
    """What Table 1 supports."""
    count = len(suite.seeds)
    over = f"mean ± standard deviation (divisor n-1) over {count} seeds" if count > 1 else "1 seed, no deviation"
    sentences = [f"1: the measure orders the {len(suite.algorithms)} algorithms as the ideal one does; {over}. {_BOLD}"]
    for name in COEFFICIENTS:
        known = lines[[f"{name} worst+gap", f"{name} average"]].astype("float64").dropna()
        if not len(known):
            sentences.append(f"{name}: no setting has both worst+gap and average; nothing can be concluded.")
            continue
        ahead = known[f"{name} worst+gap"] - known[f"{name} average"]
        wins, losses = int((ahead > 0).sum()), int((ahead < 0).sum())
        sentences.append(
            f"{name}: worst+gap correlates better than average in {wins} of {len(known)} settings, "
            f"which is {chance_words(wins, losses)}."
        )
    return sentences


def _why(line: SuiteLine, reasons: dict[int, str]) -> str:
    """Why a setting has no correlation: no ideal error at all, or what a seed says."""
    if not line.studies["ideal"].notna().any():
        return _first(line.studies["ideal.reason"]) or "no ideal errors"
    return next(iter(reasons.values()), "")


def _first(reasons: Iterable[object]) -> str:
    return next((why for why in reasons if isinstance(why, str) and why), "")


def _unlike(suites: Sequence[Suite]) -> str:
    for key in _SAME:
        found = sorted({str(suite.identity[key]) for suite in suites})
        if len(found) > 1:
            return f"they differ in {key} ({', '.join(found)})"
    names = [suite.identity["dataset"] for suite in suites]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"{', '.join(twice)} stands in more than one line (other base images, network or seeds)"
    codes = sorted({code for suite in suites for line in suite.lines for code in line.setting.codes})
    return f"they come from {len(codes)} code versions ({', '.join(codes)})" if len(codes) > 1 else ""


#: the measures whose selections Table 6 shows
_SELECTING = {"ideal": "ideal", "worst_gap": "worst+gap", "average": "average"}
_ZERO = 1e-12  # degradation of a selection whose ideal error ties with the lowest


def suite_selection_table(suite: Suite) -> Table:
    """The algorithm that each measure selects, per seed and on the mean over seeds."""
    groups: dict[int | None, str] = {**{seed: f"seed {seed}" for seed in suite.seeds}, None: "mean"}
    columns = [
        *key_columns(suite),
        *(Column(f"{group}: {t}") for group in groups.values() for t in _SELECTING.values()),
    ]
    lines = []
    for line in suite.lines:
        own, chosen = key_entries(suite, line), selections(line.studies, list(_SELECTING))
        for seed, group in groups.items():
            absent = set(suite.seeds if seed is None else [seed]) - set(seeds_of(line.studies))
            best = Chosen() if absent else chosen["ideal", seed]
            for measure, title in _SELECTING.items():
                selected = () if absent else chosen[measure, seed].names
                right = measure != "ideal" and bool(selected) and selected[0] in best.names
                reason = "" if selected else _none_selected(absent)
                own |= entry(f"{group}: {title}", " = ".join(selected) or None, best=right, reason=reason)
        lines.append(own)
    notes = [
        "Bold: the same algorithm as by the ideal measure, which alone knows all environments. "
        "mean: the algorithm selected on the mean over seeds. Ties are shown as a = b.",
        *([] if len(suite.seeds) > 1 else ["1 seed: a selection may be the luck of that seed."]),
    ]
    return table(lines, "suite_selected", "Algorithm each measure selects, every setting", columns, notes)


def selection_costs(suite: Suite) -> pd.DataFrame:
    """One line per measure, setting and seed (or their mean): what the selection costs.

    Returns:
        Columns ``measure``, ``line`` (position of the setting), ``seed`` (None: on the mean over seeds),
        ``degradation`` (ideal error of the selected algorithm less the lowest one, a fraction).
    """
    lines = [
        {"measure": measure, "line": at, "seed": seed, "degradation": chosen.cost}
        for at, line in enumerate(suite.lines)
        for (measure, seed), chosen in selections(line.studies, list(SHOWN)).items()
        if chosen.cost is not None
    ]
    frame = pd.DataFrame(lines, columns=["measure", "line", "seed", "degradation"])
    return frame.astype({"seed": "Int64", "degradation": "float64"})


@dataclass(frozen=True)
class CorrectSelections:
    """How well one measure selects."""

    right: int  #: selections that are truly best
    count: int  #: selections, one per setting and seed
    cost: float  #: mean degradation, a fraction


def correct_selections(suite: Suite) -> dict[str, CorrectSelections]:
    """worst+gap and average, as far as some setting has ideal errors."""
    costs = selection_costs(suite)
    found = {}
    for measure in ("worst_gap", "average"):
        own = costs.loc[(costs["measure"] == measure) & costs["seed"].notna(), "degradation"].tolist()
        if own:
            found[SHOWN[measure]] = CorrectSelections(sum(cost <= _ZERO for cost in own), len(own), mean(own))
    return found


def suite_hit_table(suite: Suite) -> Table:
    """How often each measure selects the truly best algorithm, and what its selections cost."""
    columns = [
        Column("measure", key=True),
        Column("truly best", unit="count", help="selections with the lowest ideal error, over settings x seeds"),
        Column("truly best on the mean", unit="count", help="the same on the mean over seeds, over settings"),
        Column("degradation", unit="points", help="ideal error of it less the lowest, mean ± std"),
        Column("largest degradation", unit="points", help="the costliest single selection"),
    ]
    costs = selection_costs(suite)
    lines = []
    for measure, title in SHOWN.items():
        own: dict[str, Any] = {"measure": title}
        each = costs[costs["measure"] == measure]
        single = each.loc[each["seed"].notna(), "degradation"].tolist()
        on_mean = each.loc[each["seed"].isna(), "degradation"].tolist()
        if not single:
            for column in columns[1:]:
                own |= entry(column.name, reason="no setting has ideal errors")
            lines.append(own)
            continue
        for name, losses in (("truly best", single), ("truly best on the mean", on_mean)):
            right = sum(loss <= _ZERO for loss in losses)
            own |= entry(name, float(right), n=len(losses), flag=f"of {len(losses)}")
        own |= over_seeds("degradation", single, len(single))
        own |= entry("largest degradation", max(single), n=len(single))
        lines.append(own)
    title = "How often each measure selects the truly best algorithm"
    return table(lines, "suite_hits", title, columns, _on_hits(suite, costs))


def _on_hits(suite: Suite, costs: pd.DataFrame) -> list[str]:
    """How to read it, and what the selections by worst+gap cost against those by average."""
    count = len(suite.algorithms)
    sentences = [
        f"A blind guess among {count} algorithms is right once in {count}. Degradation 0: truly best. Over settings "
        "and seeds, which are no independent trials: seeds share their setting's environments."
    ]
    single = costs[costs["seed"].notna()].pivot(index=["line", "seed"], columns="measure", values="degradation")
    if {"worst_gap", "average"} <= set(single.columns):
        both = single[["worst_gap", "average"]].dropna()
        difference = both["worst_gap"] - both["average"]
        better, worse = int((difference < 0).sum()), int((difference > 0).sum())
        by_setting = difference.groupby("line").sum()
        wins, losses = int((by_setting < 0).sum()), int((by_setting > 0).sum())
        sentences += [
            f"worst+gap selects a better algorithm than average in {better} of {len(both)} cases, a worse one in "
            f"{worse} and an equally good one in {len(both) - better - worse}.",
            f"Counted by setting, its selections cost less in {wins} and more in {losses} of {len(by_setting)}, which "
            f"is {chance_words(wins, losses)}.",
        ]
    return sentences


def _none_selected(absent: set[int]) -> str:
    if absent:
        return f"seed {', '.join(map(str, sorted(absent)))} was not trained in this setting"
    return "fewer than 2 algorithms have this measure and the ideal one for these seeds"


#: names the generator of resamples: another word would change every interval
_RESAMPLES = "survey_intervals"
_MEASURES = {"worst_gap": "worst+gap", "average": "average"}
#: the measures that algorithms are ranked by
RANKED_BY = {"ideal": "ideal", **_MEASURES}
_ALL = tuple(RANKED_BY)


def suite_interval_table(suite: Suite, statistics: Statistics) -> Table:
    """Confidence intervals of the Spearman correlations, of their difference, and the chance of a correct selection."""
    columns = [*(Column(axis, key=True) for axis in suite.axes)]
    columns += [
        Column(title, unit="correlation", help=f"Spearman of {title} with ideal") for title in _MEASURES.values()
    ]
    columns += [Column("difference", unit="correlation", help="worst+gap less average, over the same resamples")]
    for title in _MEASURES.values():
        help_text = f"probability that the one selected by {title} is truly best, over resampled algorithms and seeds"
        columns.append(Column(f"P(best) {title}", unit="probability", help=help_text))
    lines = []
    for at, line in enumerate(suite.lines):
        own: dict[str, Any] = {axis: line.values[axis] for axis in suite.axes}
        try:
            own |= _intervals(line, (_RESAMPLES, at), statistics)
        except MeasureError as problem:
            for column in columns[len(suite.axes) :]:
                own |= entry(column.name, reason=str(problem))
        lines.append(own)
    made = pd.DataFrame(lines)
    above = int((made["difference.low"] > 0).sum()) if "difference.low" in made else 0
    below = int((made["difference.high"] < 0).sum()) if "difference.high" in made else 0
    notes = [
        f"[low, high]: {statistics.percent} bootstrap interval; algorithms and seeds are resampled ({statistics.draws} "
        "times, percentiles), so it speaks of other algorithms and seeds like these, not of other environments.",
        f"The interval of the difference lies above 0 in {above} and below 0 in {below} of {len(lines)} settings; "
        "elsewhere these algorithms and seeds cannot tell the two measures apart.",
        "P(best): share of the resamples in which the selected algorithm is truly best. A resample holds about two "
        "thirds of the algorithms, so the chance among all of them is lower (docs/concepts/statistics.md).",
    ]
    return table(made, "suite_intervals", "How sure the correlations are", columns, notes)


def _intervals(line: SuiteLine, table_seed: tuple[object, ...], statistics: Statistics) -> dict[str, Any]:
    """The intervals of one setting; ``table_seed`` makes all of them see the same resamples."""
    tables = complete(line.studies, _ALL)
    values = {measure: table.to_numpy() for measure, table in tables.items()}
    algorithms, seeds = values["ideal"].shape
    if not seeds or algorithms < 3:
        raise MeasureError(f"{algorithms} algorithms have all measures for every seed; 3 or more are needed")
    ideal, draws, level = values["ideal"], statistics.draws, statistics.level
    own: dict[str, Any] = {}
    for measure, title in _MEASURES.items():
        found = correlation_interval(values[measure], ideal, statistics.rng(*table_seed), draws=draws, level=level)
        chance = pick_probability(values[measure], ideal, statistics.rng(*table_seed), draws=draws)
        own |= interval_entry(title, found, seeds)
        few = math.isnan(chance)
        own |= entry(f"P(best) {title}", None if few else chance, reason="too few candidates" if few else "")
    more = correlation_difference(
        values["worst_gap"], values["average"], ideal, statistics.rng(*table_seed), draws=draws, level=level
    )
    return own | interval_entry("difference", more, seeds)


def rankings(suite: Suite, alpha: float = 0.05) -> tuple[dict[str, Ranking], str]:
    """Measure -> ranking over the settings (each block: means over seeds), or why there is none."""
    tables = [complete(line.studies, _ALL) for line in suite.lines]
    usable = [each for each in tables if len(each["ideal"]) > 2]
    common = sorted(set.intersection(*(set(each["ideal"].index) for each in usable))) if usable else []
    if len(common) < 3 or len(usable) < 2:
        return {}, (
            f"{len(common)} algorithms are complete in {len(usable)} settings; "
            "ranks need 3 or more algorithms in 2 or more"
        )
    found = {}
    for measure in _ALL:
        blocks = np.array([each[measure].loc[common].to_numpy().mean(axis=1) for each in usable])
        try:
            found[measure] = Ranking.of(common, blocks, alpha)
        except MeasureError as problem:
            return {}, str(problem)
    return found, ""


def suite_rank_table(suite: Suite) -> Table:
    """Mean rank of every algorithm over the settings, by ideal, worst+gap and average."""
    found, why = rankings(suite)
    columns = [Column("algorithm", key=True), *(Column(m, f"rank by {RANKED_BY[m]}", "rank") for m in _ALL)]
    title = "Mean rank over settings"
    if not found:
        return table([], "suite_ranks", title, columns, [f"Not computed: {why}."])
    order = sorted(found["ideal"].ranks, key=lambda a: (found["ideal"].ranks[a], a))
    lines = []
    for algorithm in order:
        own: dict[str, Any] = {"algorithm": algorithm}
        for measure in _ALL:
            ranking = found[measure]
            own |= entry(measure, ranking.ranks[algorithm], n=ranking.test.blocks, best=algorithm == ranking.leader)
        lines.append(own)
    blocks = found["ideal"].test.blocks
    notes = [f"1 is the lowest error; a block is one of {blocks} settings, errors are means over seeds."]
    notes += [f"{RANKED_BY[measure]}: {_verdict(found[measure])}" for measure in _ALL]
    notes.append("The settings share their images, so the tests see more blocks than there is evidence.")
    return table(lines, "suite_ranks", title, columns, notes)


def _verdict(ranking: Ranking) -> str:
    test = ranking.test
    text = f"Friedman chi2 = {test.statistic:.1f}, p = {test.p_value:.2g} (Iman-Davenport p = {test.p_value_f:.2g})"
    if test.p_value_f >= ranking.alpha:
        return f"{text}: no difference between the algorithms can be concluded."
    return (
        f"{text}; ranks differ where they are more than {ranking.difference:.1f} apart (Nemenyi, {ranking.alpha:g}): "
        f"{ranking.first} is separated from {ranking.separated} of {len(ranking.ranks) - 1} others."
    )


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
                rho, why = correlations(line.studies, measure, name)
                theirs = paper.values[row][f"{name.lower()}_{measure}"]
                own |= over_seeds(
                    f"{title} ours", [*rho.values()], len(seeds_of(line.studies)), next(iter(why.values()), "")
                )
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
