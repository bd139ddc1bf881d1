"""Every check finds its tampering, where one thing was changed; nothing is found where nothing was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgbench.errors import RecordError
from dgbench.records.spec import RunSpec
from dgbench.reports.archive import check as archive_check
from dgbench.reports.archive.check import check_archive
from dgbench.reports.archive.entries import read_lines, write_lines
from dgbench.reports.archive.index import write_index

ROOT = Path(__file__).resolve().parents[3]
Change = Callable[[list[Any]], object]


def found(archive: Any, only: str = "tiny") -> list[str]:
    return [str(finding) for finding in check_archive(archive.results, only)]


def full(lines: list[Any]) -> Any:
    """ERM, seed 0, the model of all environments."""
    return next(line for line in lines if line["run"]["identity"]["fold"] == "full")


def at(line: Any, env: str, subset: str = "test") -> int:
    return list(zip(line["rows"]["env"], line["rows"]["subset"], strict=True)).index((env, subset))


def put(line: Any, key: str, env: str, value: Any, subset: str = "test") -> None:
    line["rows"][key][at(line, env, subset)] = value


def drop_row(line: Any, env: str, subset: str) -> None:
    where = at(line, env, subset)
    for column in line["rows"].values():
        del column[where]
    line["run"]["row_count"] -= 1


def test_nothing_is_wrong_with_what_pack_wrote(archive: Any) -> None:
    assert found(archive) == found(archive, "") == []


def test_nothing_is_wrong_with_the_archive_of_this_repository() -> None:
    assert [str(finding) for finding in check_archive(ROOT / "results")] == []


def test_a_changed_count_is_seen_three_times_over(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_lines(rows)
    put(full(lines), "wrong", "1.00", 650.0)
    write_lines(lines, rows)
    text = "\n".join(found(archive))
    assert "rows.jsonl.xz has sha256 " in text
    assert "measures.csv: sr_cmnist, digits, exact: erm seed 0: ideal is 0.700000, its rows give 0.650000" in text
    assert "1.00 test: wrong is 650, the line through the other environments gives 700 (off by -50)" in text


FORGED: list[tuple[str, Change, str]] = [
    ("a count of the model of all environments", lambda lines: put(full(lines), "wrong", "0.50", 400.5),
     "fold full): step 20: 0.50 test: wrong is 400.5, the line through the other environments gives 400"),
    ("a count of another fold", lambda lines: put(lines[0], "wrong", "0.8250", 300.0),
     "fold 0): step 20: 0.8250 test: wrong is 300, the line through the other environments gives 595"),
    ("a loss", lambda lines: put(full(lines), "loss", "0.30", 0.671), "0.30 test: loss is 0.671, the line through"),
    ("a loss to a negative one", lambda lines: put(lines[0], "loss", "0.10", -1.0, "val"),
     "0.10 val: loss is -1.0, cross entropy is not negative"),
    ("all counts of a run by one factor",
     lambda lines: full(lines)["rows"].update(
         wrong=[w if s == "val" else 0.9991 * w for w, s in zip(
             full(lines)["rows"]["wrong"], full(lines)["rows"]["subset"], strict=True)]),
     "wrong would be 99.9100 at e = 0 and 699.3700 at e = 1, no whole numbers of images"),
    ("no test at e = 0", lambda lines: [drop_row(line, "0.00", "test") for line in lines if len(
        line["rows"]["env"]) > 10], "no test row at e = 0 or e = 1"),
    ("a sampled count", lambda lines: put(lines[0], "wrong", "0.10", 8.5, "val"),
     "0.10 val: wrong is 8.5, no whole number of images"),
    ("the specification", lambda lines: lines[0]["spec"]["network"].update(width=9), "its specification hashes to "),
    ("a hyperparameter of the rows", lambda lines: lines[0]["run"]["identity"]["hparams"].update(lr=0.01),
     "its rows and its specification differ in hparams.lr"),
    ("the number of steps", lambda lines: lines[0]["run"]["identity"]["hparams"].update(steps=21),
     "its rows and its specification differ in hparams.steps"),
    ("the variant", lambda lines: [line["run"]["identity"]["variant"].update(ratio=4) for line in lines],
     "its rows and its specification differ in variant.ratio"),
    ("the seed", lambda lines: [line["run"]["identity"].update(seed=7) for line in lines if line["run"]["identity"][
        "seed"] == 1], "its rows and its specification differ in seed"),
    ("an algorithm's name", lambda lines: [line["run"]["identity"].update(algorithm="irm") for line in lines if line[
        "run"]["identity"]["algorithm"] == "erm"], "its rows and its specification differ in algorithm"),
    ("a flag", lambda lines: put(lines[0], "env_held_out", "0.10", True, "val"),
     "0.10 val: env_held_out is true, its fold says otherwise"),
    ("the images of one run", lambda lines: put(lines[0], "seen", "0.10", 51, "val"),
     "images of 0.10 val: 51, most runs like it have 50"),
    ("a row", lambda lines: drop_row(lines[0], "0.10", "val"),
     "val environments at the last step: it lacks 0.10 and has none besides those of most runs like it"),
    ("an environment's name", lambda lines: put(lines[0], "env", "0.10", "0.11", "val"),
     "val environments at the last step: it lacks 0.10 and has 0.11 besides"),
    ("a number of parameters", lambda lines: lines[0]["run"]["identity"].update(n_parameters=7),
     "n_parameters: null, most runs like it have 7"),
    ("whether other environments exist", lambda lines: lines[0]["run"]["identity"].update(beyond=False),
     "beyond: false, most runs like it have true"),
    ("a run", lambda lines: lines.pop(0),
     "missing does not list: sr_cmnist, digits, exact: erm seed 0: fold 0: no rows"),
    ("the last step", lambda lines: (lines[0]["rows"].update(step=[10] * 8), lines[0]["run"].update(last_step=10)),
     "it is DONE, its last row is of step 10 of 20"),
    ("code of no commit", lambda lines: [line["run"]["identity"].update(code="0.1.0+abcdef0-dirty") for line in lines],
     "its code 0.1.0+abcdef0-dirty is in no commit"),
    ("code of no session", lambda lines: [line["run"]["identity"].update(code="0.1.0+1") for line in lines],
     "its rows are of code 0.1.0+1, none of its sessions is"),
    ("a folder of a machine", lambda lines: lines[0]["sessions"][0]["typed"].append("dataset.root=/disk/ann/PACS"),
     "it names a folder of one machine: dataset.root=/disk/ann/PACS"),
    ("no specification", lambda lines: lines[0].pop("spec"), "it has no specification"),
    ("no sessions", lambda lines: lines[0].pop("sessions"), "it does not say with what code and packages"),
    ("a specification of other code", lambda lines: lines[0]["spec"].update(member=1),
     "its specification is none of this code (TypeError"),
    ("other files of the dataset",
     lambda lines: [part.update(content="beef") for part in (lines[0]["run"]["identity"], lines[0]["spec"]["dataset"])],
     "is of 2 versions of its files (beef, feed)"),
    ("a hash of a run",
     lambda lines: lines[0]["run"]["identity"].update(run="0" * 12), "its hash is 000000000000"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "what"), [case[1:] for case in FORGED], ids=[case[0] for case in FORGED])
def test_a_careful_forger_is_found(archive: Any, change: Change, what: str) -> None:
    """Checksums, tables and what is recorded were made anew after the change."""
    archive.forge(change)
    assert [line for line in found(archive) if what in line], found(archive)


def test_a_run_that_is_there_twice(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_lines(rows)
    write_lines([*lines, lines[0]], rows)
    archive.sum_again()
    run = lines[0]["run"]["identity"]["run"]
    assert any(f"run {run} is there 2 times" in line for line in found(archive))


def test_a_new_hash_of_a_changed_specification_still_differs_from_the_rows(archive: Any) -> None:
    def change(lines: list[Any]) -> None:
        lines[0]["spec"]["hparams"]["lr"] = 0.1
        lines[0]["run"]["identity"]["run"] = RunSpec(**lines[0]["spec"]).digest

    archive.forge(change)
    assert any("its rows and its specification differ in hparams.lr" in line for line in found(archive))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda c: c.update(colour="red"), 'key "colour" is unknown; keys are title, who'),
        (lambda c: c.pop("date"), "key date is missing"),
        (lambda c: c.update(title=3), "title is 3, not text"),
        (lambda c: c.update(title="???"), "title is not filled in: replace ???"),
        (lambda c: c.update(who=[]), "who is no list of people"),
        (lambda c: c.update(who=[{"url": "https://x.org"}]), "who has a person without a name"),
        (lambda c: c.update(who=[{"name": "A", "mail": "a"}]), 'who has "mail", a person has name, affiliation, url'),
        (lambda c: c.update(date="yesterday"), 'date is "yesterday", not a day such as 2026-11-23'),
        (lambda c: c.update(license="mine"), 'license is "mine", none of CC-BY-4.0, CC0-1.0, MIT'),
        (lambda c: c.update(selection="oracle"), 'selection is "oracle", none of last, train_val, loo_val'),
        (lambda c: c.update(obtained={}), "obtained is empty"),
        (lambda c: c.update(obtained={"mnist": "a download"}), "obtained does not say how digits was obtained"),
        (lambda c: c.update(missing="erm"), 'missing is "erm", not a list'),
        (lambda c: c.update(missing=["x"]), "missing lists what is there: x"),
        (lambda c: c.update(notes=" "), "notes is empty"),
        (lambda c: c.update(replaces="../x"), 'replaces is "../x", no name of an entry'),
        (lambda c: c["recorded"].pop("hours"), "recorded does not have the keys code, commands"),
        (lambda c: c["recorded"].update(hours="long"), 'recorded hours is "long", no hours'),
        (lambda c: c["recorded"].update(hours=0.01), "recorded.hours is 0.01, its runs say 0.25"),
        (lambda c: c["recorded"].update(code=["1"]), 'recorded.code is ["1"], its runs say ["0.1.0+abcdef0"]'),
        (lambda c: c["recorded"]["packages"].update(torch=["3.0"]), "recorded.packages is "),
        (lambda c: c["sha256"].update({"rows.jsonl.xz": "0"}), "sha256 of rows.jsonl.xz is no sha256"),
        (lambda c: c["sha256"].update({"measures.csv": "0" * 64}), "measures.csv has sha256 "),
    ],
)  # fmt: skip
def test_what_entry_yaml_may_not_say(archive: Any, change: Callable[[dict[str, Any]], object], what: str) -> None:
    archive.say(change)
    assert [line for line in found(archive) if line.startswith(f"tiny: {what}")], found(archive)


@pytest.mark.parametrize(
    ("name", "old", "new", "what"),
    [
        ("measures.csv", "0.700000", "0.600000", "erm seed 0: ideal is 0.600000, its rows give 0.700000 (off by -0.1"),
        ("leaderboard.csv", ",0.701500,", ",0.601500,", "erm: ideal is 0.601500, its rows give 0.701500"),
        ("measures.csv", ",erm,0,", ",erm,5,", "erm seed 5 is there, its rows give no such line"),
        ("measures.csv", ",erm,0,", ",erm,5,", "erm seed 0 is missing"),
        ("measures.csv", "ideal_env", "worst_env", "its columns are setting, "),
    ],
)
def test_a_changed_table_is_found_with_its_checksum_made_anew(
    archive: Any, name: str, old: str, new: str, what: str
) -> None:
    text = (archive.entry / name).read_text()
    assert old in text
    (archive.entry / name).write_text(text.replace(old, new, 1))
    archive.sum_again()
    assert [line for line in found(archive) if what in line and f"{name}: " in line], found(archive)


def test_a_line_that_is_there_twice(archive: Any) -> None:
    text = (archive.entry / "measures.csv").read_text()
    (archive.entry / "measures.csv").write_text(text + text.splitlines(keepends=True)[-1])
    archive.sum_again()
    assert found(archive) == ["tiny: measures.csv: a line is there twice"]


def test_files_of_an_entry(archive: Any) -> None:
    (archive.entry / "README.md").write_text("# ???\n")
    (archive.entry / "plot.png").write_bytes(b"")
    (archive.entry / "measures.csv").unlink()
    assert [line.removeprefix("tiny: ") for line in found(archive)][:3] == [
        "measures.csv is missing",
        "plot.png is no file of an entry; remove it",
        "README.md is not filled in: replace ??? (1 times)",
    ]


@pytest.mark.parametrize("content", [b"", b"not packed"])
def test_rows_that_cannot_be_read(archive: Any, content: bytes) -> None:
    (archive.entry / "rows.jsonl.xz").write_bytes(content)
    assert any("rows.jsonl.xz" in line for line in found(archive))


def test_a_row_that_is_no_row(archive: Any) -> None:
    rows = archive.entry / "rows.jsonl.xz"
    lines = read_lines(rows)
    put(lines[0], "wrong", "0.10", 51, "val")
    write_lines(lines, rows)
    archive.sum_again()
    assert any("rows.jsonl.xz:1: counts more images wrong than seen" in line for line in found(archive))


@pytest.mark.parametrize("name", ["README.md", "LEADERBOARD.md", "all_measures.csv", "all_leaderboard.csv"])
def test_a_generated_file_that_was_changed_is_stale(archive: Any, name: str) -> None:
    (archive.results / name).write_text((archive.results / name).read_text().replace("erm", "mre", 1) + " ")
    assert found(archive, "") == [f"results: {name} is stale; write it with `dgbench results index`"]
    assert [path.name for path in write_index(archive.results)] == [name]
    assert found(archive, "") == []


def test_any_byte_of_an_entry_makes_the_index_stale(archive: Any) -> None:
    """The digest: nothing else depends on what a human says."""
    archive.say(lambda content: content.update(notes="something else"))
    assert found(archive, "") == ["results: README.md is stale; write it with `dgbench results index`"]


def test_what_entries_say_of_one_another(archive: Any, study: Path) -> None:
    from dgbench.reports.archive.entries import pack

    copy, _ = pack("newer", [study], archive.results)
    for name in ("entry.yaml", "README.md"):
        (copy / name).write_text((archive.entry / name).read_text())
    archive.say(lambda content: content.update(replaces="tiny"), copy)
    lines = found(archive, "")
    assert "results: newer replaces tiny, which does not say frozen: and why" in lines
    assert any("tiny and newer both hold run " in line for line in lines)
    archive.say(lambda content: content.update(frozen="a wrong learning rate"))
    write_index(archive.results)
    assert found(archive, "") == []
    assert "- tiny: a wrong learning rate. Replaced by newer." in (archive.results / "README.md").read_text()
    archive.say(lambda content: content.update(replaces="absent"), copy)
    assert "results: newer replaces absent, which is no entry" in found(archive, "")


def test_what_does_not_belong_into_an_archive(archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (archive.results / "notes.txt").write_text("hello")
    monkeypatch.setattr(archive_check, "LARGEST", 10)
    first, second = found(archive, "")
    assert first.startswith("results: notes.txt is no entry (no entry.yaml in it) and no file of the archive")
    assert second.startswith("results: it is 0.0 MB, more than 0 MB")


def test_no_archive_and_no_such_entry(archive: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="absent holds no entries; name the folder of an archive"):
        check_archive(tmp_path / "absent")
    with pytest.raises(RecordError, match="has no entry huge; it has tiny"):
        check_archive(archive.results, "huge")
