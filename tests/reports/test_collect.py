"""Run folders with everything that goes wrong in them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dgbench.errors import RecordError
from dgbench.records.rows import ROW_FILE, append_rows
from dgbench.reports.reading.collect import Collection, _duplicate, collect, with_same_code
from tests.complaints import one_line


def kinds(collection: Collection) -> list[str]:
    return [problem.kind for problem in collection.problems]


def test_rows_and_compact_types(make: Any, tmp_path: Path) -> None:
    """One fold: 2 steps x (4 val + 4 test) rows."""
    make.write_run(tmp_path / "deep" / "er", make.identity(), lambda env, step: 0.25)
    found = collect([tmp_path])
    assert len(found.rows) == 16
    assert found.problems == []
    assert found.runs[0].last_step == 200
    assert set(found.rows["wrong"]) == {250.0}
    assert [str(found.rows[c].dtype) for c in ("run", "step", "env", "env_held_out", "wrong")] == [
        "int32", "int32", "category", "bool", "float64",
    ]  # fmt: skip


def test_no_runs_names_the_command(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match=r"no runs under .*python train\.py"):
        collect([tmp_path, tmp_path / "absent"])


def test_patterns_and_the_home_folder(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shells expand neither within ``runs=[...]``; a folder whose name looks like a pattern is
    itself.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, seed in (("pacs_lp", 0), ("pacs_ft", 1), ("vlcs", 2), ("odd[1]", 3), ("pacs_old", 4)):
        make.write_run(tmp_path / name, make.identity(seed=seed))
    (tmp_path / "pacs_old" / "entry.yaml").write_text("frozen: wrong images\n")
    seeds = {
        root: sorted(int(run.identity["seed"]) for run in collect([root]).runs)
        for root in (f"{tmp_path}/pacs_*", "~/pacs_lp", "~/pacs_[lf]?", f"{tmp_path}/odd[1]")
    }
    assert list(seeds.values()) == [[0, 1], [0], [0, 1], [3]]
    with pytest.raises(RecordError, match=r"no runs under .*none_\*"):
        collect([tmp_path / "none_*"])


def test_half_written_and_impossible_lines_are_named(make: Any, tmp_path: Path) -> None:
    folder = make.write_run(tmp_path, make.identity())
    row = json.loads(make.run_rows(make.identity(), lambda e, s: 0.1)[0].to_json())
    with open(folder / ROW_FILE, "a") as handle:
        handle.write(json.dumps({**row, "step": 300, "wrong": 2000}) + "\n")
        handle.write(json.dumps({**row, "step": 300, "seen": 0}) + "\n")
        handle.write(json.dumps({**row, "step": 300, "wrong": "many"}) + "\n")
        handle.write('{"run": "er')
    found = collect([tmp_path])
    assert len(found.rows) == 16
    assert [(problem.kind, problem.where) for problem in found.problems] == [
        ("dropped line", f"{folder / ROW_FILE}:{number}") for number in (17, 18, 19, 20)
    ]
    for problem, said in zip(
        found.problems, ("2000 wrong", "seen is 0", 'wrong is "many"', "JSON"), strict=True
    ):
        one_line(problem.reason, said)


def test_a_file_of_garbage_does_not_bury_everything_else(make: Any, tmp_path: Path) -> None:
    """16 rows, then 100 lines that are none:
    20 of them one by one, and one line for the other 80.
    """
    folder = make.write_run(tmp_path, make.identity())
    with open(folder / ROW_FILE, "a") as handle:
        handle.writelines("?\n" for _ in range(100))
    found = collect([tmp_path])
    assert kinds(found) == ["dropped line"] * 20 + ["more of these"]
    one_line(found.problems[-1].reason, "80 .*, from 37 to 116, .*JSON")


def test_rows_that_contradict_the_others_of_their_run_are_named(make: Any, tmp_path: Path) -> None:
    """Of 16 rows, 2 name another algorithm.

    Rows older than a key do not contradict those that have it.
    """
    folder = make.write_run(tmp_path, make.identity(content="f00"))
    lines = [json.loads(line) for line in (folder / ROW_FILE).read_text().splitlines()]
    for line in lines[:2]:
        line["algorithm"] = "irm"
    for line in lines[4:]:
        del line["content"]
    (folder / ROW_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = collect([tmp_path])
    assert [run.identity["algorithm"] for run in found.runs] == ["erm"] and len(found.rows) == 14
    assert found.runs[0].identity["content"] == "f00"
    problem, lacking = found.problems
    assert lacking.kind == "run that lacks rows"
    assert (problem.kind, problem.where) == ("contradicting rows", f"{folder / ROW_FILE}:1")
    one_line(problem.reason, 'erm-0-0: algorithm is "irm" in 2 rows, .*"erm" in')


def test_a_folder_given_as_text_is_one_folder(make: Any, tmp_path: Path) -> None:
    folder = make.write_run(tmp_path, make.identity())
    assert [run.folder for run in collect(str(tmp_path)).runs] == [str(folder)]
    assert len(collect(tmp_path).runs) == 1
    with pytest.raises(RecordError, match="empty list of folders"):
        collect("")


KINDS = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "circle": lambda path: os.symlink(path, path),
    "device": lambda path: os.symlink("/dev/zero", path),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [ROW_FILE, "status", "config.yaml"])
def test_what_is_no_ordinary_file_is_named(make: Any, tmp_path: Path, name: str, kind: str) -> None:
    """The run is left out or used without it, a run beside it is used, and nothing waits."""
    make.write_run(tmp_path, make.identity(fold="1"))
    folder = make.write_run(tmp_path, make.identity())
    (folder / name).unlink(missing_ok=True)
    KINDS[kind](folder / name)
    found = collect([tmp_path])
    assert "1" in {run.identity["fold"] for run in found.runs if not run.unusable}
    named = [problem for problem in found.problems if problem.where == str(folder / name)]
    assert [problem.kind for problem in named] == ["unreadable file"]
    usable = {run.folder for run in found.runs if not run.unusable}
    assert (str(folder) in usable) is (name == "config.yaml")
    assert name == "config.yaml" or str(folder) in {problem.where for problem in found.problems}


def test_a_folder_that_cannot_be_searched_is_named(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.write_run(tmp_path, make.identity())
    locked = make.write_run(tmp_path / "locked", make.identity(fold="1")).parent
    deny(monkeypatch, locked)
    found = collect([tmp_path])
    assert [run.identity["fold"] for run in found.runs] == ["0"]
    (problem,) = found.problems
    assert (problem.kind, problem.where) == ("unreadable folder", str(locked))
    one_line(problem.reason, "Permission denied; ")
    with pytest.raises(
        RecordError, match=r"no runs under .* \(unreadable folder .*/locked: Permission denied"
    ):
        collect([locked])


def deny(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """To list a folder; root, who runs tests, may list any."""
    scandir = os.scandir

    def denied(path: str) -> Any:
        if str(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)


def test_a_circle_of_folders_is_not_walked(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path / "a", make.identity())
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    assert len(collect([tmp_path]).runs) == 1


def test_names_of_folders_can_be_written(make: Any, tmp_path: Path) -> None:
    """A line break, an escape sequence and a byte that is no UTF-8."""
    for fold, name in enumerate((b"a\nb", b"\x1b[31m", b"\xff")):
        folder = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
        make.write_run(folder, make.identity(fold=str(fold)), status="FAILED \x1b[0m")
    found = collect([tmp_path])
    told = [
        *(p.where + p.reason for p in found.problems),
        *(run.folder + run.reason for run in found.runs),
    ]
    assert len(found.runs) == 3 and all(text.isprintable() for text in told)
    assert [run.folder.removeprefix(f"{tmp_path}/").split("/")[0] for run in found.runs] == [
        "a\\nb", "\\x1b[31m", "\\udcff",
    ]  # fmt: skip


def test_rows_written_twice_count_once(make: Any, tmp_path: Path) -> None:
    folder = make.write_run(tmp_path, make.identity())
    text = (folder / ROW_FILE).read_text()
    (folder / ROW_FILE).write_text(text + text)
    found = collect([tmp_path])
    assert len(found.rows) == 16
    assert kinds(found) == ["repeated rows"]


def test_rows_written_twice_that_disagree_say_by_how_much(make: Any, tmp_path: Path) -> None:
    """Of 16 rows 3 come again: one as it was, two with 25 % and 35 % in place of 25 %, the second
    after another.
    """
    folder = make.write_run(tmp_path, make.identity())
    rows = make.run_rows(make.identity(), lambda env, step: 0.25)
    again = [
        rows[0],
        replace(rows[1], wrong=300.0),
        replace(rows[1], wrong=270.0),
        replace(rows[9], wrong=350.0),
    ]
    append_rows(folder / ROW_FILE, again)
    found = collect([tmp_path])
    (problem,) = found.problems
    assert (problem.kind, problem.where) == ("disagreeing rows", str(folder / ROW_FILE))
    one_line(
        problem.reason,
        r"^4 rows .* twice, 2 with .* 10 percentage points \(0.85 val at step 200\); the later",
    )
    assert not found.runs[0].unusable
    assert sorted(found.rows["wrong"])[-2:] == [270.0, 350.0]


def test_a_finished_run_that_lacks_rows_is_named_and_left_out(make: Any, tmp_path: Path) -> None:
    """Cut at a line's end, at an evaluation's end, in the middle; its twin that is whole counts."""
    who = make.identity(hparams={"lr": 0.1, "steps": 200})
    file = make.write_run(tmp_path, who) / ROW_FILE
    lines = file.read_text().splitlines(keepends=True)
    for left in (
        lines[:3],
        lines[:8],
        lines[:-1],
        lines[:5] + lines[6:],
        lines[1:],
        [*lines[:-1], lines[0]],
    ):
        file.write_text("".join(left))
        found = collect([tmp_path])
        assert found.runs[0].unusable.startswith("DONE, but ")
        problem = found.problems[-1]
        assert (problem.kind, problem.where) == ("run that lacks rows", str(file.parent))
        one_line(problem.reason, "^DONE, but .*; the same command trains it again")
    twin = make.write_run(tmp_path, who, folder="twin")
    found = collect([tmp_path])
    assert [run.folder for run in found.runs] == [str(twin)] and not found.runs[0].unusable


def test_status_marks(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity(fold="0"), status="FAILED loss became nan at step 40")
    make.write_run(tmp_path, make.identity(fold="1"), status="RUNNING")
    make.write_run(tmp_path, make.identity(fold="2"), status="???")
    (make.write_run(tmp_path, make.identity(fold="3")) / "status").unlink()
    make.write_run(tmp_path, make.identity(fold="full"))
    found = collect([tmp_path])
    assert [run.unusable == "" for run in found.runs] == [False, False, False, False, True]
    assert kinds(found) == ["failed run", "still running", "no status", "no status"]
    make.write_run(tmp_path, make.identity("vrex", "0"), status="INTERRUPTED")
    assert kinds(collect([tmp_path])) == [*kinds(found), "interrupted run"]
    assert "nan at step 40" in found.problems[0].reason


def test_folders_without_rows(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity())
    for name, file, text in (
        ("f", "status", "FAILED out of memory"),
        ("r", "status", "RUNNING"),
        ("c", "config.yaml", ""),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    for name in ("nothing", ".stacks/0", "study/.hydra"):
        (tmp_path / name).mkdir(parents=True)
    found = collect([tmp_path, tmp_path / "typo"])
    assert sorted(kinds(found)) == [
        "failed run without rows", "no such folder", "running run without rows",
        "unknown run without rows",
    ]  # fmt: skip
    assert any(problem.reason == "out of memory" for problem in found.problems)


def test_a_study_folder_around_runs_is_no_run(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path / "study", make.identity())
    (tmp_path / "study" / "config.yaml").write_text("")
    (tmp_path / "study" / ".hydra").mkdir()
    (tmp_path / "study" / ".hydra" / "config.yaml").write_text("")
    assert collect([tmp_path]).problems == []


def test_duplicates_keep_the_finished_one(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity(), status="RUNNING", folder="a")
    make.write_run(tmp_path, make.identity(), folder="b")
    found = collect([tmp_path])
    assert [run.folder for run in found.runs] == [str(tmp_path / "b")]
    assert [p.where for p in found.problems if p.kind == "duplicate"] == [str(tmp_path / "a")]


def test_one_member_under_two_hashes_keeps_the_longer(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity(run="x"), folder="a", steps=(100,))
    make.write_run(tmp_path, make.identity(run="y"), folder="b", steps=(100, 200))
    found = collect([tmp_path])
    assert [run.identity["run"] for run in found.runs] == ["y"]
    assert "another run hash" in found.problems[0].reason


def test_done_without_rows_is_a_problem(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity())
    lost = make.write_run(tmp_path, make.identity(fold="1"))
    (lost / ROW_FILE).write_text("")
    found = collect([tmp_path])
    assert [run.identity["fold"] for run in found.runs] == ["0"]
    (problem,) = found.problems
    assert (problem.kind, problem.where) == ("done run without rows", str(lost))
    assert problem.reason.startswith("DONE, but errors.jsonl is missing")


def test_two_records_that_disagree_are_a_finding(make: Any, tmp_path: Path) -> None:
    """One run at steps 100 and 200, alone and among 4: from step 200 on, errors in 0.10 are 25 %
    and 27 %.
    """
    make.write_run(tmp_path, make.identity(), folder="a", steps=(100, 200, 300), together=1)
    make.write_run(
        tmp_path,
        make.identity(),
        lambda env, step: 0.25 + 0.01 * (step >= 200) + 0.01 * (step >= 200 and env == "0.10"),
        folder="b",
        steps=(100, 200),
        together=4,
    )
    make.write_run(tmp_path, make.identity(), folder="c")
    found = collect([tmp_path])
    assert [run.folder for run in found.runs] == [str(tmp_path / "a")]
    assert [(problem.kind, problem.where) for problem in found.problems] == [
        ("disagreement", str(tmp_path / "b")),
        ("duplicate", str(tmp_path / "c")),
    ]
    one_line(
        found.problems[0].reason,
        rf"{tmp_path / 'a'}, .*step 200, .*2 percentage points \(0\.10 test .*4 runs",
    )


def test_other_code_and_another_identity_are_part_of_a_disagreement(
    make: Any, tmp_path: Path
) -> None:
    """One hash in four folders: as it is, by other code with other errors, as another algorithm,
    and by an old row.
    """
    make.write_run(tmp_path, make.identity(content="f00"), folder="a", together=1)
    make.write_run(
        tmp_path, make.identity(code="0.2.0"), lambda env, step: 0.26, folder="b", together=1
    )
    make.write_run(tmp_path, make.identity("irm", run="erm-0-0"), folder="c", together=1)
    make.write_run(tmp_path, make.identity(), folder="d", together=1)
    found = collect([tmp_path])
    told = {Path(problem.where).name: (problem.kind, problem.reason) for problem in found.problems}
    used = f"same run as {tmp_path / 'a'}, which is used"
    assert told["b"][1].endswith("code 0.1.0 there, 0.2.0 here")
    assert told["c"][0] == "disagreement" and told["c"][1].startswith(
        f'{used}; algorithm is "erm" there, "irm" here'
    )
    assert told["d"] == ("duplicate", used)


def test_records_without_a_common_step_do_not_disagree(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity(), lambda env, step: 0.1, folder="a", steps=(100,))
    make.write_run(tmp_path, make.identity(), lambda env, step: 0.2, folder="b", steps=(200,))
    assert kinds(collect([tmp_path])) == ["duplicate"]


def test_a_run_of_two_code_versions_is_of_both(make: Any, tmp_path: Path) -> None:
    """Resumed after a commit: its later rows carry the other version, and a table would mix the
    two.
    """
    folder = make.write_run(tmp_path, make.identity(code="0.1.0+a"), steps=(100,))
    append_rows(
        folder / ROW_FILE, make.run_rows(make.identity(code="0.1.0+b"), lambda e, s: 0.25, (200,))
    )
    found = collect([tmp_path])
    assert [run.identity["code"] for run in found.runs] == ["0.1.0+a and 0.1.0+b"]
    assert [(p.kind, p.where) for p in found.problems] == [("several code versions", str(folder))]
    same = with_same_code(found, ["0.1.0+b", "0.1.0+a"])
    assert [run.identity["code"] for run in same.runs] == ["0.1.0+a and 0.1.0+b"]
    with pytest.raises(RecordError, match=r"0\.1\.0\+c, .*0\.1\.0\+a, 0\.1\.0\+b"):
        with_same_code(found, ["0.1.0+c"])


def test_overlapping_roots_read_a_run_once(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path / "sub", make.identity())
    found = collect([tmp_path, tmp_path / "sub"])
    assert len(found.runs) == 1
    assert found.problems == []


def test_a_copied_folder_is_a_duplicate(make: Any, tmp_path: Path) -> None:
    folder = make.write_run(tmp_path, make.identity())
    shutil.copytree(folder, tmp_path / "zz_copy")
    assert kinds(collect([tmp_path])) == ["duplicate"]


# ---- code of a user's own


def text_of(make: Any, folder: Path, text: str, trained: str, fold: str = "0") -> Path:
    """A run of an objective of one's own, last started at a time."""
    who = make.identity("mine", fold, run=f"{text}{fold}", user_code={"mine.Objective": text})
    run: Path = make.write_run(folder / f"{text}{fold}", who, lambda env, step: 0.25)
    (run / "identity.json").write_text(json.dumps({"sessions": [{"time": trained}]}))
    return run


def test_runs_of_the_newest_text_count(make: Any, tmp_path: Path) -> None:
    """Whatever the order of the folders; a run of dgbench's own counts as it is."""
    text_of(make, tmp_path, "ccc", "2026-11-25T10:00:00+0000")
    text_of(make, tmp_path, "aaa", "2026-11-25T11:00:00+0000")
    text_of(make, tmp_path, "aaa", "2026-11-25T09:00:00+0000", "1")
    text_of(make, tmp_path, "bbb", "2026-11-24T11:00:00+0000")
    text_of(make, tmp_path, "bbb", "2026-11-24T11:00:00+0000", "1")
    make.write_run(tmp_path / "erm", make.identity())
    found = collect([tmp_path])
    assert sorted(str(run.identity["user_code"]) for run in found.runs) == [
        *["{'mine.Objective': 'aaa'}"] * 2,
        "{}",
    ]
    (problem,) = [problem for problem in found.problems if problem.kind == "older code"]
    assert problem.where == "mine.Objective"
    assert "3 runs of 2 older texts" in problem.reason and "aaa" in problem.reason
    assert len(collect([tmp_path], repeated=True).runs) == 6


def test_without_a_record_of_sessions_the_file_tells_when_it_trained(
    make: Any, tmp_path: Path
) -> None:
    for text, moment in (("aaa", 2_000), ("bbb", 1_000)):
        run = text_of(make, tmp_path, text, "no time")
        os.utime(run / ROW_FILE, (moment, moment))
    (run,) = collect([tmp_path]).runs
    assert run.identity["user_code"] == {"mine.Objective": "aaa"}


def test_runs_stand_by_what_they_are_and_not_by_folder(make: Any, tmp_path: Path) -> None:
    """A folder's name ends in a hash: with another hash, ties and sections stay where they were."""
    ratios, draws = (10, 3), (2, 10)
    runs = [
        make.identity(run=f"{ratio} {draw}", draw=draw, variant={"ratio": ratio})
        for ratio in ratios
        for draw in draws
    ]
    for number, run in enumerate(runs):
        make.write_run(tmp_path / "here", run, folder=f"run-{number}")
        make.write_run(tmp_path / "there", run, folder=f"run-{9 - number}")
    for place in ("here", "there"):
        found = [run.identity for run in collect([tmp_path / place]).runs]
        assert [(identity["variant"]["ratio"], identity["draw"]) for identity in found] == [
            (3, 2), (3, 10), (10, 2), (10, 10),
        ]  # fmt: skip


def test_copies_of_one_study_are_one_line() -> None:
    pairs = [(f"multirun/search/fold-{n}", f"multirun/alone/fold-{n}") for n in range(5)]
    problem = _duplicate(
        "multirun/search", "multirun/alone", "same run under another run hash", pairs
    )
    assert (problem.kind, problem.where) == ("duplicate", "multirun/search")
    assert (
        problem.reason
        == "5 of its runs: same run under another run hash as in multirun/alone, which are used"
    )
    assert _duplicate("a", "b", "same run", pairs[:1]).where == "multirun/search/fold-0"
