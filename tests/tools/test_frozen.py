"""The command that compares what two checkouts give; what it records of one takes too long for a
test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools import frozen

ROOT = Path(__file__).resolve().parents[2]
CELLS = {
    "entry": {
        "words": "report",
        "tables": {"measures": {"lines": [{"worst": "0.3", "name": "erm"}]}},
    }
}


def compare(tmp_path: Path, second: object, *words: str) -> subprocess.CompletedProcess[str]:
    """Compare a record of CELLS with another."""
    for name, entries in (("first", CELLS), ("second", second)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cells.json").write_text(json.dumps(entries))
    command = [
        sys.executable,
        str(ROOT / "tools/frozen.py"),
        "compare",
        str(tmp_path / "first"),
        str(tmp_path / "second"),
    ]
    return subprocess.run([*command, "--only", "cells", *words], capture_output=True, text=True)


def changed(old: str, new: str) -> object:
    return json.loads(json.dumps(CELLS).replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "words", "code"),
    [
        ("0.3", "0.3", (), 0),
        ("0.3", "0.3000000000001", (), 0),
        ("0.3", "0.30000001", (), 1),
        ("erm", "vrex", (), 1),
        ("erm", "vrex", ("--same", "erm=vrex"), 0),
        ("erm", "vrex", ("--ignore", "name"), 0),
        ('"worst"', '"average"', (), 1),
        ("report", "dgbench.reports.tables.Table 0123456789ab", ("--renamed",), 1),
    ],
)
def test_differences_are_named(
    tmp_path: Path, old: str, new: str, words: tuple[str, ...], code: int
) -> None:
    answer = compare(tmp_path, changed(old, new), *words)
    assert (answer.returncode, ("0 differ" in answer.stdout)) == (code, not code), answer


def test_a_renamed_module_or_hash_is_none(tmp_path: Path) -> None:
    former, current = (
        frozen.stripped({"name": f"run {run} of dgbench.{module}.Table"}, [], renamed=True)
        for run, module in (("0123456789ab", "models.own"), ("ab0123456789", "trained"))
    )
    assert former == current == {"name": "run NAME of NAME.Table"}


def test_settings_name_every_algorithm() -> None:
    listed = frozen.SETTINGS["words"]["ALGORITHMS"].strip("[]").replace(" ", "").split(",")
    assert sorted(listed) == sorted(file.stem for file in (ROOT / "conf/algorithm").glob("*.yaml"))


def test_random_configurations_are_the_same_for_the_same_number() -> None:
    drawn = [frozen.random_words(number) for number in range(30)]
    assert drawn == [frozen.random_words(number) for number in range(30)]
    assert all("$" not in word and "<" not in word for words in drawn for word in words)
