"""Packed runs: one JSON object a line in a ``.jsonl.xz``, with all that a run folder says of how it was made.

A line holds ``run`` (folder, status and identity), ``rows`` (by column), ``spec`` (what the hash of the run is taken
over), ``sessions`` (code, packages, machine and command of every start) and ``fingerprint`` (of the dealt images).
Reports read ``run`` and ``rows``. Names of hosts and users, processes and folders of a machine are left out.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import instantiate

from dgbench.configuration import CONF
from dgbench.errors import RecordError
from dgbench.records.beats import PROGRESS_FILE
from dgbench.records.files import read_regular, write_whole
from dgbench.records.row_checks import first_fault, list_of, mapping_of, optional, printable_text, shown, whole
from dgbench.records.rows import IDENTITY_FILE
from dgbench.records.status import DONE, FAILED
from dgbench.reports.reading.archive_places import ENTRY_FILE, ROWS, archives_in
from dgbench.reports.reading.collect import Collection, code_parts, collect
from dgbench.reports.reading.repetitions import BY_SEED, SEEDED
from dgbench.reports.reading.runs import ROW_COLUMNS, Run
from dgbench.reports.settings.apply_selection import Selected, select_runs
from dgbench.reports.settings.evaluation import SETTING_KEYS, Evaluation, Setting, evaluate
from dgbench.reports.settings.labels import words_of
from dgbench.reports.settings.measure_tables import measure_table
from dgbench.reports.settings.selected_runs import of_collection
from dgbench.selection.methods import Selection
from dgbench.statistics import MEASURES

LOSS_DIGITS = 6  # of single precision, which is all that a table keeps
TIME = "%Y-%m-%dT%H:%M:%S%z"  # of a session's start
Line = dict[str, Any]  # one packed run


def _time(value: Any) -> str:
    try:
        datetime.strptime(str(value), TIME)
    except ValueError:
        return f"is {shown(value)}, no time such as 2026-11-23T17:36:54+0000"
    return ""


#: of a session; the rest names a host, a process or folders
_SESSION_KEYS = (
    "time", "typed", "threads", "code", "commit", "dirty", "python", "packages", "cpu", "cores", "gpus", "cuda",
    "deterministic", "device", "resumed_from", "together",
)  # fmt: skip
FOLDERS = re.compile(r"(?:~|(?<![\w.:/-]))/(?:[^/\s,=\[\]]+/)*")  #: of one machine, in words that were typed
#: types of what is read of a session
_SESSION = {
    "time": _time,
    "typed": list_of(printable_text),
    "gpus": list_of(printable_text),
    "packages": mapping_of(optional(printable_text)),
    "threads": whole(0),
    "cores": optional(whole(0)),
    "seconds": whole(0),
    **dict.fromkeys(("python", "cpu", "device", "system", "code"), printable_text),
}
_PLATFORM = re.compile(r"^(\w+)-.*?-(\w+)-with-(.+)$")


def pack_lines(roots: Iterable[str | Path]) -> tuple[list[Line], list[str]]:
    """The finished and the diverged runs under some folders or packed files.

    Args:
        roots: as ``runs=[...]`` of a report takes them.

    Returns:
        one line per run, in the order they were found; and what is left out, in words.

    Raises:
        RecordError: there is no run, or two records of one run disagree.
    """
    roots = list(roots)
    collection = collect(roots)
    if clash := next((p for p in collection.problems if p.kind == "disagreement"), None):
        raise RecordError(f"{clash.where}: {clash.reason}; name folders that hold one of the two")
    left_out = [f"{problem.kind}: {problem.where}: {problem.reason}" for problem in collection.problems]
    packed = _packed_before(roots)
    kept = [
        packed.get((run.identity["run"], run.folder), line)
        for line, run in packed(collection)
        if run.status in (DONE, FAILED)
    ]
    return kept, left_out


def write_lines(lines: Iterable[Mapping[str, Any]], file: Path) -> None:
    """Write packed runs, the same bytes for the same runs."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    write_whole(file, lzma.compress(text.encode(), preset=9))


def read_lines(file: Path) -> list[Line]:
    """The packed runs of a file, as they are.

    Raises:
        RecordError: it cannot be read, or a line is no packed run.
    """
    try:
        lines = [json.loads(text) for text in lzma.decompress(read_regular(file)).splitlines()]
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise RecordError(f"{file} cannot be read ({error}); copy it again") from None
    for number, line in enumerate(lines, start=1):
        if not _is_packed(line):
            raise RecordError(f"{file}:{number} is no packed run; write it with `dgbench results pack`")
    return lines


def _is_packed(line: Any) -> bool:
    """Whether it has the parts of a packed run, of the right types; those of ``run`` and ``rows`` are for reports."""
    if not isinstance(line, dict) or not isinstance(line.get("run"), dict) or not isinstance(line.get("rows"), dict):
        return False
    spec, sessions = line.get("spec", {}), line.get("sessions", [])
    return (
        isinstance(spec, dict)
        and all(isinstance(spec.get(part, {}), dict) for part in ("dataset", "training", "fold", "hparams"))
        and isinstance(sessions, list)
        and all(isinstance(session, dict) and not first_fault(session, _SESSION) for session in sessions)
        and all(key in session for session in sessions for key in _SESSION if key != "seconds")
    )


def write_archive(collection: Collection, file: Path) -> None:
    """Write every run of a collection that has rows."""
    write_lines((line for line, _ in packed(collection)), file)


def packed(collection: Collection) -> Iterable[tuple[Line, Run]]:
    for number, own in collection.rows.groupby("run", sort=True):
        run = collection.runs[number]  # type: ignore[index]  # pandas does not know its keys
        columns = {name: own[name].tolist() for name in ROW_COLUMNS}
        columns["loss"] = [round(value, LOSS_DIGITS) for value in columns["loss"]]
        about, made = asdict(run), _made_by(Path(run.folder))
        about["folder"] = "/".join(Path(run.folder).parts[-2:])
        if made:  # `by seed` is said of a whole report, not of a run
            folded = [key for key in SEEDED if run.identity[key] == BY_SEED]
            about["identity"] = {**run.identity, **{key: made["spec"]["dataset"][key] for key in folded}}
        yield {"run": about, **made, "rows": columns}, run


def _packed_before(roots: Iterable[str | Path]) -> dict[tuple[str, str], Line]:
    """(run, folder) -> its line in the packed files among some places."""
    files = [file for root in map(Path, roots) for file in ([root] if root.is_file() else archives_in(root)[0])]
    lines = [line for file in files for line in read_lines(file)]
    return {(line["run"]["identity"]["run"], line["run"]["folder"]): line for line in lines}


def _made_by(folder: Path) -> Line:
    """``spec``, ``sessions`` and ``fingerprint`` of a run folder; empty where it does not keep them."""
    try:
        document = json.loads(read_regular(folder / IDENTITY_FILE))
        sessions = [_session(session) for session in document["sessions"]]
        made = {"spec": document["spec"], "sessions": sessions, "fingerprint": document["dataset"]["fingerprint"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if (seconds := _seconds(folder, sessions)) is not None:
        sessions[-1]["seconds"] = seconds
    return made


def _session(session: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: session[key] for key in _SESSION_KEYS if key in session}
    kept["typed"] = [FOLDERS.sub(".../", word) for word in session.get("typed", [])]
    kept["system"] = _PLATFORM.sub(r"\1 \2 \3", str(session.get("system", "")))
    return kept


def _seconds(folder: Path, sessions: list[dict[str, Any]]) -> int | None:
    """From the last start of a run to its last sign of life."""
    try:
        ended = float(json.loads(read_regular(folder / PROGRESS_FILE))["time"])
        return max(0, round(ended - started(sessions[-1])))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def started(session: Mapping[str, Any]) -> float:
    """When a session began, in seconds since 1970.

    Raises:
        ValueError: its time is none.
    """
    return datetime.strptime(str(session["time"]), TIME).timestamp()


# An entry of the archive: its folder, and what its ``entry.yaml`` says.

MEASURES_FILE, LEADERBOARD_FILE, ABOUT = "measures.csv", "leaderboard.csv", "README.md"
CHECKSUMMED = (ROWS, MEASURES_FILE, LEADERBOARD_FILE)
FILES = (ENTRY_FILE, ABOUT, *CHECKSUMMED)  #: of every entry; nothing else lies in its folder
BLANK = "???"  #: what a human must still say
LICENSES = ("CC-BY-4.0", "CC0-1.0", "MIT")  #: of the rows: anybody may copy and combine them
SELECTIONS = ("last", "train_val", "loo_val")  #: those that look at no test environment
NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
_PERSON = {"name": True, "affiliation": False, "url": False}  # key -> needed

Check = Callable[[Any], str]


@dataclass(frozen=True)
class Entry:
    """What ``entry.yaml`` says."""

    folder: Path
    title: str
    who: list[dict[str, str]]
    date: date
    license: str  #: of the rows, an SPDX identifier
    selection: str  #: a file of ``conf/selection``: which step and draw its numbers are of
    obtained: dict[str, str]  #: base images or dataset -> how they were obtained
    notes: str
    missing: list[str]  #: studies and folds that the grid of algorithms and seeds lacks
    recorded: dict[str, Any]  #: what the packed runs say of themselves, see ``recorded.py``
    sha256: dict[str, str]  #: of the other files
    replaces: str = ""  #: name of an older entry
    frozen: str = ""  #: why no table of the archive uses it any more
    names: str = field(init=False)  #: of who made it

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", ", ".join(person["name"] for person in self.who))

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def rows(self) -> Path:
        return self.folder / ROWS


def read_entry(folder: Path) -> Entry:
    """The entry in a folder.

    Raises:
        RecordError: :func:`entry_faults` finds something, the first of it.
    """
    content = _content(folder)
    if faults := entry_faults(content):
        raise RecordError(f"{folder / ENTRY_FILE}: {faults[0]}")
    return Entry(folder=folder, **content)


def entry_folders(results: Path) -> list[Path]:
    """Folders of the archive that hold an ``entry.yaml``, by name."""
    return sorted(file.parent for file in results.glob(f"*/{ENTRY_FILE}"))


def read_faults(folder: Path) -> list[str]:
    """What is wrong with the ``entry.yaml`` of a folder, one line each."""
    try:
        return entry_faults(_content(folder))
    except RecordError as error:
        return [str(error)]


def entry_faults(content: Mapping[str, Any]) -> list[str]:
    """What is wrong with what an ``entry.yaml`` says: unknown, missing and ill-typed keys, blanks left."""
    known = _CHECKS.keys()
    faults = [f"key {shown(key)} is unknown; keys are {', '.join(known)}" for key in content if key not in known]
    faults += [f"key {key} is missing" for key in known if key not in content and key not in ("replaces", "frozen")]
    for key, check in _CHECKS.items():
        if key in content:
            blank = key not in ("recorded", "sha256") and BLANK in str(content[key])
            why = f"is not filled in: replace {BLANK}" if blank else check(content[key])
            faults += [f"{key} {why}"] if why else []
    return faults


def _content(folder: Path) -> dict[str, Any]:
    file = folder / ENTRY_FILE
    try:
        content = yaml.safe_load(read_regular(file))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RecordError(f"{file} is no YAML file: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{file} holds no keys; copy {ENTRY_FILE} of another entry and change it")
    return {str(key): value if key == "date" else _plain(value) for key, value in content.items()}


def _plain(value: Any) -> Any:
    """With text for what YAML knows and JSON does not, such as a day where a title should be."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _text(value: Any) -> str:
    """Some text, of any number of lines."""
    if type(value) is not str or not value.strip():
        return "is empty" if type(value) is str else f"is {shown(value)}, not text"
    return next((f"holds a line that {wrong}" for line in value.splitlines() if (wrong := printable_text(line))), "")


def _people(value: Any) -> str:
    if type(value) is not list or not value or not all(type(person) is dict for person in value):
        return "is no list of people, each with a name and perhaps affiliation and url"
    for person in value:
        if odd := [key for key in person if key not in _PERSON]:
            return f"has {shown(odd[0])}, a person has {', '.join(_PERSON)}"
        if wrong := next((f"{key} {why}" for key in person if (why := _text(person[key]))), ""):
            return f"has a person whose {wrong}"
        if "name" not in person:
            return "has a person without a name"
    return ""


def _date(value: Any) -> str:
    return "" if type(value) is date else f"is {shown(str(value))}, not a day such as 2026-11-23"


def _one_of(*choices: str) -> Check:
    return lambda value: "" if value in choices else f"is {shown(value)}, none of {', '.join(choices)}"


def _digests(value: Any) -> str:
    if type(value) is not dict or set(value) != set(CHECKSUMMED):
        return f"does not have one line for each of {', '.join(CHECKSUMMED)}"
    odd = next((k for k, v in value.items() if not re.fullmatch("[0-9a-f]{64}", str(v))), "")
    return f"of {odd} is no sha256 of 64 hexadecimal digits" if odd else ""


def _recorded(value: Any) -> str:
    lists = ("code", "commands", "python", "hardware", "datasets")
    checks: dict[str, Check] = {
        **dict.fromkeys(lists, list_of(printable_text)),
        "packages": mapping_of(list_of(printable_text)),
        "runs": whole(1),
        "studies": whole(1),
        "hours": lambda hours: "" if type(hours) in (int, float) and hours >= 0 else f"is {shown(hours)}, no hours",
    }
    if type(value) is not dict or set(value) != set(checks):
        return f"does not have the keys {', '.join(checks)}; let `dgbench results pack` write it"
    return next((f"{key} {wrong}" for key, check in checks.items() if (wrong := check(value[key]))), "")


_CHECKS: dict[str, Check] = {
    "title": printable_text,
    "who": _people,
    "date": _date,
    "license": _one_of(*LICENSES),
    "selection": _one_of(*SELECTIONS),
    "obtained": lambda value: mapping_of(_text)(value) or ("" if value else "is empty"),
    "notes": _text,
    "missing": list_of(printable_text),
    "replaces": lambda value: "" if NAME.fullmatch(str(value)) else f"is {shown(value)}, no name of an entry",
    "frozen": _text,
    "recorded": _recorded,
    "sha256": _digests,
}


# The numbers of an entry as plain CSV: ``measures.csv``, a line per study, and ``leaderboard.csv``, one per algorithm.

CODE = "code"  #: versions never share a table of the archive
_OF_SETTING = ("setting", *SETTING_KEYS, CODE, "selection")
MEASURE_COLUMNS = (*_OF_SETTING, "algorithm", "seed", *MEASURES, "ideal_env", "steps", "missing")
LEADERBOARD_COLUMNS = (
    *_OF_SETTING, "algorithm", "seeds", *(f"{name}{part}" for name in MEASURES for part in ("", "_std", "_n")),
)  # fmt: skip
#: what names a line of either file
LINE_KEYS = (*_OF_SETTING, "algorithm", "seed")
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
    return collection, selected, evaluate(of_collection(collection, selected), CODE)


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
        for line in measure_table(evaluation.of(title)).to_dict("records"):
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
    texts = {key: "" if identity[key] is None else words_of(identity[key]) for key in (*SETTING_KEYS, CODE)}
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
    return names, {tuple(str(line.get(key, "")) for key in LINE_KEYS): line for line in lines}


def _who(key: tuple[str, ...]) -> str:
    named = dict(zip(LINE_KEYS, key, strict=True))
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


# What packed runs say of how they were made: the ``recorded`` part of an ``entry.yaml``.

#: what nobody can type in where the runs do not say it
DERIVED = ("code", "datasets", "runs", "studies")


def recorded_of(lines: Sequence[Line]) -> dict[str, Any]:
    """The same keys for any runs; a list is empty where the runs are older than what it lists.

    - ``code``, ``python``, ``packages``, ``hardware``, ``commands``: every one that occurs;
    - ``datasets``: name, base images, hash of the files;
    - ``runs``, ``studies``: how many; ``hours``: during which at least one run trained, from the last start of each.
    """
    sessions = [session for line in lines for session in line.get("sessions", [])]
    identities = [line["run"]["identity"] for line in lines]
    names = dict.fromkeys(name for session in sessions for name in session["packages"])
    return {
        "code": _all(code for identity in identities for code in code_parts(identity["code"])),
        "commands": list(dict.fromkeys(shlex.join(session["typed"]) for session in sessions)),
        "python": _all(session["python"] for session in sessions),
        "packages": {
            name: versions
            for name in names
            if (versions := _all(version for s in sessions if (version := s["packages"].get(name))))
        },
        "hardware": _all(map(_machine, sessions)),
        "datasets": _all(map(_dataset, identities)),
        "runs": len(lines),
        "studies": len({_study(identity) for identity in identities}),
        "hours": _hours(lines),
    }


def recorded_faults(found: dict[str, Any], said: dict[str, Any]) -> list[str]:
    """Where an entry says something else than its runs do; what the runs do not say may be typed in."""
    return [
        f"recorded.{key} is {json.dumps(said[key])}, its runs say {json.dumps(value)}"
        for key, value in found.items()
        if (value or key in DERIVED) and said[key] != value
    ]


def _all(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def _machine(session: dict[str, Any]) -> str:
    gpus: list[str] = session["gpus"]
    counted = [f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)]
    threads = f"{session['cores']} cores, threads: {session['threads']}"
    device = [] if session["device"] == "auto" else [f"trainer.device={session['device']}"]
    return ", ".join([session["cpu"], threads, *counted, *device, session["system"]])


def _dataset(identity: dict[str, Any]) -> str:
    content = identity.get("content", "")
    base = "" if identity["base"] == identity["dataset"] else f" ({identity['base']})"
    return f"{identity['dataset']}{base}" + (f", files {content}" if content else "")


def _study(identity: dict[str, Any]) -> str:
    left_out = ("run", "fold", "held_out", "beyond", "n_parameters", "n_trainable")
    return json.dumps({key: value for key, value in identity.items() if key not in left_out}, sort_keys=True)


def _hours(lines: Sequence[Line]) -> float:
    """Time that the last sessions of all runs cover together, each moment counted once."""
    spans = []
    for line in lines:
        last = (line.get("sessions") or [{}])[-1]
        if "seconds" in last:
            start = started(last)
            spans.append((start, start + last["seconds"]))
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return round(total / 3600, 2)


# Makes the folder of an entry from run folders: all files, with blanks for what only a human can say.

_HEAD = f"""\
# Replace every {BLANK}. docs: results/CONTRIBUTING.md; check: dgbench results check --entry NAME
title: {BLANK}  # one line
who:
  - name: {BLANK}
    # affiliation: and url: may follow
date: {{date}}
license: {BLANK}  # of the rows: {", ".join(LICENSES)}
selection: {{selection}}  # which evaluated step counts, and which draw of a search
# replaces: NAME of the entry that this one corrects; that one gets frozen: and why
obtained:  # how you came by the images: a command, a URL
{{obtained}}
notes: {BLANK}  # what a reader must know: deviations from a published protocol, what failed, why something is missing
"""
_ABOUT = """\
# {blank}

{blank}

```bash
python report.py 'runs=[results/{name}]'
```
"""


def pack(name: str, roots: Sequence[str | Path], results: Path, selection: str = "last") -> tuple[Path, list[str]]:
    """Write ``results/NAME`` from runs.

    Args:
        name: of the entry: lowercase letters, digits and ``_``.
        roots: run folders, folders of sweeps, or packed files.
        results: the archive.
        selection: a file of ``conf/selection`` that looks at no test environment.

    Returns:
        the folder, and what was left out, in words.

    Raises:
        RecordError: the name is taken or none, there are no runs, or they cannot share an entry.
        OSError: the folder cannot be written.
    """
    if not NAME.fullmatch(name):
        raise RecordError(f"{name} is no name of an entry; take lowercase letters, digits and _")
    if selection not in SELECTIONS:
        raise RecordError(
            f"selection={selection} is not accepted; choose from {', '.join(SELECTIONS)}, every other one can be "
            "computed from the rows"
        )
    folder = results / name
    if folder.exists():
        raise RecordError(
            f"{folder} is there, and an entry is not changed; take another name, and say replaces: {name}"
        )
    lines, left_out = pack_lines(roots)
    if not lines:
        raise RecordError(f"no finished run in {', '.join(map(str, roots))} ({len(left_out)} left out)")
    folder.mkdir(parents=True)
    try:
        _write(folder, lines, selection)
    except BaseException:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        raise
    return folder, left_out


def _write(folder: Path, lines: Sequence[Line], selection: str) -> None:
    write_lines(lines, folder / ROWS)
    _, _, evaluation = evaluated([folder / ROWS], selection)
    write_whole(folder / MEASURES_FILE, measures_csv(evaluation, selection))
    write_whole(folder / LEADERBOARD_FILE, leaderboard_csv(evaluation, selection))
    write_whole(folder / ABOUT, _ABOUT.format(blank=BLANK, name=folder.name))
    bases = dict.fromkeys(line["run"]["identity"]["base"] for line in lines)
    obtained = "\n".join(f"  {base}: {BLANK}" for base in bases)
    head = _HEAD.format(date=datetime.now(UTC).date(), selection=selection, obtained=obtained)
    written: dict[str, Any] = {
        "missing": missing_of(evaluation),
        "recorded": recorded_of(lines),
        "sha256": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in CHECKSUMMED},
    }
    tail = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=1000)
    write_whole(folder / ENTRY_FILE, f"{head}# written by the tool, compared with the rows\n{tail}")
