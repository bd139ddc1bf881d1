"""Checks every entry of the archive, and computes everything that it says again from its rows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import DgbenchError, RecordError
from dgbench.protocols.folds import FULL
from dgbench.records.code import DIRTY
from dgbench.records.files import read_regular
from dgbench.records.rows import DEFAULTS
from dgbench.records.spec import RunSpec, canonical
from dgbench.records.status import DONE
from dgbench.reports.archive.entries import (
    ABOUT,
    BLANK,
    FILES,
    FOLDERS,
    LEADERBOARD_FILE,
    MEASURES_FILE,
    NAME,
    Entry,
    Line,
    csv_faults,
    entry_folders,
    evaluated,
    leaderboard_csv,
    measures_csv,
    missing_of,
    read_entry,
    read_faults,
    read_lines,
    recorded_faults,
    recorded_of,
)
from dgbench.reports.archive.index import INDEX_FILES, index_files
from dgbench.reports.reading.archive_reader import read_archive
from dgbench.reports.reading.collect import code_parts
from dgbench.reports.reading.runs import Names

LARGEST = 3_000_000  #: bytes of the whole archive
BY_HAND = ("CONTRIBUTING.md",)  #: files of the archive that nothing generates


@dataclass(frozen=True)
class Finding:
    """Something that is wrong."""

    entry: str
    what: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.what}"


def check_archive(results: Path, only: str = "") -> list[Finding]:
    """Everything that is wrong with an archive, or with one entry of it.

    Raises:
        RecordError: there is no such folder, or no such entry in it.
    """
    folders = entry_folders(results)
    if not folders:
        raise RecordError(f"{results} holds no entries; name the folder of an archive, such as results")
    if only:
        chosen = [folder for folder in folders if folder.name == only]
        if not chosen:
            raise RecordError(f"{results} has no entry {only}; it has {', '.join(each.name for each in folders)}")
        return [Finding(only, why) for why in check_entry(chosen[0])]
    found = [Finding(folder.name, why) for folder in folders for why in check_entry(folder)]
    return found + [Finding(results.name, why) for why in _between(results, folders)]


def check_entry(folder: Path) -> list[str]:
    """Everything that is wrong with one entry, one line each."""
    faults = [*_of_files(folder), *read_faults(folder)]
    if not all((folder / name).is_file() for name in FILES):
        return faults
    try:
        entry = read_entry(folder)
        lines = read_lines(entry.rows)
        problems = read_archive(entry.rows, Names())[1]
    except (RecordError, OSError) as error:
        return faults or [str(error)]
    faults += _of_checksums(entry)
    if problems:  # rows that no table takes
        return faults + [f"{problem.kind} {problem.where}: {problem.reason}" for problem in problems]
    faults += [f"{name_of(line)}: {why}" for line in lines for why in run_faults(line, bool(entry.frozen))]
    for base in {line["run"]["identity"]["base"] for line in lines} - entry.obtained.keys():
        faults.append(f"obtained does not say how {base} was obtained")
    faults += [*faults_across(lines), *recorded_faults(recorded_of(lines), entry.recorded)]
    return faults + _of_numbers(entry)


def _of_files(folder: Path) -> Iterator[str]:
    if not NAME.fullmatch(folder.name):
        yield f"its name is {folder.name}; take lowercase letters, digits and _"
    present = {path.name for path in folder.iterdir()}
    for name in FILES:
        if name not in present:
            yield f"{name} is missing"
    for name in sorted(present - set(FILES)):
        yield f"{name} is no file of an entry; remove it"
    if ABOUT in present and BLANK in (text := read_regular(folder / ABOUT).decode(errors="replace")):
        yield f"{ABOUT} is not filled in: replace {BLANK} ({text.count(BLANK)} times)"


def _of_checksums(entry: Entry) -> Iterator[str]:
    for name, expected in entry.sha256.items():
        made = hashlib.sha256(read_regular(entry.folder / name)).hexdigest()
        if made != expected:
            yield f"{name} has sha256 {made[:12]}..., entry.yaml says {expected[:12]}..."


def _of_numbers(entry: Entry) -> list[str]:
    """Committed tables, and what is missing, against what the rows give."""
    try:
        _, _, evaluation = evaluated([entry.rows], entry.selection)
        made = {
            MEASURES_FILE: measures_csv(evaluation, entry.selection),
            LEADERBOARD_FILE: leaderboard_csv(evaluation, entry.selection),
        }
    except DgbenchError as error:
        return [str(error)]
    faults = []
    for name, computed in made.items():
        committed = read_regular(entry.folder / name).decode(errors="replace")
        faults += [f"{name}: {why}" for why in csv_faults(committed, computed)]
    lacking = missing_of(evaluation)
    faults += [f"missing does not list: {each}" for each in lacking if each not in entry.missing]
    faults += [f"missing lists what is there: {each}" for each in entry.missing if each not in lacking]
    faults += [f"{p.kind}: {p.where}: {p.reason}" for p in evaluation.problems if p.kind == "environments differ"]
    return faults


def _between(results: Path, folders: Sequence[Path]) -> Iterator[str]:
    """What entries say of one another, and what is generated from all of them."""
    try:
        entries = [read_entry(folder) for folder in folders]
    except RecordError:
        yield "entries that cannot be read: the generated files are not checked"
        return
    by_name = {entry.name: entry for entry in entries}
    for entry in entries:
        if entry.replaces and entry.replaces not in by_name:
            yield f"{entry.name} replaces {entry.replaces}, which is no entry"
        elif entry.replaces and not by_name[entry.replaces].frozen:
            yield f"{entry.name} replaces {entry.replaces}, which does not say frozen: and why"
    known = {*by_name, *INDEX_FILES, *BY_HAND}
    for path in sorted(results.iterdir()):
        if path.name not in known:
            yield f"{path.name} is no entry (no entry.yaml in it) and no file of the archive; remove it"
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    if size > LARGEST:
        yield f"it is {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f} MB; pack fewer evaluated steps"
    try:
        made = index_files(results)
    except (DgbenchError, OSError) as error:
        yield str(error)
        return
    for name, text in made.items():
        file = results / name
        if not file.is_file() or read_regular(file) != text.encode():
            yield f"{name} is stale; write it with `dgbench results index`"


# What the packed runs of one entry must agree in.

#: of an identity, what runs share that see the same images
_IMAGES = ("dataset", "variant", "base", "data_seed", "split_seed", "given", "content")
#: and what runs share that are of one shape
_SHAPE = (*_IMAGES, "algorithm", "hparams", "averaging", "backbone", "init", "head", "tuning", "protocol", "fold")
_SUBSETS = ("train", "val", "test")

Said = tuple[str, str, Any, Line]  # what is compared, its name, the value, whose it is


def faults_across(lines: Sequence[Line]) -> Iterator[str]:
    """Runs that are there twice, and those that differ from most in what should be equal."""
    identities = [line["run"]["identity"] for line in lines]
    for (run, _), count in Counter((identity["run"], identity["code"]) for identity in identities).items():
        if count > 1:
            yield f"run {run} is there {count} times"
    yield from _different(_images_seen(lines), "images of {what}")
    yield from _different(_last_environments(lines), "{what} environments at the last step")
    yield from _different(_facts(lines), "{what}")
    contents: dict[str, set[str]] = defaultdict(set)
    for identity in identities:
        contents[f"{identity['dataset']} ({identity['base']})"].add(identity.get("content", ""))
    for dataset, found in contents.items():
        if len(found) > 1:
            versions = ", ".join(sorted(found))
            yield f"{dataset} is of {len(found)} versions of its files ({versions}); make them two entries"


def name_of(line: Line) -> str:
    """``run HASH (erm seed 0 fold 1)``."""
    identity = line["run"]["identity"]
    return f"run {identity['run']} ({identity['algorithm']} seed {identity['seed']} fold {identity['fold']})"


def _images_seen(lines: Iterable[Line]) -> Iterator[Said]:
    for line in lines:
        rows, identity = line["rows"], line["run"]["identity"]
        own = identity["fold"] if line.get("spec", {}).get("fold", {}).get("membership") else ""
        images = key_of(identity, _IMAGES) + own
        for env, subset, seen in dict.fromkeys(zip(rows["env"], rows["subset"], rows["seen"], strict=True)):
            yield f"{images} {env} {subset}", f"{env} {subset}", seen, line


def _last_environments(lines: Iterable[Line]) -> Iterator[Said]:
    for line in lines:
        rows, identity = line["rows"], line["run"]["identity"]
        fold = key_of(identity, (*_IMAGES, "protocol", "fold"))
        last = [at for at, step in enumerate(rows["step"]) if step == line["run"]["last_step"]]
        for subset in _SUBSETS:
            environments = sorted(rows["env"][at] for at in last if rows["subset"][at] == subset)
            yield f"{fold} {subset}", subset, environments, line


def _facts(lines: Iterable[Line]) -> Iterator[Said]:
    for line in lines:
        identity = line["run"]["identity"]
        yield key_of(identity, _IMAGES), "beyond", identity.get("beyond", True), line
        for key in ("grouped", "n_parameters", "n_trainable"):
            yield f"{key_of(identity, _SHAPE)} {key}", key, identity.get(key), line


def _different(said: Iterable[Said], text: str) -> Iterator[str]:
    """Whoever says something else than most do of the same thing."""
    groups: dict[str, list[tuple[str, Any, Line]]] = defaultdict(list)
    for key, what, value, line in said:
        groups[key].append((what, value, line))
    for group in groups.values():
        counted = Counter(json.dumps(value) for _, value, _ in group)
        usual = json.loads(counted.most_common(1)[0][0])
        for what, mine, line in group if len(counted) > 1 else ():
            if mine != usual:
                yield f"{name_of(line)}: {text.format(what=what)}: {_apart(mine, usual)}"


def _apart(mine: Any, usual: Any) -> str:
    if not isinstance(mine, list):
        return f"{json.dumps(mine)}, most runs like it have {json.dumps(usual)}"
    lacks, more = sorted(set(usual) - set(mine)), sorted(set(mine) - set(usual))
    return (
        f"it lacks {', '.join(lacks) or 'none'} and has {', '.join(more) or 'none'} besides those of most runs like it"
    )


def key_of(identity: dict[str, Any], keys: Sequence[str]) -> str:
    return json.dumps([identity.get(key) for key in keys], sort_keys=True)


# What a packed run must agree with in itself: its hash, its identity and its rows.

#: key of an identity -> the same in a specification
_SAME: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{
        key: lambda spec, key=key: spec["dataset"][key]  # type: ignore[misc]
        for key in ("dataset", "base", "evaluation", "data_seed", "split_seed", "given", "content")
    },
    **{
        key: lambda spec, key=key: spec[key]  # type: ignore[misc]
        for key in ("algorithm", "backbone", "init", "protocol", "seed", "draw", "trial", "space")
    },
    "head": lambda spec: (spec.get("head") or {}).get("name", "random"),
    "averaging": lambda spec: spec["averaging"]["name"],
    "fold": lambda spec: spec["fold"]["name"],
    "held_out": lambda spec: spec["fold"]["held_out"],
    "folds": lambda spec: spec["fold"].get("folds"),
}


def run_faults(line: Line, frozen: bool = False) -> list[str]:
    """What is wrong with one packed run, one line each.

    Args:
        line: whose rows have passed the checks of :mod:`dgbench.reports.reading.archive_reader`.
        frozen: it may be older than specifications and sessions.
    """
    checks = (_of_status, _of_sessions, _of_flags, _of_counts, line_faults)
    return [*_of_spec(line, frozen), *(why for check in checks for why in check(line))]


def _of_spec(line: Line, frozen: bool) -> Iterator[str]:
    identity, spec = line["run"]["identity"], line.get("spec")
    if not line.get("sessions") and not frozen:
        yield "it does not say with what code and packages it was trained (identity.json was lost, or it is imported)"
    if spec is None:
        if not frozen:
            yield "it has no specification, so its hash cannot be computed again (only frozen entries may lack them)"
        return
    try:
        made = RunSpec(**spec).digest
        odd = [key for key, of in _SAME.items() if canonical(identity.get(key, DEFAULTS.get(key))) != of(spec)]
        odd += [f"hparams.{key}" for key in spec["hparams"] if not _equal(identity["hparams"], spec["hparams"], key)]
        variant = spec["dataset"]["variant"]
        odd += ["hparams.steps"] * (
            identity["hparams"].get("steps", spec["training"]["steps"]) != spec["training"]["steps"]
        )
        odd += [f"variant.{key}" for key in identity["variant"] if not _equal(variant, identity["variant"], key, True)]
    except (TypeError, KeyError, AttributeError) as error:
        yield f"its specification is none of this code ({type(error).__name__}: {error})"
        return
    if made != identity["run"]:
        yield f"its specification hashes to {made}, its hash is {identity['run']}"
    if odd:
        yield f"its rows and its specification differ in {', '.join(odd)}"


def _equal(found: dict[str, Any], expected: dict[str, Any], key: str, optional: bool = False) -> bool:
    """Whether one of two mappings has the value that the other one has."""
    return (optional and key not in found) or (key in found and canonical(found[key]) == canonical(expected[key]))


def _of_status(line: Line) -> Iterator[str]:
    about = line["run"]
    planned = (line.get("spec") or {}).get("training", {}).get("steps")
    if planned is not None and about["status"] == DONE and about["last_step"] != planned:
        yield f"it is {DONE}, its last row is of step {about['last_step']} of {planned}"
    if DIRTY in str(about["identity"]["code"]):
        yield f"its code {about['identity']['code']} is in no commit; train from committed code"


def _of_sessions(line: Line) -> Iterator[str]:
    about, sessions = line["run"], line.get("sessions", [])
    code = code_parts(about["identity"]["code"])
    if sessions and (odd := set(code) - {session.get("code") for session in sessions}):
        yield f"its rows are of code {', '.join(sorted(odd))}, none of its sessions is"
    words = [about["folder"], about["reason"], *(word for session in sessions for word in session.get("typed", []))]
    if private := [word for word in words if FOLDERS.search(word)]:
        yield f"it names a folder of one machine: {private[0]}"


def _of_flags(line: Line) -> Iterator[str]:
    """``env_held_out`` of every row follows from the identity, but where classes have environments of their own."""
    if (line.get("spec") or {}).get("fold", {}).get("membership"):
        return
    identity, rows = line["run"]["identity"], line["rows"]
    for env, subset, flag in zip(rows["env"], rows["subset"], rows["env_held_out"], strict=True):
        if flag != (env not in identity["given"] or env in identity["held_out"]):
            yield f"{env} {subset}: env_held_out is {str(flag).lower()}, its fold says otherwise"


def _of_counts(line: Line) -> Iterator[str]:
    """Images are counted one by one, but where an exact evaluation expects a part of one."""
    rows = line["rows"]
    for env, subset, wrong, loss in zip(rows["env"], rows["subset"], rows["wrong"], rows["loss"], strict=True):
        if loss < 0:
            yield f"{env} {subset}: loss is {loss}, cross entropy is not negative"
        if not (is_exact(line) and subset == "test") and not float(wrong).is_integer():
            yield f"{env} {subset}: wrong is {wrong}, no whole number of images"


# Exact errors mix the same eval sets in every environment e, so they lie on one straight line over e.

Floats = NDArray[np.float64]

IMAGE_TOLERANCE = 1e-5  # sums of a few hundred thousand in double precision
_NATS = 2e-6  # losses are packed with six decimals
_SINGLE = 3e-7  # of a loss in single precision
_ROUNDED = 5e-5  # a name with four decimals may be so far from its e
_WHOLE = 1e-3  # images that the line may miss a whole number by at its ends


def is_exact(line: Line) -> bool:
    """Whether the ``test`` errors of a packed run are computed, not sampled."""
    identity = line["run"]["identity"]
    return identity["evaluation"] == "exact" and not identity.get("grouped", False)


def line_faults(line: Line) -> Iterator[str]:
    """Where the exact errors and losses of a packed run are not on a line over e, at any step."""
    rows = line["rows"]
    if not is_exact(line) or not all(map(_is_number, rows["env"])):
        return
    for step in sorted(set(rows["step"])):
        here = [at for at, own in enumerate(rows["step"]) if own == step and rows["subset"][at] == "test"]
        if len(here) >= 3 and len({rows["seen"][at] for at in here}) == 1:
            for why in _faults_at(line, here):
                yield f"step {step}: {why}"


def _faults_at(line: Line, here: Sequence[int]) -> Iterator[str]:
    rows = line["rows"]
    names = [rows["env"][at] for at in here]
    if line["run"]["identity"]["fold"] == FULL and not {0.0, 1.0} <= set(map(float, names)):
        yield "no test row at e = 0 or e = 1, which a model of all environments is tested in"
    for key in ("wrong", "loss"):
        values = np.array([rows[key][at] for at in here], dtype=float)
        if np.isfinite(values).all():
            points = _Points(names, np.array(list(map(float, names))), values, key)
            yield from points.faults()


@dataclass(frozen=True)
class _Points:
    """Environments and what was counted there, (n,) each."""

    names: Sequence[str]
    e: Floats
    values: Floats
    key: str  #: ``wrong`` or ``loss``

    def faults(self) -> Iterator[str]:
        anchors = self._anchors()
        off = self._off(anchors)
        if (off <= self._allowed(anchors)).all():
            slope, at_zero = map(float, self._fit(anchors))
            ends = np.array([at_zero, at_zero + slope])  # one is the count of an eval set, of two classes both are
            counted = self.key == "wrong" and self._two_decimals().sum() >= 3
            if counted and (np.abs(ends - ends.round()) > _WHOLE).all():
                yield f"wrong would be {ends[0]:.4f} at e = 0 and {ends[1]:.4f} at e = 1, no whole numbers of images"
            return
        for at in range(len(self.e)):
            rest = anchors & (np.arange(len(self.e)) != at)
            good = self._off(rest) <= self._allowed(rest)
            if rest.sum() >= 3 and np.delete(good, at).all():
                slope, start = self._fit(rest)
                expected, found = slope * self.e[at] + start, self.values[at]
                yield (
                    f"{self.names[at]} test: {self.key} is {found:.7g}, the line through the other environments gives "
                    f"{expected:.7g} (off by {found - expected:+.6g})"
                )
                return
        yield f"{self.key} of test is no straight line over e, off by up to {off.max():.6g}"

    def _two_decimals(self) -> NDArray[np.bool_]:
        """Names that are their e exactly."""
        return np.array([len(name.partition(".")[2]) <= 2 for name in self.names])

    def _anchors(self) -> NDArray[np.bool_]:
        exact = self._two_decimals()
        return exact if exact.sum() >= 3 else np.ones(len(self.e), dtype=bool)

    def _fit(self, which: NDArray[np.bool_]) -> Floats:
        """Slope, and value at e = 0, by least squares."""
        return np.asarray(np.polyfit(self.e[which], self.values[which], 1))

    def _off(self, which: NDArray[np.bool_]) -> Floats:
        slope, start = self._fit(which)
        return np.asarray(np.abs(self.values - (slope * self.e + start)))

    def _allowed(self, which: NDArray[np.bool_]) -> Floats:
        base = IMAGE_TOLERANCE if self.key == "wrong" else _NATS + _SINGLE * float(np.abs(self.values).max())
        rounded = ~self._two_decimals() | (not self._two_decimals()[which].all())
        return np.asarray(base + 2 * abs(float(self._fit(which)[0])) * _ROUNDED * rounded)


def _is_number(env: Any) -> bool:
    try:
        float(env)
    except (TypeError, ValueError):
        return False
    return True
