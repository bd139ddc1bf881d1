"""Records what a checkout gives, so that it can be compared after code has moved.

    python tools/frozen.py record CHECKOUT FOLDER [--only PART ...]   # a part that FOLDER holds is
    not recorded again python tools/frozen.py compare FOLDER_A FOLDER_B [--only PART ...]
    [--renamed] [--ignore KEY ...] [--same OLD=NEW] python tools/frozen.py times CHECKOUT_A
    CHECKOUT_B [--rounds N]

Parts: ``hashes`` (specifications, folder names and plans of random configurations), ``rows`` (of
    every algorithm and of
many variants, after a kill too), ``cells`` (of the tables of every report, with its text) and
``plans`` (text of ``plan=true`` and of refusals). ``tools/frozen.yaml`` lists the commands. They
run with one thread and without git, so that the version in rows names no commit; durations in texts
read TIME. ``compare`` and ``times`` exit with 1 where something differs. DGBENCH_DATA_DIR must hold
MNIST, PACS_64, CatsDogs_32 and CIFAR10_subset.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import hashlib
import importlib
import io
import json
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SETTINGS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
#: names that the class of a planned study had; a new one is added in front
PLANNED = ("PlannedStudy",)
SCRIPTS = ("train", "report", "shift")  #: commands that a checkout has a script for
#: variables that commands do not get
FOREIGN = (
    "DGBENCH_CACHE",
    "HYDRA",
    "PYTHON",
    "SLURM",
    "WANDB",
)

DURATION = re.compile(  # with the spaces that align it
    r"(?:(?<=  ) +)?\b(?:\d+(?:\.\d+)?(?: d \d\d h| h \d\d min| min \d\d s| min| s)|(?:less than "
    r")?[\d.]+ core hours)\b"
)
#: modules of names, and hashes
NAMES = re.compile(r"\bdgbench(?:\.\w+)+(?=\.\w)|(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f])")
UNCOMPARED = ("code", "run", "seconds")  #: keys of rows
#: keys of rows that tell them from others of their run, and that are counted or estimated; the rest
#: identifies the run
NAMING = ("step", "env", "subset", "pairs", "pair", "kind", "number", "null")
VALUES = (
    "seen", "wrong", "loss", "together", "env_held_out",
    "p", "q", "n", "classes", "dropped", "values", "diagnostics", "exact", "flags", "refused",
)  # fmt: skip
#: keys of the identity of a run that a reader finds it by
LABEL = (
    "dataset",
    "algorithm",
    "estimator",
    "backbone",
    "tuning",
    "protocol",
    "draw",
    "trial",
    "seed",
    "fold",
)

Entries = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, standard output, standard error, seconds of wall clock and of
    processors.
    """

    code: int
    out: str
    err: str
    wall: float
    processor: float


@dataclass(frozen=True)
class Place:
    """A folder that commands of a checkout run in; it holds ``data/`` and ``results/``.

    Args:
        checkout: its root.
        folder: where they run.
    """

    checkout: Path
    folder: Path

    @staticmethod
    @contextmanager
    def of(checkout: Path) -> Iterator[Place]:
        """Make a temporary folder with data and results, removed at the end."""
        with tempfile.TemporaryDirectory(prefix="frozen-") as name:
            place = Place(checkout.resolve(), Path(name))
            (place.folder / "results").symlink_to(place.checkout / "results")
            write_data(place.folder / "data")
            yield place

    def environment(self) -> dict[str, str]:
        """Return the variables of a command; without a git repository rows of all commits have the
        same version.
        """
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)
        }
        return {
            **inherited,
            "PYTHONPATH": str(self.checkout / "src"),
            "OMP_NUM_THREADS": "1",
            "GIT_DIR": os.devnull,
        }

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command, e.g. ``["train", "algorithm=vrex"]``."""
        script = (
            [str(self.checkout / f"{words[0]}.py")]
            if words[0] in SCRIPTS
            else ["-c", self.program(), words[0]]
        )
        return subprocess.Popen(
            [sys.executable, *script, *words[1:]],
            cwd=self.folder,
            env=self.environment(),
            text=True,
            **options,
        )

    def program(self) -> str:
        """Return what the installed program ``dgbench`` runs."""
        project = tomllib.loads((self.checkout / "pyproject.toml").read_text(encoding="utf-8"))[
            "project"
        ]
        module, function = project["scripts"]["dgbench"].split(":")
        return f"from {module} import {function}; {function}()"

    def run(self, words: Sequence[str]) -> Ended:
        """Run a command to its end."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            began = time.perf_counter()
            process = self.start(words, stdout=out, stderr=err)
            _, status, used = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            return Ended(
                process.returncode, out.read(), err.read(), wall, used.ru_utime + used.ru_stime
            )

    def output(self, text: str) -> Entries:
        """Run a command of the settings; return its exit code, standard output, and the last line
        of its complaint.
        """
        ended = self.run(words_of(text))
        complaint = ended.err.strip().rpartition("\n")[2] if ended.code else ""
        return {
            "words": text,
            "code": ended.code,
            "complaint": mask(complaint),
            "text": mask(ended.out),
        }

    def inside(self, what: str, jobs: Mapping[str, Sequence[str]]) -> Entries:
        """Return what :func:`planned` or :func:`trained` says of these jobs, in a process that
        imports the checkout.
        """
        listed, answer = self.folder / f"{what}.json", self.folder / f"{what}-answer.json"
        listed.write_text(json.dumps(jobs))
        words = [
            sys.executable,
            str(Path(__file__).resolve()),
            "inside",
            what,
            str(listed),
            str(answer),
        ]
        with (self.folder / f"{what}.log").open("w") as log:
            ended = subprocess.run(
                words, cwd=self.folder, env=self.environment(), stdout=log, stderr=log
            )
        if ended.returncode:
            raise SystemExit((self.folder / f"{what}.log").read_text()[-3000:])
        entries: Entries = json.loads(answer.read_text())
        return entries


def write_data(folder: Path) -> None:
    """Copy the first images of every class of the datasets, and draw a file of features."""
    import numpy as np

    source = Path(os.environ["DGBENCH_DATA_DIR"])
    for name, part in SETTINGS["data"].items():
        root = source / part["source"]
        for image_folder in sorted({file.parent for file in root.rglob("*") if file.is_file()}):
            target = folder / name / image_folder.relative_to(root)
            target.mkdir(parents=True)
            for file in sorted(image_folder.iterdir())[: part["images"]]:
                shutil.copy(file, target)
    table = SETTINGS["features"]
    rng = np.random.default_rng(0)
    label = rng.integers(table["classes"], size=table["rows"])
    environment = np.array(table["environments"])[
        np.arange(table["rows"]) % len(table["environments"])
    ]
    features = rng.normal(size=(table["rows"], table["dimensions"])) + label[:, None]
    np.savez(
        folder / "features.npz",
        features=features.astype("float32"),
        environment=environment,
        label=label,
    )


def words_of(text: str) -> list[str]:
    """List the words of a command of the settings."""
    return shlex.split(expanded(text))


def expanded(text: str) -> str:
    """Expand the groups of words in a text of the settings."""
    groups = {
        **SETTINGS["words"],
        "ALTERNATIVES": SETTINGS["words"]["ALGORITHMS"].strip("[]").replace(",", "|"),
    }
    while "$" in text:
        text = re.sub(r"\$([A-Z]+)", lambda match: str(groups[match[1]]), text)
    return text


def mask(text: str) -> str:
    """Mask the durations in a text, which no two processes share."""
    return DURATION.sub("TIME", text)


# What is recorded


def record_hashes(place: Place) -> Entries:
    """Record specifications, folder names and plans of random configurations."""
    count = SETTINGS["configurations"]["count"]
    return place.inside(
        "planned", {f"{number:03}": random_words(number) for number in range(count)}
    )


def random_words(number: int) -> list[str]:
    """Draw the overrides of a random configuration, the same for the same number."""
    draw, settings = random.Random(f"frozen {number}"), SETTINGS["configurations"]
    kind = draw.choice(sorted(settings["kinds"]))
    text = " ".join(
        draw.choice(options) for options in (*settings["kinds"][kind], *settings["every"])
    )
    return shlex.split(
        re.sub(r"<([^>]*)>", lambda match: draw.choice(match[1].split("|")), expanded(text))
    )


def record_rows(place: Place) -> Entries:
    """Record rows of every algorithm alone and stacked, of many variants, and of a command that was
    killed.
    """
    entries = place.inside(
        "trained", {name: words_of(text) for name, text in SETTINGS["trained"].items()}
    )
    entries |= {name: place.output(text) for name, text in SETTINGS["commands"].items()}
    entries["killed"] = killed(place)
    return {
        name: {**entry, **rows_in(place.folder / "outputs" / name)}
        for name, entry in entries.items()
    }


def killed(place: Place) -> Entries:
    """Kill a command after its first rows, and return what it says when it is started again."""
    folder, text = place.folder / "outputs" / "killed", SETTINGS["killed"]
    process = place.start(words_of(text), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not any(
        file.stat().st_size for file in folder.rglob("errors.jsonl")
    ):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    return {"killed": process.wait() == -signal.SIGKILL, **place.output(text)}


def rows_in(folder: Path) -> Entries:
    """Read every row below a folder by run and by what it counts, numbers as they are written."""
    files = [file for name in ("errors.jsonl", "shifts.jsonl") for file in folder.rglob(name)]
    runs: list[tuple[str, str, Entries]] = []
    for file in files:
        identity: Entries = {}
        rows: dict[str, str] = {}
        for line in file.read_text().splitlines():
            flat = {
                key: value
                for key, value in json.loads(line, parse_float=str).items()
                if key not in UNCOMPARED
            }
            key = " ".join(str(flat.pop(name)) for name in NAMING if name in flat)
            rows[key + "'" * (key in rows)] = as_text(
                {name: flat.pop(name) for name in VALUES if name in flat}
            )
            identity = flat
        label = " ".join(f"{name}={identity[name]}" for name in LABEL if name in identity)
        runs.append((label, as_text(identity), {"rows": rows, **predictions_in(file.parent)}))
    entries: Entries = {}
    for label, text, run in sorted(runs, key=lambda run: run[:2]):
        number = sum(name.partition(" #")[0] == label for name in entries)
        entries[f"{label} #{number}" if number else label] = {"identity": text, **run}
    return {"runs": entries}


def predictions_in(folder: Path) -> Entries:
    """Compute the digest of what a run predicted, if it was written."""
    import pandas as pd

    files = sorted(folder.glob("*.parquet"))
    return {
        file.name: hashlib.sha256(pd.read_parquet(file).to_csv().encode()).hexdigest()
        for file in files
    }


def as_text(value: Any) -> str:
    """Format plain values in one line."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def record_cells(place: Place) -> Entries:
    """Record tables, pages and terminal texts of reports on the entries of ``results/`` and on runs
    trained for it.
    """
    entries = {f"input {name}": place.output(text) for name, text in SETTINGS["inputs"].items()}
    wanted = dict(SETTINGS["reports"]["once"])
    for entry in sorted(
        file.parent.name for file in (place.checkout / "results").glob("*/entry.yaml")
    ):
        for name, text in SETTINGS["reports"]["each_entry"].items():
            wanted[f"{entry} {name}"] = text.format(entry=entry)
    for name, text in wanted.items():
        output = Path("reports", name.replace(" ", "-"))
        terminal = place.output(f"report {text} cache=false output={output}")
        tables = {
            file.stem: cells_of(file) for file in sorted((place.folder / output).glob("*.csv"))
        }
        entries[name] = {**terminal, "tables": tables, **pages_of(place.folder / output)}
    return entries


def pages_of(folder: Path) -> Entries:
    """Read texts that a report wrote, and digests of what is too long: pages without figures, and
    figures.
    """
    texts, digests = {}, {}
    for file in sorted(folder.glob("*.*")):
        if file.suffix in (".md", ".tex", ".json"):
            texts[file.name] = mask(file.read_text(encoding="utf-8"))
        elif file.suffix in (".html", ".svg"):
            page = file.read_text(encoding="utf-8")
            bare = (
                re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
                if file.suffix == ".html"
                else page
            )
            digests[file.name] = hashlib.sha256(NAMES.sub("", mask(bare)).encode()).hexdigest()
    return {"pages": texts, "digests": digests}


def cells_of(file: Path) -> Entries:
    """Convert a table to its columns, and its lines by column."""
    lines = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8"))))
    columns = lines[0] if lines else []
    return {
        "columns": columns,
        "lines": [dict(zip(columns, line, strict=True)) for line in lines[1:]],
    }


def record_plans(place: Place) -> Entries:
    """Record what ``plan=true`` prints, and how commands that cannot work are refused."""
    return {name: place.output(text) for name, text in SETTINGS["plans"].items()}


PARTS: Mapping[str, Callable[[Place], Entries]] = {
    "hashes": record_hashes,
    "plans": record_plans,
    "rows": record_rows,
    "cells": record_cells,
}


def record(checkout: Path, folder: Path, parts: Iterable[str]) -> None:
    """Write ``PART.json`` for every part that is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        file = folder / f"{part}.json"
        if file.exists():
            print(f"{part}: {file} is there; remove it to record it again", flush=True)
            continue
        began = time.perf_counter()
        with Place.of(checkout) as place:
            entries = PARTS[part](place)
        beside = file.with_suffix(".partial")
        beside.write_text(json.dumps(entries, indent=1, sort_keys=True, ensure_ascii=False))
        beside.replace(file)
        refused = sum(bool(entry.get("complaint")) for entry in entries.values())
        seconds = time.perf_counter() - began
        print(
            f"{part}: {len(entries)} entries, {refused} of them complaints, in {seconds:.0f} s",
            flush=True,
        )


# In a process of the checkout


def planned(jobs: Mapping[str, Sequence[str]]) -> Entries:
    """Plan the studies of every job as ``plan=true`` does; return them and the plan's text."""
    import dgbench

    kind, entries = class_named(PLANNED), {}
    studies: list[Any] = []
    initialize = kind.__init__

    def remember(self: Any, *values: Any, **named: Any) -> None:
        initialize(self, *values, **named)
        studies.append(self)

    kind.__init__ = remember
    for name, words in jobs.items():
        studies.clear()
        complaint = ""
        with redirect_stdout(io.StringIO()) as out:
            try:
                dgbench.train([*words, "plan=true"], "outputs")
            except Exception as error:  # a refusal is recorded too
                complaint = f"{type(error).__name__}: {error}"
        plan = {"words": " ".join(words), "complaint": complaint, "plan": mask(out.getvalue())}
        entries[name] = {
            **plan,
            "studies": [] if complaint else [described(study) for study in studies],
        }
    return entries


def class_named(names: Sequence[str]) -> Any:
    """Find the class of dgbench that has one of these names, wherever it is."""
    import dgbench

    root = Path(str(dgbench.__file__)).parent
    for file in sorted(root.rglob("*.py")):
        if match := re.search(
            rf"^class ({'|'.join(names)})\b", file.read_text(encoding="utf-8"), re.MULTILINE
        ):
            module = importlib.import_module(
                ".".join(file.relative_to(root.parent).with_suffix("").parts)
            )
            return getattr(module, match[1])
    raise SystemExit(f"no class of {root} is named {' or '.join(names)}; add its name to PLANNED")


def described(study: Any) -> Entries:
    """Describe a planned study: its folder, what its hash holds, and its runs."""
    runs = [
        {"folder": study.run_folder(fold).name, "fold": as_text(fold.key())} for fold in study.folds
    ]
    return {"folder": study.folder.name, "spec": study.spec.to_json(), "runs": runs}


def trained(jobs: Mapping[str, Sequence[str]]) -> Entries:
    """Train every job into ``outputs/NAME``; what failed, and why."""
    import dgbench

    entries = {}
    for name, words in jobs.items():
        complaint, failed = "", []
        try:
            failed = sorted(dgbench.train(words, f"outputs/{name}").failed.values())
        except Exception as error:  # a refusal is recorded too
            complaint = f"{type(error).__name__}: {error}"
        entries[name] = {"words": " ".join(words), "complaint": complaint, "failed": failed}
    return entries


# Comparison


def compare(first: Path, second: Path, parts: Iterable[str], options: argparse.Namespace) -> bool:
    """Print the differences of two records; whether there are none."""
    equal = True
    for part in parts:
        if lacking := [
            folder for folder in (first, second) if not (folder / f"{part}.json").exists()
        ]:
            print(f"{part}: not recorded in {' and '.join(map(str, lacking))}")
            continue
        same = [pair.partition("=")[::2] for pair in options.same]
        a = read(first / f"{part}.json", same, options)
        b = read(second / f"{part}.json", [], options)
        changes = list(differences(a, b, "", numbers=part == "cells"))
        entries = {place.split("/")[0] for place, _ in changes}
        print(f"{part}: {len(a)} entries, {len(entries)} differ, in {len(changes)} values or lines")
        for place, text in changes[: options.most]:
            print(f"  {place}: {text}")
        if len(changes) > options.most:
            print(
                f"  and {len(changes) - options.most} more, in {', '.join(sorted(entries))}"[:400]
            )
        equal &= not changes
    return equal


def read(file: Path, same: Iterable[Sequence[str]], options: argparse.Namespace) -> Any:
    """Read a recorded part, with announced words in place of former ones and without what does not
    count.
    """
    text = file.read_text(encoding="utf-8")
    for old, new in same:
        text = text.replace(old, new)
    return stripped(json.loads(text), options.ignore, options.renamed)


def stripped(value: Any, keys: Sequence[str], renamed: bool) -> Any:
    """Remove keys from plain values, wherever they are, and put NAME for hashes and modules where
    they may differ.
    """
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in keys}
        return {
            stripped(key, keys, renamed): stripped(item, keys, renamed)
            for key, item in kept.items()
        }
    if isinstance(value, list):
        return [stripped(item, keys, renamed) for item in value]
    return NAMES.sub("NAME", value) if renamed and isinstance(value, str) else value


def differences(a: Any, b: Any, place: str, numbers: bool) -> Iterator[tuple[str, str]]:
    """Say where two plain values differ, and how.

    Args:
        a: the first.
        b: the second.
        place: of both, keys parted by ``/``.
        numbers: whether texts of numbers are compared as numbers, to 1e-12.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            inner = f"{place}/{key}".lstrip("/")
            if key in a and key in b:
                yield from differences(a[key], b[key], inner, numbers)
            else:
                yield inner, f"only in the {'first' if key in a else 'second'} record"
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            yield place, f"{len(a)} lines, then {len(b)}"
        for number, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from differences(one, other, f"{place}/{number}", numbers)
    elif a != b and not (numbers and close(a, b)):
        yield from ((place, text) for text in changed(str(a), str(b)))


def close(a: Any, b: Any) -> bool:
    """Return whether two cells are numbers that differ by 1e-12 or less, relative above 1."""
    try:
        one, other = float(a), float(b)
    except (TypeError, ValueError):
        return False
    return abs(one - other) <= 1e-12 * max(1.0, abs(one))


def changed(a: str, b: str) -> Iterator[str]:
    """Join the lines in which two texts differ to one."""
    if "\n" not in a + b:
        yield f"{a or '(nothing)'} -> {b or '(nothing)'}"
        return
    lines = list(difflib.unified_diff(a.splitlines(), b.splitlines(), n=0, lineterm=""))[2:]
    yield from (line for line in lines if not line.startswith("@@"))


# Times


def times(checkouts: Sequence[Path], rounds: int) -> bool:
    """Print the times of two checkouts side by side, which take turns; whether the second takes at
    most 10 % longer.
    """
    sys.path.insert(0, str(BENCHMARKS))
    write_study = importlib.import_module("synthetic_rows").write_study
    fast = True
    with Place.of(checkouts[0]) as place:
        write_study(place.folder / "rows", steps=range(500, 4500, 500), at_most=SETTINGS["rows"])
        for name, text in SETTINGS["times"].items():
            ended: list[list[Ended]] = [[], []]
            for n in range(rounds + 1):  # the first of either only fills the file cache
                for side in (0, 1) if n % 2 else (1, 0):
                    turn = Place(checkouts[side].resolve(), place.folder).run(
                        words_of(text.format(n=f"{side}-{n}"))
                    )
                    if turn.code:
                        raise SystemExit(turn.err)
                    ended[side].append(turn)
            parts = []
            for kind in ("wall", "processor"):
                a, b = (
                    statistics.median(getattr(turn, kind) for turn in side[1:]) for side in ended
                )
                parts.append(f"{kind} {a:6.2f} s, {b:6.2f} s, ratio {b / a:.2f}")
            fast &= b / a <= 1.1
            print(f"{name:7s} {'; '.join(parts)}", flush=True)
    return fast


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="write what a checkout gives")
    comparing = commands.add_parser("compare", help="print the differences of two records")
    timing = commands.add_parser("times", help="time two checkouts side by side")
    for command, names in (
        (recording, "checkout folder"),
        (comparing, "first second"),
        (timing, "first second"),
    ):
        for name in names.split():
            command.add_argument(name, type=Path)
    for command in (recording, comparing):
        command.add_argument(
            "--only",
            nargs="+",
            choices=PARTS,
            default=list(PARTS),
            metavar="PART",
            help="all by default",
        )
    comparing.add_argument(
        "--renamed", action="store_true", help="hashes and modules of dotted names do not count"
    )
    comparing.add_argument(
        "--ignore", nargs="+", default=[], metavar="KEY", help="keys that do not count anywhere"
    )
    comparing.add_argument(
        "--same", nargs="+", default=[], metavar="OLD=NEW", help="announced words: read OLD as NEW"
    )
    comparing.add_argument(
        "--most", type=int, default=20, help="differences that are printed of a part"
    )
    timing.add_argument("--rounds", type=int, default=3)
    inside = commands.add_parser("inside")
    for name in ("what", "listed", "answer"):
        inside.add_argument(name)
    arguments = parser.parse_args()
    if arguments.command == "inside":
        jobs = json.loads(Path(arguments.listed).read_text())
        Path(arguments.answer).write_text(
            json.dumps({"planned": planned, "trained": trained}[arguments.what](jobs))
        )
        return 0
    if arguments.command == "record":
        record(arguments.checkout, arguments.folder, arguments.only)
        return 0
    if arguments.command == "compare":
        return int(not compare(arguments.first, arguments.second, arguments.only, arguments))
    return int(not times((arguments.first, arguments.second), arguments.rounds))


if __name__ == "__main__":
    sys.exit(main())
