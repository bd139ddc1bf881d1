"""Row files that are read column by column: what is found is what lines one by one say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dgbench.records.row_columns import parse_columns
from dgbench.records.rows import ROW_CHECKS, parse_rows
from tests.reports.mutations import odd_json, torn
from tests.rows import ROW

SUBSETS = ("val", "test")


def lines_of(change: Callable[[int, dict[str, Any]], None] | None = None) -> bytes:
    """Write 16 rows, each changed by a function of its position."""
    lines = []
    for position in range(16):
        step, subset = divmod(position, len(SUBSETS))
        row = replace(ROW, step=5 * step, subset=SUBSETS[subset], majority_wrong=20.0)
        values = json.loads(row.to_json())
        if change:
            change(position, values)
        lines.append(json.dumps(values, separators=(",", ":")) + "\n")
    return "".join(lines).encode()


def assert_as_line_by_line(content: bytes) -> bool:
    """Compare with ``parse_rows`` and return whether the file was read by columns."""
    rows, problems = parse_rows(content)
    found = parse_columns(content)
    if found is None:
        return False
    assert not problems
    assert [row.identity for row in rows] == [found.identity] * len(rows)
    assert found.columns.keys() == ROW_CHECKS.keys()
    for name, values in found.columns.items():
        expected = [row.own[name] for row in rows]
        assert (list(values), list(map(type, values))) == (expected, list(map(type, expected)))
    return True


def without(*names: str) -> Callable[[int, dict[str, Any]], None]:
    def change(position: int, values: dict[str, Any]) -> None:
        for name in names:
            del values[name]

    return change


@pytest.mark.parametrize(
    "absent", [(), ("majority_wrong",), ("together",), ("together", "majority_wrong")]
)
def test_a_whole_file_is_read_by_columns(absent: tuple[str, ...]) -> None:
    """Also one whose rows are older than a key, with Windows' line ends, or without the last."""
    content = lines_of(without(*absent))
    assert assert_as_line_by_line(content)
    assert assert_as_line_by_line(content[:-1])
    assert assert_as_line_by_line(content.replace(b"\n", b"\r\n")[:-2])


BAD: list[tuple[str, Any]] = [
    *(("step", value) for value in (-1, 1.0, True, 2**31, "5", None)),
    *(("seen", value) for value in (0, 2**31, 1.5, True)),
    *(("wrong", value) for value in (-1, 201, float("nan"), True, "1", None)),
    *(("loss", value) for value in (float("nan"), "1", None)),
    *(("together", value) for value in (0, 1.0, True, 2**31)),
    *(("majority_wrong", value) for value in (-0.5, 201, float("nan"), True, "1")),
    *(("env", value) for value in (1, None, "a\nb", "a" * 2000)),
    *(("subset", value) for value in ("all", 1, None, ["val"])),
    *(("env_held_out", value) for value in (0, None, "true")),
    ("added", 1),
    ("run", "another"),
    ("seed", 7),
]


@pytest.mark.parametrize(("name", "value"), BAD)
@pytest.mark.parametrize("place", [0, 7, 15])
def test_one_bad_value_leaves_the_file_to_the_other_parser(
    name: str, value: Any, place: int
) -> None:
    def change(position: int, values: dict[str, Any]) -> None:
        if position == place:
            values[name] = value

    assert parse_columns(lines_of(change)) is None


@pytest.mark.parametrize("name", ["wrong", "majority_wrong", "loss"])
def test_whole_and_infinite_numbers(name: str) -> None:
    """Counts may be whole, and a cross entropy may be infinite."""
    value = float("inf") if name == "loss" else 53
    assert assert_as_line_by_line(lines_of(lambda _, values: values.update({name: value})))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        lines_of().split(b"\n")[0],
        lines_of().replace(b"\n", b"\n\n", 1),
        lines_of()[:-20],
        lines_of() + b"garbage\n",
        lines_of().replace(b',"step":5,', b',"step":4,"step":5,'),
        lines_of().replace(b'"step":5,', b'"step":5},{"step":5,', 1),
        b"[" + lines_of(),
    ],
)
def test_other_files_are_left_to_the_other_parser(content: bytes) -> None:
    assert parse_columns(content) is None


def test_damaged_files_are_read_as_line_by_line() -> None:
    """400 changes at random, of values and of bytes: some leave the file good."""
    dice = random.Random(66)
    whole = 0
    for number in range(400):
        damage = odd_json if number % 2 else torn
        content = damage(dice, lines_of()).replace(b'": ', b'":').replace(b', "', b',"')
        whole += assert_as_line_by_line(content)
    assert 10 < whole < 300
