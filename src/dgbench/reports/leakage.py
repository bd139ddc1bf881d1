"""``report=leakage``: what an oracle gains by looking at K test domains (Yu et al. 2024, section 2.2 and Table 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgbench.errors import ConfigError
from dgbench.measures.leakage import Leakage, oracle_leakage
from dgbench.protocols.folds import tested as tested_in
from dgbench.protocols.folds import trained_on_tested
from dgbench.protocols.selection import Selection, describe
from dgbench.protocols.selection_records import MemberKey
from dgbench.reports.collect import Collection
from dgbench.reports.comparisons import SECTION_KEYS, identity_key, one_code
from dgbench.reports.document import Document, Section
from dgbench.reports.folders import Problem
from dgbench.reports.leaderboard_cells import DATASET_KEYS, short_titles
from dgbench.reports.leakage_tables import Group, domain_table, leakage_table
from dgbench.reports.measures_report import problem_table
from dgbench.reports.selected import Selected, finished_rows, records_of, select_runs
from dgbench.reports.selected import test_rows as rows_at

_TITLE_KEYS = (*DATASET_KEYS, "backbone", "init", "tuning", "protocol")


@dataclass(frozen=True)
class LeakageReport:
    """Builds the leakage report.

    Args:
        name: names the output folder.
        spread: deviation over seeds, a key of :data:`~dgbench.measures.accuracy_summary.SPREADS`.
    """

    name: str = "leakage"
    spread: str = "standard_deviation"

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        if selection.uses_test_environments or not selection.chooses_draws:
            raise ConfigError(
                f"report=leakage compares an oracle with an honest choice among draws; selection={selection.name} "
                "is none, choose selection=train_val"
            )
        selected = select_runs(collection, selection, split_by)
        sections, problems = [], list(collection.problems)
        found = _groups(collection, selected, selection, split_by, problems)
        titles = short_titles([identity for identity, _ in found], keys=_TITLE_KEYS)
        for (identity, groups), title in zip(found, titles, strict=True):
            how = describe(selection)
            tables = [
                leakage_table(groups, self.spread, how),
                domain_table(groups, identity["given"], self.spread, how),
            ]
            name = "".join(c if c.isalnum() else "_" for c in title)
            sections.append(Section(name, title, _facts(identity), tables, []))
        lead = [
            f"The {selection.title} of each model's draws against an oracle that looks at K of its test domains.",
            f"{len(problems)} problem{'s' * (len(problems) != 1)}, listed at the end." if problems else "No problems.",
        ]
        return Document("Oracle leakage", lead, sections, problem_table(problems))


def _groups(
    collection: Collection,
    selected: Selected,
    selection: Selection,
    split_by: str | None,
    problems: list[Problem],
) -> list[tuple[dict[str, Any], list[Group]]]:
    """Every section's models with the same algorithm and test domains, and what an oracle gains on them."""
    able = np.array([step >= 0 for step in selected.steps], dtype=bool)
    table = finished_rows(collection)
    rows = rows_at(records_of(table, [MemberKey("")] * len(able)), table, np.array(selected.steps), able)
    keys = (*SECTION_KEYS, *([split_by] if split_by and split_by not in SECTION_KEYS else []))
    sections: dict[str, dict[tuple[str, tuple[str, ...]], dict[int, list[int]]]] = {}
    members: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(collection.runs):
        tested = tuple(e for e in run.identity["given"] if e in set(tested_in(run.identity)))
        tested = tuple(env for env in tested if env not in selection.validation_environments)
        if not tested or trained_on_tested(run.identity):
            continue
        key = identity_key(run.identity, keys)
        members[key].append(index)
        by_model = sections.setdefault(key, defaultdict(lambda: defaultdict(list)))
        by_model[selected.labels[index], tested][run.identity["seed"]].append(index)
    found = []
    for key, by_model in sorted(sections.items()):
        identity = {name: collection.runs[members[key][0]].identity[name] for name in keys}
        one_code(collection, members[key], identity)
        groups = []
        for (label, tested), seeds in sorted(by_model.items()):
            gains = {seed: _gain(runs, tested, selected, rows) for seed, runs in sorted(seeds.items())}
            known = {seed: gain for seed, gain in gains.items() if isinstance(gain, list)}
            groups.append(Group(label, tested, known, next((g for g in gains.values() if isinstance(g, str)), "")))
            for seed, why in gains.items():
                if isinstance(why, str):
                    problems.append(Problem("no leakage", f"{label} seed {seed}, {', '.join(tested)} held out", why))
        found.append((identity, groups))
    return found


def _gain(
    runs: Sequence[int], tested: Sequence[str], selected: Selected, rows: Mapping[int, Sequence[Mapping[str, Any]]]
) -> list[Leakage] | str:
    """One line per way of choosing, or why there is none."""
    validation, tests = [], []
    for run in runs:
        accuracy = {row["env"]: row["accuracy"] for row in rows.get(run, ())}
        line = [accuracy.get(env, np.nan) for env in tested]
        if not np.isnan([*line, selected.accuracy[run]]).any():
            validation.append(selected.accuracy[run])
            tests.append(line)
    if len(tests) < 2:
        draws = f"{len(tests)} finished hyperparameter draw{'s' * (not tests)}"
        return f"{draws}; an oracle needs 2 or more (hparams.draw=1,2,...)"
    return oracle_leakage(validation, tests)


def _facts(identity: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("given environments", ", ".join(map(str, identity["given"]))),
        ("network", f"{identity['backbone']}, {identity['init']} init, {identity['tuning']}"),
        ("protocol", identity["protocol"]),
    ]
