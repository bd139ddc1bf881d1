"""The numbers of an entry as plain CSV: ``measures.csv``, a line per study, and ``leaderboard.csv``, one per algorithm.

Errors are fractions with six decimals. They are those of :func:`dgbench.reports.evaluation.evaluate`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import instantiate

from dgbench.analysis import MEASURES
from dgbench.analysis.selection import Selection
from dgbench.configuration import CONF
from dgbench.errors import RecordError
from dgbench.records.rows import Role, keys
from dgbench.reports.evaluation import Evaluation, Setting, evaluate
from dgbench.reports.labels import words_of
from dgbench.reports.measuring.tables import measure_table
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.selected import Selected, select_runs

CODE = "code"  #: versions never share a table of the archive
_OF_SETTING = ("setting", *keys(Role.SETTING, CODE), "selection")
MEASURE_COLUMNS = (*_OF_SETTING, "algorithm", "seed", *MEASURES, "ideal_env", "steps", "missing")
LEADERBOARD_COLUMNS = (
    *_OF_SETTING, "algorithm", "seeds", *(f"{name}{part}" for name in MEASURES for part in ("", "_std", "_n")),
)  # fmt: skip
#: what names a line of either file
KEYS = (*_OF_SETTING, "algorithm", "seed")
TOLERANCE = 1.5e-6  # that another machine may round the last decimal to


def selection_named(name: str) -> Selection:
    """The selection of a file in ``conf/selection``."""
    made: Selection = instantiate(yaml.safe_load((CONF / "selection" / f"{name}.yaml").read_text(encoding="utf-8")))
    return made


def evaluated(files: Sequence[Path], selection: str) -> tuple[Collection, Selected, Evaluation]:
    """Packed files evaluated as reports do, with a table for each code version; every record of a run is kept.

    Raises:
        RecordError: they cannot share tables, e.g. two records of one run with the same code.
    """
    collection = collect(files, repeated=True)
    selected = select_runs(collection, selection_named(selection), CODE)
    return collection, selected, evaluate(selected, CODE)


def measures_csv(evaluation: Evaluation, selection: str) -> str:
    """``measures.csv``: one line per setting, algorithm and seed."""
    settings = _settings(evaluation, selection)
    lines = [
        {**settings[study["setting"]], **study, **{name: _number(study[name]) for name in MEASURES}}
        for study in evaluation.studies.to_dict("records")
    ]
    return csv_text(MEASURE_COLUMNS, lines)


def leaderboard_csv(evaluation: Evaluation, selection: str) -> str:
    """``leaderboard.csv``: one line per setting and algorithm, in the order of the measure table."""
    lines = []
    for title, setting in _settings(evaluation, selection).items():
        for line in measure_table(evaluation.of(title)).frame.to_dict("records"):
            own = {"algorithm": line["algorithm"], "seeds": int(line["seeds"])}
            for name in MEASURES:
                own |= {name: _number(line[name]), f"{name}_std": _number(line.get(f"{name}.std"))}
                own[f"{name}_n"] = int(line[f"{name}.n"])
            lines.append({**setting, **own})
    return csv_text(LEADERBOARD_COLUMNS, lines)


def csv_text(columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines under a header; what is no column is left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def csv_faults(committed: str, computed: str) -> list[str]:
    """Where a committed table differs from the one that the rows give, cell by cell."""
    try:
        (names, ours), (expected, theirs) = map(_by_key, (committed, computed))
    except RecordError as error:
        return [str(error)]
    if names != expected:
        return [f"its columns are {', '.join(names)}; they should be {', '.join(expected)}"]
    faults = [f"{_who(key)} is there, its rows give no such line" for key in ours.keys() - theirs.keys()]
    faults += [f"{_who(key)} is missing" for key in theirs.keys() - ours.keys()]
    for key in ours.keys() & theirs.keys():
        for name in names:
            if why := _differs(ours[key][name], theirs[key][name]):
                faults.append(f"{_who(key)}: {name} is {ours[key][name] or 'empty'}, its rows give {why}")
    if not faults and committed.count("\n") != computed.count("\n"):
        faults.append("a line is there twice")
    return sorted(faults)


def missing_of(evaluation: Evaluation) -> list[str]:
    """What the grid of algorithms and seeds of each setting lacks: whole studies, and folds with the reason."""
    found = []
    for setting in evaluation.settings:
        studies = evaluation.of(setting.title).studies
        there = {(s["algorithm"], s["seed"]): s["missing"] for s in studies.to_dict("records")}
        for algorithm in sorted({algorithm for algorithm, _ in there}):
            for seed in sorted({seed for _, seed in there}):
                if why := there.get((algorithm, seed), "no run"):
                    found.append(f"{setting.title}: {algorithm} seed {seed}: {why}")
    return found


def _settings(evaluation: Evaluation, selection: str) -> dict[str, dict[str, Any]]:
    """Title -> the columns that say which setting a line is of."""
    return {setting.title: _columns(setting, selection) for setting in evaluation.settings}


def _columns(setting: Setting, selection: str) -> dict[str, Any]:
    identity = setting.identity
    variant = " ".join(f"{key}={value}" for key, value in sorted(identity["variant"].items()))
    texts = {key: "" if identity[key] is None else words_of(identity[key]) for key in keys(Role.SETTING, CODE)}
    return {"setting": setting.title, **texts, "variant": variant, "selection": selection}


def _number(value: Any) -> str:
    return "" if value is None or value != value else f"{value:.6f}"


def csv_lines(text: str) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and the lines of a CSV file.

    Raises:
        RecordError: it is none.
    """
    reader = csv.DictReader(io.StringIO(text), restval="")
    try:
        lines = list(reader)
    except csv.Error as error:
        raise RecordError(f"it is no CSV file ({error})") from None
    return list(reader.fieldnames or []), lines


def _by_key(text: str) -> tuple[list[str], dict[tuple[str, ...], dict[str, str]]]:
    names, lines = csv_lines(text)
    return names, {tuple(str(line.get(key, "")) for key in KEYS): line for line in lines}


def _who(key: tuple[str, ...]) -> str:
    named = dict(zip(KEYS, key, strict=True))
    return f"{named['setting']}: {named['algorithm']}" + (f" seed {named['seed']}" if named["seed"] else "")


def _differs(ours: str, theirs: str) -> str:
    """What the rows give instead, and by how much it differs; empty where it is the same."""
    if ours == theirs:
        return ""
    try:
        off = float(ours) - float(theirs)
    except (TypeError, ValueError):
        return theirs or "nothing"
    return f"{theirs} (off by {off:+.6f})" if not abs(off) <= TOLERANCE else ""
