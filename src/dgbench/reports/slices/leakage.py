"""``report=leakage``: what an oracle gains by looking at K test domains (Yu et al. 2024, section
2.2 and Table 4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.accuracy import SPREADS, Leakage, Spread, mean, oracle_leakage, spread
from dgbench.analysis.selection import Selection, describe
from dgbench.errors import ConfigError
from dgbench.plan.folds import tested as tested_in
from dgbench.plan.folds import trained_on_tested
from dgbench.plan.settings import FileName
from dgbench.records.run_identity import Role, identity_key, keys
from dgbench.reports.document import Document, Report, Section, leads, problem_table
from dgbench.reports.groups import one_code
from dgbench.reports.labels import dataset_titles, network_text, protocol_text, slug
from dgbench.reports.measuring.tables import ALGORITHM
from dgbench.reports.published import Value, published
from dgbench.reports.published.beside import PERCENT, published_cell, published_column
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import Selected, select_runs
from dgbench.reports.tables import Column, Table, entries, entry, percent, table
from dgbench.reports.words import glossary

PRINTED = "yu2024_table4"  # stands beside ours
_LEAKAGE = "average minus that of the honest choice, percentage points"
_CHANGE = "leakage against that of K=1"
_CHOSEN_BY = Column("chosen by", key=True)
_RESULTS = (
    Column("average", "average accuracy", "percent", "mean accuracy over the test domains"),
    Column("leakage", "leakage (points)", "points", _LEAKAGE),
    Column("change", unit="percent", help=_CHANGE),
)


def leakage_table(models: pd.DataFrame, kind: str) -> Table:
    """List accuracy and leakage per algorithm and way of choosing: means over seeds and sets of
    test domains.

    Args:
        models: of :func:`leakages`.
        kind: deviation over models, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
    """
    lines: list[dict[str, Any]] = []
    for (algorithm, domains), group in models.groupby(["algorithm", "domains"]):
        finished = group[group["average"].notna()]
        number = {
            "test domains": domains,
            "models": len(finished[["held out", "seed"]].drop_duplicates()),
        }
        if not len(finished):
            reason = next(
                (text for text in group["average.reason"] if isinstance(text, str)),
                "no finished run",
            )
            empty = entries([column.name for column in _RESULTS], reason)
            lines.append({"algorithm": algorithm, "chosen by": "-"} | empty | number)
        lines += [
            {"algorithm": algorithm} | _summary(finished, size, kind) | number
            for size in _sizes(finished)
        ]
    columns = [
        ALGORITHM,
        _CHOSEN_BY,
        *_RESULTS,
        Column("test domains", unit="count", help="test domains of each model"),
        Column("models", unit="count", help="sets of test domains times seeds"),
    ]
    notes = [f"± {SPREADS[kind]}, over models. Leakage: {_LEAKAGE}; change: {_CHANGE}."]
    if set(models["domains"]) == {1}:
        notes.insert(
            0,
            (
                "Every model here has 1 test domain, so only K=1 exists: whether more test "
                "domains leak less needs runs that hold out several environments (a protocol that "
                "holds out groups, or pair runs)."
            ),
        )
    return table(lines, "leakage", "Oracle leakage with K test domains", columns, notes)


def domain_table(models: pd.DataFrame, identity: Mapping[str, Any], kind: str) -> Table:
    """List the accuracy of each domain, beside Table 4's, per algorithm, set of test domains and
    way of choosing.

    Args:
        models: of :func:`leakages`.
        identity: of the setting.
        kind: deviation over seeds, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
    """
    lines: list[dict[str, Any]] = []
    finished = models[models["average"].notna()]
    given = identity["given"]
    theirs = published(PRINTED)
    printed = {}
    for row, values in theirs.printed.items():
        dataset, domains, chosen_by = row.split("/")
        printed[dataset, frozenset(domains.split(",")), chosen_by] = values
    key: Any
    for key, group in finished.groupby(["algorithm", "held out"]):
        algorithm, held_out = key
        for size in _sizes(group):
            line = {"algorithm": algorithm, "test domains": ", ".join(held_out)}
            line |= _summary(group, size, kind)
            place = identity["dataset"], frozenset(held_out), str(size or "iid")
            for name, value in printed.get(place, {}).items():
                line |= published_cell(f"{name} published", Value(value), unit=PERCENT)
            models_at_size = group[group["K"] == size]
            for env in given:
                if env in held_out:
                    index = held_out.index(env)
                    accuracies = [float(values[index]) for values in models_at_size["accuracies"]]
                    line |= entry(env, mean(accuracies), n=len(accuracies))
                else:
                    line |= entry(env, reason=f"trained on {env}")
            lines.append(line)
    environments = [Column(env, f"accuracy in {env}", "percent") for env in given]
    columns = [ALGORITHM, Column("test domains", key=True), _CHOSEN_BY, *environments, *_RESULTS]
    notes = [
        (
            f"Mean over seeds, ± {SPREADS[kind]}. The accuracy of a domain at K is its mean over "
            "the sets of K with it."
        )
    ]
    if any("leakage published" in line for line in lines):
        for column in _RESULTS:
            title = column.title or column.name
            columns.append(published_column(column.name, title, column.unit, column.help))
        notes.append(f"Published: {theirs.source}; which algorithm it is of is not said.")
    return table(
        lines, "leakage_domains", "Oracle leakage in each test domain", columns, notes, detail=True
    )


def leakage_answer(models: pd.DataFrame) -> list[str]:
    """Summarize what an oracle gains by looking at one test domain, or at most of them.

    The sentence gives the range over algorithms.
    """
    finished = models[models["average"].notna()]
    if finished.empty:
        return []
    ways = []
    for size in sorted({1, max(_sizes(finished))}):
        leaks_of = finished[finished["K"] == size].groupby("algorithm")["leakage"]
        gains = leaks_of.agg(lambda leaks: mean(leaks.tolist()))
        lowest = f"{percent(gains.min())} ({gains.idxmin()})"
        highest = f"{percent(gains.max())} points ({gains.idxmax()})"
        points = highest if len(gains) == 1 else f"{lowest} to {highest}"
        ways.append(f"at {size} test domain{'s' * (size > 1)} gains {points}")
    return [
        (
            f"An oracle that looks {', and one that looks '.join(ways)} of accuracy, against the "
            "choice by validation data."
        )
    ]


def _sizes(models: pd.DataFrame) -> list[int]:
    return sorted(int(size) for size in models["K"].unique())


def _summary(models: pd.DataFrame, size: int, kind: str) -> dict[str, Any]:
    """Summarize the choice at K = ``size`` (0: validation): average, leakage and its change against
    that of K=1.
    """
    rows = models[models["K"] == size]
    averages = rows["average"].tolist()
    leaks = rows["leakage"].tolist()
    average = entry("average", mean(averages), std=spread(averages, kind), n=len(rows))
    if size == 0:
        no_leakage = entry("leakage", 0.0, n=len(rows))
        no_change = entry("change", reason="the honest choice leaks nothing")
        return {"chosen by": "validation", **average, **no_leakage, **no_change}
    leak = mean(leaks)
    single = mean(models.loc[models["K"] == 1, "leakage"].tolist())
    change = entry("change", reason="K=1 leaks nothing")
    if single:
        change = entry("change", leak / single - 1)
    return {
        "chosen by": f"oracle, K={size}",
        **average,
        **entry("leakage", leak, std=spread(leaks, kind), n=len(rows)),
        **change,
    }


#: label of the algorithm, environments that are tested in, and seed
_Model = tuple[str, tuple[str, ...], int]
_COLUMNS = (
    "algorithm",
    "seed",
    "held out",
    "domains",
    "K",
    "average",
    "leakage",
    "accuracies",
    "average.reason",
)


class LeakageReport(Report):
    """Builds the leakage report.

    Args:
        spread: deviation over seeds, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
    """

    name: FileName = "leakage"
    spread: Spread = "standard_deviation"

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        if selection.uses_test_environments or not selection.chooses_draws:
            raise ConfigError(
                "report=leakage compares an oracle with an honest choice among draws; "
                f"selection={selection.name} is none, choose selection=train_val"
            )
        selected = select_runs(collection, selection, split_by)
        settings, missing = leakages(selected, selection.validation_environments, split_by)
        problems = [*collection.problems, *missing]
        titles = dataset_titles([identity for identity, _ in settings], keys(Role.SETTING))
        sections = []
        for (identity, models), title in zip(settings, titles, strict=True):
            tables = [
                leakage_table(models, self.spread),
                domain_table(models, identity, self.spread),
            ]
            answer = leakage_answer(models)
            facts = _facts(identity)
            sections.append(Section(slug(title), title, tables, answer=answer, facts=facts))
        scope = (
            f"The {selection.title} of each model's draws against an oracle that looks at K of "
            "its test domains"
        )
        return Document(
            title="Oracle leakage",
            selection=f"against {describe(selection)}",
            sections=sections,
            problems=problem_table(problems),
            lead=leads(scope, problems),
            words=glossary("leakage", terms=["draw", "selection"]),
        )


def leakages(
    selected: Selected, unreported: Sequence[str] = (), split_by: str | None = None
) -> tuple[list[tuple[dict[str, Any], pd.DataFrame]], list[Problem]]:
    """Compute what an oracle gains on the models of every setting.

    Args:
        selected: the steps and draws that count.
        unreported: environments that chose among models.
        split_by: one more identity key whose values are kept apart.

    Returns:
        The identity of each setting, with one line per algorithm, seed, set of test domains and way
        of choosing: ``algorithm``, ``seed``, ``held out`` (a tuple), ``domains`` (how many), ``K``
        (test domains that the oracle looks at, 0 for validation data), ``average`` and ``leakage``
        (fractions), ``accuracies`` (one per test domain), ``average.reason`` (why there is none);
        and what is missing.

    Raises:
        RecordError: one setting would mix code versions.
    """
    accuracies: dict[Any, dict[str, float]] = {
        run: dict(zip(lines["env"], lines["accuracy"], strict=True))
        for run, lines in selected.tests.groupby("run", sort=False)
    }
    names = keys(Role.SETTING, split_by)
    settings: dict[str, dict[_Model, list[int]]] = defaultdict(lambda: defaultdict(list))
    runs = selected.runs
    for index, run in enumerate(runs):
        reported = set(tested_in(run.identity)) - set(unreported)
        tested = tuple(env for env in run.identity["given"] if env in reported)
        if tested and not trained_on_tested(run.identity):
            model = run.label, tested, run.identity["seed"]
            settings[identity_key(run.identity, names)][model].append(index)
    results = []
    problems = []
    for _, models in sorted(settings.items()):
        together = [runs[index] for index in chain.from_iterable(models.values())]
        identity = {key: together[0].identity[key] for key in names}
        one_code(together, identity)
        lines: list[dict[str, Any]] = []
        for (label, tested, seed), indices in sorted(models.items()):
            draws = []
            # by draw: the largest wins a tie
            for index in sorted(indices, key=lambda index: runs[index].identity["draw"]):
                by_env = accuracies.get(index, {})
                tests = [by_env.get(env, np.nan) for env in tested]
                draws.append((runs[index].accuracy, tests))
            about = {"algorithm": label, "seed": seed, "held out": tested, "domains": len(tested)}
            gains, reason = _gains(draws)
            lines += [about | _gain_cells(gain) for gain in gains]
            if reason:
                lines.append(about | entry("average", reason=reason))
                place = f"{label} seed {seed}, {', '.join(tested)} held out"
                problems.append(Problem("no leakage", place, reason))
        results.append((identity, pd.DataFrame(lines).reindex(columns=list(_COLUMNS))))
    return results, problems


def _gain_cells(gain: Leakage) -> dict[str, Any]:
    """Make what a line says of one way of choosing."""
    cells = {"K": gain.test_domains, "leakage": gain.leakage, "accuracies": gain.accuracies}
    return cells | entry("average", gain.average)


def _gains(draws: Sequence[tuple[float, list[float]]]) -> tuple[list[Leakage], str]:
    """Compute the leakage of each way of choosing; or none, and say why."""
    finished = [draw for draw in draws if not np.isnan([draw[0], *draw[1]]).any()]
    if len(finished) < 2:
        count = f"{len(finished)} finished hyperparameter draw{'s' * (not finished)}"
        return [], f"{count}; an oracle needs 2 or more (hparams.draw=1,2,...)"
    validation, tests = zip(*finished, strict=True)
    return oracle_leakage(validation, tests), ""


def _facts(identity: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("given environments", ", ".join(map(str, identity["given"]))),
        ("network", network_text(identity)),
        ("protocol", protocol_text(identity)),
    ]
