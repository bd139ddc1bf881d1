"""What READMEs of the archive, and some pages, state follows from rows: a number that drifts from
them fails here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.results.statements import NAMED, RESULTS, rows_of, said

STATEMENTS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("statements.yaml").read_text(encoding="utf-8")
)


def text_of(entry: str) -> str:
    """Read the README of an entry, or the page of that path, on one line."""
    page = RESULTS.parent / entry if entry.endswith(".md") else RESULTS / entry / "README.md"
    return " ".join(page.read_text(encoding="utf-8").split())


def false_statements(entry: str, text: str) -> list[str]:
    """List the statements that a README does not make with the numbers that the rows give."""
    written = [" ".join(said(entry, statement).split()) for statement in STATEMENTS[entry]]
    return [statement for statement in written if statement not in text]


def test_every_entry_states_something() -> None:
    entries = {path.parent.name for path in RESULTS.glob("*/entry.yaml")}
    assert entries == {name for name in STATEMENTS if not name.endswith(".md")}
    named = {name for lines in STATEMENTS.values() for line in lines for name, *_ in line["values"]}
    assert named <= set(NAMED)


@pytest.mark.thorough
@pytest.mark.parametrize("entry", sorted(STATEMENTS))
def test_what_a_readme_states_is_what_its_rows_give(entry: str) -> None:
    assert false_statements(entry, text_of(entry)) == []


def test_a_number_that_drifts_is_found() -> None:
    """One digit of a README changes, and one row."""
    entry = "pacs_ft"
    assert false_statements(entry, text_of(entry)) == []
    [drifted] = false_statements(entry, text_of(entry).replace("70.5 to 81.6 %", "71 to 81 %"))
    assert drifted == "Training-domain validation is 70.5 to 81.6 %"
    rows = rows_of(entry, {"selection": "train_val"})
    before = NAMED["accuracy"][0](rows, "erm", "photo")
    worse = rows.errors.assign(error=rows.errors["error"].where(rows.errors["env"] != "photo", 0.5))
    assert (
        NAMED["accuracy"][0](type(rows)(worse, rows.measures, rows.entries), "erm", "photo")
        == 50.0
        != before
    )
