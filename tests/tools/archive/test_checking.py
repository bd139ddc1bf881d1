"""Every check finds its tampering, where one thing was changed, and nothing else."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgbench.errors import RecordError
from dgbench.records.spec import RunSpec
from tests.complaints import one_line
from tools.archive import checking
from tools.archive.checking import check_archive
from tools.archive.listing import write_index
from tools.archive.packed_runs import PackedRun, read_packed, write_packed
from tools.archive.packing import pack

ROOT = Path(__file__).resolve().parents[3]


def put(line: PackedRun, key: str, value: Any) -> None:
    """Another value in a line's first row."""
    line["rows"][key][0] = value


def test_nothing_is_wrong_with_what_pack_wrote(archive: Any) -> None:
    assert archive.faults() == archive.faults("") == []


@pytest.mark.thorough
def test_nothing_is_wrong_with_the_archive_of_this_repository() -> None:
    assert check_archive(ROOT / "results") == []


#: (what is changed, how, what is found), where tables, checksums and what is recorded are made anew
CHANGED: list[tuple[str, Callable[[list[PackedRun]], object], str]] = [
    (
        "the specification",
        lambda lines: lines[0]["spec"]["network"].update(width=9),
        "specification hashes to ",
    ),
    (
        "a hyperparameter of the rows",
        lambda lines: lines[0]["run"]["identity"]["hparams"].update(lr=0.01),
        "differ in hparams",
    ),
    (
        "the number of steps",
        lambda lines: lines[0]["run"]["identity"]["hparams"].update(steps=21),
        "differ in hparams",
    ),
    (
        "the variant",
        lambda lines: [line["run"]["identity"]["variant"].update(ratio=4) for line in lines],
        "differ in variant",
    ),
    ("a seed", lambda lines: lines[0]["run"]["identity"].update(seed=7), "differ in seed"),
    (
        "an algorithm's name",
        lambda lines: [
            line["run"]["identity"].update(algorithm="irm")
            for line in lines
            if line["run"]["identity"]["algorithm"] == "erm"
        ],
        "differ in algorithm",
    ),
    ("a run", lambda lines: lines.pop(0), "missing lacks erm seed 0"),
    (
        "the last step",
        lambda lines: (
            lines[0]["rows"].update(step=[10] * 8),
            lines[0]["run"].update(last_step=10),
        ),
        "DONE, but its rows end at step 10 of 20",
    ),
    (
        "code of no commit",
        lambda lines: [
            line["run"]["identity"].update(code="0.1.0+abcdef0-dirty") for line in lines
        ],
        "0.1.0+abcdef0-dirty is in",
    ),
    ("no specification", lambda lines: lines[0].update(spec=None), "specification or sessions"),
    ("no sessions", lambda lines: lines[0].update(sessions=[]), "specification or sessions"),
    (
        "a specification of other code",
        lambda lines: lines[0]["spec"].update(member=1),
        "(TypeError",
    ),
    (
        "a hash of a run",
        lambda lines: lines[0]["run"]["identity"].update(run="0" * 12),
        "its hash is 000000000000",
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "what"), [case[1:] for case in CHANGED], ids=[case[0] for case in CHANGED]
)
def test_what_a_run_says_of_itself_agrees(
    archive: Any, change: Callable[[list[PackedRun]], object], what: str
) -> None:
    archive.forge(change)
    assert [line for line in archive.faults() if what in line], archive.faults()


def test_a_run_that_is_there_twice(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_packed(rows)
    write_packed([*lines, lines[0]], rows)
    archive.sum_again()
    assert any(
        f"run {lines[0]['run']['identity']['run']} is there 2 times" in line
        for line in archive.faults()
    )


def test_a_new_hash_of_a_changed_specification_still_differs_from_the_rows(archive: Any) -> None:
    def change(lines: list[PackedRun]) -> None:
        lines[0]["spec"]["hparams"]["lr"] = 0.1
        lines[0]["run"]["identity"]["run"] = RunSpec(**lines[0]["spec"]).digest

    archive.forge(change)
    assert any("specification differ in hparams" in line for line in archive.faults())


@pytest.mark.parametrize("change", [{"typed": None}, {"typed": [1]}])
def test_a_session_that_is_none(archive: Any, change: dict[str, Any]) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = [json.loads(text) for text in lzma.decompress(rows.read_bytes()).splitlines()]
    lines[1]["sessions"][0].update(change)
    rows.write_bytes(lzma.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    archive.sum_again()
    assert [line for line in archive.faults() if "rows.jsonl.xz:2 is" in line]


def test_files_of_an_entry(archive: Any) -> None:
    (archive.entry / "README.md").write_text("# ???\n")
    (archive.entry / "plot.png").write_bytes(b"")
    (archive.entry / "measures.csv").unlink()
    assert [line.split()[1] for line in archive.faults()][:3] == [
        "measures.csv",
        "plot.png",
        "README.md",
    ]


@pytest.mark.parametrize("content", [b"", b"not packed"])
def test_rows_that_cannot_be_read(archive: Any, content: bytes) -> None:
    (archive.entry / "rows.jsonl.xz").write_bytes(content)
    assert any("rows.jsonl.xz" in line for line in archive.faults())


def test_a_row_that_is_no_row(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_packed(rows)
    put(lines[0], "wrong", 51)
    write_packed(lines, rows)
    archive.sum_again()
    assert any("rows.jsonl.xz:1: counts more" in line for line in archive.faults())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["README.md", "LEADERBOARD.md", "all_measures.csv", "all_leaderboard.csv"]
)
def test_a_generated_file_that_was_changed_is_stale(archive: Any, name: str) -> None:
    (archive.results / name).write_text(
        (archive.results / name).read_text().replace("erm", "mre", 1) + " "
    )
    one_line(*archive.faults(""), f"results: {name} is stale; .*python tools/results.py index")
    assert [path.name for path in write_index(archive.results)] == [name]
    assert archive.faults("") == []


def test_any_byte_of_an_entry_makes_the_index_stale(archive: Any) -> None:
    """The digest: nothing else depends on what a human says."""
    archive.say(lambda content: content.update(notes="something else"))
    faults = archive.faults("")
    one_line(faults[0], "results: README.md is stale; ")
    one_line(*faults[1:], "results: tiny/croissant.json is stale; ")


def test_what_entries_say_of_one_another(archive: Any, study: Path) -> None:
    copy, _ = pack("newer", [study], archive.results)
    for name in ("entry.yaml", "README.md"):
        (copy / name).write_text((archive.entry / name).read_text())
    archive.say(lambda content: content.update(replaces="tiny"), copy)
    lines = archive.faults("")
    assert any(line.startswith("results: newer replaces tiny, ") for line in lines)
    assert any("tiny and newer" in line for line in lines)
    archive.say(lambda content: content.update(frozen="a wrong learning rate"))
    write_index(archive.results)
    assert archive.faults("") == []
    assert (
        "a wrong learning rate. Replaced by newer." in (archive.results / "README.md").read_text()
    )
    archive.say(lambda content: content.update(replaces="absent"), copy)
    assert any(line.startswith("results: newer replaces absent, ") for line in archive.faults(""))


def test_what_does_not_belong_into_an_archive(
    archive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (archive.results / "notes.txt").write_text("hello")
    monkeypatch.setattr(checking, "LARGEST_ARCHIVE", 10)
    of_archive = [line for line in archive.faults("") if line.startswith("results: ")]
    assert of_archive[0].startswith("results: notes.txt is no")
    assert of_archive[1].startswith("results: it is 0.0 MB, more than 0 MB")


def test_no_archive_and_no_such_entry(archive: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="absent holds"):
        check_archive(tmp_path / "absent")
    with pytest.raises(RecordError, match=r"entry huge; .*tiny"):
        check_archive(archive.results, "huge")


def test_what_takes_long_is_counted(
    archive: Any, at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    write_index(archive.results)
    said = capsys.readouterr().err
    assert "reading entries: " in said
