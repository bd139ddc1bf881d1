"""Numbers of an entry are computed again, and a changed one is found in rows and tables."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.complaints import one_line
from tools.archive.packed_runs import read_packed, write_packed


def test_a_changed_row_is_found_by_the_checksum_and_by_the_numbers(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_packed(rows)
    everywhere = next(line for line in lines if line["run"]["identity"]["fold"] == "full")
    worst = list(zip(everywhere["rows"]["env"], everywhere["rows"]["subset"], strict=True)).index(
        ("1.00", "test")
    )
    everywhere["rows"]["wrong"][worst] = 650.0
    write_packed(lines, rows)
    text = "\n".join(archive.faults())
    assert "rows.jsonl.xz has not the sha256" in text
    assert "measures.csv: line 2: ideal is 0.700000, its rows give 0.650000" in text


@pytest.mark.parametrize(
    ("name", "old", "new", "what"),
    [
        (
            "measures.csv",
            "0.700000",
            "0.600000",
            "line 2: ideal is 0.600000, its rows give 0.700000",
        ),
        (
            "leaderboard.csv",
            ",0.701500,",
            ",0.601500,",
            "line 2: ideal is 0.601500, its rows give 0.701500",
        ),
        (
            "measures.csv",
            ",erm,0,",
            ",erm,5,",
            "line 2: its rows give no erm of this setting and seed",
        ),
        ("measures.csv", ",algorithm,", ",method,", "it has the columns dataset, "),
    ],
)
def test_a_changed_table_is_found_with_its_checksum_made_anew(
    archive: Any, name: str, old: str, new: str, what: str
) -> None:
    text = (archive.entry / name).read_text()
    assert old in text
    (archive.entry / name).write_text(text.replace(old, new, 1))
    archive.sum_again()
    assert [line for line in archive.faults() if f"{name}: {what}" in line], archive.faults()


def test_another_selection_is_one_line_for_each_table(archive: Any) -> None:
    """Typed into entry.yaml after `pack`, it makes every cell of both tables another one."""
    archive.say(lambda entry: entry.update(selection="train_val"))
    expected = "of selection last and train_val: pack again, or correct entry.yaml"
    tables = [line for line in archive.faults() if "csv: " in line]
    assert tables == [f"tiny: {name}: {expected}" for name in ("measures.csv", "leaderboard.csv")]


def test_measures_of_one_side_alone_are_not_compared(archive: Any) -> None:
    """An entry may be older than a measure, and have one that this installation lacks."""
    table = pd.read_csv(archive.entry / "measures.csv", dtype=str)
    older = table.drop(columns="ideal").assign(cvar="0.5")
    (archive.entry / "measures.csv").write_text(older.to_csv(index=False))
    archive.sum_again()
    assert archive.faults() == []
    (archive.entry / "measures.csv").write_text(
        older.assign(worst=lambda lines: lines["worst"].str.replace("0.6", "0.7")).to_csv(
            index=False
        )
    )
    archive.sum_again()
    assert [line for line in archive.faults() if "measures.csv: line 2: worst is 0.7" in line]


def test_foreign_columns_alone_are_no_table(archive: Any) -> None:
    table = pd.read_csv(archive.entry / "measures.csv", dtype=str)
    names = ["average", "worst", "gap", "worst_gap", "ideal"]
    (archive.entry / "measures.csv").write_text(table.drop(columns=names).to_csv(index=False))
    archive.sum_again()
    one_line(
        *archive.faults(), "tiny: measures.csv: it has the columns .*: neither keys nor measures"
    )


def test_a_line_that_is_there_twice(archive: Any) -> None:
    text = (archive.entry / "measures.csv").read_text()
    (archive.entry / "measures.csv").write_text(text + text.splitlines(keepends=True)[-1])
    archive.sum_again()
    (line,) = archive.faults()
    assert line == "tiny: measures.csv: it has 5 lines, its rows give 4"


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3,4\n", b"\xff\x00\n", b"setting\n"])
def test_a_table_that_is_none(archive: Any, content: bytes) -> None:
    (archive.entry / "measures.csv").write_bytes(content)
    archive.sum_again()
    lines = archive.faults("")
    assert any("measures.csv" in line for line in lines) and not [
        line for line in lines if "\n" in line
    ]
