"""The leaderboard over all entries: who made what, and what may share a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tools.conftest import fill_in, write_study
from tools.results import pack, write_index


def add(archive: Any, tmp_path: Path, name: str, **study: Any) -> str:
    folder, _ = pack(name, [write_study(tmp_path / name, **study)], archive.results)
    fill_in(folder)
    archive.say(lambda content: content.update(who=[{"name": "Ann"}]), folder)
    write_index(archive.results)
    return str((archive.results / "LEADERBOARD.md").read_text())


def test_one_entry(archive: Any) -> None:
    text = (archive.results / "LEADERBOARD.md").read_text()
    assert "## sr_cmnist, digits, exact (code 0.1.0+abcdef0)" in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert (
        lines[0] == "| algorithm | worst+gap (%) | average (%) | ideal (%) | seeds | who | entry |"
    )
    assert lines[2].startswith("| vrex | 44.6 ± 0.2 |") and lines[2].endswith("| 2 | said | tiny |")
    assert lines[3].startswith("| erm | ")
    assert "code: 0.1.0+abcdef0" in text and "files of the dataset: sr_cmnist (digits)" in text


def test_other_code_gets_a_table_of_its_own(archive: Any, tmp_path: Path) -> None:
    text = add(archive, tmp_path, "later", algorithms=("erm", "vrex"), code="0.1.0+7654321")
    assert "## sr_cmnist, digits, exact (code 0.1.0+7654321)" in text
    assert "## sr_cmnist, digits, exact (code 0.1.0+abcdef0)" in text
    assert text.count("| erm |") == 2 and text.count("| Ann | later |") == 2


def test_a_frozen_entry_leaves(archive: Any) -> None:
    archive.say(lambda content: content.update(frozen="a mistake"))
    write_index(archive.results)
    assert "entries are frozen." in (archive.results / "LEADERBOARD.md").read_text()
    measures = (archive.results / "all_measures.csv").read_text().splitlines()
    assert len(measures) == 5 and all(line.startswith("tiny,said,true,") for line in measures[1:])
