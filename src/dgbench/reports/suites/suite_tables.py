"""Rank correlations of the measures with the ideal one in the settings of a suite (Hwang et al. 2024, Tables 1-5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from dgbench.records.rows import Role, keys
from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.settings.over_seeds import leader, mean, over_seeds
from dgbench.reports.settings.study_values import COEFFICIENTS, correlations, seeds_of
from dgbench.reports.suites.suites import Suite, SuiteLine
from dgbench.statistics import sign_test

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
            best = leader({measure: by_seed for measure, (by_seed, _) in found.items()}, highest=True)
            for measure, (by_seed, why) in found.items():
                name = f"{coefficient} {SHOWN[measure]}"
                own |= over_seeds(name, by_seed, seeds, _why(line, why)) | {f"{name}.best": measure == best}
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
            for (coefficient, measure), (by_seed, why) in found.items():
                reason = "" if seed in by_seed else _why(line, why) or "not computed"
                own |= entry(f"{coefficient} {SHOWN[measure]}", by_seed.get(seed), n=1, reason=reason)
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
                means, why = {}, suite.refused
                for at, line in enumerate(suite.lines if not suite.refused else []):
                    by_seed, reasons = correlations(line.studies, measure, coefficient)
                    why = why or _why(line, reasons)
                    if by_seed:
                        means[at] = mean(list(by_seed.values()))
                own |= over_seeds(f"{coefficient} {title}", means, len(suite.lines), why)
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
