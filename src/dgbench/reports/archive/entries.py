"""Entries of the archive: a folder with packed runs, the numbers that follow from them, and who
made them.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import math
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pandas as pd
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dgbench.analysis.measures import Measure
from dgbench.configuration import command_line
from dgbench.errors import RecordError
from dgbench.records.files import read_json, read_regular, read_yaml, write_whole
from dgbench.records.rows import IDENTITY_FILE, Role, keys, printable_text
from dgbench.records.status import FAILED, PROGRESS_FILE
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.labels import words_of
from dgbench.reports.measuring.tables import measure_table
from dgbench.reports.reading.collect import Collection, code_parts, collect
from dgbench.reports.reading.folders import ENTRY_FILE, ROWS
from dgbench.reports.reading.row_files import (
    BY_SEED,
    LATER_COLUMNS,
    ROW_COLUMNS,
    SEEDED,
    archive_lines,
)
from dgbench.reports.reading.selected import Selected, select_runs
from dgbench.reports.render.formats import csv_text
from dgbench.reports.results import selection_named
from dgbench.seeding import ALL

MEASURES_FILE, LEADERBOARD_FILE, ABOUT = "measures.csv", "leaderboard.csv", "README.md"
CHECKSUMMED = (ROWS, MEASURES_FILE, LEADERBOARD_FILE)
FILES = (ENTRY_FILE, ABOUT, *CHECKSUMMED)  #: of every entry; nothing else lies in its folder
LARGEST = 5_000_000  #: bytes of the whole archive
BLANK = "???"  #: what a human must still say
NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
License = Literal["CC-BY-4.0", "CC0-1.0", "MIT"]  #: of the rows: anybody may copy and combine them
SelectionName = Literal["last", "train_val", "loo_val"]  #: those that look at no test environment
#: of one machine, in words that were typed
FOLDERS = re.compile(r"(?:~|(?<![\w.:/-]))/(?:[^/\s,=\[\]]+/)*")

#: what lines of both tables share; code versions never share one
_SHARED = keys(Role.SETTING, "code")
_SETTING = ("setting", *_SHARED, "selection")
_PARTS = {"": "", ".std": "_std", ".n": "_n"}  # in a table of means over seeds -> in the file
_HEAD = f"""\
# Replace every {BLANK}. docs: results/CONTRIBUTING.md; check: dgbench results check --entry NAME
title: {BLANK}  # one line
who:
  - name: {BLANK}
    # affiliation: and url: may follow
date: {{date}}
license: {BLANK}  # of the rows: {", ".join(get_args(License))}
selection: {{selection}}  # which evaluated step counts, and which draw of a search
# replaces: NAME of the entry that this one corrects; that one gets frozen: and why
obtained:  # how you came by the images: a command, a URL
{{obtained}}
notes: {BLANK}  # what a reader must know: deviations from a published protocol, what failed, why something is missing
# written by the tool, compared with the rows
"""
_README = f"# {BLANK}\n\n{BLANK}\n\n```bash\npython report.py 'runs=[results/{{name}}]'\n```\n"


def _filled(value: str) -> str:
    if not value.strip() or BLANK in value:
        raise ValueError(f"is not filled in: replace {BLANK}" if BLANK in value else "is empty")
    if wrong := next(filter(None, map(printable_text, value.splitlines())), ""):
        raise ValueError(wrong)
    return value


Text = Annotated[str, AfterValidator(_filled)]
OneLine = Annotated[Text, Field(pattern=r"^[^\n]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Person(_Strict):
    """Who made an entry."""

    name: OneLine
    affiliation: OneLine = ""
    url: OneLine = ""


class Recorded(_Strict):
    """What packed runs say of how they were made; a list is empty where they are older than what it
    lists.
    """

    code: list[str]
    commands: list[str]
    python: list[str]
    packages: dict[str, list[str]]
    hardware: list[str]
    datasets: list[str]  #: name, base images, hash of the files
    runs: int = Field(ge=1)
    studies: int = Field(ge=1)
    #: during which at least one run trained, from the last start of each
    hours: float = Field(ge=0)


class Entry(_Strict):
    """What ``entry.yaml`` says."""

    folder: Path
    title: OneLine
    who: list[Person] = Field(min_length=1)
    date: date
    license: License
    selection: SelectionName  #: which step and draw its numbers are of
    #: base images or dataset -> how they were obtained
    obtained: dict[str, Text] = Field(min_length=1)
    notes: Text
    missing: list[str]  #: studies and folds that the grid of algorithms and seeds lacks
    recorded: Recorded
    sha256: dict[Literal[CHECKSUMMED], Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]  # type: ignore[valid-type]
    replaces: Annotated[str, Field(pattern=f"^{NAME.pattern}$")] = ""  #: name of an older entry
    frozen: Text = ""  #: why no table of the archive uses it any more

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def rows(self) -> Path:
        return self.folder / ROWS

    @property
    def authors(self) -> str:
        return ", ".join(person.name for person in self.who)


def read_entry(folder: Path) -> Entry:
    """Read the ``entry.yaml`` of a folder.

    Raises:
        RecordError: something is wrong with it; the message names the first fault.
    """
    entry, faults = entry_or_faults(folder)
    if entry is None:
        raise RecordError(f"{folder / ENTRY_FILE}: {faults[0]}")
    return entry


def entry_or_faults(folder: Path) -> tuple[Entry | None, list[str]]:
    """Read the ``entry.yaml`` of a folder, or list what is wrong with it or its files, one line
    each.
    """
    if refused := refused_files(folder):
        return None, refused
    try:
        content = read_yaml(folder / ENTRY_FILE)
        return Entry.model_validate({**content, "folder": folder}), []
    except ValidationError as error:
        faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors()]
        return None, [f"{key}: {message.removeprefix('Value error, ')}" for key, message in faults]
    except (OSError, ValueError, TypeError) as error:
        return None, [f"{ENTRY_FILE} holds no keys: {' '.join(str(error).split())}"]


def refused_files(folder: Path) -> list[str]:
    """List the refused files of an entry, one line each: a link might publish any file of the
    reader's machine.
    """
    faults = (
        [f"{folder.name} is a link; put the folder itself there"] if folder.is_symlink() else []
    )
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file():
            faults.append(
                f"{path.name} is a link, a folder, a pipe or a device; put the file itself there"
            )
        elif path.stat().st_size > LARGEST:
            faults.append(
                f"{path.name} is larger than {LARGEST / 1e6:.0f} MB; pack fewer evaluated steps"
            )
    return faults


def entry_folders(results: Path) -> list[Path]:
    """List the folders of an archive that hold an ``entry.yaml``, by name.

    Raises:
        RecordError: there are none.
    """
    if folders := sorted(file.parent for file in results.glob(f"*/{ENTRY_FILE}")):
        return folders
    raise RecordError(
        f"{results} holds no entries; name an archive, or make an entry with `dgbench results pack`"
    )


def _moment(value: str) -> str:
    datetime.fromisoformat(value)  # a ValueError where it is none
    return value


class Session(BaseModel):
    """One start of a run, without names of hosts, users, processes and folders."""

    time: Annotated[str, AfterValidator(_moment)]
    typed: list[str]
    threads: int
    code: str
    commit: Any = None
    dirty: Any = None
    python: str
    packages: dict[str, str | None]
    cpu: str
    cores: int | None
    gpus: list[str]
    cuda: Any = None
    deterministic: Any = None
    device: str
    resumed_from: Any = None
    together: Any = None
    system: str
    seconds: int | None = None  #: to the last sign of life

    @property
    def started(self) -> float:
        """Seconds since 1970."""
        return datetime.fromisoformat(self.time).timestamp()

    @property
    def machine(self) -> str:
        counted = [f"{self.gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(self.gpus)]
        device = [] if self.device == "auto" else [f"trainer.device={self.device}"]
        return ", ".join(
            [
                self.cpu,
                f"{self.cores} cores, threads: {self.threads}",
                *counted,
                *device,
                self.system,
            ]
        )


class PackedRun(BaseModel):
    """One line of ``rows.jsonl.xz``. Reports read and check ``run`` and ``rows``."""

    run: dict[str, Any]  #: folder, status and identity
    spec: dict[str, Any] | None = None  #: what the hash of the run is taken over
    sessions: list[Session] = []  #: code, packages, machine and command of every start
    fingerprint: str = ""  #: of the images drawn
    rows: dict[str, Any]  #: by column

    @property
    def identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = self.run["identity"]
        return identity


def each_line(file: Path) -> Iterator[PackedRun]:
    """Read packed runs, one in memory at a time.

    Raises:
        RecordError: the file cannot be read, or a line is no packed run.
    """
    count = 0
    try:
        for text in archive_lines(file):
            yield PackedRun.model_validate_json(text)
            count += 1
    except ValidationError:
        raise RecordError(
            f"{file}:{count + 1} is no packed run; write it with `dgbench results pack`"
        ) from None
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise RecordError(f"{file} cannot be read ({error}); copy it again") from None


def write_lines(lines: Iterable[PackedRun], file: Path) -> None:
    """Write packed runs, the same bytes for the same runs."""
    plain = (
        json.dumps(line.model_dump(exclude_unset=True), separators=(",", ":")) for line in lines
    )
    write_whole(file, lzma.compress("".join(f"{line}\n" for line in plain).encode(), preset=9))


def packed(collection: Collection) -> list[PackedRun]:
    """Pack the finished and failed runs of a collection."""
    lines = []
    for number, rows in collection.rows.groupby("run", sort=True):
        run = collection.runs[number]  # type: ignore[index]  # pandas does not know its keys
        if run.unusable and run.status != FAILED:
            continue
        provenance = _made_by(Path(run.folder))
        identity = dict(run.identity)
        if provenance:  # `by seed` is said of a whole report, not of a run
            identity |= {
                key: provenance["spec"]["dataset"][key]
                for key in SEEDED
                if identity[key] == BY_SEED
            }
        folder = "/".join(Path(run.folder).parts[-2:])
        columns = {name: rows[name].tolist() for name in ROW_COLUMNS}
        # single precision is all that a table keeps
        columns["loss"] = [round(value, 6) for value in columns["loss"]]
        for name in LATER_COLUMNS:
            columns[name] = [None if math.isnan(value) else value for value in columns[name]]
            if all(value is None for value in columns[name]):
                del columns[name]
        if identity["n_classes"] is None:
            del identity["n_classes"]
        about = {**asdict(run), "folder": folder, "identity": identity}
        del about["lacking"]  # follows from the rows
        lines.append(PackedRun(run=about, rows=columns, **provenance))
    return lines


def _made_by(folder: Path) -> dict[str, Any]:
    """Read ``spec``, ``sessions`` and ``fingerprint`` of a run folder; empty where it does not keep
    them.
    """
    try:
        document = read_json(folder / IDENTITY_FILE)
        for session in document["sessions"]:
            session["typed"] = [FOLDERS.sub(".../", word) for word in session.get("typed", [])]
            session["system"] = re.sub(
                r"^(\w+)-.*?-(\w+)-with-(.+)$", r"\1 \2 \3", session.get("system", "")
            )
        sessions = [Session.model_validate(session) for session in document["sessions"]]
        provenance = {
            "spec": document["spec"],
            "sessions": sessions,
            "fingerprint": document["dataset"]["fingerprint"],
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    with suppress(OSError, ValueError, KeyError, TypeError, IndexError, OverflowError):
        ended = float(read_json(folder / PROGRESS_FILE)["time"])
        sessions[-1].seconds = max(0, round(ended - sessions[-1].started))
    return provenance


def recorded_of(lines: Sequence[PackedRun]) -> Recorded:
    """Collect what packed runs say of how they were made."""
    sessions = [session for line in lines for session in line.sessions]
    names = dict.fromkeys(name for session in sessions for name in session.packages)
    versions = {
        name: {session.packages.get(name) for session in sessions} - {None} for name in names
    }
    run_keys = ("run", "fold", "held_out", "beyond", "n_parameters", "n_trainable")
    studies = [
        {key: value for key, value in line.identity.items() if key not in run_keys}
        for line in lines
    ]
    return Recorded(
        code=sorted({code for line in lines for code in code_parts(line.identity["code"])}),
        commands=list(dict.fromkeys(command_line(session.typed) for session in sessions)),
        python=sorted({session.python for session in sessions}),
        packages={name: sorted(map(str, used)) for name, used in versions.items() if used},
        hardware=sorted({session.machine for session in sessions}),
        datasets=sorted({_dataset(line.identity) for line in lines}),
        runs=len(lines),
        studies=len({json.dumps(study, sort_keys=True) for study in studies}),
        hours=_hours([line.sessions[-1] for line in lines if line.sessions]),
    )


def _dataset(identity: Mapping[str, Any]) -> str:
    content = identity.get("content", "")
    base = "" if identity["base"] == identity["dataset"] else f" ({identity['base']})"
    return f"{identity['dataset']}{base}" + (f", files {content}" if content else "")


def _hours(sessions: Sequence[Session]) -> float:
    """Count the hours that sessions cover together, each moment once."""
    total, reached = 0.0, float("-inf")
    for start, seconds in sorted((s.started, s.seconds) for s in sessions if s.seconds is not None):
        total += max(0.0, start + seconds - max(start, reached))
        reached = max(reached, start + seconds)
    return round(total / 3600, 2)


def evaluated(packed_runs: Collection, selection: str) -> tuple[Selected, Evaluation]:
    """Evaluate packed runs as reports do, with a table for each code version.

    Args:
        packed_runs: with every record of a run.
        selection: its name.

    Raises:
        RecordError: they cannot share tables, e.g. two records of one run with the same code.
    """
    selected = select_runs(packed_runs, selection_named(selection), "code")
    return selected, evaluate(selected, "code")


def tables_of(evaluation: Evaluation, selection: str) -> dict[str, str]:
    """Make ``measures.csv``, a line per study, and ``leaderboard.csv``, one per algorithm; errors
    are fractions.
    """
    settings = []
    for setting in evaluation.settings:
        identity = setting.identity
        texts = {key: "" if identity[key] is None else words_of(identity[key]) for key in _SHARED}
        variant = " ".join(f"{key}={value}" for key, value in sorted(identity["variant"].items()))
        settings.append(
            {"setting": setting.title, **texts, "variant": variant, "selection": selection}
        )
    about = pd.DataFrame(settings, columns=list(_SETTING), dtype=object)
    if (about["seed_moves"] == ALL).all():  # entries are older than the key
        about = about.drop(columns="seed_moves")
    measures = evaluation.studies.merge(about, on="setting")
    boards = [
        measure_table(evaluation.of(s.title)).frame.assign(setting=s.title)
        for s in evaluation.settings
    ]
    of_runs = [measure.name for measure in evaluation.measures.of_runs]
    names = {
        f"{name}{part}": f"{name}{ending}" for name in of_runs for part, ending in _PARTS.items()
    }
    board = pd.concat(boards) if boards else pd.DataFrame()
    board = board.reindex(columns=["setting", "algorithm", "seeds", *names]).rename(columns=names)
    board = board.astype(
        {"setting": object, "seeds": int, **{f"{name}_n": int for name in of_runs}}
    )
    columns = [*about, "algorithm", "seed", *of_runs, "ideal_env", "steps", "missing"]
    return {
        MEASURES_FILE: _csv(measures[columns]),
        LEADERBOARD_FILE: _csv(about.merge(board, on="setting")),
    }


def columns_of(measures: Sequence[Measure]) -> set[str]:
    """Return the columns of both tables that measures fill."""
    return {f"{measure.name}{ending}" for measure in measures for ending in _PARTS.values()}


def _csv(frame: pd.DataFrame) -> str:
    return csv_text(frame, float_format="%.6f")


def read_table(text: str, name: str | Path) -> pd.DataFrame:
    """Parse the text of a CSV file of that name, every cell as text.

    Raises:
        RecordError: it is no CSV file.
    """
    try:
        return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    except ValueError as error:
        raise RecordError(f"{name}: it is no CSV file ({' '.join(str(error).split())})") from None


def missing_of(evaluation: Evaluation) -> list[str]:
    """List what the grid of algorithms and seeds of each setting lacks: whole studies, and folds
    with the reason.
    """
    lacking = []
    for title, studies in evaluation.studies.groupby("setting", sort=False):
        grid = studies.pivot(index="algorithm", columns="seed", values="missing").fillna("no run")
        for (algorithm, seed), reason in grid.stack().items():  # type: ignore[misc]  # pandas does not know its keys
            lacking += [f"{title}: {algorithm} seed {seed}: {reason}"] if reason else []
    return lacking


def pack(
    name: str, roots: Sequence[str | Path], results: Path, selection: str = "last"
) -> tuple[Path, list[str]]:
    """Write ``results/NAME`` from runs, with blanks for what only a human can say.

    Args:
        name: of the entry: lowercase letters, digits and ``_``.
        roots: run folders and folders of sweeps.
        results: the archive.
        selection: a file of ``conf/selection`` that looks at no test environment.

    Returns:
        the folder; and what was left out, in words.

    Raises:
        RecordError: the name is taken or invalid, there are no finished runs, or two records of one
            run disagree.
        OSError: the folder cannot be written.
    """
    if not NAME.fullmatch(name):
        raise RecordError(f"{name} is no name of an entry; take lowercase letters, digits and _")
    if selection not in get_args(SelectionName):
        raise RecordError(
            f"selection={selection} is not accepted; choose from "
            f"{', '.join(get_args(SelectionName))}, every other one can be computed from the rows"
        )
    folder = results / name
    if folder.exists():
        raise RecordError(
            f"{folder} is there, and an entry is not changed; take another name, and say "
            f"replaces: {name}"
        )
    collection = collect(roots)
    if clash := next(
        (problem for problem in collection.problems if problem.kind == "disagreement"), None
    ):
        raise RecordError(f"{clash.where}: {clash.reason}; name folders that hold one of the two")
    left_out = [
        f"{problem.kind}: {problem.where}: {problem.reason}" for problem in collection.problems
    ]
    lines = packed(collection)
    if not lines:
        raise RecordError(
            f"no finished run in {', '.join(map(str, roots))} ({len(left_out)} left out)"
        )
    folder.mkdir(parents=True)
    try:
        _write(folder, lines, selection)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return folder, left_out


def _write(folder: Path, lines: Sequence[PackedRun], selection: str) -> None:
    write_lines(lines, folder / ROWS)
    _, evaluation = evaluated(collect(folder / ROWS, repeated=True), selection)
    for name, text in tables_of(evaluation, selection).items():
        write_whole(folder / name, text)
    write_whole(folder / ABOUT, _README.format(name=folder.name))
    bases = dict.fromkeys(line.identity["base"] for line in lines)
    obtained = "\n".join(f"  {base}: {BLANK}" for base in bases)
    written = {
        "missing": missing_of(evaluation),
        "recorded": recorded_of(lines).model_dump(),
        "sha256": {
            name: hashlib.sha256(read_regular(folder / name)).hexdigest() for name in CHECKSUMMED
        },
    }
    tail = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=1000)
    head = _HEAD.format(date=datetime.now(UTC).date(), selection=selection, obtained=obtained)
    write_whole(folder / ENTRY_FILE, head + tail)
