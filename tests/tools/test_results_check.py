"""Every check finds its tampering, where one thing was changed;
nothing is found where nothing was.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgbench.errors import RecordError
from dgbench.records.spec import RunSpec
from tests.complaints import one_line
from tools import results as upkeep
from tools.results import (
    Line,
    check_archive,
    pack,
    read_lines,
    write_index,
    write_lines,
)

ROOT = Path(__file__).resolve().parents[2]


def found(archive: Any, only: str = "tiny") -> list[str]:
    return check_archive(archive.results, only)


def put(line: Line, key: str, value: Any) -> None:
    """Another value in a line's first row."""
    line["rows"][key][0] = value


def test_nothing_is_wrong_with_what_pack_wrote(archive: Any) -> None:
    assert found(archive) == found(archive, "") == []


@pytest.mark.thorough
def test_nothing_is_wrong_with_the_archive_of_this_repository() -> None:
    assert check_archive(ROOT / "results") == []


def test_a_changed_row_is_found_by_the_checksum_and_by_the_numbers(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_lines(rows)
    everywhere = next(line for line in lines if line["run"]["identity"]["fold"] == "full")
    worst = list(zip(everywhere["rows"]["env"], everywhere["rows"]["subset"], strict=True)).index(
        ("1.00", "test")
    )
    everywhere["rows"]["wrong"][worst] = 650.0
    write_lines(lines, rows)
    text = "\n".join(found(archive))
    assert "rows.jsonl.xz has not the sha256" in text
    assert "measures.csv: line 2: ideal is 0.700000, its rows give 0.650000" in text


#: (what is changed, how, what is found), where tables, checksums and what is recorded are made anew
CHANGED: list[tuple[str, Callable[[list[Line]], object], str]] = [
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
    archive: Any, change: Callable[[list[Line]], object], what: str
) -> None:
    archive.forge(change)
    assert [line for line in found(archive) if what in line], found(archive)


def test_a_run_that_is_there_twice(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_lines(rows)
    write_lines([*lines, lines[0]], rows)
    archive.sum_again()
    assert any(
        f"run {lines[0]['run']['identity']['run']} is there 2 times" in line
        for line in found(archive)
    )


def test_a_new_hash_of_a_changed_specification_still_differs_from_the_rows(archive: Any) -> None:
    def change(lines: list[Line]) -> None:
        lines[0]["spec"]["hparams"]["lr"] = 0.1
        lines[0]["run"]["identity"]["run"] = RunSpec(**lines[0]["spec"]).digest

    archive.forge(change)
    assert any("specification differ in hparams" in line for line in found(archive))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda c: c.update(colour="red"), "colour: "),
        (lambda c: c.pop("date"), "date: "),
        (lambda c: c.update(title=3), "title: "),
        (lambda c: c.update(title="two\nlines"), "title: "),
        (lambda c: c.update(title="???"), "title: "),
        (lambda c: c.update(who=[]), "who: "),
        (lambda c: c.update(who=[{"url": "https://x.org"}]), "who.0.name: "),
        (lambda c: c.update(who=[{"name": "A", "mail": "a"}]), "who.0.mail: "),
        (lambda c: c.update(date="yesterday"), "date: "),
        (lambda c: c.update(license="mine"), "license: "),
        (lambda c: c.update(selection="oracle"), "selection: "),
        (lambda c: c.update(obtained={}), "obtained: "),
        (lambda c: c.update(obtained={"mnist": "a download"}), "obtained "),
        (lambda c: c.update(missing="erm"), "missing: "),
        (lambda c: c.update(missing=["x"]), "missing lists "),
        (lambda c: c.update(notes=" "), "notes: is empty"),
        (lambda c: c.update(replaces="../x"), "replaces: "),
        (lambda c: c["recorded"].update(runs=3), "recorded.runs is 3, its runs say 20"),
        (
            lambda c: c["recorded"].update(commands=["x"]),
            'recorded.commands is ["x"], its runs say ["python train.py',
        ),
        (lambda c: c["recorded"].pop("datasets"), "recorded.datasets is null, its runs say "),
        (lambda c: c["sha256"].update({"rows.jsonl.xz": "0"}), "rows.jsonl.xz has not the sha256 "),
        (
            lambda c: c["sha256"].update({"measures.csv": "0" * 64}),
            "measures.csv has not the sha256 ",
        ),
    ],
)
def test_what_entry_yaml_may_not_say(
    archive: Any, change: Callable[[dict[str, Any]], object], key: str
) -> None:
    archive.say(change)
    lines = found(archive)
    assert [line for line in lines if line.startswith(f"tiny: {key}")] and not [
        line for line in lines if "\n" in line
    ]


@pytest.mark.parametrize("content", ["", "- a list", "title: [", "1: x"])
def test_an_entry_yaml_that_is_none(archive: Any, content: str) -> None:
    (archive.entry / "entry.yaml").write_text(content)
    assert found(archive) and not [line for line in found(archive) if "\n" in line]


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
    assert [line for line in found(archive) if f"{name}: {what}" in line], found(archive)


def test_another_selection_is_one_line_for_each_table(archive: Any) -> None:
    """Typed into entry.yaml after `pack`, it makes every cell of both tables another one."""
    archive.say(lambda entry: entry.update(selection="train_val"))
    expected = "of selection last and train_val: pack again, or correct entry.yaml"
    tables = [line for line in found(archive) if "csv: " in line]
    assert tables == [f"tiny: {name}: {expected}" for name in ("measures.csv", "leaderboard.csv")]


def test_measures_of_one_side_alone_are_not_compared(archive: Any) -> None:
    """An entry may be older than a measure, and have one that this installation lacks."""
    table = pd.read_csv(archive.entry / "measures.csv", dtype=str)
    older = table.drop(columns="ideal").assign(cvar="0.5")
    (archive.entry / "measures.csv").write_text(older.to_csv(index=False))
    archive.sum_again()
    assert found(archive) == []
    (archive.entry / "measures.csv").write_text(
        older.assign(worst=lambda lines: lines["worst"].str.replace("0.6", "0.7")).to_csv(
            index=False
        )
    )
    archive.sum_again()
    assert [line for line in found(archive) if "measures.csv: line 2: worst is 0.7" in line]


def test_foreign_columns_alone_are_no_table(archive: Any) -> None:
    table = pd.read_csv(archive.entry / "measures.csv", dtype=str)
    names = ["average", "worst", "gap", "worst_gap", "ideal"]
    (archive.entry / "measures.csv").write_text(table.drop(columns=names).to_csv(index=False))
    archive.sum_again()
    one_line(
        *found(archive), "tiny: measures.csv: it has the columns .*: neither keys nor measures"
    )


def test_a_line_that_is_there_twice(archive: Any) -> None:
    text = (archive.entry / "measures.csv").read_text()
    (archive.entry / "measures.csv").write_text(text + text.splitlines(keepends=True)[-1])
    archive.sum_again()
    (line,) = found(archive)
    assert line == "tiny: measures.csv: it has 5 lines, its rows give 4"


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3,4\n", b"\xff\x00\n", b"setting\n"])
def test_a_table_that_is_none(archive: Any, content: bytes) -> None:
    (archive.entry / "measures.csv").write_bytes(content)
    archive.sum_again()
    lines = found(archive, "")
    assert any("measures.csv" in line for line in lines) and not [
        line for line in lines if "\n" in line
    ]


@pytest.mark.parametrize("change", [{"typed": None}, {"typed": [1]}])
def test_a_session_that_is_none(archive: Any, change: dict[str, Any]) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = [json.loads(text) for text in lzma.decompress(rows.read_bytes()).splitlines()]
    lines[1]["sessions"][0].update(change)
    rows.write_bytes(lzma.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    archive.sum_again()
    assert [line for line in found(archive) if "rows.jsonl.xz:2 is" in line]


def test_files_of_an_entry(archive: Any) -> None:
    (archive.entry / "README.md").write_text("# ???\n")
    (archive.entry / "plot.png").write_bytes(b"")
    (archive.entry / "measures.csv").unlink()
    assert [line.split()[1] for line in found(archive)][:3] == [
        "measures.csv",
        "plot.png",
        "README.md",
    ]


@pytest.mark.parametrize("content", [b"", b"not packed"])
def test_rows_that_cannot_be_read(archive: Any, content: bytes) -> None:
    (archive.entry / "rows.jsonl.xz").write_bytes(content)
    assert any("rows.jsonl.xz" in line for line in found(archive))


def test_a_row_that_is_no_row(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_lines(rows)
    put(lines[0], "wrong", 51)
    write_lines(lines, rows)
    archive.sum_again()
    assert any("rows.jsonl.xz:1: counts more" in line for line in found(archive))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["README.md", "LEADERBOARD.md", "all_measures.csv", "all_leaderboard.csv"]
)
def test_a_generated_file_that_was_changed_is_stale(archive: Any, name: str) -> None:
    (archive.results / name).write_text(
        (archive.results / name).read_text().replace("erm", "mre", 1) + " "
    )
    one_line(*found(archive, ""), f"results: {name} is stale; .*python tools/results.py index")
    assert [path.name for path in write_index(archive.results)] == [name]
    assert found(archive, "") == []


def test_any_byte_of_an_entry_makes_the_index_stale(archive: Any) -> None:
    """The digest: nothing else depends on what a human says."""
    archive.say(lambda content: content.update(notes="something else"))
    faults = found(archive, "")
    one_line(faults[0], "results: README.md is stale; ")
    one_line(*faults[1:], "results: tiny/croissant.json is stale; ")


def test_what_entries_say_of_one_another(archive: Any, study: Path) -> None:
    copy, _ = pack("newer", [study], archive.results)
    for name in ("entry.yaml", "README.md"):
        (copy / name).write_text((archive.entry / name).read_text())
    archive.say(lambda content: content.update(replaces="tiny"), copy)
    lines = found(archive, "")
    assert any(line.startswith("results: newer replaces tiny, ") for line in lines)
    assert any("tiny and newer" in line for line in lines)
    archive.say(lambda content: content.update(frozen="a wrong learning rate"))
    write_index(archive.results)
    assert found(archive, "") == []
    assert (
        "a wrong learning rate. Replaced by newer." in (archive.results / "README.md").read_text()
    )
    archive.say(lambda content: content.update(replaces="absent"), copy)
    assert any(line.startswith("results: newer replaces absent, ") for line in found(archive, ""))


def test_what_does_not_belong_into_an_archive(
    archive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (archive.results / "notes.txt").write_text("hello")
    monkeypatch.setattr(upkeep, "LARGEST_ARCHIVE", 10)
    of_archive = [line for line in found(archive, "") if line.startswith("results: ")]
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
