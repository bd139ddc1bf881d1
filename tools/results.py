"""Entries of ``results/``: pack runs as one, check them by computing everything again, list them.

    python tools/results.py pack NAME RUNS... [--results DIR] [--selection NAME]
    python tools/results.py check [DIR] [--entry NAME]
    python tools/results.py index [DIR]

RUNS are run folders and folders of sweeps, DIR is the archive (``results``). ``--selection``, one
of last, train_val and loo_val, says which evaluated step counts. ``check`` prints a line for each
fault and ends with exit code 1 if there is one. ``index`` writes README.md, LEADERBOARD.md and two
CSV files over all entries, and a croissant.json into each. results/CONTRIBUTING.md says more.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import math
import re
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pandas as pd
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

import dgbench
from dgbench.configuration import command_line
from dgbench.errors import DgbenchError, RecordError, reason_of
from dgbench.phases import tracked
from dgbench.records.files import read_json, read_regular, read_yaml, write_whole
from dgbench.records.rows import DEFAULTS, IDENTITY_FILE, printable_text, shown
from dgbench.records.spec import DIRTY, PARTS, RunSpec, canonical, digest
from dgbench.records.status import DONE, FAILED
from dgbench.reports.labels import words_of
from dgbench.reports.reading.archived_runs import archive_lines
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.folders import ENTRY_FILE, ROWS
from dgbench.reports.reading.row_files import BY_SEED, LATER_COLUMNS, ROW_COLUMNS, SEEDED
from dgbench.reports.render.formats import active_markup, csv_text, inert, markdown_text

if __name__ == "__main__":  # as a script, of which this folder's parent is no package
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.croissant import CROISSANT, Described, croissant_text

MEASURES, LEADERBOARD, ABOUT = "measures.csv", "leaderboard.csv", "README.md"
CHECKSUMMED = (ROWS, MEASURES, LEADERBOARD)
FILES = (ENTRY_FILE, ABOUT, *CHECKSUMMED)  #: of every entry
#: of an entry, written by ``index``; it follows from the others
GENERATED = (CROISSANT,)
INDEX_FILES = ("README.md", "LEADERBOARD.md", "all_measures.csv", "all_leaderboard.csv")
BY_HAND = ("CONTRIBUTING.md",)  #: files of the archive that nothing generates
LARGEST_ARCHIVE = 5_000_000  #: bytes
LAST_DECIMAL = 1.5e-6  #: of a table, which another machine may round differently
BLANK = "???"  #: what a human must still say
NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
License = Literal["CC-BY-4.0", "CC0-1.0", "MIT"]  #: of the rows: anybody may copy and combine them
SelectionName = Literal["last", "train_val", "loo_val"]  #: those that look at no test environment
#: folders of one machine, in words that were typed
FOLDERS = re.compile(r"(?:~|(?<![\w.:/-]))/(?:[^/\s,=\[\]]+/)*")
#: keys of a start of a run that are packed: no names of hosts, users, processes and folders
SESSION = ("time", "typed", "threads", "code", "python", "packages", "cpu", "cores", "gpus", "cuda",
           "deterministic", "device", "resumed_from", "together")  # fmt: skip
#: keys of a variant that say something of the files, whose hash is in the specification
OF_FILES = ("images", "files", "features")
#: columns of tables that are neither keys of a setting nor measures
BESIDE_MEASURES = ("setting", "selection", "algorithm", "seed", "seeds", "ideal_env", "steps",
                   "trained_on_tested", "missing")  # fmt: skip
WRITE = "write it with `python tools/results.py"

Line = dict[
    str, Any
]  #: a packed run: ``run`` (with its identity), ``rows``, ``spec``, ``sessions``

HEAD = f"""\
# Replace every {BLANK}. docs: results/CONTRIBUTING.md; check: python tools/results.py check
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
notes: {BLANK}  # what a reader must know: deviations, what failed, why something is missing
# written by the tool, compared with the rows
"""
ABOUT_TEXT = f"# {BLANK}\n\n{BLANK}\n\n```bash\npython report.py 'runs=[results/{{name}}]'\n```\n"
LEADERBOARD_TEXT = """\
# Leaderboard

Every entry that is not frozen, sorted by worst+gap, lower is better; errors in percent, mean ±
standard deviation over seeds. `python tools/results.py index` writes this file. A table holds one
dataset setting, computed by one version of dgbench from one version of the dataset's files: numbers
of two tables are not to be compared. Which algorithms the seeds tell apart is said by `python
report.py 'runs=[results]' split_by=code`. The same numbers, seed by seed:
[all_measures.csv](all_measures.csv). Verified: when this file was written, the numbers of the entry
were computed again from its rows, and agreed; it does not say that somebody trained them again."""


def _filled(value: str) -> str:
    if BLANK in value or not value.strip():
        raise ValueError(f"is not filled in: replace {BLANK}" if value.strip() else "is empty")
    for line in value.splitlines():
        wrong = printable_text(line)
        if wrong:
            raise ValueError(wrong)
    return value


Text = Annotated[str, AfterValidator(_filled)]
OneLine = Annotated[Text, Field(pattern=r"^[^\n]*$")]


class Person(BaseModel):
    """Who made an entry."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: OneLine
    affiliation: OneLine = ""
    url: OneLine = ""


class Entry(BaseModel):
    """What ``entry.yaml`` says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    folder: Path
    title: OneLine
    who: list[Person] = Field(min_length=1)
    date: date
    license: License
    selection: SelectionName  #: which step and draw its numbers are of
    obtained: dict[str, Text] = Field(min_length=1)  #: base images -> how they were obtained
    notes: Text
    missing: list[str]  #: studies that the grid of algorithms and seeds lacks
    recorded: dict[str, Any]  #: see :func:`recorded_of`; older entries say more
    sha256: dict[str, str]  #: of :data:`CHECKSUMMED`
    replaces: Annotated[str, Field(pattern=f"^{NAME.pattern}$")] = ""  #: name of an older entry
    frozen: Text = ""  #: why no table of the archive uses it any more

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def authors(self) -> str:
        """Names of those who made it."""
        return ", ".join(person.name for person in self.who)


def entry_folders(results: Path) -> list[Path]:
    """List the folders of an archive that hold an ``entry.yaml``, by name.

    Raises:
        RecordError: there are none.
    """
    folders = sorted(file.parent for file in results.glob(f"*/{ENTRY_FILE}"))
    if not folders:
        raise RecordError(f"{results} holds no entries; name an archive, or {WRITE} pack`")
    return folders


def entry_or_faults(folder: Path) -> tuple[Entry | None, list[str]]:
    """Read the ``entry.yaml`` of a folder, or list what is wrong with it or its files."""
    faults = [] if folder.is_dir() and not folder.is_symlink() else [f"{folder} is no folder"]
    for path in folder.iterdir():  # a link might publish any file of the reader's machine
        if path.is_symlink() or not path.is_file():
            faults.append(f"{path.name} is a link or no file; put the file itself there")
        elif path.stat().st_size > LARGEST_ARCHIVE:
            faults.append(f"{path.name} is larger than {LARGEST_ARCHIVE / 1e6:.0f} MB")
    if faults:
        return None, faults
    try:
        return Entry.model_validate({**read_yaml(folder / ENTRY_FILE), "folder": folder}), []
    except ValidationError as error:
        for fault in error.errors():
            key = ".".join(map(str, fault["loc"]))
            faults.append(f"{key}: {fault['msg'].removeprefix('Value error, ')}")
    except (OSError, ValueError, TypeError) as error:
        faults.append(f"{ENTRY_FILE} holds no keys: {reason_of(error)}")
    return None, faults


def read_entry(folder: Path) -> Entry:
    """Read the ``entry.yaml`` of a folder.

    Raises:
        RecordError: something is wrong with it; the message names the first fault.
    """
    entry, faults = entry_or_faults(folder)
    if entry is None:
        raise RecordError(f"{folder.name}: {faults[0]}")
    return entry


def packed(collection: Collection) -> list[Line]:
    """Pack the finished and failed runs of a collection, with every evaluated step."""
    lines = []
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
            if identity[key] == BY_SEED and made_by:
                identity[key] = made_by["spec"]["dataset"][key]
        columns = {name: rows[name].tolist() for name in ROW_COLUMNS}
        # single precision is all that a table keeps
        columns["loss"] = [round(value, 6) for value in columns["loss"]]
        for name in LATER_COLUMNS:
            columns[name] = [None if math.isnan(value) else value for value in columns[name]]
            if all(value is None for value in columns[name]):
                del columns[name]
        about = {**asdict(run), "folder": "/".join(folder.parts[-2:]), "identity": identity}
        del about["lacking"]  # follows from the rows
        lines.append({"run": about, **made_by, "rows": columns})
    return lines


def _made_by(folder: Path) -> dict[str, Any]:
    """Read ``spec`` and ``sessions`` of a run folder; empty if it does not keep them."""
    try:
        document = read_json(folder / IDENTITY_FILE)
        sessions = []
        for session in document["sessions"]:
            kept = {key: session[key] for key in SESSION if key in session}
            sessions.append({**kept, "typed": [FOLDERS.sub(".../", w) for w in kept["typed"]]})
        return {"spec": document["spec"], "sessions": sessions}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def read_lines(file: Path) -> list[Line]:
    """Read packed runs.

    Raises:
        RecordError: the file cannot be read, or a line is no packed run.
    """
    lines: list[Line] = []
    try:
        for text in archive_lines(file):
            line = json.loads(text)
            typed = [word for session in line.get("sessions", ()) for word in session["typed"]]
            "".join([line["run"]["identity"]["run"], *typed])  # a TypeError for what is no text
            lines.append(line)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise RecordError(f"{file} cannot be read ({error}); copy it again") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RecordError(f"{file}:{len(lines) + 1} is no packed run; {WRITE} pack`") from None
    return lines


def write_lines(lines: Iterable[Line], file: Path) -> None:
    """Write packed runs, the same bytes for the same runs."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    write_whole(file, lzma.compress(text.encode(), preset=9))


def recorded_of(lines: Sequence[Line]) -> dict[str, Any]:
    """Collect what packed runs say of how they were made, for a reader of ``entry.yaml``."""
    sessions = [session for line in lines for session in line.get("sessions", ())]
    datasets = set()
    failed = []
    for line in lines:
        identity = line["run"]["identity"]
        if line["run"]["status"] == FAILED:
            label = "{algorithm} seed {seed} fold {fold}".format_map(identity)
            failed.append(f"{label}: {line['run'].get('reason') or 'no reason given'}")
        base = "" if identity["base"] == identity["dataset"] else f" ({identity['base']})"
        content = identity.get("content", "")
        datasets.add(f"{identity['dataset']}{base}" + (f", files {content}" if content else ""))
    return {
        "commands": list(dict.fromkeys(command_line(session["typed"]) for session in sessions)),
        "datasets": sorted(datasets),
        "runs": len(lines),
        "failed": failed,
    }


def studies_of(rows: Path, selection: str) -> pd.DataFrame:
    """Compute the lines of ``measures.csv``, those of ``dgbench.measures``: errors are fractions.

    Raises:
        RecordError: the runs cannot share tables, e.g. two records of one run with the same code.
    """
    frame = dgbench.results(rows, selection, split_by="code")
    studies = dgbench.measures(frame, split_by="code").drop(columns="label")
    studies.insert(studies.columns.get_loc("algorithm"), "selection", selection)
    for name in setting_keys(studies):
        studies[name] = [words_of(_plain(value)) for value in studies[name]]
    return studies


def setting_keys(table: pd.DataFrame) -> list[str]:
    """List the columns of a table that say what its numbers may be compared with."""
    names = list(table.columns[: table.columns.get_loc("algorithm")])
    return [name for name in names if name != "setting"]


def measures_in(table: pd.DataFrame) -> list[str]:
    """List the columns of a table that are measures, or their deviations and numbers of seeds."""
    return [name for name in table if name not in (*setting_keys(table), *BESIDE_MEASURES)]


def _plain(value: Any) -> Any:
    """Undo what a column of a frame made of a list, a whole number or a missing value."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return "" if value is None or value != value else value


def board_of(studies: pd.DataFrame) -> pd.DataFrame:
    """Compute the lines of ``leaderboard.csv``: means over seeds of an algorithm in one setting."""
    groups = studies.groupby([*setting_keys(studies), "algorithm"], sort=False)
    board = groups.size().rename("seeds").to_frame()
    for name in measures_in(studies):
        board[name] = groups[name].mean()
        board[f"{name}_std"] = groups[name].std()
        board[f"{name}_n"] = groups[name].count()
    return board.reset_index()


def table_text(table: pd.DataFrame) -> str:
    """Write a table as it is kept."""
    return csv_text(table, float_format="%.6f")


def read_table(file: Path) -> pd.DataFrame:
    """Read a CSV file, every cell as text.

    Raises:
        RecordError: it is none.
    """
    try:
        return pd.read_csv(io.BytesIO(read_regular(file)), dtype=str, keep_default_na=False)
    except ValueError as error:
        raise RecordError(f"{file.name}: it is no CSV file ({reason_of(error)})") from None


def missing_of(studies: pd.DataFrame) -> list[str]:
    """List what the grid of algorithms and seeds of each setting lacks: studies, and folds."""
    lacking = []
    for _, lines in studies.groupby(setting_keys(studies), sort=False):
        reasons = lines.set_index(["algorithm", "seed"])["missing"]
        for study in pd.MultiIndex.from_product(reasons.index.levels):
            reason = str(reasons.get(study, "fold: no run"))
            if reason.startswith("fold"):  # else a measure that is not defined here
                title = _title(lines.iloc[0])
                lacking.append(f"{title}: {study[0]} seed {study[1]}: {reason}")
    return lacking


def _title(line: Mapping[Any, Any] | pd.Series[Any]) -> str:
    return f"{line['dataset']}, {line['base']}, {line['evaluation']} (code {line['code']})"


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
    folder, selections = results / name, get_args(SelectionName)
    if not NAME.fullmatch(name):
        raise RecordError(f"{name} is no name of an entry; take lowercase letters, digits and _")
    if selection not in selections:
        raise RecordError(f"selection={selection} is not accepted; choose {', '.join(selections)}")
    if folder.exists():
        raise RecordError(
            f"{folder} is there, and an entry is not changed; take another name, and say "
            f"replaces: {name}"
        )
    collection = collect(roots)
    left_out = []
    for problem in collection.problems:
        left_out.append(f"{problem.kind}: {problem.where}: {problem.reason}")
        if problem.kind == "disagreement":
            raise RecordError(f"{left_out[-1]}; name folders that hold one of the two")
    lines = packed(collection)
    if not lines:
        raise RecordError(f"no finished run in {', '.join(map(str, roots))}; {left_out[:1]}")
    folder.mkdir(parents=True)
    try:
        _write_entry(folder, lines, selection)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return folder, left_out


def _write_entry(folder: Path, lines: Sequence[Line], selection: str) -> None:
    write_lines(lines, folder / ROWS)
    studies = studies_of(folder / ROWS, selection)
    write_whole(folder / MEASURES, table_text(studies))
    write_whole(folder / LEADERBOARD, table_text(board_of(studies)))
    write_whole(folder / ABOUT, ABOUT_TEXT.format(name=folder.name))
    bases = dict.fromkeys(line["run"]["identity"]["base"] for line in lines)
    obtained = "\n".join(f"  {base}: {BLANK}" for base in bases)
    written = {
        "missing": missing_of(studies),
        "recorded": recorded_of(lines),
        "sha256": {name: _sha256(folder / name) for name in CHECKSUMMED},
    }
    tail = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=1000)
    head = HEAD.format(date=datetime.now(UTC).date(), selection=selection, obtained=obtained)
    write_whole(folder / ENTRY_FILE, head + tail)


def _sha256(file: Path) -> str:
    return hashlib.sha256(read_regular(file)).hexdigest()


def check_archive(results: Path, only: str = "") -> list[str]:
    """List everything that is wrong with an archive, or with one entry of it.

    Raises:
        RecordError: there is no such folder, or no such entry in it.
    """
    names = [folder.name for folder in entry_folders(results)]
    if only and only not in names:
        raise RecordError(f"{results} has no entry {only}; it has {', '.join(names)}")
    faults = []
    for name in [only] if only else names:
        faults += [f"{name}: {fault}" for fault in check_entry(results / name)]
    if not only:
        faults += [f"{results.name}: {fault}" for fault in _archive_faults(results, names)]
    return faults


def check_entry(folder: Path) -> list[str]:
    """List everything that is wrong with one entry, one line each."""
    faults = [f"{name} is missing" for name in FILES if not (folder / name).exists()]
    for path in folder.iterdir():
        if path.name not in (*FILES, *GENERATED):
            faults.append(f"{path.name} is no file of an entry; remove it")
    try:
        if (folder / ABOUT).is_file() and not (folder / ABOUT).is_symlink():
            faults += _page_faults(read_regular(folder / ABOUT).decode(errors="replace"))
        entry, wrong = entry_or_faults(folder)
        faults += wrong
        if entry is None:
            return faults
        collection = collect(folder / ROWS, repeated=True)
        for problem in collection.problems:  # rows that no table takes
            faults.append(f"{problem.kind} {problem.where}: {problem.reason}")
        for run in collection.runs:
            if run.status == DONE and run.lacking:
                faults.append(f"run {run.identity['run']}: {run.unusable}")
        faults += _packed_faults(entry, read_lines(folder / ROWS))
        faults += number_faults(folder, _digest(entry))
    except (DgbenchError, OSError) as error:
        faults.append(str(error))
    return faults


def _page_faults(text: str) -> Iterator[str]:
    if BLANK in text:
        yield f"{ABOUT} is not filled in: replace {BLANK}"
    for markup in active_markup(text):
        yield f"{ABOUT} holds {shown(markup)}; write no HTML, and links that are relative or https:"


def _packed_faults(entry: Entry, lines: Sequence[Line]) -> Iterator[str]:
    """Find contradictions in each packed run, in all of them, and in what ``entry.yaml`` says."""
    records: Counter[tuple[str, str]] = Counter()
    for line in lines:
        identity = line["run"]["identity"]
        records[identity["run"], identity["code"]] += 1
        label = "run {run} ({algorithm} seed {seed} fold {fold})".format_map(identity)
        yield from (f"{label}: {fault}" for fault in _run_faults(line, bool(entry.frozen)))
        if identity["base"] not in entry.obtained:
            yield f"obtained does not say how {identity['base']} was obtained"
    yield from (f"run {run} is there {n} times" for (run, _), n in records.items() if n > 1)
    for key, value in recorded_of(lines).items():
        written = entry.recorded.get(key)
        if value not in (written, []):  # what runs do not say may be typed in
            yield f"recorded.{key} is {json.dumps(written)}, its runs say {json.dumps(value)}"


def _run_faults(line: Line, frozen: bool) -> Iterator[str]:
    """Check the hash of a run, computed again, and its rows against its specification.

    Frozen entries may lack specifications.
    """
    identity, spec = line["run"]["identity"], line.get("spec")
    if DIRTY in identity["code"]:
        yield f"its code {identity['code']} is in no commit; train from committed code"
    if not frozen and not (spec and line.get("sessions")):
        yield "it lacks a specification or sessions, so nothing says how it was trained"
    if not spec:
        return
    try:
        computed = _hash_of(spec)
        expected = _identity_of(spec, identity)
    except (TypeError, KeyError, AttributeError) as error:
        yield f"its specification is none of this code ({type(error).__name__}: {error})"
        return
    if computed != identity["run"]:
        yield f"its specification hashes to {computed}, its hash is {identity['run']}"
    hparams = {"steps": spec["training"]["steps"], **identity["hparams"]}
    written = {**DEFAULTS, **identity, "hparams": hparams}
    for key in sorted((written.keys() & expected.keys()) - {"tuning", "objective"}):
        if canonical(written[key]) != canonical(expected[key]):
            yield f"its rows and its specification differ in {key}"


def _identity_of(spec: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Build the keys of an identity that a specification states."""
    dataset, variant = spec["dataset"], {}
    for key, value in identity["variant"].items():
        variant[key] = value if key in OF_FILES else dataset["variant"].get(key)
    return {
        **spec,
        **dataset,
        **spec["fold"],
        "averaging": spec["averaging"]["name"],
        "fold": spec["fold"]["name"],
        "head": (spec.get("head") or {}).get("name", "random"),
        "hparams": {**identity["hparams"], **spec["hparams"], "steps": spec["training"]["steps"]},
        "variant": variant,
    }


def _hash_of(spec: Mapping[str, Any]) -> str:
    """Compute the hash of a specification, by the rule of the version that wrote it."""
    if "user_code" in spec:
        return RunSpec(**spec).digest
    # older specifications left `sharpness` and `head` out of the hash if they were empty
    values = {key: part for key, part in spec.items() if part or key not in ("sharpness", "head")}
    return digest(values | {part: digest(values[part]) for part in PARTS if part in values})


@cache
def number_faults(folder: Path, digest_of_files: str) -> tuple[str, ...]:
    """List where an entry differs from what its rows give; computed once for the same bytes.

    Args:
        folder: of the entry.
        digest_of_files: of :func:`_digest`.
    """
    del digest_of_files  # it is part of the key
    return tuple(_number_faults(read_entry(folder)))


def is_verified(entry: Entry) -> bool:
    """Compute the numbers of an entry again; return whether they agree."""
    try:
        return not number_faults(entry.folder, _digest(entry))
    except (DgbenchError, OSError):
        return False


def _number_faults(entry: Entry) -> Iterator[str]:
    """Check checksums, committed tables and the list of missing results against the rows."""
    for name in CHECKSUMMED:
        if entry.sha256.get(name) != _sha256(entry.folder / name):
            yield f"{name} has not the sha256 that entry.yaml says"
    studies = studies_of(entry.folder / ROWS, entry.selection)
    for name, computed in ((MEASURES, studies), (LEADERBOARD, board_of(studies))):
        faults = table_faults(read_table(entry.folder / name), computed)
        yield from (f"{name}: {fault}" for fault in faults)
    listed, lacking = (
        Counter(re.sub(r"^.*?: (.+ seed \d+): .*", r"\1", line) for line in lines)
        for lines in (entry.missing, missing_of(studies))
    )
    yield from (f"missing lists what is there: {study}" for study in listed - lacking)
    yield from (f"missing lacks {study}" for study in lacking - listed)


def table_faults(committed: pd.DataFrame, computed: pd.DataFrame) -> Iterator[str]:
    """List where a committed table differs from the one that the rows give, cell by cell.

    Columns of one of the two do not count: an entry may be older than a measure, or have one that
    this installation lacks.
    """
    theirs = pd.read_csv(io.StringIO(table_text(computed)), dtype=str, keep_default_na=False)
    keys = [*setting_keys(theirs), "algorithm", *({"seed"} & {*theirs})]
    shared = [name for name in keys if name in committed]
    measures = [name for name in measures_in(theirs) if name in committed]
    if not {"selection", "algorithm", "code"} <= {*shared} or not measures:
        yield f"it has the columns {', '.join(committed)}: neither keys nor measures of its rows"
        return
    if len(committed) != len(theirs):
        yield f"it has {len(committed)} lines, its rows give {len(theirs)}"
        return
    selections = {*committed["selection"]} ^ {*theirs["selection"]}
    if selections:  # the numbers are of other steps
        yield f"of selection {' and '.join(sorted(selections))}: pack again, or correct entry.yaml"
        return
    lines = {tuple(line[name] for name in shared): line for line in theirs.to_dict("records")}
    for number, line in enumerate(committed.to_dict("records"), start=2):
        expected = lines.pop(tuple(line[name] for name in shared), None)
        if expected is None:
            yield f"line {number}: its rows give no {line['algorithm']} of this setting and seed"
            continue
        for name in measures:
            if line[name] != expected[name] and not _close(line[name], expected[name]):
                cells = f"{line[name] or 'empty'}, its rows give {expected[name] or 'nothing'}"
                yield f"line {number}: {name} is {cells}"


def _close(cell: str, other: str) -> bool:
    """Return whether two cells are numbers that differ by rounding alone."""
    try:
        return abs(float(cell) - float(other)) <= LAST_DECIMAL
    except ValueError:
        return False


def _archive_faults(results: Path, names: Sequence[str]) -> Iterator[str]:
    """Check what entries say of one another, the files beside them, and what is generated."""
    for path in sorted(results.iterdir()):
        if path.name not in (*names, *INDEX_FILES, *BY_HAND) or path.is_symlink():
            yield f"{path.name} is no entry (no {ENTRY_FILE}) and no file of the archive; remove it"
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    if size > LARGEST_ARCHIVE:
        yield f"it is {size / 1e6:.1f} MB, more than {LARGEST_ARCHIVE / 1e6:.0f} MB"
    try:
        entries = {name: read_entry(results / name) for name in names}
        for name, entry in entries.items():
            older = entries.get(entry.replaces)
            if entry.replaces and not (older and older.frozen):
                yield f"{name} replaces {entry.replaces}, which is no entry that says frozen:"
        for path in stale_files(results):
            yield f"{path.relative_to(results)} is stale; {WRITE} index`"
    except (DgbenchError, OSError) as error:
        yield str(error)


def stale_files(results: Path) -> dict[Path, str]:
    """Map each generated file that is missing or outdated to the content that it should have.

    Raises:
        RecordError: an entry cannot be read, or two that are not frozen hold the same run.
    """
    stale = {}
    for name, text in index_files(results).items():
        path = results / name
        if not path.is_file() or read_regular(path) != text.encode():
            stale[path] = text
    return stale


def write_index(results: Path) -> list[Path]:
    """Write what :func:`stale_files` finds; return the files."""
    stale = stale_files(results)
    for path, text in stale.items():
        write_whole(path, text)
    return list(stale)


def index_files(results: Path) -> dict[str, str]:
    """Make the generated files, name -> content; errors as :func:`stale_files`."""
    entries = [_readable(folder) for folder in entry_folders(results)]
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    texts = (
        template.replace("{entries}", "\n".join(_overview(entries))),
        leaderboard_text([entry for entry in entries if not entry.frozen]),
        _joined(entries, MEASURES),
        _joined(entries, LEADERBOARD),
    )
    described = {}
    for entry in entries:
        described[f"{entry.name}/{CROISSANT}"] = croissant_text(_described(entry))
    return dict(zip(INDEX_FILES, texts, strict=True)) | described


def _described(entry: Entry) -> Described:
    """Collect what the Croissant file of an entry says."""
    columns = {}
    for name in (MEASURES, LEADERBOARD):
        table = read_table(entry.folder / name)
        columns[name] = {str(column): _is_numeric(table[column]) for column in table}
    return Described(
        entry.name,
        entry.title,
        " ".join(entry.notes.split()),
        [person.model_dump() for person in entry.who],
        str(entry.date),
        entry.license,
        list(entry.obtained),
        {name: _sha256(entry.folder / name) for name in CHECKSUMMED},
        columns,
    )


def _is_numeric(cells: pd.Series[Any]) -> bool:
    """Return whether every filled cell of a column is a number, and there is one."""
    filled = cells[cells != ""]
    return bool(len(filled)) and bool(pd.to_numeric(filled, errors="coerce").notna().all())


def _readable(folder: Path) -> Entry:
    """Read an entry, or name it and its first fault in one line.

    Raises:
        RecordError: something is wrong with it.
    """
    try:
        return read_entry(folder)
    except RecordError as error:
        first, *others = str(error).splitlines()
        more = f", and {len(others)} more faults" if others else ""
        raise RecordError(
            f"{folder.name}: {first}{more}; `python tools/results.py check` lists them"
        ) from None


def _overview(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| entry | what | who | date | runs | license | status | verified | digest |"
    yield "|---|---|---|---|---:|---|---|---|---|"
    for entry in entries:
        status = "frozen" if entry.frozen else "current"
        runs, link = str(entry.recorded["runs"]), f"[{entry.name}]({entry.name}/README.md)"
        verified = _said(is_verified(entry))
        cells = (entry.title, entry.authors, str(entry.date), runs, entry.license, status, verified)
        yield "| " + " | ".join([link, *map(markdown_text, cells), _digest(entry)]) + " |"
    newer = {entry.replaces: f" Replaced by {entry.name}." for entry in entries if entry.replaces}
    frozen = [entry for entry in entries if entry.frozen]
    if frozen:
        yield "\nFrozen, no longer in the leaderboard:\n"
    for entry in frozen:
        reason = " ".join(entry.frozen.split()).rstrip(".")
        yield f"- {entry.name}: {inert(reason)}.{newer.get(entry.name, '')}"


def _said(verified: bool) -> str:
    return "yes" if verified else "no"


def _digest(entry: Entry) -> str:
    """Compute hexadecimal digits that change with any byte of any file of an entry."""
    state = hashlib.sha256()
    for name in FILES:
        content = read_regular(entry.folder / name)
        state.update(f"{name} {len(content)}\n".encode() + content)
    return f"`{state.hexdigest()[:16]}`"


def _joined(entries: Sequence[Entry], name: str) -> str:
    """Join the committed tables of all entries, with whose each one is and whether it is frozen."""
    tables = []
    for entry in entries:
        lines = read_table(entry.folder / name)
        frozen = str(bool(entry.frozen)).lower()
        about = {"entry": entry.name, "who": entry.authors, "frozen": frozen}
        tables.append(pd.DataFrame(about, index=lines.index).join(lines))
    return csv_text(pd.concat(tables, ignore_index=True))


def leaderboard_text(entries: Sequence[Entry]) -> str:
    """Write ``LEADERBOARD.md`` from the committed tables; errors as :func:`stale_files`."""
    holders: dict[tuple[str, str], str] = {}
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, str]]] = defaultdict(list)
    for entry in tracked(entries, "reading entries", len(entries), "entries"):
        for packed_run in read_lines(entry.folder / ROWS):
            run, code = (packed_run["run"]["identity"][key] for key in ("run", "code"))
            holder = holders.setdefault((run, code), entry.name)
            if holder != entry.name:
                raise RecordError(
                    f"{entry.name} and {holder} both hold run {run} of code {code}; freeze one"
                )
        table = read_table(entry.folder / LEADERBOARD)
        verified = _said(is_verified(entry))
        files = ("files of the dataset", "; ".join(entry.recorded["datasets"]))
        for line in table.to_dict("records"):
            setting = [(name, line[name]) for name in setting_keys(table) if line[name]]
            about = {"who": entry.authors, "entry": entry.name, "verified": verified}
            groups[*setting, files].append({**line, **about})
    parts = [LEADERBOARD_TEXT if entries else f"{LEADERBOARD_TEXT}\n\nAll entries are frozen."]
    for setting, lines in groups.items():
        facts = dict(setting)
        parts += [f"## {inert(_title(facts))}", "\n".join(_board_lines(lines))]
        parts.append(inert("; ".join(f"{name}: {value}" for name, value in facts.items())))
    return "\n\n".join(parts) + "\n"


def _board_lines(lines: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Write a table in Markdown: means over seeds in percent, with who made each line."""
    measures = [
        name for name in ("worst_gap", "average", "ideal") if any(line.get(name) for line in lines)
    ]
    titles = [f"{name.replace('_', '+')} (%)" for name in measures]
    yield "| " + " | ".join(["algorithm", *titles, "seeds", "who", "entry", "verified"]) + " |"
    yield "| --- |" + " ---: |" * (len(titles) + 1) + " --- | --- | --- |"
    first = measures[0] if measures else "seeds"
    for line in sorted(lines, key=lambda line: float(line[first] or math.inf)):
        levels = [_level(line[name], line[f"{name}_std"]) for name in measures]
        about = [line[name] for name in ("seeds", "who", "entry", "verified")]
        cells = [line["algorithm"], *levels, *about]
        yield "| " + " | ".join(map(markdown_text, cells)) + " |"


def _level(mean: str, deviation: str) -> str:
    """Write ``44.6 ± 0.2``, in percent."""
    if not mean:
        return "-"
    level = f"{100 * float(mean):.1f}"
    return f"{level} ± {100 * float(deviation):.1f}" if deviation else level


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python tools/results.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, dest="command")
    packing = commands.add_parser("pack", help="make an entry of runs", allow_abbrev=False)
    packing.add_argument("name", metavar="NAME")
    packing.add_argument("runs", metavar="RUNS", nargs="+")
    packing.add_argument("--results", type=Path, default=Path("results"))
    packing.add_argument("--selection", default="last")
    checking = commands.add_parser("check", help="list what is wrong", allow_abbrev=False)
    checking.add_argument("--entry", default="")
    indexing = commands.add_parser("index", help="write what is generated", allow_abbrev=False)
    for command in (checking, indexing):
        command.add_argument("results", type=Path, nargs="?", default=Path("results"))
    options = parser.parse_args(words)
    try:
        return {"pack": _pack, "check": _check, "index": _index}[options.command](options)
    except (DgbenchError, OSError) as error:
        print(f"{parser.prog}: {reason_of(error)}", file=sys.stderr)
        return 1


def _pack(options: argparse.Namespace) -> int:
    folder, left_out = pack(options.name, options.runs, options.results, options.selection)
    print("\n".join(left_out), file=sys.stderr, end="\n" * bool(left_out))
    print(f"{folder}: now replace every {BLANK} in its {ENTRY_FILE} and {ABOUT}")
    return 0


def _check(options: argparse.Namespace) -> int:
    faults = check_archive(options.results, options.entry)
    print("\n".join(faults) or f"{options.entry or options.results}: nothing wrong")
    return int(bool(faults))


def _index(options: argparse.Namespace) -> int:
    changed = write_index(options.results)
    print("\n".join(f"written: {path}" for path in changed) or "nothing to write")
    return 0


if __name__ == "__main__":
    sys.exit(main())
