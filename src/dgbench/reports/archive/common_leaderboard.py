"""``LEADERBOARD.md``: all entries that are not frozen, in the tables of the measure report.

Runs share a table where reports let them: one dataset setting and one code version; here also one version of the
dataset's files and one selection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dgbench.analysis import MEASURES, Statistics
from dgbench.analysis.selection import describe
from dgbench.errors import RecordError
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.archive.archive_entry import Entry
from dgbench.reports.archive.entry_tables import CODE, evaluated, selection_named
from dgbench.reports.archive.packed_runs import read_lines
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.measuring.certainty import measures_answer
from dgbench.reports.measuring.report import setting_facts
from dgbench.reports.measuring.tables import FORMULAS, measure_table
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.selected import Selected, beside_trained
from dgbench.reports.renderers.markdown import markdown_table
from dgbench.reports.tables import Column, Table, table

_HEAD = """\
# Leaderboard

Every entry that is not frozen, sorted by worst+gap, lower is better; errors in percent, mean ± standard deviation over
seeds. `dgbench results index` writes this file from the packed rows. A table holds one dataset setting, computed by one
version of dgbench from one version of the dataset's files: numbers of two tables are not to be compared. The same
numbers, seed by seed: [all_measures.csv](all_measures.csv)."""
_SHOWN = ("worst_gap", "average", "ideal")
Whose = Mapping[tuple[str, str], Entry]  # (run, code) -> the entry that holds it


def leaderboard_text(entries: Sequence[Entry]) -> str:
    """The whole file.

    Raises:
        RecordError: two entries hold the same run of the same code, or an entry cannot be read.
    """
    parts = [_HEAD, "\n".join(f"- {MEASURES[name]}: {FORMULAS[name]}" for name in _SHOWN)]
    for (selection, content, _), group in sorted(_groups(entries).items()):
        whose = _whose(group)
        collection, selected, evaluation = evaluated([entry.rows for entry in group], selection)
        holders = _holders(evaluation, collection, selected, whose)
        for setting in evaluation.settings:
            own = evaluation.of(setting.title)
            code = "" if "code=" in setting.title else f" (code {', '.join(setting.codes)})"
            parts += [f"## {setting.title}{code}", *measures_answer(own, Statistics())]
            parts.append(
                markdown_table(_table(own, holders), title=f"Measures ({describe(selection_named(selection))})")
            )
            facts = [*setting_facts(own), ("files of the dataset", content or "not recorded")]
            parts.append("\n".join(f"- {name}: {value}" for name, value in dict(facts).items()))
    if not entries:
        parts.append("All entries are frozen.")
    return "\n\n".join(parts) + "\n"


def _groups(entries: Sequence[Entry]) -> dict[tuple[str, str, str], list[Entry]]:
    """Entries by selection, by the hashes of their datasets' files, and by code: each group is evaluated alone."""
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        contents = {line["run"]["identity"].get("content", "") for line in read_lines(entry.rows)}
        groups[entry.selection, ", ".join(sorted(contents)), ", ".join(entry.recorded["code"])].append(entry)
    return groups


def _whose(entries: Sequence[Entry]) -> dict[tuple[str, str], Entry]:
    found: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        for line in read_lines(entry.rows):
            key = line["run"]["identity"]["run"], line["run"]["identity"]["code"]
            if found.setdefault(key, entry) is not entry:
                raise RecordError(
                    f"{entry.name} and {found[key].name} both hold run {key[0]} of code {key[1]}; freeze one of them"
                )
    return found


def _holders(
    evaluation: Evaluation, collection: Collection, selected: Selected, whose: Whose
) -> dict[tuple[str, str], list[Entry]]:
    """(setting, algorithm as the table names it) -> the entries that its runs are of."""
    names = keys(Role.SETTING, CODE)
    titles = {identity_key(setting.identity, names): setting.title for setting in evaluation.settings}
    found: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for number, identity in beside_trained([run.identity for run in collection.runs]):
        if title := titles.get(identity_key(identity, names)):
            entry = whose[identity["run"], identity["code"]]
            found[title, selected.runs[number].label][entry.name] = entry
    return {key: list(entries.values()) for key, entries in found.items()}


def _table(evaluation: Evaluation, holders: Mapping[tuple[str, str], Sequence[Entry]]) -> Table:
    """The measure table of one setting, with who made each line."""
    (setting,) = evaluation.settings
    made = measure_table(evaluation)
    entries = [holders[setting.title, str(algorithm)] for algorithm in made.frame["algorithm"]]
    lines = made.frame.assign(
        who=["; ".join(dict.fromkeys(entry.names for entry in own)) for own in entries],
        entry=[", ".join(entry.name for entry in own) for own in entries],
    )
    known = {column.name: column for column in made.columns}
    columns = [known["algorithm"], *(known[name] for name in _SHOWN), known["seeds"], Column("who"), Column("entry")]
    return table(lines, made.name, made.title, columns, made.notes)
