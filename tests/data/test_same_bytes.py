"""Files with the same bytes: found by size, sample and content, in whatever format; the record is
checked.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dgbench.data.datasets import same_bytes
from dgbench.data.datasets.image_table import ImageTable, table_of
from dgbench.data.datasets.same_bytes import SAMPLE_BYTES, groups_of_files, known_groups

LARGE = 10 * SAMPLE_BYTES
RNG = np.random.default_rng(0)


def table(root: Path, contents: dict[str, bytes]) -> ImageTable:
    """Files of two classes with these contents, by the names of the files."""
    rows: list[tuple[str, str, str, None]] = []
    for name, content in contents.items():
        label = "cat" if len(rows) % 2 else "dog"
        file = root / "north" / label / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        rows.append((f"north/{label}/{name}", "north", label, None))
    return table_of(root, rows, ["north"], "same")


def names(images: ImageTable, groups: list[list[int]]) -> list[list[str]]:
    return sorted(sorted(Path(images.paths[i]).name for i in group) for group in groups)


def changed(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("size", [1, SAMPLE_BYTES, SAMPLE_BYTES + 1, LARGE])
def test_each_byte_counts(size: int, tmp_path: Path) -> None:
    """Three equal files, and others that differ from them in one bit, in a sample or between
    samples.
    """
    content = RNG.bytes(size)
    places = sorted({0, size // 3, size // 2, size - 1})
    contents = {"a": content, "b": content, "c": content, "longer": content + b"0"}
    contents |= {f"changed{place}": changed(content, place) for place in places}
    images = table(tmp_path / "tree", contents)
    assert names(images, groups_of_files(images, tmp_path / "cache", 2)) == [["a", "b", "c"]]


@pytest.mark.parametrize("alike", [False, True], ids=["other samples", "one sample"])
def test_two_pairs_of_one_size(alike: bool, tmp_path: Path) -> None:
    one = RNG.bytes(LARGE)
    other = changed(one, 0) if alike else RNG.bytes(LARGE)
    images = table(
        tmp_path / "tree", {"a": one, "b": other, "c": one, "d": other, "e": RNG.bytes(LARGE)}
    )
    assert names(images, groups_of_files(images, tmp_path / "cache", 1)) == [["a", "c"], ["b", "d"]]


def test_empty_files_and_what_cannot_be_read_equal_nothing(tmp_path: Path) -> None:
    images = table(tmp_path / "tree", {"a": b"", "b": b"", "c": b"xy", "d": b"xy", "e": b"xy"})
    (gone,) = [path for path in images.paths if path.endswith("/d")]
    os.remove(images.root / gone)
    assert names(images, groups_of_files(images, tmp_path / "cache", 1)) == [["c", "e"]]


def test_few_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose size is its own is not opened, and one whose sample is its own is not read
    whole.
    """
    sampled: list[str] = []
    whole: list[str] = []
    samples, content_of = same_bytes._samples, same_bytes._content

    def counted_samples(paths: list[str], sizes: list[int], part: list[int]) -> list[object]:
        sampled.extend(Path(paths[i]).name for i in part)
        return samples(paths, sizes, part)

    def counted_content(path: str) -> bytes | None:
        whole.append(Path(path).name)
        return content_of(path)

    monkeypatch.setattr(same_bytes, "_samples", counted_samples)
    monkeypatch.setattr(same_bytes, "_content", counted_content)
    content = RNG.bytes(LARGE)
    different = {f"different{i}": RNG.bytes(LARGE) for i in range(5)}
    longer = {f"longer{i}": RNG.bytes(LARGE + i + 1) for i in range(5)}
    images = table(tmp_path / "tree", {"a": content, "b": content, **different, **longer})
    groups_of_files(images, tmp_path / "cache", 1)
    assert sorted(sampled) == sorted(["a", "b", *different])
    assert sorted(whole) == ["a", "b"]
    assert groups_of_files(images, tmp_path / "cache", 1) and len(sampled) == 7, (
        "what was found is kept"
    )


def test_a_damaged_record_is_made_again(tmp_path: Path) -> None:
    images = table(tmp_path / "tree", dict.fromkeys("abcd", b"same"))
    cache = tmp_path / "cache"
    assert known_groups(images, cache) is None
    groups = groups_of_files(images, cache, 1)
    assert known_groups(images, cache) == groups == [[0, 1, 2, 3]]
    (record,) = cache.rglob("*.json")
    for damage in ("", "[", "[[[0, 1]], 7]", record.read_text().replace("2", "1"), "null"):
        record.write_text(damage)
        assert known_groups(images, cache) is None
        assert groups_of_files(images, cache, 1) == groups
    assert known_groups(images, cache) == groups


def test_changed_files_are_compared_again(tmp_path: Path) -> None:
    images = table(tmp_path / "tree", {"a": b"same", "b": b"same"})
    cache = tmp_path / "cache"
    assert groups_of_files(images, cache, 1)
    again = table(tmp_path / "tree", {"a": b"same", "b": b"else"})
    assert known_groups(again, cache) is None and groups_of_files(again, cache, 1) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    images = table(tmp_path / "tree", {"a": b"same", "b": b"same"})
    (tmp_path / "cache").write_text("a file")
    assert groups_of_files(images, tmp_path / "cache", 1) == [[0, 1]]
