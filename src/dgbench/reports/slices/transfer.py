"""``report=transfer``: the error in each environment of models that were trained in one.

A table per algorithm has a line for each source, the environment trained in, and a column for each
target, an environment that the model never saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgbench.analysis.selection import Selection
from dgbench.errors import RecordError
from dgbench.plan.settings import FileName
from dgbench.records.run_identity import Role, identity_key, keys
from dgbench.reports.document import Document, Report, Section, leads, problem_table, selection_text
from dgbench.reports.groups import one_code
from dgbench.reports.labels import dataset_titles, slug
from dgbench.reports.over_seeds import standard_deviation
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.selected import Selected, SelectedRun, select_runs
from dgbench.reports.tables import Column, Table, entry, percent, table
from dgbench.reports.words import glossary

OTHERS = "other environments"  #: column of the mean over a source's targets


class TransferReport(Report):
    """Builds the tables of sources and targets."""

    name: FileName = "transfer"

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        selected = select_runs(collection, selection, split_by)
        settings = _settings(selected, keys(Role.SETTING, split_by))
        if not settings:
            raise RecordError(
                "no finished run here was trained in one environment; train some with "
                "protocol=single_source, or name their folder with runs="
            )
        identities = [identity for identity, _ in settings]
        titles = dataset_titles(identities, keys(Role.SETTING))
        sections = []
        for (identity, errors), title in zip(settings, titles, strict=True):
            given = list(map(str, identity["given"]))
            tables = []
            answer = []
            for algorithm, lines in errors.groupby("algorithm", sort=True):
                transfer = transfer_table(lines, str(algorithm), given)
                tables.append(transfer)
                answer.append(_answer(transfer, str(algorithm)))
            sections.append(Section(slug(title), title, tables, answer=answer))
        problems = list(collection.problems)
        return Document(
            title="From one environment to the others",
            selection=selection_text(selection, collection),
            sections=sections,
            problems=problem_table(problems),
            lead=leads("Errors of models that were trained in one environment", problems),
            words=glossary("transfer"),
        )


def source_of(run: SelectedRun) -> str | None:
    """Return the one environment that a run was trained in, or None if there are several."""
    held_out = set(run.identity["held_out"])
    sources = [env for env in run.identity["given"] if env not in held_out]
    return sources[0] if len(sources) == 1 else None


def _settings(
    selected: Selected, names: Sequence[str]
) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Collect the test errors of runs with one source, setting by setting.

    Returns:
        The identity of each setting, with one line per run and target: ``algorithm``, ``seed``,
        ``source``, ``env`` and ``error``.

    Raises:
        RecordError: one setting would mix code versions.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    sources: dict[int, str] = {}
    for index, run in enumerate(selected.runs):
        source = source_of(run)
        if source is not None and not run.reason:
            sources[index] = source
            groups[identity_key(run.identity, names)].append(index)
    tests = selected.tests
    settings = []
    for _, indices in sorted(groups.items()):
        runs = [selected.runs[index] for index in indices]
        identity = {key: runs[0].identity[key] for key in names}
        one_code(runs, identity)
        lines = tests[tests["run"].isin(indices)]
        lines = lines.assign(source=[sources[int(index)] for index in lines["run"]])
        lines = lines[lines["source"] != lines["env"]]
        settings.append((identity, lines[["algorithm", "seed", "source", "env", "error"]]))
    return settings


def transfer_table(errors: pd.DataFrame, algorithm: str, given: Sequence[str]) -> Table:
    """Build a table of one algorithm: mean errors over seeds, a line per source.

    Args:
        errors: ``seed``, ``source``, ``env`` and ``error`` (a fraction) of each run and target.
        algorithm: for the title.
        given: names of the environments, in order.
    """
    targets = [env for env in given if env in set(errors["env"])]
    targets += sorted(set(errors["env"]) - set(given))
    lines = []
    for source in [env for env in given if env in set(errors["source"])]:
        of_source = errors[errors["source"] == source]
        line: dict[str, Any] = {"source": source}
        for target in targets:
            line |= _cell(target, of_source[of_source["env"] == target], source)
        by_seed = of_source.groupby("seed")["error"].mean().tolist()
        line |= _mean(OTHERS, by_seed)
        lines.append(line)
    columns = [Column("source", key=True)]
    columns += [Column(target, unit="percent") for target in targets]
    columns.append(Column(OTHERS, unit="percent", help="mean over the targets of a source"))
    notes = ["Errors of the target's test images. ± standard deviation over seeds (divisor n-1)."]
    name = f"transfer_{slug(algorithm)}"
    return table(lines, name, f"{algorithm}: from one source to each target", columns, notes)


def _cell(target: str, errors: pd.DataFrame, source: str) -> dict[str, Any]:
    if target == source:
        return entry(target, reason="the model was trained in it")
    if not len(errors):
        return entry(target, reason=f"no finished run of {source} was tested in it")
    return _mean(target, errors["error"].tolist())


def _mean(name: str, values: Sequence[float]) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return entry(name, mean, std=standard_deviation(values), n=len(values))


def _answer(transfer: Table, algorithm: str) -> str:
    """Name the sources from which errors elsewhere are lowest and highest, in these means."""
    frame = transfer.frame
    means = dict(zip(frame["source"].tolist(), frame[OTHERS].tolist(), strict=True))
    if len(means) < 2:
        return f"{algorithm}: only one source has finished runs."
    low = min(means, key=lambda source: means[source])
    high = max(means, key=lambda source: means[source])
    return (
        f"{algorithm}: the mean error in the other environments is lowest from {low} "
        f"({percent(means[low])}%) and highest from {high} ({percent(means[high])}%); no test "
        "stands behind the order."
    )
