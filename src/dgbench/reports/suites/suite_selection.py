"""What each measure selects in every setting, and what it costs (Hwang et al. 2024, section 6.1, Table 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.settings.over_seeds import mean, over_seeds
from dgbench.reports.settings.study_values import seeds_of, selected_by, selection_degradation
from dgbench.reports.suites.suite_tables import SHOWN, chance_words, key_columns, key_entries
from dgbench.reports.suites.suites import Suite, SuiteLine

#: the measures whose selections Table 6 shows
_SELECTING = {"ideal": "ideal", "worst_gap": "worst+gap", "average": "average"}
_ZERO = 1e-12  # degradation of a selection whose ideal error ties with the lowest


def suite_selection_table(suite: Suite) -> Table:
    """The algorithm that each measure selects, per seed and on the mean over seeds."""
    groups: list[tuple[str, list[int]]] = [*((f"seed {seed}", [seed]) for seed in suite.seeds), ("mean", suite.seeds)]
    columns = [*key_columns(suite), *(Column(f"{group}: {t}") for group, _ in groups for t in _SELECTING.values())]
    lines = []
    for line in suite.lines:
        own = key_entries(suite, line)
        for group, seeds in groups:
            chosen = {measure: selected_by(line.studies, measure, seeds) for measure in _SELECTING}
            for measure, selected in chosen.items():
                name = f"{group}: {_SELECTING[measure]}"
                right = measure != "ideal" and bool(selected) and selected[0] in chosen["ideal"]
                reason = "" if selected else _none_selected(line, seeds)
                own |= entry(name, " = ".join(selected) or None, best=right, reason=reason)
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
    lines = []
    for measure in SHOWN:
        for at, line in enumerate(suite.lines):
            seeds = seeds_of(line.studies)
            for seed, own in [*((seed, [seed]) for seed in seeds), (None, seeds)]:
                cost = selection_degradation(line.studies, measure, own)
                if cost is not None:
                    lines.append({"measure": measure, "line": at, "seed": seed, "degradation": cost})
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
        own |= over_seeds("degradation", dict(enumerate(single)), len(single))
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


def _none_selected(line: SuiteLine, seeds: Sequence[int]) -> str:
    absent = set(seeds) - set(seeds_of(line.studies))
    if absent:
        return f"seed {', '.join(map(str, sorted(absent)))} was not trained in this setting"
    return "fewer than 2 algorithms have this measure and the ideal one for these seeds"
