"""``report=leakage``: what an oracle gains by looking at K test domains (Yu et al. 2024, section 2.2 and Table 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgbench.errors import ConfigError
from dgbench.protocols.folds import tested as tested_in
from dgbench.protocols.folds import trained_on_tested
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.boards.leakage_tables import domain_table, leakage_answer, leakage_table
from dgbench.reports.document import Document, Section, leads, problem_table
from dgbench.reports.frames import entry
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.settings.apply_selection import Selected, finished_rows, records_of, select_runs, test_rows
from dgbench.reports.settings.evaluation import one_code
from dgbench.reports.settings.labels import dataset_titles, network_text, slug
from dgbench.reports.settings.selected_runs import of_collection
from dgbench.selection.columns import RunKey
from dgbench.selection.methods import Selection, describe
from dgbench.statistics.leakage import Leakage, oracle_leakage

_COLUMNS = ("algorithm", "seed", "held out", "domains", "K", "average", "leakage", "accuracies", "average.reason")
#: what the report is about, explained where it first stands
WORDS = {
    "leakage": "average accuracy of the draw that an oracle chooses, less that of the one that validation data choose.",
    "oracle, K": "it chooses the draw with the highest mean accuracy over K of the model's test domains.",
}


@dataclass(frozen=True)
class LeakageReport:
    """Builds the leakage report.

    Args:
        name: names the output folder.
        spread: deviation over seeds, a key of :data:`~dgbench.statistics.accuracy_summary.SPREADS`.
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
        found, missing = leakages(collection, selected, selection.validation_environments, split_by)
        problems = [*collection.problems, *missing]
        titles = dataset_titles([identity for identity, _ in found], keys(Role.SETTING))
        sections = []
        for (identity, models), title in zip(found, titles, strict=True):
            tables = [leakage_table(models, self.spread), domain_table(models, identity["given"], self.spread)]
            sections.append(Section(slug(title), title, tables, answer=leakage_answer(models), facts=_facts(identity)))
        what = f"The {selection.title} of each model's draws against an oracle that looks at K of its test domains"
        return Document(
            title="Oracle leakage",
            selection=f"against {describe(selection)}",
            sections=sections,
            problems=problem_table(problems),
            lead=leads(what, problems),
            words=WORDS,
        )


def leakages(
    collection: Collection, selected: Selected, unreported: Sequence[str] = (), split_by: str | None = None
) -> tuple[list[tuple[dict[str, Any], pd.DataFrame]], list[Problem]]:
    """What an oracle gains on the models of every setting.

    Args:
        collection: what was collected.
        selected: the steps and draws that count.
        unreported: environments that chose among models.
        split_by: one more identity key whose values are kept apart.

    Returns:
        The identity of each setting, with one line per algorithm, seed, set of test domains and way of choosing:
        ``algorithm``, ``seed``, ``held out`` (a tuple), ``domains`` (how many), ``K`` (test domains that the oracle
        looks at, 0 for validation data), ``average`` and ``leakage`` (fractions), ``accuracies`` (one per test domain),
        ``average.reason`` (why there is none); and what is missing.

    Raises:
        RecordError: one setting would mix code versions.
    """
    able = np.array([step >= 0 for step in selected.steps], dtype=bool)
    finished = finished_rows(collection)
    records = records_of(finished, [RunKey("")] * len(able))
    rows = test_rows(records, finished, np.array(selected.steps), able)
    names = keys(Role.SETTING, split_by)
    settings: dict[str, dict[tuple[str, tuple[str, ...], int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, run in enumerate(collection.runs):
        given, mine = run.identity["given"], set(tested_in(run.identity)) - set(unreported)
        tested = tuple(env for env in given if env in mine)
        if tested and not trained_on_tested(run.identity):
            models = settings[identity_key(run.identity, names)]
            models[selected.labels[index], tested, run.identity["seed"]].append(index)
    runs = of_collection(collection, selected).runs
    found, problems = [], []
    for _, models in sorted(settings.items()):
        together = [runs[index] for own in models.values() for index in own]
        identity = {key: together[0].identity[key] for key in names}
        one_code(together, identity)
        lines: list[dict[str, Any]] = []
        for (label, tested, seed), own in sorted(models.items()):
            model = {"algorithm": label, "seed": seed, "held out": tested, "domains": len(tested)}
            gains, why = _gains(own, tested, selected, rows)
            for gain in gains:
                known = {"K": gain.test_domains, "leakage": gain.leakage, "accuracies": gain.accuracies}
                lines.append(model | known | entry("average", gain.average))
            if why:
                lines.append(model | entry("average", reason=why))
                problems.append(Problem("no leakage", f"{label} seed {seed}, {', '.join(tested)} held out", why))
        found.append((identity, pd.DataFrame(lines).reindex(columns=list(_COLUMNS))))
    return found, problems


def _gains(
    runs: Sequence[int], tested: Sequence[str], selected: Selected, rows: Mapping[int, Sequence[Mapping[str, Any]]]
) -> tuple[list[Leakage], str]:
    """One entry per way of choosing, or none and why."""
    validation, tests = [], []
    for run in runs:
        accuracy = {row["env"]: row["accuracy"] for row in rows.get(run, ())}
        line = [accuracy.get(env, np.nan) for env in tested]
        if not np.isnan([*line, selected.accuracy[run]]).any():
            validation.append(selected.accuracy[run])
            tests.append(line)
    if len(tests) < 2:
        draws = f"{len(tests)} finished hyperparameter draw{'s' * (not tests)}"
        return [], f"{draws}; an oracle needs 2 or more (hparams.draw=1,2,...)"
    return oracle_leakage(validation, tests), ""


def _facts(identity: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("given environments", ", ".join(map(str, identity["given"]))),
        ("network", network_text(identity)),
        ("protocol", identity["protocol"]),
    ]
