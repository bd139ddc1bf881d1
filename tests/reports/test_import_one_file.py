"""One file that holds the records of many runs of DomainBed gives what their folders give."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgbench.errors import RecordError
from dgbench.reports.importers.domainbed import read_domainbed
from dgbench.reports.importers.domainbed_records import lines_of_runs
from dgbench.reports.reading.collect import Collection
from tests.reports.test_import_domainbed import make_sweep, record, write_run

STEPS = (0, 300, 600)


def text_of(folder: Path) -> str:
    """Write the records of all runs of a folder one after the other, as ``cat`` does."""
    return "".join(file.read_text() for file in sorted(folder.rglob("results.jsonl")))


def read(file: Path) -> Collection:
    return read_domainbed(file, require_done=False)


def values(collection: Collection) -> pd.DataFrame:
    """List every accuracy by what its run is, whatever order the runs were read in."""
    names = {number: run.identity["run"] for number, run in enumerate(collection.runs)}
    frame = collection.rows[["run", "step", "env", "subset", "accuracy"]]
    frame = frame.assign(run=frame["run"].map(names)).astype({"env": str, "subset": str})
    return frame.sort_values(["run", "step", "env", "subset"], ignore_index=True)


def identities(collection: Collection) -> dict[str, Any]:
    return {run.identity["run"]: run.identity for run in collection.runs}


def said(collection: Collection) -> str:
    return " ".join(
        f"{problem.kind} {problem.where} {problem.reason};" for problem in collection.problems
    )


def two_runs() -> list[str]:
    """Write three records of each of two runs, of which the first is ERM's."""
    lines = []
    for place, name in enumerate(("ERM", "VREx")):
        for step in STEPS:
            accuracies = [0.5 + 0.1 * place + step / 10_000] * 8
            text = json.dumps(record(step, accuracies, algorithm=name), sort_keys=True)
            lines.append(text + "\n")
    return lines


def test_a_file_is_read_as_its_folders(tmp_path: Path) -> None:
    """With accuracies that are NaN, ties, and records that lack."""
    make_sweep(tmp_path / "sweep", ("PACS",))
    file = tmp_path / "all.jsonl"
    file.write_text(text_of(tmp_path / "sweep"))
    apart = read_domainbed(tmp_path / "sweep")
    together = read(file)
    assert identities(apart) == identities(together)
    pd.testing.assert_frame_equal(values(apart), values(together))
    assert f"{len(apart.runs)} runs without done markers" in said(together)


def _unsorted(lines: list[str]) -> list[str]:
    """Write every second record with ``args`` last."""
    changed = []
    for number, line in enumerate(lines):
        content = json.loads(line)
        if number % 2:
            content["args"] = content.pop("args")
        changed.append(json.dumps(content, sort_keys=not number % 2) + "\n")
    return changed


@pytest.mark.parametrize(
    "change",
    [_unsorted, lambda lines: [line.replace(": ", ":") for line in lines]],
    ids=["keys in another order", "no spaces"],
)
def test_other_writers_are_read_too(
    change: Callable[[list[str]], list[str]], tmp_path: Path
) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(two_runs()))
    other = tmp_path / "other.jsonl"
    other.write_text("".join(change(two_runs())))
    assert len(read(plain).runs) == 2
    pd.testing.assert_frame_equal(values(read(plain)), values(read(other)))


def test_a_folder_that_holds_such_a_file_is_sent_to_it(tmp_path: Path) -> None:
    """It was one run, and all lines but its own were dropped."""
    make_sweep(tmp_path / "sweep", ("PACS",))
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "results.jsonl").write_text(text_of(tmp_path / "sweep"))
    with pytest.raises(RecordError) as refusal:
        read_domainbed(folder, require_done=False)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(
        "results.jsonl holds the records of many runs; name the file itself: "
        f"import.path={folder / 'results.jsonl'} import.require_done=false"
    )
    assert len(read(folder / "results.jsonl").runs) > 2


@pytest.mark.parametrize("odd", [1, 3])
def test_lines_of_one_other_run_do_not_make_many_runs_of_a_folder(odd: int, tmp_path: Path) -> None:
    lines = two_runs()
    (tmp_path / "results.jsonl").write_text("".join(lines[: 3 + odd]))
    collection = read_domainbed(tmp_path, require_done=False)
    assert len(collection.runs) == 1
    assert said(collection).count("other args than the lines before") == odd


@pytest.mark.parametrize("place", [0, 1, 3, 5])
def test_a_damaged_line_costs_itself_alone(place: int, tmp_path: Path) -> None:
    lines = two_runs()
    lines[place] = lines[place][:-40] + "\n"
    file = tmp_path / "all.jsonl"
    file.write_text("".join(lines))
    collection = read(file)
    assert len(collection.runs) == 2
    assert len(collection.rows) == 5 * 8
    assert f"line {place + 1}" in said(collection) or f":{place + 1}" in said(collection)
    assert "duplicate" not in said(collection)


def test_a_first_record_that_cannot_be_used_costs_itself_alone(tmp_path: Path) -> None:
    """What the lines repeat is not parsed again, and is not lost with the first one."""
    lines = two_runs()
    lines[3] = lines[3].replace('"step": 0', '"step": -1')
    file = tmp_path / "all.jsonl"
    file.write_text("".join(lines))
    collection = read(file)
    assert [run.identity["algorithm"] for run in collection.runs] == ["erm", "vrex"]
    assert len(collection.rows) == 5 * 8
    assert "dropped line" in said(collection) and "all.jsonl:4 step is -1" in said(collection)


@pytest.mark.parametrize(
    "change",
    [
        ('"env1_in_acc": 0.5', '"env1_in_acc": "0.5"'),
        ('"env1_in_acc": 0.5', '"env1_in_acc": true'),
        ('"env1_in_acc": 0.5', '"env1_in_acc": NaN'),
        ('"env1_in_acc": 0.5', '"env1_in_acc": 5'),
        ('"step": 300', '"step": 300.0'),
        ('"step": 300', '"step": 0'),
    ],
)
def test_lines_parsed_together_say_what_each_says_apart(
    change: tuple[str, str], tmp_path: Path
) -> None:
    """One odd line within a run: the same records and the same faults as in its folder."""
    lines = [
        line.replace(*change) if number == 1 else line for number, line in enumerate(two_runs())
    ]
    assert lines != two_runs()
    for number, part in enumerate((lines[:3], lines[3:])):
        (tmp_path / "apart" / str(number)).mkdir(parents=True)
        (tmp_path / "apart" / str(number) / "results.jsonl").write_text("".join(part))
    file = tmp_path / "all.jsonl"
    file.write_text("".join(lines))
    apart = read(tmp_path / "apart")
    together = read(file)
    pd.testing.assert_frame_equal(values(apart), values(together))
    reasons = [
        sorted((p.kind, p.reason) for p in collection.problems if p.kind.startswith("dropped"))
        for collection in (apart, together)
    ]
    assert reasons[0] == reasons[1]


def test_a_second_training_stays_with_its_first(tmp_path: Path) -> None:
    """As train_autolr.py writes it: its last accuracies are the result."""
    first = record(0, [0.5] * 8, auto_lr=True, holdout_fraction=0.2)
    second = {"args": {**first["args"], "holdout_fraction": 0.0}, "step": 300}
    second |= {f"fd_env{place}_in_acc": 0.9 for place in range(4)}
    other = record(0, [0.7] * 8, algorithm="VREx")
    file = tmp_path / "all.jsonl"
    texts = [json.dumps(line, sort_keys=True) for line in (first, second, other)]
    file.write_text("\n".join(texts) + "\n")
    write_run(tmp_path / "apart/0", [first, second])
    write_run(tmp_path / "apart/1", [other])
    collection = read(file)
    assert len(collection.runs) == 2
    pd.testing.assert_frame_equal(values(collection), values(read_domainbed(tmp_path / "apart")))


def test_a_run_that_is_there_twice_is_named(tmp_path: Path) -> None:
    lines = two_runs()
    file = tmp_path / "all.jsonl"
    file.write_text("".join([*lines, *lines[:2]]))
    collection = read(file)
    assert len(collection.runs) == 2 and len(collection.rows) == 6 * 8
    assert "all.jsonl:7 same run as " in said(collection)


def test_a_run_is_given_before_the_next_one_is_read() -> None:
    """A file may be larger than memory."""
    taken = []

    def handle() -> Iterator[bytes]:
        for line in two_runs():
            taken.append(line)
            yield line.encode()

    start, lines, _ = next(lines_of_runs(handle()))
    assert (start, len(lines), len(taken)) == (1, 3, 4)


def test_what_is_no_such_file_is_refused_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    file.write_text("".join(two_runs()))
    with pytest.raises(RecordError, match=r"no done markers; add import\.require_done=false"):
        read_domainbed(file)
    file.write_text("")
    with pytest.raises(RecordError, match=r"holds no run of DomainBed.*it is empty"):
        read(file)
    file.write_text('{"accuracy": 0.5}\n')
    with pytest.raises(RecordError, match=r"holds no run of DomainBed.*first fault.*lacks args"):
        read(file)
