"""Nothing in a folder kills a report or keeps it waiting, and whatever is left out is named: files
changed at random.

DGBENCH_FUZZ_CASES=100000 runs that many cases; a case that fails is named by its number, and is the
same every time.
"""

from __future__ import annotations

import json
import lzma
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last
from dgbench.errors import DgbenchError, RecordError
from dgbench.records.locks import is_locked
from dgbench.records.rows import SUBSETS
from dgbench.reports.frames import measures, results
from dgbench.reports.importers.domainbed import read_domainbed
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.commands import filling_command
from dgbench.reports.reading.folders import Problem, RunFolder, fold_of
from dgbench.reports.reading.shift_settings import shift_settings
from dgbench.reports.reading.shifts import read_shifts
from dgbench.reports.render.formats import write
from dgbench.reports.slices.status import run_states, status_text
from dgbench.shift.report import ShiftReport
from tests.reports.mutations import mutated
from tests.shift.synthetic import estimates, shift_identity, write_shifts
from tools.archive.packed_runs import packed_runs, write_packed

pytestmark = pytest.mark.slow
CASES = int(os.environ.get("DGBENCH_FUZZ_CASES", 4000))
PATIENCE = 20.0  # seconds; a case takes some milliseconds, so this is a hang


@contextmanager
def bounded(case: int) -> Iterator[random.Random]:
    """One case: its dice, and an end to waiting."""

    def hangs(*_: Any) -> None:
        pytest.fail(f"case {case} hangs")  # no Exception, which a reader might catch

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield random.Random(case)
    except Exception as error:
        error.add_note(f"case {case}")
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def share(part: float) -> range:
    return range(max(1, round(part * CASES)))


def check_table(found: Collection) -> None:
    """Every value that reaches a table is possible, and every word can be written."""
    rows = found.rows
    assert len(rows) == sum(run.row_count for run in found.runs)
    assert (
        rows["step"].ge(0).all() and rows["seen"].ge(1).all() and rows["subset"].isin(SUBSETS).all()
    )
    assert rows["wrong"].between(0, rows["seen"]).all() and not rows["loss"].isna().any()
    words = [word for run in found.runs for word in texts([run.identity, run.folder, run.reason])]
    assert "".join([*words, *rows["env"].unique()]).isprintable()
    check_problems(found.problems)


def texts(value: Any) -> Iterator[str]:
    """Every text in lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in [*value, *(value.values() if isinstance(value, dict) else ())]:
            yield from texts(item)


def check_problems(problems: list[Problem]) -> None:
    for problem in problems:
        assert problem.kind and problem.where and problem.reason, problem
        assert (problem.kind + problem.where + problem.reason).isprintable(), problem
    assert len(problems) < 60, "garbage buries everything else"


def written(file: Path) -> int:
    """Lines in a file that are not blank; 0 where there is no such file."""
    return (
        sum(bool(line.strip()) for line in file.read_bytes().split(b"\n")) if file.is_file() else 0
    )


@pytest.fixture
def study(make: Any, tmp_path: Path) -> Path:
    """Two runs with status, configuration, sign of life, plan and what was typed."""
    root = tmp_path / "study"
    for fold in ("0", "full"):
        make.write_run(root, make.identity(fold=fold), steps=(100, 200), grid=["0.00", "0.50"])
    folder = root / "erm_seed0_fold0"
    (folder / "config.yaml").write_text(
        "algorithm: {name: erm}\nfold: {name: '0', held_out: ['0.90']}\nseed: 0\n"
    )
    (folder / "status").write_text("RUNNING\n")
    beat = {
        "step": 40,
        "steps": 200,
        "steps_per_s": 2.5,
        "runs": 1,
        "time": time.time(),
        "pid": 1,
        "host": "far",
    }
    (folder / "progress.json").write_text(json.dumps(beat) + "\n")
    (root / "planned.json").write_text(
        json.dumps({"runs": ["erm_seed0_fold0", "erm_seed0_fold1"]}) + "\n"
    )
    (root / ".hydra").mkdir()
    (root / ".hydra" / "overrides.yaml").write_text("- algorithm=erm\n- seed=0\n")
    return root


def test_rows(study: Path) -> None:
    files = sorted(study.rglob("errors.jsonl"))
    for case in share(0.5):
        with bounded(case) as dice, mutated(dice, dice.choice(files)):
            found = collect([study])
            check_table(found)
            for file in files:
                used = sum(run.row_count for run in found.runs if run.folder == str(file.parent))
                named = [
                    problem
                    for problem in found.problems
                    if problem.where.startswith(str(file.parent))
                ]
                assert used == written(file) or named, file
            if case % 10 == 0:
                with suppress(DgbenchError):  # of two code versions, which must not share a table
                    measures(results(study))


def test_estimates_of_shift(tmp_path: Path) -> None:
    """Two estimators with pairs of two environments, which have matrices too."""
    for at, (estimator, names) in enumerate(
        {"joint": ("div", "cor"), "concept": ("tv", "min", "max")}.items()
    ):
        who = shift_identity(estimator=estimator, settings={})
        values = {f"{a}|{b}": dict.fromkeys(names, 0.1) for a, b in ("ab", "ac", "bc")}
        write_shifts(
            tmp_path,
            estimates(who, values, null={"div": 0.1, "cor": 0.1}, exact={"cor": 0.1}),
            str(at),
        )
    files = sorted(tmp_path.rglob("shifts.jsonl"))
    for case in share(0.05):
        with bounded(case) as dice, mutated(dice, dice.choice(files)), suppress(RecordError):
            found = read_shifts(tmp_path)
            check_problems(found.problems)
            settings, problems = shift_settings(found.rows)
            check_problems(problems)
            if case % 20 == 0:
                ShiftReport(roots=[str(tmp_path)])(None, None)
            for setting in settings:
                assert "".join(
                    [setting.title, *(line.title for line in setting.lines)]
                ).isprintable()


def test_statuses_configurations_signs_of_life_and_plans(study: Path) -> None:
    folder = study / "erm_seed0_fold0"
    names = (
        "status",
        "config.yaml",
        "progress.json",
        "../planned.json",
        "../.hydra/overrides.yaml",
    )
    files = [folder / name for name in names]
    folders = {folder, study / "erm_seed0_foldfull"}
    for case in share(0.2):
        with bounded(case) as dice, mutated(dice, dice.choice(files)):
            found = collect([study])
            check_table(found)
            assert {Path(run.folder) for run in found.runs} == folders
            states, problems = run_states([study], time.time(), 600.0, is_locked)
            check_problems(problems)
            assert folders <= {state.folder for state in states}
            assert status_text(states, problems).replace("\n", "").isprintable()
            for run in folders:
                said = (
                    (run / "status").read_text(errors="replace").split()
                    if (run / "status").is_file()
                    else []
                )
                state = next(state for state in states if state.folder == run)
                assert (state.state == "done") == (said[:1] == ["DONE"])
                assert (
                    fold_of(RunFolder(run, "UNKNOWN", "")) is None
                    or (run / "config.yaml").is_file()
                )
                filling_command(run, [])


def test_archives(make: Any, tmp_path: Path) -> None:
    """One is changed, the other is not; both lie in one folder."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name, seeds in (("a", (0, 1)), ("b", (2,))):
        for seed in seeds:
            make.write_run(tmp_path / name, make.identity(seed=seed), steps=(100,))
        write_packed(packed_runs(collect([tmp_path / name])), shelf / f"{name}.jsonl.xz")
    file = shelf / "a.jsonl.xz"
    pack = partial(lzma.compress, preset=0)
    for case in share(0.15):
        with bounded(case) as dice, mutated(dice, file, lzma.decompress, pack):
            found = collect([shelf])
            check_table(found)
            assert 2 in {run.identity["seed"] for run in found.runs}
            unreadable = "unreadable archive" in {problem.kind for problem in found.problems}
            assert unreadable or lines_of(file) <= len(found.runs) - 1 + len(found.problems)
            try:
                check_table(collect([file]))
            except RecordError as error:
                assert str(file) in str(error)


def lines_of(file: Path) -> int:
    """How many runs an archive holds; 0 where it is none or nothing."""
    if not file.is_file():
        return 0
    try:
        return sum(bool(line.strip()) for line in lzma.decompress(file.read_bytes()).split(b"\n"))
    except lzma.LZMAError:
        return 0


def test_folders_of_domainbed(tmp_path: Path) -> None:
    files = []
    for env in range(3):
        folder = tmp_path / f"run{env}"
        folder.mkdir()
        (folder / "done").write_text("done")
        args = {
            "dataset": "Own",
            "algorithm": "ERM",
            "test_envs": [env],
            "trial_seed": 0,
            "hparams_seed": 0,
        }
        keys = {f"env{i}_{part}_acc": 0.25 * (i + 1) for i in range(3) for part in ("in", "out")}
        records = [
            {"args": args, "hparams": {"lr": 0.1}, "step": step, **keys} for step in (0, 300)
        ]
        files.append(folder / "results.jsonl")
        files[-1].write_text("".join(json.dumps(record) + "\n" for record in records))
    for case in share(0.15):
        with bounded(case) as dice, mutated(dice, dice.choice(files)):
            found = read_domainbed(tmp_path)
            check_problems(found.problems)
            rows = found.rows
            assert (
                rows["accuracy"].between(0, 1)
                | (rows["accuracy"].isna() & rows["subset"].eq("val"))
            ).all()
            for file in files:
                used = sum(run.row_count for run in found.runs if run.folder == str(file.parent))
                named = [
                    problem
                    for problem in found.problems
                    if problem.where.startswith(str(file.parent))
                ]
                assert used == 6 * written(file) or named, file


@pytest.mark.parametrize("report", [MeasuresReport, LeaderboardReport])
def test_whole_reports(study: Path, tmp_path: Path, report: Any) -> None:
    """What survives the checks is drawn and written in every format."""
    files = sorted(study.rglob("errors.jsonl"))
    for case in share(0.002):
        with bounded(case) as dice, mutated(dice, dice.choice(files)), suppress(DgbenchError):
            write(report()(collect([study]), Last()), tmp_path / "report")
