"""Rows and their files: what was written is read back, whatever a crash left behind."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from dgbench.records import Row, RowProblem, RunIdentity, append_rows, keep_rows_until, read_rows, write_whole

IDENTITY = RunIdentity(
    run="abc",
    dataset="sr_cmnist",
    variant={"ratio": 3, "scale": 1},
    base="digits",
    evaluation="exact",
    data_seed=0,
    split_seed=1,
    given=["0.80", "0.10"],
    algorithm="vrex",
    hparams={"lr": 1e-3, "variant": "fixed"},
    backbone="mlp-390",
    protocol="loo",
    fold="1",
    held_out=["0.10"],
    seed=0,
    code="0.1+é",
)


def row(step: int, env: str = "0.10") -> Row:
    return Row(identity=IDENTITY, step=step, env=env, subset="test", held_out=True, seen=200, wrong=53.25, loss=0.1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three rows, of steps 0, 5 and 10."""
    path = tmp_path / "errors.jsonl"
    append_rows(path, [row(0), row(5)])
    append_rows(path, [row(10)])
    return path


def steps(path: Path) -> list[int]:
    rows, problems = read_rows(path)
    assert problems == []
    return [read["step"] for read in rows]


def test_error_is_a_fraction() -> None:
    """53.25 expected mistakes in 200 images: 0.26625."""
    assert row(0).error == pytest.approx(0.26625)


def test_round_trip(file: Path) -> None:
    """Both `held_out` survive: the identity's list of environments, and whether this environment was one of them."""
    rows, problems = read_rows(file)
    own = {"step": 5, "env": "0.10", "subset": "test", "env_held_out": True, "seen": 200, "wrong": 53.25, "loss": 0.1}
    assert problems == []
    assert rows[1] == {**asdict(IDENTITY), **own}
    assert file.read_bytes().count(b"\n") == 3


def test_rows_that_are_not_finite_survive(tmp_path: Path) -> None:
    append_rows(tmp_path / "rows", [replace(row(0), loss=float("inf"))])
    [read], _ = read_rows(tmp_path / "rows")
    assert read["loss"] == float("inf")


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_torn_last_line_is_dropped_and_named(file: Path, kept: int) -> None:
    """Wherever the cut, the two rows before it stay. (Less the line end alone, the row is whole and stays too.)"""
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1] + lines[2][:kept])
    rows, problems = read_rows(file)
    assert [read["step"] for read in rows] == [0, 5]
    assert problems == [RowProblem(str(file), 3, "not a whole JSON object (half-written?)")]


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_the_next_append_is_not_glued_to_a_torn_line(file: Path, kept: int) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1] + lines[2][:kept])
    append_rows(file, [row(15)])
    assert steps(file) == [0, 5, 15]


def test_append_to_a_file_that_is_one_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "errors.jsonl"
    path.write_bytes(b'{"run": "a')
    append_rows(path, [row(1)])
    assert steps(path) == [1]


def test_no_rows_append_nothing(file: Path) -> None:
    before = file.read_bytes()
    append_rows(file, [])
    assert file.read_bytes() == before


@pytest.mark.parametrize("line", [b"null", b"3", b'"step"', b"[1]", b"\xff\xfe", b"{}x"])
def test_a_line_that_is_no_object_is_named_and_skipped(file: Path, line: bytes) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"\n" + line + b"\n" + lines[1])
    rows, problems = read_rows(file)
    assert [read["step"] for read in rows] == [0, 5]
    assert [problem.line for problem in problems] == [3]  # the blank line 2 is no problem


@pytest.mark.parametrize(("until", "left"), [(-1, []), (0, [0]), (4, [0]), (5, [0, 5]), (99, [0, 5, 10])])
def test_keep_rows_until(file: Path, until: int, left: list[int]) -> None:
    before = file.read_bytes().splitlines()
    assert keep_rows_until(file, until) == []
    assert file.read_bytes().splitlines() == before[: len(left)]
    assert list(file.parent.iterdir()) == [file]


def test_keep_rows_until_drops_and_names_torn_lines(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"{torn\n" + lines[1] + lines[2][:30])
    assert [problem.line for problem in keep_rows_until(file, 10)] == [2, 4]
    assert steps(file) == [0, 5]


def test_keep_rows_until_without_a_file(tmp_path: Path) -> None:
    assert keep_rows_until(tmp_path / "errors.jsonl", 5) == []
    assert list(tmp_path.iterdir()) == []


def test_old_rows_get_the_defaults_of_newer_keys(file: Path) -> None:
    """A row without `averaging` and `draw` is a row of the plain weights and the default hyperparameters."""
    old = json.loads(row(3).to_json())
    del old["averaging"], old["draw"]
    with open(file, "a") as handle:
        handle.write(json.dumps(old) + "\n")
    rows, problems = read_rows(file)
    assert problems == []
    assert rows[-1] == {**old, "averaging": "none", "draw": 0}


def test_a_row_that_lacks_what_has_no_default_is_dropped_and_named(file: Path) -> None:
    old = json.loads(row(3).to_json())
    del old["algorithm"], old["wrong"], old["draw"]
    with open(file, "a") as handle:
        handle.write(json.dumps(old) + "\n")
    rows, problems = read_rows(file)
    assert len(rows) == 3
    assert problems == [RowProblem(str(file), 4, "lacks algorithm, wrong")]


def test_keys_of_a_row_are_the_declared_ones() -> None:
    """No key of the row overwrites one of the identity's."""
    declared = {f.name for f in (*fields(RunIdentity), *fields(Row))} - {"identity"} | {"env_held_out"}
    assert json.loads(row(0).to_json()).keys() == declared


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the second write: the old text stays, and nothing lies beside it."""
    file = tmp_path / "plan.json"
    write_whole(file, "old")

    def full(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text[:1].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, "new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
