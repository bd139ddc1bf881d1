"""Check entries: their files, what they say, each packed run, and what entries say of one another.

Whether the numbers agree is checked in :mod:`tools.archive.numbers`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.errors import DgbenchError, RecordError
from dgbench.records.checks import shown
from dgbench.records.files import read_regular
from dgbench.records.run_identity import DEFAULTS
from dgbench.records.spec import DIRTY, PARTS, RunSpec, canonical, digest
from dgbench.records.status import DONE
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.folders import ENTRY_FILE, ROWS
from dgbench.reports.render.formats import active_markup
from tools.archive.entries import (
    ABOUT,
    BLANK,
    FILES,
    GENERATED,
    LARGEST_ARCHIVE,
    WRITE,
    Entry,
    entry_folders,
    entry_or_faults,
    read_entry,
)
from tools.archive.evaluated_runs import EVALUATED_KEY, evaluation_faults
from tools.archive.listing import INDEX_FILES, stale_files
from tools.archive.numbers import number_faults
from tools.archive.packed_runs import PackedRun, read_packed, recorded_of

BY_HAND = ("CONTRIBUTING.md",)  #: files of the archive that nothing generates
#: keys of a variant that say something of the files, whose hash is in the specification
OF_FILES = ("images", "files", "features")


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
        faults += _page_faults(folder / ABOUT)
        entry, wrong = entry_or_faults(folder)
        faults += wrong
        if entry is None:
            return faults
        faults += _row_faults(folder / ROWS)
        faults += _packed_faults(entry, read_packed(folder / ROWS))
        faults += number_faults(entry)
    except (DgbenchError, OSError) as error:
        faults.append(str(error))
    return faults


def _page_faults(page: Path) -> Iterator[str]:
    if not page.is_file() or page.is_symlink():
        return  # said elsewhere
    text = read_regular(page).decode(errors="replace")
    if BLANK in text:
        yield f"{ABOUT} is not filled in: replace {BLANK}"
    for markup in active_markup(text):
        yield f"{ABOUT} holds {shown(markup)}; write no HTML, and links that are relative or https:"


def _row_faults(rows: Path) -> Iterator[str]:
    """List rows that no table takes, and finished runs whose rows are not whole."""
    collection = collect(rows, repeated=True)
    for problem in collection.problems:
        yield f"{problem.kind} {problem.where}: {problem.reason}"
    for run in collection.runs:
        if run.status == DONE and run.lacking:
            yield f"run {run.identity['run']}: {run.unusable}"


def _packed_faults(entry: Entry, packed: Sequence[PackedRun]) -> Iterator[str]:
    """Find contradictions in each packed run, in all of them, and in what ``entry.yaml`` says."""
    records: Counter[tuple[str, str]] = Counter()
    trained = {run["run"]["identity"]["run"]: run for run in packed if run.get("spec")}
    for run in packed:
        identity = run["run"]["identity"]
        records[identity["run"], identity["code"]] += 1
        label = "run {run} ({algorithm} seed {seed} fold {fold})".format_map(identity)
        if DIRTY in identity["code"]:
            yield f"{label}: its code {identity['code']} is in no commit; use committed code"
        if EVALUATED_KEY in run:
            faults = evaluation_faults(run, trained)
        else:
            faults = _run_faults(run, bool(entry.frozen))
        for fault in faults:
            yield f"{label}: {fault}"
        if identity["base"] not in entry.obtained:
            yield f"obtained does not say how {identity['base']} was obtained"
    for (run_hash, _), times in records.items():
        if times > 1:
            yield f"run {run_hash} is there {times} times"
    for key, value in recorded_of(packed).items():
        written = entry.recorded.get(key)
        if value not in (written, []):  # what runs do not say may be typed in
            yield f"recorded.{key} is {json.dumps(written)}, its runs say {json.dumps(value)}"


def _run_faults(run: PackedRun, frozen: bool) -> Iterator[str]:
    """Check the hash of a run, computed again, and its rows against its specification.

    Frozen entries may lack specifications.
    """
    identity = run["run"]["identity"]
    spec = run.get("spec")
    if not frozen and not (spec and run.get("sessions")):
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
    compared = (written.keys() & expected.keys()) - {"tuning", "objective"}
    for key in sorted(compared):
        if canonical(written[key]) != canonical(expected[key]):
            yield f"its rows and its specification differ in {key}"


def _identity_of(spec: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Build the keys of an identity that a specification states."""
    dataset = spec["dataset"]
    variant = {}
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
