"""Packed runs: every evaluated step of a run and how it was trained, one line of JSON for each."""

from __future__ import annotations

import json
import lzma
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.configuration import command_line
from dgbench.errors import RecordError
from dgbench.records.files import read_json, write_whole
from dgbench.records.rows import IDENTITY_FILE
from dgbench.records.status import FAILED
from dgbench.reports.reading.archived_runs import archive_lines
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.row_files import BY_SEED, LATER_COLUMNS, ROW_COLUMNS, SEEDED
from tools.archive.entries import WRITE
from tools.archive.evaluated_runs import EVALUATED_KEY, evaluation_commands

#: folders of one machine, in words that were typed
FOLDERS = re.compile(r"(?:~|(?<![\w.:/-]))/(?:[^/\s,=\[\]]+/)*")
#: keys of a start of a run that are packed: no names of hosts, users, processes and folders
SESSION = ("time", "typed", "threads", "code", "python", "packages", "cpu", "cores", "gpus", "cuda",
           "deterministic", "device", "resumed_from", "together")  # fmt: skip

#: ``run`` (with its identity), ``rows``, ``spec``, ``sessions``; an evaluated one has
#: ``evaluated`` in the place of the last two
PackedRun = dict[str, Any]


def packed_runs(collection: Collection) -> list[PackedRun]:
    """Pack the finished and failed runs of a collection, with every evaluated step."""
    packed = []
    for number, rows in collection.rows.groupby("run", sort=True):
        run = collection.runs[int(str(number))]
        if run.unusable and run.status != FAILED:
            continue
        folder = Path(run.folder)
        made_by = _made_by(folder)
        identity = dict(run.identity)
        if identity["n_classes"] is None:
            del identity["n_classes"]
        for key in SEEDED:  # `by seed` is said of a whole report, not of a run
            if identity[key] == BY_SEED and "spec" in made_by:
                identity[key] = made_by["spec"]["dataset"][key]
        about = {**asdict(run), "folder": "/".join(folder.parts[-2:]), "identity": identity}
        del about["lacking"]  # follows from the rows
        packed.append({"run": about, **made_by, "rows": _columns(rows)})
    return packed


def _made_by(folder: Path) -> dict[str, Any]:
    """Read ``spec`` and ``sessions`` of a run folder, or how it was evaluated.

    Return {} if it does not keep them.
    """
    try:
        document = read_json(folder / IDENTITY_FILE)
        if EVALUATED_KEY in document:
            return {EVALUATED_KEY: document[EVALUATED_KEY]}
        sessions = []
        for session in document["sessions"]:
            public = {key: session[key] for key in SESSION if key in session}
            public["typed"] = [FOLDERS.sub(".../", word) for word in session["typed"]]
            sessions.append(public)
        return {"spec": document["spec"], "sessions": sessions}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _columns(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Collect the columns of a run's rows, without later columns that hold nothing."""
    columns = {name: rows[name].tolist() for name in ROW_COLUMNS}
    # single precision is all that a table keeps
    columns["loss"] = [round(value, 6) for value in columns["loss"]]
    for name in LATER_COLUMNS:
        columns[name] = [None if math.isnan(value) else value for value in columns[name]]
        if all(value is None for value in columns[name]):
            del columns[name]
    return columns


def read_packed(file: Path) -> list[PackedRun]:
    """Read packed runs.

    Raises:
        RecordError: the file cannot be read, or a line is no packed run.
    """
    packed: list[PackedRun] = []
    try:
        for text in archive_lines(file):
            line = json.loads(text)
            "".join([line["run"]["identity"]["run"]])  # a TypeError for what is no text
            for session in line.get("sessions", ()):
                "".join(session["typed"])
            packed.append(line)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise RecordError(f"{file} cannot be read ({error}); copy it again") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RecordError(f"{file}:{len(packed) + 1} is no packed run; {WRITE} pack`") from None
    return packed


def write_packed(packed: Iterable[PackedRun], file: Path) -> None:
    """Write packed runs, the same bytes for the same runs."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in packed)
    write_whole(file, lzma.compress(text.encode(), preset=9))


def recorded_of(packed: Sequence[PackedRun]) -> dict[str, Any]:
    """Collect what packed runs say of how they were made, for a reader of ``entry.yaml``."""
    typed = []
    datasets = set()
    failed = []
    for line in packed:
        typed += [command_line(session["typed"]) for session in line.get("sessions", ())]
        identity = line["run"]["identity"]
        if line["run"]["status"] == FAILED:
            label = "{algorithm} seed {seed} fold {fold}".format_map(identity)
            failed.append(f"{label}: {line['run'].get('reason') or 'no reason given'}")
        dataset = identity["dataset"]
        if identity["base"] != dataset:
            dataset += f" ({identity['base']})"
        if identity.get("content"):
            dataset += f", files {identity['content']}"
        datasets.add(dataset)
    return {
        "commands": [*dict.fromkeys(typed), *evaluation_commands(packed)],
        "datasets": sorted(datasets),
        "runs": len(packed),
        "failed": failed,
    }
