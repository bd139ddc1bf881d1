"""An array made once: in parallel, by whom it may be, whatever interrupts it."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgbench.data.store.array_cache import COMPLETE, DATA, PROGRESS, cached_array
from dgbench.errors import DataError

SHAPE = (10, 2)


class Producer:
    """Row i is [i, 2 i]; remembers which chunks it was asked for."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.asked: list[int] = []
        self.breaks_at = breaks_at

    def __call__(self, first: int, end: int) -> tuple[np.ndarray, Any]:
        self.asked.append(first)
        if first == self.breaks_at:
            raise RuntimeError("the power went out")
        i = np.arange(first, end)
        return np.stack([i, 2 * i], 1).astype(np.uint8), {"rows": end - first}


EXPECTED = [[i, 2 * i] for i in range(10)]


def make(folder: Path, produce: Any, workers: int = 1) -> Any:
    return cached_array(folder, SHAPE, produce, chunk=4, workers=workers, title="test")


@pytest.mark.parametrize("workers", [1, 3])
def test_made_once(tmp_path: Path, workers: int) -> None:
    first, second = Producer(), Producer()
    done = make(tmp_path / "a", first, workers)
    assert done.loaded().tolist() == EXPECTED
    assert done.mapped().check().tolist() == EXPECTED
    assert sorted(first.asked) == [0, 4, 8]
    assert [(at, note) for at, _, note in done.notes] == [
        (0, {"rows": 4}),
        (4, {"rows": 4}),
        (8, {"rows": 2}),
    ]
    again = make(tmp_path / "a", second)
    assert again.loaded().tolist() == EXPECTED
    assert second.asked == []


def test_what_is_written_to_the_mapping_stays_in_memory(tmp_path: Path) -> None:
    done = make(tmp_path / "a", Producer())
    done.mapped().array[0, 0] = 99
    assert done.loaded().tolist() == EXPECTED


def test_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    broken = Producer(breaks_at=8)
    with pytest.raises(RuntimeError):
        make(tmp_path / "a", broken)
    assert not (tmp_path / "a" / COMPLETE).exists()
    with open(tmp_path / "a" / PROGRESS, "a") as lines:
        lines.write('[8, 123, {"ro')  # a line that a crash tore
    rest = Producer()
    assert make(tmp_path / "a", rest).loaded().tolist() == EXPECTED
    assert rest.asked == [8]


@pytest.mark.parametrize("form", ["loaded", "mapped"])
def test_a_damaged_chunk_is_named_and_made_again(
    form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "a", Producer())
    data = tmp_path / "a" / DATA
    whole = data.read_bytes()
    data.write_bytes(whole[:9] + b"\xff" + whole[10:])
    again = Producer()
    done = make(tmp_path / "a", again)
    if form == "loaded":
        assert done.loaded().tolist() == EXPECTED
    else:
        mapped = done.mapped()
        mapped.check(np.array([0, 9]))
        assert again.asked == [], "the damaged chunk was not used yet"
        assert mapped.check(np.array([3, 4])).tolist() == EXPECTED
    assert again.asked == [4]
    assert str(data) in caplog.text and "rows 4 to 7" in caplog.text
    assert data.read_bytes() == whole


@pytest.mark.parametrize("damage", ["cut", "lost", "note", "doubled note", "empty notes"])
def test_what_is_lost_is_made_again(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "a", Producer())
    data, notes = tmp_path / "a" / DATA, tmp_path / "a" / COMPLETE
    whole = notes.read_text()
    if damage == "cut":
        data.write_bytes(data.read_bytes()[:-3])
    elif damage == "lost":
        data.unlink()
    elif damage == "note":
        notes.write_text(whole.replace('"rows": 4', '"rows": 5', 1))
    elif damage == "doubled note":
        notes.write_text(whole + whole.splitlines()[0] + "\n")
    else:
        notes.write_text("")
    done = make(tmp_path / "a", Producer())
    assert done.loaded().tolist() == EXPECTED
    assert [note for _, _, note in done.notes] == [{"rows": 4}, {"rows": 4}, {"rows": 2}]
    assert damage == "doubled note" or "was damaged" in caplog.text


def test_no_folder_and_no_room(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/a.*written.*directory\).*paths\.cache_dir"):
        make(tmp_path / "file" / "a", Producer())
    with pytest.raises(
        DataError, match=r"needs .* GB and .* GB are free; .* or dataset\.store=none"
    ):
        cached_array(
            tmp_path / "b", (10**12, 10**6), Producer(), chunk=10**12, workers=1, title="test"
        )


def _slow(first: int, end: int) -> tuple[np.ndarray, Any]:
    time.sleep(0.05)
    return Producer()(first, end)


def _process(folder: Path, answers: Any) -> None:
    asked = Producer()

    def produce(first: int, end: int) -> tuple[np.ndarray, Any]:
        asked.asked.append(first)
        return _slow(first, end)

    done = make(folder, produce)
    answers.put((len(asked.asked), done.loaded().tolist()))


def test_two_processes_at_once(tmp_path: Path) -> None:
    """One makes all three chunks, the other waits and makes none."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=_process, args=(tmp_path / "a", answers)) for _ in range(2)]
    for process in processes:
        process.start()
    found = sorted(answers.get(timeout=30) for _ in processes)
    for process in processes:
        process.join()
    assert found == [(0, EXPECTED), (3, EXPECTED)]
