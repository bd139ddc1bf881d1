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
    assert done.mapped().tolist() == EXPECTED
    assert sorted(first.asked) == [0, 4, 8]
    assert [(at, note) for at, _, note in done.notes] == [(0, {"rows": 4}), (4, {"rows": 4}), (8, {"rows": 2})]
    again = make(tmp_path / "a", second)
    assert again.loaded().tolist() == EXPECTED
    assert second.asked == []


def test_what_is_written_to_the_mapping_stays_in_memory(tmp_path: Path) -> None:
    done = make(tmp_path / "a", Producer())
    done.mapped()[0, 0] = 99
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


def test_damage_is_found(tmp_path: Path) -> None:
    done = make(tmp_path / "a", Producer())
    data = tmp_path / "a" / DATA
    data.write_bytes(b"\xff" + data.read_bytes()[1:])
    with pytest.raises(DataError, match=r"damaged; delete.*folder.*start again"):
        done.loaded()
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"a is damaged"):
        make(tmp_path / "a", Producer())


def test_no_folder_and_no_room(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/a.*written.*directory\).*paths\.cache_dir"):
        make(tmp_path / "file" / "a", Producer())
    with pytest.raises(DataError, match=r"needs .* GB and .* GB are free; .* or dataset\.store=none"):
        cached_array(tmp_path / "b", (10**12, 10**6), Producer(), chunk=10**12, workers=1, title="test")


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
