"""The leaderboard over all entries: who made what, and what may share a table."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.tools.conftest import fill_in, write_study
from tools.archive.listing import write_index
from tools.archive.packing import pack


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
    titles = "algorithm | worst+gap (%) | average (%) | ideal (%) | seeds | who | entry | verified"
    assert lines[0] == f"| {titles} |"
    assert lines[2].startswith("| vrex | 44.6 ± 0.2 |")
    assert lines[2].endswith("| 2 | said | tiny | yes |")
    assert lines[3].startswith("| erm | ")
    assert "code: 0.1.0+abcdef0" in text and "files of the dataset: sr_cmnist (digits)" in text


def test_numbers_that_their_rows_do_not_give_are_not_verified(archive: Any) -> None:
    measures = archive.entry / "measures.csv"
    lines = measures.read_text().splitlines(keepends=True)
    measures.write_text("".join([lines[0], re.sub(r"0\.\d{6}", "0.123456", lines[1]), *lines[2:]]))
    write_index(archive.results)
    text = (archive.results / "LEADERBOARD.md").read_text()
    assert "| said | tiny | no |" in text and "| yes |" not in text
    assert "| current | no |" in (archive.results / "README.md").read_text()


def test_croissant_says_what_the_files_hold(archive: Any) -> None:
    described = json.loads((archive.entry / "croissant.json").read_text())
    assert described["name"] == "tiny"
    assert [file["contentUrl"] for file in described["distribution"]] == [
        "rows.jsonl.xz",
        "measures.csv",
        "leaderboard.csv",
    ]
    for file in described["distribution"]:
        content = (archive.entry / file["contentUrl"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
    fields = {field["@id"]: field["dataType"] for field in described["recordSet"][0]["field"]}
    assert fields["measures/algorithm"] == "sc:Text"
    assert fields["measures/worst_gap"] == "sc:Float"


@pytest.mark.filterwarnings(
    "ignore:ConjunctiveGraph is deprecated:DeprecationWarning"
)  # mlcroissant
def test_croissant_is_what_its_library_reads(archive: Any) -> None:
    croissant = pytest.importorskip("mlcroissant")
    dataset = croissant.Dataset(jsonld=archive.entry / "croissant.json")
    assert not dataset.metadata.issues.errors
    lines = list(dataset.records("leaderboard"))
    board = pd.read_csv(archive.entry / "leaderboard.csv")
    values = [line["leaderboard/worst_gap"] for line in lines]
    assert values == pytest.approx(board["worst_gap"].tolist())


def test_other_code_gets_a_table_of_its_own(archive: Any, tmp_path: Path) -> None:
    text = add(archive, tmp_path, "later", algorithms=("erm", "vrex"), code="0.1.0+7654321")
    assert "## sr_cmnist, digits, exact (code 0.1.0+7654321)" in text
    assert "## sr_cmnist, digits, exact (code 0.1.0+abcdef0)" in text
    assert text.count("| erm |") == 2 and text.count("| Ann | later | yes |") == 2


def test_a_frozen_entry_leaves(archive: Any) -> None:
    archive.say(lambda content: content.update(frozen="a mistake"))
    write_index(archive.results)
    assert "entries are frozen." in (archive.results / "LEADERBOARD.md").read_text()
    measures = (archive.results / "all_measures.csv").read_text().splitlines()
    assert len(measures) == 5 and all(line.startswith("tiny,said,true,") for line in measures[1:])
