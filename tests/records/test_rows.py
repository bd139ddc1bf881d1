"""Rows and their files: what was written is read back, whatever a crash left behind."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from dgbench.records.files import Checksum, keep_beginning
from dgbench.records.rows import (
    LATER_COUNTS,
    LATER_KEYS,
    Row,
    RowProblem,
    append_rows,
    lines_before,
    read_rows,
    row_of,
)
from dgbench.records.run_identity import RunIdentity

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
    return Row(
        identity=IDENTITY,
        step=step,
        env=env,
        subset="test",
        held_out=True,
        seen=200,
        wrong=53.25,
        loss=0.1,
    )


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
    """Both `held_out` survive: the identity's list of environments, and whether this environment
    was one of them.
    """
    rows, problems = read_rows(file)
    own = {
        "step": 5, "env": "0.10", "subset": "test", "env_held_out": True, "seen": 200,
        "wrong": 53.25, "loss": 0.1, **dict.fromkeys(LATER_KEYS),
    }  # fmt: skip
    assert problems == []
    assert rows[1] == {**asdict(IDENTITY), **own}
    assert file.read_bytes().count(b"\n") == 3


def test_rows_that_are_not_finite_survive(tmp_path: Path) -> None:
    append_rows(tmp_path / "rows", [replace(row(0), loss=float("inf"))])
    [read], _ = read_rows(tmp_path / "rows")
    assert read["loss"] == float("inf")


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_torn_last_line_is_dropped_and_named(file: Path, kept: int) -> None:
    """Wherever the cut, the two rows before it stay. (Less the line end alone, the row is whole and
    stays too.)
    """
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


@pytest.mark.parametrize(("step", "left"), [(0, 0), (1, 1), (5, 1), (6, 2), (10, 2), (11, 3)])
def test_lines_before_a_step(file: Path, step: int, left: int) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    assert lines_before(file, step) == Checksum() + b"".join(lines[:left])
    keep_beginning(file, lines_before(file, step).size)
    assert (file.read_bytes() if left else file.exists()) == (
        b"".join(lines[:left]) if left else False
    )


def test_lines_before_a_step_without_a_file(tmp_path: Path) -> None:
    assert lines_before(tmp_path / "errors.jsonl", 5) == Checksum()


def test_rows_that_go_nowhere_are_told_all_the_same(file: Path) -> None:
    """What a finished run would write, where it is computed once more, is what it wrote."""
    before = file.read_bytes()
    assert append_rows(None, [row(15)]) == append_rows(file, [row(15)])
    assert Checksum() + before + append_rows(None, [row(15)]) == Checksum() + file.read_bytes()


def test_old_rows_get_the_defaults_of_newer_keys(file: Path) -> None:
    """A row without `averaging` and `draw` is a row of the plain weights and the default
    hyperparameters.
    """
    old = json.loads(row(3).to_json())
    del old["averaging"], old["draw"]
    with open(file, "a") as handle:
        handle.write(json.dumps(old) + "\n")
    rows, problems = read_rows(file)
    assert problems == []
    defaults = {
        "averaging": "none",
        "draw": 0,
        "user_code": {},
        "seed_moves": "all",
        "n_classes": None,
        "adaptation": "none",
    }
    assert rows[-1] == {**dict.fromkeys(LATER_COUNTS), **old, **defaults, "unlearnable": {}}


#: two lines as version 0.1.0 wrote them
OLD = """\
{"run":"2a75b3e37e28","dataset":"sr_cmnist","variant":{"ratio":3,"scale":1,"resolution":8,"label_noise":0.25,"pool_fraction":0.142857,"val_fraction":0.2},"base":"digits","evaluation":"exact","data_seed":0,"split_seed":0,"given":["0.80","0.85","0.90","0.10"],"algorithm":"vrex","hparams":{"lr":0.001,"batch_size":64,"weight_decay":0.0,"vrex_lambda":10.0,"vrex_penalty_anneal_iters":500,"steps":40},"draw":0,"space":"domainbed","trial":0,"backbone":"mlp-8","init":"random","tuning":"ft","n_parameters":1122,"n_trainable":1122,"protocol":"loo","fold":"0","held_out":["0.80"],"folds":null,"seed":0,"averaging":"none","beyond":true,"grouped":false,"code":"0.1.0+d50f13e","step":20,"env":"0.80","subset":"val","seen":77,"wrong":25.0,"loss":0.6401429284702648,"env_held_out":true}
{"run":"2a75b3e37e28","dataset":"sr_cmnist","variant":{"ratio":3,"scale":1,"resolution":8,"label_noise":0.25,"pool_fraction":0.142857,"val_fraction":0.2},"base":"digits","evaluation":"exact","data_seed":0,"split_seed":0,"given":["0.80","0.85","0.90","0.10"],"algorithm":"vrex","hparams":{"lr":0.001,"batch_size":64,"weight_decay":0.0,"vrex_lambda":10.0,"vrex_penalty_anneal_iters":500,"steps":40},"draw":0,"space":"domainbed","trial":0,"backbone":"mlp-8","init":"random","tuning":"ft","n_parameters":1122,"n_trainable":1122,"protocol":"loo","fold":"0","held_out":["0.80"],"folds":null,"seed":0,"averaging":"none","beyond":true,"grouped":false,"code":"0.1.0+d50f13e","step":20,"env":"0.85","subset":"val","seen":77,"wrong":25.0,"loss":0.657670769598577,"env_held_out":false}
"""


def test_rows_of_version_0_1_0_are_read(tmp_path: Path) -> None:
    path = tmp_path / "errors.jsonl"
    path.write_text(OLD)
    rows, problems = read_rows(path)
    assert problems == []
    new = {"content": "", "head": "random", "user_code": {}, "seed_moves": "all"}
    new |= {"n_classes": None, "unlearnable": {}, "adaptation": "none", **dict.fromkeys(LATER_KEYS)}
    assert rows == [{**json.loads(line), **new} for line in OLD.splitlines()]
    first, second = map(row_of, rows)
    assert (first.env, first.wrong, first.held_out, first.identity.held_out) == (
        "0.80",
        25.0,
        True,
        ["0.80"],
    )
    assert (second.env, second.held_out, second.together) == ("0.85", False, None)
    append_rows(path, [replace(first, step=40, together=3)])
    assert [read["together"] for read in read_rows(path)[0]] == [None, None, 3]


def test_rows_carry_the_code_that_wrote_them(file: Path) -> None:
    """A run that was resumed with other code has rows of both."""
    later = replace(IDENTITY, code="0.1+later")
    append_rows(file, [replace(row(15), identity=later)])
    assert [read["code"] for read in read_rows(file)[0]] == ["0.1+é"] * 3 + ["0.1+later"]


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
    declared = {f.name for f in (*fields(RunIdentity), *fields(Row))} - {"identity"} | {
        "env_held_out"
    }
    of_mine = {
        "user_code": {"mine.Objective": "0123456789ab"},
        "seed_moves": "order",
        "n_classes": 2,
    }
    of_mine |= {"unlearnable": {"a: owl": 0.5}, "adaptation": "tent"}
    counts = dict.fromkeys(LATER_COUNTS, 3.0)
    mine = replace(row(0), identity=replace(IDENTITY, **of_mine), **counts)
    assert json.loads(mine.to_json()).keys() == declared
    unsaid = {"user_code", "seed_moves", "n_classes", "unlearnable", "adaptation", *LATER_COUNTS}
    assert json.loads(row(0).to_json()).keys() == declared - unsaid, "as in most runs"
